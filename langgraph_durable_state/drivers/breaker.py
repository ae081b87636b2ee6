"""Bounds what a dead tier costs: after a failure calls are refused at once, until a probe.

Probes go on aside from all calls (see `probing`). Where nobody probes, because the loop that did
has ended, one call at a time is let through instead. The first probe follows within a quarter of
a second, the next ones after twice as long each, up to two seconds; with the two seconds that a
probe may take, a tier that is back is in use again within five. Pauses are drawn at random from
half their length up, so that processes that lost a tier together do not return to it together.

It also remembers how the tier is, and tells each change as an event.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..health import State
from ..protocols.shared import Events

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 2.0

_LATE = 1.0
"""Seconds that a probe aside may be late (a loop may be busy, or stand still) before a call goes
in its stead."""

_QUIET = 2.0
"""Seconds without a refusal before a tier counts as taking what is sent: one that is full takes
this and refuses that, and each change would be told."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How a tier is, since when (seconds since the epoch) and why."""

    state: State
    since: float | None
    why: str | None
    is_open: bool


class Breaker:
    """One tier's breaker, for all threads and loops of a saver.

    Args:
        tier: its name, for events.
        events: told of each change.
        clock: seconds that never go back.
        wall: seconds since the epoch.
        draw: a number from 0 to 1, for the length of a pause.
    """

    def __init__(
        self,
        tier: str,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._tier = tier
        self._events = events
        self._clock = clock
        self._wall = wall
        self._draw = draw
        self._lock = threading.Lock()
        self._condition = Condition("unknown", None, None, False)
        self._pause = 0.0
        self._due = 0.0
        self._probing = False
        self._aside = False
        self._refused: tuple[str, float] = "", 0.0
        self._parts: dict[str, Breaker] = {}

    def part(self, name: str) -> Breaker:
        """The breaker of one node of the tier, which may fail while the others do not."""
        found = self._parts.get(name)
        if found is None:
            clocks = (self._clock, self._wall, self._draw)
            fresh = Breaker(f"{self._tier} node {name}", self._events, *clocks)
            found = self._parts.setdefault(name, fresh)
        return found

    @property
    def is_open(self) -> bool:
        return self._pause > 0

    def condition(self) -> Condition:
        """How the tier is, as far as calls have told."""
        return self._condition

    # -- asked before a call -----------------------------------------------------------------

    def admits(self) -> bool:
        """Whether a call may go on now. While open, one per pause may if nobody probes aside."""
        if not self._pause:
            return True
        return self.claims(0.0, _LATE if self._aside else 0.0)

    def refusal(self) -> str:
        """What to tell a call that is not admitted."""
        return f"it failed a moment ago and is not tried yet; it said: {self._condition.why}"

    # -- asked by who probes -----------------------------------------------------------------

    def wait(self) -> float:
        """Seconds until the next probe is due."""
        return max(self._due - self._clock(), 0.0)

    def claims(self, lasts: float, late: float = 0.0) -> bool:
        """Whether the caller is to probe now; no other is until then.

        Args:
            lasts: seconds the probe may take.
            late: seconds after it was due.
        """
        with self._lock:
            now = self._clock()
            if now < self._due + late:
                return False
            self._due = now + max(self._pause, lasts)
            self._probing = True
            return True

    def left(self) -> None:
        """Nobody probes aside any more."""
        self._aside = False

    # -- told after a call -------------------------------------------------------------------

    def succeeded(self, what: str = "") -> None:
        """The tier answered; `what` tells kinds of calls apart of which it may refuse some."""
        if self._condition.state != "up":
            self._recovered(what)

    def _recovered(self, what: str) -> None:
        with self._lock:
            before = self._condition.state
            if before == "up" or (before == "refusing" and self._still_refuses(what)):
                return
            since = self._become("up", None)
        if before != "unknown":
            self._events.emit("tier_up", tier=self._tier, at=since)

    def failed(self, error: BaseException) -> bool:
        """The tier could not be reached; calls that were under way when it failed count once.

        Tells whether the caller is to begin probing aside.
        """
        since = None
        with self._lock:
            if self._pause and not self._probing:
                return False
            pause = min(self._pause * 2, LONGEST_PAUSE) or FIRST_PAUSE
            if not self._pause:
                since = self._become("down", _said(error))
            self._pause, self._probing = pause, False
            self._due = self._clock() + pause * (1 + self._draw()) / 2
            begins, self._aside = not self._aside, True
        if since is not None:
            self._events.emit("tier_down", _said(error), tier=self._tier, at=since)
        return begins

    def refused(self, error: BaseException, what: str = "") -> None:
        """The tier answered that it will not: it is full, say. It is asked again each time."""
        since = None
        with self._lock:
            self._refused = what, self._clock()
            if self._condition.state != "refusing":
                since = self._become("refusing", _said(error))
        if since is not None:
            self._events.emit("tier_refuses", _said(error), tier=self._tier, at=since)

    def _still_refuses(self, what: str) -> bool:
        refused, when = self._refused
        return what != refused or self._clock() < when + _QUIET

    def _become(self, state: State, why: str | None) -> float:
        since = self._wall()
        self._condition = Condition(state, since, why, state == "down")
        self._pause, self._probing = 0.0, False
        return since


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
