"""Stored checkpoints to LangGraph's tuples: verified, decoded, and sharing nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple

from ..decisions import codec, reviving
from ..decisions.chunking import Channel, items_of
from ..decisions.codec import Batch, Blobs, Record, Unsound
from ..decisions.copying import copied
from ..decisions.evolution.snapshot import Snapshot, Write
from ..decisions.matching import Chunk
from ..decisions.serializing import Serializer
from ..decisions.versions import Tagged
from ..errors import CorruptionError, EvolutionError
from ..words import NULL_TASK_ID, ChunkRow, Found, Place, RecordRow, Thread, WriteRow
from .runs import Run, tagged
from .shaping import Shape


def corrupt(place: Place, id: str, found: Unsound) -> CorruptionError:
    """What a reader is told of unsound bytes."""
    return CorruptionError(
        thread=place.thread.id,
        namespace=place.ns,
        checkpoint=id,
        channel=found.channel,
        detail=found.detail,
    )


class Reader:
    """Verifies and decodes.

    Args:
        blobs: reads stored bytes.
        keep: keep decoded items beside their chunks, to copy them at the next read.
        missed: told the place, the checkpoint, and what of it is given as raw data instead of as
            the object that was stored.
        shape: what it is read as.
    """

    def __init__(
        self,
        blobs: Blobs,
        keep: bool,
        missed: Callable[[Place, str, str], None] | None = None,
        shape: Shape | None = None,
    ) -> None:
        self._blobs = blobs
        self._keep = keep
        self._missed = missed
        self.shape = shape or Shape()

    def chunks(self, rows: Mapping[int, ChunkRow]) -> dict[int, Chunk]:
        """The chunks of stored rows.

        Raises:
            Unsound: if a chunk's bytes are not those its digest was made from.
        """
        return {no: codec.chunk_of(row, self._blobs) for no, row in rows.items()}

    def record(
        self,
        place: Place,
        row: RecordRow,
        rows: Mapping[int, ChunkRow],
        parsed: dict[int, Chunk] | None = None,
    ) -> Record:
        """The record of a stored row with its chunks.

        Args:
            place: where it is stored.
            row: as stored.
            rows: its chunks as stored, and perhaps others.
            parsed: chunks that records read before it have in common with it; added to.

        Raises:
            CorruptionError: if anything of it is missing or is not what was written.
        """
        parsed = {} if parsed is None else parsed
        try:
            missing = [no for no in row.numbers if no in rows and no not in parsed]
            parsed.update(self.chunks({no: rows[no] for no in missing}))
            return codec.read_record(place, row, parsed, self._blobs)
        except Unsound as found:
            raise corrupt(place, row.id, self._named(place, row, rows, found)) from found

    def head(self, place: Place, found: Found) -> Record:
        """The record of a head that was found whole.

        Raises:
            CorruptionError: as `record`, or if the head does not name what is stored.
        """
        if found.lost:
            raise corrupt(place, found.head.id, Unsound(None, "its namespace has no head any more"))
        row = found.row
        if row is None or not row.record:
            raise corrupt(place, found.head.id, Unsound(None, "the head's record is missing"))
        record = self.record(place, row, found.chunks)
        if row.digest != found.head.digest:
            raise corrupt(place, row.id, Unsound(None, "the head was made from another content"))
        return record

    def _named(
        self, place: Place, row: RecordRow, rows: Mapping[int, ChunkRow], found: Unsound
    ) -> Unsound:
        """`found` with the channel whose chunk it is, where the manifest still tells."""
        if found.channel is not None:
            return found
        try:
            bad = set()
            for no in row.numbers:
                try:
                    codec.chunk_of(rows[no], self._blobs)
                except Unsound:
                    bad.add(no)
            name = codec.channel_of_number(row, bad, self._blobs)
        except Exception:
            return found
        return Unsound(name, found.detail) if name is not None else found

    def sound_batches(
        self, place: Place, rows: Iterable[WriteRow], chunks: Mapping[int, ChunkRow]
    ) -> tuple[list[tuple[WriteRow, Batch]], list[tuple[WriteRow, str]]]:
        """The rows whose write batches are what was written, and the others with what was found."""
        sound, bad = [], []
        for row in rows:
            try:
                sound.append((row, self.batches(place, [row], chunks)[0]))
            except CorruptionError as error:
                bad.append((row, error.detail))
        return sound, bad

    def batches(
        self, place: Place, rows: Iterable[WriteRow], chunks: Mapping[int, ChunkRow]
    ) -> list[Batch]:
        """The write batches of stored rows.

        Raises:
            CorruptionError: if one is not what was written.
        """
        out = []
        for row in rows:
            try:
                own = self.chunks({no: chunks[no] for no in row.numbers if no in chunks})
                out.append(codec.read_batch(place, row, own, self._blobs))
            except Unsound as found:
                raise corrupt(place, row.id, found) from found
        return out

    def value(self, channel: Channel, serializer: Serializer) -> Any:
        """A channel's value, which shares nothing with what is kept here.

        Raises:
            Exception: whatever the serializer raises for bytes that it cannot read.
        """
        if channel.shape == "inline":
            return serializer.loads(channel.tag, channel.inline)
        if channel.shape == "whole":
            return serializer.loads(channel.tag, channel.pieces[0].chunk.plain)
        items: list[Any] = []
        for piece in channel.pieces:
            part = self._items(piece.chunk, channel, serializer)
            items += part if piece.full else part[piece.start : piece.stop]
        return items if channel.shape == "array" else dict(items)

    def _items(self, chunk: Chunk, channel: Channel, serializer: Serializer) -> list[Any]:
        held = chunk.items
        if held is not None and chunk.reader is serializer.way:
            return copied(held)  # type: ignore[no-any-return]
        items = items_of(chunk, channel.shape, serializer)
        if self._keep:
            try:
                fresh = copied(items)
            except TypeError:
                return items
            if chunk.reader is None or chunk.reader is serializer.way:
                chunk.items, chunk.reader = items, serializer.way
            return fresh  # type: ignore[no-any-return]
        return items

    def tuple_of(
        self,
        record: Record,
        batches: Iterable[Batch],
        serializer: Serializer,
        run: Run | None,
        versioned: bool,
        marks: Mapping[str, Any] | None = None,
        interrupts: Mapping[str, str] | None = None,
        past: bool = False,
    ) -> CheckpointTuple:
        """LangGraph's view of a record and the pending writes stored against it, in today's shape.

        Args:
            record: verified.
            batches: verified, in any order.
            serializer: decodes.
            run: what the config's thread id shall carry.
            versioned: whether the channel versions shall carry it too.
            marks: what its metadata shall say beside what is stored.
            interrupts: today's ids of those that wait in its subgraphs.
            past: it is looked at among others, and nothing goes on from it.

        Raises:
            EvolutionError: if this code cannot read it, not bring it into today's shape, or has
                not the node that is to go on.
        """
        batches = tuple(batches)
        seen = self.stored(record, batches, serializer)
        if not self.shape.fits(record, batches):
            seen = self.shape.today(record.place, seen, interrupts or {}, past)
        if not past:
            self.shape.check_nodes(record.place, seen)
        checkpoint: Any = {**seen.checkpoint}
        if versioned and run is not None:
            checkpoint["channel_versions"] = tagged(checkpoint.get("channel_versions") or {}, run)
        metadata: Any = {**seen.metadata, **(marks or {})}
        place = record.place
        return CheckpointTuple(
            config=config_of(place, record.id, run),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=config_of(place, record.parent, None) if record.parent else None,
            pending_writes=[(write.task, write.channel, write.value) for write in seen.writes],
        )

    def stored(self, record: Record, batches: Sequence[Batch], serializer: Serializer) -> Snapshot:
        """A record, and the pending writes stored against it, in the newest shape that they were
        stored in and that this code knows.

        Raises:
            EvolutionError: if this code cannot read it, or newer code stored it.
        """
        place, ours = record.place, self.shape.version
        record = record.known_to(ours)
        batches = known(batches, ours)
        for version in (record.schema_version, *(batch.schema_version for batch in batches)):
            self.shape.check(place, record.id, version)
        of = self.shape.reader(serializer, record.schema_version)
        decode = partial(self.decoded, record, of)
        body = decode(None, partial(of.loads, record.body.tag, record.body.data))
        metadata = decode(None, partial(of.loads, record.metadata.tag, record.metadata.data))
        values = {c.name: decode(c.name, partial(self.value, c, of)) for c in record.channels}
        writes = (
            Write(task, path, name, self.written(record, write, version, serializer), version)
            for version, path, task, name, write in by_version(batches)
        )
        checkpoint = {**body, "id": record.id, "channel_values": values}
        ns = self.shape.ns(place, record.schema_version)
        of_all = tuple(writes)
        return Snapshot(ns, record.schema_version, checkpoint, metadata, of_all, place.ns)

    def written(self, record: Record, write: Channel, version: int, serializer: Serializer) -> Any:
        """The value of a verified write against a record, as code of a version stored it.

        Raises:
            EvolutionError: if the serializer cannot read it, or may not.
        """
        of = self.shape.reader(serializer, version)
        return self.decoded(record, of, write.name, partial(self.value, write, of))

    def decoded(
        self,
        record: Record,
        serializer: Serializer,
        channel: str | None,
        read: Callable[[], Any],
    ) -> Any:
        """What `read` decodes of a verified record.

        Args:
            record: the checkpoint.
            serializer: decodes.
            channel: what to call it; None for the checkpoint's own fields.
            read: decodes.

        Raises:
            EvolutionError: if the serializer cannot, or may not.
        """
        if serializer.lenient:
            reviving.noted()  # what was missed elsewhere is not this channel's
        try:
            value = read()
        except Exception as error:  # the digests hold: the bytes are what was written
            raise _unreadable(record, channel, error) from error
        if serializer.lenient and self._missed is not None:
            for each in reviving.noted():
                what = f"channel {channel!r} holds raw data, since {each}"
                self._missed(record.place, record.id, what)
        return value


def _unreadable(record: Record, channel: str | None, error: Exception) -> EvolutionError:
    place = record.place
    missed = error.missed if isinstance(error, reviving.Unknown) else ()
    why = (
        f"{error}. Name in allow=[…] what may be read; on_unknown_class='raw' gives raw data"
        if missed
        else f"this saver's serde cannot read them ({type(error).__name__}: {error}). "
        "Were they written with another serde, or by other code?"
    )
    what = "its own fields" if channel is None else f"channel {channel!r}"
    return EvolutionError(
        f"Thread {place.thread.id!r}, checkpoint {record.id}, {what}: "
        f"the bytes are as they were written, but {why}",
        thread=place.thread.id,
        namespace=place.ns,
        checkpoint=record.id,
        channel=channel,
        classes=tuple(dict.fromkeys(f"{each.module}.{each.name}" for each in missed)),
    )


def united(durable: Iterable[WriteRow], hot: Iterable[WriteRow]) -> tuple[WriteRow, ...]:
    """The writes against one checkpoint that either tier holds: of a special channel the hot one,
    which is the later; of a task's first batch the durable one."""
    rows = {(row.task, row.slot): row for row in hot}
    for row in durable:
        if row.slot >= 0 or (row.task, row.slot) not in rows:
            rows[row.task, row.slot] = row
    return tuple(rows.values())


def pending_writes(batches: Iterable[Batch]) -> list[tuple[str, str, str, Channel]]:
    """The writes that a resumed run sees: (path, task, channel, value), in LangGraph's order."""
    return in_order(chosen_batches(batches))


def chosen_batches(batches: Iterable[Batch]) -> list[Batch]:
    """The batches that a resumed run sees, all of one version.

    Of a task's ordinary batches the first counts; of the null task's, the longest.
    """
    chosen: dict[tuple[str, int], Batch] = {}
    for batch in sorted(batches, key=lambda b: b.slot):
        key = (batch.task, min(batch.slot, 0))
        have = chosen.get(key)
        grows = batch.task == NULL_TASK_ID and have and len(batch.writes) > len(have.writes)
        if have is None or grows:
            chosen[key] = batch
    return list(chosen.values())


def known(batches: Iterable[Batch], version: int) -> list[Batch]:
    """The batches that count, as code of a version reads them; last what was written while the
    state was stored in two versions, which is over where a task has others."""
    counting = sorted(chosen_batches(batches), key=lambda batch: batch.other is not None)
    return [batch.known_to(version) for batch in counting]


def by_version(batches: Sequence[Batch]) -> Iterator[tuple[int, str, str, str, Channel]]:
    """The `pending_writes` of each version of the state, which stands before each."""
    for version in sorted({batch.schema_version for batch in batches}):
        of = [batch for batch in batches if batch.schema_version == version]
        yield from ((version, *each) for each in pending_writes(of))


def in_order(batches: Iterable[Batch]) -> list[tuple[str, str, str, Channel]]:
    """All writes of some batches as (path, task, channel, value), in LangGraph's order."""
    keyed = [
        (b.path, b.task, WRITES_IDX_MAP.get(w.name, i), w)
        for b in batches
        for i, w in enumerate(b.writes)
    ]
    return [(path, task, w.name, w) for path, task, _, w in sorted(keyed, key=lambda k: k[:3])]


def config_of(place: Place, id: str, run: Run | None) -> Any:
    """The LangGraph config that names a checkpoint, owners included."""
    thread = place.thread
    named = {
        "thread_id": Tagged(thread.id, run) if run is not None else thread.id,
        "checkpoint_ns": place.named,
        "checkpoint_id": id,
    }
    return {"configurable": named | owners(thread)}


def asked_for(found: CheckpointTuple, thread: Thread) -> CheckpointTuple:
    """What was found, for the user and session that the asker named: what this process keeps may
    have been read for another, in whose name a run would go on."""

    def named(config: Any) -> Any:
        kept = {k: v for k, v in config["configurable"].items() if k in _PLACE}
        return {"configurable": kept | owners(thread)}

    before = found.parent_config
    return found._replace(
        config=named(found.config), parent_config=named(before) if before is not None else None
    )


_PLACE = ("thread_id", "checkpoint_ns", "checkpoint_id")


def owners(thread: Thread) -> dict[str, str]:
    """The optional ids of a thread that configs carry on."""
    named = {"tenant_id": thread.tenant, "user_id": thread.user, "session_id": thread.session}
    return {name: value for name, value in named.items() if value}
