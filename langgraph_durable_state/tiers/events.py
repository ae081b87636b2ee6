"""Events as rows."""

from __future__ import annotations

from ..decisions import recording
from ..ports import Sql
from ..words import EventRow, Thread, Tip
from . import arrays


class PostgresEvents:
    """Implements `EventTable`; the part of `PostgresTier` that is about events."""

    _sql: Sql

    async def last_event(self, thread: Thread) -> Tip:
        n, digest, now = (await self._sql.fetch("last_event", (thread.key,)))[0]
        return Tip(n or 0, digest or b"", now)

    async def record_event(self, thread: Thread, row: EventRow) -> bool:
        numbers = arrays.bigint(row.n), arrays.bigint(row.at)
        params = (thread.key, *numbers, row.kind, row.detail, row.digest)
        return bool(await self._sql.fetch("record_event", params))

    async def events(self, thread: Thread, after: int, limit: int) -> list[EventRow]:
        params = (thread.key, arrays.bigint(after), limit)
        rows = await self._sql.fetch("events", params)
        return [
            EventRow(n, at, kind, recording.respelled(detail), digest)
            for n, at, kind, detail, digest in rows
        ]
