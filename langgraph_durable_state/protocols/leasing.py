"""Leases: who alone may run a thread, and the fence by which what others put is told apart.

The durable tier decides. A fence only grows, and what carries one is stored only while the lease
has it, so that a holder which was paused and overtaken cannot write. Where the hot tier may
acknowledge, it is told of the fence before the lease counts as taken.
"""

from __future__ import annotations

from ..errors import LeaseLostError, UnavailableError
from ..ports import LeaseTable, Outbox
from ..words import Granted, Occupied, Place, Thread
from .leases import Leases
from .runs import Run
from .shared import Shared


class Leasing:
    """Takes and keeps leases through one driver's tiers.

    Args:
        shared: the saver's.
        table: decides.
        outbox: the hot tier's; None if there is none.
    """

    def __init__(self, shared: Shared, table: LeaseTable, outbox: Outbox | None) -> None:
        self._shared = shared
        self._table = table
        self._outbox = outbox

    async def take(self, thread: Thread, holder: str, ttl: float) -> Granted | Occupied:
        """Takes a thread's lease for `ttl` seconds, if it can be had. From then on nothing is
        stored that carries an earlier fence.

        Raises:
            UnavailableError: if Postgres cannot be reached, or the hot tier cannot where it may
                acknowledge; the lease may have been taken all the same, until it runs out.
        """
        own = self._shared.leases.held(thread)
        if own is not None:
            return Occupied(own.holder, own.ttl)  # lost, perhaps, but its block has not ended here
        found = await self._table.take_lease(thread, holder, ttl)
        if isinstance(found, Granted):
            await self._raise(thread, found.fence)
            self._shared.leases.add(thread, found.fence, holder, ttl)
        return found

    async def _raise(self, thread: Thread, fence: int) -> None:
        if self._outbox is None:
            return
        try:
            await self._outbox.raise_fence(thread, fence)
        except UnavailableError:
            if self._shared.policy.asks_hot:
                raise

    async def renew(self, thread: Thread, fence: int, holder: str, ttl: float) -> bool:
        """Whether the lease was not taken over, and runs for `ttl` seconds more."""
        return await self._table.renew_lease(thread, fence, holder, ttl)

    async def release(self, thread: Thread, holder: str) -> None:
        """Gives a lease back, if it is still the holder's."""
        await self._table.release_lease(thread, holder)

    def holds(self, thread: Thread, fence: int) -> bool:
        """Whether the lease with this fence is held, as far as is known."""
        return self._shared.leases.holds(thread, fence)

    def lose(self, thread: Thread, fence: int, why: str) -> None:
        """Notes that a lease is lost."""
        lose(self._shared, thread, fence, why)

    def end(self, thread: Thread) -> None:
        """Notes that the block has ended that held a lease."""
        self._shared.leases.drop(thread)


def fence_of(leases: Leases, thread: Thread, *runs: Run | None) -> int | None:
    """The fence that what is put of a thread carries now: the one its run began under, or else
    that of the lease this saver holds.

    Raises:
        LeaseLostError: if that lease is known to be lost.
    """
    begun = (run.fence for run in runs if run is not None)
    fence = next((f for f in begun if f is not None), None) or leases.fence(thread)
    if fence is not None and leases.is_lost(thread, fence):
        raise LeaseLostError(thread=thread.id, fence=fence)
    for run in runs:
        if run is not None and run.fence is None:
            run.fence = fence
    return fence


def lose(shared: Shared, thread: Thread, fence: int, why: str) -> LeaseLostError:
    """Notes that a lease is lost; the error for whoever held it."""
    if shared.leases.lose(thread, fence):
        shared.events.emit("lease_lost", f"fence {fence}: {why}", place=Place(thread, ""))
    return LeaseLostError(thread=thread.id, fence=fence)
