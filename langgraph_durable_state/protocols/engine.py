"""Reading over both tiers: get, list and history, written once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.checkpoint.base import CheckpointTuple

from ..decisions import codec, keys, projection
from ..decisions.codec import Record
from ..decisions.matching import Chunk
from ..decisions.serializing import Serializer
from ..errors import CorruptionError
from ..ports import Durable
from ..words import Found, Listing, Place, RecordRow, Thread
from . import history
from .copies import Copies
from .runs import Run
from .shared import Known, Shared

if TYPE_CHECKING:  # LangGraph has DeltaChannels since 1.2
    from langgraph.checkpoint.base import DeltaChannelHistory

T = TypeVar("T")

TRIES = 5

PAGE = 50
"""Checkpoints listed per round trip: some 200 KB of an ordinary chat."""


class Engine:
    """Reads through one driver's tiers.

    Args:
        shared: the saver's.
        durable: the tier that is asked first, always.
        copies: the hot tier's.
    """

    def __init__(self, shared: Shared, durable: Durable, copies: Copies) -> None:
        self._shared = shared
        self._reader = shared.reader
        self._durable = durable
        self._copies = copies

    # -- get ---------------------------------------------------------------------------------

    async def get(
        self, serializer: Serializer, config: Mapping[str, Any]
    ) -> CheckpointTuple | None:
        place = keys.place_of(config)
        id = keys.checkpoint_id_of(config)
        if id is not None:
            return await self._get_one(serializer, place, id)
        return await self._get_head(serializer, place)

    async def _get_one(
        self, serializer: Serializer, place: Place, id: str
    ) -> CheckpointTuple | None:
        found = await self._durable.read(place, id, b"", None)
        if found is None or found.row is None:
            return None
        record = self._reader.record(place, found.row, found.chunks)
        self._shared.recent.put((place, id), Known(record, found.row.digest))
        loaded = tuple(row.digest for row in found.writes if row.slot >= 0)
        run = Run(place, id, record, found.row.digest, addressed=True, loaded=loaded)
        batches = self._reader.batches(place, found.writes, found.chunks)
        return self._reader.tuple_of(record, batches, serializer, run, versioned=False)

    async def _get_head(self, serializer: Serializer, place: Place) -> CheckpointTuple | None:
        held = self._shared.heads.digest(place)
        found = await self._durable.read(place, None, held, self._copies.served_from)
        if found is None:
            return None
        known = await self._head_record(place, found)
        if known is None:
            return None
        record, found = known
        batches = self._reader.batches(place, found.writes, found.chunks)
        loaded = tuple(row.digest for row in found.writes if row.slot >= 0)
        run = Run(place, record.id, record, found.head.digest, loaded=loaded)
        result = self._reader.tuple_of(record, batches, serializer, run, versioned=True)
        self._shared.heads.put(place, record, found.head.digest)
        return result

    async def _head_record(self, place: Place, found: Found) -> tuple[Record, Found] | None:
        """The record of a head that was found, from wherever it is held."""
        if found.row is not None:
            return self._reader.record(place, found.row, found.chunks), found
        digest = found.head.digest
        record = self._shared.heads.get(place, digest)
        if record is None:
            record = await self._copies.fetch(place, digest)
        if record is not None and codec.numbers_of(record.channels) == found.numbers:
            return record, found
        return await self._whole_head(place)

    async def _whole_head(self, place: Place) -> tuple[Record, Found] | None:
        whole = await self._durable.read(place, None, b"", None)
        if whole is None or whole.row is None:
            return None  # the thread was deleted meanwhile
        record = self._reader.record(place, whole.row, whole.chunks)
        own = [whole.chunks[no] for no in dict.fromkeys(whole.row.numbers)]
        await self._copies.fill(place, whole.row, own, record.size)
        return record, whole

    # -- list and history --------------------------------------------------------------------

    async def list(
        self, serializer: Serializer, listing: Listing, limit: int | None
    ) -> AsyncIterator[Sequence[CheckpointTuple]]:
        """Pages of tuples; nothing is held between them."""
        left = limit
        while left is None or left > 0:
            asked = PAGE if left is None else min(PAGE, left)
            rows, out = await settled(
                partial(self._page, serializer, replace(listing, limit=asked))
            )
            if not rows:
                return
            yield out
            thread, row = rows[-1]
            listing = replace(listing, after=(thread.key, row.ns, row.seq))
            left = None if left is None else left - len(out)

    async def _page(
        self, serializer: Serializer, listing: Listing
    ) -> tuple[Sequence[tuple[Thread, RecordRow]], Sequence[CheckpointTuple]]:
        page = await self._durable.page(listing)
        out = []
        parsed: dict[int, Chunk] = {}
        for thread, row in page.rows:
            place = Place(thread, row.ns)
            record = self._reader.record(place, row, page.chunks, parsed)
            found = page.writes.get((row.ns, row.id), ())
            batches = self._reader.batches(place, found, page.chunks)
            out.append(self._reader.tuple_of(record, batches, serializer, None, False))
        return page.rows, out

    async def delta_history(
        self, serializer: Serializer, config: Mapping[str, Any], channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        place = keys.place_of(config)
        id = keys.checkpoint_id_of(config)
        if id is None:
            head = await self._durable.read(place, None, b"", -1)
            id = head.head.id if head else None
        if id is None:
            return {name: {"writes": []} for name in channels}
        found = id

        async def replay() -> Mapping[str, DeltaChannelHistory]:
            return await history.replay(
                self._durable, self._reader, self._shared.blobs, serializer, place, found, channels
            )

        return await settled(replay)


async def settled(read: Callable[[], Awaitable[T]]) -> T:
    """What `read` returns, tried again if something is missing: reading rows, writes and chunks
    takes several statements, and what they belong to may be removed in between."""
    for _ in range(TRIES - 1):
        try:
            return await read()
        except CorruptionError:
            continue
    return await read()


def listing_of(
    config: Mapping[str, Any] | None,
    filter: Mapping[str, Any] | None,
    before: Mapping[str, Any] | None,
) -> Listing:
    """What a call of `list` asks for.

    Raises:
        UsageError: if a filter cannot be compared as JSON, or an id cannot be used.
    """
    configurable = (config or {}).get("configurable") or {}
    named = configurable.get("thread_id") is not None
    place = keys.place_of(config or {}) if named else None
    ns = configurable.get("checkpoint_ns")
    return Listing(
        thread=place.thread if place else None,
        tenant=configurable.get("tenant_id") or "",
        ns=None if ns is None else str(ns),
        id=keys.checkpoint_id_of(config or {}),
        before=keys.checkpoint_id_of(before) if before else None,
        filter=projection.of_filter(filter or {}),
        limit=PAGE,
    )
