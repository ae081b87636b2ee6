"""What a head was, kept outside of both tiers: they cannot be set back together unnoticed then."""

from __future__ import annotations

import json
from typing import Any

from ..decisions import codec, edges, heads, keys
from ..decisions.codec import Record, Unsound
from ..decisions.heads import Signed
from ..decisions.keyring import KeyNeeded
from ..errors import KeyMissingError, UsageError
from ..ports import Durable
from ..words import Head, Place
from .anchoring import Anchors
from .reading import corrupt
from .shared import Shared

VERSION = 1

_DELETED = "If it was deleted on purpose, its exported heads are of no use any more."
_REKEYED = "What it follows from cannot be told by one of before."
_EXPORT = (
    "If a backup was restored on purpose, or runs were deleted (delete_for_runs), export it again."
)

PAGE = 256
"""Records looked at per round trip, without their chunks."""


class Attestor:
    """Over one driver's tiers.

    Args:
        shared: the saver's.
        durable: holds the heads.
        anchors: sign them.
    """

    def __init__(self, shared: Shared, durable: Durable, anchors: Anchors) -> None:
        self._shared = shared
        self._keys = shared.blobs.keys
        self._durable = durable
        self._anchors = anchors

    async def head(self, place: Place) -> tuple[Head, Record] | None:
        """The durable head with its record, proven; None if there is none.

        Raises:
            CorruptionError: if it is not what was written.
        """
        found = await self._durable.read(place, None, b"", None)
        if found is None or found.row is None or not found.head.digest:
            return None
        record = self._shared.reader.record(place, found.row, found.chunks)
        if found.row.digest != found.head.digest:
            raise corrupt(place, record.id, Unsound(None, "it is not what the head was moved to"))
        return found.head, record

    async def attest(self, place: Place) -> None:
        """Looks whether the durable head is the one that was put last.

        Raises:
            HeadMovedError: if it is not signed, or Redis has seen a newer one.
            CorruptionError: if it is not what was written.
        """
        if not self._anchors.signs:
            return
        floor: Signed | None = None
        while (found := await self.head(place)) is not None:
            head, record = found
            self._anchors.check(place, head, record)
            seen = await self._anchors.contradicting(place, record, head, floor)
            if seen is None:
                return
            if floor is not None:
                raise self._anchors.moved(place, record, seen)
            floor = seen  # it may have been told of a put since the head was looked at

    async def export(self, place: Place) -> str:
        """The head as a text that `check` takes.

        Raises:
            UsageError: if there is none, or it is not signed.
            HeadMovedError: if it was moved by somebody without the key, or set back.
        """
        await self.attest(place)
        found = await self.head(place)
        if found is None:
            raise UsageError(f"thread {place.thread.id!r} has no head to export")
        head, record = found
        self._anchors.check(place, head, record)
        if not head.seal:
            raise UsageError("export_head() needs heads that are signed: use integrity_key")
        said = {
            "version": VERSION,
            "tenant": place.thread.tenant,
            "thread": place.thread.id,
            "namespace": place.ns,
            "checkpoint": head.id,
            "count": record.count,
            "digest": head.digest.hex(),
            "seal": head.seal.hex(),
        }
        return json.dumps(said)

    async def check(self, place: Place, anchor: Signed) -> int:
        """How often the head has moved since an anchor, on from where it was.

        Raises:
            HeadMovedError: if it did not go on from there.
        """
        found = await self.head(place)
        if found is None:
            why = ". The thread was deleted, or both tiers were set back"
            raise self._anchors.moved(place, None, anchor, why, remedy=_DELETED)
        head, record = found
        self._anchors.check(place, head, record)
        if head.digest == anchor.digest:
            return 0
        if record.count <= anchor.count or not await self._follows(place, head, anchor):
            if await self._is_rekeyed(place, anchor):
                why = ", and was brought under another key since (rekey): export it again"
                raise self._anchors.moved(place, record, anchor, why, remedy=_REKEYED)
            raise self._anchors.moved(place, record, anchor, remedy=_EXPORT)
        return record.count - anchor.count

    async def _is_rekeyed(self, place: Place, anchor: Signed) -> bool:
        """Whether an anchored checkpoint is there under another key than it was exported under."""
        there = await self._durable.read(place, anchor.id, b"", None)
        if there is None or there.row is None:
            return False
        record = self._shared.reader.record(place, there.row, there.chunks)
        return record.seal.id != anchor.key

    async def _follows(self, place: Place, head: Head, anchor: Signed) -> bool:
        """Whether an anchored checkpoint is there, or was pruned: not if there is a history that
        has passed it by."""
        there = await self._durable.read(place, anchor.id, b"", -1)
        if there is not None and there.head.digest == anchor.digest:
            return True
        start = head.id
        while True:
            rows = await self._durable.chain(place, start, PAGE)
            numbers = sorted({no for row in rows for no in row.numbers})
            page = await self._durable.rest(place, [], (), numbers)
            chunks = {no: codec.bare_chunk(row) for no, row in page.chunks.items()}
            for row in rows:
                try:
                    record = codec.read_record(place, row, chunks, self._shared.blobs)
                except Unsound as found:
                    raise corrupt(place, row.id, found) from found
                if record.count <= anchor.count:
                    return False
            if len(rows) < PAGE or rows[-1].parent is None:
                gone = bool(rows) and rows[-1].parent is not None
                return gone and edges.is_told(record, rows[-1])
            start = rows[-1].id

    def read(self, text: str) -> tuple[Place, Signed]:
        """The anchor that `export` made.

        Raises:
            UsageError: if it is none, or not signed under a key of this saver.
        """
        try:
            said: dict[str, Any] = json.loads(text)
            place = Place(keys.named(said["tenant"], said["thread"]), said["namespace"])
            digest, seal = bytes.fromhex(said["digest"]), bytes.fromhex(said["seal"])
            found = heads.signed(place, said["checkpoint"], digest, seal, self._keys)
        except (ValueError, TypeError, KeyError, AttributeError):
            found = None
        except KeyNeeded:
            raise
        except KeyMissingError as error:
            raise KeyMissingError(
                key=error.key, what="This exported head", remedy=" After rekey(), export it again."
            ) from None
        if found is None:
            raise UsageError("this is no head that export_head() gave, or it was changed")
        return place, found

    async def signing(self, place: Place, id: str) -> bytes:
        """What signs a checkpoint as a head, as it is; empty without a key, or if it is gone.

        Raises:
            CorruptionError: if it is not what was written.
        """
        if not self._anchors.signs:
            return b""
        found = await self._durable.read(place, id, b"", None)
        if found is None or found.row is None:
            return b""
        record = self._shared.reader.record(place, found.row, found.chunks)
        return self._anchors.seals(place, [record]).get(found.row.digest, b"")

    async def prove(self, place: Place, head: Head) -> bytes | None:
        """What signs a head that is put right; None if Redis has seen another one last.

        Raises:
            CorruptionError: if its checkpoint is not what was written.
        """
        if not self._anchors.signs or self._anchors.is_signed(place, head):
            return head.seal
        if not await self._anchors.is_last(place, head):
            return None
        return await self.signing(place, head.id)

    async def accept(self, place: Place) -> bool:
        """Signs the head as it is, if it is what was written; whether there is one.

        Raises:
            CorruptionError: if it is not.
        """
        found = await self.head(place)
        if found is not None:
            await self._anchors.sign(place, found[1])
        return found is not None
