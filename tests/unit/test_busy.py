"""Upkeep of a thread that moves on whenever it is about to be changed."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_durable_state import ConflictError
from langgraph_durable_state.drivers.memory import MemoryDurable
from langgraph_durable_state.testing import memory_saver
from tests.contract.superstep import config, superstep


class MovesOn(MemoryDurable):
    """Its heads are never what they were a moment ago."""

    async def keep(self, *args: Any) -> bool:
        return False

    async def remove(self, *args: Any) -> bool:
        return False


@pytest.mark.parametrize("upkeep", ["prune", "delete_for_runs"])
def test_upkeep_that_gives_up_says_what_was_not_done(upkeep: str) -> None:
    """Not that a run started from nothing; and the thread is as it was."""
    saver = memory_saver(durable=MovesOn, hot=False)
    saver.put(*superstep(saver, None, "1", {"c": 1}, metadata={"run_id": "r"}))
    what = {"prune": "prune it", "delete_for_runs": "remove what was asked for"}[upkeep]
    said = f"^Thread 't' moved on at each of 5 tries to {what}. Nothing of it was changed"
    with pytest.raises(ConflictError, match=said):
        getattr(saver, upkeep)(["t" if upkeep == "prune" else "r"])
    assert saver.get_tuple(config()) is not None
