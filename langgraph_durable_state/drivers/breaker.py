"""Bounds what a dead tier costs: after a failure calls are refused at once, until a probe.

One call at a time is let through as the probe, first after a quarter of a second, then after
twice as long each time up to two seconds: a tier that is back is in use again within that. Each
change is logged once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 2.0

logger = logging.getLogger("langgraph_durable_state")


class Breaker:
    """One tier's breaker; safe to share between threads (a lost update costs one probe more).

    Args:
        tier: its name, for the log.
        clock: seconds that never go back.
    """

    def __init__(self, tier: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._tier = tier
        self._clock = clock
        self._pause = 0.0
        self._until = 0.0
        self._probing = False
        self._refused = False
        self._why = ""
        self._parts: dict[str, Breaker] = {}

    def part(self, name: str) -> Breaker:
        """The breaker of one node of the tier, which may fail while the others do not."""
        found = self._parts.get(name)
        if found is None:
            fresh = Breaker(f"{self._tier} node {name}", self._clock)
            found = self._parts.setdefault(name, fresh)
        return found

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
        self._probing = True
        return True

    def refusal(self) -> str:
        """What to tell a call that is not admitted."""
        return f"it failed a moment ago and is not tried yet; it said: {self._why}"

    def succeeded(self) -> None:
        """The tier answered."""
        if self._pause or self._refused:
            self._pause, self._probing, self._refused = 0.0, False, False
            logger.warning("%s is in use again", self._tier)

    def failed(self, error: BaseException) -> None:
        """The tier could not be reached. Calls that were under way when it failed count once."""
        self._why = str(error)
        if not self._pause:
            logger.warning("%s failed and is used again once it answers: %s", self._tier, error)
            self._pause = FIRST_PAUSE
        elif self._probing:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        else:
            return
        self._probing = False
        self._until = self._clock() + self._pause

    def refused(self, error: BaseException) -> None:
        """The tier answered that it will not: it is full, say. It is asked again each time."""
        if not self._refused:
            self._refused = True
            logger.warning("%s refuses what is sent to it: %s", self._tier, error)
