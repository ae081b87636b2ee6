"""Runs a graph call again on fresh state after another run advanced the thread first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from .errors import ConflictError

T = TypeVar("T")

TRIES = 5


def rerun_on_conflict(call: Callable[[], T], *, tries: int = TRIES) -> T:
    """What `call` returns, called again while it meets a `ConflictError`.

    Each call starts from the head as it is then. Work with effects outside the state may run
    more than once.

    Args:
        call: such as ``lambda: graph.invoke(question, config)``.
        tries: how often at most.

    Raises:
        ConflictError: of the last try.
    """
    for _ in range(tries - 1):
        try:
            return call()
        except ConflictError:
            continue
    return call()


async def arerun_on_conflict(call: Callable[[], Awaitable[T]], *, tries: int = TRIES) -> T:
    """What `call` returns once awaited; see `rerun_on_conflict`."""
    for _ in range(tries - 1):
        try:
            return await call()
        except ConflictError:
            continue
    return await call()
