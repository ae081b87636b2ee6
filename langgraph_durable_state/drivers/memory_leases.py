"""Leases in memory; the clock is the world's, which a test or an explorer moves."""

from __future__ import annotations

from ..words import Granted, Occupied, Put, PutWrites, Thread
from .memory_world import Change, LeaseRow, World


class MemoryLeases:
    """Implements `LeaseTable`; the part of `MemoryDurable` that is about leases."""

    _world: World

    def fenced(self, item: Put | PutWrites) -> bool:
        """Whether the lease that an item was made under was taken over."""
        return self._taken_over(item.place.thread, item.fence)

    def _taken_over(self, thread: Thread, fence: int | None) -> bool:
        row = self._world.leases.get(thread.key)
        return fence is not None and (row is None or row.fence != fence)

    async def take_lease(self, thread: Thread, holder: str, ttl: float) -> Granted | Occupied:
        async with Change(self._world, "take_lease"):
            row, now = self._world.leases.get(thread.key), self._world.now
            if row is not None and row.holder != holder and row.until > now:
                return Occupied(row.holder, row.until - now)
            fence = max(row.fence + 1 if row else 1, round(now * 1_000_000))
            self._world.leases[thread.key] = LeaseRow(fence, holder, now + ttl)
            return Granted(fence)

    async def renew_lease(self, thread: Thread, fence: int, holder: str, ttl: float) -> bool:
        async with Change(self._world, "renew_lease"):
            row = self._world.leases.get(thread.key)
            if row is None or (row.fence, row.holder) != (fence, holder):
                return False
            row.until = self._world.now + ttl
            return True

    async def release_lease(self, thread: Thread, holder: str) -> None:
        async with Change(self._world, "release_lease"):
            row = self._world.leases.get(thread.key)
            if row is not None and row.holder == holder:
                row.holder, row.until = "", 0.0
