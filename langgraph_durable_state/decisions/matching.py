"""Chunks, parts of them, and how a new version of a value is made up of old ones.

This file plans and never encodes: it works on fingerprints alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..words import Digest, frozen
from .digest import PLAIN, Seal

FAN_OUT = 8
"""Trailing chunks of one size that are joined to one of the next."""

LARGEST_ITEMS = FAN_OUT * FAN_OUT
LARGEST_BYTES = 256 * 1024
"""A chunk is not joined beyond this: rewriting it would cost more than the row it saves."""


class Chunk:
    """A run of serialized items within one process: its bytes, and what is known of them.

    `seal` is what its digest was made under.
    `prints` are the items' fingerprints, `items` the decoded items (never handed out). Either may
    come from decoding, and then holds for the serializer that did it (`reader`) alone: another one
    may read another value from the same bytes.
    """

    __slots__ = ("count", "digest", "items", "no", "plain", "prints", "reader", "seal")

    def __init__(
        self,
        no: int,
        plain: bytes,
        count: int,
        prints: tuple[bytes, ...] | None = None,
        digest: Digest | None = None,
        seal: Seal = PLAIN,
    ) -> None:
        self.no = no
        self.plain = plain
        self.count = count
        self.prints = prints
        self.digest: Digest = digest or seal.of_bytes(plain)
        self.seal = seal
        self.items: list[Any] | None = None
        self.reader: Any = None

    @classmethod
    def bare(cls, no: int, digest: Digest, count: int) -> Chunk:
        """A chunk of which only the identity is known, enough to verify what refers to it."""
        return cls(no, b"", count, digest=digest)


@frozen
class Piece:
    """The items `start` to `stop` of a chunk."""

    chunk: Chunk
    start: int
    stop: int

    @property
    def full(self) -> bool:
        return self.stop - self.start == self.chunk.count


Step = Piece | tuple[int, int]


def match(prints: tuple[bytes, ...], old: Sequence[Piece]) -> list[Step]:
    """How to make up a value of `prints`: parts of old chunks, and ranges of items to add."""
    plan: list[Step] = []
    at = 0
    for k, piece in enumerate(old):
        size = piece.stop - piece.start
        marks = piece.chunk.prints
        if marks is None or marks[piece.start : piece.stop] != prints[at : at + size]:
            _match_rest(plan, prints, at, old[k:])
            return plan
        plan.append(piece)
        at += size
    if at < len(prints):
        plan.append((at, len(prints)))
    return plan


def _match_rest(plan: list[Step], prints: tuple[bytes, ...], at: int, old: Sequence[Piece]) -> None:
    places: dict[bytes, tuple[Chunk, int]] = {}
    for piece in old:
        for i in range(piece.start, piece.stop if piece.chunk.prints else piece.start):
            places.setdefault(piece.chunk.prints[i], (piece.chunk, i))  # type: ignore[index]
    fresh = at
    while at < len(prints):
        place = places.get(prints[at])
        if place is None:
            at += 1
            continue
        if fresh < at:
            plan.append((fresh, at))
        chunk, start = place
        marks = chunk.prints or ()
        stop = start
        while stop < chunk.count and at < len(prints) and marks[stop] == prints[at]:
            stop, at = stop + 1, at + 1
        plan.append(Piece(chunk, start, stop))
        fresh = at
    if fresh < at:
        plan.append((fresh, at))


def fragmented(plan: Sequence[Step]) -> bool:
    """Whether so little of the old chunks is used that starting a new rope is cheaper to read.

    A chunk counts each time a part of it is used, since it is decoded whole each time.
    """
    pieces = [s for s in plan if isinstance(s, Piece)]
    used = sum(p.stop - p.start for p in pieces)
    stored = sum(p.chunk.count for p in pieces)
    return stored > 2 * used + LARGEST_ITEMS or len(pieces) > 40 + used // FAN_OUT


def joinable(pieces: Sequence[Piece]) -> int | None:
    """How many trailing pieces to join to one; None if they are few enough."""
    tail = pieces[-FAN_OUT:]
    if len(tail) < FAN_OUT or any(not p.full or p.chunk.prints is None for p in tail):
        return None
    size = _size(tail[-1].chunk)
    if size == 2 or any(_size(p.chunk) != size for p in tail):
        return None
    return FAN_OUT if sum(len(p.chunk.plain) for p in tail) <= LARGEST_BYTES else None


def _size(chunk: Chunk) -> int:
    if chunk.count >= LARGEST_ITEMS or len(chunk.plain) > LARGEST_BYTES // FAN_OUT:
        return 2
    return 1 if chunk.count >= FAN_OUT else 0
