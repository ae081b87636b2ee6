"""What was acknowledged while Postgres was down is known to one process only: it looks whether it
has arrived, and says so if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_durable_state import DurableSaver, Event, UnavailableError
from langgraph_durable_state.drivers.memory_hot import HOT
from langgraph_durable_state.drivers.memory_world import World, go_on
from langgraph_durable_state.testing import memory_saver
from tests.contract.superstep import config, superstep, with_id


async def away(point: str) -> None:
    if not point.startswith(HOT):
        raise UnavailableError("postgres", "it is away")


def flush(saver: DurableSaver) -> None:
    saver.flush()


def close(saver: DurableSaver) -> None:
    saver.close()


def in_the_background(saver: DurableSaver) -> None:
    saver._faces.background.step()


@pytest.mark.parametrize("how", [in_the_background, flush, close])
def test_a_loss_is_reported_however_it_is_found(how: Callable[[DurableSaver], Any]) -> None:
    """Also after a look that could not be made, since Postgres was away still."""
    told: list[Event] = []
    world = World()
    saver = memory_saver(world, write_policy="write_behind", observer=told.append)
    saver.setup()
    world.step = away
    saver.put(*superstep(saver, None, "1", {"x": 1}))
    world.lose_hot()
    saver._faces.background.step()
    world.step = go_on
    told.clear()
    how(saver)
    assert [event.kind for event in told] == ["state_lost"]
    saver.close()


def test_what_has_arrived_is_not_reported() -> None:
    """Once it is there, the witness has nothing more to say."""
    told: list[Event] = []
    world = World()
    saver = memory_saver(world, write_policy="write_behind", observer=told.append)
    saver.setup()
    world.step = away
    saver.put(*superstep(saver, None, "1", {"x": 1}))
    saver._faces.background.step()
    world.step = go_on
    saver._faces.background.step()
    world.lose_hot()
    saver._faces.background.step()
    assert [event.kind for event in told] == ["queued"]
    assert saver.accept_loss("t") == [""]  # the spell had not ended
    saver.close()


def test_writes_that_begin_a_burst_are_told_as_well() -> None:
    """Whatever comes first while Postgres cannot be told that Redis is ahead."""
    told: list[Event] = []
    world = World()
    saver = memory_saver(world, write_policy="write_behind", observer=told.append)
    saver.setup()
    world.step = away
    saver.put_writes(with_id(config(), "1"), [("x", 1)], "task")
    assert [(event.kind, event.checkpoint) for event in told] == [("queued", "1")]
    world.step = go_on
    saver.close()


def test_a_put_beside_an_adoption_is_not_refused() -> None:
    """Redis was restarted; another goes on with the spell just after this put was turned away."""
    world = World()
    saver, other = (
        memory_saver(world, write_policy="write_behind", on_hot_lost="accept") for _ in range(2)
    )
    saver.put(*superstep(saver, None, "1", {"x": 1}))
    put = superstep(saver, saver.get_tuple(config()), "2", {"x": 2})
    world.server += 1
    looks = 0

    async def step(point: str) -> None:
        nonlocal looks
        if point == HOT + "peek":
            looks += 1
        if looks == 1 and point == HOT + "peek":
            world.step = go_on
            other.get_tuple(config())
            world.step = step
        await away(point)

    world.step = step
    saver.put(*put)
    world.step = go_on
    saver.flush()
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["id"] == "2"
    for each in (saver, other):
        each.close()
