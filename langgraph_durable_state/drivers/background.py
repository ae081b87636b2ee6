"""Flushes in the background what this process's hot tier acknowledged: one thread per saver.

It serves both faces, has connections of its own and is never on the path of a call. What a process
that died left behind is found by the marks on durable heads, and flushed by any other.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable
from operator import itemgetter

from ..errors import DurableStateError
from ..protocols.settling import THREADS, Settler
from ..protocols.shared import Trace, trace_of
from ..words import Put, PutWrites, Thread
from .blocking import run

QUIET = 2.0
"""Seconds after the last put of a thread until its spell ends: longer than most supersteps, so
that a run pays for its first put only."""

LINGER = 0.01
"""Seconds that a flush waits for more to come with it."""

LOOK = 5.0
"""Seconds between two looks for what other processes left behind, and how old that must be."""

SEARCH = 60.0
"""Seconds between two searches of Redis for outboxes, which look at all of its keys; one follows
each outage as well."""

PAUSES = (0.25, 0.5, 1.0, 2.0)
"""Seconds to wait after a flush that failed, once, twice and so on."""

logger = logging.getLogger("langgraph_durable_state")


Items = dict[Thread, list[tuple[int, Trace]]]
"""What was acknowledged, by thread, with numbers that grow."""


class Background:
    """Implements `Unflushed`.

    Attributes:
        flusher: opens the blocking face's flusher; set before anything can be added.
    """

    flusher: Callable[[], Settler]

    def __init__(self) -> None:
        self._begin()
        atexit.register(_finish, weakref.ref(self))

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._dirty: dict[Thread, int] = {}
        self._idle: dict[Thread, float] = {}
        self._unguarded: Items = {}
        self._guarded: Items = {}
        self._count = 0
        self._failures = 0
        self._looked = 0.0
        self._searched = -SEARCH

    def reset(self) -> None:
        """Starts over in a forked child: what the parent acknowledged the parent flushes."""
        self._begin()

    def add(self, item: Put | PutWrites, guarded: bool) -> None:
        thread = item.place.thread
        with self._lock:
            self._count += 1
            self._dirty.pop(thread, None)  # one that others left behind may have no names
            self._dirty[thread] = self._count
            self._idle.pop(thread, None)
            kept = self._guarded if guarded else self._unguarded
            kept.setdefault(thread, []).append((self._count, trace_of(item)))
        self._wanted.set()
        self.start()

    def forget(self, thread: Thread) -> None:
        with self._lock:
            for kept in self._guarded, self._unguarded:
                kept.pop(thread, None)

    def start(self) -> None:
        """Starts the thread, if it is not running."""
        if self._thread is not None and self._thread.is_alive():
            return
        with self._lock:
            running = self._thread is not None and self._thread.is_alive()
            if not running and not self._stopped.is_set():
                args = (weakref.ref(self), self._wanted, self._stopped)
                self._thread = threading.Thread(
                    target=_work, args=args, name="durable_state_flush", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after the flush under way."""
        self._stopped.set()
        self._wanted.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def unflushed(self) -> dict[Thread, int]:
        """The threads of which this process knows that something is not durable yet, each with a
        number that grows."""
        with self._lock:
            return dict(self._dirty)

    def threads(self) -> list[Thread]:
        """Those of `unflushed`."""
        return list(self.unflushed())

    @property
    def idle(self) -> bool:
        """Whether nothing was ever flushed here, and nothing is to be."""
        return self._thread is None and not self._dirty

    def open_threads(self) -> list[Thread]:
        """Those, and the threads whose spell this process has not seen end yet."""
        with self._lock:
            return list({**self._dirty, **self._idle})

    def flushed(self, thread: Thread, number: int) -> None:
        """All of a thread is durable that was acknowledged up to `number`, or reported missing."""
        with self._lock:
            _drop(self._guarded, thread, number)
            if self._dirty.get(thread) == number:
                del self._dirty[thread]
                self._idle[thread] = time.monotonic()

    def unguarded(self, thread: Thread, number: int) -> list[Trace]:
        """What was acknowledged of a thread up to `number` and is known to nobody else: whoever
        flushes it looks whether it has arrived, before `reported` forgets it."""
        with self._lock:
            return [item for n, item in self._unguarded.get(thread, ()) if n <= number]

    def reported(self, thread: Thread, number: int) -> None:
        """Those have arrived, or were reported missing."""
        with self._lock:
            _drop(self._unguarded, thread, number)

    async def look_for(self, flusher: Settler, thread: Thread, number: int) -> None:
        """Reports what of a thread, once it is flushed, has not arrived and is known to nobody."""
        await flusher.missing(self.unguarded(thread, number))
        self.reported(thread, number)

    # -- the thread --------------------------------------------------------------------------

    def step(self) -> tuple[float, bool]:
        """One round of work; seconds until there is more to do, and whether it failed."""
        try:
            self._flush(self.unflushed())
            self._close()
            self._look()
        except Exception as error:
            known = isinstance(error, DurableStateError)
            if not known or not self._failures:
                logger.log(
                    logging.WARNING if known else logging.ERROR,
                    "what Redis holds is not flushed yet: %s",
                    error,
                    exc_info=not known,
                )
            self._failures += 1
            self._doubt()
            self._searched = -SEARCH  # others may have died meanwhile, with what they had queued
            return PAUSES[min(self._failures, len(PAUSES)) - 1], True
        self._failures = 0
        busy = self._idle or self._dirty
        return (QUIET / 4 if busy else LOOK), False

    def _doubt(self) -> None:
        """What waits through an outage is known to nobody else, for all that is known: others may
        give up what Redis holds meanwhile, and take the mark of it off."""
        with self._lock:
            for thread, items in self._guarded.items():
                self._unguarded[thread] = sorted(
                    [*self._unguarded.get(thread, ()), *items], key=itemgetter(0)
                )
            self._guarded = {}

    def _flush(self, dirty: dict[Thread, int]) -> None:
        if dirty:
            more = run(self.flusher().flush(list(dirty)))
            for thread in dirty.keys() - set(more):
                run(self.look_for(self.flusher(), thread, dirty[thread]))
                self.flushed(thread, dirty[thread])

    def _close(self) -> None:
        now = time.monotonic()
        with self._lock:
            quiet = [thread for thread, since in self._idle.items() if now - since > QUIET]
            for thread in quiet:
                del self._idle[thread]
        for thread in quiet:
            run(self.flusher().end_quiet(thread, QUIET))

    def _look(self) -> None:
        """Finds what others left behind."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        left = run(self.flusher().left_behind(THREADS, time.time() - LOOK))
        if now - self._searched >= SEARCH:
            # A queue that Postgres was not told of is found by its key only.
            left += run(self.flusher().unmarked())
            self._searched = now
        with self._lock:
            for thread in left:
                if thread not in self._dirty:
                    self._count += 1
                    self._dirty[thread] = self._count


def _work(
    background: weakref.ref[Background], wanted: threading.Event, stopped: threading.Event
) -> None:
    pause = 0.0
    while not stopped.is_set():
        wanted.wait(pause)  # holding nothing that would keep a forgotten saver alive
        stopped.wait(LINGER)
        wanted.clear()
        alive = background()
        if alive is None or stopped.is_set():
            return
        pause, failed = alive.step()
        del alive
        if failed:
            stopped.wait(pause)


def _finish(background: weakref.ref[Background]) -> None:
    """At the end of the process: Redis has it, but nobody else may be there to flush it."""
    alive = background()
    if alive is not None and alive.unflushed():
        alive.stop()
        alive.step()


def _drop(kept: Items, thread: Thread, number: int) -> None:
    later = [(n, item) for n, item in kept.pop(thread, ()) if n > number]
    if later:
        kept[thread] = later
