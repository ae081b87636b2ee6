"""What the protocols need of the world, as narrow protocols with few verbs.

Tiers are written once above `Sql` and `Scripts`; only those exist per face. The memory driver
implements `Durable` and `Hot` directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol
from uuid import UUID

from .asfound import (
    Change,
    HotRaw,
    Ids,
    Quarantined,
    RawEntries,
    RawRecord,
    RawThread,
    RawWrite,
    Repair,
    Sight,
)
from .words import (
    Advance,
    Answer,
    ChunkRow,
    DataKey,
    Digest,
    Edge,
    EventRow,
    Found,
    Granted,
    Head,
    HotFound,
    Listing,
    Occupied,
    Opened,
    Outcome,
    Outgoing,
    Owner,
    Page,
    Place,
    Progress,
    Put,
    PutWrites,
    RecordRow,
    Rewritten,
    Step,
    Thread,
    Tip,
    Waiting,
    Witnessed,
    WriteRow,
)


class Sql(Protocol):
    """Statements of the durable tier, run on a pooled connection, each within a deadline."""

    async def fetch(self, name: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        """The rows of one named statement, in a transaction of its own.

        Raises:
            UnavailableError: if Postgres cannot be reached or does not answer in time.
        """

    async def transaction(
        self,
        steps: Sequence[tuple[str, Sequence[object]]],
        go_on: Callable[[list[tuple[Any, ...]]], bool] | None = None,
        then: Callable[[list[list[tuple[Any, ...]]]], Sequence[tuple[str, Sequence[object]]]]
        | None = None,
    ) -> list[list[tuple[Any, ...]]]:
        """The rows of each of several statements, run one after the other in one transaction.

        If `go_on`, asked with the first statement's rows, says no, nothing of it is done. `then`
        tells, asked with the rows of all, what else is to be run in the transaction.
        """

    async def script(self, sql: str) -> None:
        """Runs SQL text that may hold several statements, in one transaction."""

    async def ping(self) -> None:
        """Asks whether Postgres answers and takes writes.

        Raises:
            UnavailableError: if it does not.
        """


class Scripts(Protocol):
    """Scripts of the hot tier."""

    async def call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        """What one named script returns.

        Raises:
            UnavailableError: if Redis cannot be reached, refuses, or does not answer in time.
        """

    async def find(self, pattern: str) -> list[str]:
        """The names of the keys that match a glob pattern.

        Raises:
            UnavailableError: likewise.
        """


class LeaseTable(Protocol):
    """Who alone may run a thread. The tier's own clock decides what has run out."""

    async def take_lease(self, thread: Thread, holder: str, ttl: float) -> Granted | Occupied:
        """Takes the lease of a thread for `ttl` seconds, if nobody else has it or it has run out.
        What was being stored under the fence before is stored by then."""

    async def renew_lease(self, thread: Thread, fence: int, holder: str, ttl: float) -> bool:
        """Lets a lease run for `ttl` seconds from now, even if it has run out; whether nobody else
        had taken it."""

    async def release_lease(self, thread: Thread, holder: str) -> None:
        """Ends a holder's lease, if it still has it."""


class EventTable(Protocol):
    """What happened to a thread, in an order that nobody can change unseen."""

    async def last_event(self, thread: Thread) -> Tip:
        """The newest event of a thread, and the tier's time."""

    async def record_event(self, thread: Thread, row: EventRow) -> bool:
        """Adds an event, unless its number is taken; tells whether it did."""

    async def events(self, thread: Thread, after: int, limit: int) -> list[EventRow]:
        """Up to `limit` events of a thread with larger numbers than `after`, in order."""


class KeyTable(Protocol):
    """Data keys, wrapped under a master key that the tier has not."""

    async def owner(self, thread: Thread) -> Owner:
        """Who owns a thread: the user it was begun for, or, if there is none of it, is named."""

    async def data_key(self, id: bytes) -> DataKey | None:
        """The data key with this id."""

    async def data_keys(self, owner: Owner) -> list[DataKey]:
        """An owner's data keys, newest first."""

    async def add_data_key(self, key: DataKey) -> None:
        """Stores a data key, the newest of its owner's, or stores one that is there anew."""

    async def data_keys_besides(self, master: bytes, after: bytes, limit: int) -> list[DataKey]:
        """Data keys under other master keys than this, in the order of their ids, after one."""

    async def drop_data_keys(self, owner: Owner) -> int:
        """Removes all data keys of an owner; how many there were."""


class Scrub(Protocol):
    """Rows as they are found, and what puts them right. What is read is a page at a time, in the
    order of the keys, behind `after`."""

    async def scan_keys(
        self, after: UUID | None, limit: int
    ) -> list[tuple[UUID, RawThread | None]]:
        """The keys of the next threads that have an entry or a head, and their entries."""

    async def scan_chunks(self, key: UUID, after: int | None, limit: int) -> list[ChunkRow]:
        """The next chunks of a thread, fewer than `limit` if they are large."""

    async def scan_records(self, key: UUID, after: Ids | None, limit: int) -> list[RawRecord]:
        """The next checkpoints of a thread."""

    async def scan_writes(
        self, key: UUID, after: tuple[str, str, str, int] | None, limit: int
    ) -> list[RawWrite]:
        """The next pending writes of a thread, behind a namespace, id, task and slot."""

    async def look(
        self,
        key: UUID,
        ids: Sequence[Ids],
        numbers: Sequence[int],
        namespaces: Sequence[str] | None,
    ) -> Sight:
        """A thread's entry, its heads (of some namespaces, or all), these checkpoints with their
        pending writes, and these chunks, all at one moment."""

    async def mend(self, key: UUID, repairs: Sequence[Repair]) -> list[bool]:
        """Puts right rows into the place of bad ones, which go to quarantine, each if it is still
        as it was found, and, if it was missing, still needed; tells of each whether it did. All
        in one transaction."""

    async def quarantine(self, rows: Sequence[Quarantined]) -> None:
        """Keeps what was found in another tier."""

    async def quarantined(self, key: UUID) -> list[Quarantined]:
        """What was kept of a thread, until that is deleted."""


class Durable(LeaseTable, EventTable, KeyTable, Scrub, Protocol):
    """The tier that acknowledged state survives in.

    What carries a fence is stored only while the thread's lease has that fence.
    """

    async def setup(self) -> None:
        """Installs or upgrades the tables, once, whoever comes first."""

    async def ping(self) -> None:
        """Asks whether the tier can be used at all, tables aside, in one round trip.

        Raises:
            UnavailableError: if it cannot.
        """

    async def commit(self, batch: Sequence[Put | PutWrites]) -> list[Outcome]:
        """Stores a batch, at most one put per head, in one round trip; each wins or loses alone."""

    async def read(
        self, place: Place, id: str | None, held: Digest, most: int | None
    ) -> Found | None:
        """A checkpoint with its pending writes, in one round trip; the head if `id` is None.

        The record is left out if its digest is `held`, or if its chunks exceed `most` bytes.
        """

    async def page(self, listing: Listing) -> Page:
        """One page of checkpoints with all that they need."""

    async def chain(self, place: Place, id: str, limit: int) -> list[RecordRow]:
        """Up to `limit` rows from `id` up through its parents, without their chunks."""

    async def rest(
        self, place: Place, ids: Sequence[str], numbers: Sequence[int], light: Sequence[int]
    ) -> Page:
        """The writes of some checkpoints, and the chunks of these numbers and of those writes;
        of `light` numbers only digests and item counts."""

    async def delete_thread(self, thread: Thread) -> dict[str, bool]:
        """Removes all of a thread; returns the namespaces it had, and whether the hot tier may
        have been ahead of each."""

    async def runs(self, tenant: str, run_ids: Sequence[str]) -> list[tuple[Thread, str, str]]:
        """The thread, namespace and id of each checkpoint made by these runs."""

    async def remove(
        self,
        thread: Thread,
        doomed: Sequence[tuple[str, str]],
        seals: Mapping[Digest, bytes] = MappingProxyType({}),
        edges: Sequence[Edge] | None = None,
    ) -> bool:
        """Removes checkpoints (namespace, id), the chunks that only they needed, and moves a
        head that was among them to the newest that is left, signed by its digest's of `seals`.
        Their children that stay get their `edges`, unless these are None. Tells whether it did:
        not where the hot tier may be ahead of a head of the thread, or these are not all of
        those."""

    async def children(self, thread: Thread, doomed: Sequence[tuple[str, str]]) -> list[RecordRow]:
        """The checkpoints that stay when `doomed` (namespace, id) are removed, whose parents these
        are, in the order of their keys; without their chunks."""

    async def sign_head(self, place: Place, digest: Digest, seal: bytes) -> bool:
        """Signs a head, if it still has this digest; tells whether it had."""

    async def heads(self, thread: Thread) -> dict[str, Head]:
        """The heads of a thread, by namespace."""

    async def keep(
        self,
        thread: Thread,
        kept: Sequence[tuple[str, str]],
        heads: Mapping[str, Head],
        edges: Sequence[Edge] = (),
    ) -> bool:
        """Removes all checkpoints of a thread but `kept` (namespace, id), if its heads are still
        `heads`; tells whether they were. Those whose parents are there, and go, get their
        `edges`."""

    async def move_head(self, place: Place, expected: Digest, to: Head) -> bool:
        """Makes a checkpoint that is stored with this digest the head, signed, if the head's is
        `expected` (empty if there is no head) and the hot tier is not ahead; tells whether it did.
        The place in the order that the head has reached stays."""

    async def copy(
        self,
        source: Thread,
        target: Thread,
        rows: Sequence[RecordRow],
        writes: Sequence[tuple[str, WriteRow]],
        heads: Sequence[tuple[str, str]],
        seals: Sequence[bytes] = (),
    ) -> None:
        """Copies chunks, and stores re-digested rows and writes (with their namespaces); `heads`
        (namespace, id), given last, make the copy visible, and `seals`, if any, sign them. A row
        keeps its edge if its parent is not in the copy by then."""

    async def rewrite(self, thread: Thread, heads: Mapping[str, Head], rows: Rewritten) -> bool:
        """Replaces all checkpoints of a thread, and what is given of its writes, with new chunks,
        if its heads are still `heads` and it has no other checkpoints; tells whether it did. A row
        of writes that is no longer what it was stays, and what would follow it does not come. What
        nothing refers to any more is removed."""

    async def mark_ahead(
        self, place: Place, token: bytes, accepted: Sequence[bytes], fence: int | None = None
    ) -> tuple[Head, bytes] | None:
        """Says that the hot tier may be ahead of a head from now on, in the spell `token`, unless
        another than those `accepted` is under way. Returns the head, which has no digest if there
        is none, and the token that it has now; None if `fence` is no longer the lease's."""

    async def progress(self, places: Sequence[Place]) -> dict[Place, Progress]:
        """How far the spell of each of these heads is flushed; without those not marked."""

    async def flush(
        self, advances: Sequence[Advance], batch: Sequence[Put | PutWrites]
    ) -> list[Outcome] | None:
        """Stores entries of outboxes, in one transaction with how far that gets their spells; None,
        and nothing is stored, if somebody else flushed one of them or a mark is gone."""

    async def clear_ahead(self, place: Place, token: bytes) -> bool:
        """Says that the hot tier is no longer ahead, if `token` is still what was said; tells
        whether it was."""

    async def ahead(self, thread: UUID | None, limit: int) -> list[Waiting]:
        """The heads that the hot tier may be ahead of, oldest first, of a thread's key or of all; a
        thread of which nothing is durable has only its key."""


class Hot(Protocol):
    """The tier that serves copies, by digest."""

    async def ping(self) -> None:
        """Asks whether the tier answers, in one round trip.

        Raises:
            UnavailableError: if it does not.
        """

    async def raise_to(self, put: Put, seq: int, previous: Digest, dropped: Sequence[int]) -> bool:
        """Brings the copy from `previous` to this put, without the chunks `dropped`; removes an
        older copy that is neither. Tells whether the copy is this put now."""

    async def fill(self, place: Place, row: RecordRow, chunks: Sequence[ChunkRow]) -> None:
        """Stores a whole copy, unless a newer one is there."""

    async def fetch(
        self, place: Place, digest: Digest
    ) -> tuple[RecordRow, dict[int, ChunkRow]] | None:
        """The copy with this digest, or None."""

    async def drop(self, thread: Thread, namespaces: Sequence[str]) -> None:
        """Removes the copies of these namespaces."""

    async def witness(self, place: Place) -> Witnessed:
        """The newest signed head that was seen."""

    async def raise_witness(self, place: Place, witness: bytes, force: bool, drops: bytes) -> bool:
        """Keeps a signed head, unless one with a larger count (its first 16 digits) was seen and
        this one is not to be kept by `force`. False, and nothing is kept, if the `drops` are not
        those that were there before it was looked at: it may be gone."""

    async def drop_witnesses(
        self, thread: Thread | None, namespaces: Sequence[str] | None, before: bool
    ) -> None:
        """Forgets the signed heads of these namespaces, or of all that there are, of a thread, or
        of all; and remembers it for as long as somebody may be about to tell of one. `before` they
        are removed or moved back the drops say so: they are pending."""


class HotScrub(Protocol):
    """What the hot tier holds, as it is found, and what puts it right."""

    async def inspect(self, place: Place) -> HotRaw:
        """All that is held of a namespace, at one moment."""

    async def mend_fields(
        self, place: Place, of: Literal["copy", "writes"], changes: Sequence[Change]
    ) -> bool:
        """Changes fields of a copy or of pending writes, if all of them are as they were found;
        tells whether it did."""

    async def entries(self, thread: Thread, skip: int, limit: int) -> RawEntries:
        """Entries of a thread's outbox but for the first `skip`, which stay whoever's they are."""

    async def mend_entry(self, thread: Thread, number: int, found: bytes, right: bytes) -> bool:
        """Replaces the entry with this number, if it is as it was found; tells whether it did."""


class Outbox(HotScrub, Protocol):
    """What the hot tier holds before the durable one does. Each verb is one atomic step.

    What carries a fence is taken unless a larger one is known; that one is known then.
    """

    async def raise_fence(self, thread: Thread, fence: int) -> None:
        """From now on nothing is taken that carries a smaller fence than this."""

    async def append(
        self, put: Put, step: Step, token: bytes, opened: Opened | None, refused: bool
    ) -> Answer:
        """Checks the hot head, applies a put, and appends it to the thread's outbox; one that is
        `refused` is appended only."""

    async def append_writes(self, item: PutWrites, token: bytes, opened: Opened | None) -> Answer:
        """Stores a task's pending writes and appends them to the thread's outbox."""

    async def note(self, item: PutWrites) -> None:
        """Keeps writes that are durable, for a time when Postgres cannot be asked."""

    async def evicts(self) -> str:
        """The policy by which keys may be evicted that never expire; empty if there is none."""

    async def peek(self, place: Place, held: Digest) -> HotFound:
        """All that is held of a namespace, without the copy if its digest is `held`."""

    async def take(self, thread: Thread, holder: bytes, limit: int) -> Outgoing | None:
        """The oldest entries of a thread's outbox, up to one that cannot be read; None while
        somebody else flushes it, unless `holder` is empty.

        Raises:
            CorruptionError: if the very first cannot be read.
        """

    async def skip(self, thread: Thread, known: bytes | None = None) -> bytes | None:
        """Takes the oldest entry off, if it is the one that is `known`, or, without that, cannot be
        read, without its being flushed: its bytes; None if it did not."""

    async def ack(
        self,
        thread: Thread,
        holder: bytes,
        first: int,
        count: int,
        last: int,
        flushed: Mapping[tuple[str, bytes], Sequence[Digest]],
    ) -> int:
        """Takes entries off that are durable now, the number of the last being `last`; `flushed`
        are the heads among them, by namespace and token. How many are left; -1 if these are not
        the oldest any more."""

    async def close(self, place: Place, token: bytes, quiet: float) -> bool:
        """Begins to close a spell if nothing is left to flush and nothing came for `quiet`
        seconds; tells whether it is closing."""

    async def forget(self, place: Place, token: bytes) -> None:
        """Removes a closing spell."""

    async def outdated(self, place: Place) -> None:
        """Removes the copy and the pending writes of a namespace that are not a spell's: the
        durable tier has them under other digests now."""

    async def discard(self, place: Place, token: bytes, head: Digest) -> bool:
        """Removes a spell that is not current, if its hot head is still `head` (empty for any);
        what is in the outbox stays. Tells whether it did."""

    async def guard(self, place: Place, token: bytes) -> bool:
        """Notes that the durable head is marked for this spell; tells whether it is there."""

    async def adopt(self, place: Place, token: bytes, flushed: int) -> None:
        """Goes on with a spell on a server that was restarted; its next entries have larger
        numbers than `flushed`."""

    async def erase(self, thread: Thread, namespaces: Sequence[str]) -> None:
        """Removes all that is held of these namespaces, and the thread's outbox."""

    async def depth(self, thread: Thread) -> tuple[int, float]:
        """How many entries a thread's outbox holds, and for how many seconds the oldest waits."""

    async def threads(self) -> list[UUID]:
        """The keys of the threads that have something to flush."""


class Commits(Protocol):
    """Groups what several callers store at once."""

    async def submit(self, item: Put | PutWrites) -> Outcome:
        """Stores `item`, together with whatever else is waiting."""
