"""What a saver does over each driver, seen through LangGraph's interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_durable_state import ConflictError, UsageError
from langgraph_durable_state.words import NULL_TASK_ID
from tests.contract.superstep import config, superstep, with_id

NewSaver = Callable[..., Any]

LONG = "x" * 1000
"""A value that is stored as a chunk of its own."""


async def grown(saver: Any, *ids: str, thread: str = "t", **values: Any) -> CheckpointTuple:
    """A thread of so many supersteps; its head."""
    for id in ids:
        before = await saver.aget_tuple(config(thread))
        made = {"log": [*(before.checkpoint["channel_values"]["log"] if before else []), id]}
        await saver.aput(*superstep(saver, before, id, made | values, thread=thread))
    found = await saver.aget_tuple(config(thread))
    assert found is not None
    return found  # type: ignore[no-any-return]


async def ids(saver: Any, thread: str = "t") -> list[str]:
    return [t.checkpoint["id"] async for t in saver.alist(config(thread))]


async def history(saver: Any, channel: str = "log", thread: str = "t") -> list[Any]:
    found = await saver.aget_delta_channel_history(config=config(thread), channels=[channel])
    return [value for _, _, value in found[channel]["writes"]]


async def pending(saver: Any, thread: str = "t") -> Any:
    return (await saver.aget_tuple(config(thread))).pending_writes


# -- two writers -----------------------------------------------------------------------------


async def test_of_two_runs_from_one_head_one_advances_it(new_saver: NewSaver) -> None:
    """The other is told what it expected and what is there; its checkpoint can be read."""
    one, two = new_saver(), new_saver()
    await grown(one, "1")
    first, second = [await s.aget_tuple(config()) for s in (one, two)]
    await one.aput(*superstep(one, first, "a", {"own": "of a" + LONG}))
    with pytest.raises(ConflictError) as told:
        await two.aput(*superstep(two, second, "b", {"own": "of b" + LONG}))
    assert (told.value.expected, told.value.actual, told.value.refused) == ("1", "a", "b")
    fresh = new_saver()
    head = await fresh.aget_tuple(config())
    assert head.checkpoint["channel_values"] == {"log": ["1"], "own": "of a" + LONG}
    refused = await fresh.aget_tuple(config(id="b"))
    assert refused.checkpoint["channel_values"] == {"log": ["1"], "own": "of b" + LONG}
    assert await ids(fresh) == ["b", "a", "1"]


async def test_a_run_that_lost_gets_no_further_version(new_saver: NewSaver) -> None:
    """LangGraph asks for one at each superstep, so the run stops there."""
    one, two = new_saver(), new_saver()
    await grown(one, "1")
    lost = await two.aget_tuple(config())
    await grown(one, "2")
    put = superstep(two, lost, "b", {"log": []})
    with pytest.raises(ConflictError):
        await two.aput(*put)
    with pytest.raises(ConflictError):
        two.get_next_version(put[3]["log"], None)


async def test_a_fork_by_id_is_no_conflict(new_saver: NewSaver) -> None:
    one, two = new_saver(), new_saver()
    await grown(one, "1", "2", big=LONG)
    old = await two.aget_tuple(config(id="1"))
    await grown(one, "3")
    await two.aput(*superstep(two, old, "f", {"log": ["f"]}))
    head = await one.aget_tuple(config())
    assert (head.checkpoint["id"], head.parent_config["configurable"]["checkpoint_id"]) == (
        "f",
        "1",
    )
    assert head.checkpoint["channel_values"] == {"log": ["f"], "big": LONG}


async def test_looking_at_an_old_checkpoint_moves_no_head(new_saver: NewSaver) -> None:
    saver = new_saver()
    await grown(saver, "1", "2")
    await saver.aget_tuple(config(id="1"))
    await ids(saver)
    assert (await saver.aget_tuple(config())).checkpoint["id"] == "2"
    await grown(saver, "3")
    assert await ids(saver) == ["3", "2", "1"]


# -- pending writes --------------------------------------------------------------------------


async def test_the_writes_of_two_runs_of_a_task_are_never_mixed(new_saver: NewSaver) -> None:
    """The first batch wins whole, whoever reads it, even if the later one is longer."""
    one, two = new_saver(), new_saver()
    first, second = await grown(one, "1"), await grown(two)
    await one.aput_writes(first.config, [("log", "one")], "task")
    await two.aput_writes(second.config, [("log", "two"), ("log", LONG)], "task")
    for saver in (one, two, new_saver()):
        assert await pending(saver) == [("task", "log", "one")]


async def test_history_replays_what_the_branch_consumed(new_saver: NewSaver) -> None:
    """A run that loaded two batches of one task went on with the first, however long the other."""
    one, two, three = new_saver(), new_saver(), new_saver()
    first, second = await grown(one, "1"), await grown(two)
    await one.aput_writes(first.config, [("delta", "one")], "task")
    await two.aput_writes(second.config, [("delta", "two"), ("delta", "two more")], "task")
    await grown(three, "2")
    for saver in (three, new_saver()):
        assert await history(saver, "delta") == ["one"]


async def test_history_replays_a_runs_own_batch(new_saver: NewSaver) -> None:
    """Another run's came first, but this is the one the winner was made from."""
    one, two = new_saver(), new_saver()
    first, second = await grown(one, "1"), await grown(two)
    await one.aput_writes(first.config, [("delta", "one")], "task")
    await two.aput_writes(second.config, [("delta", "two")], "task")
    await two.aput(*superstep(two, second, "2", {"log": []}))
    for saver in (one, two):
        assert await history(saver, "delta") == ["two"]


async def test_the_null_tasks_batch_may_grow(new_saver: NewSaver) -> None:
    saver = new_saver()
    head = await grown(saver, "1")
    for many in [1, 3, 2]:
        writes = [("delta", i) for i in range(many)]
        await saver.aput_writes(head.config, writes, NULL_TASK_ID)
    assert await pending(saver) == [(NULL_TASK_ID, "delta", i) for i in range(3)]
    await grown(saver, "2")
    assert await history(saver, "delta") == [0, 1, 2]


async def test_special_channels_keep_the_last(new_saver: NewSaver) -> None:
    saver = new_saver()
    head = await grown(saver, "1")
    for value in ["a", LONG, "c"]:
        await saver.aput_writes(head.config, [("__resume__", value)], "task")
    assert await pending(saver) == [("task", "__resume__", "c")]


@pytest.mark.parametrize("order", ["writes first", "put first"])
async def test_writes_before_and_after_their_put_are_the_same(
    new_saver: NewSaver, order: str
) -> None:
    saver = new_saver()
    before = await grown(saver, "1")
    put = superstep(saver, before, "2", {"log": ["2"]})
    write = (with_id(before.config, "2"), [("delta", LONG), ("log", 1)], "task", "path")
    if order == "put first":
        await saver.aput(*put)
        await saver.aput_writes(*write)
    else:
        await saver.aput_writes(*write)
        await saver.aput(*put)
    assert await pending(new_saver()) == [("task", "delta", LONG), ("task", "log", 1)]
    await grown(saver, "3")
    assert await history(new_saver(), "delta") == [LONG]


# -- removing and copying --------------------------------------------------------------------


async def test_a_pruned_thread_goes_on(new_saver: NewSaver) -> None:
    """The head, its pending writes and what they share with the past are kept."""
    saver = new_saver()
    head = await grown(saver, "1", "2", "3", big=LONG)
    await saver.aput_writes(head.config, [("delta", LONG)], "task")
    await new_saver().aprune(["t"])
    assert await ids(saver) == ["3"]
    assert await pending(new_saver()) == [("task", "delta", LONG)]
    await grown(saver, "4")
    fresh = await new_saver().aget_tuple(config())
    assert fresh.checkpoint["channel_values"] == {"log": ["1", "2", "3", "4"], "big": LONG}


async def test_a_copy_stands_alone(new_saver: NewSaver) -> None:
    """With its history, after its source is gone, and both go on by themselves."""
    saver = new_saver()
    head = await grown(saver, "1", "2", big=LONG)
    await saver.aput_writes(head.config, [("delta", LONG)], "task")
    await saver.acopy_thread("t", "u")
    with pytest.raises(UsageError):
        await saver.acopy_thread("t", "u")
    await saver.adelete_thread("t")
    assert await saver.aget_tuple(config()) is None
    assert await ids(saver, "u") == ["2", "1"]
    assert await pending(new_saver(), "u") == [("task", "delta", LONG)]
    await grown(saver, "3", thread="u")
    assert await history(new_saver(), "delta", "u") == [LONG]
    assert await ids(saver, "t") == []


async def test_the_checkpoints_of_a_run_go_and_the_head_goes_back(new_saver: NewSaver) -> None:
    saver = new_saver()
    before = None
    for id, run in [("1", "one"), ("2", "two"), ("3", "two")]:
        made = superstep(saver, before, id, {"log": [id, LONG]}, metadata={"run_id": run})
        await saver.aput(*made)
        before = await saver.aget_tuple(config())
    await new_saver().adelete_for_runs(["two"])
    head = await saver.aget_tuple(config())
    assert head.checkpoint["channel_values"] == {"log": ["1", LONG]}
    await grown(saver, "4")
    assert await ids(new_saver()) == ["4", "1"]


@pytest.mark.parametrize("hot_reads", ["never", "always"])
async def test_what_is_read_is_the_callers_own(new_saver: NewSaver, hot_reads: str) -> None:
    """Changing it changes nothing stored, nor what is read next."""
    saver = new_saver(hot_reads=hot_reads)
    given = {"deep": [{"n": 1}] * 40}
    await saver.aput(*superstep(saver, None, "1", given))
    given["deep"][0]["n"] = 2
    for reader in (saver, saver, new_saver(hot_reads=hot_reads)):
        found = await reader.aget_tuple(config())
        assert found.checkpoint["channel_values"] == {"deep": [{"n": 1}] * 40}
        found.checkpoint["channel_values"]["deep"][0]["n"] = 3
        found.checkpoint["channel_values"]["deep"].append("more")


async def test_writes_made_again_share_nothing_that_a_prune_sweeps(new_saver: NewSaver) -> None:
    """A run repeats what a dead one wrote, and puts a checkpoint from it after a prune."""
    run, dead = new_saver(), new_saver()
    await grown(run, "1")
    loaded, same = [await s.aget_tuple(config()) for s in (run, dead)]
    for saver, before in [(dead, same), (run, loaded)]:
        await saver.aput_writes(before.config, [("own", LONG)], "task")
    await new_saver().aprune(["t"])
    await run.aput(*superstep(run, loaded, "2", {"own": LONG}))
    head = await new_saver().aget_tuple(config())
    assert head.checkpoint["channel_values"] == {"log": ["1"], "own": LONG}
