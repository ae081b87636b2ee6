"""One thread's rows in another shape of the user's state, made of what was read of it.

What a resumed run would see of a checkpoint afterwards is what it would see if it read the old one
under the new shape: both ask the same functions. Rows that nobody sees, as what a run wrote that
lost, are brought along one by one, since what a DeltaChannel replays may be made from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langgraph._internal._constants import INTERRUPT
from langgraph.checkpoint.base import WRITES_IDX_MAP

from ..decisions.chunking import Channel, Weaver
from ..decisions.codec import Batch, Record
from ..decisions.digest import Seal
from ..decisions.evolution import tasks
from ..decisions.evolution.evolving import Moved, moved, moved_interrupts, path_of, touched
from ..decisions.evolution.snapshot import Snapshot, Write
from ..decisions.resealing import Resealed
from ..decisions.serializing import Serializer
from ..decisions.versions import own_fields
from ..errors import EvolutionError, ValueRefusedError
from ..words import Head, Place, RecordRow, Rewritten, WriteRow
from .reading import Reader, chosen_batches
from .renaming import Key, Renaming

Stored = tuple[WriteRow, Batch, Seal]
"""A row of writes, verified, and the seal that it is under."""


@dataclass(frozen=True, slots=True)
class Told:
    """A batch of writes to be stored in the place of some rows."""

    rows: tuple[Stored, ...]
    batch: Batch
    seen: bool = True
    """Whether a resumed run sees it."""


@dataclass
class Counts:
    """What was done to a thread so far."""

    checkpoints: int = 0
    writes: int = 0
    left: list[str] = field(default_factory=list)
    """Why checkpoints that no run goes on from by itself stay as they are."""


class Reshaping:
    """Makes the rows of one thread anew.

    Args:
        reader: decodes, in the saver's shape.
        serializer: of the saver; it refuses what it cannot read whole.
        to: the version wanted.
        known: the thread's heads.
        records: all its rows, verified, no checkpoint before its parent.
        writes: the rows of writes against each checkpoint.
        made: what becomes of them.
    """

    def __init__(
        self,
        reader: Reader,
        serializer: Serializer,
        to: int,
        known: Mapping[str, Head],
        records: Sequence[tuple[RecordRow, Record]],
        writes: Mapping[Key, Sequence[Stored]],
        made: Resealed,
    ) -> None:
        schema = reader.shape.schema
        assert schema is not None
        self._schema = schema
        self._reader = reader
        self._serializer = serializer
        self._to = to
        self._known = known
        self._records = records
        self._writes = writes
        self._made = made
        self._both = {
            row.digest for of in writes.values() for row, batch, _ in of if batch.other is not None
        }
        self._channels: dict[Key, tuple[Channel, ...]] = {}
        by_key = {(row.ns, row.id): record for row, record in records}
        self._names = Renaming(schema, to, by_key, self._bare, self._metadata)
        self._interrupts: dict[str, str] = {}
        self.counts = Counts()

    def done(self) -> Rewritten | None:
        """All of the thread in the other shape; None if there is nothing to change.

        Raises:
            EvolutionError, ValueRefusedError: if a checkpoint that a run would go on from cannot be
                brought there.
        """
        for row, record in self._records:
            self._note_interrupts((row.ns, row.id), record)
        for row, record in self._records:
            self._add(row, record)
        if not self.counts.checkpoints and not self.counts.writes:
            return None
        return replace(self._made.done(), exact=True)

    # -- one checkpoint ----------------------------------------------------------------------

    def _add(self, row: RecordRow, record: Record) -> None:
        key = row.ns, row.id
        stored = self._writes.get(key, ())
        place = replace(record.place, ns=self._names.name(row.ns))
        try:
            made, told = self._reshaped(place, record, stored)
        except (EvolutionError, ValueRefusedError) as error:
            if place.ns != row.ns or self._is_live(key):
                raise
            self.counts.left.append(f"checkpoint {row.id}: {error}")
            made, told = record, self._as_they_are(stored)
        if made is not record:
            self.counts.checkpoints += 1
        for each in told:
            self._add_batch(place, row.ns, each)
        is_head = row.ns in self._known and self._known[row.ns].id == row.id
        self._channels[key] = self._made.record(row, made, is_head).channels

    def _is_live(self, key: Key) -> bool:
        """Whether a run would go on from a checkpoint without being told to: it is a head, and so
        is the one around it."""
        head = self._known.get(key[0])
        if head is None or head.id != key[1]:
            return False
        above = self._names.parent(key[0])
        return above is None or self._is_live(above)

    def _reshaped(
        self, place: Place, record: Record, stored: Sequence[Stored]
    ) -> tuple[Record, list[Told]]:
        """A checkpoint and what waits on it in the other shape; the same, if it has it already."""
        record = one_form(record, self._to)
        # As `known` has them: what was written in two versions is over where a task has others.
        both = any(batch.other is not None for _, batch, _ in stored)
        stored = sorted(stored, key=lambda each: each[1].other is not None)
        stored = [(row, one_batch(batch, self._to), seal) for row, batch, seal in stored]
        batches = [batch for _, batch, _ in stored]
        versions = {record.schema_version, *(batch.schema_version for batch in batches)}
        asks = any(w.name == INTERRUPT for batch in batches for w in batch.writes)
        news = asks and bool(self._interrupts)
        if versions == {self._to} and place.ns == record.place.ns and not news and not both:
            return record, self._as_they_are(stored)
        snapshot = self._snapshot(record, batches)
        now = moved(snapshot, self._schema, self._to, place.ns, self._interrupts)
        told = self._told(place, record, now, stored)
        changed = record.schema_version != self._to or place.ns != record.place.ns
        return (self._record(place, record, snapshot, now.snapshot) if changed else record), told

    def _record(self, place: Place, record: Record, old: Snapshot, new: Snapshot) -> Record:
        of = touched(self._schema, record.schema_version, self._to, path_of(place.ns))
        held = {} if of is None else {n: c for n, c in record.by_name().items() if n not in of}
        body = self._serializer.dumps(own_fields(new.checkpoint), "the checkpoint's own fields")
        metadata = record.metadata
        if of is None or new.metadata is not old.metadata:
            metadata = self._serializer.dumps(dict(new.metadata), "metadata")
        return replace(
            record,
            place=place,
            schema_version=self._to,
            body=body,
            metadata=metadata,
            channels=self._woven(record, new, held),
        )

    def _woven(
        self, record: Record, new: Snapshot, held: Mapping[str, Channel]
    ) -> tuple[Channel, ...]:
        """The values of a checkpoint; made of its parent's chunks, where it has to be made."""
        before = self._channels.get((record.place.ns, record.parent or ""), ())
        base = {channel.name: channel for channel in before}
        known = {p.chunk.digest: p.chunk for channel in before for p in channel.pieces}
        weaver = Weaver(self._serializer, self._made.numbers, known, seal=self._made.seal)
        values = new.checkpoint["channel_values"]
        versions = new.checkpoint.get("channel_versions") or {}
        made = weaver.channels(values, versions, held, base)
        self._made.fresh += weaver.to_store(made)
        return made

    # -- what waits on it --------------------------------------------------------------------

    def _told(
        self,
        place: Place,
        record: Record,
        now: Moved,
        stored: Sequence[Stored],
    ) -> list[Told]:
        """The batches in the place of the rows of a checkpoint, ordinary ones first."""
        seen = _seen([batch for _, batch, _ in stored])

        newest: dict[str, int] = {}
        for batch in seen:
            if batch.slot >= 0:
                task = _task(now, batch)
                newest[task] = max(newest.get(task, 0), batch.schema_version)
        rows: dict[tuple[str, int], list[Stored]] = {}
        aside: list[Stored] = []
        for each in stored:
            batch, task = each[1], _task(now, each[1])
            counts = any(batch is one for one in seen) and newest.get(task) == batch.schema_version
            if batch.slot >= 0 and not counts:
                aside.append(each)
            else:
                rows.setdefault((task, min(batch.slot, 0)), []).append(each)
        writes = now.snapshot.writes
        told = [self._batch(of, writes, *key) for key, of in sorted(rows.items(), reverse=True)]
        return told + [self._aside(place, record, each) for each in aside]

    def _aside(self, place: Place, record: Record, stored: Stored) -> Told:
        """A batch that no resumed run sees."""
        alone = self._snapshot(record, [stored[1]])
        now = moved(alone, self._schema, self._to, place.ns, self._interrupts)
        task = _task(now, stored[1])
        return replace(self._batch([stored], now.snapshot.writes, task, 0), seen=False)

    def _batch(self, rows: Sequence[Stored], writes: Iterable[Write], task: str, slot: int) -> Told:
        mine = [w for w in writes if w.task == task and WRITES_IDX_MAP.get(w.channel, 0) == slot]
        weaver = Weaver(self._serializer, self._made.numbers, seal=self._made.seal)
        made = tuple(weaver.write(task, write.channel, write.value) for write in mine)
        self._made.fresh += weaver.to_store(made)
        path = mine[0].path if mine else rows[0][1].path
        return Told(tuple(rows), Batch(rows[0][1].id, task, path, slot, made, self._to))

    def _add_batch(self, place: Place, ns: str, told: Told) -> None:
        former = [(ns, row) for row, _, _ in told.rows]
        self._made.batch(former, place, told.batch, told.rows[0][2], aside=not told.seen)
        both = any(row.digest in self._both for row, _, _ in told.rows)
        self.counts.writes += both or any(batch != told.batch for _, batch, _ in told.rows)

    def _as_they_are(self, stored: Sequence[Stored]) -> list[Told]:
        return [Told((each,), each[1]) for each in stored]

    # -- reading -----------------------------------------------------------------------------

    def _snapshot(self, record: Record, batches: Sequence[Batch]) -> Snapshot:
        found = self._reader.stored(record, batches, self._serializer)
        ns = self._names.named(record.place.ns, record.schema_version)
        return replace(found, ns=ns)

    def _bare(self, record: Record) -> Snapshot:
        """A record in its oldest shape, without the values of the user's channels."""
        record = one_form(record, min(record.versions))
        own = (c for c in record.channels if c.name != tasks.START and not tasks.is_users(c.name))
        return self._reader.stored(replace(record, channels=tuple(own)), (), self._serializer)

    def _metadata(self, record: Record) -> Mapping[str, Any]:
        record = one_form(record, min(record.versions))
        found = self._serializer.loads(record.metadata.tag, record.metadata.data)
        return found if isinstance(found, Mapping) else {}

    def _note_interrupts(self, key: Key, record: Record) -> None:
        """Notes the new ids of the interrupts that a checkpoint's own tasks wait at."""
        batches = [
            one_batch(batch, self._to)
            for _, batch, _ in self._writes.get(key, ())
            if any(write.name in WRITES_IDX_MAP for write in batch.writes)
        ]
        if not any(write.name == INTERRUPT for batch in batches for write in batch.writes):
            return
        try:
            snapshot = self._snapshot(one_form(record, self._to), batches)
            name = self._names.name(key[0])
            self._interrupts |= moved_interrupts(snapshot, self._schema, self._to, name)
        except EvolutionError:
            return  # it is met again, and told, when the checkpoint's turn comes


def one_form(record: Record, to: int) -> Record:
    """A record in one shape alone: that which code of a version would read."""
    return record if record.other is None else replace(record.known_to(to), other=None)


def one_batch(batch: Batch, to: int) -> Batch:
    """A batch of writes, likewise."""
    return batch if batch.other is None else replace(batch.known_to(to), other=None)


def _task(now: Moved, batch: Batch) -> str:
    """The id that a batch's task has now."""
    return now.tasks.get((batch.schema_version, batch.task), batch.task)


def _seen(batches: Sequence[Batch]) -> list[Batch]:
    """The batches that a resumed run sees, of each version."""
    versions = sorted({batch.schema_version for batch in batches})
    return [
        batch
        for version in versions
        for batch in chosen_batches(b for b in batches if b.schema_version == version)
    ]
