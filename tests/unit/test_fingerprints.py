"""The fingerprint of a graph: what is told of it, and that it is told the same everywhere."""

from __future__ import annotations

import collections.abc
import decimal
import json
import operator
import os
import pathlib
import subprocess
import sys
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Union

import pytest
import typing_extensions
from langchain_core.messages import AnyMessage
from langgraph.channels import DeltaChannel, EphemeralValue, Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from typing_extensions import TypedDict

from langgraph_durable_state import UsageError
from langgraph_durable_state.decisions.evolution.fingerprint import fingerprint_of
from langgraph_durable_state.decisions.evolution.spelling import fits, home, spelled
from langgraph_durable_state.evolution import StateSchema


class Colour(Enum):
    RED = 1


class Outer:
    class Inner:
        pass

    def __call__(self, a: Any, b: Any) -> Any:
        return a


Ticket = NewType("Ticket", int)
HERE = __name__


@pytest.mark.parametrize(
    ("typ", "text"),
    [
        (int, "int"),
        (None, "None"),
        (Any, "Any"),
        (Optional[int], "int | None"),  # noqa: UP045
        (None | str | int, "int | str | None"),
        (Union[str, int], "int | str"),  # noqa: UP007
        (dict[str, list[int | None]], "dict[str, list[int | None]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["b", "a"], "Literal['a', 'b']"),
        (Literal[Colour.RED], f"Literal[{HERE}:Colour.RED]"),
        (collections.abc.Callable[[int], str], "collections.abc:Callable[[int], str]"),
        (list[AnyMessage], "list[langchain_core.messages:AnyMessage]"),
        (Annotated[list[Annotated[int, 3]], operator.add], "list[int]"),
        (NotRequired[int], "int"),
        (typing_extensions.Required[int], "int"),
        (pathlib.Path, "pathlib:Path"),
        (decimal.Decimal, "decimal:Decimal"),
        (Outer.Inner, f"{HERE}:Outer.Inner"),
        (Ticket, f"{HERE}:Ticket"),
        (list["Later"], "list[Later]"),  # type: ignore[name-defined]  # noqa: F821
    ],
)
def test_a_type_is_spelled_as_one_would_write_it(typ: Any, text: str) -> None:
    """With the module of a class, and nothing that differs from one Python to the next."""
    assert spelled(typ) == text


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (operator.add, "operator:add"),
        (add_messages, "langgraph.graph.message:add_messages"),
        (max, "max"),
        (partial(operator.add, 1), "partial(operator:add)"),
        (Outer(), f"{HERE}:Outer"),
        (lambda a, b: a, f"{HERE}:<lambda>"),
    ],
)
def test_a_function_is_spelled_without_its_address(function: Any, text: str) -> None:
    assert home(function) == text


@pytest.mark.parametrize(
    ("value", "typ", "yes"),
    [
        ("int", "int | None", True),
        ("int | None", "int", False),
        ("list[int]", "list[int | str]", True),
        ("list[int]", "list", True),
        ("list", "list[Any]", True),
        ("list", "list[int]", False),
        ("dict[str, int]", "dict[str, Any]", True),
        ("dict[str, int]", "dict[int, int]", False),
        ("Literal['a', 'b']", "Literal['a', 'b', 'c']", True),
        ("Literal['a', 'b']", "Literal['a']", False),
        ("Literal['a, b | c']", "Literal['a, b | c'] | None", True),
        ("app:One", "app:Two", False),
    ],
)
def test_a_type_that_is_wider_takes_what_was_stored(value: str, typ: str, yes: bool) -> None:
    assert fits(value, typ) == yes


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    count: int
    note: NotRequired[str]
    log: Annotated[list[str], DeltaChannel(operator.add)]
    items: Annotated[list[int], Topic(int, accumulate=True)]  # type: ignore[arg-type]
    now: Annotated[int, EphemeralValue]
    left: RemainingSteps


def built(checkpointer: Any = None, sub: Any = None) -> Any:
    graph = StateGraph(State)
    graph.add_node("a", lambda _: {})
    graph.add_node("b", sub or (lambda _: {}))
    graph.add_node("c", lambda _: {}, defer=True)
    graph.add_edge(START, "b")
    graph.add_edge(START, "a")
    graph.add_edge(["b", "a"], "c")
    return graph.compile(checkpointer=checkpointer, name="support")


SHAPE = {
    "channels": {
        "count": {"kind": "LastValue", "required": True, "type": "int"},
        "items": {"kind": "Topic, accumulated", "type": "list[int]"},
        "left": {"kind": "managed", "type": "langgraph.managed.is_last_step:RemainingStepsManager"},
        "log": {"kind": "DeltaChannel", "reducer": "operator:add", "type": "list"},
        "messages": {
            "kind": "BinaryOperatorAggregate",
            "reducer": "langgraph.graph.message:add_messages",
            "type": "list[langchain_core.messages:AnyMessage]",
        },
        "note": {"kind": "LastValue", "type": "str"},
        "now": {"kind": "EphemeralValue", "type": "int"},
    },
    "joins": {"join:b+a:c": ["b", "a"]},
    "nodes": {"a": {}, "b": {}, "c": {"deferred": True}},
}
"""Format 1, which every later version of this library reads."""


def test_a_graph_is_told_with_the_graphs_in_it() -> None:
    """Nothing of what LangGraph makes for itself is; the text is read back as it was."""
    graph = built(InMemorySaver(), built(True, built()))
    taken = StateSchema(3, "support").record(graph)
    assert json.loads(str(taken)) == {
        "format": 1,
        "graph": "support",
        "version": 3,
        "shapes": {"": SHAPE, "b": SHAPE | {"checkpointer": "kept"}, "b/b": SHAPE},
    }
    assert fingerprint_of(str(taken)) == taken
    assert taken.nodes_at("b") == {"a", "b", "c"}
    assert taken.nodes_at("a") is None


def test_the_text_is_sorted_and_the_same_in_every_process() -> None:
    """Whatever the seed of its hashes."""
    code = (
        "from tests.unit.test_fingerprints import *\n"
        "print(StateSchema(3).record(built(None, built(True))), end='')"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=pathlib.Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    (text,) = told
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_a_graph_without_keys_and_a_function_have_shapes_too() -> None:
    plain = StateGraph(list)
    plain.add_node("x", lambda held: held)
    plain.add_edge(START, "x")
    taken = StateSchema(0).record(plain.compile())
    assert {name: each.type for name, each in taken.shapes[""].channels.items()} == {
        "__root__": "list"
    }

    @entrypoint(checkpointer=InMemorySaver())
    def flow(given: int) -> int:
        return given

    assert StateSchema(0).record(flow).nodes_at("") == {"flow"}


def test_a_graph_that_calls_itself_is_told_once() -> None:
    def again(_: Any) -> Any:
        return graph.invoke({})

    inner = StateGraph(State)
    inner.add_node("again", again)
    inner.add_edge(START, "again")
    graph = inner.compile()
    assert list(StateSchema(0).record(graph).shapes) == [""]


@pytest.mark.parametrize("thing", [StateGraph(State), None, "app:graph"])
def test_what_is_no_compiled_graph_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError, match="no compiled graph"):
        StateSchema(0).record(thing)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 1}',
        '{"format": 1, "graph": 1, "version": 1, "shapes": {"": {}}}',
        '{"format": 1, "graph": "g", "version": 1, "shapes": {}}',
    ],
)
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="this is no fingerprint"):
        fingerprint_of(text)


def test_a_fingerprint_of_a_newer_format_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has format 2; .* knows formats up to 1"):
        fingerprint_of('{"format": 2}')
