"""The chain of a thread's events: what an event's digest covers, and where a chain is broken.

This file decides and never acts: the time is the durable tier's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from ..words import Digest, EventRow, Tip
from .digest import PLAIN
from .escape import escape_text

Detail = Mapping[str, "str | int | bool | list[Any] | dict[str, Any] | None"]
"""What is told of an event: JSON without fractions, whose spelling `jsonb` might change."""


def spelled(detail: Detail) -> str:
    """JSON of one spelling, in which `jsonb` can hold every text."""
    return json.dumps(_fit(detail), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def respelled(text: str) -> str:
    """The one spelling of what `jsonb` returned of it."""
    return json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _fit(value: Any) -> Any:
    if isinstance(value, str):
        return escape_text(value, nul=True)
    if isinstance(value, Mapping):
        return {_fit(str(key)): _fit(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fit(part) for part in value]
    return value


def following(thread: UUID, tip: Tip, kind: str, detail: Detail) -> EventRow:
    """The event that comes after `tip`."""
    text = spelled(detail)
    mark = _digest(thread, tip.digest, tip.n + 1, tip.now, kind, text)
    return EventRow(tip.n + 1, tip.now, kind, text, mark)


def breaks(
    thread: UUID, rows: Iterable[EventRow], before: Tip | None = None
) -> list[tuple[int, str]]:
    """Where a chain that follows `before` (from its first event if None) is broken: the number of
    an event each, and what is wrong."""
    found = []
    n, last = (before.n, before.digest) if before is not None else (0, b"")
    for row in rows:
        if row.n != n + 1:
            where = f"those before event {row.n} are missing, back to {n + 1}"
            found.append((row.n, where if row.n > n else f"event {row.n} was never written"))
        elif row.digest != _digest(thread, last, row.n, row.at, row.kind, row.detail):
            found.append((row.n, f"event {row.n}, or the one before it, is not what was written"))
        n, last = row.n, row.digest
    return found


def _digest(thread: UUID, before: Digest, n: int, at: int, kind: str, detail: str) -> Digest:
    parts = ("e1", thread.bytes, before, n, at, kind, detail)
    return PLAIN.of_parts(parts)
