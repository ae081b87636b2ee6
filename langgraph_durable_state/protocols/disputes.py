"""Whether a head that was found is the one that was put last, as far as a key tells. Nothing is
changed here, and nobody is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..decisions.codec import Record
from ..decisions.heads import Signed
from ..errors import HeadMovedError
from ..words import Place
from .anchoring import Anchors
from .finding import Target


@dataclass(frozen=True, slots=True)
class Dispute:
    """Why it is not, and which head was seen as the newest, if one was."""

    error: HeadMovedError
    known: Signed | None


async def dispute(
    anchors: Anchors,
    place: Place,
    target: Target | None,
    record: Record | None,
    floor: Signed | None,
) -> Dispute | None:
    """What a read of a head is refused for; None if nothing speaks against it.

    Args:
        anchors: of the driver.
        place: whose head.
        target, record: it, proven; None if there is none.
        floor: what an earlier call found, before the head was looked at again.
    """
    if target is None or record is None:
        seen = await anchors.contradicting(place, None, None, floor)
        return Dispute(anchors.moved(place, None, seen), seen) if seen is not None else None
    head = replace(target.found.head, id=target.id)
    unsigned = None
    if target.tier == "postgres":
        try:
            anchors.check(place, head, record)
        except HeadMovedError as error:
            unsigned = error
    seen = await anchors.contradicting(place, record, replace(head, seal=b""), floor)
    if unsigned is not None:
        return Dispute(unsigned, seen)
    return Dispute(anchors.moved(place, record, seen), seen) if seen is not None else None
