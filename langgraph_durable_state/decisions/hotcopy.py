"""Hot copies as they are stored: a hash per namespace, of a record, its ids, and a field per chunk.

This file decides and never acts.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..asfound import Fields
from ..words import ChunkRow, RecordRow
from . import keys
from .codec import Unsound, unreadable
from .digest import SIZE

_CHUNK = b"c"
_NUMBERS = 1 << 63
"""No chunk has this number or a larger one."""


def chunk_field(no: int) -> bytes:
    """The name of a chunk's field."""
    return _CHUNK + no.to_bytes(8)


def chunk_number(field: bytes) -> int | None:
    """The chunk whose field has this name; None if it is not a chunk's."""
    if len(field) != 9 or field[:1] != _CHUNK:
        return None
    no = int.from_bytes(field[1:])
    return no if no < _NUMBERS else None


def chunk_value(chunk: ChunkRow) -> bytes:
    """What a chunk's field holds."""
    return chunk.digest + chunk.blob


def copy_fields(row: RecordRow, chunks: Iterable[ChunkRow]) -> dict[bytes, bytes]:
    """A copy as the fields of its hash."""
    named = {
        b"digest": row.digest,
        b"seq": str(row.seq).encode(),
        b"id": row.id.encode(),
        b"parent": (row.parent or "").encode(),
        b"record": row.record,
        b"numbers": keys.packed(row.numbers),
    }
    return named | {chunk_field(c.no): chunk_value(c) for c in chunks}


def copy_of(ns: str, fields: Fields) -> tuple[RecordRow, dict[int, ChunkRow]]:
    """The inverse of `copy_fields`.

    Raises:
        Unsound: if these are not fields that it made.
    """
    try:
        row = RecordRow(
            ns,
            fields[b"id"].decode(),
            fields[b"parent"].decode() or None,
            int(fields[b"seq"]),
            fields[b"digest"],
            fields[b"record"],
            keys.unpacked(fields[b"numbers"]),
        )
    except KeyError as error:
        raise Unsound(None, f"its field {error} is missing") from error
    except ValueError as error:
        raise unreadable(None, "its fields", error) from error
    return row, chunks_of(fields)


def chunks_of(fields: Fields) -> dict[int, ChunkRow]:
    """The chunks among the fields of a copy."""
    named = ((chunk_number(name), value) for name, value in fields.items())
    return {no: ChunkRow(no, v[:SIZE], v[SIZE:]) for no, v in named if no is not None}


def copy_id(fields: Fields) -> str | None:
    """The checkpoint that a copy says it is of."""
    if b"id" not in fields:
        return None
    return fields[b"id"].decode(errors="replace").replace("\x00", "\ufffd")
