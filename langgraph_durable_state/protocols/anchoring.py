"""Heads that are signed, and witnessed by the other tier: what under a key tells a head that was
moved, or a tier that was set back.

The hot tier keeps the newest signed head that it was told of. It is told after the durable tier
has it, so a durable head that is older than its witness, looked at after that, was set back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ..decisions import heads
from ..decisions.codec import Record
from ..decisions.heads import Signed
from ..decisions.keyring import KeyNeeded
from ..errors import HeadMovedError, KeyMissingError, UnavailableError
from ..ports import Durable, Hot
from ..words import Digest, Found, Head, Place, Put, Thread
from .shared import Shared

logger = logging.getLogger("langgraph_durable_state")

TRIES = 5
"""A head that is removed or moved back while it is told of is looked at again; five times."""


@dataclass(frozen=True, slots=True)
class Current:
    """The head as it is now, and how often it has moved."""

    head: Head
    count: int


class Anchors:
    """Over one driver's tiers; without a key it does nothing.

    Args:
        shared: the saver's.
        durable: holds the heads.
        hot: witnesses them; None if there is none.
    """

    def __init__(self, shared: Shared, durable: Durable, hot: Hot | None) -> None:
        self._keys = shared.blobs.keys
        self.signs = self._keys.signs
        """Whether there is a key, and heads are signed."""
        self._durable = durable
        self._hot = hot

    # -- reading -----------------------------------------------------------------------------

    def check(self, place: Place, head: Head, record: Record) -> None:
        """Refuses a durable head that is not signed as one.

        Raises:
            HeadMovedError: if it is not.
        """
        if self.signs and record.count and self._signed(place, head) is None:
            raise _moved(place, head.id, None, "it was not signed as a head")

    async def contradicting(
        self, place: Place, record: Record | None, head: Head | None, floor: Signed | None
    ) -> Signed | None:
        """What was seen as head before and is newer than this one; None if nothing was.

        Args:
            place: whose head.
            record, head: it, if there is one.
            floor: what an earlier call found, before the head was looked at again.
        """
        if not self.signs or (record is not None and not record.count):
            return None
        seen = floor if floor is not None else await self._witness(place)
        if record is None or head is None:
            return await self._still(place, seen, floor)
        if seen is not None and seen.count >= record.count:
            same = (seen.id, seen.digest) == (head.id, head.digest)
            return None if same else await self._still(place, seen, floor)
        if head.seal and self._hot is not None:  # it lost what it had seen, or was away
            await self._note(place, heads.witness(head.id, head.digest, head.seal), force=False)
        return None

    async def _still(
        self, place: Place, seen: Signed | None, floor: Signed | None
    ) -> Signed | None:
        """What was seen before the head was looked at again; None if it was since forgotten: then
        the head was removed or moved back on purpose."""
        if seen is None or floor is None:
            return seen
        now = await self._witness(place)
        return seen if now is not None and now.count >= seen.count else None

    async def check_listed(self, thread: Thread, ns: str | None) -> None:
        """Refuses a history, of one namespace or of all, whose newest checkpoints were cut off.

        Raises:
            HeadMovedError: if a head is not what was put last, or is not there.
        """
        if not self.signs:
            return
        if ns is not None:
            places = [Place(thread, ns)]
        else:
            places = [Place(thread, one) for one in await self._durable.heads(thread)]
        for place in places or [Place(thread, "")]:
            await self._check_listed(place)

    async def _check_listed(self, place: Place) -> None:
        found = await self._durable.read(place, None, b"", -1)
        floor = await self._witness(place)
        if floor is not None and not self._reaches(place, found, floor):
            # It may have been told of a put since the head was looked at.
            found = await self._durable.read(place, None, b"", -1)
            behind = not self._reaches(place, found, floor)
            if behind and await self._still(place, floor, floor) is not None:
                id = found.head.id if found is not None else None
                raise _moved(place, id, floor.id, f"checkpoint {floor.id} was seen as head")
        if found is None or not found.head.digest:
            return
        if found.row is not None and not found.row.record:
            raise _moved(place, found.head.id, None, "that checkpoint is not there")
        if found.head.seal and self._signed(place, found.head) is None:
            raise _moved(place, found.head.id, None, "it was not signed as a head")

    def _reaches(self, place: Place, found: Found | None, floor: Signed) -> bool:
        """Whether a head is one that was seen, or a newer one; or was stored without a key."""
        if found is None or not found.head.digest:
            return found is not None and found.ahead is not None
        if not found.head.seal:
            return True
        seen = self._signed(place, found.head)
        return seen is None or seen == floor or seen.count > floor.count

    def moved(
        self, place: Place, record: Record | None, seen: Signed, why: str = "", **told: str
    ) -> HeadMovedError:
        """The error of a head that is older than what was seen."""
        found = record.id if record is not None else None
        detail = f"checkpoint {seen.id} was seen as head, move {seen.count} of it{why}"
        return _moved(place, found, seen.id, detail, **told)

    async def _witness(self, place: Place) -> Signed | None:
        if self._hot is None:
            return None
        try:
            found = (await self._hot.witness(place)).head
        except UnavailableError as error:
            logger.debug("the witness of a head was not asked: %s", error)
            return None
        if not found:
            return None
        try:
            seen = heads.read_witness(place, found, self._keys)
        except KeyNeeded:
            raise
        except KeyMissingError:
            return None  # of a key that was retired, or shredded
        if seen is None:
            logger.warning(
                "the witness of thread %r, namespace %r, is not what was written",
                place.thread.id,
                place.ns,
            )
        return seen

    def is_signed(self, place: Place, head: Head) -> bool:
        """Whether a head carries what signs it."""
        return self._signed(place, head) is not None

    async def is_last(self, place: Place, head: Head) -> bool:
        """Whether the hot tier has seen no other head after this one."""
        seen = await self._witness(place)
        return seen is None or (seen.id, seen.digest) == (head.id, head.digest)

    def _signed(self, place: Place, head: Head) -> Signed | None:
        return heads.signed(place, head.id, head.digest, head.seal, self._keys)

    # -- writing -----------------------------------------------------------------------------

    async def current(self, place: Place) -> Current:
        """The durable head, which has no digest if there is none.

        Raises:
            HeadMovedError: if it is not signed as one.
        """
        found = await self._durable.read(place, None, b"", -1)
        if found is None or not found.head.digest:
            return Current(Head("", 0, b""), 0)
        if not found.head.seal:
            return Current(found.head, 0)
        seen = self._signed(place, found.head)
        if seen is None:
            raise _moved(place, found.head.id, None, "it was not signed as a head")
        return Current(found.head, seen.count)

    async def note(self, put: Put, force: bool = False) -> None:
        """Has the hot tier witness a put that is the durable head; by `force` whatever it saw."""
        if put.seal and self._hot is not None:
            await self._note(put.place, heads.witness_of(put), force)

    async def tell(self, place: Place, witness: bytes) -> None:
        """Has the hot tier witness a head that is in the durable one now."""
        if witness and self._hot is not None:
            await self._note(place, witness, force=True)

    async def _note(self, place: Place, witness: bytes, force: bool) -> None:
        """Has a head witnessed that was seen. Where one was removed or moved back lately, it is
        looked at again first: it may be gone, and would contradict what is there. Where one is
        about to be, none is witnessed: whoever does that may be stopped half-way."""
        assert self._hot is not None
        drops = b""
        try:
            for _ in range(TRIES):
                if await self._hot.raise_witness(place, witness, force, drops):
                    return
                seen = await self._hot.witness(place)
                drops, witness = seen.drops, b"" if seen.pending else await self._now(place)
                if not witness:
                    return
        except (UnavailableError, KeyMissingError) as error:
            logger.debug("a head was not witnessed: %s", error)

    async def _now(self, place: Place) -> bytes:
        """What is to be witnessed of the durable head; empty if there is none that is signed."""
        found = await self._durable.read(place, None, b"", -1)
        if found is None or self._signed(place, found.head) is None:
            return b""
        return heads.witness(found.head.id, found.head.digest, found.head.seal)

    # -- maintenance -------------------------------------------------------------------------

    async def forget(
        self, thread: Thread | None, namespaces: Sequence[str] | None, before: bool = False
    ) -> None:
        """Heads of these namespaces, or all, of a thread or all were moved back, or are gone. It
        is told `before` that is done, too, since it may be stopped half-way.

        Raises:
            UnavailableError: if the hot tier, which would contradict that, cannot be told.
        """
        if self.signs and self._hot is not None:
            await self._hot.drop_witnesses(thread, namespaces, before)

    def seals(self, place: Place, records: Sequence[Record]) -> dict[Digest, bytes]:
        """What signs records as heads of a place, by their digests."""
        found = {}
        for record in records:
            digest = record.digest()
            seal = heads.signature(record.seal, place, record.id, digest, record.count)
            found[digest] = seal
        return {digest: seal for digest, seal in found.items() if seal}

    async def sign(self, place: Place, record: Record) -> None:
        """Signs a head that is at this record, as it is, and has it witnessed."""
        digest = record.digest()
        seal = heads.signature(record.seal, place, record.id, digest, record.count)
        if seal and await self._durable.sign_head(place, digest, seal) and self._hot is not None:
            await self._note(place, heads.witness(record.id, digest, seal), force=True)


def _moved(
    place: Place, found: str | None, known: str | None, detail: str, **told: str
) -> HeadMovedError:
    return HeadMovedError(
        thread=place.thread.id,
        namespace=place.ns,
        tenant=place.thread.tenant,
        found=found or None,
        known=known,
        detail=detail,
        **told,
    )
