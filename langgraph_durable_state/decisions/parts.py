"""What a value is made of, and the same value with some of its parts replaced.

A value none of whose parts changed is returned itself; otherwise a copy, and only what holds a
changed part is copied. What is neither a container nor an object with attributes has no parts.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import re
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any

Change = Callable[[str | None, Any], Any]
"""Called with a part's name, None for an item of a list or set, and the part."""

_WHOLE = (
    str, bytes, bytearray, memoryview, int, float, complex, type(None), type, enum.Enum, PurePath,
    uuid.UUID, IPv4Address, IPv4Network, IPv6Address, IPv6Network, re.Pattern,
    decimal.Decimal, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    BaseException, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip


def named_parts(value: Any) -> Iterator[tuple[str | None, Any]]:
    """The parts of `value`, with their names; of a dict the names are its keys' texts."""
    if isinstance(value, _WHOLE):
        return
    if isinstance(value, dict):
        yield from ((_name(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        names = getattr(value, "_fields", None)
        yield from zip(names, value, strict=True) if names else ((None, part) for part in value)
    else:
        yield from _attributes(value).items()


def changed(value: Any, change: Change) -> Any:
    """`value` with each part replaced by what `change` makes of it."""
    if isinstance(value, _WHOLE):
        return value
    if isinstance(value, dict):
        news = {k: (v, change(_name(k), v)) for k, v in value.items()}
        different = {k: new for k, (old, new) in news.items() if new is not old}
        return _updated(value, different) if different else value
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return _refilled(value, [change(name, part) for name, part in named_parts(value)])
    news = {name: (part, change(name, part)) for name, part in _attributes(value).items()}
    different = {name: new for name, (old, new) in news.items() if new is not old}
    return _with(value, different) if different else value


def step(name: str) -> str:
    """A name as a JSONPath has it."""
    return f".{name}" if name.isidentifier() else f"[{name!r}]"


def _name(key: Any) -> str | None:
    return key if isinstance(key, str) else str(key)


def _attributes(value: Any) -> dict[str, Any]:
    """An object's attributes: those of its dict, of its slots, and a pydantic model's extras."""
    found = dict(getattr(value, "__dict__", None) or {})
    kind: Any = type(value)
    found |= {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    return found | (getattr(value, "__pydantic_extra__", None) or {})


@lru_cache(1_000)
def _slots(kind: Any) -> tuple[str, ...]:
    found = (of.__dict__.get("__slots__", ()) for of in kind.__mro__)
    names = (name for slots in found for name in ((slots,) if isinstance(slots, str) else slots))
    return tuple(name for name in names if not name.startswith("__"))


def _updated(value: dict[Any, Any], different: dict[Any, Any]) -> dict[Any, Any]:
    clone = copy.copy(value)
    clone.update(different)
    return clone


def _refilled(value: Any, news: list[Any]) -> Any:
    if all(new is old for new, old in zip(news, value, strict=True)):
        return value
    if isinstance(value, deque):
        return deque(news, value.maxlen)
    if hasattr(value, "_fields"):
        return value._make(news)
    kinds = (list, tuple, set, frozenset)  # a serializer makes no more of a subclass
    return next(kind for kind in kinds if isinstance(value, kind))(news)


def _with(value: Any, different: dict[str, Any]) -> Any:
    """A copy of an object with other attributes; no constructor or validator is asked."""
    clone = copy.copy(value)
    held = getattr(value, "__dict__", None)
    if held is not None and clone.__dict__ is held:  # a model of pydantic 1 shares it
        object.__setattr__(clone, "__dict__", dict(held))
    extra = getattr(clone, "__pydantic_extra__", None)
    for name, part in different.items():
        if extra is not None and name in extra:
            extra[name] = part
        else:
            object.__setattr__(clone, name, part)
    return clone
