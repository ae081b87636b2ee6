"""Whether what waits in an outbox is what was acknowledged, before a row is made of it.

This file decides and never acts. What no digest covers is made again from what one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import EvolutionError
from ..words import ChunkRow, Put, PutWrites
from . import codec, heads
from .codec import Blobs, Unsound
from .evidence import Describe, filtered_wrong, read_batch, read_record
from .hotscrub import row_of
from .matching import Chunk


def missing(item: Put | PutWrites, known: Mapping[int, Chunk]) -> set[int]:
    """The chunks that an item names, and that are neither with it nor known."""
    return _named(item) - {chunk.no for chunk in item.chunks} - known.keys()


def proven(
    item: Put | PutWrites, known: Mapping[int, Chunk], blobs: Blobs, describe: Describe
) -> Put | PutWrites:
    """The item, proven by its digests and those of the chunks that it refers to; of a put what
    filters look at and what signs it as a head are what they should be.

    Raises:
        Unsound: if it is not what was put.
        EvolutionError: if that cannot be told: it is under a key that is not known, say.
    """
    own = {chunk.no: _chunk(chunk, blobs) for chunk in item.chunks}
    chunks = {**{no: known[no] for no in _named(item) if no in known}, **own}
    if isinstance(item, Put):
        return _proven_put(item, chunks, blobs, describe)
    for row in item.rows:
        batch = read_batch(item.place, row, chunks, blobs)
        if row.n != len(batch.writes):
            raise Unsound(None, f"the count of task {row.task}'s writes is another")
    return item


def _named(item: Put | PutWrites) -> set[int]:
    rows = [item] if isinstance(item, Put) else item.rows
    return {no for row in rows for no in row.numbers}


def _proven_put(put: Put, chunks: Mapping[int, Chunk], blobs: Blobs, describe: Describe) -> Put:
    record = read_record(put.place, row_of(put), chunks, blobs)
    shown = describe(record)
    if filtered_wrong(shown, put.metadata):
        put = replace(put, metadata=shown.text)
    seal = heads.signature(record.seal, put.place, put.id, put.digest, record.count)
    return put if put.seal == seal else replace(put, seal=seal)


def _chunk(row: ChunkRow, blobs: Blobs) -> Chunk:
    try:
        return codec.chunk_of(row, blobs)
    except (Unsound, EvolutionError):
        raise
    except Exception as error:  # bytes that were not written may be anything
        raise Unsound(None, f"chunk {row.no} cannot be read ({error})") from error
