"""The stored form of an outbox entry: an acknowledged item that the hot tier alone may hold.

What the hot tier's script decides stands in a prefix that it writes itself: how the put fared
there, the spell's token, the digest of the head that it advanced, and its number in the spell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import ormsgpack

from ..errors import EvolutionError
from ..words import ChunkRow, Claim, Digest, Entry, Place, Put, PutWrites, Thread, WriteRow
from . import keys
from .codec import DAMAGE, unreadable

FORMAT = 2
"""Format 1 lacks the signature, and is what has none."""

ADVANCED = b"h"
"""It advanced a head of known digest."""
OPENED = b"e"
"""It advanced a head that there was not."""
UNKNOWN = b"a"
"""It advanced a head that nobody could be asked about."""
ASIDE = b"k"
REFUSED = b"r"
WRITES = b"w"

NEVER: Digest = b"\xff" * 16
"""The digest of no checkpoint: a put that expects it is kept beside the head."""

Item = TypeVar("Item", bound="Place | Put | PutWrites | WriteRow | ChunkRow")

_TOKEN = 16
_DIGEST = 16
_NUMBER = 1 + _TOKEN + 16
_TIME = _NUMBER + 16
_PREFIX = _TIME + 16

_CLAIMS = {ADVANCED: Claim.HEAD, OPENED: Claim.EMPTY, UNKNOWN: Claim.ANY}


def pack_item(item: Put | PutWrites) -> bytes:
    """The bytes of an item."""
    fields = _put(item) if isinstance(item, Put) else _writes(item)
    known = FORMAT if isinstance(item, Put) and item.seal else 1
    return ormsgpack.packb((known, _thread(item.place.thread), item.place.ns, item.id, *fields))


def _put(put: Put) -> tuple[Any, ...]:
    return (
        put.parent,
        put.digest,
        put.record,
        put.metadata,
        keys.packed(put.numbers),
        _chunks(put.chunks),
        put.size,
        put.refers,
        put.base,
        None if put.base_numbers is None else keys.packed(put.base_numbers),
        b"".join(put.consumed),
        *((put.seal,) if put.seal else ()),
    )


def _writes(item: PutWrites) -> tuple[Any, ...]:
    rows = [
        (r.task, r.slot, r.path, r.n, r.digest, r.blob, keys.packed(r.numbers)) for r in item.rows
    ]
    return rows, _chunks(item.chunks)


def _thread(thread: Thread) -> tuple[bytes | None, ...]:
    names = (thread.tenant, thread.id, thread.user, thread.session)
    return tuple(None if name is None else keys.encoded(name) for name in names)


def _read_thread(tenant: bytes, id: bytes, *owners: bytes | None) -> Thread:
    user, session = (None if name is None else keys.decoded(name) for name in owners)
    return keys.named(keys.decoded(tenant), keys.decoded(id), user, session)


def _chunks(chunks: tuple[ChunkRow, ...]) -> list[tuple[Any, ...]]:
    return [(c.no, c.digest, c.blob) for c in chunks]


def read_entry(data: bytes) -> Entry:
    """The entry of stored bytes.

    Raises:
        Unsound: if they are not what was written.
        EvolutionError: if they were written by a newer version of this library.
    """
    kind, token, before = data[:1], data[1 : 1 + _TOKEN], data[1 + _TOKEN : _NUMBER]
    try:
        if not data[_NUMBER:_TIME].isdigit():
            raise ValueError("its number is none")  # scripts take other texts for numbers
        number = int(data[_NUMBER:_TIME])
        known, *rest = ormsgpack.unpackb(data[_PREFIX:])
        if known > FORMAT:
            raise EvolutionError(f"outbox format {known} was written by a newer version")
        names, ns, id, *fields = rest
        place = _checked(Place(_read_thread(*names), ns))
        if kind == WRITES:
            writes = _read_writes(place, id, *fields)
            return Entry(replace(writes, spell=token), token, number)
        put = _decided(replace(_read_put(place, id, *fields), spell=token), kind, before)
    except DAMAGE as error:
        raise unreadable(None, "an outbox entry", error) from error
    return Entry(put, token, number, kind in _CLAIMS, refused=kind == REFUSED)


def repacked(data: bytes, item: Put | PutWrites) -> bytes:
    """The stored bytes of an entry with another item in it, decided as it was."""
    return data[:_PREFIX] + pack_item(item)


def _decided(put: Put, kind: bytes, before: bytes) -> Put:
    """A put under the claim by which the durable head must follow the hot one."""
    if kind == REFUSED:
        return replace(put, claim=Claim.HEAD, expected=NEVER)
    if kind == ASIDE:
        return replace(put, claim=Claim.ASIDE)
    expected = before if kind == ADVANCED else b""
    covered = kind == ADVANCED and put.base == before
    return replace(put, claim=_CLAIMS[kind], expected=expected, covered=covered)


def renumbered(put: Put, numbers: tuple[int, ...]) -> Put:
    """A put whose parent is stored under these chunk numbers."""
    before = put.base_numbers or ()
    if before == numbers or len(before) != len(numbers):
        return put
    own = {chunk.no for chunk in put.chunks}
    now = {old: new for old, new in zip(before, numbers, strict=True) if old not in own}
    return replace(put, numbers=tuple(now.get(no, no) for no in put.numbers), base_numbers=numbers)


def _read_put(place: Place, id: str, *fields: Any) -> Put:
    parent, digest, record, metadata, numbers, chunks, size, refers, base, *rest = fields
    before, made, seal = (*rest, b"")[:3]
    made, seal = b"".join((made,)), b"".join((seal,))  # nothing but bytes
    put = Put(
        place,
        id,
        parent,
        Claim.ANY,
        b"",
        digest,
        record,
        metadata,
        keys.unpacked(numbers),
        _read_chunks(chunks),
        size,
        refers,
        base,
        False,
        None if before is None else keys.unpacked(before),
        consumed=tuple(made[i : i + _DIGEST] for i in range(0, len(made), _DIGEST)),
        seal=seal,
    )
    return _checked(put)


def _read_writes(place: Place, id: str, rows: Any, chunks: Any) -> PutWrites:
    read = tuple(
        _checked(WriteRow(id, task, slot, path, n, digest, blob, keys.unpacked(numbers)))
        for task, slot, path, n, digest, blob, numbers in rows
    )
    return _checked(PutWrites(place, id, read, _read_chunks(chunks)))


def _read_chunks(chunks: Any) -> tuple[ChunkRow, ...]:
    return tuple(_checked(ChunkRow(*chunk)) for chunk in chunks)


# -- pending writes in the hot tier ----------------------------------------------------------


def write_field(id: str, task: str, slot: int) -> bytes:
    """The name of a row of pending writes among those of its namespace."""
    return b"\x00".join((id.encode(), task.encode(), str(slot).encode()))


def pack_write(row: WriteRow, chunks: tuple[ChunkRow, ...]) -> bytes:
    """A row with its chunks; its digest comes first, for a script to compare."""
    own = [c for c in chunks if c.no in row.numbers]
    fields = (row.path, row.n, row.blob, keys.packed(row.numbers), _chunks(tuple(own)))
    return row.digest + ormsgpack.packb(fields)


def damaged_write(name: bytes) -> WriteRow | None:
    """A row of pending writes that cannot be read, as one that nothing proves; None if not even
    its name can be."""
    try:
        id, task, slot = (part.decode() for part in name.split(b"\x00"))
        return WriteRow(id, task, int(slot), "", 0, b"", b"", ())
    except DAMAGE:
        return None


def read_write(name: bytes, data: bytes) -> tuple[WriteRow, tuple[ChunkRow, ...]]:
    """The inverse of `write_field` and `pack_write`.

    Raises:
        Unsound: if these are not bytes that they made.
    """
    try:
        id, task, slot = (part.decode() for part in name.split(b"\x00"))
        path, n, blob, numbers, chunks = ormsgpack.unpackb(data[16:])
        row = WriteRow(id, task, int(slot), path, n, data[:16], blob, keys.unpacked(numbers))
        return _checked(row), _read_chunks(chunks)
    except DAMAGE as error:
        raise unreadable(None, "a hot write", error) from error


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bytes": (bytes,),
    "Digest": (bytes,),
    "int": (int,),
    "str | None": (str, type(None)),
}
"""What a field may hold, by what it is annotated with."""


_HELD: Mapping[type, Sequence[tuple[str, tuple[type, ...]]]] = {
    made: [(field.name, _KINDS[str(field.type)]) for field in fields(made) if field.type in _KINDS]
    for made in (Place, Put, PutWrites, WriteRow, ChunkRow)
}
"""What the fields may hold of what is read here, where that is known."""


def _checked(item: Item) -> Item:
    """`item`, if each of its fields holds what it should: msgpack takes anything for anything.

    Raises:
        TypeError: if one does not.
        ValueError: if one is a text that Postgres does not take.
    """
    for name, kinds in _HELD[type(item)]:
        held = getattr(item, name)
        if not isinstance(held, kinds):
            raise TypeError(f"{name} is of type {type(held).__name__}")
        if isinstance(held, str) and "\x00" in held:
            raise ValueError(f"{name} holds a NUL character")
    return item
