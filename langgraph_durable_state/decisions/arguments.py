"""Arguments of public calls: what each must be, said in the caller's words.

What is passed is checked before anything is done with it: a `str` where a list is asked for would
be taken for its characters, and an error from within would name what the caller never wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import UsageError


def text(name: str, value: Any) -> str:
    """`value`, a `str`.

    Raises:
        UsageError: if it is none; so do all of these.
    """
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a str, not {_shown(value)}")
    return value


def texts(name: str, values: Any) -> list[str]:
    """`values`, each a `str`."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise UsageError(f"{name} must be a list of str, not {_shown(values)}")
    found = list(values)
    if not all(isinstance(value, str) for value in found):
        raise UsageError(f"{name} must be a list of str, not {_shown(found)}")
    return found


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """`value`, a dict."""
    if type(value) is not dict and not isinstance(value, Mapping):  # the latter takes 0.3 us
        raise UsageError(f"{name} must be a dict, not {_shown(value)}")
    return value


def flag(name: str, value: Any) -> bool:
    """`value`, a `bool`."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}={_shown(value)}: use True or False")
    return value


def seconds(name: str, value: Any) -> float:
    """`value`, a positive number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise UsageError(f"{name}={_shown(value)}: use a positive number of seconds")
    return value


def limit(value: Any) -> int | None:
    """`value`, a whole number, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"limit={_shown(value)}: use a whole number, or None")
    return value


def function(name: str, value: Any) -> Callable[..., Any] | None:
    """`value`, a function, or None."""
    if value is not None and not callable(value):
        raise UsageError(f"{name} must be a function, not {_shown(value)}")
    return value  # type: ignore[no-any-return]


def writes(values: Any) -> list[tuple[str, Any]]:
    """`values`, pairs of a channel's name and a value."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise UsageError(f"writes must be a list of (channel, value), not {_shown(values)}")
    found = list(values)
    for each in found:
        paired = isinstance(each, (tuple, list)) and len(each) == 2
        if not paired or not isinstance(each[0], str):
            raise UsageError("writes must be a list of (channel, value), a channel being a str")
    return found


def _shown(value: Any) -> str:
    """A value in a message: short, and whatever it is."""
    try:
        told = repr(value)
    except Exception:  # nested too deeply, for one
        told = type(value).__name__
    return told if len(told) <= 100 else f"{told[:100]}…"
