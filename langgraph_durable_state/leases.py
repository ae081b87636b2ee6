"""Leases as the saver gives them: for work that must not even start twice.

The idea of a fencing token is in M. Kleppmann, "How to do distributed locking" (2016).
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from .decisions import keys
from .decisions.keys import thread_of
from .drivers.blocking import run
from .drivers.faces import Faces
from .drivers.renewal import InThread, Lease, Open, let_go, renew_in_loop
from .errors import LeaseHeldError, UsageError
from .protocols.leasing import Leasing
from .words import Occupied, Thread

POLL = 0.1
"""Seconds between two looks of one who waits, give or take half of them: they must not all come
at once when a lease ends."""

LEAST = 0.1
"""Seconds that a lease must last at least: it is renewed every third of them."""


class LeaseGiver:
    """The part of `DurableSaver` that gives leases."""

    _faces: Faces

    @contextmanager
    def lease(
        self, thread_id: str, *, wait: float = 0.0, ttl: float = 30.0, tenant_id: str = ""
    ) -> Iterator[Lease]:
        """Holds the lease of a thread while the block runs: nobody else gets it meanwhile.

        All that this saver puts of the thread in the block, from whatever thread or task, carries
        the lease's fencing token, which is checked in the transaction that writes (and by the
        script that acknowledges in Redis). So a holder that was paused for longer than `ttl`, and
        overtaken, cannot write any more: its `put` and `put_writes` raise `LeaseLostError`, with
        nothing stored, and so does `get_next_version`, by which LangGraph stops the run. A run
        keeps the token that it began under, even after the block. What is put without a lease is
        not checked: against that stands the proof of the head that every run carries.

        The lease is renewed in the background every third of `ttl`. Postgres's clock alone decides
        when it has run out; it is taken over only then, and only by somebody who asks for it.

        Args:
            thread_id: which thread; it need not exist yet.
            wait: seconds to wait for a lease that somebody else holds.
            ttl: seconds after which the lease of a holder that died can be taken.
            tenant_id: whose, if the thread is put with a `tenant_id` in its config.

        Raises:
            LeaseHeldError: if somebody else holds it, this saver included, and goes on to.
            UnavailableError: if Postgres cannot be reached, or Redis cannot where it may
                acknowledge (write-behind, and ``when_durable_down="queue"``).
            UsageError: if an argument cannot be used.
        """
        term = _Term(_thread(thread_id, tenant_id), wait, ttl)
        lease = self._lease_blocking(term)
        keeper = InThread(lease, self._leasing_blocking)
        try:
            keeper.start()
            yield lease
        finally:
            keeper.stop()
            run(lease.release(self._leasing_blocking))

    @asynccontextmanager
    async def alease(
        self, thread_id: str, *, wait: float = 0.0, ttl: float = 30.0, tenant_id: str = ""
    ) -> AsyncIterator[Lease]:
        """Holds the lease of a thread while the block runs; see `lease`.

        It is renewed by a task of the running loop, which must not be blocked for so long that the
        lease runs out.
        """
        term = _Term(_thread(thread_id, tenant_id), wait, ttl)
        lease = await self._lease_native(term)
        keeper = asyncio.create_task(renew_in_loop(lease, self._leasing_native))
        try:
            yield lease
        finally:
            keeper.cancel()
            try:
                await asyncio.gather(keeper, return_exceptions=True)
            finally:
                await lease.release(self._leasing_native)

    # -- taking ------------------------------------------------------------------------------

    def _lease_blocking(self, term: _Term) -> Lease:
        while True:
            found = run(term.attempt(self._leasing_blocking))
            if isinstance(found, Lease):
                return found
            time.sleep(term.pause(found))

    async def _lease_native(self, term: _Term) -> Lease:
        while True:
            found = await term.attempt(self._leasing_native)
            if isinstance(found, Lease):
                return found
            await asyncio.sleep(term.pause(found))

    async def _leasing_blocking(self) -> Leasing:
        return (await self._faces.blocking()).leasing

    async def _leasing_native(self) -> Leasing:
        return (await self._faces.native()).leasing


class _Term:
    """One block that wants a lease, or has it."""

    def __init__(self, thread: Thread, wait: float, ttl: float) -> None:
        if not isinstance(wait, (int, float)) or not wait >= 0.0:
            raise UsageError(f"wait={wait!r}: use seconds, at least 0")
        if not isinstance(ttl, (int, float)) or not LEAST <= ttl < math.inf:
            raise UsageError(f"ttl={ttl!r}: use seconds, at least {LEAST}")
        self._thread = thread
        self._ttl = ttl
        self._until = time.monotonic() + wait
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{keys.token().hex()}"

    async def attempt(self, leasing: Open) -> Lease | Occupied:
        """The lease, if it can be had now."""
        asked = time.monotonic()
        try:
            taker = await leasing()
            found = await taker.take(self._thread, self._holder, self._ttl)
        except BaseException:  # cancelled, perhaps, with the lease taken
            await let_go(leasing, self._thread, self._holder)
            raise
        if isinstance(found, Occupied):
            return found
        return Lease(taker, self._thread, self._holder, found.fence, self._ttl, asked)

    def pause(self, found: Occupied) -> float:
        """Seconds until the next attempt.

        Raises:
            LeaseHeldError: if there is to be none.
        """
        left = self._until - time.monotonic()
        if left <= 0.0:
            raise LeaseHeldError(
                thread=self._thread.id, holder=found.holder, left=max(found.left, 0.0)
            )
        return min(left, random.uniform(0.5 * POLL, 1.5 * POLL))


def _thread(thread_id: str, tenant_id: str) -> Thread:
    return thread_of({"configurable": {"thread_id": thread_id, "tenant_id": tenant_id}})
