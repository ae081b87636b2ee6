"""Whether what Redis holds is what was written, and what would put it right.

This file decides and never acts. Outside an open spell all of it is in Postgres as well, so that
what cannot be put right may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..asfound import Change, Fields, HotRaw
from ..errors import EvolutionError
from ..words import ChunkRow, Digest, Place, Put, PutWrites, RecordRow, WriteRow
from . import outgoing
from .codec import Blobs, Record, Unsound, bare_chunk
from .digest import SIZE
from .evidence import (
    Describe,
    EntryRepair,
    Flaw,
    HotRepair,
    Sources,
    chunk_flaw,
    chunk_reason,
    filtered_wrong,
    hot_quarantined,
    prove_chunk,
    read_batch,
    read_record,
)
from .hotcopy import chunk_number, chunks_of, copy_fields, copy_id, copy_of

# -- copies ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HotCase:
    """What is known of one namespace: what Redis has, and the rows of Postgres and of the outbox
    that may take its place. ``head`` is the durable head's id."""

    place: Place
    raw: HotRaw
    sources: Sources
    blobs: Blobs
    head: str | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that is proven."""

    row: RecordRow
    chunks: Mapping[int, ChunkRow]


def sound_copy(place: Place, fields: Fields, blobs: Blobs) -> Copy:
    """The copy in these fields, proven.

    Raises:
        Unsound: if it is not what was written.
        EvolutionError: if it says that a newer version wrote it.
    """
    row, chunks = copy_of(place.ns, fields)
    for chunk in chunks.values():
        prove_chunk(chunk, blobs)
    read_record(place, row, {no: bare_chunk(c) for no, c in chunks.items()}, blobs)
    return Copy(row, chunks)


def copy_flaw(case: HotCase) -> Flaw | None:
    """What is wrong with a hot copy."""
    fields = case.raw.copy
    if not fields:
        return None
    unread = False
    try:
        sound_copy(case.place, fields, case.blobs)
        return None
    except (Unsound, EvolutionError) as error:
        reason, unread = str(error), isinstance(error, EvolutionError)
    good = _good_copy(case)
    right = copy_fields(good.row, good.chunks.values()) if good is not None else {}
    id = copy_id(fields)
    if good is None and (case.raw.open or unread):
        return Flaw("copy", case.place.ns, id, reason, unread=unread)
    return Flaw("copy", case.place.ns, id, reason, _field_repair(case, fields, right, id, reason))


def _field_repair(
    case: HotCase, fields: Fields, right: Fields, id: str | None, reason: str
) -> HotRepair:
    names = sorted({*fields, *right})
    changes = [Change(name, fields.get(name), right.get(name)) for name in names]
    bad = [c for c in changes if c.found != c.right]
    # What the copy is of must be as it was, too: it may have gone on.
    same = [c for c in changes if c.field == b"digest" and c not in bad]
    shown = {_name(c.field): c.found for c in bad if c.found is not None}
    kept = hot_quarantined(case.place.thread.key, "copy", case.place.ns, id or "", shown, reason)
    return HotRepair("copy", (*same, *bad), (kept,))


def _name(field: bytes) -> str:
    no = chunk_number(field)
    if no is not None:
        return f"chunk {no}"
    return field.decode(errors="backslashreplace")


def _good_copy(case: HotCase) -> Copy | None:
    own = chunks_of(case.raw.copy)
    sound = {no: c for no, c in own.items() if chunk_reason(c, case.blobs) is None}
    for row in _copy_rows(case):
        for first, second in ((sound, case.sources.chunks), (case.sources.chunks, sound)):
            found = {no: first.get(no) or second.get(no) for no in row.numbers}
            chunks = {no: c for no, c in found.items() if c is not None}
            if _is_proven(case.place, row, chunks, case.blobs):
                return Copy(row, chunks)
    return None


def _copy_rows(case: HotCase) -> Iterator[RecordRow]:
    """What the copy may be of: while the spell is open nothing but the hot head."""
    fields, ns = case.raw.copy, case.place.ns
    try:
        yield copy_of(ns, fields)[0]
    except Unsound:
        pass
    ids = dict.fromkeys((copy_id(fields) or "", case.head or ""))
    known = [row for id in ids for row in case.sources.records.get((ns, id), ())]
    if not case.raw.open:
        said = fields.get(b"digest")
        yield from sorted(known, key=lambda row: row.digest != said)
        return
    seq = fields.get(b"seq", b"")
    for row in known:
        if row.digest == case.raw.digest:
            yield replace(row, seq=int(seq) if seq.isdigit() else row.seq)


def _is_proven(
    place: Place, row: RecordRow, chunks: Mapping[int, ChunkRow], blobs: Blobs
) -> Record | None:
    try:
        return read_record(place, row, {no: bare_chunk(c) for no, c in chunks.items()}, blobs)
    except (Unsound, EvolutionError):
        return None


# -- pending writes --------------------------------------------------------------------------


def sound_writes(
    place: Place, fields: Fields, blobs: Blobs
) -> Iterator[tuple[bytes, WriteRow, tuple[ChunkRow, ...]]]:
    """The pending writes among these fields that are proven, with their chunks."""
    for name, value in fields.items():
        try:
            row, chunks = outgoing.read_write(name, value)
            _prove_write(place, row, chunks, {}, blobs)
            yield name, row, chunks
        except (Unsound, EvolutionError):
            continue


def _prove_write(
    place: Place,
    row: WriteRow,
    chunks: Iterable[ChunkRow],
    others: Mapping[int, ChunkRow],
    blobs: Blobs,
) -> None:
    """Returns if a row of writes is what was written, with chunks of its own and, where it has
    none, others.

    Raises:
        Unsound: if it is not.
        EvolutionError: if that cannot be told.
    """
    own = {c.no: c for c in chunks}
    for chunk in own.values():
        prove_chunk(chunk, blobs)
    found = {no: own.get(no) or others.get(no) for no in row.numbers}
    read_batch(place, row, {no: bare_chunk(c) for no, c in found.items() if c is not None}, blobs)


def write_flaws(case: HotCase) -> Iterator[Flaw]:
    """What is wrong with the pending writes that Redis holds."""
    for name, value in case.raw.writes.items():
        try:
            row, chunks = outgoing.read_write(name, value)
            _prove_write(case.place, row, chunks, case.sources.chunks, case.blobs)
        except (Unsound, EvolutionError) as error:
            yield _write_flaw(case, name, value, str(error), isinstance(error, EvolutionError))


def _write_flaw(case: HotCase, name: bytes, value: bytes, reason: str, unread: bool) -> Flaw:
    parts = name.decode(errors="replace").split("\x00")
    id, task, slot = parts if len(parts) == 3 else ("", "", "")
    row = _right_row_of(case, id, task, slot, value[:SIZE])
    ns, key = case.place.ns, case.place.thread.key
    needed = case.raw.open or (id == case.head and slot.lstrip("-").isdigit())
    if (unread and (row is None or row.digest != value[:SIZE])) or (row is None and needed):
        return Flaw("write", ns, id or None, reason, task=task or None, unread=unread)
    changes = [Change(name, value, None)]
    if row is not None:
        same = (row.id, row.task) == (id, task) and slot.lstrip("-").isdigit()
        field = name if same else outgoing.write_field(row.id, row.task, row.slot)
        right = outgoing.pack_write(row, _chunks(case, row))
        back = Change(field, case.raw.writes.get(field), right)
        changes = [back] if same else [*changes, back]
    kept = hot_quarantined(key, "write", ns, id, {_name(name): value}, reason)
    repair = HotRepair("writes", tuple(changes), (kept,))
    return Flaw("write", ns, id or None, reason, repair, task=task or None)


def _right_row_of(case: HotCase, id: str, task: str, slot: str, digest: Digest) -> WriteRow | None:
    """The row that a damaged field is of: the one of its digest, or else of its name."""
    known = case.sources.writes
    at = dict.fromkeys((case.place.ns, i) for i in (id, case.head or id))
    rows = [row for ids in at for row in known.get(ids, ())]
    rows = [r for r in rows if r.digest == digest] or [
        r for r in rows if (r.id, r.task, str(r.slot)) == (id, task, slot)
    ]
    for row in rows:
        try:
            _prove_write(case.place, row, _chunks(case, row), {}, case.blobs)
        except (Unsound, EvolutionError):
            continue
        return row
    return None


def _chunks(case: HotCase, row: WriteRow) -> tuple[ChunkRow, ...]:
    found = (case.sources.chunks.get(no) for no in row.numbers)
    return tuple(chunk for chunk in found if chunk is not None)


# -- outboxes --------------------------------------------------------------------------------


def row_of(put: Put) -> RecordRow:
    """The row that a put makes; its place in the order is not known yet."""
    return RecordRow(put.place.ns, put.id, put.parent, 0, put.digest, put.record, put.numbers)


def entry_flaw(
    number: int,
    raw: bytes,
    item: Put | PutWrites,
    sources: Sources,
    blobs: Blobs,
    describe: Describe,
) -> Flaw | None:
    """What is wrong with an entry of an outbox that could be taken apart."""
    if isinstance(item, Put):
        error, right = _judged_put(item, sources, blobs, describe)
    else:
        error, right = _judged_writes(item, sources, blobs)
    if error is None:
        return None
    reason, unread = str(error), isinstance(error, EvolutionError)
    place, task = item.place, item.rows[0].task if isinstance(item, PutWrites) else None
    repair = None
    if right is not None:
        key, found = place.thread.key, {"entry": raw}
        kept = hot_quarantined(key, "entry", place.ns, item.id, found, reason)
        repair = EntryRepair(number, raw, outgoing.repacked(raw, right), kept)
    return Flaw("entry", place.ns, item.id, reason, repair, task=task, unread=unread)


Wrong = Unsound | EvolutionError | None


def _judged_put(
    put: Put, sources: Sources, blobs: Blobs, describe: Describe
) -> tuple[Wrong, PutWrites | Put | None]:
    """What is wrong with a put, and the right one."""
    wrong: Wrong = next((f for c in put.chunks if (f := chunk_flaw(c, blobs)) is not None), None)
    own = {c.no: c for c in put.chunks}
    row, record = row_of(put), None
    if wrong is None:
        found = {no: own.get(no) or sources.chunks.get(no) for no in put.numbers}
        marks = {no: bare_chunk(c) for no, c in found.items() if c is not None}
        try:
            record = read_record(put.place, row, marks, blobs)
        except (Unsound, EvolutionError) as error:
            wrong = error
    if record is not None:
        meta = describe(record)
        if not filtered_wrong(meta, put.metadata):
            return None, None
        wrong = Unsound(None, "what filters look at is not the metadata")
        return wrong, replace(put, metadata=meta.text)
    return wrong, _right_put(put, row, sources, blobs)


def _right_put(put: Put, row: RecordRow, sources: Sources, blobs: Blobs) -> Put | None:
    sound = {c.no: c for c in put.chunks if chunk_reason(c, blobs) is None}
    copy = sources.copies.get(put.place.ns)
    known = [r for r in sources.records.get((put.place.ns, put.id), ()) if r.digest == put.digest]
    if copy is not None and copy.id == put.id:
        known.append(copy)
    for right in (row, *(replace(r, numbers=put.numbers) for r in known), *known):
        for first, second in ((sound, sources.chunks), (sources.chunks, sound)):
            found = {no: first.get(no) or second.get(no) for no in right.numbers}
            chunks = {no: c for no, c in found.items() if c is not None}
            if _is_proven(put.place, right, chunks, blobs) is None:
                continue
            whole = right.numbers != put.numbers
            sent = {c.no for c in put.chunks}
            rows = tuple(c for no, c in chunks.items() if whole or no in sent)
            made = replace(put, digest=right.digest, record=right.record, parent=right.parent)
            if whole:
                made = replace(made, numbers=right.numbers, refers=None, base_numbers=None)
            return replace(made, chunks=rows)
    return None


def _judged_writes(
    item: PutWrites, sources: Sources, blobs: Blobs
) -> tuple[Wrong, PutWrites | None]:
    """What is wrong with writes, and the right ones."""
    wrong: Wrong = None
    rows: list[WriteRow] = []
    chunks = {c.no: c for c in item.chunks}
    for row in item.rows:
        own = [chunks[no] for no in row.numbers if no in chunks]
        try:
            _prove_write(item.place, row, own, sources.chunks, blobs)
            rows.append(row)
            continue
        except (Unsound, EvolutionError) as error:
            wrong = wrong or error
        right = _right_row(item.place, row, sources, blobs)
        if right is None:
            return wrong, None
        rows.append(right)
        chunks |= {no: sources.chunks[no] for no in right.numbers if no in sources.chunks}
    used = {no for row in rows for no in row.numbers}
    left = tuple(c for no, c in chunks.items() if no in used)
    return wrong, replace(item, rows=tuple(rows), chunks=left) if wrong is not None else None


def _right_row(place: Place, row: WriteRow, sources: Sources, blobs: Blobs) -> WriteRow | None:
    known = sources.writes.get((place.ns, row.id), ())
    for right in (row, *(r for r in known if (r.task, r.digest) == (row.task, row.digest))):
        chunks = [c for no in right.numbers if (c := sources.chunks.get(no)) is not None]
        try:
            _prove_write(place, right, chunks, {}, blobs)
        except (Unsound, EvolutionError):
            continue
        return replace(right, slot=row.slot)
    return None
