"""Checking and repairing in memory: rows as they are found, each change one atomic step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal
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
from ..decisions import keys, outgoing
from ..decisions.evidence import raw_write, record_row, write_row
from ..decisions.hotcopy import copy_fields, copy_of
from ..words import ChunkRow, Claim, Entry, Head, Phase, Place, Put, Thread
from .memory_hot import HOT
from .memory_world import Change as Step
from .memory_world import Checkpoint, HotWrite, Rows, World, spot

_HOW = {
    Claim.HEAD: outgoing.ADVANCED,
    Claim.EMPTY: outgoing.OPENED,
    Claim.ANY: outgoing.UNKNOWN,
    Claim.ASIDE: outgoing.ASIDE,
}


class MemoryScrub:
    """Implements `Scrub`; the part of `MemoryDurable` that is about rows as they are found."""

    _world: World

    async def scan_keys(
        self, after: UUID | None, limit: int
    ) -> list[tuple[UUID, RawThread | None]]:
        await self._world.step("scan_keys")
        found = [
            (key, _entry(rows.thread))
            for key, rows in sorted(self._world.threads.items())
            if (after is None or key > after) and (rows.thread or rows.heads or rows.ahead)
        ]
        return found[:limit]

    async def scan_chunks(self, key: UUID, after: int | None, limit: int) -> list[ChunkRow]:
        await self._world.step("scan_chunks")
        chunks = sorted(self._rows(key).chunks.items())
        return [c for no, c in chunks if after is None or no > after][:limit]

    async def scan_records(self, key: UUID, after: Ids | None, limit: int) -> list[RawRecord]:
        await self._world.step("scan_records")
        stored = sorted(self._rows(key).checkpoints.items())
        return [_record(c) for ids, c in stored if after is None or ids > after][:limit]

    async def scan_writes(
        self, key: UUID, after: tuple[str, str, str, int] | None, limit: int
    ) -> list[RawWrite]:
        await self._world.step("scan_writes")
        stored = sorted(self._rows(key).writes.items())
        return [raw_write(at[0], w) for at, w in stored if after is None or at > after][:limit]

    async def look(
        self,
        key: UUID,
        ids: Sequence[Ids],
        numbers: Sequence[int],
        namespaces: Sequence[str] | None,
    ) -> Sight:
        await self._world.step("look")
        rows = self._rows(key)
        return Sight(
            _shown(rows),
            {ns: h for ns, h in _heads(rows).items() if namespaces is None or ns in namespaces},
            {at: _record(rows.checkpoints[at]) for at in ids if at in rows.checkpoints},
            tuple(raw_write(at[0], w) for at, w in sorted(rows.writes.items()) if at[:2] in ids),
            {no: rows.chunks[no] for no in numbers if no in rows.chunks},
        )

    def _rows(self, key: UUID) -> Rows:
        return self._world.threads.get(key, Rows())

    async def mend(self, key: UUID, repairs: Sequence[Repair]) -> list[bool]:
        async with Step(self._world, "mend"):
            done = [_mended(self._rows(key), repair) for repair in repairs]
            for repair, did in zip(repairs, done, strict=True):
                if did and repair.kept is not None:
                    self._put_away(repair.kept)
            return done

    async def quarantine(self, rows: Sequence[Quarantined]) -> None:
        for row in rows:
            async with Step(self._world, "quarantine"):
                self._put_away(row)

    def _put_away(self, row: Quarantined) -> None:
        kept = self._world.quarantine.setdefault(row.key, [])
        if all(replace(one, reason=row.reason) != row for one in kept):
            kept.append(row)

    async def quarantined(self, key: UUID) -> list[Quarantined]:
        await self._world.step("quarantined")
        return list(self._world.quarantine.get(key, ()))


def _entry(thread: Thread | None) -> RawThread | None:
    if thread is None:
        return None
    user, session = (None if o is None else keys.encoded(o) for o in (thread.user, thread.session))
    return RawThread(keys.encoded(thread.tenant), keys.encoded(thread.id), user, session)


def _shown(rows: Rows) -> RawThread | None:
    """A thread's entry; that of one that is being copied counts as missing."""
    return None if rows.copying else _entry(rows.thread)


def _heads(rows: Rows) -> dict[str, RawHead]:
    marked = {ns: RawHead(ns, rows.last(ns), "", b"") for ns in rows.ahead}
    found = {ns: RawHead(ns, h.seq, h.id, h.digest, h.seal) for ns, h in rows.heads.items()}
    return marked | found


def _record(stored: Checkpoint) -> RawRecord:
    row = stored.row
    packed = keys.packed(row.numbers)
    columns = (row.digest, row.record, packed, stored.meta, stored.size, row.refused, stored.edge)
    return RawRecord(row.ns, row.id, row.parent, row.seq, *columns)


def _mended(rows: Rows, repair: Repair) -> bool:
    """Puts one row right, if it is as it was found."""
    right, found = repair.right, repair.found
    if isinstance(right, RawThread):
        return _mended_thread(rows, right, found)
    if isinstance(right, RawHead):
        return _mended_head(rows, right, found)
    if isinstance(right, RawRecord):
        return _mended_record(rows, right, found)
    needed = repair.needed_by in rows.checkpoints
    if isinstance(right, RawWrite):
        at = (right.ns, right.id, right.task, right.slot)
        have = rows.writes.get(at)
        if (have and raw_write(right.ns, have)) != found or (found is None and not needed):
            return False
        rows.writes[at] = write_row(right)
        return True
    needed = needed or any(at[:2] == repair.needed_by for at in rows.writes)
    if rows.chunks.get(right.no) != found or (found is None and not needed):
        return False
    rows.chunks[right.no] = right
    return True


def _mended_thread(rows: Rows, right: RawThread, found: object) -> bool:
    if _shown(rows) != found or not (rows.heads or rows.ahead):
        return False
    rows.copying = False
    owners = (None if o is None else keys.decoded(o) for o in (right.user, right.session))
    rows.thread = keys.named(keys.decoded(right.tenant), keys.decoded(right.id), *owners)
    return True


def _mended_head(rows: Rows, right: RawHead, found: object) -> bool:
    stored = rows.checkpoints.get((right.ns, right.id))
    if stored is None or stored.row.digest != right.digest:
        return False
    if _heads(rows).get(right.ns) != found:
        return False
    rows.heads[right.ns] = Head(right.id, right.seq, right.digest, right.seal)
    return True


def _mended_record(rows: Rows, right: RawRecord, found: object) -> bool:
    at = (right.ns, right.id)
    stored = rows.checkpoints.get(at)
    if (stored and _record(stored)) != found:
        return False
    head = rows.heads.get(right.ns)
    named = {(c.row.ns, c.row.parent) for c in rows.checkpoints.values()}
    if found is None and at not in named and (head is None or head.id != right.id):
        return False
    edge = stored.edge if stored else b""
    rows.checkpoints[at] = Checkpoint(record_row(right), right.size, right.meta, edge)
    return True


class MemoryHotScrub:
    """Implements `HotScrub`; the part of `MemoryOutbox` that is about fields as they are found."""

    _world: World

    async def inspect(self, place: Place) -> HotRaw:
        await self._world.step(HOT + "inspect")
        spell = self._world.spells.get(spot(place))
        is_open = spell is not None and spell.phase is Phase.OPEN
        digest = spell.head.digest if spell is not None and is_open else b""
        known = digest if len(digest) == 16 else b""
        return HotRaw(spell is not None, is_open, known, self._copy(place), self._written(place))

    def _copy(self, place: Place) -> dict[bytes, bytes]:
        copy = self._world.copies.get(spot(place))
        return {} if copy is None else copy_fields(copy[0], copy[1].values())

    def _written(self, place: Place) -> dict[bytes, bytes]:
        held = self._world.hot_writes.get(spot(place), {})
        return {
            outgoing.write_field(*at): outgoing.pack_write(row, chunks)
            for at, (row, chunks) in sorted(held.items())
        }

    async def mend_fields(
        self, place: Place, of: Literal["copy", "writes"], changes: Sequence[Change]
    ) -> bool:
        async with Step(self._world, HOT + "mend"):
            fields = self._copy(place) if of == "copy" else self._written(place)
            if not fields or any(fields.get(c.field) != c.found for c in changes):
                return False
            mended = fields | {c.field: c.right for c in changes}
            left = {name: value for name, value in mended.items() if value is not None}
            if of == "copy":
                self._put_copy(place, left)
            else:
                self._world.hot_writes[spot(place)] = _held(left)
            return True

    def _put_copy(self, place: Place, fields: dict[bytes, bytes]) -> None:
        self._world.copies.pop(spot(place), None)
        if fields:
            self._world.copies[spot(place)] = copy_of(place.ns, fields)

    async def entries(self, thread: Thread, skip: int, limit: int) -> RawEntries:
        await self._world.step(HOT + "entries")
        held = self._world.outboxes.get(thread.key, [])
        found = held[skip : skip + limit]
        first = held[0][0] + skip if held else skip
        left = max(0, len(held) - skip - len(found))
        return RawEntries(first, tuple(_stored(entry) for _, entry in found), left)

    async def mend_entry(self, thread: Thread, number: int, found: bytes, right: bytes) -> bool:
        async with Step(self._world, HOT + "mend entry"):
            held = self._world.outboxes.get(thread.key, [])
            at = number - held[0][0] if held else -1
            if not 0 <= at < len(held) or _stored(held[at][1]) != found:
                return False
            held[at] = (held[at][0], outgoing.read_entry(right))
            return True


def _held(fields: dict[bytes, bytes]) -> dict[tuple[str, str, int], HotWrite]:
    found = (outgoing.read_write(name, value) for name, value in fields.items())
    return {(row.id, row.task, row.slot): (row, chunks) for row, chunks in found}


def _stored(entry: Entry) -> bytes:
    """The bytes of an entry; there is no clock here."""
    item = entry.item
    how, before = outgoing.WRITES, b""
    if isinstance(item, Put):
        how = outgoing.REFUSED if entry.refused else _HOW[item.claim]
        before = item.expected if how == outgoing.ADVANCED else b""
    number = b"%016d" % entry.number + b"%016d" % 0
    return how + entry.token + before.ljust(16, b"\x00") + number + outgoing.pack_item(item)
