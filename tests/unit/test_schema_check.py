"""What `schema.check` says of a change, and of what is declared of it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pytest
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from langgraph_durable_state import UsageError
from langgraph_durable_state.evolution import (
    Fingerprint,
    SchemaReport,
    StateSchema,
    add_channel,
    convert_channel,
    drop_channel,
    drop_node,
    merge,
    move_class,
    rename_channel,
    rename_node,
    split,
)


class Old:
    pass


class New:
    pass


def add(held: Any, new: Any) -> Any:
    return held + new


def graph(
    keys: Mapping[str, Any],
    nodes: Sequence[str] = ("a",),
    inside: Mapping[str, Any] | None = None,
    joins: Sequence[tuple[list[str], str]] = (),
) -> Any:
    made = StateGraph(TypedDict("State", dict(keys)))  # type: ignore[operator]
    for name in nodes:
        made.add_node(name, (inside or {}).get(name, lambda _: {}))
        made.add_edge(START, name)
    for starts, end in joins:
        made.add_edge(starts, end)
    return made.compile(name="g")


def check(was: Any, now: Any, *operations: Any) -> SchemaReport:
    """Of two graphs, with operations declared from version 0 to 1; without any both are 0."""
    recorded = StateSchema(0, "g").record(was)
    schema = StateSchema(1 if operations else 0, "g")
    if operations:
        schema.step(0, *operations)
    return schema.check(now, recorded)


def steps(report: SchemaReport) -> list[str]:
    return list(report.steps)


def test_a_graph_that_did_not_change() -> None:
    report = check(graph({"x": int}), graph({"x": int}))
    assert report
    assert (report.ok, report.stale, report.differences) == (True, False, ())
    assert str(report) == "graph 'g', version 0: as it was recorded"


def test_a_key_that_vanished_and_one_of_equal_type_that_appeared() -> None:
    """Taken for the same, as a guess; the report shows the step as code."""
    report = check(graph({"msgs": list[int]}), graph({"messages": list[int], "n": str}))
    assert not report
    assert str(report).splitlines() == [
        "graph 'g', version 0: 2 undeclared changes",
        "channel renamed: msgs -> messages: what 'msgs' held would be gone, if 'messages' is the"
        ' same; rename_channel("msgs", "messages"), if it is the same',
        "channel added: n (str): no thread that was stored before has a value for it, and a node"
        ' that reads it fails; add_channel("n", default=...)',
        "# version=1",
        "schema.step(",
        "    0,",
        '    rename_channel("msgs", "messages"),  # if it is the same',
        '    add_channel("n", default=...),',
        ")",
    ]


def test_of_several_the_likest_name_is_guessed() -> None:
    """And where none is like, nothing is."""
    report = check(
        graph({"user_name": str, "title": str}), graph({"username": str, "caption": str})
    )
    assert steps(report) == [
        'rename_channel("user_name", "username")',
        'drop_channel("title")',
        'add_channel("caption", default=...)',
    ]


def test_a_change_in_a_graph_in_a_node_says_where() -> None:
    """The same names in the graph around it are another matter."""
    inner = {"sub": graph({"x": int})}, {"sub": graph({"x": str})}
    was, now = (graph({"x": int}, ["sub"], each) for each in inner)
    report = check(was, now)
    assert [(each.path, each.where, each.step) for each in report.differences] == [
        ("sub", "sub/x", 'convert_channel("x", lambda value: ..., at="sub")')
    ]
    assert check(was, now, convert_channel("x", str, at="sub")).ok
    assert check(was, now, convert_channel("x", str, at="*")).ok
    assert not check(was, now, convert_channel("x", str)).ok


def test_a_node_with_a_graph_in_it_that_has_another_name() -> None:
    """It is the only one with a graph in it; what changed in that is told in the old names."""
    was = graph({"x": int}, ["research", "p"], {"research": graph({"y": int})})
    now = graph({"x": int}, ["dig", "q"], {"dig": graph({"y": int, "z": int})})
    report = check(was, now)
    assert steps(report) == [
        'rename_node("p", "q")',
        'rename_node("research", "dig")',
        'add_channel("z", default=..., at="research")',
    ]
    declared = (
        rename_node("research", "dig"),
        rename_node("p", "q"),
        add_channel("z", default=0, at="research"),
    )
    assert check(was, now, *declared).differences == ()


def test_a_graph_that_is_in_another_node_now() -> None:
    """No step can say that: what waits in it is forgotten."""
    inner = graph({"y": int})
    was = graph({"x": int}, ["a", "b"], {"a": inner})
    now = graph({"x": int}, ["a", "b"], {"b": inner})
    report = check(was, now)
    assert [(each.change, each.name, each.now, each.needed) for each in report.differences] == [
        ("subgraph removed", "a", "b", True),
        ("subgraph added", "b", None, False),
    ]
    assert "no step can: let such threads finish, then record it" in str(report)


@pytest.mark.parametrize(
    ("was", "now", "operation"),
    [
        ({"x": int}, {"y": int}, rename_channel("x", "y")),
        ({"x": int}, {"x": str}, convert_channel("x", str)),
        ({"x": int}, {"x": int, "y": int}, add_channel("y", default=1)),
        ({"x": int, "y": int}, {"x": int}, drop_channel("y")),
        ({"x": str}, {"y": str, "z": str}, split("x", ["y", "z"], str.split)),
        ({"y": str, "z": str}, {"x": str}, merge(["y", "z"], "x", str)),
        ({"x": list[Old]}, {"x": list[New]}, move_class(f"{__name__}:Old", f"{__name__}:New")),
    ],
)
def test_what_is_declared_is_not_told(was: Any, now: Any, operation: Any) -> None:
    """Without the step it is; with it all that is left to do is to record the new shape."""
    assert not check(graph(was), graph(now)).ok
    report = check(graph(was), graph(now), operation)
    assert (report.ok, report.stale, report.differences) == (True, True, ())
    assert "record it" in str(report)


def test_a_class_that_has_another_name_is_guessed() -> None:
    report = check(graph({"x": dict[str, Old]}), graph({"x": dict[str, New]}))
    assert steps(report) == [f'move_class("{__name__}:Old", "{__name__}:New")']
    assert report.differences[0].guess


def test_a_function_is_taken_to_do_what_it_is_about() -> None:
    """Of what it does nothing is known: the changes are told, and need nothing."""
    recorded = StateSchema(0, "g").record(graph({"x": int, "n": int}))
    now = graph({"y": str, "n": str})
    for channels, needed in ((None, []), (["x", "y"], ["n"])):
        schema = StateSchema(1, "g")
        schema.step(0, channels=channels)(lambda values: values)
        report = schema.check(now, recorded)
        assert [each.name for each in report.differences if each.needed] == needed
        assert {each.name for each in report.differences} == {"x", "y", "n"}


def test_a_step_about_what_is_not_there_is_told() -> None:
    """A slip of the pen would otherwise be found by the first thread that is read."""
    report = check(
        graph({"x": int}), graph({"x": int}), rename_channel("z", "y"), rename_node("q", "r")
    )
    assert [(each.change, each.name, each.remedy) for each in report.differences] == [
        ("step without effect", "channel 'z'", "correct step 0"),
        ("step without effect", "node 'q'", "correct step 0"),
        ("channel removed", "y", "correct the step that makes it"),
    ]


def test_steps_of_several_versions_follow_each_other() -> None:
    schema = StateSchema(2, "g")
    schema.step(0, rename_channel("x", "y"), rename_node("a", "b"))
    schema.step(1, rename_channel("y", "z"), rename_node("b", "c"))
    recorded = StateSchema(0, "g").record(graph({"x": int}, ["a"]))
    assert schema.check(graph({"z": int}, ["c"]), recorded).differences == ()


def test_a_dropped_node_is_no_more_waited_for() -> None:
    """Nor is what the graph in it stored."""
    inner = {"b": graph({"y": int})}
    was = graph({"x": int}, ["a", "b", "c", "d"], inner, [(["a", "b", "d"], "c")])
    now = graph({"x": int}, ["a", "c", "d"], None, [(["a", "d"], "c")])
    assert check(was, now, drop_node("b")).differences == ()
    assert check(was, now, drop_node("b", to="a")).differences == ()


def test_another_reducer() -> None:
    """Of a DeltaChannel it makes what was stored anew; of others only what comes."""
    was, now = (graph({"x": Annotated[list, each]}) for each in (operator.add, add))
    (told,) = check(was, now).differences
    assert (told.change, told.was, told.now) == (
        "channel with another reducer",
        "operator:add",
        f"{__name__}:add",
    )
    assert not told.needed
    was, now = (graph({"x": Annotated[list, DeltaChannel(each)]}) for each in (operator.add, add))
    assert not check(was, now).ok


def test_a_type_that_takes_more_needs_no_step() -> None:
    report = check(graph({"x": list[int]}), graph({"x": list[int | str] | None}))
    assert [(each.change, each.needed) for each in report.differences] == [
        ("channel of another type", False)
    ]
    assert not check(graph({"x": int | None}), graph({"x": int})).ok


def test_the_schema_may_hold_the_fingerprint() -> None:
    """As a value or as its text."""
    recorded = StateSchema(0, "g").record(graph({"x": int}))
    for each in (recorded, str(recorded)):
        assert StateSchema(0, "g", fingerprint=each).check(graph({"x": int})).ok
    with pytest.raises(UsageError, match="record"):
        StateSchema(0, "g").check(graph({"x": int}))


def test_a_record_that_does_not_belong_to_the_schema_is_refused() -> None:
    """Of a newer version, of another graph; and a schema with a gap is."""
    made = graph({"x": int})
    with pytest.raises(UsageError, match=r"version 2 .* was recorded; this schema has version 0"):
        StateSchema(0, "g").check(made, Fingerprint("g", 2, {}))
    with pytest.raises(UsageError, match="of graph 'h', not of 'g'"):
        StateSchema(0, "g").check(made, Fingerprint("h", 0, {}))
    with pytest.raises(UsageError, match="nothing was declared of step 0"):
        StateSchema(1, "g").check(made, StateSchema(0, "g").record(made))


def test_the_report_in_a_notebook_is_a_table() -> None:
    """With nothing of a name taken for markup."""
    page = check(graph({"x": int}), graph({"<b>": Annotated[list, add]}))._repr_html_()
    assert page.count("<tr>") == 2
    assert "&lt;b&gt; (list)" in page
    assert "drop_channel(&quot;x&quot;)" in page


def test_the_report_as_plain_values() -> None:
    told = check(graph({"x": int}), graph({"x": str})).as_dict()
    assert (told["ok"], told["recorded"], told["version"]) == (False, 0, 0)
    assert [(each["name"], each["was"], each["now"]) for each in told["differences"]] == [
        ("x", "int", "str")
    ]
