"""Looks for a state in both tiers, and for the newest sound one before it. Nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from langgraph.checkpoint.base import CheckpointTuple

from ..decisions import retention
from ..decisions.ahead import Verdict
from ..decisions.codec import Batch, Record, Unsound
from ..decisions.recovery import Elsewhere
from ..decisions.serializing import Serializer
from ..errors import CorruptionError, DurableStateError, EvolutionError, UnavailableError
from ..ports import Durable, Outbox
from ..recovery import Damage
from ..words import Digest, Entry, Found, Head, Listing, Place, Put, RecordRow, WriteRow
from . import history
from .arbiter import View
from .copies import Copies
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


@dataclass(frozen=True, slots=True)
class Writes:
    """The writes against one checkpoint that either tier has, the sound ones and the others."""

    sound: tuple[tuple[WriteRow, Batch], ...]
    damage: tuple[Damage, ...]
    down: bool

    @property
    def elsewhere(self) -> Elsewhere:
        if all(one.repairable for one in self.damage):
            return Elsewhere.GOOD
        return Elsewhere.DOWN if self.down else Elsewhere.BAD


class Finder:
    """Looks through one driver's tiers.

    Args:
        shared, durable, copies: as of an engine.
        outbox: the hot tier's; None if there is none.
    """

    def __init__(
        self, shared: Shared, durable: Durable, copies: Copies, outbox: Outbox | None
    ) -> None:
        self._shared = shared
        self._reader = shared.reader
        self._durable = durable
        self._copies = copies
        self._outbox = outbox

    def target(self, place: Place, found: Found | None, view: View | None) -> Target | None:
        hot = view.hot if view is not None else None
        if view is not None and hot is not None and view.verdict in SERVES_HOT:
            digest = (hot.spell.head.digest if hot.spell is not None else b"") or hot.digest
            id = hot.spell.head.id if hot.spell is not None else hot.row.id if hot.row else ""
            record = self._copies.proven(place, hot.row, hot.chunks, digest)
            why = "" if record is not None else "the copy is missing or damaged"
            seq = found.head.seq + 1 if found is not None else 0
            before = (found.head.id if found is not None else None) or None, seq
            bare = Found(Head(id, 0, digest), None, (), {}, ())
            return Target(id, digest, "redis", record, bare, before, why)
        if found is None or not found.head.digest:
            return None
        return self.durable_target(place, found)

    def durable_target(self, place: Place, found: Found) -> Target:
        head, row = found.head, found.row
        whole = row is not None and bool(row.record)
        before = (row.parent, row.seq) if row is not None and whole else (None, head.seq + 1)
        if found.lost:
            before = head.id, head.seq + 1
        target = Target(head.id, head.digest, "postgres", None, found, before)
        try:
            return replace(target, record=self._reader.head(place, found))
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
        found = await self._durable.read(place, id, b"", None)
        writes = found.writes if found is not None else ()
        chunks = found.chunks if found is not None else {}
        return replace(target, id=id, found=replace(target.found, writes=writes, chunks=chunks))

    async def writes(self, place: Place, target: Target, view: View | None) -> Writes:
        """The writes against what was asked for, each from a tier that has it sound."""
        hot = view.hot if view is not None else None
        rows, chunks = target.found.writes, target.found.chunks
        sound, bad = self._reader.sound_batches(place, rows, chunks)
        down = view is not None and view.hot is None and view.mark is not None
        if hot is None and bad and self._outbox is not None and self._shared.policy.asks_hot:
            try:
                hot = await self._outbox.peek(place, b"")
            except UnavailableError:
                down = True
        hot_rows = [row for row in hot.writes if row.id == target.id] if hot is not None else []
        hot_chunks = hot.write_chunks if hot is not None else {}
        hot_sound, hot_bad = self._reader.sound_batches(place, hot_rows, hot_chunks)
        if target.tier == "redis" and hot_bad and view is not None and view.down is None:
            page = await self._durable.rest(place, [target.id], (), ())
            rows = page.writes.get((place.ns, target.id), ())
            sound, _ = self._reader.sound_batches(place, rows, page.chunks)
        down = down or (bool(hot_bad) and view is not None and view.down is not None)
        have = {_name(row): (row, batch) for row, batch in (*hot_sound, *sound)}
        chosen = tuple(have[_name(r)] for r in united(rows, hot_rows) if _name(r) in have)
        damage = [
            Damage(tier, target.id, "write", why, row.task, _name(row) in have)
            for tier, found in (("postgres", bad), ("redis", hot_bad))
            for row, why in found
        ]
        return Writes(chosen, tuple(damage), down)

    def candidate(
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
        seen = self._reader.tuple_of(record, batches, serializer, None, False)
        rows = tuple(row for row, _ in writes.sound)
        return Candidate(record, digest, rows, batches, tier, seen)

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

    async def sound(
        self, serializer: Serializer, place: Place, target: Target
    ) -> tuple[Candidate, tuple[Damage, ...]]:
        """A checkpoint as it can be served, and damaged writes that it has to do without.

        Raises:
            CorruptionError, EvolutionError: if it or what its DeltaChannels replay cannot be read.
        """
        if target.record is None:
            raise target.foreign or corrupt(place, target.id, Unsound(target.channel, target.why))
        writes = await self.writes(place, target, None)
        made = self.candidate(serializer, target.record, target.digest, writes, target.tier)
        await self.replayable(serializer, place, made)
        return made, writes.damage

    async def replayable(self, serializer: Serializer, place: Place, made: Candidate) -> None:
        """Reads what the DeltaChannels of a checkpoint are made from.

        Raises:
            CorruptionError, EvolutionError: if that cannot be read.
        """
        channels = replayed(made.record, made.seen)
        if channels:
            blobs = self._shared.blobs
            args = (self._durable, self._reader, blobs, serializer, place, made.record.id)
            await history.replay(*args, sorted(channels))


def replayed(record: Record, seen: CheckpointTuple) -> set[str]:
    """The channels of a checkpoint that are made from its ancestors."""
    versions = seen.checkpoint.get("channel_versions") or {}
    return retention.replayed_channels(dict(seen.metadata), versions, record.by_name())


def _name(row: WriteRow) -> tuple[str, int, Digest]:
    return row.task, row.slot, row.digest


def detail_of(error: DurableStateError) -> str:
    if not isinstance(error, CorruptionError):
        return str(error)
    return f"channel {error.channel!r}: {error.detail}" if error.channel else error.detail
