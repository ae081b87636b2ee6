"""The saver's main path over both tiers: put, put_writes, get, list and history, written once.

Every method serializes or claims all it needs of the caller's objects before its first await, so
what the caller does to them later changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from langgraph.checkpoint.base import (
    EXCLUDED_METADATA_KEYS,
    WRITES_IDX_MAP,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.types import ERROR

from ..decisions import codec, keys, projection
from ..decisions.chunking import Channel, Chunk, Weaver
from ..decisions.codec import Batch, Blobs, Record, Unsound
from ..decisions.serializing import Serializer
from ..decisions.versions import run_of, untagged
from ..errors import ConflictError, NumberTakenError, UnavailableError, UsageError
from ..ports import Commits, Durable, Hot
from ..words import (
    Claim,
    Digest,
    Found,
    Listing,
    Lost,
    ParentGone,
    Place,
    Put,
    PutWrites,
    Thread,
    Won,
)
from . import history
from .reading import Reader, config_of, corrupt
from .runs import Made, Register, Run, Stance, run_of_versions, stance

logger = logging.getLogger("langgraph_durable_state")

PAGE = 50
"""Checkpoints listed per round trip: some 200 KB of an ordinary chat."""

_EXIT_STUB_STEP = -2


class Heads(Protocol):
    """Heads that this process holds decoded, by place."""

    def get(self, place: Place) -> Record | None: ...
    def put(self, place: Place, record: Record, digest: Digest) -> None: ...
    def digest(self, place: Place) -> Digest: ...


class Recent(Protocol):
    """Records this process has seen lately, by place and id."""

    def get(self, key: tuple[Place, str]) -> tuple[Record, Digest] | None: ...
    def put(self, key: tuple[Place, str], value: tuple[Record, Digest]) -> None: ...


@dataclass(frozen=True)
class Shared:
    """What all drivers of one saver share: it outlives loops and threads.

    Attributes:
        hot_from: bytes from which a head is copied to and served by the hot tier; None for never.
        fork_on_conflict: let a put that finds the head moved become the head.
    """

    blobs: Blobs
    numbers: keys.Numbers
    register: Register
    heads: Heads
    recent: Recent
    reader: Reader
    hot_from: int | None
    fork_on_conflict: bool


class Engine:
    """One driver's engine: the shared state above that driver's tiers."""

    def __init__(self, shared: Shared, durable: Durable, commits: Commits, hot: Hot | None) -> None:
        self._shared = shared
        self._reader = shared.reader
        self.durable = durable
        self._commits = commits
        self.hot = hot

    # -- put ---------------------------------------------------------------------------------

    async def put(
        self,
        serializer: Serializer,
        config: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> Any:
        place = keys.place_of(config)
        id = keys.storable_id("checkpoint id", checkpoint["id"])
        parent = keys.checkpoint_id_of(config)
        run = run_of_versions(checkpoint.get("channel_versions") or {})
        if run is not None and run.conflict is not None:
            raise run.conflict
        # Serialized here, before anything can suspend; chunks are matched with the parent once
        # that is known, which for every put of a run is at once.
        if run is not None:
            self._shared.register.started(run, place, id)
        stub = not checkpoint.get("channel_versions") and metadata.get("step") == _EXIT_STUB_STEP
        held = self._held_parent(run, place, parent)
        if parent is not None and held is None:
            checkpoint = _frozen(checkpoint, serializer)
            metadata = dict(metadata)
            held = await self._load_parent(place, parent)
        position = stance(run, run_of(_thread_id(config)), place, parent, stub and parent is None)
        if position is None:
            position = Stance(run, Claim.HEAD, held[1] if held else b"")
        if self._shared.fork_on_conflict and position.claim is not Claim.ASIDE:
            position = replace(position, claim=Claim.ANY)
        draft = self._draft(
            serializer,
            config,
            checkpoint,
            metadata,
            new_versions,
            place,
            id,
            parent,
            held,
            position,
        )
        await self._store(draft)
        return config_of(place, id, None)

    def _held_parent(
        self, run: Run | None, place: Place, parent: str | None
    ) -> tuple[Record, Digest] | None:
        if parent is None:
            return None
        if run is not None and run.at == parent and run.record is not None:
            return run.record, run.digest
        return self._shared.recent.get((place, parent))

    async def _load_parent(self, place: Place, parent: str) -> tuple[Record, Digest] | None:
        found = await self.durable.read(place, parent, b"", None)
        if found is None or found.row is None:
            return None
        return self._reader.record(place, found.row, found.chunks), found.row.digest

    def _draft(
        self,
        serializer: Serializer,
        config: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
        place: Place,
        id: str,
        parent: str | None,
        held: tuple[Record, Digest] | None,
        position: Stance,
    ) -> Draft:
        base = held[0] if held else None
        run = position.run
        covered = base is not None and position.claim is Claim.HEAD and held[1] == position.expected  # type: ignore[index]
        consumed = None
        if run is not None and run.at is not None and run.at == parent:
            consumed = self._shared.register.consumed(run, place)
        known = base.chunks() if base else {}
        if covered and run is not None:
            known.update(run.known)
        weaver = Weaver(serializer, self._shared.numbers, known)
        channels = _woven(weaver, checkpoint, new_versions, base)
        merged = _merged_metadata(config, metadata)
        record = Record(
            place,
            id,
            parent,
            held[1] if held else b"",
            0,
            serializer.dumps(_body(checkpoint), "the checkpoint's own fields"),
            serializer.dumps(merged, "metadata"),
            channels,
            consumed,
        )
        digest = record.digest()
        put = Put(
            place,
            id,
            parent,
            position.claim,
            position.expected,
            digest,
            codec.pack_record(record, self._shared.blobs),
            projection.of_metadata(merged),
            codec.numbers_of(channels),
            tuple(codec.chunk_row(c, self._shared.blobs) for c in weaver.to_store(channels)),
            record.size,
            refers=base.id if base else None,
            covered=covered,
        )
        return Draft(put, record, held, run)

    async def _store(self, draft: Draft) -> None:
        put, record, run = draft.put, draft.record, draft.run
        try:
            outcome = await self._commits.submit(put)
        except NumberTakenError:
            # One chance in 2**40 per block of numbers; the record does not hold them.
            sent = {row.no for row in put.chunks}
            self._renumber(c for c in record.chunks().values() if c.no in sent)
            put = replace(
                put, numbers=codec.numbers_of(record.channels), chunks=self._all_chunks(record)
            )
            outcome = await self._commits.submit(put)
        if isinstance(outcome, ParentGone):
            put = replace(put, refers=None, covered=False, chunks=self._all_chunks(record))
            outcome = await self._commits.submit(put)
        if isinstance(outcome, Lost):
            raise self._lost(draft, outcome)
        self._shared.recent.put((record.place, record.id), (record, put.digest))
        if isinstance(outcome, Won):
            if run is not None:
                run.advanced(record, put.digest)
            self._shared.heads.put(record.place, record, put.digest)
            await self._raise_hot(put, record, draft.held, outcome.seq)

    def _renumber(self, chunks: Iterable[Chunk]) -> None:
        self._shared.numbers.draw()
        for chunk in chunks:
            chunk.no = next(self._shared.numbers)

    def _all_chunks(self, record: Record) -> tuple[Any, ...]:
        chunks = {c.no: c for c in record.chunks().values()}
        return tuple(codec.chunk_row(c, self._shared.blobs) for c in chunks.values())

    def _lost(self, draft: Draft, outcome: Lost) -> ConflictError:
        run = draft.run
        error = ConflictError(
            thread=draft.put.place.thread.id,
            namespace=draft.put.place.ns,
            expected=run.at if run is not None else draft.put.parent,
            actual=outcome.actual,
            refused=draft.put.id,
        )
        if run is not None:
            run.conflict = error
        return error

    async def _raise_hot(
        self, put: Put, record: Record, held: tuple[Record, Digest] | None, seq: int
    ) -> None:
        if self.hot is None or not self._is_hot(record.size):
            return
        kept = set(put.numbers)
        dropped = [n for n in codec.numbers_of(held[0].channels) if n not in kept] if held else []
        try:
            await self.hot.raise_to(put, seq, held[1] if held else b"", sorted(set(dropped)))
        except UnavailableError as error:
            logger.debug("the hot copy was not raised: %s", error)

    def _is_hot(self, size: int) -> bool:
        return self._shared.hot_from is not None and size >= self._shared.hot_from

    # -- put_writes --------------------------------------------------------------------------

    async def put_writes(
        self,
        serializer: Serializer,
        config: Mapping[str, Any],
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        place = keys.place_of(config)
        id = keys.checkpoint_id_of(config)
        if id is None:
            raise UsageError('put_writes needs config["configurable"]["checkpoint_id"]')
        keys.storable_id("task_id", task_id)
        keys.storable_path(task_path)
        if not writes:
            return
        weaver = Weaver(serializer, self._shared.numbers)
        batches = list(_batches(weaver, writes, id, task_id, task_path))
        rows = tuple(codec.pack_batch(place, batch, self._shared.blobs) for batch in batches)
        new = weaver.to_store(w for b in batches for w in b.writes)
        chunks = tuple(codec.chunk_row(c, self._shared.blobs) for c in new)
        run = self._shared.register.of_writes(config, place, id)
        await self._commits.submit(PutWrites(place, id, rows, chunks))
        made: Made = {(row.task, row.slot): row.digest for row in rows if row.slot >= 0}
        ordinary = {no for row in rows if row.slot >= 0 for no in row.numbers}
        stored = [chunk for chunk in new if chunk.no in ordinary]
        self._shared.register.wrote(run, place, id, made, stored)

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
        found = await self.durable.read(place, id, b"", None)
        if found is None or found.row is None:
            return None
        record = self._reader.record(place, found.row, found.chunks)
        self._shared.recent.put((place, id), (record, found.row.digest))
        run = Run(place, id, record, found.row.digest, addressed=True)
        batches = self._reader.batches(place, found.writes, found.chunks)
        return self._reader.tuple_of(record, batches, serializer, run, versioned=False)

    async def _get_head(self, serializer: Serializer, place: Place) -> CheckpointTuple | None:
        held = self._shared.heads.digest(place)
        found = await self.durable.read(place, None, held, self._most())
        if found is None:
            return None
        record, found = await self._head_record(place, found)
        batches = self._reader.batches(place, found.writes, found.chunks)
        loaded = tuple(row.digest for row in found.writes if row.slot >= 0)
        run = Run(place, record.id, record, found.head.digest, loaded=loaded)
        result = self._reader.tuple_of(record, batches, serializer, run, versioned=True)
        self._shared.heads.put(place, record, found.head.digest)
        return result

    def _most(self) -> int | None:
        return self._shared.hot_from if self.hot is not None else None

    async def _head_record(self, place: Place, found: Found) -> tuple[Record, Found]:
        """The record of a head that was found, from wherever it is held."""
        if found.row is not None:
            return self._reader.record(place, found.row, found.chunks), found
        digest = found.head.digest
        if self._shared.heads.digest(place) == digest:
            record = self._shared.heads.get(place)
            if record is not None:
                return record, found
        record = await self._hot_record(place, digest)
        if record is not None:
            return record, found
        return await self._durable_head(place, found)

    async def _hot_record(self, place: Place, digest: Digest) -> Record | None:
        if self.hot is None:
            return None
        try:
            copy = await self.hot.fetch(place, digest)
            if copy is None:
                return None
            row, rows = copy
            return codec.read_record(place, row, self._reader.chunks(rows, {}), self._shared.blobs)
        except UnavailableError:
            return None
        except Unsound as found:
            logger.warning("a hot copy was damaged and is replaced: %s", found.detail)
            await self.drop_hot(place.thread, [place.ns])
            return None

    async def _durable_head(self, place: Place, found: Found) -> tuple[Record, Found]:
        whole = await self.durable.read(place, None, b"", None)
        if whole is None or whole.row is None:
            gone = Unsound(None, "the head vanished while it was read")
            raise corrupt(place, found.head.id, gone)
        record = self._reader.record(place, whole.row, whole.chunks)
        if self.hot is not None and self._is_hot(record.size):
            try:
                own = [whole.chunks[no] for no in dict.fromkeys(whole.row.numbers)]
                await self.hot.fill(place, whole.row, own)
            except UnavailableError as error:
                logger.debug("the hot copy was not filled: %s", error)
        return record, whole

    async def drop_hot(self, thread: Thread, namespaces: Sequence[str]) -> None:
        if self.hot is None:
            return
        try:
            await self.hot.drop(thread, namespaces)
        except UnavailableError as error:
            logger.debug("hot copies were not dropped: %s", error)

    # -- list and history --------------------------------------------------------------------

    async def list(
        self,
        serializer: Serializer,
        listing: Listing,
        limit: int | None,
    ) -> AsyncIterator[Sequence[CheckpointTuple]]:
        """Pages of tuples; nothing is held between them."""
        left = limit
        while left is None or left > 0:
            asked = PAGE if left is None else min(PAGE, left)
            page = await self.durable.page(replace(listing, limit=asked))
            if not page.rows:
                return
            out = []
            for thread, row in page.rows:
                place = Place(thread, row.ns)
                rows = {no: c for (key, no), c in page.chunks.items() if key == thread.key}
                record = self._reader.record(place, row, rows)
                found = page.writes.get((thread.key, row.ns, row.id), ())
                batches = self._reader.batches(place, found, rows)
                out.append(self._reader.tuple_of(record, batches, serializer, None, False))
            yield out
            thread, row = page.rows[-1]
            listing = replace(listing, after=(thread.key, row.ns, row.seq))
            left = None if left is None else left - len(out)

    async def delta_history(
        self, serializer: Serializer, config: Mapping[str, Any], channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        place = keys.place_of(config)
        id = keys.checkpoint_id_of(config)
        if id is None:
            head = await self.durable.read(place, None, b"", -1)
            id = head.head.id if head else None
        if id is None:
            return {name: {"writes": []} for name in channels}
        return await history.replay(
            self.durable, self._reader, self._shared.blobs, serializer, place, id, channels
        )


@dataclass(frozen=True)
class Draft:
    """A put, with what is known in this process of it and of its parent."""

    put: Put
    record: Record
    held: tuple[Record, Digest] | None
    run: Run | None


def _thread_id(config: Mapping[str, Any]) -> Any:
    return config["configurable"].get("thread_id")


def _frozen(checkpoint: Mapping[str, Any], serializer: Serializer) -> Mapping[str, Any]:
    """A copy that the caller cannot change, for a put that has to wait for its parent.

    Raises:
        ValueRefusedError: if a value cannot be serialized; nothing was written.
    """
    values = {}
    for name, value in (checkpoint.get("channel_values") or {}).items():
        typed = serializer.dumps(value, f"channel {name!r}")
        values[name] = serializer.loads(typed.tag, typed.data)
    return {**checkpoint, "channel_values": values}


def _woven(
    weaver: Weaver,
    checkpoint: Mapping[str, Any],
    new_versions: Mapping[str, Any],
    base: Record | None,
) -> tuple[Channel, ...]:
    """The channels of a checkpoint: new versions from its values, the others from its parent."""
    values = checkpoint.get("channel_values") or {}
    versions = checkpoint.get("channel_versions") or {}
    before = base.by_name() if base is not None else {}
    out = []
    for name in dict.fromkeys((*versions, *values)):
        version = untagged(versions.get(name))
        old = before.get(name)
        if name not in new_versions and old is not None and old.version == version:
            out.append(old)
        elif name in values:
            out.append(weaver.channel(name, values[name], version=version, base=old))
    return tuple(out)


def _body(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    body = {k: v for k, v in checkpoint.items() if k not in ("channel_values", "id")}
    body["channel_versions"] = _plain(body.get("channel_versions"))
    seen = body.get("versions_seen") or {}
    body["versions_seen"] = {node: _plain(versions) for node, versions in seen.items()}
    return body


def _plain(versions: Mapping[str, Any] | None) -> dict[str, Any]:
    return {k: untagged(v) for k, v in (versions or {}).items()}


def _merged_metadata(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's metadata with the config's, as LangGraph's savers merge them, but exact:
    they drop NUL characters."""
    merged = dict(metadata)
    for source in (config.get("metadata"), config.get("configurable")):
        for key, value in (source or {}).items():
            taken = key in merged or key in EXCLUDED_METADATA_KEYS or key.startswith("__")
            if not taken and isinstance(value, (str, int, float)):
                merged[key] = untagged(value)
    return merged


def _batches(
    weaver: Weaver, writes: Sequence[tuple[str, Any]], id: str, task: str, path: str
) -> Iterator[Batch]:
    """One batch of a task's ordinary writes, and one for each special channel."""
    ordinary = []
    special: dict[int, Channel] = {}
    for name, value in writes:
        where = f"task {task}, write to {name!r}"
        channel = weaver.channel(name, value, where=where, lossy=name == ERROR)
        slot = WRITES_IDX_MAP.get(name)
        if slot is None:
            ordinary.append(channel)
        else:
            special[slot] = channel
    if ordinary:
        yield Batch(id, task, path, 0, tuple(ordinary))
    for slot, channel in special.items():
        yield Batch(id, task, path, slot, (channel,))


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
