"""The items of a list or map on their way into chunks, screened where they are new.

An item whose fingerprint the parent's rope holds is stored already, as it is. One that the run
still holds as it was before it was redacted is known by what it became. All others are screened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..errors import ValueRefusedError
from .redaction import Screen
from .serializing import fingerprint, print_of_bytes

Encode = Callable[[Any, int], bytes | None]


class Items:
    """The items as they are.

    Args:
        items: of the list, or the map's pairs of key and value.
        encode: the bytes of an item at a place; None if it only survives as a part of the whole.
    """

    def __init__(self, items: Sequence[Any], encode: Encode) -> None:
        self._items: Sequence[Any] = items
        self._encode = encode
        self._made: dict[int, bytes] = {}

    def prints(self) -> tuple[bytes, ...] | None:
        """What identifies each item; None if one only survives as a part of the whole.

        Raises:
            ValueRefusedError: if one would not come back.
        """
        out = []
        for i, item in enumerate(self._items):
            mark = fingerprint(item)
            if mark is None:
                mark = self._print(i)
                if mark is None:
                    return None
            out.append(mark)
        return tuple(out)

    def encoded(self, i: int) -> bytes | None:
        """The bytes of an item; None as above.

        Raises:
            ValueRefusedError: if it would not come back.
        """
        if i not in self._made:
            made = self._encode(self._items[i], i)
            if made is None:
                return None
            self._made[i] = made
        return self._made[i]

    def _print(self, i: int) -> bytes | None:
        data = self.encoded(i)
        return None if data is None else print_of_bytes(data)


class ScreenedItems(Items):
    """The items as they may be stored.

    Args:
        items, encode: as for `Items`.
        screen: what they go through.
        channel: whose they are.
        paired: whether they are a map's.
        stored: the fingerprints of the items that are stored already.
    """

    def __init__(
        self,
        items: Sequence[Any],
        encode: Encode,
        screen: Screen,
        channel: str,
        paired: bool,
        stored: Collection[bytes],
    ) -> None:
        super().__init__(items, encode)
        self._items: list[Any] = list(items)
        self._screen = screen
        self._channel = channel
        self._paired = paired
        self._stored = stored
        self._marks: dict[int, bytes | None] = {}
        self._late: set[int] = set()

    def prints(self) -> tuple[bytes, ...] | None:
        out = []
        for i in range(len(self._items)):
            mark = self._mark(i)
            if mark is None:
                return None
            out.append(mark)
        return tuple(out)

    def encoded(self, i: int) -> bytes | None:
        self._settle(i)
        return super().encoded(i)

    def whole(self) -> Any:
        """The list or map of them."""
        for i in range(len(self._items)):
            self._mark(i)
            self._settle(i)
        return dict(self._items) if self._paired else self._items

    def _mark(self, i: int) -> bytes | None:
        if i not in self._marks:
            self._marks[i] = self._found_mark(i)
        return self._marks[i]

    def _found_mark(self, i: int) -> bytes | None:
        before = fingerprint(self._items[i])
        if before is None:
            before = self._print_before(i)
        if before in self._stored:
            return before
        swapped = self._screen.swapped(self._channel, before) if before is not None else None
        if swapped in self._stored:
            self._late.add(i)
            return swapped
        if not self._screened(i):
            return before or self._print(i)
        after = fingerprint(self._items[i]) or self._print(i)
        if before is not None and after is not None:
            self._screen.swap(self._channel, before, after)
        return after

    def _settle(self, i: int) -> None:
        """Screens an item after all: what is stored of it could not be referred to."""
        if i in self._late:
            self._late.discard(i)
            self._screened(i)

    def _screened(self, i: int) -> bool:
        """Screens an item; whether that changed it."""
        item = self._items[i]
        if self._paired:
            value = self._screen.entry(self._channel, item[0], item[1])
            new = item if value is item[1] else (item[0], value)
        else:
            new = self._screen.item(self._channel, i, item)
        self._items[i] = new
        if new is not item:
            self._made.pop(i, None)
        return new is not item

    def _print_before(self, i: int) -> bytes | None:
        try:
            return self._print(i)
        except ValueRefusedError:
            return None  # it may well be taken out
