"""The durable tier: words to statements and rows to words, over any `Sql`."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ..decisions import keys, projection
from ..decisions.codec import differing_slot
from ..ports import Sql
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
    Won,
    WriteRow,
)
from . import arrays, bind
from .data_keys import PostgresKeys
from .events import PostgresEvents
from .leases import PostgresLeases
from .outcomes import Seen, Standing, outcome
from .scrub import PostgresScrub
from .statements import schema_sql

VERSION = 4
_LARGEST = 2**31 - 1


class PostgresTier(PostgresLeases, PostgresEvents, PostgresKeys, PostgresScrub):
    """Implements `Durable`.

    Args:
        sql: runs the statements of `sql/queries.sql`.
        schema: the schema of the tables.
    """

    def __init__(self, sql: Sql, schema: str) -> None:
        self._sql = sql
        self._schema = schema

    async def setup(self) -> None:
        if not await self._is_current():
            await self._sql.script(schema_sql(self._schema))

    async def ping(self) -> None:
        await self._sql.ping()

    async def _is_current(self) -> bool:
        if (await self._sql.fetch("installed", ()))[0][0] is None:
            return False
        return ((await self._sql.fetch("version", ()))[0][0] or 0) >= VERSION

    # -- writing -----------------------------------------------------------------------------

    async def commit(self, batch: Sequence[Put | PutWrites]) -> list[Outcome]:
        if len(batch) == 1:
            item = batch[0]
            if isinstance(item, Put):
                return [await self._put_one(item)]
            if len(item.rows) == 1:
                return [await self._write_one(item)]
        puts, writes = _sorted_out(batch)
        rows = await self._sql.fetch("commit", bind.commit(puts, writes))
        return await self._told(batch, rows)

    async def _told(
        self, batch: Sequence[Put | PutWrites], rows: Sequence[tuple[Any, ...]]
    ) -> list[Outcome]:
        """What became of each item, told from what the batch statement returned."""
        puts, writes = _sorted_out(batch)
        told = {row[0]: row[1:8] for row in rows if row[0] is not None}
        first, fenced, ahead = _told_of_writes(rows)
        outcomes: dict[int, Outcome] = {}
        for ord, put in enumerate(puts, 1):
            outcomes[id(put)] = await outcome(self, put, _seen(*told[ord]))
        for item in writes:
            if (item.place.thread.key, item.fence) in fenced:
                outcomes[id(item)] = Fenced()
            elif (token := ahead.get((item.place.thread.key, item.place.ns))) is not None:
                outcomes[id(item)] = Ahead(token)
            else:
                outcomes[id(item)] = await self._store_differing(item, first)
        return [outcomes[id(item)] for item in batch]

    async def _put_one(self, put: Put) -> Outcome:
        if _only_moves(put) and (rows := await self._sql.fetch("move_one", bind.move(put))):
            return Won(rows[0][0])
        rows = await self._sql.fetch("put_one", bind.one(put))
        return await outcome(self, put, _seen(*rows[0]))

    async def _write_one(self, item: PutWrites) -> Outcome:
        row = item.rows[0]
        params = bind.one_write(item, row, row.slot)
        stored, fenced, ahead = (await self._sql.fetch("write_one", (*params, item.spell)))[0]
        if fenced:
            return Fenced()
        if ahead is not None:
            return Ahead(ahead)
        return Stored() if stored else await self._store_differing(item, set())

    async def standing(self, put: Put, id: str) -> Standing:
        params = (put.place.thread.key, put.place.ns, id)
        return Standing(*(await self._sql.fetch("standing", params))[0])

    async def keep_aside(self, put: Put, refused: bool) -> int | None:
        rows = await self._sql.fetch("keep", bind.keep(put, refused))
        return rows[0][0] if rows else None

    async def _store_differing(self, item: PutWrites, first: set[tuple[Any, ...]]) -> Outcome:
        """Stores an ordinary batch that was not its task's first, unless it is there."""
        where = (item.place.thread.key, item.place.ns, item.id)
        stored = True
        for row in item.rows:
            if row.slot == 0 and (*where, row.task) not in first:
                params = bind.one_write(item, row, differing_slot(row.digest))
                stored, fenced = (await self._sql.fetch("differ", params))[0]
                if fenced:
                    return Fenced()
        return Stored(repeated=not stored)

    # -- reading -----------------------------------------------------------------------------

    async def read(
        self, place: Place, id: str | None, held: Digest, most: int | None
    ) -> Found | None:
        params: tuple[object, ...] = (
            place.thread.key,
            place.ns,
            held,
            _LARGEST if most is None else most,
        )
        if id is None:
            rows = await self._sql.fetch("read_head", params)
        else:
            rows = await self._sql.fetch("read_one", (*params, id))
        return _found(place.ns, rows)

    async def page(self, listing: Listing) -> Page:
        if listing.thread is not None:
            return await self._list_thread(listing.thread, listing, listing.after)
        after = listing.after
        start = UUID(int=after[0].int - 1) if after and after[0].int else None
        while (thread := await self._next_thread(start, listing.tenant or "")) is not None:
            inside = after if after and after[0] == thread.key else None
            page = await self._list_thread(thread, listing, inside)
            if page.rows:
                return page
            start = thread.key
        return Page((), {}, {})

    async def _next_thread(self, after: UUID | None, tenant: str) -> Thread | None:
        rows = await self._sql.fetch("list_next_thread", (after, keys.encoded(tenant)))
        return _thread(rows[0]) if rows else None

    async def _list_thread(
        self, thread: Thread, listing: Listing, after: tuple[UUID, str, int] | None
    ) -> Page:
        params = (
            thread.key,
            listing.ns,
            listing.id,
            listing.before,
            arrays.texts(listing.filter.keys()),
            arrays.texts(listing.filter.values()),
            after[1] if after else None,
            after[2] if after else None,
            listing.limit,
        )
        found = await self._sql.fetch("list_thread", params)
        rows = [
            RecordRow(ns, id, parent, seq, digest, record, _unpacked(chunks), *rest)
            for _, ns, id, parent, seq, digest, record, chunks, _, *rest in found
        ]
        ids = [(row.ns, row.id) for row in rows]
        writes = await self._writes(thread, ids)
        wanted = _numbers(rows) | _numbers(w for batch in writes.values() for w in batch)
        chunks = await self._chunks(thread, wanted, listing.light)
        ahead = bool(found and found[0][8])
        return Page(tuple((thread, row) for row in rows), chunks, writes, ahead)

    async def rest(
        self, place: Place, ids: Sequence[str], numbers: Sequence[int], light: Sequence[int]
    ) -> Page:
        writes = await self._writes(place.thread, [(place.ns, id) for id in ids])
        wanted = {*numbers, *_numbers(w for batch in writes.values() for w in batch)}
        chunks = await self._chunks(place.thread, {*light} - wanted, light=True)
        return Page((), chunks | await self._chunks(place.thread, wanted, light=False), writes)

    async def _writes(
        self, thread: Thread, ids: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[WriteRow, ...]]:
        if not ids:
            return {}
        params = (thread.key, *bind.pairs(ids))
        found: defaultdict[tuple[str, str], list[WriteRow]] = defaultdict(list)
        for ns, id, task, slot, path, n, digest, data, chunks in await self._sql.fetch(
            "writes", params
        ):
            row = WriteRow(id, task, slot, path, n, digest, data, _unpacked(chunks))
            found[ns, id].append(row)
        return {where: tuple(rows) for where, rows in found.items()}

    async def _chunks(
        self, thread: Thread, numbers: Collection[int], light: bool
    ) -> dict[int, ChunkRow]:
        if not numbers:
            return {}
        params = (thread.key, arrays.bigints(sorted(numbers)), light)
        rows = await self._sql.fetch("chunks", params)
        return {no: ChunkRow(no, digest, data) for no, digest, data in rows}

    async def chain(self, place: Place, id: str, limit: int) -> list[RecordRow]:
        rows = await self._sql.fetch("chain", (place.thread.key, place.ns, id, limit))
        return [
            RecordRow(place.ns, id, parent, seq, digest, record, _unpacked(chunks), *rest)
            for id, parent, seq, digest, record, chunks, *rest in rows
        ]

    async def heads(self, thread: Thread) -> dict[str, Head]:
        rows = await self._sql.fetch("heads", (thread.key,))
        return {ns: Head(*head) for ns, *head in rows}

    # -- removing ----------------------------------------------------------------------------

    async def delete_thread(self, thread: Thread) -> dict[str, bool]:
        lock = ("lock_heads", (thread.key,))
        _, rows = await self._sql.transaction([lock, ("delete_thread", (thread.key,))])
        return dict(rows)

    async def runs(self, tenant: str, run_ids: Sequence[str]) -> list[tuple[Thread, str, str]]:
        texts = [projection.of_filter({"run_id": run_id})["run_id"] for run_id in run_ids]
        hashes = [
            hashlib.md5(json.loads(t).encode(), usedforsecurity=False).hexdigest() for t in texts
        ]
        params = (keys.encoded(tenant), arrays.texts(hashes), arrays.texts(texts))
        rows = await self._sql.fetch("runs", params)
        return [(_thread(row), row[5], row[6]) for row in rows]

    async def sign_head(self, place: Place, digest: Digest, seal: bytes) -> bool:
        params = (place.thread.key, place.ns, digest, seal)
        return bool(await self._sql.fetch("sign_head", params))

    async def remove(
        self,
        thread: Thread,
        doomed: Sequence[tuple[str, str]],
        seals: Mapping[Digest, bytes] = MappingProxyType({}),
        edges: Sequence[Edge] | None = None,
    ) -> bool:
        where = (thread.key, *bind.pairs(doomed))
        signed = arrays.byteas(seals), arrays.byteas(seals.values())
        steps = ["drop_heads", "sweep_chunks", "drop_thread"]
        removal: list[tuple[str, Sequence[object]]] = [
            ("sever", (thread.key, *bind.edges(edges or ()))),
            ("remove_checkpoints", where),
            ("settle_heads", (thread.key, *signed)),
            *((step, (thread.key,)) for step in steps),
        ]

        def alone(rows: Sequence[tuple[Any, ...]]) -> bool:
            return all(ahead is None for *_, ahead in rows)

        def able(rows: Sequence[Sequence[tuple[Any, ...]]]) -> list[tuple[str, Sequence[object]]]:
            left = {(ns, id, digest) for ns, id, _, _, digest, *_ in rows[-1]}
            return (
                removal if edges is None or left == {(e.ns, e.id, e.digest) for e in edges} else []
            )

        looks: list[tuple[str, Sequence[object]]] = [("lock_heads", (thread.key,))]
        looks += [("children", where)] if edges is not None else []
        done = await self._sql.transaction(looks, go_on=alone, then=able)
        return len(done) > len(looks)

    async def children(self, thread: Thread, doomed: Sequence[tuple[str, str]]) -> list[RecordRow]:
        rows = await self._sql.fetch("children", (thread.key, *bind.pairs(doomed)))
        return [
            RecordRow(ns, id, parent, seq, digest, record, _unpacked(chunks), refused)
            for ns, id, parent, seq, digest, record, chunks, refused in rows
        ]

    async def keep(
        self,
        thread: Thread,
        kept: Sequence[tuple[str, str]],
        heads: Mapping[str, Head],
        edges: Sequence[Edge] = (),
    ) -> bool:
        known = {ns: head.digest for ns, head in heads.items()}

        def unmoved(rows: Sequence[tuple[Any, ...]]) -> bool:
            return {ns: digest for ns, _, _, digest, _ in rows if digest} == known

        done = await self._sql.transaction(
            [
                ("lock_heads", (thread.key,)),
                ("sever", (thread.key, *bind.edges(edges))),
                ("remove_all_but", (thread.key, *bind.pairs(kept), arrays.texts(heads))),
                ("sweep_chunks", (thread.key,)),
            ],
            go_on=unmoved,
        )
        return len(done) > 1

    async def rewrite(self, thread: Thread, heads: Mapping[str, Head], rows: Rewritten) -> bool:
        known = {ns: (head.digest, None) for ns, head in heads.items()}

        def unmoved(found: Sequence[tuple[Any, ...]]) -> bool:
            return {ns: (digest, ahead) for ns, _, _, digest, ahead in found} == known

        done = await self._sql.transaction(
            [
                ("lock_heads", (thread.key,)),
                ("lock_checkpoints", (thread.key,)),
                ("rewrite", (thread.key, *bind.rewritten(rows))),
                ("sweep_chunks", (thread.key,)),
            ],
            go_on=unmoved,
        )
        return len(done) > 1 and bool(done[2][0][0])

    # -- what the hot tier may be ahead of ---------------------------------------------------

    async def mark_ahead(
        self, place: Place, token: bytes, accepted: Sequence[bytes], fence: int | None = None
    ) -> tuple[Head, bytes] | None:
        known = arrays.byteas(accepted)
        params = (place.thread.key, place.ns, token, known, arrays.bigint(fence))
        for id, seq, digest, ahead in await self._sql.fetch("mark_ahead", params):
            return Head(id, seq, digest), ahead
        return None

    async def progress(self, places: Sequence[Place]) -> dict[Place, Progress]:
        rows = await self._sql.fetch("progress", bind.places(places))
        by_key = {(place.thread.key, place.ns): place for place in places}
        return {by_key[tk, ns]: Progress(*rest) for tk, ns, *rest in rows}

    async def flush(
        self, advances: Sequence[Advance], batch: Sequence[Put | PutWrites]
    ) -> list[Outcome] | None:
        rows = await self._sql.transaction(
            [
                ("advance", bind.advances(advances)),
                ("commit", bind.commit(*_sorted_out(batch))),
            ],
            go_on=lambda found: len(found) == len(advances),
            then=lambda rows: _left(batch, rows[1]),
        )
        return await self._told(batch, rows[1]) if len(rows) > 1 else None

    async def clear_ahead(self, place: Place, token: bytes) -> bool:
        return bool(await self._sql.fetch("clear_ahead", (place.thread.key, place.ns, token)))

    async def ahead(self, thread: UUID | None, limit: int) -> list[Waiting]:
        rows = await self._sql.fetch("ahead", (thread, limit))
        return [
            Waiting(Place(Thread(*_names(tenant, id), key), ns), token, since, head)
            for key, tenant, id, ns, token, since, head in rows
        ]

    async def move_head(self, place: Place, expected: Digest, to: Head) -> bool:
        params = (place.thread.key, place.ns, expected, to.id, to.digest, to.seal)
        return bool(await self._sql.fetch("move_head", params))

    # -- copying -----------------------------------------------------------------------------

    async def copy(
        self,
        source: Thread,
        target: Thread,
        rows: Sequence[RecordRow],
        writes: Sequence[tuple[str, WriteRow]],
        heads: Sequence[tuple[str, str]],
        seals: Sequence[bytes] = (),
    ) -> None:
        numbers = {*_numbers(rows), *_numbers(w for _, w in writes)}
        chunks = (source.key, target.key, arrays.bigints(sorted(numbers)))
        steps: list[tuple[str, Sequence[object]]] = [
            ("copy_thread", bind.thread(target)),
            ("copy_chunks", chunks),
            ("copy_rows", (source.key, target.key, *bind.record_rows(rows))),
            ("copy_writes", (target.key, *bind.write_rows(writes))),
        ]
        if heads:
            signed = arrays.byteas(seals or [b""] * len(heads))
            steps.append(("copy_heads", (target.key, *bind.pairs(heads), signed)))
            steps.append(("copied", (target.key, len(heads))))
        await self._sql.transaction(steps)


def _told_of_writes(
    rows: Sequence[tuple[Any, ...]],
) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]], dict[tuple[Any, ...], bytes]]:
    """What the batch statement returned of writes: the first batches that it stored, threads with
    the fences that are no longer their lease's, and places with the spell in which Redis may be
    ahead, which the writes do not come from."""
    told = [row[1:] for row in rows if row[0] is None]
    first = {row[7:11] for row in told if row[5] is None and not row[6]}
    fenced = {(row[7], row[0]) for row in told if row[6]}
    ahead = {row[7:9]: row[5] for row in told if row[5] is not None}
    return first, fenced, ahead


def _left(
    batch: Sequence[Put | PutWrites], rows: Sequence[tuple[Any, ...]]
) -> list[tuple[str, tuple[object, ...]]]:
    """What stores the rest of a batch of which the batch statement returned `rows`: the puts that
    did not win, and the batches that were not their task's first."""
    puts, writes = _sorted_out(batch)
    won = {row[0] for row in rows if row[0] is not None and row[1] is not None}
    first, _, _ = _told_of_writes(rows)
    aside = [put for ord, put in enumerate(puts, 1) if ord not in won]
    later = [
        (item, row)
        for item in writes
        for row in item.rows
        if row.slot == 0 and (item.place.thread.key, item.place.ns, item.id, row.task) not in first
    ]
    return [
        *(("keep", bind.keep(put, put.claim is not Claim.ASIDE)) for put in aside),
        *(("differ", bind.one_write(i, row, differing_slot(row.digest))) for i, row in later),
    ]


def _sorted_out(batch: Sequence[Put | PutWrites]) -> tuple[list[Put], list[PutWrites]]:
    puts = [item for item in batch if isinstance(item, Put)]
    return puts, [item for item in batch if isinstance(item, PutWrites)]


def _only_moves(put: Put) -> bool:
    """Whether a put asks for no more than that the head is where its run left it."""
    bare = put.fence is None and put.spell is None and not (put.follows or put.edge)
    return put.claim is Claim.HEAD and put.needs is None and bare


def _names(tenant: bytes | None, id: bytes | None) -> tuple[str, str]:
    """The names of a thread; empty while it has no entry."""
    return keys.legible(tenant or b""), keys.legible(id or b"")


def _thread(row: Sequence[Any]) -> Thread:
    key, tenant, id, user, session = row[:5]
    owners = (None if o is None else keys.legible(o) for o in (user, session))
    return Thread(keys.legible(tenant), keys.legible(id), key, *owners)


def _numbers(rows: Iterable[RecordRow | WriteRow]) -> set[int]:
    return {no for row in rows for no in row.numbers}


def _unpacked(data: bytes) -> tuple[int, ...]:
    """Chunk numbers; none if they are damaged, which then do not fit what they belong to."""
    try:
        return keys.unpacked(data)
    except ValueError:
        return ()


def _found(ns: str, rows: Sequence[tuple[Any, ...]]) -> Found | None:
    head = None
    row = None
    numbers: tuple[int, ...] = ()
    chunks = {}
    writes = []
    ahead = None
    for kind, a, b, c, d, e, f, g, h, i, j, k, seal in rows:
        if kind == 0:
            head, ahead = Head(b, a, c, seal), k
            numbers = _unpacked(i) if i is not None else ()
            if h is not None:
                row = RecordRow(ns, d, e, f, g, h, numbers, j)
            elif d is None and c:
                row = RecordRow(ns, b, None, a, c, b"", ())  # a head without its record
        elif kind == 1:
            chunks[a] = ChunkRow(a, c, h)
        elif kind == 3:
            return Found(Head(b, a, c), None, (), {}, (), lost=True)
        else:
            writes.append((a, b, c, d, f, h, i))
    if head is None:
        return None
    found = [WriteRow(head.id, b, a, d, f, c, h, _unpacked(i)) for a, b, c, d, f, h, i in writes]
    return Found(head, row, numbers, chunks, tuple(found), ahead)


def _seen(
    seq: int | None,
    id: str | None,
    head_seq: int | None,
    digest: Digest | None,
    able: bool,
    ahead: bytes | None,
    fenced: bool,
) -> Seen:
    head = Head(id, head_seq, digest) if id and head_seq and digest else None
    return Seen(seq, head, able, ahead, fenced)
