"""`migrate`: what is stored has the new shape afterwards, and runs go on as they would have."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state.evolution import (
    StateSchema,
    rename_channel,
    rename_node,
)
from tests.cases import Store, at, grown

KEY = b"k" * 32


def schema(version: int = 1) -> StateSchema:
    """`msgs` is called `messages`, node `ask` `ask_human`, and subgraph `sub` `research`."""
    made = StateSchema(version=version, graph="test")
    made.step(
        0,
        rename_channel("msgs", "messages"),
        rename_channel("msgs", "messages", at="sub"),
        rename_node("ask", "ask_human"),
        rename_node("ask", "ask_human", at="sub"),
        rename_node("sub", "research"),
    )
    return made


class Old:
    """The names of the graph of version 0."""

    msgs, ask, sub = "msgs", "ask", "sub"


class New:
    """Those of version 1."""

    msgs, ask, sub = "messages", "ask_human", "research"


def graph(names: Any, saver: Any, ran: list[str] | None = None) -> Any:
    """Asks in a node, and then in a node of a subgraph; `ran` tells which nodes did."""
    log = ran if ran is not None else []
    state: Any = TypedDict("State", {names.msgs: Annotated[list, grown]})  # type: ignore[misc]

    def says(what: str) -> Any:
        def node(now: Any) -> Any:
            log.append(what)
            return {names.msgs: [f"{what} after {len(now.get(names.msgs) or [])}"]}

        return node

    def asks(what: str) -> Any:
        def node(now: Any) -> Any:
            answer = interrupt(f"{what}?")
            log.append(what)
            return {names.msgs: [f"{what}: {answer}"]}

        return node

    inner = StateGraph(state)
    inner.add_node("begin", says("begin"))
    inner.add_node(names.ask, asks("inner"))
    inner.add_edge(START, "begin")
    inner.add_edge("begin", names.ask)
    outer = StateGraph(state)
    outer.add_node("first", says("first"))
    outer.add_node(names.ask, asks("outer"))
    outer.add_node(names.sub, inner.compile())
    outer.add_edge(START, "first")
    outer.add_edge("first", names.ask)
    outer.add_edge(names.ask, names.sub)
    return outer.compile(checkpointer=saver)


async def paused(store: Store, saver: Any, thread: str, answers: int) -> Any:
    """A run of the old graph that waits, after so many answers; what it waits for."""
    old = store.face(graph(Old, saver))
    found = await old.invoke({"msgs": ["hello " * 90]}, at(thread))
    for n in range(answers):
        found = await old.invoke(Command(resume=f"answer {n}"), at(thread))
    return found["__interrupt__"][0]


async def ends(store: Store, saver: Any, thread: str, answers: int) -> tuple[list[str], Any]:
    """What a run under new names does from there on: the nodes it runs, and its end state."""
    ran: list[str] = []
    new = store.face(graph(New, saver, ran))
    found: Any = None
    for n in range(answers, 2):
        found = await new.invoke(Command(resume=f"answer {n}"), at(thread))
    return ran, found["messages"]


WRITTEN = ["hello " * 90, "first after 1", "outer: answer 0"]


def told(answers: int) -> tuple[list[str], list[str]]:
    """What `ends` should give."""
    ran = [["outer", "begin", "inner"], ["inner"]][answers]
    inner = [*WRITTEN, "begin after 3", "inner: answer 1"]
    return ran, [*WRITTEN, *inner]


@pytest.mark.parametrize("answers", [0, 1])
@pytest.mark.parametrize("way", ["plain", "signed", "encrypted"])
async def test_a_run_goes_on_where_it_waits(policy_store: Store, way: str, answers: int) -> None:
    """In a renamed node, and in a renamed node of a renamed subgraph: no node runs twice."""
    keys: dict[str, Any] = {
        "plain": {},
        "signed": {"integrity_key": KEY},
        "encrypted": {"encryption_key": KEY},
    }[way]
    store = policy_store
    waits = await paused(store, store.open(**keys), "t", answers)
    done = await store.saver(**keys, state_schema=schema()).migrate()
    assert (done.migrated, done.busy, done.failed) == (("t",), (), ())
    assert bool(done)
    fresh = store.open(**keys, state_schema=schema())
    state = await store.face(graph(New, fresh)).get_state(at(), subgraphs=True)
    assert [i.value for i in state.interrupts] == [waits.value]
    again = await store.saver(**keys, state_schema=schema()).migrate()
    assert (again.threads, again.told) == (1, ())
    assert await ends(store, fresh, "t", answers) == told(answers)
    assert bool(await store.saver(**keys, state_schema=schema()).verify())


@pytest.mark.parametrize("answers", [0, 1])
async def test_it_is_what_a_lazy_read_gives(store: Store, answers: int) -> None:
    """All checkpoints of all namespaces, their metadata and what waits on them."""
    await paused(store, store.open(), "t", answers)
    lazy = store.open(state_schema=schema())
    new = store.face(graph(New, lazy))
    before = [state async for state in _states(new)]
    await store.saver(state_schema=schema()).migrate()
    after = [
        state
        async for state in _states(store.face(graph(New, store.open_reader(state_schema=schema()))))
    ]
    assert after == before
    names = {ns for (ns,) in store.query("SELECT DISTINCT ns FROM durable_state.checkpoint")}
    assert {ns.partition(":")[0] for ns in names} == {"", *(["research"] if answers else [])}


async def _states(graph: Any) -> Any:
    for state in await graph.get_state_history(at()):
        for task in state.tasks:
            if isinstance(task.state, dict):
                yield await graph.get_state(task.state)
        yield state
