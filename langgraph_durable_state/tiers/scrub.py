"""Checking and repairing both tiers: rows as they are found, changed only where they still are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from ..asfound import (
    Change,
    HotRaw,
    Ids,
    Quarantined,
    RawEntries,
    RawHead,
    RawRecord,
    RawThread,
    RawWrite,
    Repair,
    Sight,
)
from ..ports import Scripts, Sql
from ..words import ChunkRow, Place, Thread
from . import arrays, bind
from .redis import Names, named

BYTES = 4 * 1024 * 1024
"""Of chunks, and of entries of an outbox, that are read at once: what one statement of a group
commit may hold."""


class PostgresScrub:
    """Implements `Scrub`; the part of `PostgresTier` that is about rows as they are found."""

    _sql: Sql

    async def scan_keys(
        self, after: UUID | None, limit: int
    ) -> list[tuple[UUID, RawThread | None]]:
        rows = await self._sql.fetch("scan_keys", (after, limit))
        return [(key, None if n[0] is None else RawThread(*n)) for key, *n in rows]

    async def scan_chunks(self, key: UUID, after: int | None, limit: int) -> list[ChunkRow]:
        params = (key, arrays.bigint(after), limit, arrays.bigint(BYTES))
        return [ChunkRow(*row) for row in await self._sql.fetch("scan_chunks", params)]

    async def scan_records(self, key: UUID, after: Ids | None, limit: int) -> list[RawRecord]:
        params = (key, *(after or (None, None)), limit)
        return [RawRecord(*row) for row in await self._sql.fetch("scan_records", params)]

    async def scan_writes(
        self, key: UUID, after: tuple[str, str, str, int] | None, limit: int
    ) -> list[RawWrite]:
        params = (key, *(after or (None, None, None, None)), limit)
        return [RawWrite(*row) for row in await self._sql.fetch("scan_writes", params)]

    async def look(
        self,
        key: UUID,
        ids: Sequence[Ids],
        numbers: Sequence[int],
        namespaces: Sequence[str] | None,
    ) -> Sight:
        of = None if namespaces is None else arrays.texts(namespaces)
        params = (key, *bind.pairs(ids), of, arrays.bigints(numbers))
        return _sight(await self._sql.fetch("look", params))

    async def mend(self, key: UUID, repairs: Sequence[Repair]) -> list[bool]:
        def keeps(rows: Sequence[Sequence[Any]]) -> list[tuple[str, Sequence[object]]]:
            done = zip(repairs, rows[1:], strict=True)
            kept = [repair.kept for repair, answer in done if answer]
            return [("quarantine", _quarantined(one)) for one in kept if one is not None]

        steps = [_step(key, repair) for repair in repairs]
        rows = await self._sql.transaction([("lock_heads", (key,)), *steps], then=keeps)
        return [bool(answer) for answer in rows[1 : 1 + len(repairs)]]

    async def quarantine(self, rows: Sequence[Quarantined]) -> None:
        for row in rows:
            await self._sql.fetch("quarantine", _quarantined(row))

    async def quarantined(self, key: UUID) -> list[Quarantined]:
        rows = await self._sql.fetch("quarantined", (key,))
        return [Quarantined(*(*named, json.loads(found))) for *named, found in rows]


def _sight(rows: Sequence[tuple[Any, ...]]) -> Sight:
    thread: RawThread | None = None
    heads, records, writes, chunks = {}, {}, [], {}
    for kind, a, b, c, d, e, f, g, h, i, j, k in rows:
        if kind == 0:
            thread = RawThread(g, h, i, j)
        elif kind == 1:
            heads[a] = RawHead(a, e, b, g, h)
        elif kind == 2:
            records[a, b] = RawRecord(a, b, c, e, g, h, i, d, f, k, j)
        elif kind == 3:
            writes.append(RawWrite(a, b, c, f, d, e, g, h, i))
        else:
            chunks[e] = ChunkRow(e, g, h)
    writes.sort(key=lambda w: (w.ns, w.id, w.task, w.slot))
    return Sight(thread, heads, records, tuple(writes), chunks)


def _step(key: UUID, repair: Repair) -> tuple[str, tuple[object, ...]]:
    """The statement that makes one repair."""
    right, found = repair.right, repair.found
    if isinstance(right, RawThread):
        was = found if isinstance(found, RawThread) else None
        names = (right.tenant, right.id, right.user, right.session)
        return "mend_thread", (key, *names, was and was.tenant, was and was.id)
    if isinstance(right, RawHead):
        head = found if isinstance(found, RawHead) else None
        of = (right.ns, arrays.bigint(right.seq), right.id, right.digest)
        return "mend_head", (key, *of, head and head.id, head and head.digest, right.seal)
    if isinstance(right, RawRecord):
        return "mend_record", (key, *_record(right), *_found_record(found))
    if isinstance(right, RawWrite):
        return "mend_write", (key, *_write(right), *_found_write(found))
    chunk = found if isinstance(found, ChunkRow) else None
    was_chunk = (chunk and chunk.digest, chunk and chunk.blob)
    content = (arrays.bigint(right.no), right.digest, right.blob)
    return "mend_chunk", (key, *content, *was_chunk, *repair.needed_by)


def _record(raw: RawRecord) -> tuple[object, ...]:
    seq, size = arrays.bigint(raw.seq), arrays.int_(min(raw.size, 2**31 - 1))
    columns = (raw.digest, raw.record, raw.packed, raw.meta, size, raw.refused)
    return (raw.ns, raw.id, raw.parent, seq, *columns)


def _found_record(found: object) -> tuple[object, ...]:
    if not isinstance(found, RawRecord):
        return (None,) * 4
    return found.digest, found.record, found.packed, found.meta


def _write(raw: RawWrite) -> tuple[object, ...]:
    place = (raw.ns, raw.id, raw.task, arrays.int_(raw.slot))
    return (*place, raw.path, arrays.int_(raw.n), raw.digest, raw.blob, raw.packed)


def _found_write(found: object) -> tuple[object, ...]:
    if not isinstance(found, RawWrite):
        return (None,) * 3
    return found.digest, found.blob, found.packed


def _quarantined(row: Quarantined) -> tuple[object, ...]:
    found = json.dumps(dict(row.found), sort_keys=True)
    named = (row.tier, row.kind, row.ns, row.id, row.task)
    mark = hashlib.sha256("\0".join((*named, str(row.slot), str(row.no), found)).encode())
    places = (arrays.int_(row.slot), arrays.bigint(row.no))
    return (row.key, *named, *places, mark.digest()[:16], row.reason, found)


class RedisScrub(Names):
    """Implements `HotScrub`; the part of `RedisOutbox` that is about fields as they are found."""

    _scripts: Scripts

    async def inspect(self, place: Place) -> HotRaw:
        answer = await self._scripts.call("inspect", self._of_place(place), [])
        phase, digest, copy, writes = answer
        is_open = phase == b"open"
        known = digest if is_open and digest and len(digest) == 16 else b""
        return HotRaw(bool(phase), is_open, known, named(copy), named(writes))

    async def mend_fields(
        self, place: Place, of: Literal["copy", "writes"], changes: Sequence[Change]
    ) -> bool:
        _, copy, writes = self._of_place(place)
        args = [v for c in changes for v in (c.field, _marked(c.found), _marked(c.right))]
        return bool(await self._scripts.call("mend", [copy if of == "copy" else writes], args))

    async def entries(self, thread: Thread, skip: int, limit: int) -> RawEntries:
        args = [skip, limit, BYTES]
        first, left, *found = await self._scripts.call("entries", self._of_thread(thread)[:2], args)
        return RawEntries(int(first) + skip, tuple(found), int(left))

    async def mend_entry(self, thread: Thread, number: int, found: bytes, right: bytes) -> bool:
        args: list[bytes | str | int] = [number, found, right]
        return bool(await self._scripts.call("mend_entry", self._of_thread(thread)[:2], args))


def _marked(value: bytes | None) -> bytes:
    return b"" if value is None else b"+" + value
