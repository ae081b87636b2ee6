"""Puts and writes made ready to be stored: serialized, chunked, digested. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, WRITES_IDX_MAP

from ..decisions import arguments, codec, edges, heads, keys, projection, retention
from ..decisions.chunking import Channel, Weaver
from ..decisions.codec import Batch, Blobs, Record
from ..decisions.digest import PLAIN, Seal
from ..decisions.evolution.snapshot import Snapshot
from ..decisions.matching import Chunk
from ..decisions.serializing import Serializer
from ..decisions.versions import own_fields, untagged
from ..words import ChunkRow, Claim, Digest, Place, Put, PutWrites, WriteRow, frozen
from .dual_write import DualWrite
from .runs import Against, Run, Stance
from .shaping import Shape
from .shared import Known

_EXIT_STUB_STEP = -2

DEGRADED = "durable_state_degraded"
"""The metadata key of a checkpoint that was stored in a degraded way."""

QUEUED = "queued"
"""Redis alone acknowledged it, because Postgres could not be reached."""

HOT_LOST = "hot_lost"
"""Its run went on from the durable head, though Redis was ahead of it and lost what it held."""

FELL_BACK = "fell_back"
"""Its run went on from an earlier state, since the head was damaged."""

UNVERIFIED_MARK = "durable_state_unverified"
STALE_MARK = "durable_state_stale"
AGED_MARK = "durable_state_aged"
FELL_BACK_MARK = "durable_state_fell_back"
READ_MARKS = {UNVERIFIED_MARK, STALE_MARK, AGED_MARK, FELL_BACK_MARK}
"""What a read adds to metadata; never stored."""


@frozen
class Request:
    """One call of `put`, its ids checked. `parent` is the checkpoint's id in the config."""

    place: Place
    id: str
    parent: str | None
    config: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    new_versions: Mapping[str, Any]
    own: bool = False
    """Whether the caller cannot change it any more."""

    @property
    def stub(self) -> bool:
        """Whether this is the checkpoint without channels that LangGraph puts before the final
        one of a new thread under ``durability="exit"``, for a DeltaChannel's writes to stand on."""
        bare = not self.checkpoint.get("channel_versions") and self.parent is None
        return bare and self.metadata.get("step") == _EXIT_STUB_STEP

    def frozen(self, serializer: Serializer) -> Request:
        """A request that the caller cannot change while it waits.

        Raises:
            ValueRefusedError: if a value cannot be serialized; nothing was written.
        """
        if self.own:
            return self
        checkpoint = serializer.copied_checkpoint(self.checkpoint)
        return replace(self, checkpoint=checkpoint, metadata=dict(self.metadata), own=True)


def same(one: Record, other: Record, serializer: Serializer) -> bool:
    """Whether two records are one checkpoint, but for how they say that they were stored."""
    return _unmarked(one, serializer) == _unmarked(other, serializer)


def _unmarked(record: Record, serializer: Serializer) -> Digest:
    bare = replace(record, seal=PLAIN, count=0, other=None, edged=False)
    metadata = serializer.loads(record.metadata.tag, record.metadata.data)
    if metadata.pop(DEGRADED, None) is not None:
        bare = replace(bare, metadata=serializer.dumps(metadata, "metadata"))
    return bare.digest()


def exits(config: Mapping[str, Any]) -> bool:
    """Whether a graph's config says ``durability="exit"``."""
    return bool(config["configurable"].get("__pregel_durability") == "exit")


def request(
    config: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    new_versions: Mapping[str, Any],
) -> Request:
    """The request that a call of `put` makes.

    Raises:
        UsageError: if an argument cannot be used.
    """
    arguments.mapping("metadata", metadata)
    arguments.mapping("new_versions", new_versions)
    given: Any = arguments.mapping("checkpoint", checkpoint).get("id")
    id = keys.storable_id("checkpoint id", given)
    for name in ("channel_values", "channel_versions", "versions_seen"):
        arguments.mapping(f"checkpoint[{name!r}]", checkpoint.get(name) or {})
    parent = keys.checkpoint_id_of(config)
    place = keys.place_of(config)
    return Request(place, id, parent, config, checkpoint, metadata, new_versions)


@frozen
class Draft:
    """A put, with what is known in this process of it and of its parent."""

    put: Put
    record: Record
    parent: Known | None
    run: Run | None

    def needs_ancestors(self, serializer: Serializer) -> bool:
        """Whether a DeltaChannel of this checkpoint is made from those before it."""
        body = serializer.loads(self.record.body.tag, self.record.body.data)
        metadata = serializer.loads(self.record.metadata.tag, self.record.metadata.data)
        versions = body.get("channel_versions") or {}
        return bool(retention.replayed_channels(metadata, versions, self.record.by_name()))

    def under(self, fence: int | None) -> Draft:
        """The same put under a lease with this fence."""
        if fence is None:
            return self
        return replace(self, put=replace(self.put, fence=fence))

    def renumbered(self, numbers: Iterator[int], blobs: Blobs) -> Draft:
        """The same put under new numbers for the chunks it sends: one of theirs was taken."""
        sent = {row.no for row in self.put.chunks}
        chunks = [chunk for no, chunk in self.record.chunks().items() if no in sent]
        for chunk in chunks:
            chunk.no = next(numbers)
        rows = tuple(codec.chunk_row(chunk, blobs) for chunk in chunks)
        put = replace(self.put, numbers=self.record.numbers, chunks=rows)
        return replace(self, put=put)

    def marked(self, serializer: Serializer, blobs: Blobs, how: str) -> Draft:
        """The same put, whose metadata says in what degraded way it was stored."""
        metadata = serializer.loads(self.record.metadata.tag, self.record.metadata.data)
        metadata[DEGRADED] = how
        record = replace(self.record, metadata=serializer.dumps(metadata, "metadata"))
        if (other := record.other) is not None:
            beside = serializer.loads(other.metadata.tag, other.metadata.data) | {DEGRADED: how}
            dumped = serializer.dumps(beside, "metadata")
            record = replace(record, other=replace(other, metadata=dumped))
        shown = projection.of_metadata(metadata, blobs.keys.clear)
        return replace(self, put=replace(self.put, metadata=shown))._of(record, blobs)

    def counted(self, count: int, blobs: Blobs) -> Draft:
        """The same put, as the move of the head that this is."""
        if count == self.record.count:
            return self
        return self._of(replace(self.record, count=count), blobs)

    def _of(self, record: Record, blobs: Blobs) -> Draft:
        digest = record.digest()
        seal = heads.signature(record.seal, record.place, record.id, digest, record.count)
        packed = codec.pack_record(record, blobs, digest)
        put = replace(self.put, digest=digest, record=packed, seal=seal)
        if put.edge:
            put = replace(put, edge=_edge(record, digest))
        return replace(self, put=put, record=record)

    def news(self, blobs: Blobs) -> tuple[ChunkRow, ...]:
        """The chunks that the parent's hot copy lacks: those sent, and those that the durable tier
        had from a task's writes already."""
        held = set(self.parent.record.numbers) if self.parent else set()
        held.update(row.no for row in self.put.chunks)
        more = (c for no, c in self.record.chunks().items() if no not in held)
        return self.put.chunks + tuple(codec.chunk_row(c, blobs) for c in more)

    def dropped(self) -> tuple[int, ...]:
        """The numbers of the chunks that the parent has and this put has not."""
        if self.parent is None:
            return ()
        before = set(self.parent.record.numbers)
        return tuple(sorted(before.difference(self.put.numbers)))

    def rows(self, blobs: Blobs) -> tuple[ChunkRow, ...]:
        """All its chunks."""
        return tuple(codec.chunk_row(chunk, blobs) for chunk in self.record.chunks().values())

    def anew(self, serializer: Serializer, blobs: Blobs) -> Draft:
        """The same put with all its chunks, and a hot copy of its own: what is stored of its parent
        is damaged."""
        whole = self.whole(serializer, blobs)
        return replace(whole, put=replace(whole.put, follows=b"", edge=b""), parent=None)

    def whole(self, serializer: Serializer, blobs: Blobs) -> Draft:
        """The same put with all its chunks: those of its parent may be gone, but not the parent, if
        nobody could read it then; and it must not have become another."""
        refers = self.put.parent if self.needs_ancestors(serializer) else None
        put = replace(
            self.put,
            chunks=self.rows(blobs),
            refers=refers,
            base=b"",
            covered=False,
            base_numbers=None,
            follows=self.record.parent_digest,
            edge=b"" if refers else _edge(self.record, self.put.digest),
        )
        return replace(self, put=put)


def draft(
    asked: Request,
    stance: Stance,
    parent: Known | None,
    consumed: tuple[Digest, ...] | None,
    serializer: Serializer,
    numbers: Iterator[int],
    blobs: Blobs,
    seal: Seal,
    shape: Shape,
    dual: DualWrite,
    hot: bool = False,
) -> Draft:
    """The put that stores what was asked for, in today's shape and under a seal, referring to its
    parent's chunks; for the `hot` tier not to those of writes, which may be found stored under
    other numbers when they are flushed.

    Raises:
        ValueRefusedError: if a value would not come back; nothing was written.
    """
    run = stance.run
    base = parent.record if parent else None
    digest = parent.digest if parent else b""
    covered = base is not None and stance.claim is Claim.HEAD and digest == stance.expected
    against = run.against(asked.parent) if run is not None and asked.parent else Against()
    known = _referable(base, against if covered and not hot else None)
    weaver = Weaver(serializer, numbers, known, against.flying, seal)
    body = own_fields(asked.checkpoint)
    values = asked.checkpoint.get("channel_values") or {}
    before = shape.unchanged(base) if base is not None else {}
    held = {name: c for name, c in before.items() if name not in asked.new_versions}
    channels = weaver.channels(values, body["channel_versions"], held, before)
    needed = consumed or ()
    if run is not None and run.unstored and not asked.metadata.get(retention.COUNTERS):
        # What a DeltaChannel will replay must be there; anything else is in the values already.
        needed = tuple(mark for mark in needed if mark not in run.unstored)
    metadata = merged_metadata(asked.config, asked.metadata)
    if serializer.screen is not None:
        metadata = serializer.screen.metadata(metadata)
    if run is not None and run.degraded:
        metadata[DEGRADED] = run.degraded
    other = None
    if dual.on:
        whole = {**body, "id": asked.id, "channel_values": values}
        other = dual.form(asked.place, whole, metadata, channels, base, weaver, serializer)
    record = Record(
        asked.place,
        asked.id,
        asked.parent,
        digest,
        shape.version,
        serializer.dumps(body, "the checkpoint's own fields"),
        serializer.dumps(metadata, "metadata"),
        channels,
        consumed,
        seal,
        _count(stance, base) if seal.id else 0,
        other,
        bool(seal.id),
    )
    own = record.digest()
    put = Put(
        asked.place,
        asked.id,
        asked.parent,
        stance.claim,
        stance.expected,
        own,
        codec.pack_record(record, blobs, own),
        projection.of_metadata(metadata, blobs.keys.clear),
        record.numbers,
        tuple(codec.chunk_row(chunk, blobs) for chunk in weaver.to_store(record.all_channels)),
        record.size,
        refers=asked.parent if base is not None else None,
        base=digest,
        covered=covered,
        base_numbers=base.numbers if base is not None else None,
        consumed=needed if stance.claim is Claim.HEAD else (),
        seal=heads.signature(seal, asked.place, asked.id, own, record.count),
        edge=_edge(record, own) if base is None else b"",
    )
    return Draft(put, record, parent, run)


def _edge(record: Record, digest: Digest) -> bytes:
    """What says that the parent of a record may be missing."""
    return edges.edge(record.seal, record.place, record.id, digest, record.parent)


def _count(stance: Stance, base: Record | None) -> int:
    """How often the head has moved with this put, as far as its run knows."""
    run = stance.run
    at = run.record if run is not None and run.record is not None else base
    return 1 + (at.count if at is not None else 0)


def _referable(base: Record | None, against: Against | None) -> dict[Digest, Chunk]:
    """Chunks that need not be sent: the parent's, and those of acknowledged writes against it."""
    known = {chunk.digest: chunk for chunk in base.chunks().values()} if base else {}
    return known | (against.known if against else {})


def merged_metadata(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's metadata with the config's, as LangGraph's savers merge them, but exact:
    they drop NUL characters."""
    merged = {key: value for key, value in metadata.items() if key not in READ_MARKS}
    for source in (config.get("metadata"), config.get("configurable")):
        for key, value in (source or {}).items():
            taken = key in merged or key in EXCLUDED_METADATA_KEYS or key.startswith("__")
            if not taken and isinstance(value, (str, int, float)):
                merged[key] = untagged(value)
    return merged


# -- writes ----------------------------------------------------------------------------------


@frozen
class DraftWrites:
    """One task's writes, the chunks that are new with them, the seal that these are under, and the
    fence of their lease."""

    place: Place
    id: str
    batches: tuple[Batch, ...]
    new: tuple[Chunk, ...]
    seal: Seal
    fence: int | None = None

    def put(self, blobs: Blobs, spell: bytes | None = None) -> PutWrites:
        """What is to be stored, in a spell if it comes from one."""
        rows = tuple(
            codec.pack_batch(self.place, batch, blobs, self.seal) for batch in self.batches
        )
        chunks = tuple(codec.chunk_row(chunk, blobs) for chunk in self.new)
        return PutWrites(self.place, self.id, rows, chunks, self.fence, spell)

    def ordinary_chunks(self, rows: Sequence[WriteRow]) -> list[Chunk]:
        """The new chunks of writes that nothing will replace."""
        kept = {no for row in rows if row.slot >= 0 for no in row.numbers}
        return [chunk for chunk in self.new if chunk.no in kept]


def draft_writes(
    place: Place,
    id: str,
    writes: Sequence[tuple[str, Any]],
    task: str,
    path: str,
    serializer: Serializer,
    numbers: Iterator[int],
    seal: Seal,
    version: int,
    dual: DualWrite,
    outline: Snapshot | None,
) -> DraftWrites:
    """A task's writes, in the shape of this version, made ready under a seal; in a second form too
    if the `outline` of their checkpoint is given.

    Raises:
        UsageError: if the task's id or path cannot be used.
        ValueRefusedError: if a value would not come back; nothing was written.
    """
    keys.storable_id("task_id", task)
    keys.storable_path(path)
    weaver = Weaver(serializer, numbers, seal=seal)
    batches = []
    for batch, values in _batches(weaver, writes, id, task, path, version):
        if outline is not None:
            batch = dual.batch(place, batch, values, outline, weaver, serializer)
        batches.append(batch)
    new = weaver.to_store(write for batch in batches for write in batch.all_writes)
    return DraftWrites(place, id, tuple(batches), tuple(new), seal)


def _batches(
    weaver: Weaver, writes: Sequence[tuple[str, Any]], id: str, task: str, path: str, version: int
) -> Iterator[tuple[Batch, Sequence[Any]]]:
    """One batch of a task's ordinary writes, and one for each special channel; each with the
    values."""
    ordinary: list[tuple[Channel, Any]] = []
    special: dict[int, tuple[Channel, Any]] = {}
    for name, value in writes:
        channel = weaver.write(task, name, value)
        slot = WRITES_IDX_MAP.get(name)
        if slot is None:
            ordinary.append((channel, value))
        else:
            special[slot] = channel, value
    if ordinary:
        channels, values = zip(*ordinary, strict=True)
        yield Batch(id, task, path, 0, channels, version), values
    for slot, (channel, value) in special.items():
        yield Batch(id, task, path, slot, (channel,), version), (value,)
