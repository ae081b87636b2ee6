"""How things are named in the stores: thread keys, chunk numbers, Redis keys.

Ids go in encoded and are never parsed back out of a key.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from ..errors import UsageError
from ..words import Place, Thread
from . import arguments

IDS = ("thread_id", "tenant_id", "user_id", "session_id")
"""What names a thread and its owners in a config."""

MAX_ID_BYTES = 255
"""Checkpoint and task ids; LangGraph's are 36. Bounded because they are index keys."""

MAX_NS_BYTES = 1_800
"""A namespace grows by the node's name and 37 bytes per nested subgraph; a Postgres btree entry
holds 2,704 bytes, and the key has the thread's 16, an id and its headers beside it."""


MAX_PATH_BYTES = 1 << 20
"""A task path is no key."""


def encoded(text: str) -> bytes:
    """UTF-8 that also takes lone surrogates, so that every `str` has one spelling."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """The inverse of `encoded`."""
    return data.decode("utf-8", "surrogatepass")


def legible(data: bytes) -> str:
    """A stored name; one that is damaged is shown as far as it can be, and fits no digest."""
    try:
        return decoded(data)
    except UnicodeDecodeError:
        return data.decode(errors="replace")


def thread_key(tenant: str, thread_id: str) -> UUID:
    """The first 16 bytes of SHA-256 over both ids, each with its length before it."""
    parts = (encoded(tenant), encoded(thread_id))
    joined = b"".join(struct.pack(">I", len(p)) + p for p in parts)
    return UUID(bytes=hashlib.sha256(joined).digest()[:16])


@lru_cache(maxsize=4096)  # a put takes as long to hash a name as to pack its record
def named(
    tenant: str, thread_id: str, user: str | None = None, session: str | None = None
) -> Thread:
    """The thread of these names."""
    return Thread(tenant, thread_id, thread_key(tenant, thread_id), user, session)


def share(key: UUID) -> float:
    """Which part of all threads come no later than one of this key: keys are spread evenly."""
    return (key.int + 1) / 2**128


def _text(configurable: Mapping[str, Any], name: str) -> str | None:
    value = configurable.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(
            f"{name} must be a str, not {type(value).__name__} {value!r}; "
            f"pass str({name}) so that 1 and '1' can never be two threads"
        )
    return str(value)


def _configurable(config: Any) -> Mapping[str, Any]:
    named = arguments.mapping("config", config).get("configurable")
    return arguments.mapping('config["configurable"]', named) if named is not None else {}


def _storable(name: str, value: str, most: int) -> str:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{name} {value!r} holds a lone surrogate") from None
    if "\x00" in value:
        raise UsageError(f"{name} {value!r} holds a NUL character")
    if size > most:
        raise UsageError(f"{name} is {size} bytes long; at most {most} are possible")
    return value


def thread_of(config: Mapping[str, Any]) -> Thread:
    """The thread that a LangGraph config names.

    Raises:
        UsageError: if `thread_id` is missing, empty or not a `str`.
    """
    configurable = _configurable(config)
    thread_id = _text(configurable, "thread_id")
    if not thread_id:
        raise UsageError('config["configurable"]["thread_id"] is required')
    return named(
        _text(configurable, "tenant_id") or "",
        thread_id,
        _text(configurable, "user_id"),
        _text(configurable, "session_id"),
    )


def place_of(config: Mapping[str, Any]) -> Place:
    """The thread and namespace that a LangGraph config names.

    Raises:
        UsageError: if either cannot be used.
    """
    ns = _text(_configurable(config), "checkpoint_ns") or ""
    return Place(thread_of(config), _storable("checkpoint_ns", ns, MAX_NS_BYTES))


def checkpoint_id_of(config: Mapping[str, Any]) -> str | None:
    """The checkpoint id in a LangGraph config; None if it has none."""
    value = _text(_configurable(config), "checkpoint_id")
    return storable_id("checkpoint_id", value) if value else None


def storable_id(name: str, value: str) -> str:
    """`value`, if it can be an index key.

    Raises:
        UsageError: if it is no `str`, too long, or holds what Postgres text cannot.
    """
    return _storable(name, arguments.text(name, value), MAX_ID_BYTES)


def storable_path(path: str) -> str:
    """A task path, if Postgres text can hold it.

    Raises:
        UsageError: if it cannot.
    """
    return _storable("task_path", arguments.text("task_path", path), MAX_PATH_BYTES)


def token() -> bytes:
    """Sixteen random bytes that name a spell or a flusher."""
    return os.urandom(16)


def tokens(joined: bytes) -> tuple[bytes, ...]:
    """Tokens that stand one after the other."""
    return tuple(joined[i : i + 16] for i in range(0, len(joined), 16))


# -- chunk numbers ---------------------------------------------------------------------------

_COUNTING_BITS = 23
_DRAWN_BITS = 40
_COUNTER = (1 << _COUNTING_BITS) - 1


class Numbers:
    """Chunk numbers: 40 bits drawn at random, then 23 that count; a new draw on wrap.

    No coordination, works with Postgres down, not issued again after a restore. Any thread may
    take from it (`itertools.count` is atomic). Draw again after a fork.
    """

    def __init__(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Starts a new block."""
        drawn = int.from_bytes(os.urandom(_DRAWN_BITS // 8)) << _COUNTING_BITS
        self._block = drawn, itertools.count()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        drawn, counted = self._block
        i = next(counted)
        if i >> _COUNTING_BITS:
            self.draw()
            return next(self)
        return drawn | i


_MOST_BLOCKS = 255


def packed(numbers: Iterable[int]) -> bytes:
    """Chunk numbers in four bytes each: which block (a table comes first), and the counter.

    A record carries them all, so this is what a put's size grows by with the history. Postgres
    reads the same bytes (`numbers` in schema.sql). More than 255 blocks: eight bytes each.
    """
    numbers = tuple(numbers)
    if not numbers:
        return b""
    blocks = {
        block: i for i, block in enumerate(dict.fromkeys(n >> _COUNTING_BITS for n in numbers))
    }
    if len(blocks) > _MOST_BLOCKS:
        return b"\x00" + struct.pack(f">{len(numbers)}q", *numbers)
    table = b"".join(block.to_bytes(5) for block in blocks)
    entries = (blocks[n >> _COUNTING_BITS] << 24 | n & _COUNTER for n in numbers)
    return bytes((len(blocks),)) + table + struct.pack(f">{len(numbers)}I", *entries)


def mark(numbers: Iterable[int]) -> bytes:
    """Eight bytes that tell one list of chunk numbers from another; Postgres makes them, too."""
    return hashlib.sha256(packed(numbers)).digest()[:8]


def unpacked(data: bytes) -> tuple[int, ...]:
    """The inverse of `packed`.

    Raises:
        ValueError: if these are not bytes that it made.
    """
    if not data:
        return ()
    start = 1 + 5 * data[0]
    size = 4 if data[0] else 8
    if len(data) < start or (len(data) - start) % size:
        raise ValueError("the packed chunk numbers are cut off")
    if not data[0]:
        return struct.unpack(f">{(len(data) - 1) // 8}q", data[1:])
    blocks = [int.from_bytes(data[i : i + 5]) for i in range(1, start, 5)]
    entries = struct.unpack(f">{(len(data) - start) // 4}I", data[start:])
    if any(e >> 24 >= len(blocks) for e in entries):
        raise ValueError("the packed chunk numbers name an unknown block")
    return tuple(blocks[e >> 24] << _COUNTING_BITS | e & _COUNTER for e in entries)


# -- Redis -----------------------------------------------------------------------------------


def hot_key(prefix: str, place: Place, what: str = "") -> str:
    """The Redis key of a namespace's hot copy, or of `what` else there is of it; all keys of a
    thread share one hash tag."""
    return f"{prefix}:{{{place.thread.key.hex}}}:{_shortened(place.ns)}{what}"


@lru_cache(maxsize=4096)  # a write asks for three keys of a namespace
def _shortened(ns: str) -> str:
    return hashlib.sha256(encoded(ns)).hexdigest()[:16]


def outbox_key(prefix: str, thread: UUID, what: str = "") -> str:
    """The Redis key of a thread's outbox, or of `what` belongs to it."""
    return f"{prefix}:{{{thread.hex}}}:outbox{what}"


_OUTBOX = re.compile(r"\{([0-9a-f]{32})\}:outbox$")


def thread_of_outbox(key: str) -> UUID | None:
    """The thread whose outbox has this Redis key; None if it is the key of something else."""
    found = _OUTBOX.search(key)
    return UUID(found[1]) if found else None
