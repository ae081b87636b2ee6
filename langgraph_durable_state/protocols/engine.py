"""Reading over both tiers: get, list and history, written once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.checkpoint.base import CheckpointTuple

from ..decisions import arguments, keys, projection
from ..decisions.ahead import Verdict
from ..decisions.codec import Record, Unsound
from ..decisions.evidence import answers, described
from ..decisions.heads import Signed
from ..decisions.matching import Chunk
from ..decisions.recovery import Age, Decision, Tiers
from ..decisions.serializing import Serializer
from ..errors import CorruptionError, StateLostError, UnavailableError
from ..ports import Durable
from ..words import Found, Head, Listing, Phase, Place, RecordRow, Thread, WriteRow
from . import history
from .anchoring import Anchors
from .arbiter import Arbiter, View
from .copies import Copies
from .drafting import (
    AGED_MARK,
    FELL_BACK,
    FELL_BACK_MARK,
    HOT_LOST,
    QUEUED,
    STALE_MARK,
    UNVERIFIED_MARK,
)
from .finding import Candidate
from .links import Links
from .naming import Naming
from .reading import asked_for, corrupt, united
from .recovering import Examined, Recovery
from .runs import Run
from .scrub import Scrubber
from .settling import Settler
from .shared import Known, Shared
from .telling import Teller
from .vault import Vault

Seen = tuple[Sequence[tuple[Thread, RecordRow]], Sequence[CheckpointTuple], Links]
"""The rows of a page, what they are, and what they say of others."""

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
        recovery, teller: find what is to be served where something is damaged, and tell of it.
        vault: finds the keys that it is read with.
        anchors: tell heads that were moved.
        scrubber: restores what was served from the other tier.
        naming: finds namespaces under their former names.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        copies: Copies,
        arbiter: Arbiter,
        flusher: Settler,
        recovery: Recovery,
        teller: Teller,
        vault: Vault,
        anchors: Anchors,
        scrubber: Scrubber,
        naming: Naming,
    ) -> None:
        self._shared = shared
        self._naming = naming
        self._vault = vault
        self._anchors = anchors
        self._scrubber = scrubber
        self._reader = shared.reader
        self._durable = durable
        self._copies = copies
        self._arbiter = arbiter
        self._flusher = flusher
        self._recovery = recovery
        self._teller = teller

    # -- get ---------------------------------------------------------------------------------

    async def get(
        self, serializer: Serializer, config: Mapping[str, Any]
    ) -> CheckpointTuple | None:
        place = await self._naming.place(serializer, config)
        found = await self._get(serializer, place, keys.checkpoint_id_of(config))
        return None if found is None else asked_for(found, place.thread)

    async def _get(
        self, serializer: Serializer, place: Place, id: str | None
    ) -> CheckpointTuple | None:
        if id is not None:
            read = partial(self._get_one, serializer, place, id)
        else:
            read = partial(self._get_head, serializer, place)
        try:
            if not self._vault.encrypts:
                return await read()
            return await self._vault.reading(place.thread, read)
        except CorruptionError as error:
            again = partial(self._recovered, serializer, place, id, error)
            return await self._vault.reading(place.thread, again)

    async def _recovered(
        self, serializer: Serializer, place: Place, id: str | None, met: CorruptionError
    ) -> CheckpointTuple | None:
        """What is served where a read met damage, if anything is."""
        found = await self._recovery.examine(serializer, place, id, thorough=False)
        if found.given_up is not None and found.view is not None and found.error is None:
            await self.give_up(place, found)
            return await self._get_head(serializer, place, lost=True)
        await self._teller.tell(place, found)
        if found.error is not None:
            raise found.error from met
        if found.served is None:
            if id is not None and await self._durable.chain(place, id, 1):
                raise met
            return None  # it was deleted meanwhile
        target = found.target
        if found.rule.decision is Decision.REPAIR and target and target.tier == "postgres":
            await self._scrubber.restore(serializer, place, target.id)
        return self._served(serializer, place, id, found, found.served)

    def _served(
        self,
        serializer: Serializer,
        place: Place,
        id: str | None,
        found: Examined,
        served: Candidate,
    ) -> CheckpointTuple:
        """What a run starts from instead of what is damaged."""
        record, target = served.record, found.target
        assert target is not None
        loaded = tuple(row.digest for row in served.writes if row.slot >= 0)
        hot = found.view is not None and _is_open(found.view)
        run = Run(place, record.id, record, served.digest, loaded=loaded, hot=hot)
        run.fence = self._shared.leases.fence(place.thread)
        run.addressed = id is not None
        run.unstored = served.unstored
        same = served.digest == target.digest and not target.found.lost
        if same and target.record is None:
            # Nothing refers to what is stored of it: the next checkpoint brings it all again.
            run.apart = True
            for chunk in record.chunks().values():
                chunk.no = next(self._shared.numbers)
        if id is None and not same:
            run.head = b"" if target.found.lost else target.digest
        marks: dict[str, Any] = {}
        if found.view is not None and _is_unguarded(found.view):
            run.degraded = QUEUED
        if found.evidence.tiers is Tiers.PARTLY:
            marks[UNVERIFIED_MARK] = True
        if found.rule.decision is Decision.FALL_BACK:
            run.degraded = FELL_BACK
            marks[FELL_BACK_MARK] = target.id
        made = self._reader.tuple_of(
            record, served.batches, serializer, run, id is None, marks, served.interrupts
        )
        if self._recovery.sound(Tiers.COMPARED, record, made).age is Age.OLD:
            made.metadata[AGED_MARK] = True  # type: ignore[literal-required]
        return made

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
        ids = await self._naming.interrupts(serializer, record, batches)
        return self._reader.tuple_of(record, batches, serializer, run, False, interrupts=ids)

    async def give_up(self, place: Place, found: Examined) -> None:
        """Goes on without what the hot tier alone held, and what is damaged there."""
        assert found.view is not None
        assert found.given_up is not None
        self._arbiter.report(place, found.view, "what Redis alone held is damaged; accepted")
        await self._flusher.give_up(place, found.given_up)

    async def _get_head(
        self, serializer: Serializer, place: Place, lost: bool = False
    ) -> CheckpointTuple | None:
        most = self._copies.served_from
        floor: Signed | None = None
        for _ in range(TRIES):
            held = self._shared.heads.digest(place)
            view = await self._arbiter.view(place, held, most)
            if lost:
                view = replace(view, lost=True)
            if view.verdict is Verdict.NOBODY:
                return self._stale(serializer, place, view)
            if view.verdict in (Verdict.HOT, Verdict.UNVERIFIED):
                known = await self._hot_record(place, view)
            elif view.found is None or not view.found.head.digest:
                seen = await self._anchors.contradicting(place, None, None, floor)
                if seen is None:
                    return None
                if floor is not None:
                    raise self._anchors.moved(place, None, seen)
                floor = seen
                continue
            else:
                known = await self._durable_record(place, view.found)
                if known is not None and self._anchors.signs:
                    self._anchors.check(place, known[1].head, known[0])
            if known is not None and not self._anchors.signs:
                return await self._loaded(serializer, place, view, *known)
            if known is not None:
                seen = await self._anchors.contradicting(place, known[0], known[1].head, floor)
                if seen is None:
                    return await self._loaded(serializer, place, view, *known)
                if floor is not None:
                    raise self._anchors.moved(place, known[0], seen)
                floor = seen  # it may have been told of a put since the head was looked at
                continue
            if view.down is not None:
                raise view.down
            # The hot head without a copy of it, or a durable one that was removed meanwhile.
            lost = place.ns in await self._flusher.settle(place.thread) or lost
            most = None
        raise UnavailableError("redis", "the head kept changing while it was read")

    async def _durable_record(self, place: Place, found: Found) -> tuple[Record, Found] | None:
        """The record of a durable head that was found, from wherever it is held; None to look
        again."""
        if found.row is not None or found.lost:
            return self._reader.head(place, found), found
        digest = found.head.digest
        record = self._shared.heads.get(place, digest)
        if record is None:
            record = await self._copies.fetch(place, digest)
        if record is not None and _is_held(record, found):
            if record.seal.hides:
                self._shared.blobs.keys.under(record.seal.id)  # or it may have been shredded
            return record, found
        return await self._whole_head(place, found)

    async def _whole_head(self, place: Place, found: Found) -> tuple[Record, Found] | None:
        whole = await self._durable.read(place, None, b"", None)
        if whole is None or not whole.head.digest or whole.ahead != found.ahead:
            return None  # deleted, or another spell began meanwhile
        record = self._reader.head(place, whole)
        assert whole.row is not None
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

    async def _loaded(
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
        marks = {UNVERIFIED_MARK: True} if unverified else {}
        ids = await self._naming.interrupts(serializer, record, batches)
        result = self._reader.tuple_of(record, batches, serializer, run, True, marks, ids)
        self._weigh(place, view, Candidate(record, digest, rows, tuple(batches), "", result))
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
        result = self._reader.tuple_of(record, batches, serializer, run, True, {STALE_MARK: True})
        self._weigh(place, view, Candidate(record, digest, (), tuple(batches), "process", result))
        return result

    def _weigh(self, place: Place, view: View, served: Candidate) -> None:
        """Decides on a sound head, and marks it if it is stale."""
        unsure = view.verdict in (Verdict.UNVERIFIED, Verdict.NOBODY)
        tiers = Tiers.PARTLY if unsure else Tiers.COMPARED
        evidence = self._recovery.sound(tiers, served.record, served.seen)
        if evidence.age is Age.OLD:
            served.seen.metadata[AGED_MARK] = True  # type: ignore[literal-required]
        if unsure or evidence.age is Age.OLD:
            self._teller.hook(place, self._recovery.as_served(place, view, evidence, served))

    # -- list and history --------------------------------------------------------------------

    async def list(
        self,
        serializer: Serializer,
        config: Mapping[str, Any] | None,
        listing: Listing,
        limit: int | None,
    ) -> AsyncIterator[Sequence[CheckpointTuple]]:
        """Pages of tuples; nothing is held between them."""
        left = limit
        named = None
        if config is not None and listing.thread is not None and listing.ns:
            named = await self._naming.place(serializer, config)
            listing = replace(listing, ns=named.ns)
        if listing.thread is None:
            await self._flusher.settle_all()
        elif self._shared.policy.asks_hot:
            await self._flusher.settle(listing.thread)
            listing = replace(listing, settled=True)
        if listing.thread is not None and listing.id is None and listing.before is None:
            check = partial(self._anchors.check_listed, listing.thread, listing.ns)
            await self._vault.reading(listing.thread, check)
        links = Links()
        while left is None or left > 0:
            asked = PAGE if left is None else min(PAGE, left)
            asked_page = replace(listing, limit=asked)
            page = partial(self._settled_page, serializer, asked_page, links, named)
            rows, out, links = await self._vault.reading(listing.thread, page)
            if not rows:
                return
            yield out
            thread, row = rows[-1]
            listing = replace(listing, after=(thread.key, row.ns, row.seq))
            left = None if left is None else left - len(out)

    async def _settled_page(
        self, serializer: Serializer, listing: Listing, links: Links, named: Place | None
    ) -> Seen:
        """A page; if something of it is damaged, and the policy says so, without that."""
        try:
            return await settled(partial(self._page, serializer, listing, links, named))
        except CorruptionError:
            if not self._shared.policy.falls_back:
                raise
        return await self._page(serializer, listing, links, named, sparing=True)

    async def _page(
        self,
        serializer: Serializer,
        listing: Listing,
        links: Links,
        named: Place | None,
        sparing: bool = False,
    ) -> Seen:
        page = await self._durable.page(listing)
        begins = listing.after is None and not listing.settled
        if begins and listing.thread is not None and (page.ahead or not page.rows):
            await self._flusher.settle(listing.thread)
            page = await self._durable.page(listing)
        out = []
        seen: list[tuple[Record, RecordRow, Sequence[WriteRow]]] = []
        parsed: dict[int, Chunk] = {}
        for thread, row in page.rows:
            place = named or Place(thread, row.ns)
            found = page.writes.get((row.ns, row.id), ())
            try:
                record = self._reader.record(place, row, page.chunks, parsed)
                if listing.filter:
                    self._require_match(serializer, record, listing)
                if sparing:
                    sound, bad = self._reader.sound_batches(place, found, page.chunks)
                    batches = [batch for _, batch in sound]
                    await self._teller.left_out(place, row, bad)
                else:
                    batches = self._reader.batches(place, found, page.chunks)
            except CorruptionError as error:
                if not sparing:
                    raise
                await self._teller.left_out(place, row, [(None, error.detail)])
                continue
            ids = await self._naming.interrupts(serializer, record, batches)
            out.append(
                self._reader.tuple_of(
                    record, batches, serializer, None, False, interrupts=ids, past=True
                )
            )
            seen.append((record, row, found))
        if self._shared.blobs.keys.signs:
            links = links.followed(seen)
        return page.rows, out, links

    def _require_match(self, serializer: Serializer, record: Record, listing: Listing) -> None:
        """Raises CorruptionError where a filter has found what it should not have."""
        shown = described(record, serializer, self._shared.blobs.keys.clear)
        if not answers(shown, listing.filter):
            wrong = Unsound(None, "what filters look at is not its metadata")
            raise corrupt(record.place, record.id, wrong)

    async def delta_history(
        self, serializer: Serializer, config: Mapping[str, Any], channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not arguments.texts("channels", channels):
            return {}
        place = await self._naming.place(serializer, config)
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

        return await self._vault.reading(place.thread, partial(settled, replay))


def _is_held(record: Record, found: Found) -> bool:
    """Whether a record of the head's digest is the head, and stored under the numbers it has."""
    return record.id == found.head.id and record.numbers == found.numbers


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
    clear: frozenset[str] | None = None,
) -> Listing:
    """What a call of `list` asks for; only the metadata keys `clear` can be searched.

    Raises:
        UsageError: if a filter cannot be compared as JSON, or is encrypted, or an id cannot be
            used.
    """
    config = arguments.mapping("config", {} if config is None else config)
    configurable = arguments.mapping('config["configurable"]', config.get("configurable") or {})
    wanted = arguments.mapping("filter", {} if filter is None else filter)
    arguments.texts("the keys of filter", list(wanted))
    named = configurable.get("thread_id") is not None
    place = keys.place_of(config) if named else None
    ns = configurable.get("checkpoint_ns")
    return Listing(
        thread=place.thread if place else None,
        tenant=arguments.text("tenant_id", configurable.get("tenant_id") or ""),
        ns=None if ns is None else arguments.text("checkpoint_ns", ns),
        id=keys.checkpoint_id_of(config),
        before=keys.checkpoint_id_of(before) if before is not None else None,
        filter=projection.of_filter(wanted, clear),
        limit=PAGE,
    )
