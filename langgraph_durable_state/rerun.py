"""Runs a graph call again on fresh state after another run advanced the thread first."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from .errors import ConflictError, UsageError

T = TypeVar("T")

TRIES = 8
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""Seconds: a loser that begins again at once would cut off the winner in the middle of its run."""


def _pauses(tries: int) -> Iterator[float]:
    """Exponential back-off with full jitter (M. Brooker, AWS Architecture Blog, 2015), never
    below half of its bound."""
    for i in range(tries - 1):
        bound = min(FIRST_PAUSE * 2**i, LONGEST_PAUSE)
        yield random.uniform(bound / 2, bound)


def rerun_on_conflict(call: Callable[[], T], *, tries: int = TRIES) -> T:
    """What `call` returns, called again while it meets a `ConflictError`.

    Each call starts from the head as it is then, after a pause that grows from a tenth of a
    second to five. Whoever puts first wins: a call that begins while another run is between two
    of its steps cuts that one off, which then meets the conflict. Work with effects outside the
    state may run more than once.

    Args:
        call: such as ``lambda: graph.invoke(question, config)``.
        tries: how often at most.

    Raises:
        ConflictError: of the last try.
        UsageError: if an argument cannot be used.
    """
    _check(call, tries)
    for pause in _pauses(tries):
        try:
            return _answer(call())
        except ConflictError:
            time.sleep(pause)
    return _answer(call())


def _check(call: object, tries: object) -> None:
    if not callable(call):
        raise UsageError("give a function that makes the call: lambda: graph.invoke(…)")
    if isinstance(tries, bool) or not isinstance(tries, int) or tries < 1:
        raise UsageError(f"tries={tries!r}: use int values at least 1")


def _answer(value: T) -> T:
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError("rerun_on_conflict was given a coroutine: use arerun_on_conflict")
    return value


async def arerun_on_conflict(call: Callable[[], Awaitable[T]], *, tries: int = TRIES) -> T:
    """What `call` returns once awaited; see `rerun_on_conflict`."""
    _check(call, tries)
    for pause in _pauses(tries):
        try:
            return await call()
        except ConflictError:
            await asyncio.sleep(pause)
    return await call()
