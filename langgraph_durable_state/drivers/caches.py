"""What a process keeps of what it read or wrote: bounded, and never taken for the truth.

A cached head is used only when the durable tier has just said that its digest is the head's.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ..decisions.codec import Batch, Record
from ..health import HeadCacheHealth
from ..words import Digest, Place, frozen

K = TypeVar("K")
V = TypeVar("V")

_DECODED = 3
"""Decoded messages take about three times their bytes (measured with 400-byte messages)."""


@frozen
class Held:
    """A head with what it costs, in bytes, and the pending writes seen of it."""

    record: Record
    digest: Digest
    cost: int
    writes: tuple[Batch, ...]


class HeadCache:
    """Heads with their chunks' decoded items, least recently used out first.

    Args:
        max_bytes: bound on the bytes held, decoded items estimated; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[Place, Held] = OrderedDict()
        self._size = 0
        self._asked = 0
        self._hits = 0

    def digest(self, place: Place) -> Digest:
        """The digest of the head held; empty if there is none. Begins a read of the head."""
        self._asked += 1
        held = self._held.get(place)
        return held.digest if held is not None else b""

    def get(self, place: Place, digest: Digest) -> Record | None:
        """The head held, if it has this digest."""
        with self._lock:
            held = self._held.get(place)
            if held is None or held.digest != digest:
                return None
            self._held.move_to_end(place)
            self._hits += 1
            return held.record

    def last(self, place: Place) -> tuple[Record, Sequence[Batch], Digest] | None:
        """The head held, current or not, with the pending writes seen of it."""
        held = self._held.get(place)
        return (held.record, held.writes, held.digest) if held is not None else None

    def wrote(self, place: Place, id: str, writes: Sequence[Batch]) -> None:
        """Pending writes were stored against a checkpoint; noted if it is the head held."""
        with self._lock:
            held = self._held.get(place)
            if held is not None and held.record.id == id:
                self._held[place] = replace(held, writes=(*held.writes, *writes))

    def put(
        self, place: Place, record: Record, digest: Digest, writes: Sequence[Batch] = ()
    ) -> None:
        """Holds a head with the pending writes seen of it, as long as there is room."""
        cost = record.size * (1 + _DECODED)
        with self._lock:
            old = self._held.pop(place, None)
            self._size -= old.cost if old else 0
            if cost > self._max:
                return
            self._held[place] = Held(record, digest, cost, tuple(writes))
            self._size += cost
            while self._size > self._max:
                self._size -= self._held.popitem(last=False)[1].cost

    def health(self) -> HeadCacheHealth:
        """What is held, and how often it served."""
        with self._lock:
            missed = self._asked - self._hits
            return HeadCacheHealth(len(self._held), self._size, self._max, self._hits, missed)

    def reset(self) -> None:
        """A new lock and nothing held, for a forked child."""
        self.__init__(self._max)  # type: ignore[misc]


class Lately(Generic[K, V]):
    """The last few entries, least recently put out first.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[K, V] = OrderedDict()

    def reset(self) -> None:
        """A new lock and nothing held, for a forked child."""
        self.__init__(self._most)  # type: ignore[misc]

    def get(self, key: K) -> V | None:
        return self._held.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._held[key] = value
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
