"""Bounds what a dead tier costs: after a failure calls are refused at once, until a probe.

One call at a time is let through as the probe, first after a quarter of a second, then after
twice as long each time up to two seconds: a tier that is back is in use again within that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 2.0


class Breaker:
    """One tier's breaker; safe to share between threads (a lost update costs one probe more).

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = 0.0
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        return self._pause > 0

    def admits(self) -> bool:
        """Whether a call may go on now. While open, one probe per pause may."""
        if not self._pause:
            return True
        now = self._clock()
        if now < self._until:
            return False
        self._until = now + self._pause
        return True

    def succeeded(self) -> None:
        self._pause = 0.0

    def failed(self) -> None:
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        self._until = self._clock() + self._pause
