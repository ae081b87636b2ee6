"""Finds what a serializer would lose: which value, where, and why.

"Comes back as it was" means the same type and content, with three tolerances that LangGraph
users live with: a tuple comes back as a list, a subclass of a plain type as that type (and bytes
that can change, inside a container, as bytes), and an exception stored under `__error__` as its
text.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from ..errors import ValueRefusedError
from .parts import named_parts

_PLAIN = (str, int, float, bytes, bytearray, list, dict, tuple)


DEEPEST = 254
"""Levels that ormsgpack packs; within objects of classes about as many."""


def too_deep(where: str) -> ValueRefusedError:
    """The error of a value that is nested too deeply to be stored."""
    reason = "it holds itself, or is nested too deeply: some 250 levels can be stored"
    return ValueRefusedError(where, reason)


def is_too_deep(value: Any) -> bool:
    """Whether a value has more levels than can be stored."""
    level = [value]
    for _ in range(DEEPEST):
        level = list({id(part): part for each in level for _, part in named_parts(each)}.values())
        if not level:
            return False
    return True


def difference(before: Any, after: Any, path: str = "") -> tuple[str, str] | None:
    """Where `after`, which was decoded from `before`'s bytes, is not what `before` is.

    Returns:
        The path and the reason, or None if nothing was lost.
    """
    kind = type(before)
    if isinstance(before, (list, tuple)) and not hasattr(before, "_fields"):
        if not isinstance(after, (list, tuple)) or len(before) != len(after):
            return path, _came_back(before, after)
        pairs = zip(before, after, strict=True)
        return _first(difference(b, a, f"{path}[{i}]") for i, (b, a) in enumerate(pairs))
    if isinstance(before, dict):
        if not isinstance(after, dict) or len(before) != len(after):
            return path, _came_back(before, after)
        for key, other in zip(before, after, strict=True):
            if key != other:
                return path, f"the key {key!r} would come back as {other!r}"
        return _first(difference(v, after[k], f"{path}[{k!r}]") for k, v in before.items())
    if type(after) is not kind and not (isinstance(before, _PLAIN) and before == after):
        return path, _came_back(before, after)
    fields = _fields(before)
    if fields is not None:
        theirs = _fields(after) or {}
        if fields.keys() != theirs.keys():
            return path, _came_back(before, after)
        return _first(difference(v, theirs[k], f"{path}.{k}") for k, v in fields.items())
    return None if _equal(before, after) else (path, _came_back(before, after))


def unserializable(
    value: Any, serialize: Callable[[Any], object], path: str = ""
) -> tuple[str, str]:
    """The innermost part of `value` that `serialize` refuses, and its reason."""
    for name, part in _parts(value):
        try:
            serialize(part)
        except Exception:
            return unserializable(part, serialize, path + name)
    try:
        serialize(value)
    except Exception as error:
        return path, f"{type(value).__name__} cannot be serialized{_why(error)}"
    return path, f"{type(value).__name__} cannot be serialized in its container"


def _why(error: Exception) -> str:
    """What a serializer's error says of the value, and not of the serializer."""
    told = str(error)
    if "key" in told and "OPT_NON_STR_KEYS" in told:
        return ": one of its keys cannot be"
    return "" if isinstance(error, TypeError) and "serializable" in told else f": {told}"


def instance(value: Any, module: str, name: str, path: str = "") -> str | None:
    """The path of the first part of `value` that is of this class; None if there is none."""
    kind = type(value)
    if (kind.__module__, kind.__name__) == (module, name):
        return path
    parts = (instance(part, module, name, path + at) for at, part in _parts(value))
    return next((found for found in parts if found is not None), None)


def _came_back(before: Any, after: Any) -> str:
    names = type(before).__name__, type(after).__name__
    if isinstance(before, datetime) and isinstance(after, datetime):
        return f"datetime would come back with {_clock(after)} instead of {_clock(before)}"
    if names[0] == names[1]:
        return f"{names[0]} would not come back as it was"
    return f"{names[0]} would come back as {names[1]}"


def _clock(at: datetime) -> str:
    return f"{at.tzinfo!r}" + (", fold=1" if at.fold else "")


def _first(found: Iterator[tuple[str, str] | None]) -> tuple[str, str] | None:
    return next((f for f in found if f is not None), None)


def _fields(value: Any) -> Mapping[str, Any] | None:
    """The parts of an object that is compared part by part."""
    if isinstance(value, type):
        return None
    if hasattr(value, "model_dump") and hasattr(value, "__pydantic_fields_set__"):
        extra = getattr(value, "__pydantic_extra__", None) or {}
        private = getattr(value, "__pydantic_private__", None) or {}
        # One that is only itself, a client or a lock, is made anew by the class, and is no content.
        told = {k: v for k, v in private.items() if _of(type(v), "__eq__") != object.__eq__}
        return {**_kept(value), **extra, **told}
    if dataclasses.is_dataclass(value):
        # A field may be unset (init=False, or slots): then both sides must lack it.
        names = (f.name for f in dataclasses.fields(value))
        return {n: getattr(value, n) for n in names if hasattr(value, n)} | _kept(value)
    return None


def _kept(value: Any) -> dict[str, Any]:
    """What an object holds in its dict, but what it worked out from that."""
    held = getattr(value, "__dict__", {})
    kind = type(value)
    return {k: v for k, v in held.items() if not isinstance(_of(kind, k), cached_property)}


def _of(kind: type, name: str) -> Any:
    return next((of.__dict__[name] for of in kind.__mro__ if name in of.__dict__), None)


def _equal(before: Any, after: Any) -> bool:
    told = _IDENTITY.get(type(before))
    if told is not None:
        return bool(told(before) == told(after))
    if hasattr(before, "dtype") and hasattr(before, "tobytes"):  # compared element by element
        same_make = (before.dtype, before.shape) == (after.dtype, after.shape)
        return same_make and bool(before.tobytes() == after.tobytes())
    try:
        return before is after or bool(before == after) or (before != before and after != after)
    except Exception:  # nobody can tell
        return False


_IDENTITY: Mapping[type, Callable[[Any], Any]] = {
    float: repr,
    Decimal: Decimal.as_tuple,
    datetime: lambda at: (at.isoformat(), at.fold, repr(at.tzinfo)),
    deque: lambda items: (items.maxlen, list(items)),
}
"""What tells values apart that ``==`` takes for the same, or the same that it takes for two."""


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    fields = _fields(value)
    if fields is not None:
        yield from ((f".{name}", part) for name, part in fields.items())
    elif isinstance(value, dict):
        yield from ((f"[{k!r}]", part) for k, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f"{{{part!r}}}", part) for part in value)
