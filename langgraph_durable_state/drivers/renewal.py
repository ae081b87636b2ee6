"""Keeps a lease while its block runs: a thread on the blocking face, a task on the native one.

This process's clock is only used to give a lease up, never to believe that it still stands: it
runs from before the lease was asked for, so that it never ends later than on the server.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable

from ..errors import DurableStateError, LeaseLostError
from ..protocols.leasing import Leasing
from ..words import Thread
from .blocking import run

Open = Callable[[], Awaitable[Leasing]]
"""Gives the leasing of a face's driver."""

SHARE = 3
"""A lease is renewed this many times in its life, so that one renewal may fail."""

AGAIN = 10
"""After one that failed it is tried this many times in its life."""


class Lease:
    """A lease that is held: nobody else can take it, or store anything under an earlier one.

    Attributes:
        thread_id: the thread's id.
        fence: the fencing token: larger than that of every lease of this thread before. Pass it to
            other systems that can refuse what carries a smaller one.
    """

    def __init__(
        self, leasing: Leasing, thread: Thread, holder: str, fence: int, ttl: float, asked: float
    ) -> None:
        self.thread_id = thread.id
        self.fence = fence
        self._leasing = leasing
        self._thread = thread
        self._holder = holder
        self._ttl = ttl
        self._until = asked + ttl
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"Lease(thread_id={self.thread_id!r}, fence={self.fence})"

    def check(self) -> None:
        """Returns if the lease is still held; call it before an effect that must not happen twice.

        Nothing is asked: the answer is what this process knows, and is no older than the lease's
        time to live.

        Raises:
            LeaseLostError: if it was taken over, ran out before it could be renewed, or has ended.
        """
        if time.monotonic() > self._until:
            self._lose("it ran out before it was renewed")
        if not self.held:
            raise LeaseLostError(thread=self.thread_id, fence=self.fence)

    @property
    def held(self) -> bool:
        """Whether the lease is held, as far as is known."""
        return self._leasing.holds(self._thread, self.fence)

    def _lose(self, why: str) -> None:
        self._leasing.lose(self._thread, self.fence, why)

    # -- for those who keep it ---------------------------------------------------------------

    @property
    def first(self) -> float:
        """Seconds until it is to be renewed first."""
        return self._ttl / SHARE

    async def renew(self, leasing: Open) -> float | None:
        """Renews it; seconds until the next time, None if it is lost."""
        asked = time.monotonic()
        try:
            held = await (await leasing()).renew(self._thread, self.fence, self._holder, self._ttl)
        except DurableStateError as error:
            if time.monotonic() < self._until:
                return self._ttl / AGAIN
            self._lose(f"it ran out before it could be renewed: {error}")
        else:
            if held and self.held:
                self._until = asked + self._ttl
                return self._ttl / SHARE
            self._lose("another holder has taken it over")
        return None

    async def release(self, leasing: Open) -> None:
        """Ends it, unless it is that of the process which forked this one."""
        self._leasing.end(self._thread)
        if self._process == os.getpid():
            await let_go(leasing, self._thread, self._holder)


async def let_go(leasing: Open, thread: Thread, holder: str) -> None:
    """Gives back what a holder may have; where that fails it runs out."""
    try:
        await (await leasing()).release(thread, holder)
    except DurableStateError:
        pass


class InThread:
    """Renews a lease in a thread of its own until the block ends."""

    def __init__(self, lease: Lease, leasing: Open) -> None:
        self._stopped = threading.Event()
        args = (lease, leasing, self._stopped)
        self._thread = threading.Thread(
            target=_renew_in_thread, args=args, name="durable_state_lease", daemon=True
        )

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; a renewal under way finds the lease released."""
        self._stopped.set()


def _renew_in_thread(lease: Lease, leasing: Open, stopped: threading.Event) -> None:
    pause: float | None = lease.first
    while pause is not None and not stopped.wait(pause):
        pause = run(lease.renew(leasing))


async def renew_in_loop(lease: Lease, leasing: Open) -> None:
    """Renews a lease until it is lost, or this task is cancelled."""
    pause: float | None = lease.first
    while pause is not None:
        await asyncio.sleep(pause)
        pause = await lease.renew(leasing)
