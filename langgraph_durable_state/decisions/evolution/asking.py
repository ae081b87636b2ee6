"""The user's functions, asked so that they can change nothing that is stored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph import types

from ...errors import EvolutionError
from ..safe_classes import SNAPSHOT
from .operations import Free, Reshape
from .tasks import is_users

_OVERWRITE = "__overwrite__"
_Overwrite: Any = getattr(types, "Overwrite", None)
"""None if this LangGraph is older than what it does."""


def reshaped(shape: Reshape, values: Sequence[Any]) -> Sequence[Any]:
    """The values of an operation's targets from those of its sources.

    Raises:
        EvolutionError: if the user's function fails, or gives another number of them.
    """
    assert shape.up is not None
    channel = (*shape.sources, *shape.targets)[0]
    given = values if shape.same else copy.deepcopy(values)
    try:
        told = shape.up(*given)
        made = tuple(told)
    except Exception as error:  # whose text may quote the value
        raise EvolutionError(
            f"What is declared of channel {channel!r} failed ({type(error).__name__})",
            channel=channel,
        ) from error
    if not isinstance(told, (list, tuple)):  # a dict has its keys for values, a text its letters
        kind = type(told).__name__
        raise EvolutionError(
            f"What is declared of channel {channel!r} gave a {kind}, not a list", channel=channel
        )
    if len(made) != len(shape.targets):
        raise EvolutionError(
            f"{len(made)} values were made for {', '.join(shape.targets)}", channel=channel
        )
    return made


def called(
    function: Callable[[dict[str, Any]], dict[str, Any]], free: Free, values: Mapping[str, Any]
) -> dict[str, Any]:
    """What a user's function makes of values by channel.

    Raises:
        EvolutionError: if it fails, or gives anything but its channels' values by name.
    """
    try:
        made = function(copy.deepcopy(dict(values)))
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise EvolutionError(f"{name} failed ({type(error).__name__})") from error
    if not isinstance(made, dict):
        raise EvolutionError(f"A step's function gave a {type(made).__name__}, not a dict")
    for each in made:
        if not isinstance(each, str) or not sees(free, each):
            raise EvolutionError(f"A step's function gave a value for {each!r}, which is not its")
    return made


def sees(free: Free, channel: str) -> bool:
    """Whether a channel is one of those that a user's function is given."""
    return is_users(channel) and (free.channels is None or channel in free.channels)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are surely the same."""
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # as an array, which does not tell so
        return False


def bare(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A value without what says how it is stored or written, and how to put it in that again."""
    if SNAPSHOT is not None and isinstance(value, SNAPSHOT):
        return value.value, SNAPSHOT
    if _Overwrite is not None and isinstance(value, _Overwrite):
        return value.value, _Overwrite
    if isinstance(value, dict) and [*value] == [_OVERWRITE]:
        return value[_OVERWRITE], lambda new: {_OVERWRITE: new}
    return value, lambda new: new
