"""The durable tier in memory, complete and deterministic, for tests and explorers.

What is one statement or one transaction in Postgres is one atomic step here. Before each step,
and after each that changes something, stands a switch point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

from ..decisions import keys, projection
from ..decisions.codec import differing_slot
from ..tiers.outcomes import Seen, Standing, outcome
from ..words import (
    Advance,
    Ahead,
    ChunkRow,
    Claim,
    Digest,
    Edge,
    Fenced,
    Found,
    Head,
    Listing,
    Outcome,
    Page,
    Place,
    Progress,
    Put,
    PutWrites,
    RecordRow,
    Rewritten,
    Stored,
    Thread,
    Waiting,
    WriteRow,
)
from .memory_events import MemoryEvents
from .memory_keys import MemoryKeys
from .memory_leases import MemoryLeases
from .memory_scrub import MemoryScrub
from .memory_world import Change, Checkpoint, Ids, Rows, World, matches

_NO_HEAD = Head("", 0, b"")


class MemoryDurable(MemoryLeases, MemoryEvents, MemoryKeys, MemoryScrub):
    """Implements `Durable`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def setup(self) -> None:
        async with Change(self._world, "setup"):
            pass

    async def ping(self) -> None:
        await self._world.step("ping")

    # -- writing -----------------------------------------------------------------------------

    async def commit(self, batch: Sequence[Put | PutWrites]) -> list[Outcome]:
        puts = [item for item in batch if isinstance(item, Put)]
        writes = [item for item in batch if isinstance(item, PutWrites)]
        async with Change(self._world, "commit"):
            barred = self._barred(writes)
            told, later = self._commit(puts, [item for item in writes if id(item) not in barred])
        return await self._outcomes(batch, puts, writes, told, later, barred)

    def _barred(self, writes: Sequence[PutWrites]) -> dict[int, Outcome]:
        """Those that are not stored: their lease was taken over, or the hot tier may be ahead."""
        barred: dict[int, Outcome] = {}
        for item in writes:
            ahead = self._world.rows(item.place.thread).ahead.get(item.place.ns)
            if self.fenced(item):
                barred[id(item)] = Fenced()
            elif ahead != item.spell:
                barred[id(item)] = Ahead(ahead or b"")
        return barred

    async def _outcomes(
        self,
        batch: Sequence[Put | PutWrites],
        puts: Sequence[Put],
        writes: Sequence[PutWrites],
        told: Sequence[Told],
        later: Sequence[Later],
        barred: Mapping[int, Outcome] = MappingProxyType({}),
    ) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {
            id(p): await outcome(self, p, Seen(*t)) for p, t in zip(puts, told, strict=True)
        }
        outcomes |= {id(item): barred.get(id(item), Stored()) for item in writes}
        for item, row, sent in later:
            outcomes[id(item)] = await self._differ(item, row, sent)
        return [outcomes[id(item)] for item in batch]

    def _commit(
        self, puts: Sequence[Put], writes: Sequence[PutWrites]
    ) -> tuple[list[Told], list[Later]]:
        """What the one statement tells: of each put its place in the order if it won, the head
        it met, whether it was able to win, whose spell it met, and whether its lease was taken
        over; and the batches that were not a task's first."""
        held = [self._world.rows(p.place.thread).heads.get(p.place.ns) for p in puts]
        able = [self.able(p) and not self._missed(p, writes) for p in puts]
        wins = [a and self.claims(p, h) for p, h, a in zip(puts, held, able, strict=True)]
        won = [p for p, wins_it in zip(puts, wins, strict=True) if wins_it]
        sent: list[Put | PutWrites] = [*won, *writes]
        for item in sent:
            self._world.rows(item.place.thread).require_free(item.chunks)
        for put in won:
            self._world.rows(put.place.thread).add_chunks(put.chunks)
        seqs = [self._win(p, h) if w else None for p, h, w in zip(puts, held, wins, strict=True)]
        rows = [
            (item, row, [c for c in item.chunks if c.no in row.numbers])
            for item in writes
            for row in item.rows
        ]
        later = [one for one in rows if not self._write(*one) and one[1].slot == 0]
        ahead = [self._world.rows(p.place.thread).ahead.get(p.place.ns) for p in puts]
        return list(zip(seqs, held, able, ahead, map(self.fenced, puts), strict=True)), later

    def able(self, put: Put) -> bool:
        """Whether the checkpoint that the put needs is there, and itself is not."""
        stored = self._world.rows(put.place.thread).checkpoints
        head = self._world.rows(put.place.thread).heads.get(put.place.ns)
        if put.needs is not None and not _is_base(stored.get((put.place.ns, put.needs)), put):
            return False
        if not _follows(stored.get((put.place.ns, put.parent or "")), put):
            return False
        if put.needs is None and head is not None and head.digest == put.expected:
            referred = stored.get((put.place.ns, head.id))
            if referred and not _is_numbered(referred, put):
                return False
        ahead = self._world.rows(put.place.thread).ahead.get(put.place.ns)
        if ahead != put.spell or self.fenced(put):
            return False
        same = _digest(stored.get((put.place.ns, put.id)))
        return not (put.claim is Claim.ANY and same == put.digest)

    def _missed(self, put: Put, given: Sequence[PutWrites] = ()) -> set[Digest]:
        """The writes that a put was made from and that are neither there nor given with it."""
        rows = self._world.rows(put.place.thread)
        against = [w for w in given if (w.place, w.id) == (put.place, put.parent)]
        there = [
            *rows.writes_of(put.place.ns, put.parent or ""),
            *(r for w in against for r in w.rows),
        ]
        return {*put.consumed} - {row.digest for row in there}

    def claims(self, put: Put, head: Head | None) -> bool:
        """The compare of compare-and-set."""
        if head is None:
            return put.claim is not Claim.HEAD
        if put.spell is not None and head.id == put.id and head.digest != put.digest:
            return True  # what a lost answer left behind
        if put.claim is Claim.HEAD:
            return head.digest == put.expected
        return put.claim is Claim.ANY

    def _win(self, put: Put, held: Head | None) -> int:
        rows = self._world.rows(put.place.thread)
        seq = 1 + (held.seq if held else rows.last(put.place.ns))
        rows.heads[put.place.ns] = Head(put.id, seq, put.digest, put.seal)
        rows.checkpoints[put.place.ns, put.id] = _checkpoint(rows, put, seq, refused=False)
        if held is None and rows.thread is None:
            rows.thread = put.place.thread
        return seq

    def _write(self, item: PutWrites, row: WriteRow, chunks: Sequence[ChunkRow]) -> bool:
        """Whether the row was stored, with its chunks: a slot's first, or a special channel's
        latest."""
        rows = self._world.rows(item.place.thread)
        key = (item.place.ns, row.id, row.task, row.slot)
        have = rows.writes.get(key)
        if have is not None and (row.slot >= 0 or have.digest == row.digest):
            return False
        rows.writes[key] = row
        rows.add_chunks(chunks)
        return True

    async def _differ(self, item: PutWrites, row: WriteRow, chunks: Sequence[ChunkRow]) -> Outcome:
        """Stores a task's later batch that differs from its first, unless it is there."""
        async with Change(self._world, "differ"):
            return self._write_differing(item, row, chunks)

    def _write_differing(
        self, item: PutWrites, row: WriteRow, chunks: Sequence[ChunkRow]
    ) -> Outcome:
        if self.fenced(item):
            return Fenced()
        rows = self._world.rows(item.place.thread)
        rows.require_free(chunks)
        of_task = (w for w in rows.writes_of(item.place.ns, row.id) if w.task == row.task)
        if any(w.slot >= 0 and w.digest == row.digest for w in of_task):
            return Stored(repeated=True)
        other = replace(row, slot=differing_slot(row.digest))
        return Stored(repeated=not self._write(item, other, chunks))

    async def standing(self, put: Put, id: str) -> Standing:
        await self._world.step("standing")
        rows = self._world.rows(put.place.thread)
        head = rows.heads.get(put.place.ns)
        found = rows.checkpoints.get((put.place.ns, id))
        held = head.id if head else None
        if found is None:
            return Standing(None, None, None, held)
        return Standing(found.row.seq, found.row.digest, found.row.refused, held)

    async def keep_aside(self, put: Put, refused: bool) -> int | None:
        async with Change(self._world, "keep"):
            return self._keep(put, refused)

    def _keep(self, put: Put, refused: bool) -> int | None:
        rows = self._world.rows(put.place.thread)
        ns, head = put.place.ns, rows.heads.get(put.place.ns)
        refers = rows.checkpoints.get((ns, put.refers or ""))
        sound = _is_base(refers, put) and not self._missed(put)
        if head is None or (put.refers is not None and not sound):
            return None
        if not _follows(rows.checkpoints.get((ns, put.parent or "")), put):
            return None
        if self.fenced(put) or (ns, put.id) in rows.checkpoints:
            return None
        rows.require_free(put.chunks)
        rows.add_chunks(put.chunks)
        rows.heads[ns] = replace(head, seq=head.seq + 1)
        rows.checkpoints[ns, put.id] = _checkpoint(rows, put, head.seq + 1, refused)
        return head.seq + 1

    # -- reading -----------------------------------------------------------------------------

    async def read(
        self, place: Place, id: str | None, held: Digest, most: int | None
    ) -> Found | None:
        await self._world.step("read")
        rows = self._world.rows(place.thread)
        head = rows.heads.get(place.ns)
        stored = rows.checkpoints.get((place.ns, head.id if head and id is None else id or ""))
        if id is not None:
            head = Head(id, stored.row.seq, stored.row.digest) if stored else None
        ahead = rows.ahead.get(place.ns)
        if head is None:
            if id is not None:
                return None
            if ahead is not None:
                return Found(_NO_HEAD, None, (), {}, (), ahead)
            return _beheaded(rows, place.ns)
        row = stored.row if stored else _bare(place, head)
        withheld = stored is not None and _withheld(stored, held, most)
        writes = rows.writes_of(place.ns, head.id)
        numbers = _numbers(writes if withheld else (*writes, row)) & rows.chunks.keys()
        chunks = {no: rows.chunks[no] for no in numbers}
        return Found(head, None if withheld else row, row.numbers, chunks, writes, ahead)

    async def page(self, listing: Listing) -> Page:
        await self._world.step("page")
        if listing.thread is not None:
            return self._page(listing.thread, listing)
        for key in sorted(self._world.threads):
            thread = self._world.threads[key].thread
            if thread is None or thread.tenant != (listing.tenant or ""):
                continue
            if listing.after is None or key >= listing.after[0]:
                inside = listing if listing.after and listing.after[0] == key else None
                page = self._page(thread, inside or replace(listing, after=None))
                if page.rows:
                    return page
        return Page((), {}, {})

    def _page(self, thread: Thread, listing: Listing) -> Page:
        rows = self._world.rows(thread)
        listed = (c for c in rows.checkpoints.values() if _is_listed(c, listing, rows))
        found = [replace(c.row, edge=c.edge, orphan=_is_orphan(c.row, rows)) for c in listed]
        found.sort(key=lambda row: (row.ns, -row.seq))
        found = found[: listing.limit]
        page = self._rest(thread, [(row.ns, row.id) for row in found], _numbers(found), ())
        if listing.light:
            page = replace(page, chunks={at: _light(c) for at, c in page.chunks.items()})
        return replace(
            page, rows=tuple((thread, row) for row in found), ahead=bool(found and rows.ahead)
        )

    async def rest(
        self, place: Place, ids: Sequence[str], numbers: Sequence[int], light: Sequence[int]
    ) -> Page:
        await self._world.step("rest")
        return self._rest(place.thread, [(place.ns, id) for id in ids], numbers, light)

    def _rest(
        self, thread: Thread, ids: Sequence[Ids], numbers: Iterable[int], light: Iterable[int]
    ) -> Page:
        rows = self._world.rows(thread)
        writes = {at: w for at in ids if (w := rows.writes_of(*at))}
        whole = {*numbers, *_numbers(w for batch in writes.values() for w in batch)}
        chunks = {
            no: chunk if no in whole else _light(chunk)
            for no in sorted({*light} | whole)
            if (chunk := rows.chunks.get(no)) is not None
        }
        return Page((), chunks, writes)

    async def chain(self, place: Place, id: str, limit: int) -> list[RecordRow]:
        await self._world.step("chain")
        stored = self._world.rows(place.thread).checkpoints
        out: list[RecordRow] = []
        at: str | None = id
        while at is not None and len(out) < limit and (found := stored.get((place.ns, at))):
            out.append(replace(found.row, edge=found.edge))
            at = found.row.parent
        return out

    async def heads(self, thread: Thread) -> dict[str, Head]:
        await self._world.step("heads")
        return dict(sorted(self._world.rows(thread).heads.items()))

    # -- removing ----------------------------------------------------------------------------

    async def delete_thread(self, thread: Thread) -> dict[str, bool]:
        async with Change(self._world, "delete_thread"):
            gone = self._world.threads.pop(thread.key, Rows())
            self._world.quarantine.pop(thread.key, None)
            names = {*gone.heads, *gone.ahead, *(ns for ns, _ in gone.checkpoints)}
            return {ns: ns in gone.ahead for ns in names}

    async def runs(self, tenant: str, run_ids: Sequence[str]) -> list[tuple[Thread, str, str]]:
        await self._world.step("runs")
        wanted = [projection.of_filter({"run_id": run_id}) for run_id in run_ids]
        return [
            (rows.thread, *ids)
            for _, rows in sorted(self._world.threads.items())
            if rows.thread is not None and rows.thread.tenant == tenant
            for ids, stored in sorted(rows.checkpoints.items())
            if any(matches(stored.meta, one) for one in wanted)
        ]

    async def sign_head(self, place: Place, digest: Digest, seal: bytes) -> bool:
        async with Change(self._world, "sign_head"):
            heads = self._world.rows(place.thread).heads
            head = heads.get(place.ns)
            if head is None or head.digest != digest:
                return False
            heads[place.ns] = replace(head, seal=seal)
            return True

    async def remove(
        self,
        thread: Thread,
        doomed: Sequence[Ids],
        seals: Mapping[Digest, bytes] = MappingProxyType({}),
        edges: Sequence[Edge] | None = None,
    ) -> bool:
        async with Change(self._world, "remove"):
            rows = self._world.rows(thread)
            if rows.ahead:
                return False
            if edges is not None:
                if {(r.ns, r.id, r.digest) for r in rows.children(doomed)} != {
                    (e.ns, e.id, e.digest) for e in edges
                }:
                    return False
                rows.sever(edges)
            rows.remove(doomed)
            rows.settle(seals)
            rows.sweep()
            if not rows.checkpoints:
                rows.thread = None
            return True

    async def children(self, thread: Thread, doomed: Sequence[Ids]) -> list[RecordRow]:
        await self._world.step("children")
        return self._world.rows(thread).children(doomed)

    async def keep(
        self,
        thread: Thread,
        kept: Sequence[Ids],
        heads: Mapping[str, Head],
        edges: Sequence[Edge] = (),
    ) -> bool:
        async with Change(self._world, "keep_only"):
            rows = self._world.rows(thread)
            if not self.unmoved(rows.heads, heads):
                return False
            rows.sever(edges)
            rows.remove({c for c in rows.checkpoints if c[0] in heads} - set(kept))
            rows.sweep()
            return True

    async def rewrite(self, thread: Thread, heads: Mapping[str, Head], rows: Rewritten) -> bool:
        async with Change(self._world, "rewrite"):
            return self._rewrite(self._world.rows(thread), heads, rows)

    def _rewrite(self, of: Rows, heads: Mapping[str, Head], rows: Rewritten) -> bool:
        former = rows.former
        given = {(former.get(row.ns, row.ns), row.id): old for old, row, _ in rows.records}
        there = {ids: stored.row.digest for ids, stored in of.checkpoints.items()}
        if of.ahead or not self.unmoved(of.heads, heads) or given != there:
            return False
        gone = [(ns, row.id, row.task, row.slot) for ns, row in rows.gone]
        known = {key: row.digest for key, row in of.writes.items() if key[:2] in there}
        doomed = {key: row.digest for key, (_, row) in zip(gone, rows.gone, strict=True)}
        if rows.exact and known != doomed:
            return False
        of.require_free(rows.chunks)
        of.add_chunks(rows.chunks)
        stored = {ids: of.checkpoints.pop(ids) for ids in given}
        for _, row, meta in rows.records:
            was = stored[former.get(row.ns, row.ns), row.id]
            new = replace(_bared(row), seq=was.row.seq, refused=was.row.refused)
            of.checkpoints[row.ns, row.id] = replace(was, row=new, meta=meta, edge=row.edge)
        went = {key for key, digest in doomed.items() if known.get(key) == digest}
        for key in went:
            del of.writes[key]
        for place, ns, write in rows.writes:
            if gone[place] in went:
                of.writes[ns, write.id, write.task, write.slot] = write
        was_head = {ns: of.heads.pop(former.get(ns, ns)) for ns in rows.heads}
        for ns, head in rows.heads.items():
            of.heads[ns] = replace(was_head[ns], digest=head.digest, seal=head.seal)
        of.sweep()
        return True

    def unmoved(self, now: Mapping[str, Head], then: Mapping[str, Head]) -> bool:
        return {n: h.digest for n, h in now.items()} == {n: h.digest for n, h in then.items()}

    # -- what the hot tier may be ahead of ---------------------------------------------------

    async def mark_ahead(
        self, place: Place, token: bytes, accepted: Sequence[bytes], fence: int | None = None
    ) -> tuple[Head, bytes] | None:
        async with Change(self._world, "mark_ahead"):
            if self._taken_over(place.thread, fence):
                return None
            rows = self._world.rows(place.thread)
            have = rows.ahead.get(place.ns)
            if have != token and have in (None, *accepted):
                rows.ahead[place.ns], rows.flushed[place.ns] = token, 0
            head = rows.heads.get(place.ns, replace(_NO_HEAD, seq=rows.last(place.ns)))
            return head, rows.ahead[place.ns]

    async def progress(self, places: Sequence[Place]) -> dict[Place, Progress]:
        await self._world.step("progress")
        found = {}
        for place in places:
            rows = self._world.rows(place.thread)
            if place.ns in rows.ahead:
                head = rows.heads.get(place.ns, _NO_HEAD)
                stored = rows.checkpoints.get((place.ns, head.id))
                mark = keys.mark(stored.row.numbers) if stored else b""
                token, flushed = rows.ahead[place.ns], rows.flushed[place.ns]
                found[place] = Progress(token, flushed, head.digest, mark)
        return found

    async def flush(
        self, advances: Sequence[Advance], batch: Sequence[Put | PutWrites]
    ) -> list[Outcome] | None:
        puts = [item for item in batch if isinstance(item, Put)]
        writes = [item for item in batch if isinstance(item, PutWrites)]
        async with Change(self._world, "flush"):
            for a in advances:
                rows = self._world.rows(a.place.thread)
                have = rows.ahead.get(a.place.ns), rows.flushed.get(a.place.ns)
                if have != (a.token, a.old):
                    return None
            for a in advances:
                self._world.rows(a.place.thread).flushed[a.place.ns] = a.new
            told, later = self._commit(puts, writes)
            for put, (seq, *_) in zip(puts, told, strict=True):
                if seq is None:
                    self._keep(put, put.claim is not Claim.ASIDE)
            for one in later:
                self._write_differing(*one)
        return await self._outcomes(batch, puts, writes, told, later)

    async def clear_ahead(self, place: Place, token: bytes) -> bool:
        async with Change(self._world, "clear_ahead"):
            ahead = self._world.rows(place.thread).ahead
            return ahead.get(place.ns) == token and ahead.pop(place.ns) == token

    async def ahead(self, thread: UUID | None, limit: int) -> list[Waiting]:
        await self._world.step("ahead")
        found = [
            Waiting(Place(Thread("", "", key), ns), token, 0.0, head.id if head else "")
            for key, rows in sorted(self._world.threads.items())
            for ns, token in sorted(rows.ahead.items())
            for head in [rows.heads.get(ns)]
            if thread in (None, key)
        ]
        return found[:limit]

    async def move_head(self, place: Place, expected: Digest, to: Head) -> bool:
        async with Change(self._world, "move_head"):
            rows = self._world.rows(place.thread)
            head, stored = rows.heads.get(place.ns), rows.checkpoints.get((place.ns, to.id))
            there = head.digest if head is not None else b""
            if _digest(stored) != to.digest or there != expected or place.ns in rows.ahead:
                return False
            seq = head.seq if head is not None else rows.last(place.ns)
            rows.heads[place.ns] = replace(to, seq=seq)
            return True

    # -- copying -----------------------------------------------------------------------------

    async def copy(
        self,
        source: Thread,
        target: Thread,
        rows: Sequence[RecordRow],
        writes: Sequence[tuple[str, WriteRow]],
        heads: Sequence[Ids],
        seals: Sequence[bytes] = (),
    ) -> None:
        async with Change(self._world, "copy"):
            old, new = self._world.rows(source), self._world.rows(target)
            new.copying = not new.heads
            numbers = _numbers([*rows, *(w for _, w in writes)])
            new.add_chunks(old.chunks[no] for no in sorted(numbers & old.chunks.keys()))
            found = [r for r in rows if (r.ns, r.id) in old.checkpoints.keys() - new.checkpoints]
            for row in found:
                of = old.checkpoints[row.ns, row.id]
                new.checkpoints[row.ns, row.id] = replace(of, row=_bared(row))
            for row in found:
                edge = b"" if new.has_parent(row) else row.edge
                of = new.checkpoints[row.ns, row.id]
                new.checkpoints[row.ns, row.id] = replace(of, edge=edge)
            for ns, write in writes:
                new.writes.setdefault((ns, write.id, write.task, write.slot), write)
            if heads and new.thread is None:
                new.thread = target
            for (ns, id), seal in zip(heads, seals or [b""] * len(heads), strict=True):
                if (ns, id) in new.checkpoints:
                    digest = new.checkpoints[ns, id].row.digest
                    new.heads.setdefault(ns, Head(id, new.last(ns), digest, seal))
            if heads:
                new.copying = len(new.heads) != len(heads)


class MemoryCommits:
    """Implements `Commits`: each item is a batch of its own, at once."""

    def __init__(self, durable: MemoryDurable) -> None:
        self._durable = durable

    async def submit(self, item: Put | PutWrites) -> Outcome:
        return (await self._durable.commit([item]))[0]


Later = tuple[PutWrites, WriteRow, list[ChunkRow]]
Told = tuple[int | None, Head | None, bool, bytes | None, bool]


def _checkpoint(rows: Rows, put: Put, seq: int, refused: bool) -> Checkpoint:
    row = RecordRow(
        put.place.ns, put.id, put.parent, seq, put.digest, put.record, put.numbers, refused
    )
    return Checkpoint(row, put.size, put.metadata, b"" if rows.has_parent(row) else put.edge)


def _digest(stored: Checkpoint | None) -> Digest | None:
    return stored.row.digest if stored is not None else None


def _beheaded(rows: Rows, ns: str) -> Found | None:
    """What is left of a namespace without a head; that of a thread being copied comes last."""
    newest = None if rows.copying else rows.newest(ns)
    if newest is None:
        return None
    return Found(Head(newest.id, newest.seq, newest.digest), None, (), {}, (), lost=True)


def _bare(place: Place, head: Head) -> RecordRow:
    """A head without its record."""
    return RecordRow(place.ns, head.id, None, head.seq, head.digest, b"", ())


def _withheld(stored: Checkpoint, held: Digest, most: int | None) -> bool:
    return (bool(held) and stored.row.digest == held) or (most is not None and stored.size > most)


def _numbers(rows: Iterable[RecordRow | WriteRow]) -> set[int]:
    return {no for row in rows for no in row.numbers}


def _is_orphan(row: RecordRow, rows: Rows) -> bool:
    return row.parent is not None and not rows.has_parent(row)


def _bared(row: RecordRow) -> RecordRow:
    """A row as it is read by itself."""
    return replace(row, edge=b"", orphan=False)


def _light(chunk: ChunkRow) -> ChunkRow:
    return replace(chunk, blob=chunk.blob[:3])


def _is_listed(stored: Checkpoint, listing: Listing, rows: Rows) -> bool:
    row = stored.row
    if listing.ns not in (None, row.ns) or listing.id not in (None, row.id):
        return False
    if listing.before is not None:
        seq = rows.seq_of((row.ns, listing.before))
        if not (row.id < listing.before if seq is None else row.seq < seq):
            return False
    if listing.after is not None:
        _, ns, seq = listing.after
        if not (row.ns > ns or (row.ns == ns and row.seq < seq)):
            return False
    return matches(stored.meta, listing.filter)


def _is_base(stored: Checkpoint | None, put: Put) -> bool:
    """Whether a checkpoint is the one that a put was made from, chunk numbers included."""
    if stored is None or put.base not in (b"", stored.row.digest):
        return False
    return _is_numbered(stored, put)


def _follows(parent: Checkpoint | None, put: Put) -> bool:
    """Whether the parent is still what the put was made from, or gone."""
    return parent is None or put.follows in (b"", parent.row.digest)


def _is_numbered(base: Checkpoint, put: Put) -> bool:
    return put.base_numbers is None or base.row.numbers == put.base_numbers
