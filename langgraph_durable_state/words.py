"""The vocabulary: frozen values that every layer shares. This file imports nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

Digest = bytes
"""16 bytes that identify content."""

NULL_TASK_ID = "00000000-0000-0000-0000-000000000000"
"""LangGraph's task id for input that belongs to no task; its batch may only grow."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One execution of an agent: what the caller named, and the key its rows are stored under."""

    tenant: str
    id: str
    key: UUID
    user: str | None = field(default=None, compare=False)
    session: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace of a thread: what has a head."""

    thread: Thread
    ns: str


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A stored chunk: its number within the thread, its content's digest, its stored bytes."""

    no: int
    digest: Digest
    blob: bytes


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A stored checkpoint. ``numbers`` are its chunks' numbers, in the manifest's order."""

    ns: str
    id: str
    parent: str | None
    seq: int
    digest: Digest
    record: bytes
    numbers: tuple[int, ...]
    refused: bool = False


@dataclass(frozen=True, slots=True)
class WriteRow:
    """One stored batch of a task's pending writes.

    ``slot`` is 0 for the first batch of ordinary writes, negative for a special channel, and a
    positive number taken from the digest for a later batch that differs.
    """

    id: str
    task: str
    slot: int
    path: str
    n: int
    digest: Digest
    blob: bytes
    numbers: tuple[int, ...] = ()


class Claim(IntEnum):
    """What a put says about the head it builds on."""

    ANY = 0
    """A deliberate fork, or a caller without proof: it becomes the head whatever the head is."""
    HEAD = 1
    """The head must have the digest this run left it at."""
    EMPTY = 2
    """There must be no head yet."""
    ASIDE = 3
    """Keep the record, become the head only where there is none."""


@dataclass(frozen=True, slots=True)
class Put:
    """One checkpoint to store, serialized: the unit that wins or loses as a whole.

    ``refers`` names the checkpoint whose chunks are referred to beside those sent; unless the
    claim on the head covers it, its row must still be there with the digest ``base``. ``mark``
    tells the chunk numbers referred to from others under the same digest. With a
    claim on the head, ``consumed`` are the writes against it that the put was made from: they
    must be there. ``size`` is in plain bytes.
    """

    place: Place
    id: str
    parent: str | None
    claim: Claim
    expected: Digest
    digest: Digest
    record: bytes
    metadata: str
    numbers: tuple[int, ...]
    chunks: tuple[ChunkRow, ...]
    size: int
    refers: str | None = None
    base: Digest = b""
    covered: bool = False
    mark: bytes | None = None
    consumed: tuple[Digest, ...] = ()

    @property
    def needs(self) -> str | None:
        """The checkpoint whose row must be there for this put to win."""
        return None if self.covered else self.refers


@dataclass(frozen=True, slots=True)
class PutWrites:
    """One task's writes to store against a checkpoint, as one row per slot."""

    place: Place
    id: str
    rows: tuple[WriteRow, ...]
    chunks: tuple[ChunkRow, ...]


@dataclass(frozen=True, slots=True)
class Won:
    """The put is stored and was made the head; ``seq`` is its place in the namespace's order.

    ``repeated`` if it was there already, perhaps under other chunk numbers than those sent.
    """

    seq: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """The put is stored beside the head, which it did not move."""

    seq: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The head was not what the put claimed. ``actual`` is the head's id.

    The record is ``kept``, unless it was made from writes that are gone.
    """

    actual: str | None
    kept: bool = True


@dataclass(frozen=True, slots=True)
class ParentGone:
    """Chunks that the put refers to may be gone with its parent or with its parent's writes; send
    all of them."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The writes are stored. ``repeated`` if the ordinary ones were there already, with chunks of
    their own: those sent are referred to by nothing."""

    repeated: bool = False


Outcome = Won | Kept | Lost | ParentGone | Stored


@dataclass(frozen=True, slots=True)
class Head:
    """What identifies a head."""

    id: str
    seq: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Found:
    """A stored checkpoint as read, still in stored form.

    ``row`` is None if the reader already holds it, or if it is large and not asked for;
    ``numbers`` are its chunks' numbers even then, since a digest does not cover them.
    """

    head: Head
    row: RecordRow | None
    numbers: tuple[int, ...]
    chunks: Mapping[int, ChunkRow]
    writes: tuple[WriteRow, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Which checkpoints to list, newest first by the namespace's sequence.

    ``after`` is the last (thread key, namespace, sequence) of the page before.
    """

    thread: Thread | None
    tenant: str | None
    ns: str | None
    id: str | None
    before: str | None
    filter: Mapping[str, str]
    limit: int
    after: tuple[UUID, str, int] | None = None
    light: bool = False
    """Leave out the chunks' data: their digests and item counts suffice."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a thread's checkpoints, with the chunks by number, and the pending writes by
    namespace and checkpoint id, that they need."""

    rows: tuple[tuple[Thread, RecordRow], ...]
    chunks: Mapping[int, ChunkRow]
    writes: Mapping[tuple[str, str], tuple[WriteRow, ...]]


@dataclass(frozen=True, slots=True)
class Typed:
    """What a LangGraph serializer makes of a value: a type tag and bytes."""

    tag: str
    data: bytes
