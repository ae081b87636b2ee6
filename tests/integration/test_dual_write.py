"""`dual_write=`: code of two versions of a graph takes turns on one thread, and neither misses what
the other did."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import DurableSaver, EvolutionError, UsageError
from langgraph_durable_state.evolution import (
    StateSchema,
    add_channel,
    convert_channel,
    drop_channel,
    drop_node,
    move_class,
    rename_channel,
    rename_field,
    rename_node,
)
from tests.cases import Plain, Store, at

Build = Callable[[Any, Counter[str]], Any]
"""Makes a graph over a saver; it counts which nodes ran."""

KINDS = {
    "no schema, hot reads, the same workers": (0, "always", False),
    "an older schema, durable reads, fresh workers": (1, "never", True),
}


@dataclass
class Deploy:
    """Workers with older and with newer code over one store.

    Attributes:
        store: both tiers.
        before: the older code's version; it has no schema at 0.
        reads: `hot_reads` of all savers.
        fresh: whether each turn is taken by a worker that has just started.
        ran: how often each node ran.
    """

    store: Store
    before: int
    reads: str
    fresh: bool
    ran: Counter[str] = field(default_factory=Counter)
    options: dict[str, Any] = field(default_factory=dict)
    _kept: dict[str, Any] = field(default_factory=dict)

    def between(self, old: Build, new: Build, *operations: Any) -> Deploy:
        """With these two versions of a graph, and the step between them."""
        version = self.before + 1
        schema = StateSchema(version)
        for earlier in range(self.before):
            schema.step(earlier, drop_channel("unused"))
        schema.step(self.before, *operations)
        self._made = {
            "old": (old, {"state_schema": older()} if self.before else {}),
            "new": (new, {"state_schema": schema, "dual_write": (version - 1, version)}),
            "after": (new, {"state_schema": schema}),
        }
        return self

    def _graph(self, who: str) -> Any:
        if self.fresh or who not in self._kept:
            build, options = self._made[who]
            saver = self.store.open(hot_reads=self.reads, **(self.options | options))
            self._kept[who] = self.store.face(build(saver, self.ran))
        return self._kept[who]

    @property
    def old(self) -> Any:
        """The graph of a worker with the older code."""
        return self._graph("old")

    @property
    def new(self) -> Any:
        """The graph of a worker with the newer code, which dual-writes."""
        return self._graph("new")

    @property
    def after(self) -> Any:
        """The graph of a worker with the newer code that does not dual-write any more."""
        return self._graph("after")


@pytest.fixture(params=KINDS)
def deploy(request: pytest.FixtureRequest, policy_store: Store) -> Deploy:
    """On both faces, under both write policies."""
    return Deploy(policy_store, *KINDS[request.param])


def older() -> StateSchema:
    schema = StateSchema(1)
    schema.step(0, drop_channel("unused"))
    return schema


def questions(state: Any) -> dict[str, str]:
    """The ids of the interrupts that wait, by their values."""
    return {i.value: i.id for task in state.tasks for i in task.interrupts}


# -- nodes and channels under other names ----------------------------------------------------

RENAMES = (
    rename_channel("log", "journal"),
    rename_channel("log", "journal", at="sub"),
    rename_node("ask", "ask_human"),
    rename_node("sub", "research"),
)


def assistant(log: str, ask: str, sub: str) -> Build:
    """A plan; then a question, a side task and a subgraph with a question, side by side."""
    State: Any = TypedDict("State", {log: Annotated[list, operator.add]}, total=False)  # type: ignore[misc]

    def build(saver: Any, ran: Counter[str]) -> Any:
        def says(what: str, value: Callable[[], Any] | None = None) -> Any:
            def node(_: Any) -> Any:
                answer = value() if value is not None else None
                ran[what] += 1
                return {log: [f"{what} {answer}" if answer else what]}

            return node

        inner = StateGraph(State)
        inner.add_node("look", says("look"))
        inner.add_node("pick", says("pick", lambda: interrupt("which?")))
        inner.add_edge(START, "look")
        inner.add_edge("look", "pick")
        graph = StateGraph(State)
        graph.add_node("plan", says("plan"))
        graph.add_node(ask, says("ask", lambda: interrupt("may I?")))
        graph.add_node("side", says("side"))
        graph.add_node(sub, inner.compile())
        graph.add_node("end", says("end"))
        graph.add_edge(START, "plan")
        for node in (ask, "side", sub):
            graph.add_edge("plan", node)
        graph.add_edge([ask, "side", sub], "end")
        return graph.compile(checkpointer=saver)

    return build


OLD, NEW = assistant("log", "ask", "sub"), assistant("journal", "ask_human", "research")
DONE = ["plan", "ask yes", "side", "plan", "look", "pick this", "end"]


@pytest.fixture
def renamed(deploy: Deploy) -> Deploy:
    return deploy.between(OLD, NEW, *RENAMES)


@pytest.mark.parametrize("first", ["old", "new"])
async def test_what_one_version_asks_the_other_answers(renamed: Deploy, first: str) -> None:
    """Nothing runs twice, of siblings nor of a subgraph, and both see the same all along."""
    one, other = (first, "new" if first == "old" else "old")
    names = {"old": ("log", "ask", "sub"), "new": ("journal", "ask_human", "research")}

    def graph(who: str) -> Any:
        return getattr(renamed, who)

    await graph(one).invoke({names[one][0]: []}, at())
    assert renamed.ran == {"plan": 1, "side": 1, "look": 1}
    for who in ("old", "new"):
        state = await graph(who).get_state(at(), subgraphs=True)
        log, ask, sub = names[who]
        assert (set(state.next), state.values) == ({ask, sub}, {log: ["plan", "side"]})
        assert questions(state).keys() == {"may I?", "which?"}
        (below,) = (task.state for task in state.tasks if task.name == sub)
        assert (below.values, below.next) == ({log: ["plan", "look"]}, ("pick",))
    asked = questions(await graph(other).get_state(at()))
    await graph(other).invoke(Command(resume={asked["may I?"]: "yes"}), at())
    assert renamed.ran == {"plan": 1, "side": 1, "look": 1, "ask": 1}
    asked = questions(await graph(one).get_state(at()))
    assert asked.keys() == {"which?"}
    done = await graph(one).invoke(Command(resume={asked["which?"]: "this"}), at())
    assert renamed.ran == dict.fromkeys(("plan", "side", "look", "ask", "pick", "end"), 1)
    assert sorted(done[names[one][0]]) == sorted(DONE)
    for who in ("old", "new", "after"):
        state = await graph(who).get_state(at())
        log = names.get(who, names["new"])[0]
        assert (state.next, state.values) == ((), {log: done[names[one][0]]})


async def test_both_see_one_history(renamed: Deploy) -> None:
    await renamed.old.invoke({"log": ["a"]}, at())
    await renamed.new.invoke(Command(resume={**await answers(renamed.new)}), at())
    await renamed.new.invoke({"journal": ["b"]}, at())
    await renamed.old.invoke(Command(resume={**await answers(renamed.old)}), at())
    old = await renamed.old.get_state_history(at())
    new = await renamed.new.get_state_history(at())
    assert [each.values.get("log") for each in old] == [each.values.get("journal") for each in new]
    assert [each.config for each in old] == [each.config for each in new]
    assert [len(each.tasks) for each in old] == [len(each.tasks) for each in new]


async def answers(graph: Any) -> Mapping[str, str]:
    """An answer to each question that waits."""
    said = {"may I?": "yes", "which?": "this"}
    return {id: said[each] for each, id in questions(await graph.get_state(at())).items()}


@pytest.mark.parametrize("traveller", ["old", "new"])
async def test_either_goes_back_to_what_the_other_stored(renamed: Deploy, traveller: str) -> None:
    """The nodes after that checkpoint run again, those before it do not; a fork by an update of
    the past is seen by both."""
    first = "new" if traveller == "old" else "old"
    log = {"old": "log", "new": "journal"}
    await getattr(renamed, first).invoke({log[first]: ["a"]}, at())
    graph = getattr(renamed, first)
    await graph.invoke(Command(resume={**await answers(graph)}), at())
    renamed.ran.clear()
    past = await getattr(renamed, traveller).get_state_history(at())
    (planned,) = (each for each in past if each.values.get(log[traveller]) == ["a", "plan"])
    fork = await getattr(renamed, traveller).update_state(planned.config, {log[traveller]: ["b"]})
    await getattr(renamed, traveller).invoke(None, fork)
    graph = getattr(renamed, first)
    seen = await graph.get_state(at())
    assert seen.values == {log[first]: ["a", "plan", "b", "side"]}
    done = await graph.invoke(Command(resume={**await answers(graph)}), at())
    assert renamed.ran == dict.fromkeys(("side", "look", "ask", "pick", "end"), 1)
    assert done[log[first]][:3] == ["a", "plan", "b"]
    assert (await getattr(renamed, traveller).get_state(at())).values == {
        log[traveller]: done[log[first]]
    }


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_turns_are_taken_whatever_the_durability(renamed: Deploy, durability: Any) -> None:
    await renamed.old.invoke({"log": []}, at(), durability=durability)
    resume = Command(resume={**await answers(renamed.new)})
    done = await renamed.new.invoke(resume, at(), durability=durability)
    assert sorted(done["journal"]) == sorted(DONE)
    await renamed.new.invoke({"journal": ["again"]}, at(), durability=durability)
    resume = Command(resume={**await answers(renamed.old)})
    done = await renamed.old.invoke(resume, at(), durability=durability)
    assert sorted(done["log"])[:1] == ["again"]
    assert renamed.ran == dict.fromkeys(("plan", "side", "look", "ask", "pick", "end"), 2)


async def test_recover_tells_either_what_waits(renamed: Deploy) -> None:
    """No node that has a write, under whichever name, is said to have none."""
    await renamed.new.invoke({"journal": []}, at())
    resume = questions(await renamed.old.get_state(at()))
    for turn in range(2):
        for who in ("old", "new", "after"):
            saver = renamed.store.face(getattr(renamed, who).target.checkpointer)
            report = await saver.recover(at())
            assert (report.decision, report.unrecorded) == ("resume", ()), (who, turn)
            assert len(report.interrupts) == 2 - turn
            assert report.version == report.code_version
        await renamed.old.invoke(Command(resume={resume["may I?"]: "yes"}), at())


# -- a node that asks several times ----------------------------------------------------------


def interviewer(node: str) -> Build:
    State: Any = TypedDict("State", {"said": Annotated[list, operator.add]}, total=False)

    def build(saver: Any, ran: Counter[str]) -> Any:
        def asks(_: Any) -> Any:
            return {"said": [interrupt(f"question {n}") for n in range(4)]}

        graph = StateGraph(State)
        graph.add_node(node, asks)
        graph.add_edge(START, node)
        return graph.compile(checkpointer=saver)

    return build


@pytest.mark.parametrize(
    "turns", ["old new old new old", "new old new old new", "old new new old old"]
)
async def test_a_node_that_asks_again_is_answered_by_turns(deploy: Deploy, turns: str) -> None:
    """What it was told before is not asked again, whoever goes on."""
    deploy.between(interviewer("ask"), interviewer("interview"), rename_node("ask", "interview"))
    first, *others = turns.split()
    await getattr(deploy, first).invoke({"said": []}, at())
    for n, who in enumerate(others):
        for each in ("old", "new"):
            state = await getattr(deploy, each).get_state(at())
            assert questions(state).keys() == {f"question {n}"}, each
        await getattr(deploy, who).invoke(Command(resume=f"answer {n}"), at())
    for each in ("old", "new", "after"):
        state = await getattr(deploy, each).get_state(at())
        assert (state.next, state.values) == ((), {"said": [f"answer {n}" for n in range(4)]})


# -- what a channel holds ---------------------------------------------------------------------


def counter(channel: str, step: Callable[[Any], Any], empty: Any) -> Build:
    """Counts in a channel, with a question in between."""
    State: Any = TypedDict("State", {channel: Any, "asked": str}, total=False)  # type: ignore[misc]

    def build(saver: Any, ran: Counter[str]) -> Any:
        graph = StateGraph(State)
        graph.add_node("first", lambda s: {channel: step(s.get(channel, empty))})
        graph.add_node("ask", lambda s: {"asked": interrupt(s[channel])})
        graph.add_node("last", lambda s: {channel: step(s[channel])})
        graph.add_edge(START, "first")
        graph.add_edge("first", "ask")
        graph.add_edge("ask", "last")
        return graph.compile(checkpointer=saver)

    return build


async def test_a_converted_channel_is_counted_on_in_turns(deploy: Deploy) -> None:
    """The older code counts in numbers, the newer one in text."""
    old = counter("count", lambda n: n + 1, 0)
    new = counter("count", lambda n: f"{int(n) + 1}", "0")
    deploy.between(old, new, convert_channel("count", str, int))
    await deploy.old.invoke({"asked": ""}, at())
    await deploy.new.invoke(Command(resume="yes"), at())
    assert (await deploy.old.get_state(at())).values == {"asked": "yes", "count": 2}
    await deploy.new.invoke({"asked": ""}, at())
    assert (await deploy.old.get_state(at())).values == {"asked": "", "count": 3}
    done = await deploy.old.invoke(Command(resume="again"), at())
    assert done == {"asked": "again", "count": 4}
    for graph in (deploy.new, deploy.after):
        assert (await graph.get_state(at())).values == {"asked": "again", "count": "4"}


async def test_an_added_channel_is_there_until_older_code_puts(deploy: Deploy) -> None:
    """The older code has no place for it: after its turn the new code finds the default again."""
    old = counter("count", lambda n: n + 1, 0)
    Added: Any = TypedDict("Added", {"count": int, "asked": str, "mood": str}, total=False)

    def new(saver: Any, ran: Counter[str]) -> Any:
        graph = StateGraph(Added)
        graph.add_node("first", lambda s: {"count": s.get("count", 0) + 1, "mood": "good"})
        graph.add_node("ask", lambda s: {"asked": interrupt(s["count"])})
        graph.add_node("last", lambda s: {"count": s["count"] + 1})
        graph.add_edge(START, "first")
        graph.add_edge("first", "ask")
        graph.add_edge("ask", "last")
        return graph.compile(checkpointer=saver)

    deploy.between(old, new, add_channel("mood", default="even"))
    await deploy.new.invoke({"asked": ""}, at())
    assert (await deploy.new.get_state(at())).values == {"asked": "", "count": 1, "mood": "good"}
    assert (await deploy.old.get_state(at())).values == {"asked": "", "count": 1}
    await deploy.old.invoke(Command(resume="yes"), at())
    assert (await deploy.new.get_state(at())).values == {"asked": "yes", "count": 2, "mood": "even"}
    await deploy.new.invoke({"asked": ""}, at())
    done = await deploy.new.invoke(Command(resume="yes"), at())
    assert done == {"asked": "yes", "count": 4, "mood": "good"}
    assert (await deploy.old.get_state(at())).values == {"asked": "yes", "count": 4}


def appended(items: list[str], batches: Any) -> list[str]:
    return [*items, *(item for batch in batches for item in batch)]


def diary(log: str, ask: str) -> Build:
    """A DeltaChannel with a snapshot now and then, and a question in each round."""

    def build(saver: Any, ran: Counter[str]) -> Any:
        channel = DeltaChannel(appended, list, snapshot_frequency=5)
        State: Any = TypedDict("State", {log: Annotated[list, channel]}, total=False)  # type: ignore[misc]
        graph = StateGraph(State)
        graph.add_node("note", lambda s: {log: [f"note {len(s[log])}"]})
        graph.add_node(ask, lambda s: {log: [f"{interrupt('?')} {len(s[log])}"]})
        graph.add_edge(START, "note")
        graph.add_edge("note", ask)
        return graph.compile(checkpointer=saver)

    return build


async def test_a_renamed_delta_channel_is_replayed_through_the_turns(deploy: Deploy) -> None:
    old, new = diary("log", "ask"), diary("journal", "ask_human")
    deploy.between(old, new, rename_channel("log", "journal"), rename_node("ask", "ask_human"))
    expected: list[str] = []
    for turn, (asks, answers) in enumerate(["oo", "on", "no", "nn", "oo", "nn", "on", "no"]):
        who = {"o": (deploy.old, "log"), "n": (deploy.new, "journal")}
        graph, log = who[asks]
        await graph.invoke({log: [f"turn {turn}"]}, at())
        expected += [f"turn {turn}", f"note {len(expected) + 1}"]
        for graph, log in ((deploy.old, "log"), (deploy.new, "journal")):
            assert (await graph.get_state(at())).values == {log: expected}
        graph, log = who[answers]
        expected += [f"{answers} {len(expected)}"]
        assert await graph.invoke(Command(resume=answers), at()) == {log: expected}
    for graph, log in ((deploy.old, "log"), (deploy.new, "journal"), (deploy.after, "journal")):
        lengths = [len(s.values[log]) for s in await graph.get_state_history(at()) if s.values]
        assert lengths[0] == len(expected)
        assert lengths == sorted(lengths, reverse=True)
        assert (await graph.get_state(at())).values == {log: expected}


# -- sends -----------------------------------------------------------------------------------


def dispatcher(work: str, log: str) -> Build:
    """Three jobs sent to one node; the second one asks."""
    State: Any = TypedDict("State", {log: Annotated[list, operator.add]}, total=False)  # type: ignore[misc]

    def build(saver: Any, ran: Counter[str]) -> Any:
        def job(name: str) -> Any:
            answer = interrupt("b?") if name == "b" else ""
            ran[name] += 1
            return {log: [name + answer]}

        graph = StateGraph(State)
        graph.add_node("plan", lambda _: {log: ["plan"]})
        graph.add_node(work, job)
        graph.add_conditional_edges("plan", lambda _: [Send(work, name) for name in "abc"], [work])
        graph.add_edge(START, "plan")
        return graph.compile(checkpointer=saver)

    return build


@pytest.mark.parametrize("first", ["old", "new"])
async def test_sends_half_done_by_one_are_finished_by_the_other(deploy: Deploy, first: str) -> None:
    renames = rename_node("work", "job"), rename_channel("log", "journal")
    deploy.between(dispatcher("work", "log"), dispatcher("job", "journal"), *renames)
    turns = {"old": ("log", "new"), "new": ("journal", "old")}
    log, other = turns[first]
    await getattr(deploy, first).invoke({log: []}, at())
    assert deploy.ran == {"a": 1, "c": 1}
    (question,) = questions(await getattr(deploy, other).get_state(at())).items()
    done = await getattr(deploy, other).invoke(Command(resume={question[1]: "!"}), at())
    assert deploy.ran == {"a": 1, "b": 1, "c": 1}
    assert done == {turns[other][0]: ["plan", "a", "b!", "c"]}
    for who in ("old", "new"):
        assert (await getattr(deploy, who).get_state(at())).values == {
            turns[who][0]: next(iter(done.values()))
        }


# -- before and after ------------------------------------------------------------------------


async def test_without_a_second_form_the_older_code_refuses(renamed: Deploy) -> None:
    """A checkpoint that new code puts while it does not dual-write, and an answer that it adds to
    an older one."""
    await renamed.old.invoke({"log": []}, at())
    asked = questions(await renamed.after.get_state(at()))
    await renamed.after.invoke(Command(resume={asked["may I?"]: "yes"}), at())
    for call in (lambda: renamed.old.get_state(at()), lambda: renamed.old.invoke(None, at())):
        with pytest.raises(EvolutionError, match=r"version 1|version 2"):
            await call()
    asked = questions(await renamed.after.get_state(at()))
    await renamed.after.invoke(Command(resume={asked["which?"]: "this"}), at())
    for call in (lambda: renamed.old.get_state(at()), lambda: renamed.old.invoke(None, at())):
        with pytest.raises(EvolutionError, match=r"version 1|version 2"):
            await call()
    assert renamed.ran == dict.fromkeys(("plan", "side", "look", "ask", "pick", "end"), 1)


@pytest.mark.parametrize("first", ["old", "new"])
async def test_once_it_is_off_all_is_found_and_stored_in_one_form(
    renamed: Deploy, first: str
) -> None:
    """The subgraph's state too, which is stored under its former name; what is put then is for the
    newer code alone."""
    await getattr(renamed, first).invoke({"log" if first == "old" else "journal": []}, at())
    await renamed.new.get_state(at())
    state = await renamed.after.get_state(at(), subgraphs=True)
    (below,) = (task.state for task in state.tasks if task.name == "research")
    assert below.values == {"journal": ["plan", "look"]}
    asked = questions(state)
    assert asked.keys() == {"may I?", "which?"}
    done = await renamed.after.invoke(Command(resume={**await answers(renamed.after)}), at())
    assert renamed.ran == dict.fromkeys(("plan", "side", "look", "ask", "pick", "end"), 1)
    assert sorted(done["journal"]) == sorted(DONE)
    with pytest.raises(EvolutionError):
        await renamed.old.get_state(at())
    assert (await renamed.new.get_state(at())).values == done


@pytest.mark.parametrize("reader", ["new", "after"])
async def test_what_was_migrated_meanwhile_is_found_where_it_is(
    renamed: Deploy, reader: str
) -> None:
    """By a worker that had found the subgraph's state under its former name before."""
    await renamed.old.invoke({"log": []}, at())
    await getattr(renamed, reader).get_state(at(), subgraphs=True)
    resume = Command(resume={**await answers(renamed.new)})
    _, options = renamed._made["after"]
    report = await renamed.store.saver(**options).migrate()
    assert report.threads == 1
    state = await getattr(renamed, reader).get_state(at(), subgraphs=True)
    (below,) = (task.state for task in state.tasks if task.name == "research")
    assert below.values == {"journal": ["plan", "look"]}
    done = await getattr(renamed, reader).invoke(resume, at())
    assert renamed.ran == dict.fromkeys(("plan", "side", "look", "ask", "pick", "end"), 1)
    assert sorted(done["journal"]) == sorted(DONE)


ONE_WAY: dict[str, Any] = {
    "channel 'log'": convert_channel("log", tuple),
    "channel 'draft'": drop_channel("draft"),
    "node 'side'": drop_node("side", to="ask"),
    "class shop.models:Cart": move_class("shop.models:Cart", "shop.basket:Basket"),
    "class tests.cases:Plain": rename_field("log", Plain, "part", "piece"),
}


@pytest.mark.parametrize("what", ONE_WAY)
async def test_a_step_without_a_way_back_is_refused_at_once(what: str) -> None:
    """What is stored of an object names its class and fields as they are now."""
    schema = StateSchema(1)
    schema.step(0, ONE_WAY[what])
    DurableSaver("postgresql://nowhere", state_schema=schema)
    with pytest.raises(UsageError, match=f"from version 0 has no way back for {what}"):
        DurableSaver("postgresql://nowhere", state_schema=schema, dual_write=(0, 1))


@pytest.mark.parametrize("wrong", [(1, 2), (1, 0), (-1, 1), (0, 0), (1,), 1, True, "01"])
async def test_other_versions_are_refused(wrong: Any) -> None:
    schema = StateSchema(1)
    schema.step(0, *RENAMES)
    with pytest.raises(UsageError, match="the version before"):
        DurableSaver("postgresql://nowhere", state_schema=schema, dual_write=wrong)
    with pytest.raises(UsageError, match="needs state_schema"):
        DurableSaver("postgresql://nowhere", dual_write=wrong)
    with pytest.raises(UsageError, match="none before it"):
        DurableSaver("postgresql://nowhere", state_schema=StateSchema(0), dual_write=wrong)
