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
from tests.contract.superstep import superstep


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
    saver.flush()
    assert [event.kind for event in told] == ["queued"]
    saver.close()
