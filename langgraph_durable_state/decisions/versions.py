"""Channel versions: short, monotonic, unique across forks, and the carrier of a run's proof.

LangGraph copies the versions of the checkpoint it loaded into every checkpoint it makes from it,
so a `str` that remembers its run brings the run back to `put` without any map of ids.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

_CHANCE = random.SystemRandom()
"""Not the user's stream of random numbers, nor the same in two processes with one seed."""

_DIGITS = 8
_DRAWN = 10


class Tagged(str):
    """A plain string to everyone else: equal, ordered, hashed, copied and pickled as one."""

    __slots__ = ("run",)

    run: Any

    def __new__(cls, text: str = "", run: Any = None) -> Tagged:
        made = str.__new__(cls, text)
        made.run = run
        return made

    def __copy__(self) -> Tagged:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tagged:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def run_of(value: Any) -> Any:
    """The run that a version or id remembers; None for a plain one."""
    return getattr(value, "run", None) if type(value) is Tagged else None


def untagged(value: Any) -> Any:
    """`value` as a plain string if it is a tagged one."""
    return str(value) if type(value) is Tagged else value


def own_fields(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's own fields, without its id and its channels' values, its versions plain."""
    body = {k: v for k, v in checkpoint.items() if k not in ("channel_values", "id")}
    body["channel_versions"] = _plain(body.get("channel_versions"))
    seen = body.get("versions_seen") or {}
    body["versions_seen"] = {node: _plain(versions) for node, versions in seen.items()}
    return body


def _plain(versions: Mapping[str, Any] | None) -> dict[str, Any]:
    return {k: untagged(v) for k, v in (versions or {}).items()}


def following(current: str | int | float | None) -> str | int | float:
    """The version after `current`: a counter that orders, and 40 bits that tell forks apart.

    Versions of another saver keep their own form, so that they stay comparable.
    """
    if current is None:
        return f"{1:0{_DIGITS}x}.{_CHANCE.getrandbits(40):0{_DRAWN}x}"
    if not isinstance(current, str):
        return current + 1
    counter, _, _ = current.partition(".")
    drawn = f"{_CHANCE.getrandbits(40):0{_DRAWN}x}"
    if len(counter) == _DIGITS:
        return f"{int(counter, 16) + 1:0{_DIGITS}x}.{drawn}"
    return f"{int(counter) + 1:0{len(counter)}d}.{drawn}"
