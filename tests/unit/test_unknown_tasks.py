"""What waits for a node that the code does not have: LangGraph says nothing, this does."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state.decisions.evolution.evolving import evolved
from langgraph_durable_state.decisions.evolution.unknown import unknown_tasks
from langgraph_durable_state.evolution import StateSchema, rename_node
from tests.moving import THREAD, config, head


class State(TypedDict):
    seen: Annotated[list[str], operator.add]


def ask(_: Any) -> Any:
    return {"seen": [interrupt("?")]}


def fail(_: Any) -> Any:
    raise RuntimeError("no")


def say(_: Any) -> Any:
    return {"seen": ["said"]}


def send(_: Any) -> Any:
    return [Send("worker", {"n": 1}), Send("worker", {"n": 2})]


def graph(
    nodes: Mapping[str, Any],
    edges: Sequence[tuple[Any, str]],
    deferred: Sequence[str] = (),
    before: Sequence[str] = (),
) -> tuple[Any, InMemorySaver]:
    made, saver = StateGraph(State), InMemorySaver()
    for name, node in nodes.items():
        made.add_node(name, node, defer=name in deferred)
    for start, end in edges:
        if end == "send":
            made.add_conditional_edges(start, send, ["worker"])
        else:
            made.add_edge(start, end)
    return made.compile(checkpointer=saver, interrupt_before=list(before)), saver


def run(made: Any, given: Any = None) -> None:
    try:
        made.invoke(given or {"seen": []}, config())
    except RuntimeError:
        pass  # the thread stands before what failed


BOTH = [(START, "a"), (START, "b")]


@pytest.mark.parametrize(
    ("nodes", "edges", "more", "gone"),
    [
        ({"a": say, "b": ask}, [(START, "a"), ("a", "b")], {}, "b"),
        ({"a": say, "b": fail}, [(START, "a"), ("a", "b")], {}, "b"),
        ({"a": say, "b": say}, [(START, "a"), ("a", "b")], {"before": ["b"]}, "b"),
        ({"a": say, "b": ask}, [(START, "a"), ("a", "b")], {"deferred": ["b"]}, "b"),
        ({"done": say, "b": ask}, [(START, "done"), (START, "b")], {}, "done"),
        ({"a": say, "b": say, "c": ask}, [*BOTH, (["a", "b"], "c")], {}, "c"),
        ({"a": say, "worker": ask}, [(START, "a"), ("a", "send")], {}, "worker"),
        (
            {"a": say, "worker": say, "b": ask},
            [(START, "a"), ("a", "send"), (START, "b")],
            {},
            "worker",
        ),
        ({"a": say, "c": say, "b": ask}, [*BOTH, ("a", "c")], {}, "c"),
    ],
    ids=[
        "asks",
        "failed",
        "waits before",
        "deferred",
        "done",
        "joined",
        "sent",
        "to be sent",
        "next",
    ],
)
def test_what_waits_for_a_node_is_named(nodes: Any, edges: Any, more: Any, gone: str) -> None:
    """However it came to wait; the nodes that are there are not named."""
    made, saver = graph(nodes, edges, **more)
    run(made)
    snapshot = head(saver)
    assert unknown_tasks(snapshot, set(nodes)) == ()
    assert unknown_tasks(snapshot, set(nodes) - {gone}) == (gone,)


def test_langgraph_says_nothing_of_it() -> None:
    """The human's answer is taken and forgotten: the reason why this is looked for."""
    made, saver = graph({"ask": ask}, [(START, "ask")])
    run(made)
    other, _ = graph({"ask_human": ask}, [(START, "ask_human")])
    other.checkpointer = saver
    assert unknown_tasks(head(saver), {"ask_human"}) == ("ask",)
    assert other.get_state(config()).next == ()
    assert other.invoke(Command(resume="yes"), config()) == {"seen": []}


def test_a_declared_name_is_known() -> None:
    """In the names of the newer version nothing is missing."""
    made, saver = graph({"ask": ask}, [(START, "ask")])
    run(made)
    schema = StateSchema(1)
    schema.step(0, rename_node("ask", "ask_human"))
    assert unknown_tasks(evolved(head(saver), schema, 1), {"ask_human"}) == ()


def test_a_node_that_has_long_run_may_go() -> None:
    """Nothing waits for it: not in a run that has ended, nor in one that waits elsewhere."""
    made, saver = graph({"a": say, "b": ask}, [(START, "a"), ("a", "b")])
    run(made)
    assert unknown_tasks(head(saver), {"b"}) == ()
    run(made, Command(resume="yes"))
    assert unknown_tasks(head(saver), ()) == ()


def test_an_edge_that_still_waits_names_nobody() -> None:
    """It may for ever."""
    nodes = {"a": say, "b": fail, "c": say, "d": say}
    edges = [(START, "a"), ("a", "d"), ("d", "b"), (["a", "b"], "c")]
    made, saver = graph(nodes, edges)
    run(made)
    assert head(saver).checkpoint["channel_values"]["join:a+b:c"] == {"a"}
    assert unknown_tasks(head(saver), {"a", "b", "d"}) == ()


def test_a_graph_in_a_node_has_nodes_of_its_own() -> None:
    """Each namespace is asked with those of its own graph."""
    within = StateGraph(State)
    within.add_node("deep", ask)
    within.add_edge(START, "deep")
    made, saver = graph({"sub": within.compile()}, [(START, "sub")])
    run(made)
    (ns,) = (each for each in saver.storage[THREAD] if each)
    assert unknown_tasks(head(saver), {"sub"}) == ()
    assert unknown_tasks(head(saver, ns), {"deep"}) == ()
    assert unknown_tasks(head(saver, ns), {"deeper"}) == ("deep",)
