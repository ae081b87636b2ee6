"""Reading over both tiers: get, list and history, written once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.checkpoint.base import CheckpointTuple

from ..decisions import codec, keys, projection
from ..decisions.ahead import Verdict
from ..decisions.codec import Record, Unsound
from ..decisions.matching import Chunk
from ..decisions.serializing import Serializer
from ..errors import CorruptionError, StateLostError, UnavailableError
from ..ports import Durable
from ..words import Found, Head, Listing, Phase, Place, RecordRow, Thread
from . import history
from .arbiter import Arbiter, View
from .copies import Copies
from .drafting import HOT_LOST, QUEUED
from .reading import corrupt, united
from .runs import Run
from .settling import Settler
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
        arbiter: tells whose head is current.
        flusher: makes durable what is to be read as a whole.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        copies: Copies,
        arbiter: Arbiter,
        flusher: Settler,
    ) -> None:
        self._shared = shared
        self._reader = shared.reader
        self._durable = durable
        self._copies = copies
        self._arbiter = arbiter
        self._flusher = flusher

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
        if found is None or found.ahead is not None or self._shared.policy.asks_hot:
            try:
                await self._flusher.settle(place.thread)
            except StateLostError:
                if found is None:
                    raise  # it may be what was lost; one that is there may be looked at
            found = await self._durable.read(place, id, b"", None)
        if found is None:
            await self._arbiter.view(place, b"", -1)  # it may be what the hot tier lost
            return None
        if found.row is None:
            raise corrupt(place, id, Unsound(None, "the record has lost its digest"))
        record = self._reader.record(place, found.row, found.chunks)
        self._shared.recent.put((place, id), Known(record, found.row.digest))
        loaded = tuple(row.digest for row in found.writes if row.slot >= 0)
        run = Run(place, id, record, found.row.digest, addressed=True, loaded=loaded)
        run.fence = self._shared.leases.fence(place.thread)
        batches = self._reader.batches(place, found.writes, found.chunks)
        return self._reader.tuple_of(record, batches, serializer, run, versioned=False)

    async def _get_head(self, serializer: Serializer, place: Place) -> CheckpointTuple | None:
        most = self._copies.served_from
        for _ in range(TRIES):
            held = self._shared.heads.digest(place)
            view = await self._arbiter.view(place, held, most)
            if view.verdict is Verdict.NOBODY:
                return self._stale(serializer, place, view)
            if view.verdict in (Verdict.HOT, Verdict.UNVERIFIED):
                known = await self._hot_record(place, view)
            elif view.found is None or not view.found.head.digest:
                return None
            else:
                known = await self._durable_record(place, view.found)
            if known is not None:
                return self._loaded(serializer, place, view, *known)
            if view.down is not None:
                raise view.down
            # The hot head without a copy of it, or a durable one that was removed meanwhile.
            await self._flusher.settle(place.thread)
            most = None
        raise UnavailableError("redis", "the head kept changing while it was read")

    async def _durable_record(self, place: Place, found: Found) -> tuple[Record, Found] | None:
        """The record of a durable head that was found, from wherever it is held; None to look
        again."""
        if found.row is not None:
            return self._reader.record(place, found.row, found.chunks), found
        digest = found.head.digest
        record = self._shared.heads.get(place, digest)
        if record is None:
            record = await self._copies.fetch(place, digest)
        if record is not None and codec.numbers_of(record.channels) == found.numbers:
            return record, found
        return await self._whole_head(place, found)

    async def _whole_head(self, place: Place, found: Found) -> tuple[Record, Found] | None:
        whole = await self._durable.read(place, None, b"", None)
        if whole is None or whole.row is None or whole.ahead != found.ahead:
            return None  # deleted, or another spell began meanwhile
        record = self._reader.record(place, whole.row, whole.chunks)
        own = [whole.chunks[no] for no in dict.fromkeys(whole.row.numbers)]
        await self._copies.fill(place, whole.row, own, record.size)
        return record, whole

    async def _hot_record(self, place: Place, view: View) -> tuple[Record, Found] | None:
        """The record of the hot head; None if the hot tier has no sound copy of it."""
        hot = view.hot
        assert hot is not None
        digest = (hot.spell.head.digest if hot.spell is not None else b"") or hot.digest
        record = self._shared.heads.get(place, digest)
        if record is None:
            record = self._copies.read(place, hot.row, hot.chunks, digest)
        if record is None:
            return None
        head = Head(record.id, 0, digest)
        return record, Found(head, None, (), {}, ())

    def _loaded(
        self,
        serializer: Serializer,
        place: Place,
        view: View,
        record: Record,
        found: Found,
    ) -> CheckpointTuple:
        """What a run starts from."""
        rows, chunks = found.writes, found.chunks
        if view.hot is not None:
            hot = [row for row in view.hot.writes if row.id == record.id]
            rows = united(rows, hot)
            chunks = {**view.hot.write_chunks, **chunks}
        batches = self._reader.batches(place, rows, chunks)
        loaded = tuple(row.digest for row in rows if row.slot >= 0)
        digest = found.head.digest
        run = Run(place, record.id, record, digest, loaded=loaded, hot=_is_open(view))
        run.degraded = HOT_LOST if view.lost else QUEUED if _is_unguarded(view) else None
        run.fence = self._shared.leases.fence(place.thread)
        unverified = view.verdict is Verdict.UNVERIFIED
        marks = {"durable_state_unverified": True} if unverified else None
        result = self._reader.tuple_of(record, batches, serializer, run, True, marks)
        self._shared.heads.put(place, record, digest, batches)
        return result

    def _stale(self, serializer: Serializer, place: Place, view: View) -> CheckpointTuple:
        """The head that this process saw last.

        Raises:
            UnavailableError: if it saw none.
        """
        seen = self._shared.heads.last(place)
        if seen is None:
            assert view.down is not None
            raise view.down
        record, batches, digest = seen
        run = Run(place, record.id, record, digest)
        run.fence = self._shared.leases.fence(place.thread)
        marks = {"durable_state_stale": True}
        return self._reader.tuple_of(record, batches, serializer, run, True, marks)

    # -- list and history --------------------------------------------------------------------

    async def list(
        self, serializer: Serializer, listing: Listing, limit: int | None
    ) -> AsyncIterator[Sequence[CheckpointTuple]]:
        """Pages of tuples; nothing is held between them."""
        left = limit
        if listing.thread is None:
            await self._flusher.settle_all()
        elif self._shared.policy.asks_hot:
            await self._flusher.settle(listing.thread)
            listing = replace(listing, settled=True)
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
        begins = listing.after is None and not listing.settled
        if begins and listing.thread is not None and (page.ahead or not page.rows):
            await self._flusher.settle(listing.thread)
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
            await self._flusher.settle(place.thread)
            head = await self._durable.read(place, None, b"", -1)
            id = head.head.id if head else None
        elif not await self._durable.chain(place, id, 1):
            await self._flusher.settle(place.thread)
        if not id:
            return {name: {"writes": []} for name in channels}
        found = id

        async def replay() -> Mapping[str, DeltaChannelHistory]:
            return await history.replay(
                self._durable, self._reader, self._shared.blobs, serializer, place, found, channels
            )

        return await settled(replay)


def _is_open(view: View) -> bool:
    """Whether the hot tier has a spell under way, which the run has to go on with."""
    spell = view.hot.spell if view.hot is not None else None
    return spell is not None and spell.phase is Phase.OPEN


def _is_unguarded(view: View) -> bool:
    """Whether Postgres could not be told of that spell: what is put on it says so."""
    spell = view.hot.spell if view.hot is not None else None
    return spell is not None and spell.phase is Phase.OPEN and not spell.marked


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
