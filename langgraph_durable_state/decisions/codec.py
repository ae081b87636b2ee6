"""Stored forms: blobs, records and write batches, and their verification on the way back.

Redis bytes equal Postgres bytes. A record names its chunks by position; their numbers stand
beside it in clear, so that a head is one query and pruning is SQL. Every format carries a
version; old ones are read for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ormsgpack
import zstandard

from ..errors import EvolutionError
from ..words import ChunkRow, Digest, Place, RecordRow, Typed, WriteRow
from . import dictionary
from . import digest as digests
from .chunking import Channel, Shape
from .keys import decoded, encoded
from .matching import Chunk, Piece

Compression = Literal["zstd", "lz4", "none"]

RECORD_FORMAT = 1
_NONE, _ZSTD_1, _LZ4 = 0, 1, 2
_METHODS: Mapping[Compression, int] = {"none": _NONE, "zstd": _ZSTD_1, "lz4": _LZ4}

COMPRESS_FROM = 64
"""Bytes; below this a frame eats what it saves."""

_DICTIONARY = zstandard.ZstdCompressionDict(
    dictionary.VERSION_1, dict_type=zstandard.DICT_TYPE_RAWCONTENT
)


class Unsound(Exception):
    """Stored bytes that are not what was written: the channel concerned, and what was found."""

    def __init__(self, channel: str | None, detail: str) -> None:
        super().__init__(detail)
        self.channel = channel
        self.detail = detail


class Blobs:
    """Compresses what is stored, and says in each blob how.

    Layout: one byte for the method, two for the number of items, then the data. A compressor may
    serve one thread at a time, so idle ones wait in a list (its `pop` and `append` are atomic).

    Args:
        compression: the method for new blobs; all methods can be read.
        level: zstd's level, 1 to 3 in practice.
    """

    def __init__(self, compression: Compression = "zstd", level: int = 1) -> None:
        self._method = _METHODS[compression]
        self._level = level
        self._compressors: list[zstandard.ZstdCompressor] = []
        self._decompressors: list[zstandard.ZstdDecompressor] = []

    def pack(self, data: bytes, count: int = 1) -> bytes:
        """The stored form of `data`, which holds `count` items."""
        head = count.to_bytes(2)
        if self._method != _NONE and len(data) >= COMPRESS_FROM:
            small = self._compress(data)
            if len(small) < len(data):
                return bytes((self._method,)) + head + small
        return bytes((_NONE,)) + head + data

    def unpack(self, blob: bytes) -> tuple[bytes, int]:
        """The data and its number of items.

        Raises:
            Unsound: if the blob cannot be read.
        """
        try:
            method, count, data = blob[0], int.from_bytes(blob[1:3]), blob[3:]
            if method == _NONE:
                return bytes(data), count
            if method == _ZSTD_1:
                return self._unzstd(data), count
            if method == _LZ4:
                return _lz4().decompress(data), count
        except (zstandard.ZstdError, RuntimeError, IndexError, MemoryError) as error:
            raise Unsound(None, f"the stored bytes cannot be decompressed ({error})") from error
        raise Unsound(None, f"unknown compression method {blob[0]}")

    def _compress(self, data: bytes) -> bytes:
        if self._method == _LZ4:
            return _lz4().compress(data)  # type: ignore[no-any-return]
        make = self._compressors.pop() if self._compressors else None
        make = make or self._compressor()
        try:
            return make.compress(data)
        finally:
            self._compressors.append(make)

    def _compressor(self) -> zstandard.ZstdCompressor:
        # The frame need not name its dictionary nor check its content: the blob's method byte and
        # the chunk's digest do.
        return zstandard.ZstdCompressor(
            level=self._level, dict_data=_DICTIONARY, write_dict_id=False, write_checksum=False
        )

    def _unzstd(self, data: bytes) -> bytes:
        make = self._decompressors.pop() if self._decompressors else None
        make = make or zstandard.ZstdDecompressor(dict_data=_DICTIONARY)
        try:
            return make.decompress(data)
        finally:
            self._decompressors.append(make)


def _lz4() -> Any:
    import lz4.frame

    return lz4.frame


# -- chunks ----------------------------------------------------------------------------------


def chunk_row(chunk: Chunk, blobs: Blobs) -> ChunkRow:
    """The stored form of a chunk."""
    return ChunkRow(chunk.no, chunk.digest, blobs.pack(chunk.plain, chunk.count))


def chunk_of(row: ChunkRow, blobs: Blobs) -> Chunk:
    """The chunk of a stored row.

    Raises:
        Unsound: if its bytes are not those that its digest was made from.
    """
    data, count = blobs.unpack(row.blob)
    chunk = Chunk(row.no, data, count)
    if chunk.digest != row.digest:
        raise Unsound(None, f"the digest of chunk {row.no} does not match its bytes")
    return chunk


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


@dataclass(frozen=True, slots=True)
class Record:
    """One checkpoint with its chunks, in the form in which it is stored.

    ``consumed`` are the digests of the parent's pending writes that this checkpoint's run loaded
    or made; None if its writer could not tell, which stands for all of them.
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

    def digest(self) -> Digest:
        return digests.of_record(
            self.place,
            self.id,
            self.parent,
            self.parent_digest,
            self.schema_version,
            self.body,
            self.metadata,
            (channel.digest() for channel in self.channels),
            self.consumed,
        )

    def by_name(self) -> dict[str, Channel]:
        return {channel.name: channel for channel in self.channels}

    def chunks(self) -> dict[int, Chunk]:
        """Its chunks by number."""
        return {p.chunk.no: p.chunk for channel in self.channels for p in channel.pieces}

    @property
    def size(self) -> int:
        """Plain bytes held by it, what its chunks share with others included."""
        held = sum(len(p.chunk.plain) for c in self.channels for p in c.pieces)
        return held + len(self.body.data) + len(self.metadata.data)


def pack_record(record: Record, blobs: Blobs) -> bytes:
    """The bytes of the `record` column: all but the ids, which stand in columns of their own."""
    versions = [channel.version for channel in record.channels]
    plain = ormsgpack.packb(
        (
            RECORD_FORMAT,
            record.schema_version,
            record.parent_digest,
            (record.body.tag, record.body.data),
            (record.metadata.tag, record.metadata.data),
            [_entry(channel) for channel in record.channels],
            versions,
            None if record.consumed is None else b"".join(record.consumed),
        )
    )
    return blobs.pack(plain)


def record_parts(blob: bytes, blobs: Blobs) -> tuple[Any, ...]:
    """The fields of a `record` column.

    Raises:
        Unsound: if it cannot be read.
        EvolutionError: if it was written by a newer version of this library.
    """
    data, _ = blobs.unpack(blob)
    try:
        parts = ormsgpack.unpackb(data)
        known = int(parts[0]) if isinstance(parts, list) and len(parts) == 8 else 0
    except (ValueError, TypeError, IndexError) as error:
        raise Unsound(None, f"the record cannot be read ({error})") from error
    if known > RECORD_FORMAT:
        raise EvolutionError(f"record format {known} was written by a newer version")
    if known != RECORD_FORMAT:
        raise Unsound(None, "the record has no format that this library wrote")
    return tuple(parts)


def read_record(place: Place, row: RecordRow, chunks: Mapping[int, Chunk], blobs: Blobs) -> Record:
    """The record of a stored row, proven to be the one its digest was made from.

    Raises:
        Unsound: if anything of it is missing or is not what was written.
        EvolutionError: if it was written by a newer version of this library.
    """
    parts = record_parts(row.record, blobs)
    try:
        _, schema_version, parent_digest, body, metadata, entries, versions, consumed = parts
        by_name = {decoded(e[0]): v for e, v in zip(entries, versions, strict=True)}
        channels = _channels(entries, by_name.__getitem__, row.numbers, chunks)
        record = Record(
            place,
            row.id,
            row.parent,
            parent_digest,
            schema_version,
            Typed(*body),
            Typed(*metadata),
            channels,
            None if consumed is None else _split(consumed),
        )
        actual = record.digest()
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise Unsound(None, f"the record cannot be read ({error})") from error
    if actual != row.digest:
        raise Unsound(None, "the record's digest does not match its content")
    return record


def channel_of_number(row: RecordRow, bad: set[int], blobs: Blobs) -> str | None:
    """The name of the first channel that refers to one of these chunk numbers."""
    present = channels_present(row, blobs).items()
    return next((name for name, numbers in present if not bad.isdisjoint(numbers)), None)


def channels_present(row: RecordRow, blobs: Blobs) -> dict[str, tuple[int, ...]]:
    """The channels that a stored record holds a value of, with their chunk numbers.

    Raises:
        Unsound: if it cannot be read.
    """
    out, at = {}, 0
    entries = record_parts(row.record, blobs)[5]
    try:
        for entry in entries:
            n = _count(entry)
            out[decoded(entry[0])] = row.numbers[at : at + n]
            at += n
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise Unsound(None, f"the record cannot be read ({error})") from error
    return out


def _split(joined: bytes) -> tuple[Digest, ...]:
    return tuple(joined[i : i + digests.SIZE] for i in range(0, len(joined), digests.SIZE))


# -- writes ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """One row's worth of a task's writes: the written values as channels, in order."""

    id: str
    task: str
    path: str
    slot: int
    writes: tuple[Channel, ...]


def slot_name(slot: int) -> str:
    """What a write's digest covers of its slot: ordinary batches of one content are one."""
    return str(min(slot, 0))


def pack_batch(place: Place, batch: Batch, blobs: Blobs) -> WriteRow:
    """The stored form of a batch."""
    content = ormsgpack.packb([_entry(write) for write in batch.writes])
    chunk_digests = [p.chunk.digest for write in batch.writes for p in write.pieces]
    mark = digests.of_write(
        place, batch.id, batch.task, batch.path, slot_name(batch.slot), content, chunk_digests
    )
    return WriteRow(
        batch.id,
        batch.task,
        batch.slot,
        batch.path,
        len(batch.writes),
        mark,
        blobs.pack(content),
        numbers_of(batch.writes),
    )


def read_batch(place: Place, row: WriteRow, chunks: Mapping[int, Chunk], blobs: Blobs) -> Batch:
    """The batch of a stored row, proven to be the one its digest was made from.

    Raises:
        Unsound: if anything of it is missing or is not what was written.
    """
    content, _ = blobs.unpack(row.blob)
    try:
        entries = ormsgpack.unpackb(content)
        writes = _channels(entries, lambda _: None, row.numbers, chunks)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise Unsound(None, f"writes of task {row.task} cannot be read ({error})") from error
    chunk_digests = [p.chunk.digest for write in writes for p in write.pieces]
    mark = digests.of_write(
        place, row.id, row.task, row.path, slot_name(row.slot), content, chunk_digests
    )
    if mark != row.digest:
        raise Unsound(None, f"the digest of task {row.task}'s writes does not match them")
    return Batch(row.id, row.task, row.path, row.slot, writes)
