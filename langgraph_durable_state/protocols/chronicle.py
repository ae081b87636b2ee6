"""Writes down what happened to a thread: one row of its chain of events each."""

from __future__ import annotations

import logging

from ..decisions import recording
from ..errors import DurableStateError, UnavailableError
from ..ports import EventTable
from ..words import Thread

logger = logging.getLogger("langgraph_durable_state")

TRIES = 8
"""Others that add an event to the same thread at the same time."""


class Chronicle:
    """Over one driver's table of events."""

    def __init__(self, table: EventTable) -> None:
        self._table = table

    async def record(self, thread: Thread, kind: str, detail: recording.Detail) -> None:
        """Adds an event.

        Raises:
            UnavailableError: if that cannot be done.
        """
        for _ in range(TRIES):
            tip = await self._table.last_event(thread)
            row = recording.following(thread.key, tip, kind, detail)
            if await self._table.record_event(thread, row):
                return
        raise UnavailableError("postgres", f"many events of thread {thread.id!r} at once")

    async def note(self, thread: Thread, kind: str, detail: recording.Detail) -> None:
        """Adds an event if that can be done: what is noted so has been told otherwise."""
        try:
            await self.record(thread, kind, detail)
        except DurableStateError as error:
            logger.warning("an event %r of thread %r was not recorded: %s", kind, thread.id, error)
