"""What DeltaChannels replay: the writes along one branch, down to the nearest stored value.

The chain is read in pages that grow eightfold, so the number of round trips is bounded by the
logarithm of its length (64, 512, 4,096, …). Of a checkpoint's writes only those count that its
child on this branch consumed: another run's answer on the same head never leaks in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..decisions import codec, retention
from ..decisions.chunking import Channel
from ..decisions.codec import Blobs, Record, RecordParts, Unsound, unreadable
from ..decisions.matching import Chunk
from ..decisions.serializing import Serializer
from ..ports import Durable
from ..words import Digest, Page, Place, RecordRow
from .reading import Reader, by_version, corrupt, known
from .shaping import Shape

if TYPE_CHECKING:  # LangGraph has DeltaChannels since 1.2
    from langgraph.checkpoint.base import DeltaChannelHistory

Told = tuple[int, str, str, str, Channel]
"""One write, as `by_version` tells it."""

FIRST_PAGE = 64
GROWTH = 8


async def ancestry(
    durable: Durable,
    blobs: Blobs,
    shape: Shape,
    serializer: Serializer,
    place: Place,
    id: str,
    channels: Iterable[str],
) -> list[RecordRow]:
    """A checkpoint and its ancestors, down to where each of `channels`, under the names that they
    have today, has a stored value.

    The checkpoint itself comes first and does not count as such a place.

    Raises:
        Unsound: if a record cannot be read, or an ancestor that is needed is missing.
    """
    wanted = set(channels)
    rows: list[RecordRow] = []
    seen: set[str] = set()
    size, start = FIRST_PAGE, id
    while True:
        page = await durable.chain(place, start, size)
        for row in page if not rows else page[1:]:
            if row.id in seen:
                raise Unsound(None, "it is its own ancestor")
            seen.add(row.id)
            rows.append(row)
            if len(rows) > 1:
                wanted -= _present(row, wanted, blobs, shape, place).keys()
                if not wanted:
                    return rows
        if len(page) < size:
            if rows and rows[-1].parent is not None:
                parts = codec.record_parts(rows[-1], blobs)
                written = _written(parts, serializer, shape.version)
                names = _named(rows[-1], parts, wanted, shape, place)
                _require_nothing({n for n in wanted if names[n] in written}, rows[-1].parent)
            return rows
        start, size = page[-1].id, size * GROWTH


def _named(
    row: RecordRow, parts: RecordParts, channels: Iterable[str], shape: Shape, place: Place
) -> dict[str, str | None]:
    """What some channels of today are called in a stored record."""
    version = parts.known_to(shape.version)[0].schema_version
    shape.check(place, row.id, version)
    return {name: shape.name_of(place, name, version) for name in channels}


def _present(
    row: RecordRow, channels: Iterable[str], blobs: Blobs, shape: Shape, place: Place
) -> dict[str, tuple[int, ...]]:
    """Those of some channels of today that a stored record holds a value of, with their chunk
    numbers."""
    parts = codec.record_parts(row, blobs)
    found = parts.present(row.numbers, shape.version)
    named = _named(row, parts, channels, shape, place)
    return {name: found[old] for name, old in named.items() if old in found}


def _require_nothing(channels: set[str], parent: str) -> None:
    if channels:
        names = ", ".join(sorted(channels))
        raise Unsound(None, f"the ancestor {parent}, which {names} is made from, is missing")


def _written(parts: RecordParts, serializer: Serializer, version: int) -> set[str]:
    """The channels that have a version at a stored record, as code of a version knows them."""
    try:
        body = serializer.loads(*parts.known_to(version)[0].body)
        return set(body.get("channel_versions") or {})
    except (Unsound, ValueError, TypeError, AttributeError) as error:
        raise unreadable(None, "the record", error) from error


def replayed_at(
    row: RecordRow, blobs: Blobs, shape: Shape, serializer: Serializer, place: Place
) -> set[str]:
    """The channels of a stored record that are made from its ancestors, as they are called today.

    Raises:
        Unsound: if the record cannot be read.
        EvolutionError: if newer code stored it, or what they were made from has no one name.
        Exception: whatever the serializer raises for bytes that it cannot read.
    """
    parts = codec.record_parts(row, blobs)
    form, present = parts.known_to(shape.version)[0], parts.present(row.numbers, shape.version)
    body, metadata = serializer.loads(*form.body), serializer.loads(*form.metadata)
    shape.check(place, row.id, form.schema_version)
    names = retention.replayed_channels(metadata, body.get("channel_versions") or {}, present)
    return shape.names_today(place, names, form.schema_version)


async def replay(
    durable: Durable,
    reader: Reader,
    blobs: Blobs,
    serializer: Serializer,
    place: Place,
    id: str,
    channels: Sequence[str],
) -> Mapping[str, DeltaChannelHistory]:
    """The writes and seeds of `channels` for the checkpoint `id` (LangGraph's contract).

    Raises:
        CorruptionError: if a record of the chain, a write or a seed is not what was written.
    """
    try:
        rows = await ancestry(durable, blobs, reader.shape, serializer, place, id, channels)
        if not rows:
            if place.ns not in await durable.heads(place.thread):
                return {name: {"writes": []} for name in channels}  # deleted, all of it
            raise Unsound(None, "the checkpoint whose history is asked for is not there")
        full = _seeds(rows[1:], channels, blobs, reader.shape, place)
    except Unsound as found:
        raise corrupt(place, id, found) from found
    light = {no for row in rows for no in row.numbers} - full
    page = await durable.rest(place, [r.id for r in rows[1:]], sorted(full), sorted(light))
    records = _verified(place, rows, page, reader, blobs)
    return _collected(reader, serializer, place, records, page, channels)


def _seeds(
    rows: Sequence[RecordRow], channels: Sequence[str], blobs: Blobs, shape: Shape, place: Place
) -> set[int]:
    """The numbers of the chunks that the stored values are made of."""
    found: dict[str, tuple[int, ...]] = {}
    for row in rows:
        found = _present(row, channels, blobs, shape, place) | found
    return {no for numbers in found.values() for no in numbers}


def _verified(
    place: Place, rows: Sequence[RecordRow], page: Page, reader: Reader, blobs: Blobs
) -> list[Record]:
    out: list[Record] = []
    parsed: dict[int, Chunk] = {}
    for row in rows:
        try:
            for no in row.numbers:
                stored = page.chunks.get(no)
                if stored is not None and no not in parsed:
                    whole = len(stored.blob) > 3
                    parsed[no] = (
                        codec.chunk_of(stored, blobs) if whole else codec.bare_chunk(stored)
                    )
            record = codec.read_record(place, row, parsed, blobs)
        except Unsound as found:
            raise corrupt(place, row.id, found) from found
        if out and out[-1].parent_digest != row.digest:
            raise corrupt(place, row.id, Unsound(None, "its child was made from another content"))
        out.append(record)
    return out


def _collected(
    reader: Reader,
    serializer: Serializer,
    place: Place,
    records: Sequence[Record],
    page: Page,
    channels: Sequence[str],
) -> dict[str, DeltaChannelHistory]:
    writes: dict[str, list[list[tuple[str, str, Any]]]] = {name: [] for name in channels}
    seeds: dict[str, tuple[Record, Channel]] = {}
    for child, record in pairwise(records):
        wanted = [name for name in channels if name not in seeds]
        on_branch = _on_branch(reader, serializer, place, child, record, page, wanted)
        for name, found in on_branch.items():
            writes[name].append(found)
        record = record.known_to(reader.shape.version)
        held = record.by_name()
        for name in wanted:
            old = reader.shape.name_of(place, name, record.schema_version)
            if old in held:
                seeds[name] = record, held[old]
    out: dict[str, DeltaChannelHistory] = {}
    for name in channels:
        entry: DeltaChannelHistory = {
            "writes": [w for step in reversed(writes[name]) for w in step]
        }
        if name in seeds:
            holder, seed = seeds[name]
            value = reader.written(holder, seed, holder.schema_version, serializer)
            entry["seed"] = reader.shape.value(place, name, value, holder.schema_version)
        out[name] = entry
    return out


def _on_branch(
    reader: Reader,
    serializer: Serializer,
    place: Place,
    child: Record,
    record: Record,
    page: Page,
    channels: Sequence[str],
) -> dict[str, list[tuple[str, str, Any]]]:
    """The writes to `channels` stored against `record` that `child` consumed."""
    rows = page.writes.get((place.ns, record.id), ())
    if child.consumed is None:
        chosen = list(rows)
    else:
        chosen = [row for row in rows if row.digest in child.consumed]
        _require(place, record, child.consumed, {row.digest for row in rows})
    found: dict[str, list[tuple[str, str, Any]]] = {}
    ours = reader.shape.version
    batches = known(reader.batches(place, chosen, page.chunks), ours)
    for batch in batches:
        reader.shape.check(place, record.id, batch.schema_version)
    told = _as_taken_up(reader.shape, place, child, by_version(batches))
    for version, _, task, stored, write in told:
        named = (n for n in channels if reader.shape.name_of(place, n, version) == stored)
        name = next(named, None)
        if name is None:
            continue
        value = reader.written(record, write, version, serializer)
        value = reader.shape.value(place, name, value, version)
        found.setdefault(name, []).append((task, name, value))
    return found


def _as_taken_up(shape: Shape, place: Place, child: Record, told: Iterable[Told]) -> list[Told]:
    """Writes of several versions in the order in which the child's code took them up."""
    to = child.known_to(shape.version).schema_version
    return sorted(told, key=lambda each: (shape.order(place, each[1], each[0], to), each[2]))


def _require(place: Place, record: Record, consumed: Sequence[Digest], stored: set[Digest]) -> None:
    if not stored.issuperset(consumed):
        raise corrupt(place, record.id, Unsound(None, "a write that its child consumed is missing"))
