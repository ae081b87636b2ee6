"""Stored forms: blobs, records and write batches, and their verification on the way back.

Redis bytes equal Postgres bytes. A record names its chunks by position; their numbers stand
beside it in clear, so that a head is one query and pruning is SQL. Every format carries a
version; old ones are read for ever. A blob also names the key that its row's digest was made under.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import ormsgpack

from ..errors import EvolutionError
from ..words import ChunkRow, Digest, Place, RecordRow, Typed, WriteRow, frozen
from . import digest as digests
from .blobs import Blobs as Blobs
from .blobs import Compression as Compression
from .blobs import Unpacked
from .blobs import Unsound as Unsound
from .blobs import unreadable as unreadable
from .chunking import Channel, Shape
from .digest import PLAIN, Seal
from .keys import decoded, encoded
from .matching import Chunk, Piece

RECORD_FORMAT = 4
"""That of what is under a key. Other records are of format 3, or, without another form, of format
2, which lacks it, or, not counted either, of format 1, which lacks the count too. What is under a
key and of one of these was stored before there were edges, and needs none."""

DAMAGE = (ValueError, TypeError, AttributeError, LookupError)
"""What reading fails with if something else is there than was written."""


# -- chunks ----------------------------------------------------------------------------------


def chunk_row(chunk: Chunk, blobs: Blobs) -> ChunkRow:
    """The stored form of a chunk."""
    blob = blobs.pack(chunk.plain, chunk.count, chunk.seal, chunk.digest)
    return ChunkRow(chunk.no, chunk.digest, blob)


def chunk_of(row: ChunkRow, blobs: Blobs) -> Chunk:
    """The chunk of a stored row.

    Raises:
        Unsound: if its bytes are not those that its digest was made from.
    """
    chunk = content_of(row, blobs)
    if chunk.digest != row.digest:
        raise Unsound(None, f"the digest of chunk {row.no} does not match its bytes")
    return chunk


def content_of(row: ChunkRow, blobs: Blobs) -> Chunk:
    """The chunk that stored bytes make, whatever its row says of them.

    Raises:
        Unsound: if they make none.
    """
    data, count, seal = blobs.unpack(row.blob, row.digest)
    return Chunk(row.no, data, count, digest=row.digest if seal.hides else None, seal=seal)


def bare_chunk(row: ChunkRow) -> Chunk:
    """The chunk of a row whose data was left out but for its header."""
    return Chunk.bare(row.no, row.digest, int.from_bytes(row.blob[1:3]))


# -- channels --------------------------------------------------------------------------------


def _entry(channel: Channel) -> tuple[Any, ...]:
    partial = [(i, p.start, p.stop) for i, p in enumerate(channel.pieces) if not p.full]
    head = (encoded(channel.name), channel.tag, channel.shape[0], channel.inline)
    return (*head, len(channel.pieces), partial) if channel.pieces else head


_SHAPES: Mapping[str, Shape] = {"i": "inline", "w": "whole", "a": "array", "m": "map"}


def _channel(
    entry: Sequence[Any],
    version: Callable[[str], Any],
    numbers: Sequence[int],
    chunks: Mapping[int, Chunk],
) -> Channel:
    name = decoded(entry[0])
    parts = {i: (start, stop) for i, start, stop in (entry[5] if len(entry) > 4 else ())}
    pieces = []
    for i, no in enumerate(numbers):
        chunk = chunks.get(no)
        if chunk is None:
            raise Unsound(name, f"chunk {no} is missing")
        pieces.append(Piece(chunk, *parts.get(i, (0, chunk.count))))
    shape = _SHAPES[entry[2]]
    return Channel(name, version(name), entry[1], shape, entry[3], tuple(pieces))


def _count(entry: Sequence[Any]) -> int:
    return int(entry[4]) if len(entry) > 4 else 0


def _channels(
    entries: Sequence[Sequence[Any]],
    version: Callable[[str], Any],
    numbers: Sequence[int],
    chunks: Mapping[int, Chunk],
) -> tuple[Channel, ...]:
    if sum(map(_count, entries)) != len(numbers):
        raise Unsound(None, "the manifest and the chunk numbers do not fit each other")
    out, at = [], 0
    for entry in entries:
        n = _count(entry)
        out.append(_channel(entry, version, numbers[at : at + n], chunks))
        at += n
    return tuple(out)


def numbers_of(channels: Sequence[Channel]) -> tuple[int, ...]:
    """The chunk numbers of `channels`, in the manifest's order."""
    return tuple(p.chunk.no for channel in channels for p in channel.pieces)


# -- records ---------------------------------------------------------------------------------


@frozen
class Form:
    """A checkpoint in the shape of a version of the state."""

    schema_version: int
    body: Typed
    metadata: Typed
    channels: tuple[Channel, ...]

    def digest(self, seal: Seal) -> Digest:
        digests = (channel.digest(seal) for channel in self.channels)
        return seal.of_form(self.schema_version, self.body, self.metadata, digests)


@frozen
class Record:
    """One checkpoint with its chunks, in the form in which it is stored.

    ``consumed`` are the digests of the parent's pending writes that this checkpoint's run loaded
    or made; None if its writer could not tell, which stands for all of them. ``seal`` is what its
    digest is made under. Under a key ``count`` says how often the head had moved by then, itself
    included. ``other`` is its form in an older version of the state, for code that knows no newer.
    ``edged`` if its parent may not be missing without an edge that says why.
    """

    place: Place
    id: str
    parent: str | None
    parent_digest: Digest
    schema_version: int
    body: Typed
    metadata: Typed
    channels: tuple[Channel, ...]
    consumed: tuple[Digest, ...] | None
    seal: Seal = PLAIN
    count: int = 0
    other: Form | None = None
    edged: bool = False

    def digest(self) -> Digest:
        return self.seal.of_record(
            self.place,
            self.id,
            self.parent,
            self.parent_digest,
            self.schema_version,
            self.body,
            self.metadata,
            (channel.digest(self.seal) for channel in self.channels),
            self.consumed,
            self.count,
            None if self.other is None else self.other.digest(self.seal),
            self.edged,
        )

    def known_to(self, version: int) -> Record:
        """As code of a version can read it: in its other form, if that alone is old enough."""
        other = self.other
        if self.schema_version <= version or other is None or other.schema_version > version:
            return self
        of = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(self, **of, other=None)

    @property
    def versions(self) -> set[int]:
        """Those of the user's state that it is stored in."""
        other = self.other
        return {self.schema_version} | ({other.schema_version} if other is not None else set())

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        """Those of its other form too."""
        return self.channels + (self.other.channels if self.other is not None else ())

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its chunks' numbers, in the manifest's order."""
        return numbers_of(self.all_channels)

    def by_name(self) -> dict[str, Channel]:
        return {channel.name: channel for channel in self.channels}

    def chunks(self) -> dict[int, Chunk]:
        """Its chunks by number."""
        return {p.chunk.no: p.chunk for channel in self.all_channels for p in channel.pieces}

    @property
    def size(self) -> int:
        """Plain bytes held by it, what its chunks share with others included."""
        held = sum(len(p.chunk.plain) for c in self.channels for p in c.pieces)
        return held + len(self.body.data) + len(self.metadata.data)


def pack_record(record: Record, blobs: Blobs, digest: Digest) -> bytes:
    """The bytes of the `record` column of a record with this digest: all but the ids, which stand
    in columns of their own."""
    other = record.other
    format = 4 if record.edged else 3 if other is not None else 2 if record.count else 1
    version, *form = _packed_form(record)
    plain = ormsgpack.packb(
        (
            format,
            version,
            record.parent_digest,
            *form,
            None if record.consumed is None else b"".join(record.consumed),
            *((record.count,) if format > 1 else ()),
            *((None if other is None else _packed_form(other),) if format > 2 else ()),
        )
    )
    return blobs.pack(plain, seal=record.seal, digest=digest)


def _packed_form(form: Record | Form) -> tuple[Any, ...]:
    return (
        form.schema_version,
        (form.body.tag, form.body.data),
        (form.metadata.tag, form.metadata.data),
        [_entry(channel) for channel in form.channels],
        [channel.version for channel in form.channels],
    )


@frozen
class FormParts:
    """What is stored of a checkpoint in one version of the state; nothing proves it here."""

    schema_version: int
    body: tuple[str, bytes]
    metadata: tuple[str, bytes]
    entries: Sequence[Sequence[Any]]
    versions: Sequence[Any]

    @property
    def count(self) -> int:
        """Of chunk numbers."""
        return sum(map(_count, self.entries))

    def form(self, numbers: Sequence[int], chunks: Mapping[int, Chunk]) -> Form:
        by_name = {decoded(e[0]): v for e, v in zip(self.entries, self.versions, strict=True)}
        channels = _channels(self.entries, by_name.__getitem__, numbers, chunks)
        return Form(self.schema_version, Typed(*self.body), Typed(*self.metadata), channels)


@frozen
class RecordParts:
    """The fields of a row's `record` column; nothing proves them here."""

    format: int
    parent_digest: Digest
    form: FormParts
    consumed: bytes | None
    count: int
    other: FormParts | None

    def known_to(self, version: int) -> tuple[FormParts, int]:
        """The form that code of a version can read, and where its chunk numbers begin."""
        if self.form.schema_version > version and self.other is not None:
            return self.other, self.form.count
        return self.form, 0

    def present(
        self, numbers: Sequence[int], version: int | None = None
    ) -> dict[str, tuple[int, ...]]:
        """The channels that it holds a value of, with their chunk numbers out of the row's; as code
        of a version knows them, if one is given.

        Raises:
            Unsound: if they cannot be read.
        """
        out = {}
        try:
            form, at = self.known_to(version) if version is not None else (self.form, 0)
            for entry in form.entries:
                n = _count(entry)
                out[decoded(entry[0])] = tuple(numbers[at : at + n])
                at += n
        except DAMAGE as error:
            raise unreadable(None, "the manifest", error) from error
        return out


def record_parts(row: RecordRow, blobs: Blobs) -> RecordParts:
    """The fields of a row's `record` column.

    Raises:
        Unsound: if it cannot be read.
        EvolutionError: if it was written by a newer version of this library.
    """
    return _parts(blobs.unpack(row.record, row.digest))


def _parts(unpacked: Unpacked) -> RecordParts:
    try:
        parts = ormsgpack.unpackb(unpacked.data)
        known = int(parts[0]) if isinstance(parts, list) and len(parts) >= 8 else 0
    except (ValueError, TypeError, IndexError) as error:
        raise unreadable(None, "the record", error) from error
    if known > RECORD_FORMAT:
        raise EvolutionError(f"record format {known} was written by a newer version")
    if len(parts) != {1: 8, 2: 9, 3: 10, 4: 10}.get(known):
        raise Unsound(None, "the record has no format that this library wrote")
    try:
        whole: list[Any] = [*parts, *(0, None)[known - 1 :]]
        _, version, parent_digest, *form, consumed, count, other = whole
        beside = None if other is None else FormParts(*other)
        return RecordParts(known, parent_digest, FormParts(version, *form), consumed, count, beside)
    except DAMAGE as error:
        raise unreadable(None, "the record", error) from error


def read_record(place: Place, row: RecordRow, chunks: Mapping[int, Chunk], blobs: Blobs) -> Record:
    """The record of a stored row, proven to be the one its digest was made from.

    Raises:
        Unsound: if anything of it is missing or is not what was written.
        EvolutionError: if it was written by a newer version of this library.
    """
    unpacked = blobs.unpack(row.record, row.digest)
    _check_tenant(place, unpacked.seal)
    parts = _parts(unpacked)
    try:
        at = parts.form.count if parts.other is not None else len(row.numbers)
        form = parts.form.form(row.numbers[:at], chunks)
        other = None if parts.other is None else parts.other.form(row.numbers[at:], chunks)
        consumed = parts.consumed
        record = Record(
            place,
            row.id,
            row.parent,
            parts.parent_digest,
            form.schema_version,
            form.body,
            form.metadata,
            form.channels,
            None if consumed is None else _split(consumed),
            unpacked.seal,
            parts.count,
            other,
            parts.format > 3,
        )
        actual = record.digest()
    except DAMAGE as error:
        raise unreadable(None, "the record", error) from error
    if actual != row.digest:
        raise Unsound(None, "the record's digest does not match its content")
    return record


def _check_tenant(place: Place, seal: Seal) -> None:
    if not seal.serves(place.thread.tenant):
        raise Unsound(None, "it is under the key of another tenant")


def channel_of_number(row: RecordRow, bad: set[int], blobs: Blobs) -> str | None:
    """The name of the first channel that refers to one of these chunk numbers."""
    present = record_parts(row, blobs).present(row.numbers).items()
    return next((name for name, numbers in present if not bad.isdisjoint(numbers)), None)


def _split(joined: bytes) -> tuple[Digest, ...]:
    return tuple(joined[i : i + digests.SIZE] for i in range(0, len(joined), digests.SIZE))


# -- writes ----------------------------------------------------------------------------------


@frozen
class Batch:
    """One row's worth of a task's writes: the written values as channels, in order, in the shape
    of a version of the user's state."""

    id: str
    task: str
    path: str
    slot: int
    writes: tuple[Channel, ...]
    schema_version: int = 0
    other: Batch | None = None
    """The same in a newer version of the state, for code that knows it. It is stored under the
    older one's task: what code of either version writes of a task takes the other's place."""

    def known_to(self, version: int) -> Batch:
        """As code of a version reads it."""
        if self.other is None or self.other.schema_version > version:
            return self
        return self.other

    @property
    def all_writes(self) -> tuple[Channel, ...]:
        """Those of its other form too."""
        return self.writes + (self.other.writes if self.other is not None else ())


def slot_name(slot: int) -> str:
    """What a write's digest covers of its slot: ordinary batches of one content are one."""
    return str(min(slot, 0))


def differing_slot(digest: Digest) -> int:
    """The slot of a batch that differs from the first: positive, and its own."""
    return int.from_bytes(digest[:4]) & 0x7FFFFFFF or 1


def pack_batch(place: Place, batch: Batch, blobs: Blobs, seal: Seal) -> WriteRow:
    """The stored form of a batch under a seal.

    Before its entries stands the version of the user's state, unless that is 0; with the other
    form, if there is one.
    """
    entries = [_entry(write) for write in batch.writes]
    other = batch.other
    before: tuple[Any, ...] = (batch.schema_version,) if batch.schema_version else ()
    if other is not None:
        beside = [_entry(write) for write in other.writes]
        own = batch.schema_version, other.schema_version
        before = ([*own, other.task, other.path, beside],)
    content = ormsgpack.packb([*before, *entries])
    mark = _mark(place, batch, content, seal)
    return WriteRow(
        batch.id,
        batch.task,
        batch.slot,
        batch.path,
        len(batch.writes),
        mark,
        blobs.pack(content, seal=seal, digest=mark),
        numbers_of(batch.all_writes),
    )


def versions_of(row: WriteRow, blobs: Blobs) -> set[int]:
    """The versions of the user's state that a stored batch is there in. Nothing proves it here.

    Raises:
        Unsound: if it cannot be read.
    """
    try:
        before = _version(ormsgpack.unpackb(blobs.unpack(row.blob, row.digest).data))
        return {before} if isinstance(before, int) else {int(each) for each in before[:2]}
    except DAMAGE as error:
        raise unreadable(None, f"writes of task {row.task}", error) from error


def _version(parts: list[Any]) -> Any:
    """Takes off the parts of a batch what stands before its entries; see `pack_batch`."""
    if parts and (isinstance(parts[0], int) or isinstance(parts[0][0], int)):
        return parts.pop(0)
    return 0


def read_batch(place: Place, row: WriteRow, chunks: Mapping[int, Chunk], blobs: Blobs) -> Batch:
    """The batch of a stored row, proven to be the one its digest was made from.

    Raises:
        Unsound: if anything of it is missing or is not what was written.
    """
    content, _, seal = blobs.unpack(row.blob, row.digest)
    _check_tenant(place, seal)
    try:
        batch = _read_batch(row, ormsgpack.unpackb(content), chunks)
    except DAMAGE as error:
        raise unreadable(None, f"writes of task {row.task}", error) from error
    if _mark(place, batch, content, seal) != row.digest:
        raise Unsound(None, f"the digest of task {row.task}'s writes does not match them")
    return batch


def _read_batch(row: WriteRow, parts: list[Any], chunks: Mapping[int, Chunk]) -> Batch:
    before = _version(parts)
    if isinstance(before, int):
        writes = _channels(parts, lambda _: None, row.numbers, chunks)
        return Batch(row.id, row.task, row.path, row.slot, writes, before)
    version, newer, task, path, entries = before
    at = sum(map(_count, parts))
    writes = _channels(parts, lambda _: None, row.numbers[:at], chunks)
    beside = _channels(entries, lambda _: None, row.numbers[at:], chunks)
    other = Batch(row.id, task, path, row.slot, beside, newer)
    return Batch(row.id, row.task, row.path, row.slot, writes, version, other)


def _mark(place: Place, batch: Batch, content: bytes, seal: Seal) -> Digest:
    chunks = [p.chunk.digest for write in batch.all_writes for p in write.pieces]
    slot = slot_name(batch.slot)
    return seal.of_write(place, batch.id, batch.task, batch.path, slot, content, chunks)
