"""What says under a key that the parent of a stored checkpoint was removed on purpose.

A checkpoint that stays where maintenance removes its parent carries it, and one that was put when
its parent had gone. Where there is none, a missing parent was removed by somebody without the key.
What was stored before there were edges needs none: its digest says which it is.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import EvolutionError
from ..words import Digest, Place, Put, RecordRow
from .codec import Blobs, Record, Unsound
from .digest import Seal
from .keys import encoded

UNTOLD = "it is missing, and nothing signed says that it was removed"
"""What is told of a parent that is not there."""


def edge(seal: Seal, place: Place, id: str, digest: Digest, parent: str | None) -> bytes:
    """Says of a checkpoint that its parent may be missing; empty without a key, or a parent."""
    if not seal.id or parent is None:
        return b""
    names = encoded(place.thread.tenant), encoded(place.thread.id), place.ns
    return seal.of_parts(("e1", *names, id, digest, parent))


def wanted(record: Record, row: RecordRow) -> bytes:
    """The edge that the row of a record needs should its parent be missing; empty if none."""
    if not record.edged:
        return b""
    return edge(record.seal, replace(record.place, ns=row.ns), row.id, row.digest, row.parent)


def is_told(record: Record, row: RecordRow) -> bool:
    """Whether a missing parent of a verified record is no wonder."""
    needed = wanted(record, row)
    return not needed or row.edge == needed


def told(put: Put, blobs: Blobs) -> Put:
    """A put with the edge that it needs should its parent be gone by the time it is stored; one
    that refers to its parent is not stored then."""
    if put.parent is None or put.refers is not None:
        return put
    try:
        seal = blobs.unpack(put.record, put.digest).seal
    except (Unsound, EvolutionError):  # whoever reads it has to tell
        return put
    return replace(put, edge=edge(seal, put.place, put.id, put.digest, put.parent))
