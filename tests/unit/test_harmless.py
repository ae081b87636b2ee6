"""What a change of a graph does to a thread that was stored before it, in LangGraph itself: each
line is a claim that `schema.check` makes, tried on a run that waits before a node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels import (
    AnyValue,
    DeltaChannel,
    EphemeralValue,
    Topic,
    UntrackedValue,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.managed import RemainingSteps
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from langgraph_durable_state.evolution import SchemaReport, StateSchema, drop_channel
from tests.moving import moved

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}

Seen = Annotated[list[Any], operator.add]
Edge = tuple[Any, str]


def folded(held: list[Any], batches: Iterable[list[Any]]) -> list[Any]:
    return operator.add(list(held or ()), [each for batch in batches for each in batch])


KINDS: dict[str, Any] = {
    "LastValue": list[Any],
    "AnyValue": Annotated[list[Any], AnyValue],
    "BinaryOperatorAggregate": Annotated[list[Any], operator.add],
    "DeltaChannel": Annotated[list[Any], DeltaChannel(folded)],
    "Topic, accumulated": Annotated[list[Any], Topic(Any, accumulate=True)],  # type: ignore[arg-type]
    "Topic": Annotated[list[Any], Topic(Any)],  # type: ignore[arg-type]
    "EphemeralValue": Annotated[list[Any], EphemeralValue],
    "UntrackedValue": Annotated[list[Any], UntrackedValue],
}


def state(y: Any = None) -> Any:
    """A state with a key `y`, if it is told of what type."""
    return TypedDict("State", {"seen": Seen} | ({} if y is None else {"y": y}))  # type: ignore[operator]


def say(name: str) -> Callable[[Any], Any]:
    return lambda state: {"seen": [name]}


def read(state: Any) -> Any:
    """Tells what it sees of `y`."""
    held = state if isinstance(state, dict) else vars(state)
    return {"seen": [held.get("y", "none")]}


@dataclass
class Code:
    """A graph's code at one time: a -> b, and a run that waits before b unless told."""

    state: Any
    nodes: Mapping[str, Any]
    edges: Iterable[Edge] = ((START, "a"), ("a", "b"))
    deferred: tuple[str, ...] = ()
    before: str = "b"

    def compiled(self, saver: InMemorySaver | None = None) -> Any:
        graph = StateGraph(self.state)
        for name, node in self.nodes.items():
            graph.add_node(name, node, defer=name in self.deferred)
        for start, end in self.edges:
            graph.add_edge(start, end)
        stop = [self.before] if self.before else []
        return graph.compile(checkpointer=saver, interrupt_before=stop, name="g")


def changed(old: Code, new: Code) -> tuple[SchemaReport, Any]:
    """What the check says of a change, and the new graph over a thread of the old one."""
    saver = InMemorySaver()
    old.compiled(saver).invoke({"seen": []}, THREAD)
    recorded = StateSchema(0).record(old.compiled())
    return StateSchema(0).check(new.compiled(), recorded), new.compiled(saver)


def with_y(y: Any = None, **more: Any) -> Code:
    first = {"seen": ["a"]} | ({} if y is None else {"y": [1]})
    return Code(state(y), {"a": lambda _: first, "b": read}, **more)


@pytest.mark.parametrize("now", KINDS)
@pytest.mark.parametrize("was", KINDS)
def test_a_channel_of_another_kind(was: str, now: str) -> None:
    """Harmless is what still has its value, in this step and at the end."""
    report, graph = changed(with_y(KINDS[was]), with_y(KINDS[now]))
    if was == now:
        assert (report.ok, report.differences) == (True, ())
        return
    needed = [each for each in report.differences if each.needed]
    assert [each.change for each in needed] in ([], ["channel of another kind"])
    end = graph.invoke(None, THREAD)
    kept = (end["seen"][-1], graph.get_state(THREAD).values.get("y")) == ([1], [1])
    unkept = ("AnyValue", "Topic", "EphemeralValue", "UntrackedValue")
    if was not in unkept:
        assert report.ok == kept


@pytest.mark.parametrize("was", ["AnyValue", "Topic", "EphemeralValue", "UntrackedValue"])
def test_a_channel_that_kept_nothing_is_as_one_that_is_new(was: str) -> None:
    """It needs a value if its readers cannot do without; one with a reducer starts with its own."""
    report, _ = changed(with_y(KINDS[was]), with_y(list[Any]))
    assert [each.step for each in report.differences] == ['add_channel("y", default=...)']
    report, _ = changed(with_y(KINDS[was]), with_y(KINDS["BinaryOperatorAggregate"]))
    assert report.ok


class Demanding(BaseModel):
    seen: Seen
    y: list[int]


class Content(BaseModel):
    seen: Seen
    y: list[int] = [7]


class Reducing(BaseModel):
    seen: Seen
    y: Annotated[list[int], operator.add]


@dataclass
class Data:
    seen: Seen
    y: list[int]


@pytest.mark.parametrize(
    ("new", "sees"),
    [
        (state(KINDS["BinaryOperatorAggregate"]), []),
        (state(KINDS["DeltaChannel"]), []),
        (state(NotRequired[list[Any]]), "none"),
        (state(KINDS["Topic"]), "none"),
        (state(KINDS["EphemeralValue"]), "none"),
        (state(RemainingSteps), ...),
        (Content, [7]),
        (Reducing, []),
    ],
)
def test_a_new_channel_that_needs_no_step(new: Any, sees: Any) -> None:
    """The run goes on, with a value or without."""
    report, graph = changed(with_y(), Code(new, {"a": say("a"), "b": read}))
    assert report.ok
    assert [each.change for each in report.differences] == ["channel added"]
    end = graph.invoke(None, THREAD)["seen"][-1]
    assert sees in (..., end)


@pytest.mark.parametrize("new", [Demanding, Data])
def test_a_new_channel_that_a_node_cannot_do_without(new: Any) -> None:
    """Every thread that was stored before fails."""
    report, graph = changed(with_y(), Code(new, {"a": say("a"), "b": read}))
    assert [each.step for each in report.differences] == ['add_channel("y", default=...)']
    with pytest.raises((ValueError, TypeError)):
        graph.invoke(None, THREAD)


@pytest.mark.parametrize("was", KINDS)
def test_a_channel_that_is_gone(was: str) -> None:
    """The run waits once more before the node that it was to enter, whatever the channel's kind."""
    report, graph = changed(with_y(KINDS[was]), with_y())
    assert [each.step for each in report.differences] == ['drop_channel("y")']
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).next == ("b",)


def test_a_managed_value_comes_and_goes() -> None:
    """Nothing of it is stored."""
    plain = {"a": say("a"), "b": say("b")}
    report, graph = changed(Code(state(RemainingSteps), plain), Code(state(), plain))
    assert report.ok
    assert graph.invoke(None, THREAD)["seen"] == ["a", "b"]


ABC = {name: say(name) for name in "abc"}


def test_a_new_node() -> None:
    """Nothing waits in it, and what is behind it is still reached."""
    edges = [(START, "a"), ("a", "b"), ("b", "c")]
    report, graph = changed(
        Code(state(), {"a": say("a"), "b": say("b")}), Code(state(), ABC, edges)
    )
    assert (report.ok, [each.change for each in report.differences]) == (True, ["node added"])
    assert graph.invoke(None, THREAD)["seen"] == ["a", "b", "c"]


def test_a_node_that_is_gone() -> None:
    """Also one that has long run: the run waits once more before the node that it was to enter."""
    report, graph = changed(
        Code(state(), {"a": say("a"), "b": say("b")}),
        Code(state(), {"b": say("b")}, [(START, "b")]),
    )
    assert [each.step for each in report.differences] == ['drop_node("a")']
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).next == ("b",)


def test_a_node_of_another_name() -> None:
    """A run that waits in it ends without a word; the answer is taken and forgotten."""
    ask = {"ask": lambda _: {"seen": [interrupt("?")]}}
    human = {"ask_human": lambda _: {"seen": [interrupt("?")]}}
    report, graph = changed(
        Code(state(), ask, [(START, "ask")], before=""),
        Code(state(), human, [(START, "ask_human")], before=""),
    )
    assert [each.step for each in report.differences] == ['rename_node("ask", "ask_human")']
    assert graph.get_state(THREAD).next == ()
    assert graph.invoke(Command(resume="yes"), THREAD)["seen"] == []


PLAIN = [(START, "a"), ("a", "b"), ("b", "c")]
JOINED = [(START, "a"), ("a", "b"), (["a", "b"], "c")]


def test_a_new_edge_that_waits() -> None:
    """Where one of its nodes has run, what it leads to never does."""
    report, graph = changed(Code(state(), ABC, PLAIN), Code(state(), ABC, JOINED))
    assert [(each.name, each.step) for each in report.differences] == [("join:a+b:c", None)]
    assert not report.ok
    assert graph.invoke(None, THREAD)["seen"] == ["a", "b"]


def test_a_new_edge_that_waits_for_new_nodes() -> None:
    """None of them has run."""
    abcde = {name: say(name) for name in "abcde"}
    more = [*PLAIN, ("c", "d"), (["d"], "e")]
    report, graph = changed(Code(state(), ABC, PLAIN), Code(state(), abcde, more))
    assert report.ok
    assert graph.invoke(None, THREAD)["seen"] == ["a", "b", "c", "d", "e"]


def test_an_edge_that_waits_and_is_gone() -> None:
    """The run waits once more before the node that it was to enter."""
    report, graph = changed(Code(state(), ABC, JOINED), Code(state(), ABC, PLAIN))
    assert [each.step for each in report.differences] == ['drop_channel("join:a+b:c")']
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).next == ("b",)


@pytest.mark.parametrize(
    ("edges", "was", "now"),
    [(PLAIN, (), ("b",)), (JOINED, (), ("c",)), (JOINED, ("c",), ())],
)
def test_a_node_that_is_deferred_now(edges: Any, was: Any, now: Any) -> None:
    """What starts it is stored in another form, which LangGraph cannot load."""
    report, graph = changed(Code(state(), ABC, edges, was), Code(state(), ABC, edges, now))
    assert [(each.change, each.needed) for each in report.differences] == [("node deferred", True)]
    with pytest.raises((TypeError, ValueError, AttributeError)):
        graph.invoke(None, THREAD)


def test_a_node_that_is_deferred_no_more() -> None:
    """It starts at once."""
    report, graph = changed(Code(state(), ABC, PLAIN, ("b",)), Code(state(), ABC, PLAIN))
    assert (report.ok, [each.change for each in report.differences]) == (True, ["node deferred"])
    assert graph.invoke(None, THREAD)["seen"] == ["a", "b", "c"]


RAN: list[str] = []


def inner(checkpointer: Any = None) -> Any:
    """A graph that runs one node and asks in the next."""

    def first(_: Any) -> Any:
        RAN.append("first")

    graph = StateGraph(state())
    graph.add_node("first", first)
    graph.add_node("second", lambda _: {"seen": [interrupt("?")]})
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    return graph.compile(checkpointer=checkpointer)


def asking(_: Any) -> Any:
    return {"seen": [interrupt("?")]}


@pytest.mark.parametrize(
    ("was", "now", "change", "again"),
    [
        (inner(), inner(), None, []),
        (inner(), inner(True), "subgraph's checkpointer", ["first"]),
        (inner(True), inner(), "subgraph's checkpointer", ["first"]),
        (inner(), inner(False), "subgraph removed", ["first"]),
        (asking, inner(), "subgraph added", ["first"]),
    ],
)
def test_a_graph_in_a_node(was: Any, now: Any, change: str | None, again: list[str]) -> None:
    """What it stored is found again only if it is kept the same way."""
    edges = [(START, "sub")]
    report, graph = changed(
        Code(state(), {"sub": was}, edges, before=""), Code(state(), {"sub": now}, edges, before="")
    )
    assert [each.change for each in report.differences] == ([] if change is None else [change])
    assert report.ok == (change in (None, "subgraph added"))
    RAN.clear()
    graph.invoke(Command(resume="yes"), THREAD)
    assert again == RAN


def test_a_new_edge_that_waits_makes_another_task_of_its_end() -> None:
    """What its end had done is forgotten, and done again."""
    runs: list[str] = []

    def once(_: Any) -> Any:
        runs.append("c")

    def fail(_: Any) -> Any:
        raise RuntimeError("no")

    nodes = {"a": say("a"), "b": fail, "c": once}
    edges = [(START, "a"), ("a", "b"), ("a", "c")]
    saver = InMemorySaver()
    for more in ([], [], [(["a", "b"], "c")]):
        graph = Code(state(), nodes, [*edges, *more], before="").compiled(saver)
        with pytest.raises(RuntimeError):
            graph.invoke(None if runs else {"seen": []}, THREAD)
    assert runs == ["c", "c"]


def test_another_reducer_of_a_delta_channel_makes_what_was_stored_anew() -> None:
    """From the updates, which are what is stored."""

    def reverse(held: list[Any], batches: Iterable[list[Any]]) -> list[Any]:
        return [0, *folded(held, batches)]

    other = Annotated[list[Any], DeltaChannel(reverse)]
    report, graph = changed(with_y(KINDS["DeltaChannel"]), with_y(other))
    assert not report.ok
    assert graph.get_state(THREAD).values["y"] == [0, 1]


def test_another_reducer_takes_up_what_comes() -> None:
    """What was stored is as it was."""

    def join(held: list[Any], new: list[Any]) -> list[Any]:
        return [*held, "and", *new]

    report, graph = changed(
        with_y(KINDS["BinaryOperatorAggregate"]), with_y(Annotated[list[Any], join])
    )
    assert report.ok
    assert graph.invoke(None, THREAD)["y"] == [1]


def test_the_step_for_an_edge_that_is_gone() -> None:
    """With it the run goes on."""
    saver = InMemorySaver()
    Code(state(), ABC, JOINED).compiled(saver).invoke({"seen": []}, THREAD)
    schema = StateSchema(1)
    schema.step(0, drop_channel("join:a+b:c"))
    graph = Code(state(), ABC, PLAIN).compiled(moved(saver, schema))
    assert graph.invoke(None, THREAD)["seen"] == ["a", "b", "c"]
