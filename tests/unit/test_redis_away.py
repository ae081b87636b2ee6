"""A put while Redis, which may be ahead, cannot be asked."""

from __future__ import annotations

import pytest

from langgraph_durable_state import Event, UnavailableError
from langgraph_durable_state.drivers.memory_hot import HOT
from langgraph_durable_state.drivers.memory_world import World, go_on
from langgraph_durable_state.testing import memory_saver
from tests.contract.superstep import config, superstep


async def away(point: str) -> None:
    if point.startswith(HOT):
        raise UnavailableError("redis", "it is away")


def test_a_run_gives_nothing_up_that_it_is_made_from() -> None:
    """It could not go on from the durable head; the state waits, and so does the run."""
    told: list[Event] = []
    world = World()
    saver = memory_saver(
        world, write_policy="write_behind", on_hot_lost="accept", observer=told.append
    )
    saver.put(*superstep(saver, None, "1", {"x": 1}))
    put = superstep(saver, saver.get_tuple(config()), "2", {"x": 2})
    world.step = away
    with pytest.raises(UnavailableError):
        saver.put(*put)
    world.step = go_on
    saver.put(*put)
    saver.flush()
    assert [found.checkpoint["id"] for found in saver.list(config())] == ["2", "1"]
    assert told == []
    saver.close()


def test_a_run_from_the_durable_head_goes_on_and_says_which_that_is() -> None:
    """What came after it is kept as a branch later."""
    told: list[Event] = []
    world = World()
    options = {"write_policy": "write_behind", "on_hot_lost": "accept", "observer": told.append}
    saver = memory_saver(world, **options)
    saver.put(*superstep(saver, None, "1", {"x": 1}))
    saver.flush()
    put = superstep(saver, saver.get_tuple(config()), "2", {"x": 2})
    other = memory_saver(world, **options)
    other.put(*superstep(other, other.get_tuple(config()), "lost", {"x": 3}))
    world.step = away
    saver.put(*put)
    assert [(event.kind, event.checkpoint) for event in told] == [("state_lost", "1")]
    world.step = go_on
    other.flush()
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["id"] == "2"
    assert [(event.kind, event.checkpoint) for event in told[1:]] == [("branch_kept", "lost")]
    for each in (saver, other):
        each.close()


def test_a_run_does_not_go_on_without_writes_that_redis_holds_alone() -> None:
    """Its next checkpoint has consumed them: nobody could replay its delta channels without."""
    world = World()
    saver = memory_saver(world, write_policy="write_behind", on_hot_lost="accept")
    saver.put(*superstep(saver, None, "1", {"x": 1}))
    saver.flush()
    found = saver.get_tuple(config())
    assert found is not None
    put = superstep(saver, found, "2", {"x": 2})
    saver.put_writes(found.config, [("delta", "a")], "task")
    world.step = away
    with pytest.raises(UnavailableError):
        saver.put(*put)
    world.step = go_on
    saver.put(*put)
    told = saver.get_delta_channel_history(config=config(), channels=["delta"])
    assert told["delta"]["writes"] == [("task", "delta", "a")]
    saver.close()
