"""Ropes: a channel's value as an ordered list of chunks, most of which its parent already stored.

A msgpack array is a header and its items one after the other, so a list is stored as chunks of
consecutive items and the header is made anew for each version. An item that the parent's rope
holds is referred to; only what is new is serialized and stored. Trailing small chunks are joined
as bytes, eight at a time, so an item is rewritten at most twice (after 1 come 8 and 64 items)
and a history of 1,000 messages is read as some 30 rows. A map is treated alike, an item being a
key with its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import ormsgpack
from langgraph.checkpoint.serde.types import ERROR

from ..words import Digest, frozen
from . import refusal
from .copying import MESSAGES
from .digest import PLAIN, Seal
from .matching import (
    LARGEST_BYTES,
    LARGEST_ITEMS,
    Chunk,
    Piece,
    fragmented,
    joinable,
    match,
)
from .redaction import Screen
from .screening import Items, ScreenedItems
from .serializing import Serializer, fingerprint, plain, print_of_bytes

Shape = Literal["inline", "whole", "array", "map"]

INLINE_BYTES = 256
"""Below this a value stands in the record itself: a row costs about 110 bytes beside its data."""

SMALL_ITEM_BYTES = 48
"""A list whose items are smaller on average is kept whole: telling them apart would cost more."""


@frozen
class Channel:
    """One channel's value at one checkpoint, as it is stored."""

    name: str
    version: str | int | float | None
    tag: str
    shape: Shape
    inline: bytes
    pieces: tuple[Piece, ...]

    def digest(self, seal: Seal) -> Digest:
        used = ((p.chunk.digest, p.start, p.stop) for p in self.pieces)
        return seal.of_channel(self.name, self.version, self.tag, self.shape, self.inline, used)


class Weaver:
    """Turns values into channels. One per call: `new` holds the chunks made for it, some of which
    were joined to larger ones on the way (see `to_store`).

    Args:
        serializer: makes the bytes.
        numbers: the next numbers for new chunks.
        known: chunks already stored that may be referred to, by digest.
        flying: chunks that are being stored now, by digest: they keep their number but must be
            sent as well, since they may fail to arrive.
        seal: what new chunks are made under.
    """

    def __init__(
        self,
        serializer: Serializer,
        numbers: Iterator[int],
        known: Mapping[Digest, Chunk] | None = None,
        flying: Mapping[Digest, Chunk] | None = None,
        seal: Seal = PLAIN,
    ) -> None:
        self._serializer = serializer
        self._numbers = numbers
        self._known = dict(known or {})
        self._flying = flying or {}
        self._seal = seal
        self.new: list[Chunk] = []

    def channel(
        self,
        name: str,
        value: Any,
        *,
        version: str | int | float | None = None,
        base: Channel | None = None,
        where: str | None = None,
        lossy: bool = False,
    ) -> Channel:
        """`value` as a channel, referring to `base`'s chunks where the items are the same.

        Raises:
            ValueRefusedError: if the value would not come back as it is; nothing was stored.
        """
        where = where or f"channel {name!r}"
        try:
            return self._channel(name, value, version, base, where, lossy)
        except RecursionError:
            raise refusal.too_deep(where) from None

    def _channel(
        self,
        name: str,
        value: Any,
        version: str | int | float | None,
        base: Channel | None,
        where: str,
        lossy: bool,
    ) -> Channel:
        items = None
        if self._serializer.screen is not None:
            value, items = self._screened(name, value, base, where, self._serializer.screen)
        if self._splittable(value, base):
            woven = self._woven(name, value, version, base, where, items)
            if woven is not None:
                return woven
        if items is not None:
            value = items.whole()
        typed = self._serializer.dumps(value, where, lossy=lossy)
        if len(typed.data) <= INLINE_BYTES:
            return Channel(name, version, typed.tag, "inline", typed.data, ())
        chunk = self._chunk(typed.data, 1, None, base)
        return Channel(name, version, typed.tag, "whole", b"", (Piece(chunk, 0, 1),))

    def channels(
        self,
        values: Mapping[str, Any],
        versions: Mapping[str, Any],
        held: Mapping[str, Channel],
        base: Mapping[str, Channel],
    ) -> tuple[Channel, ...]:
        """The channels of a checkpoint.

        Args:
            values: those that it has.
            versions: of its channels, also of those without a value.
            held: channels that are stored, and the same if they are of the same version.
            base: those whose chunks may be referred to.

        Raises:
            ValueRefusedError: as `channel`.
        """
        out = []
        for name in dict.fromkeys((*versions, *values)):
            version, old = versions.get(name), held.get(name)
            if old is not None and old.version == version:
                out.append(old)
            elif name in values:
                before = base.get(name)
                out.append(self.channel(name, values[name], version=version, base=before))
        return tuple(out)

    def write(self, task: str, name: str, value: Any) -> Channel:
        """A write of a task, as a channel.

        Raises:
            ValueRefusedError: as `channel`.
        """
        where = f"task {task}, write to {name!r}"
        return self.channel(name, value, where=where, lossy=name == ERROR)

    def to_store(self, channels: Iterable[Channel]) -> list[Chunk]:
        """The chunks that `channels` refer to and that are not stored yet."""
        used = {p.chunk.no for channel in channels for p in channel.pieces}
        return [chunk for chunk in self.new if chunk.no in used]

    def _splittable(self, value: Any, base: Channel | None) -> bool:
        if not self._serializer.transparent or type(value) not in (list, dict) or not value:
            return False
        if type(value) is dict and not _texts(value):
            return False
        if base is not None and base.shape == ("array" if type(value) is list else "map"):
            return True
        items = value if type(value) is list else list(value.items())
        sizes = [_rough_size(i) for i in (items[0], items[len(items) // 2], items[-1])]
        return sum(sizes) >= SMALL_ITEM_BYTES * 3 and sum(sizes) / 3 * len(items) > INLINE_BYTES

    def _woven(
        self,
        name: str,
        value: Any,
        version: str | int | float | None,
        base: Channel | None,
        where: str,
        items: Items | None,
    ) -> Channel | None:
        shape: Shape = "array" if type(value) is list else "map"
        items = items or self._items(value, where)
        pieces = base.pieces if base is not None and base.shape == shape else ()
        if _read_by_other(pieces, self._serializer):
            pieces = ()  # what another serializer read tells nothing of these items
        prints = items.prints()
        woven = self._pieces(prints, pieces, items.encoded, base) if prints is not None else None
        if woven is None:
            return None
        self._serializer.check_size(sum(len(p.chunk.plain) for p in woven), where)
        return Channel(name, version, "msgpack", shape, b"", woven)

    def _items(self, value: Any, where: str) -> Items:
        shape: Shape = "array" if type(value) is list else "map"
        values = value if shape == "array" else list(value.items())
        return Items(values, partial(self._item, shape=shape, where=where))

    def _screened(
        self, name: str, value: Any, base: Channel | None, where: str, screen: Screen
    ) -> tuple[Any, ScreenedItems | None]:
        """A value to be stored: its items, to be screened where they are new, or what it became."""
        paired = type(value) is dict
        if type(value) is list or (paired and screen.entrywise(name, value)):
            values = list(value.items()) if paired else value
            encode = partial(self._item, shape="map" if paired else "array", where=where)
            stored = _stored_prints(base, paired, self._serializer)
            return value, ScreenedItems(values, encode, screen, name, paired, stored)
        if base is not None and _is_stored(value, base, self._serializer):
            return value, None
        return screen.whole(name, value), None

    def _item(self, item: Any, i: int, *, shape: Shape, where: str) -> bytes | None:
        if shape == "array":
            return self._serializer.item(item, f"{where}, item {i}")
        key, value = item
        packed_key = plain(key)
        data = self._serializer.item(value, f"{where}, key {key!r}")
        return None if packed_key is None or data is None else packed_key + data

    def _pieces(
        self,
        prints: tuple[bytes, ...],
        old: tuple[Piece, ...],
        encode: Callable[[int], bytes | None],
        base: Channel | None,
    ) -> tuple[Piece, ...] | None:
        plan = match(prints, old)
        if fragmented(plan):
            plan = [(0, len(prints))]
        out: list[Piece] = []
        for step in plan:
            if isinstance(step, Piece):
                out.append(step)
                continue
            for start, data in _grouped(step, encode):
                if data is None:
                    return None
                stop = start + len(data)
                chunk = self._chunk(b"".join(data), len(data), prints[start:stop], base)
                out.append(Piece(chunk, 0, len(data)))
        return tuple(self._settled(out))

    def _settled(self, pieces: list[Piece]) -> list[Piece]:
        """Joins trailing small chunks, so that their number stays small."""
        while (joined := joinable(pieces)) is not None:
            tail = pieces[-joined:]
            data = b"".join(p.chunk.plain for p in tail)
            prints = tuple(m for p in tail for m in p.chunk.prints or ())
            count = sum(p.chunk.count for p in tail)
            pieces[-joined:] = [Piece(self._chunk(data, count, prints, None), 0, count)]
        return pieces

    def _chunk(
        self, data: bytes, count: int, prints: tuple[bytes, ...] | None, base: Channel | None
    ) -> Chunk:
        mark = self._seal.of_bytes(data)
        found = self._known.get(mark)
        if found is None and base is not None:
            found = next((p.chunk for p in base.pieces if p.chunk.digest == mark), None)
        if found is not None and found.count == count:
            if found.prints is None:
                found.prints = prints
            return found
        chunk = self._flying.get(mark)
        if chunk is None or chunk.count != count:
            chunk = Chunk(next(self._numbers), data, count, prints, mark, self._seal)
        chunk.prints = chunk.prints or prints
        self._known[mark] = chunk
        self.new.append(chunk)
        return chunk


def _texts(keys: Iterable[Any]) -> bool:
    return all(type(key) is str for key in keys)


def _rough_size(item: Any) -> int:
    packed = plain(item.__dict__ if type(item) in MESSAGES else item)
    return len(packed) if packed is not None else INLINE_BYTES + 1


def _grouped(
    span: tuple[int, int], encode: Callable[[int], bytes | None]
) -> Iterator[tuple[int, list[bytes] | None]]:
    start, group, size = span[0], list[bytes](), 0
    for i in range(*span):
        item = encode(i)
        if item is None:
            yield i, None
            return
        if group and (len(group) == LARGEST_ITEMS or size + len(item) > LARGEST_BYTES):
            yield start, group
            start, group, size = i, [], 0
        group.append(item)
        size += len(item)
    yield start, group


# -- reading ---------------------------------------------------------------------------------


def array_header(n: int) -> bytes:
    """The msgpack header of an array of `n` items."""
    return _header(n, 0x90, 0xDC)


def map_header(n: int) -> bytes:
    """The msgpack header of a map of `n` items."""
    return _header(n, 0x80, 0xDE)


def _header(n: int, fix: int, wide: int) -> bytes:
    if n < 16:
        return bytes((fix | n,))
    if n < 1 << 16:
        return bytes((wide,)) + n.to_bytes(2)
    return bytes((wide + 1,)) + n.to_bytes(4)


def joined(channel: Channel) -> bytes:
    """A channel's bytes as the serializer made them, where every piece is a whole chunk."""
    if channel.shape == "inline":
        return channel.inline
    data = b"".join(p.chunk.plain for p in channel.pieces)
    if channel.shape == "whole":
        return data
    header = array_header if channel.shape == "array" else map_header
    return header(sum(p.stop - p.start for p in channel.pieces)) + data


def items_of(chunk: Chunk, shape: Shape, serializer: Serializer) -> list[Any]:
    """The decoded items of a chunk, with their fingerprints noted on it.

    Raises:
        Exception: whatever the serializer raises for bytes that it cannot read.
    """
    if shape == "array":
        items = serializer.loads("msgpack", array_header(chunk.count) + chunk.plain)
    else:
        items = list(serializer.loads("msgpack", map_header(chunk.count) + chunk.plain).items())
    if chunk.prints is None or (chunk.reader is not None and chunk.reader is not serializer.way):
        chunk.prints = tuple(_print(i, serializer) for i in items)
        chunk.items, chunk.reader = None, serializer.way
    return items  # type: ignore[no-any-return]


def _print(item: Any, serializer: Serializer) -> bytes:
    mark = fingerprint(item)
    if mark is not None:
        return mark
    try:
        if isinstance(item, tuple):  # a map's key and value
            return print_of_bytes(
                ormsgpack.packb(item[0]) + serializer.serde.dumps_typed(item[1])[1]
            )
        return print_of_bytes(serializer.serde.dumps_typed(item)[1])
    except Exception:
        return b""  # matches nothing: the item is serialized again at the next put


# -- what is stored already ------------------------------------------------------------------


def _read_by_other(pieces: Iterable[Piece], serializer: Serializer) -> bool:
    readers = (p.chunk.reader for p in pieces)
    return any(reader is not None and reader is not serializer.way for reader in readers)


def _stored_prints(base: Channel | None, paired: bool, serializer: Serializer) -> set[bytes]:
    """The fingerprints of the items that a list or map holds as it is stored; none if it is
    something else, or cannot be read."""
    if base is None:
        return set()
    if base.shape != ("map" if paired else "array"):
        value = _stored_value(base, serializer)
        if type(value) is not (dict if paired else list):
            return set()
        items: Iterable[Any] = value.items() if isinstance(value, dict) else value
        return {_print(item, serializer) for item in items} - {b""}
    if _read_by_other(base.pieces, serializer):
        return set()
    for piece in base.pieces:
        if piece.chunk.prints is None:
            with suppress(Exception):
                items_of(piece.chunk, base.shape, serializer)
    marks = ((p.chunk.prints or ())[p.start : p.stop] for p in base.pieces)
    return {mark for part in marks for mark in part} - {b""}


def _is_stored(value: Any, base: Channel, serializer: Serializer) -> bool:
    """Whether this very value is stored."""
    stored = _stored_value(base, serializer)
    if type(stored) is not type(value):
        return False
    return b"" != _print(stored, serializer) == _print(value, serializer)


def _stored_value(base: Channel, serializer: Serializer) -> Any:
    """The value of a channel; None if it cannot be read."""
    with suppress(Exception):
        if base.shape in ("inline", "whole"):
            return serializer.loads(base.tag, joined(base))
        items: list[Any] = []
        for piece in base.pieces:
            items += items_of(piece.chunk, base.shape, serializer)[piece.start : piece.stop]
        return items if base.shape == "array" else dict(items)
    return None
