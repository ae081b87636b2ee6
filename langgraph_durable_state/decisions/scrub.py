"""Whether a checkpoint is stored as it was written, and what would put it right.

This file decides and never acts: no I/O, no clock, no logging. A row is right if its digest proves
it, or if what was made from it does: a head, a child, a record that names a chunk. What is not is
replaced by a row of the other tier, if that can be proven in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..asfound import Ids, Quarantined, RawHead, RawRecord, RawWrite, Repair, Row, Sight
from ..errors import EvolutionError
from ..verification import Kind
from ..words import ChunkRow, Digest, Place, RecordRow, WriteRow
from . import codec, edges, keys
from .codec import Blobs, Record, Unsound, bare_chunk, content_of
from .evidence import (
    Child,
    Describe,
    Flaw,
    Sources,
    chunk_flaw,
    chunk_reason,
    filtered_wrong,
    quarantined,
    raw_write,
    read_batch,
    read_record,
    record_row,
    unpacked,
    with_header,
    write_row,
)
from .matching import Chunk

# -- one checkpoint --------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """All that is known of one checkpoint: what the durable tier has, at one moment, and what may
    prove or replace it."""

    place: Place
    id: str
    sight: Sight
    sources: Sources
    children: Sequence[Child]
    blobs: Blobs
    describe: Describe

    @property
    def ids(self) -> Ids:
        return self.place.ns, self.id

    @property
    def raw(self) -> RawRecord | None:
        return self.sight.records.get(self.ids)

    @property
    def head(self) -> RawHead | None:
        """The head, if it is this checkpoint."""
        head = self.sight.heads.get(self.place.ns)
        return head if head is not None and head.digest and head.id == self.id else None

    @property
    def witnesses(self) -> list[Digest]:
        """The digests that this checkpoint has in what was made from it."""
        said = [self.head.digest] if self.head is not None else []
        return [*said, *(c.parent_digest for c in self.children if c.later and c.parent_digest)]

    def flaw(self, kind: Kind, reason: str, repair: Repair | None = None, **what: object) -> Flaw:
        return Flaw(kind, self.place.ns, self.id, reason, repair, **what)  # type: ignore[arg-type]

    def kept(self, kind: Kind, row: Row, reason: str) -> Quarantined:
        return quarantined(self.place.thread.key, kind, self.place.ns, row, reason)


def examine(case: Case) -> list[Flaw]:
    """All that is wrong with a checkpoint, its chunks, its writes, and its head."""
    flaws: list[Flaw] = []
    proven = _proven(case)
    if proven is not None:
        flaws += _record_flaws(case, proven)
        flaws += _chunk_flaws(case, proven.row.numbers, proven.marks)
        flaws += _head_flaws(case, proven.row)
    elif case.raw is not None:
        flaws += _bad_record(case, case.raw)
    elif case.head is not None:
        flaws.append(case.flaw("checkpoint", "it is missing, and neither tier has it"))
    elif any(child.needs for child in case.children):
        flaws.append(case.flaw("checkpoint", edges.UNTOLD))
    for raw in case.sight.writes:
        if (raw.ns, raw.id) == case.ids:
            flaws += _write_flaws(case, raw)
    if proven is not None:
        flaws += _missing_writes(case, proven.row.digest)
    return list({flaw.name: flaw for flaw in reversed(flaws)}.values())[::-1]


@dataclass(frozen=True, slots=True)
class Proven:
    """A checkpoint's row as it should be, with what its chunks are."""

    row: RecordRow
    record: Record
    marks: Mapping[int, Chunk]
    source: bool = False
    """It is the other tier's."""


def _proven(case: Case) -> Proven | None:
    """The right row: the stored one, the stored one under the digest that others know it by, or
    another tier's. What was made from it decides between two that are both sound."""
    found = [p for row, source in _candidates(case) if (p := _prove(case, row, source))]
    wanted = case.witnesses
    fits = [p for p in found if p.row.digest in wanted]
    stored = case.raw.digest if case.raw is not None else None
    own = [p for p in found if p.row.digest == stored]
    # A head that was moved to nothing that exists condemns no record that its own digest proves.
    return next(iter(fits + own), None)


def _candidates(case: Case) -> Iterator[tuple[RecordRow, bool]]:
    raw = case.raw
    if raw is not None:
        try:
            row = record_row(raw)
            yield row, False
            row = replace(row, record=with_header(raw.record))
            for digest in dict.fromkeys((raw.digest, *case.witnesses)):
                yield replace(row, digest=digest), False
        except Unsound:
            pass
    for row in case.sources.records.get(case.ids, ()):
        seq = raw.seq if raw is not None else _place_in_order(case, row)
        yield replace(row, seq=seq, refused=raw.refused if raw is not None else False), True


def _place_in_order(case: Case, row: RecordRow) -> int:
    """Where in the namespace's order a checkpoint goes that is missing."""
    head = case.sight.heads.get(case.place.ns)
    return row.seq if head is None or row.seq <= head.seq else head.seq


def _prove(case: Case, row: RecordRow, source: bool) -> Proven | None:
    for marks in _readings(case, row.numbers):
        try:
            record = read_record(case.place, row, marks, case.blobs)
        except (Unsound, EvolutionError):
            continue
        return Proven(row, record, marks, source)
    return None


def _readings(case: Case, numbers: Sequence[int]) -> Iterator[dict[int, Chunk]]:
    """What chunks of these numbers may be: what their rows say, what is in them, what the other
    tier has."""
    found, sources = case.sight.chunks, case.sources.bare(numbers)
    said = {no: bare_chunk(found[no]) for no in numbers if no in found}
    yield sources | said
    held = {no: c for no in said if (c := _content(found[no], case.blobs)) is not None}
    if any(held[no].digest != said[no].digest for no in held):
        yield sources | said | held
    if sources:
        yield said | held | sources


def _content(row: ChunkRow, blobs: Blobs) -> Chunk | None:
    try:
        chunk = content_of(row, blobs)
    except (Unsound, EvolutionError):
        return None
    return Chunk.bare(chunk.no, chunk.digest, chunk.count)


def _record_flaws(case: Case, proven: Proven) -> Iterator[Flaw]:
    raw, row = case.raw, proven.row
    if raw is None:
        reason = "it is missing"
        right = _raw_record(case, proven, None)
        yield case.flaw("checkpoint", reason, Repair(right, None, None))
        return
    if (raw.digest, raw.record, raw.parent) != (row.digest, row.record, row.parent) or (
        raw.packed != keys.packed(row.numbers) and _unpacks_to(raw.packed) != row.numbers
    ):
        reason = _record_reason(case, raw) or "it is not what was made from it"
        right = _raw_record(case, proven, raw)
        yield case.flaw(
            "checkpoint", reason, Repair(right, raw, case.kept("checkpoint", raw, reason))
        )
        return
    meta = case.describe(proven.record)
    if filtered_wrong(meta, raw.meta):
        reason = "what filters look at is not the metadata"
        right = replace(raw, meta=meta.text)
        yield case.flaw("metadata", reason, Repair(right, raw, case.kept("metadata", raw, reason)))
    if any(c.later and c.parent_digest not in (b"", row.digest) for c in case.children):
        yield case.flaw("checkpoint", "its child was made from another content")


def _unpacks_to(packed: bytes) -> tuple[int, ...] | None:
    try:
        return unpacked(packed)
    except Unsound:
        return None


def _raw_record(case: Case, proven: Proven, raw: RawRecord | None) -> RawRecord:
    row = proven.row
    described = case.describe(proven.record)
    meta = described.text if described.exact or raw is None else raw.meta
    size = raw.size if raw is not None else _size(case, proven)
    packed = keys.packed(row.numbers)
    return RawRecord(
        row.ns, row.id, row.parent, row.seq, row.digest, row.record, packed, meta, size, row.refused
    )


def _size(case: Case, proven: Proven) -> int:
    rows = {**case.sight.chunks, **case.sources.chunks}
    plain = 0
    for no in proven.row.numbers:
        try:
            plain += len(content_of(rows[no], case.blobs).plain)
        except (KeyError, Unsound, EvolutionError):
            continue
    return plain + proven.record.size


def _record_reason(case: Case, raw: RawRecord) -> str | None:
    try:
        row = record_row(raw)
        read_record(case.place, row, next(_readings(case, row.numbers)), case.blobs)
    except (Unsound, EvolutionError) as error:
        return str(error)
    return None


def _bad_record(case: Case, raw: RawRecord) -> Iterator[Flaw]:
    """A stored record that nothing proves; its chunks are judged by their own digests."""
    numbers = _unpacks_to(raw.packed) or ()
    bad = [no for no in numbers if _chunk_reason(case, no) is not None]
    yield from _chunk_flaws(case, bad, {})
    reason = _record_reason(case, raw) or "nothing proves it"
    unread = False
    try:
        codec.record_parts(record_row(raw), case.blobs)
    except EvolutionError:
        unread = True
    except Exception:
        pass
    yield case.flaw("checkpoint", reason, unread=unread)


# -- chunks ----------------------------------------------------------------------------------


def _chunk_reason(case: Case, no: int) -> str | None:
    row = case.sight.chunks.get(no)
    return f"chunk {no} is missing" if row is None else chunk_reason(row, case.blobs)


def _chunk_flaws(case: Case, numbers: Iterable[int], marks: Mapping[int, Chunk]) -> Iterator[Flaw]:
    """The chunks of these numbers that are not what `marks` prove, or, without, their digests."""
    for no in dict.fromkeys(numbers):
        found, mark = case.sight.chunks.get(no), marks.get(no)
        reason = _chunk_reason(case, no)
        if reason is None and found is not None and mark is not None:
            said = bare_chunk(found)
            if (said.digest, said.count) != (mark.digest, mark.count):
                reason = f"chunk {no} is not the one that was stored"
        if reason is None:
            continue
        right = _right_chunk(case, no, found, mark)
        repair = None
        if right is not None:
            kept = case.kept("chunk", found, reason) if found is not None else None
            repair = Repair(right, found, kept, case.ids)
        flaw = chunk_flaw(found, case.blobs) if found is not None else None
        yield case.flaw("chunk", reason, repair, no=no, unread=isinstance(flaw, EvolutionError))


def _right_chunk(
    case: Case, no: int, found: ChunkRow | None, mark: Chunk | None
) -> ChunkRow | None:
    """A row whose bytes are what the mark says; without one, what the row found says."""
    options = [case.sources.chunks.get(no)]
    if found is not None and mark is not None:
        options.append(replace(found, digest=mark.digest))
    wanted = mark or (bare_chunk(found) if found is not None else None)
    for row in options:
        if row is None or wanted is None or chunk_reason(row, case.blobs) is not None:
            continue
        if row.digest == wanted.digest and (mark is None or bare_chunk(row).count == mark.count):
            return row
    return None


# -- writes ----------------------------------------------------------------------------------


def _prove_write(case: Case, row: WriteRow) -> dict[int, Chunk] | None:
    for marks in _readings(case, row.numbers):
        try:
            read_batch(case.place, row, marks, case.blobs)
        except (Unsound, EvolutionError):
            continue
        return marks
    return None


def _write_flaws(case: Case, raw: RawWrite) -> Iterator[Flaw]:
    row, marks = _right_write(case, raw)
    if row is None:
        error = _write_error(case, raw)
        bad = [no for no in _unpacks_to(raw.packed) or () if _chunk_reason(case, no) is not None]
        yield from _chunk_flaws(case, bad, {})
        unread = isinstance(error, EvolutionError)
        yield case.flaw("write", str(error), task=raw.task, unread=unread)
        return
    yield from _chunk_flaws(case, row.numbers, marks)
    right = raw_write(case.place.ns, row)
    same = (right.path, right.digest, right.blob) == (raw.path, raw.digest, raw.blob)
    if not same or _unpacks_to(raw.packed) != row.numbers:
        reason = str(_write_error(case, raw))
        repair = Repair(right, raw, case.kept("write", raw, reason), case.ids)
        yield case.flaw("write", reason, repair, task=raw.task)


def _right_write(case: Case, raw: RawWrite) -> tuple[WriteRow | None, Mapping[int, Chunk]]:
    """The stored row, or the one under the digest that others know it by, or another tier's."""
    same = [r for r in case.sources.writes.get(case.ids, ()) if r.task == raw.task]
    same = [r for r in same if min(r.slot, 0) == min(raw.slot, 0)]
    options: list[WriteRow] = []
    try:
        stored = write_row(raw)
        consumed = [digest for child in case.children for digest in child.consumed]
        known = dict.fromkeys((raw.digest, *consumed, *(r.digest for r in same)))
        options.append(stored)
        stored = replace(stored, blob=with_header(raw.blob))
        options += [replace(stored, digest=digest) for digest in known]
    except Unsound:
        pass
    options += [replace(r, slot=raw.slot) for r in same if r.digest == raw.digest]
    for row in options:
        if (marks := _prove_write(case, row)) is not None:
            return row, marks
    return None, {}


def _write_error(case: Case, raw: RawWrite) -> Unsound | EvolutionError:
    try:
        row = write_row(raw)
        read_batch(case.place, row, next(_readings(case, row.numbers)), case.blobs)
    except (Unsound, EvolutionError) as error:
        return error
    return Unsound(None, "it is not what was made from it")


def _missing_writes(case: Case, digest: Digest) -> Iterator[Flaw]:
    """Writes that a child was made from, or that the hot tier says are durable, and are not."""
    stored = [w for w in case.sight.writes if (w.ns, w.id) == case.ids]
    there = {w.digest for w in stored}
    fitting = (c for c in case.children if c.later and c.parent_digest == digest)
    wanted = dict.fromkeys(d for c in fitting for d in c.consumed)
    known = {row.digest: row for row in case.sources.writes.get(case.ids, ())}
    for mark in wanted:
        if mark not in there and not _restored(case, stored, mark):
            yield from _missing_write(case, known.get(mark), "a write that its child consumed")
    slots = {(w.task, w.slot) for w in stored}
    for row in case.sources.pending.get(case.ids, ()):
        if not {row.digest} & {*there, *wanted} and (row.task, row.slot) not in slots:
            yield from _missing_write(case, row, "a pending write")


def _restored(case: Case, stored: Iterable[RawWrite], digest: Digest) -> bool:
    """Whether a stored row, put right, will be the write with this digest."""
    rows = (_right_write(case, raw)[0] for raw in stored)
    return any(row is not None and row.digest == digest for row in rows)


def _missing_write(case: Case, row: WriteRow | None, what: str) -> Iterator[Flaw]:
    reason = f"{what} is missing"
    marks = _prove_write(case, row) if row is not None else None
    if row is None or marks is None:
        yield case.flaw("write", reason, task=row.task if row is not None else None)
        return
    yield from _chunk_flaws(case, row.numbers, marks)
    right = raw_write(case.place.ns, row)
    yield case.flaw("write", reason, Repair(right, None, None, case.ids), task=row.task)


# -- the head --------------------------------------------------------------------------------


def _head_flaws(case: Case, row: RecordRow) -> Iterator[Flaw]:
    """The head's row against the record that it names, the copy being the third to say."""
    head = case.head
    if head is None or head.digest == row.digest:
        return
    reason = "its digest is not its checkpoint's"
    copy = case.sources.copies.get(head.ns)
    right = replace(head, digest=row.digest)
    said = copy is not None and (copy.id, copy.digest) == (row.id, row.digest)
    repair = Repair(right, head, case.kept("head", head, reason)) if said else None
    yield case.flaw("head", reason, repair)
