"""Rows as they were found, perhaps damaged: what is checked and repaired in place of words.

What else reads a row takes it apart first; a row that cannot be taken apart stays whole here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from .words import ChunkRow, Digest

Ids = tuple[str, str]
"""A namespace and a checkpoint id."""

Fields = Mapping[bytes, bytes]
"""The fields of a hash in Redis."""


@dataclass(frozen=True, slots=True)
class RawThread:
    """A thread's entry: the names that its key is made from, and its owners, encoded."""

    tenant: bytes
    id: bytes
    user: bytes | None = None
    session: bytes | None = None


@dataclass(frozen=True, slots=True)
class RawHead:
    """A head's row. Without a digest it only says that the hot tier may be ahead. ``seal`` signs
    it, if there is a key."""

    ns: str
    seq: int
    id: str
    digest: Digest
    seal: bytes = b""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A checkpoint's row, its chunk numbers still packed; ``meta`` is what filters look at, and
    ``edge`` says that its parent was removed."""

    ns: str
    id: str
    parent: str | None
    seq: int
    digest: Digest
    record: bytes
    packed: bytes
    meta: str
    size: int
    refused: bool = False
    edge: bytes = b""


@dataclass(frozen=True, slots=True)
class RawWrite:
    """A row of pending writes, its chunk numbers still packed."""

    ns: str
    id: str
    task: str
    slot: int
    path: str
    n: int
    digest: Digest
    blob: bytes
    packed: bytes


Row = RawThread | RawHead | RawRecord | RawWrite | ChunkRow


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a thread in one look, all at one moment."""

    thread: RawThread | None
    heads: Mapping[str, RawHead]
    records: Mapping[Ids, RawRecord]
    writes: tuple[RawWrite, ...]
    chunks: Mapping[int, ChunkRow]


Tier = Literal["postgres", "redis"]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bad bytes that were taken out of a tier: what they were, why, and all that was found, with
    bytes in hexadecimal. ``task``, ``slot`` and ``no`` say which of a checkpoint's parts it was."""

    key: UUID
    tier: Tier
    kind: str
    ns: str
    id: str
    task: str
    slot: int
    no: int
    reason: str
    found: Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Repair:
    """A row to be put in the place of what was ``found``, if that is there still; None if it was
    missing. ``needed_by`` is the checkpoint that a missing chunk or write belongs to: it must be
    there still. ``kept`` goes to quarantine with it."""

    right: Row
    found: Row | None
    kept: Quarantined | None
    needed_by: Ids = ("", "")


@dataclass(frozen=True, slots=True)
class HotRaw:
    """What the hot tier holds of a namespace, in one look. While a spell is ``open`` it may be the
    only one to have it, and ``digest`` is that of the hot head; ``spell`` while there is any."""

    spell: bool
    open: bool
    digest: Digest
    copy: Fields
    writes: Fields


@dataclass(frozen=True, slots=True)
class Change:
    """A field of a hash to be changed, if it is as it was found; None stands for no field."""

    field: bytes
    found: bytes | None
    right: bytes | None


@dataclass(frozen=True, slots=True)
class RawEntries:
    """Entries of a thread's outbox, ``first`` being the number of the first of them; ``left`` are
    behind them."""

    first: int
    entries: tuple[bytes, ...]
    left: int
