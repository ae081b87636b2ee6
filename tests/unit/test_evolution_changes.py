"""A run that waits while its graph is changed in other ways than by name, with LangGraph's own
saver."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.decisions.evolution.evolving import evolved, shown
from langgraph_durable_state.evolution import (
    Operation,
    StateSchema,
    add_channel,
    convert_channel,
    drop_channel,
    drop_node,
    merge,
    rename_channel,
    rename_node,
    split,
)
from tests.moving import THREAD, head, moved, place, snapshots

CONFIG: Any = {"configurable": {"thread_id": THREAD}}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Wider(State):
    mood: str


def says(word: str) -> Any:
    return lambda state: {"log": [word]}


def asks(state: Any) -> Any:
    return {"log": [interrupt("?")]}


def line(state: Any, **nodes: Any) -> StateGraph:
    graph = StateGraph(state)
    for name, node in nodes.items():
        graph.add_node(name, node)
    for one, other in zip([START, *nodes], [*nodes, END], strict=True):
        graph.add_edge(one, other)
    return graph


def schema_of(*operations: Operation) -> StateSchema:
    schema = StateSchema(version=1, graph="test")
    schema.step(0, *operations)
    return schema


def started(graph: StateGraph, given: Any = None, **options: Any) -> InMemorySaver:
    saver = InMemorySaver()
    graph.compile(checkpointer=saver, **options).invoke(given or {"log": []}, CONFIG)
    return saver


def test_a_key_that_was_removed_while_a_thread_waits_at_a_breakpoint() -> None:
    """The next resume passes the breakpoint; with the key still there it never does."""
    old = started(
        line(Wider, a=says("a"), b=says("b")), {"log": [], "mood": "x"}, interrupt_before=["b"]
    )
    graph: Any = line(State, a=says("a"), b=says("b")).compile(
        checkpointer=moved(old, schema_of(drop_channel("mood"))), interrupt_before=["b"]
    )
    assert graph.invoke(None, CONFIG) == {"log": ["a", "b"]}
    assert graph.get_state(CONFIG).next == ()


def test_a_key_that_was_added_while_a_thread_waits_at_a_breakpoint() -> None:
    """It has its default, and the breakpoint is passed."""
    old = started(line(State, a=says("a"), b=says("b")), interrupt_before=["b"])
    graph: Any = line(Wider, a=says("a"), b=lambda state: {"log": [state["mood"]]}).compile(
        checkpointer=moved(old, schema_of(add_channel("mood", default="calm"))),
        interrupt_before=["b"],
    )
    assert graph.invoke(None, CONFIG) == {"log": ["a", "calm"], "mood": "calm"}


@pytest.mark.parametrize("stop", [True, False])
def test_a_key_of_another_form_while_a_thread_waits(stop: bool) -> None:
    """Its node is given the new form, and what was written but not taken up has it too."""

    class Numbers(TypedDict):
        log: Annotated[list[int], operator.add]

    def branching(state: Any, a: Any) -> Any:
        graph = StateGraph(state)
        graph.add_node("a", a)
        graph.add_node("b", asks)
        graph.add_edge(START, "a")
        graph.add_edge(START, "b")
        return graph

    old = started(branching(State, says("1")), {"log": ["0"]})
    convert = convert_channel("log", lambda value: [int(each) for each in value])
    graph: Any = branching(Numbers, says("never")).compile(
        checkpointer=moved(old, schema_of(convert))
    )
    assert graph.invoke(Command(resume=2), CONFIG) == {"log": [0, 1, 2]}


def test_a_key_that_was_split_and_keys_that_were_merged() -> None:
    """While a thread waits."""

    class Names(TypedDict):
        log: Annotated[list[str], operator.add]
        name: str

    class Parts(TypedDict):
        log: Annotated[list[str], operator.add]
        first: str
        last: str

    def nodes(state: Any, key: str) -> StateGraph:
        return line(state, a=asks, b=lambda state: {"log": [state[key]]})

    old = started(nodes(Names, "name"), {"log": [], "name": "Ada Byron"})
    apart = moved(old, schema_of(split("name", ("first", "last"), str.split)))
    graph: Any = nodes(Parts, "last").compile(checkpointer=apart)
    assert graph.invoke(Command(resume="yes"), CONFIG)["log"] == ["yes", "Byron"]

    old = started(nodes(Parts, "last"), {"log": [], "first": "Ada", "last": "Byron"})
    joined = schema_of(merge(("last", "first"), "name", lambda last, first: f"{first} {last}"))
    graph = nodes(Names, "name").compile(checkpointer=moved(old, joined))
    assert graph.invoke(Command(resume="yes"), CONFIG)["log"] == ["yes", "Ada Byron"]


def test_a_subgraphs_channel_of_the_same_name() -> None:
    """It is another channel, and is left alone."""

    def build(key: str) -> StateGraph:
        outer: Any = TypedDict("outer", {key: Annotated[list, operator.add]})  # type: ignore[misc]
        inner = line(State, ask=asks).compile()
        graph = StateGraph(outer)
        graph.add_node("in", lambda state: {key: inner.invoke({"log": ["inner"]})["log"]})
        graph.add_edge(START, "in")
        return graph

    old = started(build("log"), {"log": ["outer"]})
    new = moved(old, schema_of(rename_channel("log", "story")))
    graph: Any = build("story").compile(checkpointer=new)
    assert graph.invoke(Command(resume="yes"), CONFIG) == {"story": ["outer", "inner", "yes"]}


def test_a_node_takes_over_from_one_that_is_no_more() -> None:
    """The human's answer reaches it."""
    old = started(line(State, a=says("a"), ask=asks))
    with pytest.raises(EvolutionError, match="waits for node 'ask'"):
        moved(old, schema_of(drop_node("ask")))

    graph = line(State, a=says("a"), human=asks)
    graph.add_edge(["a", "human"], "human")  # a join that the old graph did not have
    plain: Any = line(State, a=says("a"), human=asks).compile(
        checkpointer=moved(old, schema_of(drop_node("ask", to="human")))
    )
    assert plain.invoke(Command(resume="yes"), CONFIG) == {"log": ["a", "yes"]}


def test_a_node_that_was_dropped_when_nothing_waited_for_it() -> None:
    """The thread goes on, past breakpoints too."""
    old = started(line(State, a=says("a"), b=says("b"), ask=asks))
    schema = schema_of(drop_node("b"))
    new = InMemorySaver()
    place(new, evolved(head(old), schema, 1))
    graph: Any = line(State, a=says("a"), ask=asks).compile(checkpointer=new)
    assert graph.invoke(Command(resume="yes"), CONFIG) == {"log": ["a", "b", "yes"]}


def test_a_checkpoint_that_waited_for_a_node_that_is_no_more() -> None:
    """It is shown with its values, and nothing comes next; nobody can go on from it."""
    old = started(line(State, a=says("a"), b=says("b"), ask=asks))
    schema, new = schema_of(drop_node("b")), InMemorySaver()
    for each in snapshots(old):
        place(new, shown(each, schema, 1))
    graph: Any = line(State, a=says("a"), ask=asks).compile(checkpointer=new)
    found = [(each.values, each.next) for each in graph.get_state_history(CONFIG)]
    assert found == [
        ({"log": ["a", "b"]}, ("ask",)),
        ({"log": ["a"]}, ()),
        ({"log": []}, ()),  # its first node had finished, and what that wrote is for the one gone
        ({"log": []}, ("__start__",)),
    ]
    with pytest.raises(EvolutionError):
        evolved([*snapshots(old)][2], schema, 1)


def test_a_handler_that_asks() -> None:
    """It is the failed node's, and is renamed with it: the answer reaches it."""
    ran: list[str] = []

    def fail(state: Any) -> Any:
        ran.append("fail")
        raise ValueError

    def handler(state: Any) -> Any:
        return {"log": [interrupt("what now?")]}

    def build(name: str) -> StateGraph:
        graph = StateGraph(State)
        graph.add_node(name, fail, error_handler=handler)
        graph.add_edge(START, name)
        return graph

    old = started(build("bad"))
    new = moved(old, schema_of(rename_node("bad", "worse")))
    graph: Any = build("worse").compile(checkpointer=new)
    asked = next(w.value[0] for w in head(new).writes if w.channel == "__interrupt__")
    assert graph.invoke(Command(resume={asked.id: "go on"}), CONFIG) == {"log": ["go on"]}
    assert ran == ["fail"]


def test_what_a_node_called() -> None:
    """Which function it was is not stored, so that its id cannot be made again."""

    @task
    def fetch() -> str:
        return "x"

    def node(state: Any) -> Any:
        return {"log": [fetch().result(), interrupt("?")]}

    old = started(line(State, a=node))
    with pytest.raises(EvolutionError, match="a call made by node 'a'"):
        moved(old, schema_of(rename_node("a", "b")))
    graph: Any = line(State, a=node).compile(
        checkpointer=moved(old, schema_of(rename_channel("other", "x")))
    )
    assert graph.invoke(Command(resume="yes"), CONFIG) == {"log": ["x", "yes"]}


def test_a_function_that_is_a_graph_and_is_renamed() -> None:
    """One made by `entrypoint`, that has called nothing yet."""

    def flow(given: int) -> Any:
        return given, interrupt("?")

    def later(given: int) -> Any:
        return flow(given)

    old = InMemorySaver()
    entrypoint(checkpointer=old)(flow).invoke(1, CONFIG)
    graph = entrypoint(checkpointer=moved(old, schema_of(rename_node("flow", "later"))))(later)
    assert graph.invoke(Command(resume="yes"), CONFIG) == (1, "yes")


def test_all_of_a_threads_history_can_be_listed() -> None:
    """Each checkpoint with the nodes that came next then."""

    def build(*names: str) -> StateGraph:
        def fan(state: Any) -> Any:
            return Command(goto=[Send(names[1], {"log": []}) for _ in range(2)])

        graph = StateGraph(State)
        graph.add_node(names[0], fan)
        graph.add_node(names[1], says("x"))
        graph.add_node(names[2], says("last"))
        graph.add_edge(START, names[0])
        graph.add_edge(names[1], names[2])
        return graph

    old = started(build("a", "b", "c"))
    renames = [rename_node(name, name * 2) for name in "abc"]
    new = moved(old, schema_of(*renames))
    graph: Any = build("aa", "bb", "cc").compile(checkpointer=new)
    before: Any = build("a", "b", "c").compile(checkpointer=old)
    expected = [
        tuple(name * 2 if name in "abc" else name for name in each.next)
        for each in before.get_state_history(CONFIG)
    ]
    assert [each.next for each in graph.get_state_history(CONFIG)] == expected
    assert len([*snapshots(new)]) == len(expected)
