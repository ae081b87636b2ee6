"""The texts that a value is stored as, and the same value with others in their place.

What has a text and cannot be made of another one is refused where that would have to change: no
value is stored with a text that was to be taken out of it.
"""

from __future__ import annotations

import copy
import enum
import re
import uuid
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command, Interrupt, Send

from .parts import changed

Sub = Callable[[str], str]
"""A text with another in the place of what is to be taken out of it."""

_KEPT: Mapping[type, frozenset[str]] = {
    BaseMessage: frozenset({"id", "type", "tool_call_id"}),
    Interrupt: frozenset({"id"}),
    Send: frozenset({"node"}),
    Command: frozenset({"graph"}),
}
"""Texts of objects that are names, by which LangGraph finds other things again."""

WITH_NAMES = tuple(_KEPT)

_BLOCKS = frozenset({"content", "tool_calls", "invalid_tool_calls", "tool_call_chunks"})
_KEPT_IN_BLOCKS = frozenset({"id", "type", "tool_use_id", "index"})

_FIXED = (uuid.UUID, IPv4Address, IPv4Network, IPv6Address, IPv6Network)
"""Stored as their text, of which not every other is one of theirs."""

_NUMBERS = "biufcmM"
"""Kinds of array that hold no text."""


class Fixed(Exception):
    """Something holds what is to be taken out, and cannot be made without it."""


def replaced(value: Any, sub: Sub) -> Any:
    """`value` with `sub` applied to each of its texts but those that are names.

    Raises:
        Fixed: if that would change what cannot be made of another text.
    """
    if isinstance(value, enum.Enum):
        if replaced(value.value, sub) is not value.value:
            raise Fixed(f"a member of {type(value).__name__} cannot be made of another text")
        return value
    text = text_of(value)
    if text is not None:
        after = sub(text)
        return value if after == text else _made_of(after, value)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _array(value, sub)
    after = _parts_replaced(value, sub)
    return _keys_replaced(value, after, sub) if isinstance(value, dict) else after


def _parts_replaced(value: Any, sub: Sub) -> Any:
    kept = next((names for of, names in _KEPT.items() if isinstance(value, of)), frozenset())
    blocks = _BLOCKS if isinstance(value, BaseMessage) else frozenset()

    def change(name: str | None, part: Any) -> Any:
        if name in kept:
            return part
        if name in blocks and type(part) is list:
            return changed(part, lambda _, block: _block(block, sub))
        if name == "goto" and isinstance(value, Command):
            return _goto(part, sub)
        return replaced(part, sub)

    return changed(value, change)


def _keys_replaced(value: dict[Any, Any], after: dict[Any, Any], sub: Sub) -> dict[Any, Any]:
    """`after` with the keys of `value` replaced."""
    keys = [replaced(key, sub) for key in value]
    if all(new is old for new, old in zip(keys, value, strict=True)):
        return after
    if len(set(keys)) < len(keys):
        raise Fixed("two keys of a dict would become one")
    clone = copy.copy(after)
    clone.clear()
    clone.update(zip(keys, after.values(), strict=True))
    return clone


def _block(block: Any, sub: Sub) -> Any:
    """A block of a message's content, or a tool call."""
    if type(block) is not dict:
        return replaced(block, sub)
    return changed(block, lambda k, part: part if k in _KEPT_IN_BLOCKS else replaced(part, sub))


def _goto(to: Any, sub: Sub) -> Any:
    """Where a `Command` leads: names of nodes, and what is sent to them."""
    if isinstance(to, str):
        return to
    return replaced(to, sub) if isinstance(to, Send) else changed(to, lambda _, t: _goto(t, sub))


def _array(array: Any, sub: Sub) -> Any:
    if array.dtype.kind not in _NUMBERS:
        held = array.tolist()
        if replaced(held, sub) is not held:
            raise Fixed("an array cannot be made of other texts")
    return array


def text_of(value: Any) -> str | None:
    """The text that a value is stored as; None if it is none."""
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may show something else than is stored
    if isinstance(value, (PurePath, *_FIXED)):
        return str(value)
    if isinstance(value, BaseException):
        return repr(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _decoded(memoryview(value).tobytes())
    if isinstance(value, re.Pattern):
        return text_of(value.pattern)
    return None


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _made_of(text: str, value: Any) -> Any:
    """A value like `value`, of another text."""
    if isinstance(value, _FIXED):
        raise Fixed(f"a {type(value).__name__} cannot be made of another text")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes_of(text, value)
    if isinstance(value, re.Pattern):
        try:
            return re.compile(_made_of(text, value.pattern), value.flags)
        except re.error:
            raise Fixed("a regular expression would be none without it") from None
    return type(value)(text) if isinstance(value, PurePath) else text


def _bytes_of(text: str, value: bytes | bytearray | memoryview) -> Any:
    try:
        bytes(value).decode()
    except UnicodeDecodeError:
        raise Fixed("bytes that are no text cannot be made without it") from None
    return text.encode() if isinstance(value, memoryview) else type(value)(text.encode())
