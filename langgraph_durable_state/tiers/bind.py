"""Words to the parameters of the named statements."""

from __future__ import annotations

from collections.abc import Sequence

from ..decisions import keys
from ..words import (
    Advance,
    ChunkRow,
    Edge,
    Place,
    Put,
    PutWrites,
    RecordRow,
    Rewritten,
    Thread,
    WriteRow,
)
from . import arrays

_LARGEST = 2**31 - 1


def thread(thread: Thread) -> tuple[object, ...]:
    return (thread.key, *(None if t is None else keys.encoded(t) for t in _names(thread)))


def _names(thread: Thread) -> tuple[str, str, str | None, str | None]:
    return thread.tenant, thread.id, thread.user, thread.session


def pairs(pairs: Sequence[tuple[str, str]]) -> tuple[arrays.TextArray, arrays.TextArray]:
    return arrays.texts(ns for ns, _ in pairs), arrays.texts(id for _, id in pairs)


def places(places: Sequence[Place]) -> tuple[arrays.Array, ...]:
    return arrays.uuids(p.thread.key for p in places), arrays.texts(p.ns for p in places)


def advances(advances: Sequence[Advance]) -> tuple[arrays.Array, ...]:
    return (
        *places([a.place for a in advances]),
        arrays.byteas(a.token for a in advances),
        arrays.bigints(a.old for a in advances),
        arrays.bigints(a.new for a in advances),
    )


def commit(puts: Sequence[Put], writes: Sequence[PutWrites]) -> tuple[object, ...]:
    batches = [(w, row) for w in writes for row in w.rows]
    # A chunk comes with the put (counted from 1) or the batch of writes that it is sent for.
    chunks = [(p.place, i, 0, c) for i, p in enumerate(puts, 1) for c in p.chunks]
    chunks += [
        (w.place, 0, i, c)
        for i, (w, row) in enumerate(batches, 1)
        for c in w.chunks
        if c.no in row.numbers
    ]
    names = [_names(p.place.thread) for p in puts]
    return (
        arrays.uuids(p.place.thread.key for p in puts),
        arrays.texts(p.place.ns for p in puts),
        arrays.texts(p.id for p in puts),
        arrays.texts(p.parent for p in puts),
        arrays.ints(p.claim for p in puts),
        arrays.byteas(p.expected for p in puts),
        arrays.byteas(p.digest for p in puts),
        arrays.byteas(p.record for p in puts),
        arrays.texts(p.metadata for p in puts),
        arrays.byteas(keys.packed(p.numbers) for p in puts),
        arrays.ints(min(p.size, _LARGEST) for p in puts),
        arrays.texts(p.needs for p in puts),
        arrays.byteas(p.base for p in puts),
        *(
            arrays.byteas(None if n[i] is None else keys.encoded(n[i] or "") for n in names)
            for i in range(4)
        ),
        arrays.uuids(place.thread.key for place, _, _, _ in chunks),
        arrays.ints(put for _, put, _, _ in chunks),
        arrays.ints(given for _, _, given, _ in chunks),
        arrays.bigints(c.no for _, _, _, c in chunks),
        arrays.byteas(c.digest for _, _, _, c in chunks),
        arrays.byteas(c.blob for _, _, _, c in chunks),
        arrays.uuids(w.place.thread.key for w, _ in batches),
        *write_rows([(w.place.ns, row) for w, row in batches]),
        arrays.byteas(mark(p) for p in puts),
        arrays.byteas(p.spell for p in puts),
        arrays.bigints(p.fence for p in puts),
        arrays.bigints(w.fence for w, _ in batches),
        arrays.ints(i for i, p in enumerate(puts, 1) for _ in p.consumed),
        arrays.byteas(digest for p in puts for digest in p.consumed),
        arrays.byteas(w.spell for w, _ in batches),
        arrays.byteas(p.seal for p in puts),
        arrays.byteas(p.follows or None for p in puts),
        arrays.byteas(p.edge or None for p in puts),
    )


def one(put: Put) -> tuple[object, ...]:
    return (
        *_named(put),
        arrays.int_(put.claim),
        *_content(put),
        arrays.text(put.needs),
        put.base,
        *thread(put.place.thread)[1:],
        *chunks(put.chunks),
        mark(put),
        put.spell,
        arrays.bigint(put.fence),
        _consumed(put),
        put.seal,
        put.follows or None,
        put.edge or None,
    )


def move(put: Put) -> tuple[object, ...]:
    return (*_named(put), *_content(put), *chunks(put.chunks), mark(put), _consumed(put), put.seal)


def _named(put: Put) -> tuple[object, ...]:
    place = put.place
    return place.thread.key, arrays.text(place.ns), arrays.text(put.id), arrays.text(put.parent)


def _content(put: Put) -> tuple[object, ...]:
    return (
        put.expected,
        put.digest,
        put.record,
        arrays.text(put.metadata),
        keys.packed(put.numbers),
        arrays.int_(min(put.size, _LARGEST)),
    )


def _consumed(put: Put) -> arrays.Array | None:
    return arrays.byteas(put.consumed) if put.consumed else None


def mark(put: Put) -> bytes | None:
    return None if put.base_numbers is None else keys.mark(put.base_numbers)


def keep(put: Put, refused: bool) -> tuple[object, ...]:
    return (
        put.place.thread.key,
        put.place.ns,
        put.id,
        put.parent,
        put.digest,
        put.record,
        put.metadata,
        keys.packed(put.numbers),
        *chunks(put.chunks),
        put.refers,
        put.size,
        refused,
        put.base,
        mark(put),
        arrays.bigint(put.fence),
        _consumed(put),
        put.follows or None,
        put.edge or None,
    )


def write_rows(writes: Sequence[tuple[str, WriteRow]]) -> tuple[arrays.Array, ...]:
    return (
        arrays.texts(ns for ns, _ in writes),
        arrays.texts(w.id for _, w in writes),
        arrays.texts(w.task for _, w in writes),
        arrays.ints(w.slot for _, w in writes),
        arrays.texts(w.path for _, w in writes),
        arrays.ints(w.n for _, w in writes),
        arrays.byteas(w.digest for _, w in writes),
        arrays.byteas(keys.packed(w.numbers) for _, w in writes),
        arrays.byteas(w.blob for _, w in writes),
    )


def one_write(item: PutWrites, row: WriteRow, slot: int) -> tuple[object, ...]:
    return (
        item.place.thread.key,
        arrays.text(item.place.ns),
        arrays.text(row.id),
        arrays.text(row.task),
        arrays.int_(slot),
        arrays.text(row.path),
        arrays.int_(row.n),
        row.digest,
        keys.packed(row.numbers),
        row.blob,
        *chunks([chunk for chunk in item.chunks if chunk.no in row.numbers]),
        arrays.bigint(item.fence),
    )


def rewritten(rows: Rewritten) -> tuple[object, ...]:
    former = rows.former
    return (
        arrays.texts(former.get(r.ns, r.ns) for _, r, _ in rows.records),
        arrays.texts(r.ns for _, r, _ in rows.records),
        arrays.texts(r.id for _, r, _ in rows.records),
        arrays.byteas(old for old, _, _ in rows.records),
        arrays.byteas(r.digest for _, r, _ in rows.records),
        arrays.byteas(r.record for _, r, _ in rows.records),
        arrays.texts(meta for _, _, meta in rows.records),
        arrays.byteas(keys.packed(r.numbers) for _, r, _ in rows.records),
        arrays.texts(ns for ns, _ in rows.gone),
        arrays.texts(w.id for _, w in rows.gone),
        arrays.texts(w.task for _, w in rows.gone),
        arrays.ints(w.slot for _, w in rows.gone),
        arrays.byteas(w.digest for _, w in rows.gone),
        rows.exact,
        arrays.ints(place + 1 for place, _, _ in rows.writes),
        arrays.texts(ns for _, ns, _ in rows.writes),
        arrays.texts(w.id for _, _, w in rows.writes),
        arrays.texts(w.task for _, _, w in rows.writes),
        arrays.ints(w.slot for _, _, w in rows.writes),
        arrays.texts(w.path for _, _, w in rows.writes),
        arrays.ints(w.n for _, _, w in rows.writes),
        arrays.byteas(w.digest for _, _, w in rows.writes),
        arrays.byteas(w.blob for _, _, w in rows.writes),
        arrays.byteas(keys.packed(w.numbers) for _, _, w in rows.writes),
        *chunks(rows.chunks),
        arrays.texts(former.get(ns, ns) for ns in rows.heads),
        arrays.texts(rows.heads),
        arrays.texts(head.id for head in rows.heads.values()),
        arrays.byteas(head.digest for head in rows.heads.values()),
        arrays.byteas(head.seal for head in rows.heads.values()),
        arrays.byteas(r.edge or None for _, r, _ in rows.records),
    )


def chunks(chunks: Sequence[ChunkRow]) -> tuple[arrays.Array, ...]:
    return (
        arrays.bigints(c.no for c in chunks),
        arrays.byteas(c.digest for c in chunks),
        arrays.byteas(c.blob for c in chunks),
    )


def record_rows(rows: Sequence[RecordRow]) -> tuple[arrays.Array, ...]:
    return (
        arrays.texts(r.ns for r in rows),
        arrays.texts(r.id for r in rows),
        arrays.bigints(r.seq for r in rows),
        arrays.texts(r.parent for r in rows),
        arrays.byteas(r.digest for r in rows),
        arrays.byteas(r.record for r in rows),
        arrays.byteas(keys.packed(r.numbers) for r in rows),
        arrays.bools(r.refused for r in rows),
        arrays.byteas(r.edge or None for r in rows),
    )


def edges(edges: Sequence[Edge]) -> tuple[arrays.Array, ...]:
    return (
        *pairs([(e.ns, e.id) for e in edges]),
        arrays.byteas(e.digest for e in edges),
        arrays.byteas(e.signed or None for e in edges),
    )
