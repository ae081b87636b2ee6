"""What identifies content: SHA-256 cut to 16 bytes, over a spelling that has one reading.

Every digest covers its own format's version, so that old rows verify under old rules.
SHA-256 is the fastest sound choice where the processor has it built in (0.36 ms for 488 KB
where BLAKE2b took 0.91).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import ormsgpack

from ..words import Digest, Place, Typed
from .keys import encoded

SIZE = 16


def of_bytes(data: bytes) -> Digest:
    """The digest of a chunk's plain bytes."""
    return hashlib.sha256(data).digest()[:SIZE]


def _of_parts(parts: Sequence[object]) -> Digest:
    return of_bytes(ormsgpack.packb(parts))


def of_channel(
    name: str,
    version: str | int | float | None,
    tag: str,
    shape: str,
    inline: bytes,
    pieces: Iterable[tuple[Digest, int, int]],
) -> Digest:
    """Covers a channel's name, version, type, header and each chunk's digest and part used."""
    return _of_parts(("c1", encoded(name), version, tag, shape, inline, list(pieces)))


def of_record(
    place: Place,
    id: str,
    parent: str | None,
    parent_digest: Digest,
    schema_version: int,
    body: Typed,
    metadata: Typed,
    channels: Iterable[Digest],
    consumed: Iterable[Digest] | None,
) -> Digest:
    """Covers all that a checkpoint is, its parent's digest included: history is a hash chain."""
    return _of_parts(
        (
            "r1",
            encoded(place.thread.tenant),
            encoded(place.thread.id),
            place.ns,
            id,
            parent,
            parent_digest,
            schema_version,
            (body.tag, body.data),
            (metadata.tag, metadata.data),
            list(channels),
            None if consumed is None else list(consumed),
        )
    )


def of_write(
    place: Place,
    id: str,
    task: str,
    path: str,
    slot_name: str,
    content: bytes,
    chunks: Iterable[Digest],
) -> Digest:
    """Covers one task's batch, and the checkpoint that it was written against."""
    return _of_parts(
        (
            "w1",
            encoded(place.thread.tenant),
            encoded(place.thread.id),
            place.ns,
            id,
            task,
            path,
            slot_name,
            content,
            list(chunks),
        )
    )
