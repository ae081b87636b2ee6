"""Real LangGraph graphs: two runs on one head, what must not conflict, and a killed worker."""

from __future__ import annotations

import asyncio
import itertools
import operator
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import (
    ConflictError,
    DurableSaver,
    arerun_on_conflict,
    rerun_on_conflict,
)
from tests.cases import TIERS, Store, at, cp, grown, id_of, put, replayed, until, values_of

DURABILITIES: list[Any] = ["sync", "async", "exit"]
CHANNELS = ["plain", "delta"]
NODES = [f"n{i}" for i in range(1, 7)]


class PlainState(TypedDict, total=False):
    items: Annotated[list[str], grown]


class DeltaState(TypedDict, total=False):
    items: Annotated[list[str], DeltaChannel(replayed)]


STATES: dict[str, Any] = {"plain": PlainState, "delta": DeltaState}


class Race:
    """Two runs, told apart by `config["configurable"]["run"]`, that both load the head before
    either of them puts.

    Attributes:
        ran: (run, node) as the nodes were entered.
    """

    def __init__(self, waits_from: int) -> None:
        self.ran: list[tuple[str | None, str]] = []
        self._loaded = threading.Barrier(2)
        self._arrived: set[str] = set()
        self._answered = {run: threading.Event() for run in "ab"}
        self._waits_from = waits_from
        self.gates: dict[str, threading.Event] = {}

    def loaded(self, config: RunnableConfig) -> None:
        """A run has loaded the head: its first load waits for the other run's."""
        run = config["configurable"].get("run")
        if run is not None and run not in self._arrived:
            self._arrived.add(run)
            self._loaded.wait()
            if run in self.gates:
                self.gates[run].wait()

    def answered(self, config: RunnableConfig) -> None:
        """A put of a run was answered, whether it won or lost."""
        run = config["configurable"].get("run")
        if run is not None:
            self._answered[run].set()

    def entered(self, run: str | None, node: str) -> None:
        """A run is in a node. From the node on that its first put precedes, it waits for that
        put's answer, so that what it does later is done knowing it."""
        self.ran.append((run, node))
        if run is not None and [r for r, _ in self.ran].count(run) > self._waits_from:
            self._answered[run].wait()


class RacingSaver(DurableSaver):
    """Tells a race of loads and puts of the root graph."""

    race: Race | None = None

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if self.race is not None:
            self.race.loaded(config)
        return found

    async def aget_tuple(self, config: Any) -> Any:
        found = await super().aget_tuple(config)
        if self.race is not None:
            await asyncio.to_thread(self.race.loaded, config)
        return found

    def put(self, config: Any, *what: Any) -> Any:
        try:
            return super().put(config, *what)
        finally:
            if self.race is not None:
                self.race.answered(config)

    async def aput(self, config: Any, *what: Any) -> Any:
        try:
            return await super().aput(config, *what)
        finally:
            if self.race is not None:
                self.race.answered(config)


def chain_graph(saver: Any, state: Any, race: Race | None = None, asks: bool = False) -> Any:
    """Six nodes in a row that each add an item; the first one asks a human if `asks`."""

    def node(name: str) -> Any:
        def work(_: Any, config: RunnableConfig) -> Any:
            run = config["configurable"].get("run")
            if race is not None:
                race.entered(run, name)
            said = f":{interrupt('?')}" if asks and name == "n1" else ""
            return {"items": [f"{run}:{name}{said}"]}

        return work

    builder = StateGraph(state)
    for name in NODES:
        builder.add_node(name, node(name))
    for before, after in itertools.pairwise([START, *NODES, END]):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def as_run(run: str) -> Any:
    config = at()
    config["configurable"]["run"] = run
    return config


def told_apart(results: list[Any]) -> tuple[str, str, ConflictError]:
    """Winner, loser and the loser's error; there must be one of each."""
    lost = [isinstance(result, ConflictError) for result in results]
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ConflictError):
            raise result
    assert sorted(lost) == [False, True]
    winner, loser = ("a", "b") if lost[1] else ("b", "a")
    return winner, loser, results["ab".index(loser)]


async def items_everywhere(store: Store, state: Any, config: Any) -> list[str]:
    """The items at a config, which each tier must tell alike."""
    told = []
    for store.tier in TIERS:
        graph = store.face(chain_graph(store.open_reader(), state))
        told.append((await graph.get_state(config)).values.get("items"))
    assert told[0] == told[1] == told[2]
    return told[0]  # type: ignore[no-any-return]


class Contest:
    """One kind of two runs from one head.

    Args:
        action: `"input"`, `"resume"` or `"update_state"`.
        thread: `"old"` or `"new"`.
    """

    def __init__(
        self, store: Store, action: str, thread: str, channel: str, durability: Any, **options: Any
    ) -> None:
        self.store = store
        self.action = action
        self.old = thread == "old"
        self.state = STATES[channel]
        self.durability = durability
        # What a resumed run executes first comes before its first put; an input is put at once.
        first = {"input": 0, "resume": 1, "update_state": 0}[action]
        self.race = Race(len(NODES) if durability == "exit" else first)
        self.saver = store.open(RacingSaver, **options)
        self.saver.race = self.race
        self.compiled = chain_graph(self.saver, self.state, self.race, asks=action == "resume")
        self.graph = store.face(self.compiled)
        self.head: str | None = None

    async def prepare(self) -> None:
        if self.old:
            await self.graph.invoke({"items": ["seed"]}, at(), durability="sync")
            head = await self.graph.get_state(at())
            self.head = id_of(head.config)
        self.race.ran.clear()

    @property
    def before(self) -> list[str]:
        """The items of the head that both start from."""
        if not self.old:
            return []
        return ["seed"] if self.action == "resume" else ["seed", *(f"None:{n}" for n in NODES)]

    def after(self, run: str) -> list[str]:
        """The items when this run, alone, is through."""
        if self.action == "update_state":
            return [*self.before, f"{run}:up"]
        nodes = [f"{run}:{n}" for n in NODES]
        if self.action == "resume":
            return [*self.before, f"{nodes[0]}:{run} says", *nodes[1:]]
        return [*self.before, f"{run}:in", *nodes]

    async def run(self, run: str) -> Any:
        if self.action == "update_state":
            return await self.graph.update_state(as_run(run), {"items": [f"{run}:up"]}, "n6")
        value = {"items": [f"{run}:in"]}
        given = Command(resume=f"{run} says") if self.action == "resume" else value
        return await self.graph.invoke(given, as_run(run), durability=self.durability)

    async def both(self) -> list[Any]:
        await self.prepare()
        return await asyncio.gather(self.run("a"), self.run("b"), return_exceptions=True)


CONTESTS = [
    *(("input", t, d) for t in ("old", "new") for d in DURABILITIES),
    *(("resume", "old", d) for d in DURABILITIES),
    *(("update_state", t, None) for t in ("old", "new")),
]


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize(("action", "thread", "durability"), CONTESTS)
async def test_of_two_runs_from_one_head_exactly_one_advances_it(
    policy_store: Store, action: str, thread: str, durability: Any, channel: str
) -> None:
    """The other gets a ConflictError within two nodes, and nothing it did is mixed in."""
    contest = Contest(policy_store, action, thread, channel, durability)

    winner, loser, error = told_apart(await contest.both())

    if durability != "exit":
        assert [r for r, _ in contest.race.ran].count(loser) <= 2
    assert contest.after(winner) == await items_everywhere(policy_store, contest.state, at())
    assert ("t", "", contest.head) == (error.thread, error.namespace, error.expected)
    head = await policy_store.reader().get_tuple(at())
    assert head.metadata["run"] == winner
    assert [w for w in head.pending_writes if loser in str(w[2])] == []


@pytest.mark.parametrize(("action", "thread", "durability"), CONTESTS)
async def test_the_first_refused_checkpoint_of_a_loser_can_be_read(
    policy_store: Store, action: str, thread: str, durability: Any
) -> None:
    """By the id that its error tells, with what the loser had then and nothing of the winner's."""
    contest = Contest(policy_store, action, thread, "delta", durability)
    _, loser, error = told_apart(await contest.both())
    assert error.refused is not None
    refused = await policy_store.reader().get_tuple(at(id=error.refused))
    assert (loser, error.refused) == (refused.metadata["run"], id_of(refused.config))
    items = await items_everywhere(policy_store, contest.state, at(id=error.refused)) or []
    if action == "input" and durability != "exit":  # the input is not yet applied
        assert {"items": [f"{loser}:in"]} == refused.checkpoint["channel_values"]["__start__"]
        assert contest.before == items
    else:
        done = len(contest.after(loser)) if durability == "exit" else len(contest.before) + 1
        assert contest.after(loser)[:done] == items
    assert error.refused in [
        id_of(found.config) for found in await policy_store.reader().list(at())
    ]


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("durability", DURABILITIES)
async def test_the_thread_goes_on_after_a_conflict(
    policy_store: Store, durability: Any, channel: str
) -> None:
    """The next run starts from what the winner left, in the same process and in another."""
    contest = Contest(policy_store, "input", "old", channel, durability)
    winner, _, _ = told_apart(await contest.both())
    expected = contest.after(winner)
    for graph in (
        contest.graph,
        policy_store.face(chain_graph(policy_store.open(), contest.state)),
    ):
        await graph.invoke({"items": ["more"]}, at(), durability=durability)
        expected += ["more", *(f"None:{n}" for n in NODES)]
    assert expected == await items_everywhere(policy_store, contest.state, at())


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("thread", ["old", "new"])
async def test_an_update_beside_a_run_makes_the_run_stop(
    policy_store: Store, thread: str, durability: Any, channel: str
) -> None:
    """Whoever puts first wins; a run in the middle of a node is told at its next put."""
    saver = policy_store.open(RacingSaver)
    inside, go_on, told = threading.Event(), threading.Event(), threading.Event()

    class Pausing(Race):
        def loaded(self, config: RunnableConfig) -> None:
            """The run is alone at its start."""

        def answered(self, config: RunnableConfig) -> None:
            if go_on.is_set() and "run" in config["configurable"]:
                told.set()

        def entered(self, run: str | None, node: str) -> None:
            if run is not None:
                self.ran.append((run, node))
                inside.set()
                (go_on if node == "n1" else told).wait()

    saver.race = race = Pausing(0)
    graph = policy_store.face(chain_graph(saver, STATES[channel], race))
    before = []
    if thread == "old":
        await graph.invoke({"items": ["seed"]}, at(), durability="sync")
        before = ["seed", *(f"None:{n}" for n in NODES)]
    running = asyncio.create_task(
        graph.invoke({"items": ["a:in"]}, as_run("a"), durability=durability)
    )
    await asyncio.to_thread(inside.wait)
    other = policy_store.face(chain_graph(policy_store.open(), STATES[channel]))

    async def input_is_stored() -> bool:
        return (await other.get_state(at())).next == ("n1",)

    await until(input_is_stored)
    await other.update_state(at(), {"items": ["update"]}, "n6")
    go_on.set()
    with pytest.raises(ConflictError):
        await running
    assert len(race.ran) <= 3  # the one it was in, and two
    expected = [*before, "a:in", "update"]
    assert expected == await items_everywhere(policy_store, STATES[channel], at())


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("thread", ["old", "new"])
async def test_rerun_on_conflict_makes_both_runs_land(
    policy_store: Store, thread: str, durability: Any, channel: str
) -> None:
    """One after the other, each whole: the loser runs again once the winner is through."""
    contest = Contest(policy_store, "input", thread, channel, durability)
    await contest.prepare()
    through = {run: threading.Event() for run in "ab"}
    tries = dict.fromkeys("ab", 0)

    def at_a_try(run: str) -> None:
        tries[run] += 1
        if tries[run] > 1:
            through["b" if run == "a" else "a"].wait()

    async def natively(run: str) -> None:
        await asyncio.to_thread(at_a_try, run)
        await contest.run(run)
        through[run].set()

    def blocking(run: str) -> None:
        at_a_try(run)
        value = {"items": [f"{run}:in"]}
        contest.compiled.invoke(value, as_run(run), durability=durability)
        through[run].set()

    async def insistent(run: str) -> None:
        if policy_store.face.native:
            await arerun_on_conflict(lambda: natively(run))
        else:
            await asyncio.to_thread(rerun_on_conflict, lambda: blocking(run))

    await asyncio.gather(insistent("a"), insistent("b"))

    assert sorted(tries.values()) == [1, 2]
    first, second = sorted("ab", key=tries.__getitem__)
    theirs = contest.after(second)[len(contest.before) :]
    expected = [*contest.after(first), *theirs]
    assert expected == await items_everywhere(policy_store, contest.state, at())


@pytest.mark.parametrize("action", ["input", "resume"])
@pytest.mark.parametrize("durability", DURABILITIES)
async def test_on_conflict_fork_is_langgraphs_own_behaviour(
    hot_store: Store, durability: Any, action: str
) -> None:
    """Both runs end well, the last one to put is the head, the other's branch stays readable."""
    contest = Contest(hot_store, action, "old", "plain", durability, on_conflict="fork")
    await contest.prepare()
    contest.race.gates["b"] = threading.Event()
    late = asyncio.create_task(contest.run("b"))
    await contest.run("a")
    first = id_of((await hot_store.reader().get_tuple(at())).config)
    contest.race.gates["b"].set()
    await late
    assert contest.after("b") == await items_everywhere(hot_store, contest.state, at())
    assert contest.after("a") == await items_everywhere(hot_store, contest.state, at(id=first))


@pytest.mark.parametrize("channel", CHANNELS)
async def test_updating_an_old_checkpoint_is_no_conflict(policy_store: Store, channel: str) -> None:
    """It is a deliberate fork: it becomes the head, and the branch it left stays readable."""
    state = STATES[channel]
    graph = policy_store.face(chain_graph(policy_store.open(), state))
    await graph.invoke({"items": ["seed"]}, at())
    history = await graph.get_state_history(at())
    whole = ["seed", *(f"None:{n}" for n in NODES)]
    assert [whole[: n + 1] for n in reversed(range(7))] == [
        s.values["items"] for s in history if "items" in s.values
    ][:7]
    old = next(s for s in history if s.values.get("items") == whole[:3])
    for word in ("first", "second"):
        await graph.update_state(old.config, {"items": [word]}, "n6")
        assert [*whole[:3], word] == await items_everywhere(policy_store, state, at())
    assert whole == await items_everywhere(policy_store, state, history[0].config)
    await graph.invoke({"items": ["more"]}, at())
    expected = [*whole[:3], "second", "more", *whole[1:]]
    assert expected == await items_everywhere(policy_store, state, at())


# -- what must not conflict -------------------------------------------------------------------


@pytest.fixture(params=DURABILITIES)
def durability(request: pytest.FixtureRequest) -> Any:
    """One durability after the other."""
    return request.param


@pytest.fixture(params=CHANNELS)
def state(request: pytest.FixtureRequest) -> Any:
    """A state with a plain channel of items, and one with a DeltaChannel."""
    return STATES[request.param]


def simple(state: Any, saver: Any, *nodes: Any, **edges: Any) -> Any:
    """Nodes in a row."""
    builder = StateGraph(state)
    names = [START, *(f.__name__ for f in nodes), END]
    for f in nodes:
        builder.add_node(f.__name__, f)
    for before, after in itertools.pairwise(names):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


async def settled(store: Store, build: Any) -> list[str]:
    """The items of the head through a fresh saver on each tier, which must agree."""
    told = []
    for store.tier in TIERS:
        graph = store.face(build(store.open_reader()))
        told.append((await graph.get_state(at())).values["items"])
    assert told[0] == told[1] == told[2]
    return told[0]  # type: ignore[no-any-return]


async def test_interrupts_and_resumes(policy_store: Store, state: Any, durability: Any) -> None:
    """Two questions in one node and one in the next, each answered by a process of its own."""

    def ask(_: Any) -> Any:
        return {"items": [interrupt("one?"), interrupt("two?")]}

    def confirm(_: Any) -> Any:
        return {"items": [interrupt("sure?")]}

    def build(saver: Any) -> Any:
        return simple(state, saver, ask, confirm)

    for given in ({"items": ["in"]}, *(Command(resume=r) for r in ("r1", "r2", "r3"))):
        graph = policy_store.face(build(policy_store.open()))
        await graph.invoke(given, at(), durability=durability)
    assert await settled(policy_store, build) == ["in", "r1", "r2", "r3"]


async def test_an_answer_with_an_update(policy_store: Store, state: Any, durability: Any) -> None:
    """`Command(resume=…, update=…)`: the update comes first, once."""

    def ask(_: Any) -> Any:
        return {"items": [interrupt("?")]}

    def build(saver: Any) -> Any:
        return simple(state, saver, ask)

    graph = policy_store.face(build(policy_store.open()))
    await graph.invoke({"items": ["in"]}, at(), durability=durability)
    command = Command(resume="answer", update={"items": ["update"]})
    await graph.invoke(command, at(), durability=durability)
    assert await settled(policy_store, build) == ["in", "update", "answer"]


async def test_several_questions_at_once(policy_store: Store, state: Any, durability: Any) -> None:
    """Parallel branches that each wait for a human, answered one by one and then together."""

    def build(saver: Any) -> Any:
        builder = StateGraph(state)
        for name in "xyz":
            builder.add_node(name, lambda _, name=name: {"items": [f"{name}:{interrupt(name)}"]})
            builder.add_edge(START, name)
        return builder.compile(checkpointer=saver)

    graph = policy_store.face(build(policy_store.open()))
    await graph.invoke({"items": []}, at(), durability=durability)
    waiting = {i.value: i.id for i in (await graph.get_state(at())).interrupts}
    await graph.invoke(Command(resume={waiting["y"]: "2"}), at(), durability=durability)
    rest = {waiting["x"]: "1", waiting["z"]: "3"}
    await graph.invoke(Command(resume=rest), at(), durability=durability)
    assert await settled(policy_store, build) == ["x:1", "y:2", "z:3"]


@pytest.mark.parametrize("own", [None, True])
async def test_subgraphs_with_a_question_inside(
    policy_store: Store, durability: Any, own: Any
) -> None:
    """A subgraph that inherits the checkpointer, and one that keeps its own state."""

    def build(saver: Any) -> Any:
        def ask(_: Any) -> Any:
            return {"items": [f"sub:{interrupt('?')}"]}

        inner = simple(PlainState, own, ask)

        def call(_: Any) -> Any:
            return {"items": inner.invoke({"items": ["in"]})["items"][-1:]}

        async def acall(_: Any) -> Any:
            return {"items": (await inner.ainvoke({"items": ["in"]}))["items"][-1:]}

        def after(_: Any) -> Any:
            return {"items": ["after"]}

        chosen = acall if policy_store.face.native else call
        chosen.__name__ = "call"
        return simple(DeltaState, saver, chosen, after)

    expected = []
    for turn in range(3):
        graph = policy_store.face(build(policy_store.open()))
        await graph.invoke({"items": [f"{turn}"]}, at(), durability=durability)
        graph = policy_store.face(build(policy_store.open()))
        await graph.invoke(Command(resume=f"r{turn}"), at(), durability=durability)
        expected += [f"{turn}", f"sub:r{turn}", "after"]
    assert expected == await settled(policy_store, build)


async def test_a_subgraph_with_state_of_its_own_remembers(
    policy_store: Store, durability: Any
) -> None:
    """`checkpointer=True`: each turn finds what the turn before left there."""

    def build(saver: Any) -> Any:
        def count(s: Any) -> Any:
            return {"items": [f"turn {len(s['items'])}"]}

        inner = simple(PlainState, True, count)
        builder = StateGraph(PlainState)
        builder.add_node("inner", inner)
        builder.add_edge(START, "inner")
        return builder.compile(checkpointer=saver)

    for _ in range(3):
        graph = policy_store.face(build(policy_store.open()))
        result = await graph.invoke({"items": ["in"]}, at(), durability=durability)
    reference = _reference(build, [{"items": ["in"]}] * 3, durability)
    assert reference == result["items"] == await settled(policy_store, build)


def _reference(build: Any, inputs: list[Any], durability: Any) -> list[str]:
    """What LangGraph's own saver in memory makes of it."""
    from langgraph.checkpoint.memory import InMemorySaver

    graph = build(InMemorySaver())
    for given in inputs:
        result = graph.invoke(given, at(), durability=durability)
    return result["items"]  # type: ignore[no-any-return]


async def test_sends(policy_store: Store, state: Any, durability: Any) -> None:
    """A fan-out of five, twice on one thread."""

    def build(saver: Any) -> Any:
        builder = StateGraph(state)
        builder.add_node("work", lambda n: {"items": [f"w{n}"]})
        builder.add_conditional_edges(START, lambda _: [Send("work", n) for n in range(5)])
        return builder.compile(checkpointer=saver)

    graph = policy_store.face(build(policy_store.open()))
    for _ in range(2):
        await graph.invoke({"items": ["in"]}, at(), durability=durability)
    assert await settled(policy_store, build) == ["in", "w0", "w1", "w2", "w3", "w4"] * 2


def three(state: Any, saver: Any) -> Any:
    """Three nodes in a row, each of which adds its name."""

    def one(_: Any) -> Any:
        return {"items": ["one"]}

    def two(_: Any) -> Any:
        return {"items": ["two"]}

    def last(_: Any) -> Any:
        return {"items": ["last"]}

    return simple(state, saver, one, two, last)


async def test_time_travel(policy_store: Store, state: Any, durability: Any) -> None:
    """`invoke(None, old_config)` twice, then a new turn on the head it left."""

    def build(saver: Any) -> Any:
        return three(state, saver)

    graph = policy_store.face(build(policy_store.open()))
    await graph.invoke({"items": ["in"]}, at(), durability="sync")
    original = await graph.get_state(at())
    old = next(s for s in await graph.get_state_history(at()) if s.next == ("two",))
    for _ in range(2):
        result = await graph.invoke(None, old.config, durability=durability)
        assert result["items"] == ["in", "one", "two", "last"]
    await graph.invoke({"items": ["more"]}, at(), durability=durability)
    expected = ["in", "one", "two", "last", "more", "one", "two", "last"]
    assert expected == await settled(policy_store, build)
    assert (await graph.get_state(original.config)).values["items"] == expected[:4]


async def test_a_fork_that_makes_its_first_versions_goes_on(policy_store: Store) -> None:
    """From a checkpoint given by id that has no versions, a run starts them; the thread's head is
    elsewhere, and none of its puts is a conflict."""
    saver = policy_store.saver()
    old = await put(saver, at(), cp({}))
    await put(saver, old, cp({"c": "head"}))
    loaded = await saver.get_tuple(old)
    config, version = loaded.config, None
    for n in range(3):
        version = saver.target.get_next_version(version, None)
        made = cp({"c": n}, versions={"c": version})
        stored = await put(saver, config, made)
        config = {"configurable": loaded.config["configurable"] | stored["configurable"]}
        config["configurable"]["thread_id"] = loaded.config["configurable"]["thread_id"]
        assert values_of(await policy_store.reader().get_tuple(at())) == {"c": n}


async def test_replaying_every_state_of_the_history(
    policy_store: Store, state: Any, durability: Any
) -> None:
    """Each ends in the same values, and the history it was taken from reads as before."""

    def build(saver: Any) -> Any:
        return three(state, saver)

    graph = policy_store.face(build(policy_store.open()))
    await graph.invoke({"items": ["in"]}, at(), durability="sync")
    history = await graph.get_state_history(at())
    before = [(id_of(s.config), s.values, s.next) for s in history]
    for snapshot in history:
        if snapshot.next:
            result = await graph.invoke(None, snapshot.config, durability=durability)
            assert result["items"] == ["in", "one", "two", "last"]
    assert before == [
        (id_of(s.config), s.values, s.next)
        for s in [await graph.get_state(s.config) for s in history]
    ]
    assert await settled(policy_store, build) == ["in", "one", "two", "last"]


async def test_bulk_updates(policy_store: Store, state: Any) -> None:
    """Several supersteps in one call, on a new thread, on an old one, and before a run."""
    from langgraph.types import StateUpdate

    def build(saver: Any) -> Any:
        return three(state, saver)

    graph = policy_store.face(build(policy_store.open()))
    for turn in range(2):
        await graph.bulk_update_state(
            at(),
            [[StateUpdate({"items": [f"u{turn}{step}"]}, as_node="last")] for step in range(3)],
        )
    await graph.invoke({"items": ["in"]}, at())
    expected = ["u00", "u01", "u02", "u10", "u11", "u12", "in", "one", "two", "last"]
    assert expected == await settled(policy_store, build)


async def test_turns_of_one_thread(policy_store: Store, state: Any, durability: Any) -> None:
    """Six turns, each in a process of its own; the first one finds a new thread."""

    def build(saver: Any) -> Any:
        return three(state, saver)

    for _ in range(6):
        graph = policy_store.face(build(policy_store.open()))
        await graph.invoke({"items": ["in"]}, at(), durability=durability)
    assert await settled(policy_store, build) == ["in", "one", "two", "last"] * 6


async def test_a_node_that_failed_and_is_tried_again(
    policy_store: Store, state: Any, durability: Any
) -> None:
    """`invoke(None)` after an error, in the same process, runs what is left and conflicts with
    nothing."""
    ran: list[str] = []

    def one(_: Any) -> Any:
        ran.append("one")
        return {"items": ["one"]}

    def shaky(_: Any) -> Any:
        ran.append("shaky")
        if ran.count("shaky") < 3:
            raise OSError("not yet")
        return {"items": ["shaky"]}

    def build(saver: Any) -> Any:
        return simple(state, saver, one, shaky)

    graph = policy_store.face(build(policy_store.open()))
    for given in ({"items": ["in"]}, None):
        with pytest.raises(OSError, match="not yet"):
            await graph.invoke(given, at(), durability=durability)
    await graph.invoke(None, at(), durability=durability)
    assert ran == ["one", "shaky", "shaky", "shaky"]
    assert await settled(policy_store, build) == ["in", "one", "shaky"]


async def test_a_stream_that_nobody_reads_to_its_end(policy_store: Store, state: Any) -> None:
    """The caller leaves after the first node; the next run goes on from what was stored."""

    def build(saver: Any) -> Any:
        return three(state, saver)

    saver = policy_store.open()
    compiled = build(saver)

    def first_only() -> None:
        for _ in compiled.stream({"items": ["in"]}, at(), durability="sync"):
            return

    if policy_store.face.native:
        stream = compiled.astream({"items": ["in"]}, at(), durability="sync")
        await anext(stream)
        await stream.aclose()
    else:
        await asyncio.to_thread(first_only)
    await policy_store.face(compiled).invoke(None, at())
    assert await settled(policy_store, build) == ["in", "one", "two", "last"]


async def test_the_functional_api(policy_store: Store, durability: Any) -> None:
    """An entrypoint with tasks and a question, that adds to what it returned before."""

    def build(saver: Any) -> Any:
        @task
        def double(n: int) -> int:
            return 2 * n

        @entrypoint(checkpointer=saver)
        def flow(n: int, *, previous: Any = None) -> Any:
            futures = [double(n), double(n + 1)]
            answer = interrupt("?")
            return [*(previous or []), answer, *(f.result() for f in futures)]

        return flow

    expected: list[Any] = []
    for n in (1, 5):
        await policy_store.face(build(policy_store.open())).invoke(n, at(), durability=durability)
        again = policy_store.face(build(policy_store.open()))
        result = await again.invoke(Command(resume=f"r{n}"), at(), durability=durability)
        expected += [f"r{n}", 2 * n, 2 * n + 2]
    assert expected == result


async def test_runs_of_different_threads_at_once(
    policy_store: Store, state: Any, durability: Any
) -> None:
    """One saver, twelve threads, three turns each."""

    def build(saver: Any) -> Any:
        return three(state, saver)

    graph = policy_store.face(build(policy_store.open()))

    async def turns(thread_id: str) -> Any:
        for turn in range(3):
            value = {"items": [f"{thread_id}:{turn}"]}
            result = await graph.invoke(value, at(thread_id), durability=durability)
        return result["items"]

    names = [f"t{n}" for n in range(12)]
    told = await asyncio.gather(*map(turns, names))
    assert [
        [item for turn in range(3) for item in (f"{name}:{turn}", "one", "two", "last")]
        for name in names
    ] == told


# -- 21: a worker that is killed half-way -----------------------------------------------------


class Spoken(DurableSaver):
    """Says when a checkpoint or a task's writes were acknowledged."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = super().put(config, checkpoint, metadata, new_versions)
        say("put", metadata["step"])
        return stored

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        say("put", metadata["step"])
        return stored

    def put_writes(self, config: Any, writes: Any, *task: Any) -> None:
        super().put_writes(config, writes, *task)
        say("stored", *(w[1] for w in writes))

    async def aput_writes(self, config: Any, writes: Any, *task: Any) -> None:
        await super().aput_writes(config, writes, *task)
        say("stored", *(w[1] for w in writes))


def say(*words: Any) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")  # in one piece, from any thread


def fan_out(saver: Any, stuck: set[int]) -> Any:
    """Five Sends of which some never end."""

    class State(TypedDict, total=False):
        done: Annotated[list[int], operator.add]

    def work(n: int) -> Any:
        say("ran", n)
        if n in stuck:
            threading.Event().wait()
        return {"done": [n]}

    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_conditional_edges(START, lambda _: [Send("work", n) for n in range(5)])
    return builder.compile(checkpointer=saver)


def worker(face: str, postgres_url: str, redis_url: str, resumes: bool) -> None:
    """The life of a worker process."""
    stuck = set() if resumes else {0, 2, 3}
    given = None if resumes else {"done": []}

    async def natively() -> Any:
        async with Spoken(postgres_url, redis_url, hot_reads="always") as saver:
            return await fan_out(saver, stuck).ainvoke(given, at())

    if face == "native":
        result = asyncio.run(natively())
    else:
        with Spoken(postgres_url, redis_url, hot_reads="always") as saver:
            result = fan_out(saver, stuck).invoke(given, at())
    say("result", sorted(result["done"]))


@contextmanager
def working(*args: Any) -> Iterator[Iterator[str]]:
    """What a worker process says; it is killed afterwards."""
    code = f"from tests.integration.test_cases_graphs import worker; worker(*{args!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    try:
        yield (line.strip() for line in process.stdout)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("tier", ["flushed"])
async def test_of_five_sends_only_the_missing_ones_run_again(store: Store, tier: str) -> None:
    """The worker is killed when two are stored and three are at work; a new process resumes."""
    face = "native" if store.face.native else "blocking"
    args = (face, store.postgres_url, store.redis_url)
    awaited = {"put 0", *(f"ran {n}" for n in range(5)), "stored [1]", "stored [4]"}
    with working(*args, False) as lines:
        while awaited:
            awaited.discard(next(lines))
    if store.tier == "flushed":
        store.flush_redis()
    with working(*args, True) as lines:
        said = list(lines)
    assert sorted(s for s in said if s.startswith("ran")) == ["ran 0", "ran 2", "ran 3"]
    assert "result [0, 1, 2, 3, 4]" in said
    found = await store.reader().get_tuple(at())
    assert sorted(found.checkpoint["channel_values"]["done"]) == [0, 1, 2, 3, 4]
