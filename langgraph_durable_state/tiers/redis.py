"""The hot tier: whole copies of heads, served by digest and therefore never stale.

One hash per namespace: the record, its ids, and one field per chunk. A copy is changed only by a
script that compares digests first.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decisions import hotcopy, keys
from ..ports import Scripts
from ..words import PENDING, ChunkRow, Digest, Place, Put, RecordRow, Thread, Witnessed

_WITNESS = ":witness"

WITNESS_SECONDS = 30 * 24 * 60 * 60
"""A head that nobody wrote or read for so long has no witness any more."""
DROPPED_SECONDS = 60 * 60
"""No call that has seen a head is under way for so long before it has it witnessed."""
SPELL = ":spell"
"""Ends the key of what the hot tier knows of a namespace that it may be ahead of."""
WRITES = ":writes"
"""Ends the key of its pending writes."""


class RedisTier:
    """Implements `Hot`.

    Args:
        scripts: runs the scripts of `lua/`.
        prefix: stands before every key.
        ttl: seconds that a copy lives after it was last written.
        touch: whether a read lets it live on as well.
    """

    def __init__(self, scripts: Scripts, prefix: str, ttl: int, touch: bool) -> None:
        self._scripts = scripts
        self._prefix = prefix
        self._ttl = ttl
        self._touch = touch

    async def ping(self) -> None:
        await self._scripts.call("ping", [], [])

    async def raise_to(self, put: Put, seq: int, previous: Digest, dropped: Sequence[int]) -> bool:
        args: tuple[bytes | str | int, ...] = (
            previous,
            put.digest,
            seq,
            put.id,
            put.parent or "",
            put.record,
            keys.packed(put.numbers),
            self._ttl,
            len(dropped),
            *map(hotcopy.chunk_field, dropped),
            *fields(put.chunks),
        )
        return bool(await self._scripts.call("raise", self._keys(put.place), args))

    async def fill(self, place: Place, row: RecordRow, chunks: Sequence[ChunkRow]) -> None:
        args: tuple[bytes | str | int, ...] = (
            row.digest,
            row.seq,
            row.id,
            row.parent or "",
            row.record,
            keys.packed(row.numbers),
            self._ttl,
            *fields(chunks),
        )
        await self._scripts.call("fill", self._keys(place), args)

    async def fetch(
        self, place: Place, digest: Digest
    ) -> tuple[RecordRow, dict[int, ChunkRow]] | None:
        ttl = self._ttl if self._touch else ""
        flat = await self._scripts.call("fetch", [self._key(place)], [digest, ttl])
        if not flat:
            return None
        return hotcopy.copy_of(place.ns, named(flat))

    async def witness(self, place: Place) -> Witnessed:
        head, drops = await self._scripts.call("witness", _counted(self._witness(place)), [])
        return Witnessed(head or b"", drops or b"")

    async def raise_witness(self, place: Place, witness: bytes, force: bool, drops: bytes) -> bool:
        args = [witness, "1" if force else "", WITNESS_SECONDS, drops]
        names = _counted(self._witness(place))
        return bool(await self._scripts.call("raise_witness", names, args))

    async def drop_witnesses(
        self, thread: Thread | None, namespaces: Sequence[str] | None, before: bool
    ) -> None:
        args: list[bytes | str | int] = [DROPPED_SECONDS, PENDING if before else ""]
        if thread is None or namespaces is None:
            of = f"{{{thread.key.hex}}}:" if thread is not None else ""
            names = await self._scripts.find(f"{self._prefix}:{of}*{_WITNESS}")
        else:
            names = [self._witness(Place(thread, ns)) for ns in namespaces]
        for name in names:  # of all threads they are on several nodes of a cluster
            await self._scripts.call("drop_witness", _counted(name), args)

    def _witness(self, place: Place) -> str:
        return keys.hot_key(self._prefix, place, _WITNESS)

    async def drop(self, thread: Thread, namespaces: Sequence[str]) -> None:
        if namespaces:
            names = [self._key(Place(thread, ns)) for ns in namespaces]
            await self._scripts.call("drop", names, [])

    def _key(self, place: Place) -> str:
        return keys.hot_key(self._prefix, place)

    def _keys(self, place: Place) -> list[str]:
        return [self._key(place), keys.hot_key(self._prefix, place, SPELL)]


def _counted(witness: str) -> list[str]:
    """The key of a witness, and that of how often it was dropped lately."""
    return [witness, witness + ":drops"]


class Names:
    """The keys of what is held of a namespace and of a thread."""

    _prefix: str

    def _of_place(self, place: Place) -> list[str]:
        """Spell, copy and pending writes of a namespace."""
        return [keys.hot_key(self._prefix, place, what) for what in (SPELL, "", WRITES)]

    def _of_thread(self, thread: Thread) -> list[str]:
        """Outbox of a thread, its numbers, and the lease on flushing it."""
        return [
            keys.outbox_key(self._prefix, thread.key, what) for what in ("", ":first", ":lease")
        ]


def fields(chunks: Sequence[ChunkRow]) -> list[bytes]:
    """Chunks as fields and values."""
    return [part for c in chunks for part in (hotcopy.chunk_field(c.no), hotcopy.chunk_value(c))]


def named(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """The fields of a hash, of what Redis answers."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
