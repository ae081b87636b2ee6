"""Events in memory; the time is the world's."""

from __future__ import annotations

from ..words import EventRow, Thread, Tip
from .memory_world import Change, World


class MemoryEvents:
    """Implements `EventTable`; the part of `MemoryDurable` that is about events."""

    _world: World

    async def last_event(self, thread: Thread) -> Tip:
        await self._world.step("last_event")
        rows = self._world.rows(thread).events
        now = round(self._world.now * 1_000_000)
        return Tip(rows[-1].n, rows[-1].digest, now) if rows else Tip(0, b"", now)

    async def record_event(self, thread: Thread, row: EventRow) -> bool:
        async with Change(self._world, "record_event"):
            rows = self._world.rows(thread).events
            if any(one.n == row.n for one in rows):
                return False
            rows.append(row)
            rows.sort(key=lambda one: one.n)
            return True

    async def events(self, thread: Thread, after: int, limit: int) -> list[EventRow]:
        await self._world.step("events")
        rows = self._world.rows(thread).events
        return [row for row in rows if row.n > after][:limit]
