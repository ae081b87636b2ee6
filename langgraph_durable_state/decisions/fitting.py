"""Whether objects that were changed without asking their class are still what it takes.

A model with a text in its `int` field can be stored: it is read without being validated, and
refused by the graph that goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .parts import named_parts


def misfit(before: Any, after: Any) -> str | None:
    """The class of a pydantic model in `after` that would refuse what it holds, though what stood
    in its place `before` was right; None if there is none."""
    if after is before:
        return None
    kind = type(after)
    if not _fits(after) and (type(before) is not kind or _fits(before)):
        return kind.__name__
    old = [part for _, part in named_parts(before)] if type(before) is kind else []
    new = [part for _, part in named_parts(after)]
    old = old if len(old) == len(new) else [None] * len(new)
    found = (misfit(b, a) for b, a in zip(old, new, strict=True))
    return next((each for each in found if each is not None), None)


def _fits(value: Any) -> bool:
    fields = _model_fields(type(value))
    if fields is None:
        return True
    held: Mapping[str, Any] = value.__dict__
    extra = getattr(value, "__pydantic_extra__", None) or {}
    try:
        type(value)(**{name: held[name] for name in fields if name in held}, **extra)
    except Exception:
        return False
    return True


def _model_fields(kind: Any) -> Iterable[str] | None:
    """The fields of a pydantic model, of either version; None for any other class."""
    if hasattr(kind, "model_dump"):
        return getattr(kind, "model_fields", None)
    if hasattr(kind, "construct"):
        return getattr(kind, "__fields__", None)
    return None
