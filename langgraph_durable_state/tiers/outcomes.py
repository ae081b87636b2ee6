"""What became of a put, told from what the storing statement saw: written once for every tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..words import (
    Ahead,
    Claim,
    Digest,
    Fenced,
    Head,
    Kept,
    Lost,
    Outcome,
    ParentGone,
    Put,
    PutWrites,
    Won,
    frozen,
)


@frozen
class Seen:
    """What the statement saw: the put's place in the order if it won, the head it met, whether it
    was able to win (what it needs is there, and it is not stored already), the token of the spell
    in which the hot tier may be ahead, and whether its lease was taken over."""

    seq: int | None
    head: Head | None
    able: bool
    ahead: bytes | None = None
    fenced: bool = False


@frozen
class Standing:
    """A checkpoint as stored now, if it is, and the id of its namespace's head."""

    seq: int | None
    digest: Digest | None
    refused: bool | None
    head: str | None


class Store(Protocol):
    """What is asked of a tier about a put that did not win."""

    async def commit(self, batch: Sequence[Put | PutWrites]) -> list[Outcome]:
        """Tries again."""

    async def standing(self, put: Put, id: str) -> Standing:
        """A checkpoint of the put's namespace."""

    async def keep_aside(self, put: Put, refused: bool) -> int | None:
        """Stores the put beside the head; its place in the order, None if it could not be, its
        lease may have been taken over."""


async def outcome(store: Store, put: Put, seen: Seen) -> Outcome:
    """What became of `put`; one that lost is kept."""
    if seen.seq is not None:
        return Won(seen.seq)
    if seen.fenced:
        return Fenced()
    if seen.ahead != put.spell:
        return Ahead(seen.ahead or b"")
    head = seen.head
    if head is not None and head.digest == put.digest:
        return Won(head.seq, repeated=True)  # an acknowledgement was lost
    if not seen.able and put.claim is Claim.HEAD and head and head.digest == put.expected:
        # With all chunks sent, what it misses are the writes that it was made from.
        return ParentGone() if put.refers is not None else Lost(head.id, kept=False)
    return await _aside(store, put, seen.able)


async def _aside(store: Store, put: Put, able: bool) -> Outcome:
    """A put that did not win: it is there already, or must be sent anew, or is kept, or lost."""
    found = await store.standing(put, put.id)
    if found.digest == put.digest and found.seq is not None:
        if found.refused:
            return Lost(found.head, kept=True)
        return Kept(found.seq) if put.claim is Claim.ASIDE else Won(found.seq, repeated=True)
    opens = put.claim is not Claim.HEAD and found.head is None and able
    if put.claim is Claim.ANY or opens:
        # Able, it lost a race to open the namespace, perhaps to a mark: once more.
        return (await store.commit([put]))[0] if able else ParentGone()
    refused = put.claim is not Claim.ASIDE
    kept = await store.keep_aside(put, refused)
    if kept is None:
        found = await store.standing(put, put.id)
        if found.digest == put.digest and found.refused:
            return Lost(found.head, kept=True)  # another kept it at the same time
    if kept is None and found.head is not None and found.seq is None and put.refers is not None:
        return ParentGone()
    return Lost(found.head, kept is not None) if refused or kept is None else Kept(kept)
