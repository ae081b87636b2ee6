"""Events told: one line of the log each, and the user's observer called."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable

from ..errors import UsageError
from ..events import Event, Kind, Observer
from ..words import Place

logger = logging.getLogger("langgraph_durable_state")

_LEVELS: dict[Kind, int] = {
    "state_lost": logging.ERROR,
    "fell_back": logging.ERROR,
    "damaged": logging.ERROR,
    "hot_discarded": logging.INFO,
    "queued": logging.DEBUG,  # one per checkpoint for as long as the outage lasts
}
"""All others are warnings: a change that is said has an end that must be said as loud."""


class EventLog:
    """Implements `Events`.

    Args:
        observer: called with each event; what it raises fails nothing and is logged once.
        clock: seconds since the epoch.

    Raises:
        UsageError: if the observer cannot be called, or would have to be awaited.
    """

    def __init__(self, observer: Observer | None, clock: Callable[[], float] = time.time) -> None:
        if observer is not None and not callable(observer):
            raise UsageError(f"observer must be a function, not {observer!r}")
        if inspect.iscoroutinefunction(observer):
            raise UsageError("observer must be a plain function: nothing awaits a coroutine")
        self._observer = observer
        self._clock = clock
        self._broken = False

    def emit(
        self,
        kind: Kind,
        detail: str = "",
        *,
        tier: str | None = None,
        place: Place | None = None,
        checkpoint: str | None = None,
        head: str | None = None,
        at: float | None = None,
    ) -> None:
        thread = place.thread if place is not None else None
        event = Event(
            kind,
            self._clock() if at is None else at,
            detail,
            tier,
            thread.tenant if thread is not None else "",
            thread.id if thread is not None else None,
            place.ns if place is not None else None,
            checkpoint,
            head,
        )
        logger.log(_LEVELS.get(kind, logging.WARNING), "%s", event)
        if self._observer is not None:
            self._tell(self._observer, event)

    def unknown_class(self, place: Place, checkpoint: str, detail: str) -> None:
        """A stored object was read as raw data."""
        self.emit("unknown_class", detail, place=place, checkpoint=checkpoint)

    def secret_seen(self, detail: str) -> None:
        """What is about to be stored looks like a credential."""
        self.emit("secret_seen", detail)

    def _tell(self, observer: Observer, event: Event) -> None:
        try:
            observer(event)
        except Exception:
            if not self._broken:
                self._broken = True
                logger.exception("the observer failed at: %s (said once)", event)
