"""The vocabulary: frozen values that every layer shares. This file imports nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar, dataclass_transform
from uuid import UUID

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(made: type[T]) -> type[T]:
    """A dataclass that nobody changes, as mypy sees to.

    Where Python sees to it as well, filling one in takes 0.19 us a field instead of 0.01, and a put
    fills in some 80 fields.
    """
    return dataclass(slots=True, unsafe_hash=True)(made)


Digest = bytes
"""16 bytes that identify content."""

NULL_TASK_ID = "00000000-0000-0000-0000-000000000000"
"""LangGraph's task id for input that belongs to no task; its batch may only grow."""


@frozen
class Thread:
    """One execution of an agent: what the caller named, and the key its rows are stored under,
    which is made from that: one whose names are not known is the same thread."""

    tenant: str = field(compare=False)
    id: str = field(compare=False)
    key: UUID
    user: str | None = field(default=None, compare=False)
    session: str | None = field(default=None, compare=False)


@frozen
class Owner:
    """Whose data key something is under: a user's of a tenant, or what nobody in it owns."""

    tenant: str
    user: str | None


@frozen
class DataKey:
    """A stored data key, ``wrapped`` under the master key with the id ``master``."""

    id: bytes
    owner: Owner
    master: bytes
    wrapped: bytes = field(repr=False)


@frozen
class Place:
    """A namespace of a thread: what has a head.

    ``alias`` is what today's code calls it, where a node was renamed since it was first stored.
    """

    thread: Thread
    ns: str
    alias: str | None = field(default=None, compare=False)

    @property
    def named(self) -> str:
        """The namespace in today's names."""
        return self.ns if self.alias is None else self.alias


@frozen
class ChunkRow:
    """A stored chunk: its number within the thread, its content's digest, its stored bytes."""

    no: int
    digest: Digest
    blob: bytes


@frozen
class RecordRow:
    """A stored checkpoint. ``numbers`` are its chunks' numbers, in the manifest's order.

    In a page it also says whether it is an ``orphan``, whose parent is not stored; there and in a
    chain its ``edge``, which is to say why, if there is a key.
    """

    ns: str
    id: str
    parent: str | None
    seq: int
    digest: Digest
    record: bytes
    numbers: tuple[int, ...]
    refused: bool = False
    edge: bytes = b""
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A checkpoint that stays where its parent is removed, and what is to say so in its row; empty
    where it needs nothing."""

    ns: str
    id: str
    digest: Digest
    signed: bytes


@frozen
class Rewritten:
    """Stored rows of a thread under other digests, and perhaps under other names: records, each
    after the digest it had before, with the metadata to search by; the rows of writes that go, each
    with its namespace, and those that come, each with the place among them of the one that it
    follows; the chunks that are new; and heads by namespace.

    ``former`` are the names that namespaces had which are called something else now. If ``exact``,
    the writes that go must be all that there are of these records.
    """

    records: Sequence[tuple[Digest, RecordRow, str]]
    gone: Sequence[tuple[str, WriteRow]]
    writes: Sequence[tuple[int, str, WriteRow]]
    chunks: Sequence[ChunkRow]
    heads: Mapping[str, Head]
    former: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


@frozen
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


@frozen
class Put:
    """One checkpoint to store, serialized: the unit that wins or loses as a whole.

    ``refers`` names the checkpoint whose chunks are referred to beside those sent; unless the
    claim on the head covers it, its row must still be there with the digest ``base``, or with any
    if that is empty: where it is not for the chunks, but to be read with this one.
    ``base_numbers`` are that one's chunk numbers: the same may be stored under others. ``follows``
    is the digest that the parent, unless it is gone, must have, where nothing else sees to that: it
    may have been rewritten. With a claim on the head, ``consumed`` are the writes against it that
    the put was made from: they must be there. ``size`` is in plain bytes. ``spell`` is the token of
    the spell that it was acknowledged in by the hot tier; ``fence`` that of the lease it is made
    under. ``seal`` signs it as a head. ``edge`` is kept with it if its parent is not there, which
    it says is no wonder.
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
    base_numbers: tuple[int, ...] | None = None
    spell: bytes | None = None
    fence: int | None = None
    consumed: tuple[Digest, ...] = ()
    seal: bytes = b""
    follows: Digest = b""
    edge: bytes = b""

    @property
    def needs(self) -> str | None:
        """The checkpoint whose row must be there for this put to win."""
        return None if self.covered else self.refers


@frozen
class PutWrites:
    """One task's writes to store against a checkpoint, as one row per slot.

    ``fence`` is that of the lease they are made under; ``spell`` as of a put.
    """

    place: Place
    id: str
    rows: tuple[WriteRow, ...]
    chunks: tuple[ChunkRow, ...]
    fence: int | None = None
    spell: bytes | None = None


@frozen
class Won:
    """The put is stored and was made the head; ``seq`` is its place in the namespace's order.

    ``repeated`` if it was there already, perhaps under other chunk numbers than those sent; not
    ``guarded`` if the hot tier took it while the durable head could not be marked.
    """

    seq: int
    repeated: bool = False
    guarded: bool = True


@frozen
class Kept:
    """The put is stored beside the head, which it did not move."""

    seq: int


@frozen
class Lost:
    """The head was not what the put claimed. ``actual`` is the head's id.

    The record is ``kept`` beside it, unless it was made from what is gone.
    """

    actual: str | None
    kept: bool = True


@frozen
class ParentGone:
    """Chunks that the put refers to may be gone with its parent or with its parent's writes; send
    all of them."""


@frozen
class Ahead:
    """The hot tier may be ahead of this head, in the spell ``token``: what is not of that spell
    must go through the hot tier. Empty if what is of a spell met a head that is not marked."""

    token: bytes


@frozen
class Stored:
    """The writes are stored. ``repeated`` if the ordinary ones were there already, with chunks of
    their own: those sent are referred to by nothing; ``guarded`` as of `Won`."""

    repeated: bool = False
    guarded: bool = True


@frozen
class Fenced:
    """The lease that the item was made under was taken over; nothing of it is stored."""


Outcome = Won | Kept | Lost | ParentGone | Ahead | Stored | Fenced


@frozen
class Granted:
    """The lease is the asker's; ``fence`` is larger than that of whoever had it before."""

    fence: int


@frozen
class Occupied:
    """Somebody else has the lease, for ``left`` seconds unless it is renewed."""

    holder: str
    left: float


@frozen
class Head:
    """What identifies a head; ``seal`` signs it, if there is a key."""

    id: str
    seq: int
    digest: Digest
    seal: bytes = b""


@frozen
class Found:
    """A stored checkpoint as read, still in stored form.

    ``row`` is None if the reader already holds it, or if it is large and not asked for;
    ``numbers`` are its chunks' numbers even then, since a digest does not cover them. ``ahead`` is
    the token of the spell in which the hot tier may be ahead of this head; one that is there for
    that only has no digest. ``lost`` if the namespace has checkpoints and no head: ``head`` is the
    newest of them that was not refused.
    """

    head: Head
    row: RecordRow | None
    numbers: tuple[int, ...]
    chunks: Mapping[int, ChunkRow]
    writes: tuple[WriteRow, ...]
    ahead: bytes | None = None
    lost: bool = False


@frozen
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
    settled: bool = False
    """What the hot tier held alone is durable already."""


@frozen
class Page:
    """One page of a thread's checkpoints, with the chunks by number, and the pending writes by
    namespace and checkpoint id, that they need; ``ahead`` if the hot tier may have more."""

    rows: tuple[tuple[Thread, RecordRow], ...]
    chunks: Mapping[int, ChunkRow]
    writes: Mapping[tuple[str, str], tuple[WriteRow, ...]]
    ahead: bool = False


@frozen
class Typed:
    """What a LangGraph serializer makes of a value: a type tag and bytes."""

    tag: str
    data: bytes


# -- what happened to a thread ---------------------------------------------------------------


@frozen
class Tip:
    """The newest event of a thread: its number (0 if there is none) and its digest, and what time
    it is, in microseconds of the epoch."""

    n: int
    digest: Digest
    now: int


@frozen
class EventRow:
    """One event of a thread, for good: recovery, maintenance, audit.

    ``n`` counts within the thread from 1, ``at`` is in microseconds of the epoch, ``detail`` JSON
    of one spelling; ``digest`` covers all of it and the digest of the event before.
    """

    n: int
    at: int
    kind: str
    detail: str
    digest: Digest


# -- what the hot tier holds alone -----------------------------------------------------------


class Phase(IntEnum):
    """Where a spell is, in which the hot tier may be ahead of a durable head."""

    NONE = 0
    OPENING = 1
    """The durable head is being marked; nothing was acknowledged yet."""
    OPEN = 2
    CLOSING = 3
    """All is flushed, and the mark is being taken off."""


@frozen
class Spell:
    """The hot tier's account of one namespace while it may be ahead.

    ``head`` has no digest if there is none. ``base`` is the digest of the durable head that
    ``chain``, the digests not yet flushed, builds on; None if nobody knew it. ``previous`` are the
    tokens, one after the other, of spells that held nothing when this one began, but whose mark may
    still be there. ``marked`` if the durable head is known to say so; ``secured`` if a restart
    loses nothing of what was acknowledged in it; ``restarted`` if the server that holds it is no
    longer the one that it was opened on.
    """

    token: bytes
    phase: Phase
    previous: bytes
    head: Head
    base: Digest | None
    chain: tuple[Digest, ...]
    marked: bool
    secured: bool
    restarted: bool


@frozen
class HotFound:
    """What the hot tier holds of one namespace: its spell if there is one, the digest of its copy
    of a head (empty if there is none), that copy unless the reader holds it, and the pending writes
    it was given."""

    spell: Spell | None
    digest: Digest
    row: RecordRow | None
    chunks: Mapping[int, ChunkRow]
    writes: tuple[WriteRow, ...]
    write_chunks: Mapping[int, ChunkRow]


@frozen
class Step:
    """How a copy follows a put: from the one with the digest ``base`` (empty to begin anew), with
    the chunks added and without those dropped."""

    base: Digest
    chunks: tuple[ChunkRow, ...]
    dropped: tuple[int, ...] = ()


@frozen
class Opened:
    """The durable head that a spell is opened on, ``marked`` or not; ``head`` is None if it could
    not be asked for and the put does not tell either."""

    head: Head | None
    marked: bool


@frozen
class Cold:
    """No spell is open: mark the durable head with ``token`` first."""

    token: bytes
    previous: bytes


class Unfit(IntEnum):
    """Why the hot tier did not take an item."""

    LOST = 1
    """The hot head is not what the put claims."""
    WHOLE = 2
    """The copy is not the one that the put's chunks build on: send all of them."""
    FULL = 3
    """The thread's outbox has reached its bound."""
    RESTARTED = 4
    """The server is no longer the one that the spell was opened on."""
    FENCED = 5
    """The lease that it was made under was taken over."""


Answer = Won | Kept | Stored | Cold | Unfit


@frozen
class Entry:
    """One acknowledged item of a thread's outbox, with the claim it is to be flushed under.

    ``token`` is its spell's, and ``number`` its place among that spell's entries. ``advances`` if
    it moved the hot head; ``refused`` if it is only to be kept.
    """

    item: Put | PutWrites
    token: bytes
    number: int
    advances: bool = False
    refused: bool = False


PENDING = "?"
"""Ends the count of what was forgotten, while that is about to be removed."""


@frozen
class Witnessed:
    """The newest signed head that the hot tier was told of, empty if it knows none; and how often
    it had to forget one of this namespace lately, empty if not."""

    head: bytes
    drops: bytes

    @property
    def pending(self) -> bool:
        """Whether the head may be about to be removed, or moved back."""
        return self.drops.endswith(PENDING.encode())


@frozen
class Progress:
    """A marked head: the spell's token, the number of the last of its entries that is durable, and
    the head's digest and the mark of its chunk numbers, empty if there is none."""

    token: bytes
    flushed: int
    digest: Digest
    mark: bytes


@frozen
class Advance:
    """How far a spell's entries are flushed, and will be by what is flushed with this."""

    place: Place
    token: bytes
    old: int
    new: int


@frozen
class Outgoing:
    """The oldest entries of a thread's outbox; ``first`` numbers them, ``left`` are behind them."""

    first: int
    entries: tuple[Entry, ...]
    left: int


@frozen
class Waiting:
    """A durable head that the hot tier may be ahead of, since ``since`` (seconds of the epoch)."""

    place: Place
    token: bytes
    since: float
    id: str
