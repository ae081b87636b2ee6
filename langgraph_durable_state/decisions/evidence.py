"""Rows taken apart that may be damaged, and the rows that may take their place.

This file decides and never acts: no I/O, no clock, no logging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal
from uuid import UUID

import ormsgpack

from ..asfound import Change, Ids, Quarantined, RawRecord, RawWrite, Repair, Row, Sight
from ..errors import DurableStateError, EvolutionError, KeyMissingError
from ..verification import Kind
from ..words import (
    ChunkRow,
    Digest,
    Place,
    RecordRow,
    Typed,
    WriteRow,
)
from . import codec, keys, projection
from .codec import Batch, Blobs, Record, Unsound, unreadable
from .matching import Chunk
from .serializing import Serializer


@dataclass(frozen=True, slots=True)
class HotRepair:
    """Fields of a hash in Redis to be changed, all or none; what was bad in them goes to quarantine
    before."""

    of: Literal["copy", "writes"]
    changes: tuple[Change, ...]
    kept: tuple[Quarantined, ...]


@dataclass(frozen=True, slots=True)
class EntryRepair:
    """An entry of an outbox to be replaced, by its number."""

    number: int
    found: bytes
    right: bytes
    kept: Quarantined


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that is not what was written, and what would put it right; None if nothing is known
    that would. ``unread`` if it says that a newer version wrote it, or that it is under a key that
    is not known."""

    kind: Kind
    ns: str
    id: str | None
    reason: str
    repair: Repair | HotRepair | EntryRepair | None = None
    task: str | None = None
    no: int | None = None
    unread: bool = False

    @property
    def name(self) -> tuple[object, ...]:
        """What is the same of one flaw found twice."""
        return self.kind, self.ns, self.id if self.no is None else None, self.task, self.no


# -- rows taken apart ------------------------------------------------------------------------


def unpacked(packed: bytes) -> tuple[int, ...]:
    """A row's chunk numbers.

    Raises:
        Unsound: if these are not bytes that were written.
    """
    try:
        return keys.unpacked(packed)
    except (ValueError, IndexError) as error:
        raise unreadable(None, "the chunk numbers", error) from error


def record_row(raw: RawRecord) -> RecordRow:
    """The row as others know it.

    Raises:
        Unsound: if its chunk numbers cannot be read.
    """
    numbers = unpacked(raw.packed)
    row = RecordRow(raw.ns, raw.id, raw.parent, raw.seq, raw.digest, raw.record, numbers)
    return replace(row, refused=raw.refused)


def write_row(raw: RawWrite) -> WriteRow:
    """The row as others know it.

    Raises:
        Unsound: if its chunk numbers cannot be read.
    """
    numbers = unpacked(raw.packed)
    return WriteRow(raw.id, raw.task, raw.slot, raw.path, raw.n, raw.digest, raw.blob, numbers)


def raw_write(ns: str, row: WriteRow) -> RawWrite:
    """The row as it is stored."""
    packed = keys.packed(row.numbers)
    return RawWrite(ns, row.id, row.task, row.slot, row.path, row.n, row.digest, row.blob, packed)


def read_record(place: Place, row: RecordRow, chunks: Mapping[int, Chunk], blobs: Blobs) -> Record:
    """The record, proven.

    Raises:
        Unsound: whatever is wrong with it.
        EvolutionError: if it says that it was written by a newer version.
    """
    _check_header(row.record)
    try:
        return codec.read_record(place, row, chunks, blobs)
    except (Unsound, EvolutionError):
        raise
    except Exception as error:  # bytes that were not written may be anything
        raise unreadable(None, "the record", error) from error


def read_batch(place: Place, row: WriteRow, chunks: Mapping[int, Chunk], blobs: Blobs) -> Batch:
    """The batch of writes, proven.

    Raises:
        Unsound: whatever is wrong with it.
    """
    _check_header(row.blob)
    try:
        return codec.read_batch(place, row, chunks, blobs)
    except (Unsound, EvolutionError):
        raise
    except Exception as error:
        raise unreadable(None, "the writes", error) from error


_ONE = (1).to_bytes(2)
"""The count of items in the header of what is not a chunk, which no digest covers."""


def _check_header(blob: bytes) -> None:
    if blob[1:3] != _ONE:
        raise Unsound(None, "its header is not one that was written")


def with_header(blob: bytes) -> bytes:
    """The bytes of a record or of writes with the header that all of them have."""
    return blob[:1] + _ONE + blob[3:]


def prove_chunk(row: ChunkRow, blobs: Blobs) -> None:
    """Returns if a chunk's digest proves it.

    Raises:
        Unsound: whatever is wrong with it.
        EvolutionError: if it cannot be told; `KeyMissingError` if it says that it is under a key
            that is not known.
    """
    try:
        codec.chunk_of(row, blobs)
    except DurableStateError:
        raise
    except Exception as error:  # bytes that were not written may be anything
        raise Unsound(None, str(error)) from error


def chunk_flaw(row: ChunkRow, blobs: Blobs) -> Unsound | KeyMissingError | None:
    """What is wrong with a chunk; None if its digest proves it. That it is under a key that is not
    known may be a byte that says so by accident."""
    try:
        prove_chunk(row, blobs)
    except (Unsound, KeyMissingError) as error:
        return error
    return None


def chunk_reason(row: ChunkRow, blobs: Blobs) -> str | None:
    """What is wrong with a chunk, in words."""
    flaw = chunk_flaw(row, blobs)
    return None if flaw is None else str(flaw)


# -- what the other tier knows ---------------------------------------------------------------


@dataclass
class Sources:
    """Rows that may take the place of bad ones. Chunks are proven by their digests; records and
    writes are proven where they are used.

    ``copies`` are the sound copies of heads, by namespace. ``pending`` are writes that the durable
    tier must have, since nothing waits to be flushed.
    """

    chunks: dict[int, ChunkRow] = field(default_factory=dict)
    records: dict[Ids, list[RecordRow]] = field(default_factory=dict)
    writes: dict[Ids, list[WriteRow]] = field(default_factory=dict)
    copies: dict[str, RecordRow] = field(default_factory=dict)
    pending: dict[Ids, list[WriteRow]] = field(default_factory=dict)

    def add_chunks(self, rows: Iterable[ChunkRow], blobs: Blobs) -> None:
        for row in rows:
            if row.no not in self.chunks and chunk_reason(row, blobs) is None:
                self.chunks[row.no] = row

    def add_record(self, row: RecordRow) -> None:
        self.records.setdefault((row.ns, row.id), []).append(row)

    def add_write(self, ns: str, row: WriteRow) -> None:
        self.writes.setdefault((ns, row.id), []).append(row)

    def add_sight(self, sight: Sight, blobs: Blobs) -> None:
        """What the durable tier has."""
        self.add_chunks(sight.chunks.values(), blobs)
        for raw in sight.records.values():
            try:
                self.add_record(record_row(raw))
            except Unsound:
                continue
        for write in sight.writes:
            try:
                self.add_write(write.ns, write_row(write))
            except Unsound:
                continue

    def bare(self, numbers: Iterable[int]) -> dict[int, Chunk]:
        return {no: codec.bare_chunk(self.chunks[no]) for no in numbers if no in self.chunks}


@dataclass(frozen=True, slots=True)
class Child:
    """What a checkpoint's child says of it: the digest it was made from, and the writes."""

    parent_digest: Digest
    consumed: tuple[Digest, ...]
    later: bool
    """It was put after its parent was, and was not refused, so that it must fit."""
    needs: bool = False
    """Nothing says that its parent was removed, and something would have to."""


# -- metadata --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Described:
    """The projection of a record's metadata; not `exact` if its writer may have seen more than can
    be told from what is stored."""

    text: str
    exact: bool


Describe = Callable[[Record], Described]


def described(
    record: Record, serializer: Serializer, clear: frozenset[str] | None = None
) -> Described:
    """What filters look at of a record's metadata; if that is encrypted, only these keys."""
    try:
        metadata = serializer.loads(record.metadata.tag, record.metadata.data)
        text = projection.of_metadata(metadata, clear if record.seal.hides else None)
    except Exception:  # the bytes are what was written; another serde or other code may read them
        return Described("{}", False)
    return Described(text, _is_plain(record.metadata))


def filtered_wrong(made: Described, stored: str) -> bool:
    """Whether what filters look at is not a record's metadata. A saver that verifies nothing may
    have stored a question mark for a lone surrogate, which filters still see."""
    if not made.exact:
        return False
    kind, have = _typed(stored)
    _, wanted = _typed(made.text)
    if kind != "object" or have.keys() != wanted.keys():
        return True
    return any(have[key] != value and "?" not in str(value) for key, value in wanted.items())


def answers(made: Described, wanted: Mapping[str, str]) -> bool:
    """Whether a filter, as it was put to the projection, holds of a record's metadata itself; see
    `filtered_wrong` for what nobody can tell."""
    if not made.exact:
        return True
    _, have = _typed(made.text)
    return all(
        key in have and (have[key] == _typed(text) or "?" in str(have[key]))
        for key, text in wanted.items()
    )


def _typed(text: str) -> tuple[str, Any]:
    try:
        kind, value = projection.typed(text)
    except ValueError:
        return "nothing", {}
    return kind, value


def _is_plain(metadata: Typed) -> bool:
    """Whether metadata holds only what is projected as it is decoded: no objects."""
    try:
        ormsgpack.unpackb(metadata.data, option=ormsgpack.OPT_NON_STR_KEYS)
    except ValueError:
        return False
    return metadata.tag.endswith("msgpack")


# -- quarantine ------------------------------------------------------------------------------


def quarantined(key: UUID, kind: str, ns: str, row: Row, reason: str) -> Quarantined:
    """A row of the durable tier as it goes to quarantine."""
    found = {each.name: _shown(getattr(row, each.name)) for each in fields(row)}
    named = {name: found.get(name) for name in ("id", "task", "slot", "no")}
    id = "" if kind == "thread" else str(named["id"] or "")
    slot, no = int(named["slot"] or 0), int(named["no"] or 0)
    task = str(named["task"] or "")
    return Quarantined(key, "postgres", kind, ns, id, task, slot, no, _text(reason), found)


def hot_quarantined(
    key: UUID, kind: str, ns: str, id: str, found: Mapping[str, bytes | None], reason: str
) -> Quarantined:
    """What was found in the hot tier, by what it was called there, as it goes to quarantine."""
    shown = {_text(name): _shown(value) for name, value in found.items()}
    return Quarantined(key, "redis", kind, _text(ns), _text(id), "", 0, 0, _text(reason), shown)


def _shown(value: bytes | str | int | None) -> str | int | None:
    return value.hex() if isinstance(value, bytes) else value


def _text(text: str) -> str:
    """A text that Postgres takes, whatever was found."""
    return text.replace("\x00", " ").encode(errors="backslashreplace").decode()
