"""What can be declared of the steps between versions, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_durable_state import EvolutionError, UsageError
from langgraph_durable_state.evolution import (
    Operation,
    StateSchema,
    add_channel,
    convert_channel,
    drop_channel,
    drop_node,
    merge,
    move_class,
    rename_channel,
    rename_field,
    rename_node,
    split,
)


def same(values: dict[str, Any]) -> dict[str, Any]:
    return values


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.step(0, convert_channel("x", "int")),  # type: ignore[arg-type]
        lambda s: s.step(0, convert_channel("x", int, "str")),  # type: ignore[arg-type]
        lambda s: s.step(0, add_channel("x", factory=[])),  # type: ignore[arg-type]
        lambda s: s.step(0, add_channel("x", default=...)),
        lambda s: s.step(0, split("x", ["a", "b"], None)),  # type: ignore[arg-type]
        lambda s: s.step(0, merge(["a", "b"], "x", 1)),  # type: ignore[arg-type]
        lambda s: s.step(0, rename_channel("a", "b", at=None)),  # type: ignore[arg-type]
        lambda s: s.step(0, updates={"x": len})(dict),
        lambda s: s.step(0, downgrade=1)(dict),
        lambda s: s.step(0, channels="total")(dict),
        lambda s: s.step(0)("no function"),
        lambda s: s.step(0)(_later),
    ],
)
def test_what_could_not_be_called_is_refused_when_it_is_declared(declare: Any) -> None:
    """Not at the first read of somebody's thread."""
    with pytest.raises(UsageError):
        declare(StateSchema(1))


async def _later(values: dict[str, Any]) -> dict[str, Any]:
    return values


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (rename_channel("a", "b"), rename_channel("b", "c")),
        (rename_channel("a", "b"), rename_channel("c", "b")),
        (rename_channel("a", "b"), drop_channel("a")),
        (rename_channel("a", "b"), rename_channel("b", "a")),
        (add_channel("a"), split("x", ("a", "b"), list)),
        (convert_channel("a", str), rename_field("a", None, "x", "y")),
        (rename_node("a", "b"), rename_node("b", "a")),
        (rename_node("a", "b"), rename_node("c", "b")),
        (drop_node("a"), rename_node("b", "a")),
        (drop_node("a", to="b"), rename_node("b", "c")),
        (rename_channel("a", "b", at="in*"), drop_channel("a", at="inner")),
        (rename_channel("a", "b", at="in*"), drop_channel("a", at="*ner")),
        (move_class("m:A", "m:B"), move_class("m:B", "m:C")),
        (move_class("m:A", "m:B"), rename_field("x", "m:A", "p", "q")),
        (rename_field("x", "m:A", "p", "q"), rename_field("x", "m:A", "q", "r")),
    ],
)
def test_operations_of_one_step_that_contradict(one: Operation, other: Operation) -> None:
    """They are refused when they are declared, in either order, and leave nothing behind."""
    for first, second in ((one, other), (other, one)):
        schema = StateSchema(version=1)
        with pytest.raises(UsageError, match=r"step 0: .*step"):
            schema.step(0, first, second)
        assert schema.operations(0) == (first,)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (rename_channel("a", "b"), rename_channel("a", "c", at="inner")),
        (drop_node("a", to="b"), drop_node("c", to="b")),
        (rename_node("a", "b"), rename_channel("a", "b")),
        (rename_field("x", "m:A", "p", "q"), rename_field("x", "m:A", "r", "s")),
    ],
)
def test_operations_of_one_step_that_go_together(one: Operation, other: Operation) -> None:
    """Of other graphs, of other kinds, of other fields."""
    schema = StateSchema(version=1)
    schema.step(0, one, other)
    assert schema.operations(0) == (one, other)


@pytest.mark.parametrize(
    "operation",
    [
        rename_channel("a", "a"),
        rename_node("a", "a"),
        drop_node("a", to="a"),
        split("a", ("b", "b"), list),
        merge(("a", "a"), "b", max),
    ],
)
def test_an_operation_that_goes_in_a_circle(operation: Operation) -> None:
    """It is refused when it is declared."""
    with pytest.raises(UsageError):
        StateSchema(version=1).step(0, operation)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rename_channel("", "a"),
        lambda: rename_node("a", None),  # type: ignore[arg-type]
        lambda: rename_node("crew", "crew/2"),  # a path of names is told apart by these
        lambda: rename_node("crew:2", "crew"),
        lambda: drop_node("crew", to="a|b"),
        lambda: split("a", "bc", list),
        lambda: split("a", ("b",), list),
        lambda: move_class("no_colon", "m:A"),
        lambda: add_channel("a", default=1, factory=list),
        lambda: StateSchema(version=-1),
        lambda: StateSchema(version=True),
        lambda: StateSchema(version=1).step(1, add_channel("a")),
        lambda: StateSchema(version=1).step(-1),
        lambda: StateSchema(version=1).step(0, "rename"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_declaration(make: Any) -> None:
    """It is refused where it is written."""
    with pytest.raises(UsageError):
        make()


def test_a_function_and_an_operation_on_one_graph() -> None:
    """Which comes first would matter: unless they are about other channels."""
    for at, channels, fits in (("", None, False), ("in", None, True), ("", ["z"], True)):
        schema = StateSchema(version=1)
        schema.step(0, rename_channel("a", "b"))
        declare = schema.step(0, at=at, channels=channels)
        if fits:
            declare(same)
        else:
            with pytest.raises(UsageError, match="make them two steps"):
                declare(same)
    schema.step(0, rename_node("n", "m"))
    with pytest.raises(UsageError, match="make them two steps"):
        schema.step(0)(same)


def test_a_gap() -> None:
    """It is refused when the schema is used; a step that changes nothing is declared as such."""
    schema = StateSchema(version=3)
    schema.step(0)
    schema.step(2, add_channel("a"))
    with pytest.raises(UsageError, match="step 1, to version 2"):
        schema.checked()
    schema.step(1)
    assert schema.checked() is schema


def test_a_version_that_this_code_does_not_know() -> None:
    """Newer code has been there."""
    schema = StateSchema(version=1, graph="support")
    schema.step(0)
    with pytest.raises(EvolutionError, match="version 2 of graph 'support'"):
        schema.stages(2, 1, "")


@pytest.mark.parametrize(
    ("operation", "back"),
    [
        (rename_channel("a", "b"), True),
        (add_channel("a"), True),
        (rename_node("a", "b"), True),
        (rename_field("a", None, "x", "y"), True),
        (move_class("m:A", "m:B"), True),
        (convert_channel("a", str, int), True),
        (split("a", ("b", "c"), list, max), True),
        (merge(("a", "b"), "c", max, list), True),
        (convert_channel("a", str), False),
        (split("a", ("b", "c"), list), False),
        (merge(("a", "b"), "c", max), False),
        (drop_channel("a"), False),
        (drop_node("a"), False),
        (drop_node("a", to="b"), False),
    ],
)
def test_the_way_back(operation: Operation, back: bool) -> None:
    """There is one where nothing is lost, or where it was declared."""
    schema = StateSchema(version=1)
    schema.step(0, operation)
    if back:
        assert schema.stages(1, 0, "")
    else:
        with pytest.raises(EvolutionError, match="No way back from version 1"):
            schema.stages(1, 0, "")
    assert schema.stages(1, 0, "elsewhere")


def test_the_way_back_of_a_function() -> None:
    """It is one if it was declared."""
    for downgrade in (None, same):
        schema = StateSchema(version=1)
        schema.step(0, downgrade=downgrade)(same)
        if downgrade:
            assert schema.stages(1, 0, "")
        else:
            with pytest.raises(EvolutionError):
                schema.stages(1, 0, "")


def test_a_graphs_path_through_the_steps() -> None:
    """Each part is a node of the graph above it, under the names of that step."""
    schema = StateSchema(version=2)
    schema.step(0, rename_node("a", "b"), rename_node("in", "deep", at="a"))
    schema.step(1, rename_node("b", "c"), rename_node("deep", "deeper", at="b"))
    assert schema.path("a/in", 0, 2) == "c/deeper"
    assert schema.path("c/deeper", 2, 0) == "a/in"
    assert schema.path("x/in", 0, 2) == "x/in"
    assert schema.path("", 0, 2) == ""
