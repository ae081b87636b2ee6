"""What DeltaChannels replay: the writes along one branch, down to the nearest stored value.

The chain is read in pages that grow eightfold, so the number of round trips is bounded by the
logarithm of its length (64, 512, 4,096, …). Of a checkpoint's writes only those count that its
child on this branch consumed: another run's answer on the same head never leaks in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..decisions import codec
from ..decisions.chunking import Channel
from ..decisions.codec import Blobs, Record, Unsound, unreadable
from ..decisions.matching import Chunk
from ..decisions.serializing import Serializer
from ..ports import Durable
from ..words import Digest, Page, Place, RecordRow
from .reading import Reader, corrupt, pending_writes

if TYPE_CHECKING:  # LangGraph has DeltaChannels since 1.2
    from langgraph.checkpoint.base import DeltaChannelHistory

FIRST_PAGE = 64
GROWTH = 8


async def ancestry(
    durable: Durable,
    blobs: Blobs,
    serializer: Serializer,
    place: Place,
    id: str,
    channels: Iterable[str],
) -> list[RecordRow]:
    """A checkpoint and its ancestors, down to where each of `channels` has a stored value.

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
                wanted -= codec.channels_present(row, blobs).keys()
                if not wanted:
                    return rows
        if len(page) < size:
            if rows and rows[-1].parent is not None:
                _require_nothing(wanted & _written(rows[-1], blobs, serializer), rows[-1].parent)
            return rows
        start, size = page[-1].id, size * GROWTH


def _require_nothing(channels: set[str], parent: str) -> None:
    if channels:
        names = ", ".join(sorted(channels))
        raise Unsound(None, f"the ancestor {parent}, which {names} is made from, is missing")


def _written(row: RecordRow, blobs: Blobs, serializer: Serializer) -> set[str]:
    """The channels that have a version at a stored record."""
    try:
        body = serializer.loads(*codec.record_parts(row, blobs)[3])
        return set(body.get("channel_versions") or {})
    except (Unsound, ValueError, TypeError, AttributeError) as error:
        raise unreadable(None, "the record", error) from error


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
        rows = await ancestry(durable, blobs, serializer, place, id, channels)
        if not rows:
            if place.ns not in await durable.heads(place.thread):
                return {name: {"writes": []} for name in channels}  # deleted, all of it
            raise Unsound(None, "the checkpoint whose history is asked for is not there")
        seeds = _seeds(rows[1:], channels, blobs)
    except Unsound as found:
        raise corrupt(place, id, found) from found
    full = {no for name, row in seeds.items() for no in codec.channels_present(row, blobs)[name]}
    light = {no for row in rows for no in row.numbers} - full
    page = await durable.rest(place, [r.id for r in rows[1:]], sorted(full), sorted(light))
    records = _verified(place, rows, page, reader, blobs)
    return _collected(reader, serializer, place, records, page, channels)


def _seeds(
    rows: Sequence[RecordRow], channels: Sequence[str], blobs: Blobs
) -> dict[str, RecordRow]:
    found: dict[str, RecordRow] = {}
    for row in rows:
        present = codec.channels_present(row, blobs)
        for name in channels:
            if name in present:
                found.setdefault(name, row)
    return found


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
        open_names = [name for name in channels if name not in seeds]
        for name, found in _on_branch(reader, serializer, place, child, record, page).items():
            if name in open_names:
                writes[name].append(found)
        held = record.by_name()
        seeds.update((name, (record, held[name])) for name in open_names if name in held)
    out: dict[str, DeltaChannelHistory] = {}
    for name in channels:
        entry: DeltaChannelHistory = {
            "writes": [w for step in reversed(writes[name]) for w in step]
        }
        if name in seeds:
            holder, seed = seeds[name]
            entry["seed"] = reader.decoded(
                holder, serializer, name, partial(reader.value, seed, serializer)
            )
        out[name] = entry
    return out


def _on_branch(
    reader: Reader,
    serializer: Serializer,
    place: Place,
    child: Record,
    record: Record,
    page: Page,
) -> dict[str, list[tuple[str, str, Any]]]:
    """The writes stored against `record` that `child` consumed, by channel."""
    rows = page.writes.get((place.ns, record.id), ())
    if child.consumed is None:
        chosen = list(rows)
    else:
        chosen = [row for row in rows if row.digest in child.consumed]
        _require(place, record, child.consumed, {row.digest for row in rows})
    found: dict[str, list[tuple[str, str, Any]]] = {}
    for task, name, write in pending_writes(reader.batches(place, chosen, page.chunks)):
        read = partial(reader.value, write, serializer)
        value = reader.decoded(record, serializer, name, read)
        found.setdefault(name, []).append((task, name, value))
    return found


def _require(place: Place, record: Record, consumed: Sequence[Digest], stored: set[Digest]) -> None:
    if not stored.issuperset(consumed):
        raise corrupt(place, record.id, Unsound(None, "a write that its child consumed is missing"))
