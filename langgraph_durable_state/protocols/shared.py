"""What all drivers of one saver share: it outlives loops and threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ..decisions.codec import Batch, Blobs, Record
from ..decisions.evolution.snapshot import Snapshot
from ..decisions.keys import Numbers
from ..decisions.serializing import Serializer
from ..events import Kind
from ..health import HeadCacheHealth
from ..recovery import OnRecovery
from ..words import Digest, Place, Put, PutWrites, Thread, frozen
from .leases import Leases
from .reading import Reader
from .runs import Register
from .shaping import Shape

K = TypeVar("K", contravariant=True)
V = TypeVar("V")


class Heads(Protocol):
    """Heads that this process holds decoded, by place."""

    def get(self, place: Place, digest: Digest) -> Record | None:
        """The head held, if it has this digest."""

    def put(
        self, place: Place, record: Record, digest: Digest, writes: Sequence[Batch] = ()
    ) -> None:
        """Holds a head with the pending writes seen of it, as long as there is room."""

    def wrote(self, place: Place, id: str, writes: Sequence[Batch]) -> None:
        """Pending writes were stored against a checkpoint; noted if it is the head held."""

    def last(self, place: Place) -> tuple[Record, Sequence[Batch], Digest] | None:
        """The head held, current or not, with the pending writes seen of it."""

    def digest(self, place: Place) -> Digest:
        """The digest of the head held; empty if there is none."""

    def health(self) -> HeadCacheHealth:
        """What is held, and how often it served."""


class Lately(Protocol[K, V]):
    """The last few entries of a kind."""

    def get(self, key: K) -> V | None:
        """The entry, if it is still held."""

    def put(self, key: K, value: V) -> None:
        """Holds an entry for a while."""


class Events(Protocol):
    """Whom to tell what operators want to hear of."""

    def emit(
        self,
        kind: Kind,
        detail: str = "",
        *,
        tier: str | None = None,
        place: Place | None = None,
        checkpoint: str | None = None,
        head: str | None = None,
        at: float | None = None,
    ) -> None:
        """Tells the log and the observer; see `Event`. It never raises. `at` is now unless told."""


@frozen
class Known:
    """A stored checkpoint as this process knows it."""

    record: Record
    digest: Digest


class Trace(NamedTuple):
    """What is needed to find an item again: of writes the task, slot and digest of each row."""

    place: Place
    id: str
    writes: tuple[tuple[str, int, Digest], ...] | None


def trace_of(item: Put | PutWrites) -> Trace:
    """The trace of a put, or of writes."""
    if isinstance(item, Put):
        return Trace(item.place, item.id, None)
    return Trace(item.place, item.id, tuple((r.task, r.slot, r.digest) for r in item.rows))


class Unflushed(Protocol):
    """The threads of which the hot tier took something that is not durable yet."""

    def add(self, item: Put | PutWrites, guarded: bool) -> None:
        """The hot tier took this; wakes whoever flushes in the background. Of what is not guarded
        only this process knows, if the hot tier loses it."""

    def forget(self, thread: Thread) -> None:
        """The thread is gone, with all that waited."""

    def threads(self) -> Sequence[Thread]:
        """Those of which this process knows."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a saver may do while the tiers are not one.

    Attributes:
        write_behind: the hot tier acknowledges, Postgres is told later.
        queues: the hot tier acknowledges while Postgres is down.
        accepts_loss: go on from the durable head where what the hot tier held alone is gone.
        stale_reads: serve the head last seen while neither tier can be asked.
        secured: 1 if what is acknowledged is on the hot tier's disk, so that a restart loses
            nothing; 2 if it is on a replica's as well, or durable, so that a fail-over does not
            either; 0 if neither.
        falls_back: serve what is left where a head is damaged.
        stale_after: seconds after which a head that is served is marked; None for never.
    """

    write_behind: bool = False
    queues: bool = False
    accepts_loss: bool = False
    stale_reads: bool = False
    secured: int = 0
    falls_back: bool = True
    stale_after: float | None = None

    @property
    def asks_hot(self) -> bool:
        """Whether the hot tier may hold what Postgres was not even told of."""
        return self.write_behind or self.queues


@dataclass(frozen=True)
class Shared:
    """See above.

    Attributes:
        blobs, numbers, register, reader, heads, events: as their types say.
        recent: records seen lately, by place and id, for forks to build on.
        filled: places whose hot copy this process has brought once.
        doubted: puts whose answer was lost in this process, by place and id.
        told: losses that were reported and not accepted yet, by place and mark.
        hot_from: bytes from which a head is copied to and served by the hot tier; None for never.
        fork_on_conflict: let a put that finds the head moved become the head.
        policy: what may be done while the tiers are not one.
        unflushed, leases: as their types say.
        clock: seconds of the epoch.
        shape: of the user's state.
        outlines, over, interrupts: what `DualWrite` notes.
        namespaces: where subgraphs' are stored, by the places that today's code calls them by.
        serializer: reads metadata where no call brings one.
        on_recovery: called where a head is not served just as it was left; None for nobody.
    """

    blobs: Blobs
    numbers: Numbers
    register: Register
    reader: Reader
    heads: Heads
    events: Events
    recent: Lately[tuple[Place, str], Known]
    filled: Lately[Place, bool]
    doubted: Lately[tuple[Place, str], bool]
    told: Lately[tuple[Place, bytes], bool]
    hot_from: int | None
    fork_on_conflict: bool
    policy: Policy
    unflushed: Unflushed
    leases: Leases
    clock: Callable[[], float]
    shape: Shape
    outlines: Lately[tuple[Place, str], Snapshot]
    over: Lately[tuple[Place, str], bool]
    interrupts: Lately[str, str]
    namespaces: Lately[Place, Place]
    serializer: Serializer
    on_recovery: OnRecovery | None = None
