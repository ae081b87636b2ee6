"""The hot copies as the engine uses them: whatever fails here fails nothing else.

Under write-through Postgres has it all; a copy that could not be written, or that is damaged, is
a slower read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..decisions import codec
from ..decisions.codec import Record, Unsound
from ..decisions.keyring import KeyNeeded
from ..decisions.recovery import Elsewhere
from ..errors import EvolutionError, KeyMissingError, UnavailableError
from ..ports import Hot
from ..words import ChunkRow, Digest, Place, RecordRow, Thread
from .drafting import Draft
from .shared import Shared

logger = logging.getLogger("langgraph_durable_state")


class Copies:
    """Hot copies over one driver's hot tier.

    Args:
        hot: the tier; None if there is none.
        shared: the saver's.
    """

    def __init__(self, hot: Hot | None, shared: Shared) -> None:
        self._hot = hot
        self._shared = shared

    @property
    def served_from(self) -> int | None:
        """Bytes from which a head is left to the hot tier; None if all come from Postgres."""
        return self._shared.hot_from if self._hot is not None else None

    def _takes(self, size: int) -> bool:
        return self.served_from is not None and size >= self.served_from

    async def follow(self, draft: Draft, seq: int) -> None:
        """Brings the copy to a head that was just stored."""
        if self._hot is None or not self._takes(draft.record.size):
            return
        put = draft.put
        try:
            step = replace(put, chunks=draft.news(self._shared.blobs))
            if await self._hot.raise_to(step, seq, put.base, draft.dropped()):
                return
            if self._shared.filled.get(put.place) is None:
                # Once per process: where Redis keeps losing copies, readers bring them back.
                self._shared.filled.put(put.place, True)
                row = RecordRow(
                    put.place.ns, put.id, put.parent, seq, put.digest, put.record, put.numbers
                )
                await self._hot.fill(put.place, row, draft.rows(self._shared.blobs))
        except UnavailableError as error:
            logger.debug("a hot copy was not brought up to date: %s", error)

    async def fill(
        self, place: Place, row: RecordRow, chunks: Sequence[ChunkRow], size: int
    ) -> None:
        """Stores a copy of a head that was read from Postgres."""
        if self._hot is None or not self._takes(size):
            return
        try:
            await self._hot.fill(place, row, chunks)
        except UnavailableError as error:
            logger.debug("a hot copy was not filled: %s", error)

    async def fetch(self, place: Place, digest: Digest) -> Record | None:
        """The record with this digest, proven; None if there is no sound copy of it."""
        if self._hot is None:
            return None
        try:
            copy = await self._hot.fetch(place, digest)
            if copy is None:
                return None
            row, rows = copy
            chunks = self._shared.reader.chunks(rows)
            return codec.read_record(place, row, chunks, self._shared.blobs)
        except KeyNeeded:
            raise
        except (UnavailableError, KeyMissingError) as error:
            logger.debug("a hot copy was not read: %s", error)
        except Unsound as found:
            self._damaged(place, f"its hot copy, which is replaced by Postgres's: {found.detail}")
            await self.drop(place.thread, [place.ns])
        return None

    async def look(self, place: Place, digest: Digest) -> tuple[Elsewhere, Record | None]:
        """Whether there is a copy with this digest, and the record if it is sound; a damaged one is
        left as it is."""
        if self._hot is None:
            return Elsewhere.BAD, None
        try:
            copy = await self._hot.fetch(place, digest)
        except UnavailableError:
            return Elsewhere.DOWN, None
        except Unsound:
            return Elsewhere.BAD, None
        record = self.proven(place, *copy, digest) if copy is not None else None
        return (Elsewhere.BAD if record is None else Elsewhere.GOOD), record

    def proven(
        self,
        place: Place,
        row: RecordRow | None,
        rows: Mapping[int, ChunkRow],
        digest: Digest,
    ) -> Record | None:
        """As `read`, and nobody is told of damage."""
        if row is None or row.digest != digest:
            return None
        try:
            chunks = self._shared.reader.chunks(rows)
            return codec.read_record(place, row, chunks, self._shared.blobs)
        except KeyNeeded:
            raise
        except (Unsound, EvolutionError):
            return None

    def read(
        self,
        place: Place,
        row: RecordRow | None,
        rows: Mapping[int, ChunkRow],
        digest: Digest,
    ) -> Record | None:
        """The record of a copy that was read, proven; None if it is not the one with this digest,
        or not sound."""
        if row is None or row.digest != digest:
            return None
        try:
            return codec.read_record(
                place, row, self._shared.reader.chunks(rows), self._shared.blobs
            )
        except Unsound as found:
            self._damaged(place, f"the hot head: {found.detail}", row.id)
            return None

    def _damaged(self, place: Place, detail: str, id: str | None = None) -> None:
        events = self._shared.events
        events.emit("damaged", detail, tier="redis", place=place, checkpoint=id)

    async def check(self) -> None:
        """Asks the hot tier, whose breaker tells a failure."""
        if self._hot is None:
            return
        try:
            await self._hot.ping()
        except UnavailableError as error:
            logger.debug("the hot tier does not answer: %s", error)

    async def drop(self, thread: Thread, namespaces: Sequence[str]) -> None:
        """Removes copies; one that stays behind is never served, and goes with its time to live."""
        if self._hot is None:
            return
        try:
            await self._hot.drop(thread, namespaces)
        except UnavailableError as error:
            logger.debug("hot copies were not dropped: %s", error)
