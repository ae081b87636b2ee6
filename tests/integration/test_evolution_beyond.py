"""What else a thread of older code meets: histories of its subgraphs, recovery, pruning, the ways
in which it was stored; and the known failures of other savers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from langgraph_durable_state import EvolutionError, UsageError
from langgraph_durable_state.evolution import StateSchema, convert_channel, rename_channel
from tests.cases import Store, at
from tests.integration import evolving
from tests.integration.evolving import ALLOWED, CHANGES, Change, World, counted, in_a_row, straight
from tests.integration.situations import (
    MORE_SITUATIONS,
    SITUATIONS,
    Situation,
    ToldSaver,
    go,
    looked_at,
    reference,
)

INTERRUPT = "__interrupt__"
EVERYTHING = CHANGES["everything"]
HEAD_RECORD = (
    "UPDATE durable_state.checkpoint c SET record = set_byte(record, 40, get_byte(record, 40) # 90)"
    " WHERE (c.tk, c.ns, c.id) IN (SELECT tk, ns, id FROM durable_state.head WHERE ns = '')"
)


async def left(store: Store, how: Situation, durability: Any = "sync") -> World:
    """A thread that old code left in a situation."""
    old, saver = World(durability=durability), store.open(ToldSaver, allow=ALLOWED)
    await how.before(store.face(how.compiled(old, saver, False)), saver, old)
    return old


def taken_on(
    store: Store, how: Situation, old: World, change: Change = EVERYTHING
) -> tuple[Any, Any, World]:
    """New code's saver and graph for that thread."""
    new = World(change, model=old.model, ran=old.ran, durability=old.durability)
    saver = store.open_reader(state_schema=change.schema(), allow=ALLOWED)
    return saver, store.face(how.compiled(new, saver, False)), new


async def seen_to_the_end(how: Situation, saver: Any, graph: Any, new: World) -> Any:
    """What it is in, what it is in once it went on, and what ran: as `reference` tells it."""
    before = await looked_at(graph, new, EVERYTHING)
    await how.after(graph, saver, new)
    return before, await looked_at(graph, new, EVERYTHING), counted(new)


@pytest.mark.parametrize("tier", ["hot"])
@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize("policy", ["write_through", "write_behind"])
@pytest.mark.parametrize("situation", ["finished", "three branches, one answered", "in a subgraph"])
async def test_however_it_was_stored(
    store: Store, situation: str, policy: str, durability: Any
) -> None:
    """Redis may be ahead of Postgres in it, or only a run's last checkpoint be stored."""
    store.options = {"write_policy": policy, "redis_timeout": 10.0}
    how = SITUATIONS[situation]
    expected = await reference(how, "everything", durability)
    old = await left(store, how, durability)
    saver, graph, new = taken_on(store, how, old)
    assert await seen_to_the_end(how, saver, graph, new) == expected


@dataclass
class GivenAModel(World):
    """Its input is an object of the state's class."""

    def given(self) -> Any:
        return evolving.State(**super().given())  # type: ignore[attr-defined]


@pytest.mark.parametrize("tier", ["hot", "durable"])
@pytest.mark.parametrize("bulk", [False, True])
async def test_an_input_that_waits_as_a_model_is_taken_up(store: Store, bulk: bool) -> None:
    """The run died before its first step; its class has other fields now."""
    how = SITUATIONS["died before the first step"]
    expected = await reference(how, "everything")
    old, saver = GivenAModel(model=True), store.open(ToldSaver, allow=ALLOWED)
    await how.before(store.face(how.compiled(old, saver, False)), saver, old)
    saver, graph, new = taken_on(store, how, old)
    if bulk:
        assert (await store.face(saver).migrate()).migrated == ("t",)
    assert await seen_to_the_end(how, saver, graph, new) == expected


@pytest.mark.parametrize("tier", ["hot"])
@pytest.mark.parametrize("situation", ["finished", "in a subgraph", "in a subgraph after a join"])
async def test_migrated_where_only_the_end_of_each_run_is_stored(
    store: Store, situation: str
) -> None:
    how = {**SITUATIONS, **MORE_SITUATIONS}[situation]
    expected = await reference(how, "everything", "exit")
    old = await left(store, how, "exit")
    saver, graph, new = taken_on(store, how, old)
    assert (await store.face(saver).migrate()).migrated == ("t",)
    assert await seen_to_the_end(how, saver, graph, new) == expected


@pytest.mark.parametrize("tier", ["durable"])
@pytest.mark.parametrize("situation", ["in a subgraph", "in a subgraph that keeps its state"])
async def test_the_history_of_a_renamed_nodes_subgraph(store: Store, situation: str) -> None:
    """It is listed by the namespace that the node gives it today, and names it so."""
    how = SITUATIONS[situation]
    old = await left(store, how)
    was = store.face(how.compiled(old, store.open(allow=ALLOWED), False))
    expected = [s.metadata["step"] for s in await was.get_state_history(await inside(was))]
    assert len(expected) > 2
    _, graph, _ = taken_on(store, how, old)
    config = await inside(graph)
    found = await graph.get_state_history(config)
    assert [s.metadata["step"] for s in found] == expected
    assert {s.config["configurable"]["checkpoint_ns"] for s in found} == {
        config["configurable"]["checkpoint_ns"]
    }


async def inside(graph: Any) -> Any:
    """The config of the graph that a task of the thread's runs."""
    state = await graph.get_state(World().at, subgraphs=True)
    return at("t", state.tasks[0].state.config["configurable"]["checkpoint_ns"])


@pytest.mark.parametrize("tier", ["hot", "durable"])
@pytest.mark.parametrize("situation", ["interrupted", "in a subgraph"])
async def test_recovery_tells_a_question_by_todays_id(store: Store, situation: str) -> None:
    how = SITUATIONS[situation]
    old = await left(store, how)
    saver, graph, new = taken_on(store, how, old)
    report = await store.face(saver).recover(new.at)
    assert (report.decision, report.version, report.code_version) == ("migrate", 0, 1)
    waits = (await graph.get_state(new.at)).interrupts
    assert waits
    assert {each.id for each in report.interrupts} == {each.id for each in waits}


@pytest.mark.parametrize("tier", ["durable"])
async def test_recovery_of_a_renamed_nodes_subgraph(store: Store) -> None:
    how = SITUATIONS["in a subgraph"]
    old = await left(store, how)
    saver, graph, _ = taken_on(store, how, old)
    assert (await store.face(saver).recover(await inside(graph))).decision == "migrate"


@pytest.mark.parametrize("tier", ["durable"])
@pytest.mark.parametrize("situation", ["interrupted", "in a subgraph"])
async def test_a_question_where_the_other_tier_has_what_is_damaged(
    store: Store, situation: str
) -> None:
    """The older checkpoint is damaged in Postgres; Redis has it."""
    how = SITUATIONS[situation]
    old = await left(store, how)
    _, graph, new = taken_on(store, how, old)
    expected = [each.id for each in (await graph.get_state(new.at)).interrupts]
    store.query(HEAD_RECORD)
    saver, _, _ = taken_on(store, how, old)
    found = await store.face(saver).get_tuple(new.at)
    waits = [value for _, channel, value in found.pending_writes if channel == INTERRUPT]
    assert [each.id for some in waits for each in some] == expected


@pytest.mark.parametrize("tier", ["durable"])
async def test_a_renamed_delta_channel_after_pruning(store: Store) -> None:
    """What it is made from is kept, though nothing of it has the new name."""
    how = Situation(straight, go, go)
    old = await left(store, how)
    saver, graph, new = taken_on(store, how, old)
    before = (await graph.get_state(new.at)).values
    assert before["remarks"] == ["in", "first", "ask", "last"]
    await store.face(saver).prune(["t"])
    _, graph, new = taken_on(store, how, old)
    assert (await graph.get_state(new.at)).values == before
    await go(graph, saver, new)
    assert (await graph.get_state(new.at)).values["remarks"] == before["remarks"] * 2


# -- 3: a class that no longer exists at load -------------------------------------------------


@pytest.mark.parametrize("tier", ["hot", "durable"])
async def test_a_class_that_has_moved(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not missed where it was."""
    how, change = SITUATIONS["interrupted"], CHANGES["move class"]
    old = await left(store, how)
    monkeypatch.delattr(evolving, "Person")
    saver, graph, new = taken_on(store, how, old, change)
    await how.after(graph, saver, new)
    names = ["in", "first", "ask", "ask0?!", "ask1?!", "last"]
    told = (await graph.get_state(new.at)).values["who"]
    assert told == [evolving.Author(name) for name in names]


# -- 18 and 20 are cells of the matrix: "waits at a breakpoint", "crashed between siblings" -----


# -- 19: a node that was renamed while a thread waits in it ------------------------------------


@pytest.mark.parametrize("tier", ["hot", "durable"])
async def test_a_rename_that_nobody_declared(store: Store) -> None:
    """Where the schema knows the graph: never an empty `next`, and no answer is swallowed."""
    how = SITUATIONS["interrupted"]
    old = await left(store, how)
    change = Change(names={"ask": "ask_now"})
    schema = StateSchema(0, "test")
    saver = store.open_reader(state_schema=schema, allow=ALLOWED)
    new = World(change, ran=old.ran)
    compiled = how.compiled(new, saver, False)
    schema.fingerprint = schema.record(compiled)
    graph = store.face(compiled)
    with pytest.raises(EvolutionError, match="'ask'"):
        await graph.get_state(new.at)
    with pytest.raises(EvolutionError, match="'ask'"):
        await how.after(graph, saver, new)
    assert new.ran == ["first"]

    _, graph, new = taken_on(store, how, old, CHANGES["rename node"])  # nothing is lost
    await how.after(graph, saver, new)
    assert new.ran == ["first", "ask", "last"]


# -- 22: a subgraph with a channel of the same name --------------------------------------------


@pytest.mark.parametrize("tier", ["hot", "durable"])
async def test_a_subgraphs_channel_of_the_same_name(store: Store) -> None:
    """A channel of the graph around it is renamed; its own is not."""

    def build(world: World) -> Any:
        inside = World(ran=world.ran)
        inner = in_a_row(inside, "dig", "ask", ask=inside.node("ask", 1)).compile()
        return in_a_row(world, "first", "research", "last", research=inner)

    how = Situation(build, go, SITUATIONS["interrupted"].after)
    change = Change((rename_channel("log", "story"),), {"log": "story"})
    old = await left(store, how)
    was = store.face(how.compiled(old, store.open(allow=ALLOWED), False))
    within = (await was.get_state(old.at, subgraphs=True)).tasks[0].state.values
    assert within["log"] == ["in", "first", "dig"]

    saver, graph, new = taken_on(store, how, old, change)
    state = await graph.get_state(new.at, subgraphs=True)
    assert state.values["story"] == ["in", "first"]
    assert state.tasks[0].state.values == within
    await how.after(graph, saver, new)
    values = (await graph.get_state(new.at)).values
    assert values["story"] == ["in", "first", "last"]
    assert values["junk"] == ["in", "first", "in", "first", "dig", "ask", "ask0?!", "last"]
    assert new.ran == ["first", "dig", "ask", "last"]


# -- 23: a value that the state refuses --------------------------------------------------------


@pytest.mark.parametrize("tier", ["hot", "durable"])
async def test_a_value_that_the_pydantic_state_refuses(store: Store) -> None:
    """The run fails; its history can be listed; from what is good in it, it goes on."""
    how = Situation(straight, go, go)
    old, saver = World(model=True), store.open(allow=ALLOWED)
    compiled = how.compiled(old, saver, False)
    graph = store.face(compiled)
    old.says["ask"] = {"who": ["no person"]}
    with pytest.raises(pydantic.ValidationError, match="who"):
        await go(graph, saver, old)
    reader = store.face(store.open_reader(allow=ALLOWED))
    listed = await reader.list(old.at)
    assert [each.metadata["step"] for each in listed] == [2, 1, 0, -1]
    report = await reader.recover(old.at, state=compiled)
    assert (report.decision, report.last_sound) == ("resume", report.checkpoint)
    assert [each.path for each in report.misfits] == ["who[2]"]
    assert report.last_valid == listed[1].config["configurable"]["checkpoint_id"]
    old.says.clear()
    await graph.invoke(None, at("t", id=report.last_valid))
    assert old.ran == ["first", "ask", "ask", "last"]
    assert (await reader.recover(old.at, state=compiled)).misfits == ()


@pytest.mark.parametrize("tier", ["hot", "durable"])
async def test_a_value_that_a_step_refuses(store: Store) -> None:
    """Recovery names the newest checkpoint that this code can bring up, and a run goes on there."""
    how = Situation(straight, go, go)
    old = await left(store, how)

    def up(count: int) -> str:
        if count > 3:
            raise ValueError(count)
        return str(count)

    change = Change((convert_channel("count", up),), text=True)
    saver, graph, new = taken_on(store, how, old, change)
    with pytest.raises(EvolutionError, match="'count' failed"):
        await graph.get_state(new.at)
    seen = store.face(saver)
    report = await seen.recover(new.at)
    assert (report.decision, report.error.split(":")[0]) == ("refuse", "EvolutionError")
    assert report.last_sound == report.asked
    with pytest.raises(UsageError, match="nothing to go back to"):
        await seen.fork_from(report)
    await graph.invoke(None, await seen.fork_from(report, readable=True))
    state = await graph.get_state(new.at)
    assert (state.values["count"], state.next) == ("4", ())
    assert new.ran == ["first", "ask", "last"]
