"""A tier that failed is asked until it answers, aside from all calls: none waits for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol
from weakref import WeakMethod

from .breaker import Breaker

PROBE_SECONDS = 2.0
"""That a probe may take. Longer ones, with the pause, would miss a tier's return by more than
five seconds."""


class Aside(Protocol):
    """What a face does beside its calls, in its own way."""

    async def pause(self, seconds: float) -> bool:
        """Waits; tells whether the driver is still open."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` beside the calls; it ends with the driver at the latest.

        Raises:
            RuntimeError: if nothing can be started any more.
        """


def probe_aside(breaker: Breaker, aside: Aside, ask: Callable[[], Awaitable[None]]) -> None:
    """Calls `ask`, a method that tells the breaker, until the breaker is closed."""
    work = _probing(breaker, aside, WeakMethod(ask))
    try:
        aside.start(work)
    except RuntimeError:  # the interpreter is about to end
        work.close()
        breaker.left()


async def _probing(
    breaker: Breaker, aside: Aside, ask: WeakMethod[Callable[[], Awaitable[None]]]
) -> None:
    try:
        while breaker.is_open and await aside.pause(breaker.wait()):
            asked = ask()
            if asked is None:
                return  # the saver was dropped without being closed
            if breaker.claims(PROBE_SECONDS):
                await asked()
            del asked
    finally:
        breaker.left()
