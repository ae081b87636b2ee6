"""Graphs whose runs branch, begin anew, or stand beside upkeep: each reads what is its own."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import CorruptionError, DurableSaver
from tests.cases import TIERS, Store, at, cp, grown, id_of, put, query, replayed, values_of

DURABILITIES: list[Any] = ["sync", "async", "exit"]
LONG = "x" * 400
"""Longer than what is stored within a record."""


class PlainState(TypedDict, total=False):
    items: Annotated[list[str], grown]
    who: str


class DeltaState(TypedDict, total=False):
    items: Annotated[list[str], DeltaChannel(replayed)]
    who: str


STATES: dict[str, Any] = {"plain": PlainState, "delta": DeltaState}


def row_of(saver: Any, state: Any, **nodes: Callable[[Any], Any]) -> Any:
    """A graph of these nodes, one after the other."""
    builder = StateGraph(state)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in itertools.pairwise([START, *nodes]):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


async def sql_of(store: Store, saver: DurableSaver) -> Any:
    """How this saver asks Postgres on the store's face."""
    faces = saver._faces
    driver: Any = await (faces.native() if store.face.native else faces.blocking())
    return driver.upkeep._durable._sql


async def read_everywhere(store: Store, graph: Callable[[Any], Any], config: Any) -> Any:
    """A state's values, which each tier must tell alike."""
    told = []
    for store.tier in TIERS:
        told.append((await store.face(graph(store.open_reader())).get_state(config)).values)
    assert told[0] == told[1] == told[2]
    return told[0]


# -- two runs from one checkpoint that is given by id -----------------------------------------


class Turns:
    """Lets two runs load and write for one task before either goes on, then one after the other."""

    def __init__(self) -> None:
        self._both = threading.Barrier(2)
        self.first_is_through = threading.Event()

    def take(self, who: str) -> None:
        self._both.wait()
        if who == "b":
            self.first_is_through.wait()


def asking(turns: Turns) -> Callable[[Any], Any]:
    def node(_: Any) -> Any:
        who = interrupt("who?")
        turns.take(who)
        return {"items": [f"{who}{LONG}"], "who": who}

    return node


@pytest.mark.parametrize("channel", STATES)
@pytest.mark.parametrize("durability", DURABILITIES)
async def test_two_runs_resumed_at_one_checkpoint_are_two_branches(
    policy_store: Store, channel: str, durability: Any
) -> None:
    """Each reads its own items, though both wrote for one task of one checkpoint."""
    turns = Turns()
    nodes = {"n": asking(turns), "after": lambda s: {"items": [f"after {s['who']}"]}}

    def graph(saver: Any) -> Any:
        return row_of(saver, STATES[channel], **nodes)

    shown = policy_store.face(graph(policy_store.open()))
    await shown.invoke({"items": ["start"]}, at())
    asked = at(id=id_of((await shown.get_state(at())).config))

    async def resume(who: str) -> Any:
        try:
            return await shown.invoke(Command(resume=who), asked, durability=durability)
        finally:
            if who == "a":
                turns.first_is_through.set()

    results = await asyncio.gather(resume("a"), resume("b"))

    own = {who: ["start", f"{who}{LONG}", f"after {who}"] for who in "ab"}
    assert [own["a"], own["b"]] == [result["items"] for result in results]
    assert await read_everywhere(policy_store, graph, at()) == {"items": own["b"], "who": "b"}
    for policy_store.tier in TIERS:
        reader = policy_store.face(graph(policy_store.open_reader()))
        seen = {"a": 0, "b": 0}
        for found in await reader.get_state_history(at()):
            who = found.values.get("who")
            if who is not None:
                seen[who] += 1
                items = found.values["items"]
                assert items == own[who][: len(items)]
        expected = 1 if durability == "exit" else 2
        assert seen == {"a": expected, "b": expected}


# -- a run that begins on what a killed one left ----------------------------------------------


class Killed(BaseException):
    """The process is gone."""


class DiesAtTheEnd(DurableSaver):
    """Is killed before a run's final put: of a new thread, its second."""

    puts = 0

    def put(self, *what: Any) -> Any:
        self._count()
        return super().put(*what)

    async def aput(self, *what: Any) -> Any:
        self._count()
        return await super().aput(*what)

    def _count(self) -> None:
        self.puts += 1
        if self.puts == 2:
            raise Killed


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_run_on_the_stub_of_a_killed_one_loses_nothing(
    hot_store: Store, durability: Any
) -> None:
    """What a run with durability="exit" leaves, if it is killed, is a checkpoint of nothing."""
    nodes = {name: lambda _, n=name: {"items": [f"{n}{LONG}"]} for name in "abc"}

    def graph(saver: Any) -> Any:
        return row_of(saver, DeltaState, **nodes)

    dying = hot_store.face(graph(hot_store.open(DiesAtTheEnd)))
    with pytest.raises(Killed):
        await dying.invoke({"items": ["lost"]}, at(), durability="exit")
    left = await hot_store.reader().get_tuple(at())
    assert left.checkpoint["channel_versions"] == {}

    saver = hot_store.open()
    await slow(hot_store, saver, "move_one", "put_one")
    shown = hot_store.face(graph(saver))
    for turn in range(2):
        result = await shown.invoke({"items": [f"in {turn}"]}, at(), durability=durability)
        expected = [i for t in range(turn + 1) for i in (f"in {t}", *(f"{n}{LONG}" for n in "abc"))]
        assert expected == result["items"]
        assert await read_everywhere(hot_store, graph, at()) == {"items": expected}


async def test_writes_that_come_before_the_first_put_on_a_stub_are_its_runs_own(
    hot_store: Store,
) -> None:
    """The run is known by the new versions alone until then: no checkpoint that it was given
    carried any."""
    saver = hot_store.open()
    shown = hot_store.face(saver)
    await put(shown, at(), cp({}, "1"), {"source": "input", "step": -2})
    loaded = (await shown.get_tuple(at())).config
    version = saver.get_next_version(None)
    first = {"configurable": {**loaded["configurable"], "checkpoint_id": "2"}}
    await shown.put_writes(first, [("items", ["a"])], "task")
    await put(shown, loaded, cp({}, "2", {"items": version}))
    after = cp({}, "3", {"items": saver.get_next_version(version)})
    await put(shown, first, after)
    reader = hot_store.reader()
    found = await reader.get_delta_channel_history(config=at(id="3"), channels=["items"])
    assert found["items"]["writes"] == [("task", "items", ["a"])]


async def slow(store: Store, saver: DurableSaver, *names: str) -> None:
    """Makes each statement of these names take long, so that other calls overtake it."""
    sql = await sql_of(store, saver)
    connections, texts = sql._connections, [sql._queries[name] for name in names]
    ask = connections.ask

    async def asked(connection: Any, said: str, *rest: Any) -> Any:
        if said in texts:
            if store.face.native:
                await asyncio.sleep(0.15)
            else:
                time.sleep(0.15)
        return await ask(connection, said, *rest)

    connections.ask = asked


# -- what a head is made from -----------------------------------------------------------------


async def three_runs(store: Store, saver: DurableSaver) -> tuple[Any, list[str]]:
    """A thread of three runs, and its items."""
    graph = row_of(saver, DeltaState, a=lambda _: {"items": [f"a{LONG}"]})
    for run in ("r1", "r2", "r3"):
        config = at() | {"metadata": {"run_id": run}}
        await store.face(graph).invoke({"items": [run]}, config)
    items = (await store.face(graph).get_state(at())).values["items"]
    assert items == ["r1", f"a{LONG}", "r2", f"a{LONG}", "r3", f"a{LONG}"]
    return graph, items


def graph_of_runs(saver: Any) -> Any:
    return row_of(saver, DeltaState, a=lambda _: {"items": [f"a{LONG}"]})


@pytest.mark.parametrize("doomed", [["r2"], ["r1"], ["r1", "r2"]], ids="+".join)
async def test_a_head_reads_the_same_after_runs_before_it_were_deleted(
    policy_store: Store, caplog: pytest.LogCaptureFixture, doomed: list[str]
) -> None:
    """What its DeltaChannel is made from stays, and the log says so."""
    saver = policy_store.open()
    shown = policy_store.face(saver)
    graph, items = await three_runs(policy_store, saver)
    before = policy_store.counts()["checkpoint"]
    with caplog.at_level(logging.WARNING, logger="langgraph_durable_state"):
        await shown.delete_for_runs(doomed)
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 1
    assert "checkpoints of thread 't' stay" in said[0]
    assert policy_store.counts()["checkpoint"] <= before
    assert (await policy_store.face(graph).get_state(at())).values["items"] == items
    assert await read_everywhere(policy_store, graph_of_runs, at()) == {"items": items}
    await policy_store.face(graph).invoke({"items": ["on"]}, at())
    expected = [*items, "on", f"a{LONG}"]
    assert await read_everywhere(policy_store, graph_of_runs, at()) == {"items": expected}


async def test_a_head_that_goes_back_reads_as_it_did_then(policy_store: Store) -> None:
    """The runs that go are the last and one before: the second's head is made from the first's."""
    saver = policy_store.open()
    _, items = await three_runs(policy_store, saver)
    await policy_store.face(saver).delete_for_runs(["r1", "r3"])
    assert await read_everywhere(policy_store, graph_of_runs, at()) == {"items": items[:4]}


async def test_nothing_stays_of_runs_that_were_all_deleted(
    policy_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    saver = policy_store.open()
    await three_runs(policy_store, saver)
    with caplog.at_level(logging.WARNING, logger="langgraph_durable_state"):
        await policy_store.face(saver).delete_for_runs(["r1", "r2", "r3"])
    assert policy_store.counts() == dict.fromkeys(policy_store.counts(), 0)
    assert caplog.records == []


@pytest.mark.parametrize("depth", [1, 2, 5])
async def test_a_history_whose_ancestor_is_missing_is_not_cut_short(
    store: Store, depth: int
) -> None:
    """Somebody removed a row that the head is made from: that is damage, and is said."""
    saver = store.open()
    await three_runs(store, saver)
    found = await store.face(saver).list(at())
    query(
        store.postgres_url,
        f"DELETE FROM durable_state.checkpoint WHERE id = '{id_of(found[depth].config)}'",
    )
    for each in (saver, store.open_reader()):
        with pytest.raises(CorruptionError, match=r"items.*missing"):
            await store.face(each).get_delta_channel_history(config=at(), channels=["items"])
        with pytest.raises(CorruptionError):
            await store.face(graph_of_runs(each)).get_state(at())
    with pytest.raises(CorruptionError):
        await store.face(saver).prune(["t"])


async def test_a_checkpoint_that_is_its_own_parent_ends_the_history(store: Store) -> None:
    """It is damage as well, and not a loop."""
    saver = store.open()
    await three_runs(store, saver)
    query(
        store.postgres_url,
        "UPDATE durable_state.checkpoint c SET parent = c.id FROM durable_state.head h"
        " WHERE (c.tk, c.ns, c.id) = (h.tk, h.ns, h.id)",
    )
    with pytest.raises(CorruptionError):
        await store.face(saver).get_delta_channel_history(config=at(), channels=["items"])


# -- the hot copy of what a run put ------------------------------------------------------------


class Talk(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    doc: str
    n: int


@pytest.fixture
def fetched() -> Callable[[DurableSaver], list[bool]]:
    """Notes what a saver's hot tier answers its blocking face: `noted = fetched(saver)`."""

    def noting(saver: DurableSaver) -> list[bool]:
        noted: list[bool] = []
        copies = saver._faces._blocking.copies  # type: ignore[union-attr]
        fetch = copies.fetch

        async def fetch_and_note(*args: Any) -> Any:
            found = await fetch(*args)
            noted.append(found is not None)
            return found

        copies.fetch = fetch_and_note  # type: ignore[method-assign]
        return noted

    return noting


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_the_copy_of_a_head_made_from_acknowledged_writes_is_whole(
    hot_store: Store, fetched: Any, durability: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Two nodes write 100 KB each, and the put refers to what Postgres has of them already."""
    reader = hot_store.open_reader(head_cache_bytes=0)
    assert reader.get_tuple(at()) is None  # its driver is there now
    noted = fetched(reader)
    seen: list[Any] = []

    def writes_at_once(state: Any) -> Any:
        return {"messages": [AIMessage("a" * 100_000)], "doc": f"{state['n']}" + "d" * 100_000}

    def writes_after_it(state: Any) -> Any:
        while not hot_store.counts()["write"]:
            time.sleep(0.01)
        time.sleep(0.05)
        return {"messages": [AIMessage("b" * 100_000)]}

    def looks(_: Any) -> Any:
        if durability == "sync":
            seen.append(reader.get_tuple(at()))
        return {"n": 0}

    builder = StateGraph(Talk)
    for node in (writes_at_once, writes_after_it, looks):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "writes_at_once")
    builder.add_edge(START, "writes_after_it")
    builder.add_edge(["writes_at_once", "writes_after_it"], "looks")
    graph = builder.compile(checkpointer=hot_store.open())
    with caplog.at_level(logging.DEBUG, logger="langgraph_durable_state"):
        for turn in range(3):
            done = await hot_store.face(graph).invoke({"n": turn}, at(), durability=durability)
            seen.append(reader.get_tuple(at()))
            assert len(done["messages"]) == 2 * (turn + 1)
            assert values_of(seen[-1])["messages"] == done["messages"]
            assert values_of(seen[-1])["doc"] == done["doc"] == f"{turn}" + "d" * 100_000
    assert [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()] == []
    assert noted == [True] * len(seen)


async def test_a_put_repeated_by_another_process_leaves_a_right_copy(hot_store: Store) -> None:
    """As after a lost answer: the chunks that it drew numbers for were never stored."""
    made = cp({"doc": "q" * 100_000})
    await put(hot_store.saver(hot_reads="never"), at(), made)
    await put(hot_store.saver(), at(), made)
    reader = hot_store.reader()
    found = await reader.get_tuple(at())
    versions = found.checkpoint["channel_versions"]
    more = cp({"doc": "q" * 100_000, "n": 1})
    new = reader.target.get_next_version(versions["doc"], None)
    more["channel_versions"] = {**versions, "n": new}
    await put(reader, found.config, more, new={"n": new})
    for fresh in hot_store.readers():
        assert values_of(await fresh.get_tuple(at())) == {"doc": "q" * 100_000, "n": 1}
