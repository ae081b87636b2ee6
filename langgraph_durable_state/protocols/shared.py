"""What all drivers of one saver share: it outlives loops and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..decisions.codec import Blobs, Record
from ..decisions.keys import Numbers
from ..events import Kind
from ..health import HeadCacheHealth
from ..words import Digest, Place
from .reading import Reader
from .runs import Register

K = TypeVar("K", contravariant=True)
V = TypeVar("V")


class Heads(Protocol):
    """Heads that this process holds decoded, by place."""

    def get(self, place: Place, digest: Digest) -> Record | None:
        """The head held, if it has this digest."""

    def put(self, place: Place, record: Record, digest: Digest) -> None:
        """Holds a head, as long as there is room."""

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


@dataclass(frozen=True, slots=True)
class Known:
    """A stored checkpoint as this process knows it."""

    record: Record
    digest: Digest


@dataclass(frozen=True)
class Shared:
    """See above.

    Attributes:
        blobs, numbers, register, reader, heads, events: as their types say.
        recent: records seen lately, by place and id, for forks to build on.
        filled: places whose hot copy this process has brought once.
        hot_from: bytes from which a head is copied to and served by the hot tier; None for never.
        fork_on_conflict: let a put that finds the head moved become the head.
    """

    blobs: Blobs
    numbers: Numbers
    register: Register
    reader: Reader
    heads: Heads
    events: Events
    recent: Lately[tuple[Place, str], Known]
    filled: Lately[Place, bool]
    hot_from: int | None
    fork_on_conflict: bool
