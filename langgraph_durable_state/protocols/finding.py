"""Looks for a state in both tiers, and for the newest sound one before it. Nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from langgraph.checkpoint.base import CheckpointTuple

from ..decisions import retention
from ..decisions.ahead import Verdict
from ..decisions.codec import Batch, Record, Unsound
from ..decisions.keyring import KeyNeeded
from ..decisions.recovery import Elsewhere
from ..decisions.serializing import Serializer
from ..errors import (
    CorruptionError,
    DurableStateError,
    EvolutionError,
    KeyMissingError,
    UnavailableError,
)
from ..ports import Durable, Outbox
from ..recovery import Damage
from ..words import (
    ChunkRow,
    Digest,
    Entry,
    Found,
    Head,
    HotFound,
    Listing,
    Phase,
    Place,
    Put,
    RecordRow,
    WriteRow,
)
from . import history
from .arbiter import View
from .copies import Copies
from .naming import Naming
from .reading import corrupt, united
from .shared import Shared

ENTRIES = 1_000
"""Of an outbox, that are looked at: what a saver lets it hold unless told otherwise."""

STEP = 16
"""Checkpoints looked for at once where an ancestor's own record does not tell its parent."""

SERVES_HOT = (Verdict.HOT, Verdict.UNVERIFIED, Verdict.SUSPECT)
"""Verdicts by which the hot tier's head is served, if they let anything be."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sound checkpoint that can be served, with the sound ones of the writes against it."""

    record: Record
    digest: Digest
    writes: tuple[WriteRow, ...]
    batches: tuple[Batch, ...]
    tier: str
    seen: CheckpointTuple
    """As somebody sees it who looks it up by its id."""
    unstored: tuple[Digest, ...] = ()
    """Digests of writes that Postgres does not have right."""
    interrupts: Mapping[str, str] = field(default_factory=dict)
    """Today's ids of those that wait in its subgraphs."""


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked for, as its own tier has it.

    ``record`` is None if it is not sound; ``why`` and ``channel`` tell then, or ``foreign`` if it
    is only that this code cannot read it. ``before`` is where to look for an ancestor: an id if it
    is known, and the place in the order.
    """

    id: str
    digest: Digest
    tier: str
    record: Record | None
    found: Found
    before: tuple[str | None, int]
    why: str = ""
    channel: str | None = None
    what: Literal["checkpoint", "head"] = "checkpoint"
    foreign: EvolutionError | None = None

    @property
    def damage(self) -> Damage:
        of = f"channel {self.channel!r}: " if self.channel is not None else ""
        return Damage(self.tier, self.id, self.what, of + self.why)


Slot = tuple[str, int]
"""A task, and which of its rows of writes."""


@dataclass(frozen=True, slots=True)
class Side:
    """The writes against one checkpoint that one tier has: all rows, the sound ones read, and what
    was found of the others."""

    tier: str
    rows: tuple[WriteRow, ...]
    sound: Mapping[Slot, tuple[WriteRow, Batch]]
    bad: Mapping[Slot, tuple[WriteRow, str]]

    def damage(self, right: Mapping[Slot, object]) -> list[Damage]:
        """What is damaged here; `right` are those of which a sound row was found."""
        return [
            Damage(self.tier, row.id, "write", why, row.task, slot in right)
            for slot, (row, why) in self.bad.items()
        ]


@dataclass(frozen=True, slots=True)
class Writes:
    """The writes against one checkpoint: the sound ones, each from a tier that has it so.

    ``spoilt`` tells whether one that a read would take is damaged, ``lost`` whether no tier has it
    right; ``down`` if a tier could not be asked. ``unstored`` are the digests of those that Redis
    alone has right.
    """

    sound: tuple[tuple[WriteRow, Batch], ...]
    damage: tuple[Damage, ...] = ()
    spoilt: bool = False
    lost: bool = False
    down: bool = False
    unstored: tuple[Digest, ...] = ()

    @property
    def elsewhere(self) -> Elsewhere:
        if not self.lost:
            return Elsewhere.GOOD
        return Elsewhere.DOWN if self.down else Elsewhere.BAD


class Finder:
    """Looks through one driver's tiers.

    Args:
        shared, durable, copies: as of an engine.
        outbox: the hot tier's; None if there is none.
        naming: finds namespaces under their former names.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        copies: Copies,
        outbox: Outbox | None,
        naming: Naming,
    ) -> None:
        self._naming = naming
        self._shared = shared
        self._reader = shared.reader
        self._durable = durable
        self._copies = copies
        self._outbox = outbox

    def target(self, place: Place, found: Found | None, view: View | None) -> Target | None:
        hot = view.hot if view is not None else None
        if view is not None and hot is not None and view.verdict in SERVES_HOT:
            head = _hot_head(hot)
            record = self._copies.proven(place, hot.row, hot.chunks, head.digest)
            why = "" if record is not None else "the copy is missing or damaged"
            seq = found.head.seq + 1 if found is not None else 0
            before = (found.head.id if found is not None else None) or None, seq
            bare = Found(head, None, (), {}, ())
            return Target(head.id, head.digest, "redis", record, bare, before, why)
        if found is None or not found.head.digest:
            return None
        return self.durable_target(place, found)

    def bare(self, found: Found | None, view: View | None) -> Target | None:
        """What was asked for, where nothing of it can be read."""
        if view is not None and view.hot is not None and view.verdict in SERVES_HOT:
            head, tier = _hot_head(view.hot), "redis"
        elif found is not None and found.head.digest:
            head, tier = found.head, "postgres"
        else:
            return None
        return Target(head.id, head.digest, tier, None, Found(head, None, (), {}, ()), (None, 0))

    def durable_target(self, place: Place, found: Found) -> Target:
        head, row = found.head, found.row
        whole = row is not None and bool(row.record)
        before = (row.parent, row.seq) if row is not None and whole else (None, head.seq + 1)
        if found.lost:
            before = head.id, head.seq + 1
        target = Target(head.id, head.digest, "postgres", None, found, before)
        try:
            return replace(target, record=self._reader.head(place, found))
        except KeyNeeded:
            raise
        except EvolutionError as error:
            return replace(target, why=str(error), foreign=error)
        except CorruptionError as error:
            what: Literal["checkpoint", "head"] = "checkpoint" if whole else "head"
            return replace(target, why=error.detail, channel=error.channel, what=what)

    # -- the other tier ----------------------------------------------------------------------

    async def elsewhere(
        self, place: Place, target: Target, view: View | None
    ) -> tuple[Elsewhere, Record | None, str]:
        """What there is elsewhere of a damaged checkpoint, and in which tier."""
        if target.tier == "redis":
            return *await self._durable_copy(place, target, view), "postgres"
        if target.found.lost:
            return Elsewhere.BAD, None, ""  # which was the head nobody can tell
        record = await self._by_digest(place, target.found)
        if record is not None:
            return Elsewhere.GOOD, record, "postgres"
        return *await self._copies.look(place, target.digest), "redis"

    async def _durable_copy(
        self, place: Place, target: Target, view: View | None
    ) -> tuple[Elsewhere, Record | None]:
        if view is not None and view.down is not None:
            return Elsewhere.DOWN, None
        found = await self._durable.read(place, target.id, b"", None) if target.id else None
        if found is not None and found.head.digest == target.digest:
            record = self.durable_target(place, found).record
            return (Elsewhere.BAD if record is None else Elsewhere.GOOD), record
        record = await self._waiting(place, target)
        return (Elsewhere.BAD if record is None else Elsewhere.GOOD), record

    async def _waiting(self, place: Place, target: Target) -> Record | None:
        """A hot head as it waits to be flushed."""
        entries, _ = await self.outbox(place)
        puts = [e.item for e in entries if isinstance(e.item, Put) and e.item.place == place]
        put = next((put for put in puts if put.digest == target.digest), None)
        if put is None:
            return None
        sent = {c.no: c for one in puts for c in one.chunks}
        page = await self._durable.rest(place, [], sorted({*put.numbers} - sent.keys()), ())
        row = RecordRow(place.ns, put.id, put.parent, 0, put.digest, put.record, put.numbers)
        try:
            return self._reader.record(place, row, {**page.chunks, **sent})
        except CorruptionError:
            return None

    async def outbox(self, place: Place) -> tuple[tuple[Entry, ...], str]:
        """What waits to be flushed of a thread, as far as it can be read, and what of it cannot."""
        if self._outbox is None:
            return (), ""
        try:
            out = await self._outbox.take(place.thread, b"", ENTRIES)
        except CorruptionError as error:
            return (), error.detail
        if out is None:
            return (), ""
        bad = out.left and len(out.entries) < ENTRIES
        return out.entries, f"{out.left} entries are behind one that cannot be read" if bad else ""

    async def _by_digest(self, place: Place, found: Found) -> Record | None:
        """What a head's digest proves right, where only what points to it is damaged: the head's
        id, or the digest that stands beside the record."""
        digest = found.head.digest
        if found.row is None or (found.row.digest == digest and found.row.record):
            return None
        rows = [found.row]
        page = await self._durable.page(self._before(place, found.head.seq + 1))
        rows += [row for _, row in page.rows if row.digest == digest]
        for row in rows:
            whole = await self._durable.read(place, row.id, b"", None)
            if whole is None or whole.row is None:
                continue
            try:
                right = replace(whole.row, digest=digest)
                return self._reader.record(place, right, whole.chunks)
            except CorruptionError:
                continue
        return None

    async def named_right(self, place: Place, target: Target, id: str) -> Target:
        """A target by the id that its sound record tells, with the writes against that."""
        if id == target.id:
            return target
        page = await self._durable.rest(place, [id], (), ())
        writes = page.writes.get((place.ns, id), ())
        found = replace(target.found, writes=writes, chunks=page.chunks)
        return replace(target, id=id, found=found)

    async def writes(self, place: Place, target: Target, view: View | None) -> Writes:
        """The writes against what was asked for, each from a tier that has it sound."""
        found = target.found
        durable = self._side("postgres", place, found.writes, found.chunks)
        held, down = await self._hot_writes(place, view, bool(durable.bad))
        rows = [row for row in held.writes if row.id == target.id] if held is not None else []
        hot = self._side("redis", place, rows, held.write_chunks if held is not None else {})
        if target.tier == "redis" and hot.bad and view is not None and view.down is None:
            page = await self._durable.rest(place, [target.id], (), ())
            stored = page.writes.get((place.ns, target.id), ())
            durable = self._side("postgres", place, stored, page.chunks)
        live = view is not None and view.spell is not None and view.spell.phase is Phase.OPEN
        return _chosen(durable, hot, live, down or (view is not None and view.down is not None))

    async def _hot_writes(
        self, place: Place, view: View | None, needed: bool
    ) -> tuple[HotFound | None, bool]:
        """What the hot tier has of a namespace, and whether it should have been asked and could
        not be."""
        if view is not None and view.hot is not None:
            return view.hot, False
        if self._outbox is None or not needed or not self._shared.policy.asks_hot:
            return None, False
        try:
            return await self._outbox.peek(place, b""), False
        except UnavailableError:
            return None, True

    def _side(
        self, tier: str, place: Place, rows: Sequence[WriteRow], chunks: Mapping[int, ChunkRow]
    ) -> Side:
        sound, bad = self._reader.sound_batches(place, rows, chunks)
        return Side(
            tier,
            tuple(rows),
            {_slot(row): (row, batch) for row, batch in sound},
            {_slot(row): (row, why) for row, why in bad},
        )

    async def candidate(
        self,
        serializer: Serializer,
        record: Record,
        digest: Digest,
        writes: Writes,
        tier: str,
        batches: Sequence[Batch] | None = None,
    ) -> Candidate:
        """What can be served.

        Raises:
            EvolutionError: if this code cannot read it.
        """
        batches = tuple(batch for _, batch in writes.sound) if batches is None else tuple(batches)
        ids: Mapping[str, str] = {}
        if tier != "process":  # else there is nobody to ask
            ids = await self._interrupts(serializer, record, batches)
        seen = self._reader.tuple_of(record, batches, serializer, None, False, interrupts=ids)
        rows = tuple(row for row, _ in writes.sound)
        return Candidate(record, digest, rows, batches, tier, seen, writes.unstored, ids)

    async def _interrupts(
        self, serializer: Serializer, record: Record, batches: Sequence[Batch]
    ) -> Mapping[str, str]:
        try:
            return await self._naming.interrupts(serializer, record, batches)
        except CorruptionError:
            return {}  # of a subgraph, which is not what is looked at

    # -- ancestors ---------------------------------------------------------------------------

    async def before(self, place: Place, target: Target) -> AsyncIterator[Target]:
        """Earlier checkpoints: each one's parent; where that is not known, or is gone, the newest
        before it that was not refused."""
        seen = {target.id} if not target.found.lost else set()
        id, seq = target.before
        while True:
            found = None
            if id is not None and id not in seen:
                found = await self._durable.read(place, id, b"", None)
            if found is None:
                found = await self._newest(place, seq, seen)
            if found is None:
                return
            seen.add(found.head.id)
            earlier = self.durable_target(place, found)
            yield earlier
            id, seq = earlier.before

    def _before(self, place: Place, seq: int) -> Listing:
        after = place.thread.key, place.ns, seq
        tenant = place.thread.tenant
        return Listing(place.thread, tenant, place.ns, None, None, {}, STEP, after, light=True)

    async def _newest(self, place: Place, seq: int, seen: set[str]) -> Found | None:
        listing = self._before(place, seq)
        while True:
            page = await self._durable.page(listing)
            for _, row in page.rows:
                if not row.refused and row.id not in seen:
                    return await self._durable.read(place, row.id, b"", None)
            if not page.rows:
                return None
            listing = replace(listing, after=(place.thread.key, place.ns, page.rows[-1][1].seq))

    async def proven(
        self, serializer: Serializer, place: Place, target: Target
    ) -> tuple[Record, Writes]:
        """A checkpoint that is as it was written, with all that it needs, whether or not this code
        can decode it; and its sound writes.

        Raises:
            CorruptionError: if it, or what its DeltaChannels replay, is not.
            EvolutionError: if this code cannot tell.
        """
        if target.record is None:
            raise target.foreign or corrupt(place, target.id, Unsound(target.channel, target.why))
        writes = await self.writes(place, target, None)
        try:
            await self.replayable(serializer, place, target.record)
        except KeyMissingError:
            raise
        except EvolutionError:
            pass  # its digests were right
        return target.record, writes

    async def replayable(self, serializer: Serializer, place: Place, record: Record) -> None:
        """Reads what the DeltaChannels of a checkpoint are made from.

        Raises:
            CorruptionError, EvolutionError: if that cannot be read.
        """
        channels = self._replayed(serializer, record)
        if channels:
            blobs = self._shared.blobs
            args = (self._durable, self._reader, blobs, serializer, place, record.id)
            await history.replay(*args, sorted(channels))

    def _replayed(self, serializer: Serializer, record: Record) -> set[str]:
        """The channels of a checkpoint that are made from its ancestors, as they are called
        today."""
        shape = self._reader.shape
        record = record.known_to(shape.version)
        shape.check(record.place, record.id, record.schema_version)
        body, metadata = (
            self._reader.decoded(
                record, serializer, None, partial(serializer.loads, typed.tag, typed.data)
            )
            for typed in (record.body, record.metadata)
        )
        versions = body.get("channel_versions") or {}
        names = retention.replayed_channels(metadata, versions, record.by_name())
        return shape.names_today(record.place, names, record.schema_version)


def _hot_head(hot: HotFound) -> Head:
    if hot.spell is None:
        return Head(hot.row.id if hot.row else "", 0, hot.digest)
    return Head(hot.spell.head.id, 0, hot.spell.head.digest or hot.digest)


def _slot(row: WriteRow) -> Slot:
    return row.task, row.slot


def _chosen(durable: Side, hot: Side, live: bool, down: bool) -> Writes:
    """Of each row that a read would take the sound one; where that is damaged, the other tier's.

    What Redis holds of a special channel may be later than what Postgres has, while it is `live`.
    """
    right: dict[Slot, tuple[WriteRow, Batch]] = {}
    spoilt = lost = False
    for row in united(durable.rows, hot.rows):
        slot = _slot(row)
        own, other = (durable, hot) if row in durable.rows else (hot, durable)
        if slot in own.sound:
            right[slot] = own.sound[slot]
            continue
        spoilt = True
        found = other.sound.get(slot)
        if found is not None and (row.slot >= 0 or not live or found[0].digest == row.digest):
            right[slot] = found
        else:
            lost = True
    damage = (*durable.damage(right), *hot.damage(right))
    unstored = tuple(row.digest for slot, (row, _) in right.items() if slot in durable.bad)
    return Writes(tuple(right.values()), damage, spoilt, lost, down, unstored)


def detail_of(error: DurableStateError) -> str:
    if not isinstance(error, CorruptionError):
        return str(error)
    return f"channel {error.channel!r}: {error.detail}" if error.channel else error.detail
