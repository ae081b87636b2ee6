"""Leases as rows: Postgres's clock decides what has run out, never a client's."""

from __future__ import annotations

from ..ports import Sql
from ..words import Granted, Occupied, Thread
from . import arrays


class PostgresLeases:
    """Implements `LeaseTable`; the part of `PostgresTier` that is about leases."""

    _sql: Sql

    async def take_lease(self, thread: Thread, holder: str, ttl: float) -> Granted | Occupied:
        params = (thread.key, arrays.text(holder), float(ttl))
        for fence, other, left in await self._sql.fetch("take_lease", params):
            return Occupied(other, left) if fence is None else Granted(fence)
        return Occupied("", 0.0)  # somebody is taking it just now

    async def renew_lease(self, thread: Thread, fence: int, holder: str, ttl: float) -> bool:
        params = (thread.key, arrays.bigint(fence), arrays.text(holder), float(ttl))
        return bool(await self._sql.fetch("renew_lease", params))

    async def release_lease(self, thread: Thread, holder: str) -> None:
        await self._sql.fetch("release_lease", (thread.key, arrays.text(holder)))
