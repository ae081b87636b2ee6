"""What is done to a saver by those who operate it, beside what LangGraph asks of it."""

from __future__ import annotations

import asyncio
import time

from .decisions import arguments
from .decisions.keys import thread_of
from .decisions.serializing import Serializer
from .drivers.background import QUIET
from .drivers.blocking import run
from .drivers.driver import Driver
from .drivers.faces import Faces
from .errors import DurableStateError, StateLostError, UnavailableError
from .health import Health
from .words import Place, Thread

FLUSH_SECONDS = 30.0


class Operations:
    """The part of `DurableSaver` that makes what Redis took first durable, and goes on after a
    loss."""

    _faces: Faces

    @property
    def _serializer(self) -> Serializer:
        raise NotImplementedError

    # -- health ------------------------------------------------------------------------------

    def health(self) -> Health:
        """How the tiers are: state, since when and why, and what this process holds.

        Each tier is asked shortly, for no longer than its own time-out at a time; one that failed
        a moment ago is not asked. It raises for no outage, and needs no tables.

        Raises:
            ClosedError: if the saver was closed.
        """
        return run(self._health_blocking())

    async def _health_blocking(self) -> Health:
        return await (await self._faces.blocking(install=False)).health()

    async def ahealth(self) -> Health:
        """How the tiers are; see `health`."""
        return await (await self._faces.native(install=False)).health()

    # -- flushing ----------------------------------------------------------------------------

    def flush(self, timeout: float = FLUSH_SECONDS, *, everyone: bool = False) -> int:
        """Waits until all that this saver acknowledged so far is in Postgres.

        Args:
            timeout: seconds after which it gives up.
            everyone: flush what other processes left in Redis as well.

        Returns:
            How many threads had something that was not durable yet.

        Raises:
            UnavailableError: if a tier cannot be reached, or it takes longer; all is still in
                Redis then, and is flushed later.
            StateLostError, CorruptionError: if what was in Redis is gone, or cannot be read; all
                other threads were flushed.
            UsageError: if `timeout` is not positive.
        """
        return run(self._flush_blocking(timeout, everyone))

    async def aflush(self, timeout: float = FLUSH_SECONDS, *, everyone: bool = False) -> int:
        """Waits until all that this saver acknowledged so far is in Postgres; see `flush`."""
        return await self._flush(await self._faces.native(), timeout, everyone)

    async def _flush_blocking(self, timeout: float, everyone: bool) -> int:
        return await self._flush(await self._faces.blocking(), timeout, everyone)

    async def _flush(self, driver: Driver, timeout: float, everyone: bool) -> int:
        until = time.monotonic() + arguments.seconds("timeout", timeout)
        arguments.flag("everyone", everyone)
        background = self._faces.background
        left = background.unflushed()
        if everyone and driver.outbox is not None:
            marked = await driver.flusher.left_behind(1_000_000, time.time())
            left = dict.fromkeys((*marked, *await driver.flusher.unmarked()), 0) | left
        failed: DurableStateError | None = None
        flushed = 0
        for done, (thread, number) in enumerate(left.items()):
            if time.monotonic() > until:
                raise UnavailableError(
                    "postgres", f"{len(left) - done} threads are not flushed after {timeout:g} s"
                )
            try:
                flushed += await self._drain(driver, thread, number)
                # So that a Redis may be restarted after a flush; the spells of others go on.
                await driver.flusher.end_quiet(thread, QUIET if everyone else 0.0)
            except DurableStateError as error:
                failed = failed or error  # of one thread; the others are flushed all the same
        if failed is not None:
            raise failed
        return flushed

    def _flush_at_end(self) -> None:
        """What closing a saver does first: nothing is left for others to flush, or to wait for."""
        self._faces.background.stop()
        if self._faces.background.open_threads() and not self._faces.closed:
            run(self._end_all())

    async def _end_all(self) -> None:
        driver = await self._faces.blocking()
        background = self._faces.background
        failed: DurableStateError | None = None
        for thread, number in background.unflushed().items():
            try:
                await self._drain(driver, thread, number)
            except DurableStateError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        for thread in background.open_threads():
            try:
                await driver.flusher.end_quiet(thread, 0.0)
            except UnavailableError:
                return  # all is durable; whoever sees both tiers next ends it

    async def _drain(self, driver: Driver, thread: Thread, number: int) -> bool:
        """Makes what was acknowledged of a thread durable; whether anything had to be done."""
        found = await driver.flusher.drain(thread)
        # Whether or not more is lost: nobody else could tell.
        await self._faces.background.look_for(driver.flusher, thread, number)
        try:
            # What the hot tier lost is not made durable by flushing what it has.
            await driver.flusher.settle(thread)
        except StateLostError as error:
            if error.left is None:
                raise
            # It was restarted, and all that it still had is durable: readers tell the rest.
        self._faces.background.flushed(thread, number)
        return found

    async def _aflush_at_end(self) -> None:
        if not self._faces.background.idle:
            await asyncio.to_thread(self._flush_at_end)

    # -- losses ------------------------------------------------------------------------------

    def accept_loss(self, thread_id: str, *, tenant_id: str = "") -> list[str]:
        """Goes on with a thread after a `StateLostError`, from what is left of it.

        That is what Redis still has, if it was restarted, and otherwise the durable head.

        Args:
            thread_id: which thread.
            tenant_id: whose.

        Returns:
            The namespaces in which something was, or may have been, lost.

        Raises:
            UnavailableError: if a tier cannot be reached: what cannot be seen is not lost yet.
        """
        return run(self._accept_loss_blocking(_thread(thread_id, tenant_id)))

    async def aaccept_loss(self, thread_id: str, *, tenant_id: str = "") -> list[str]:
        """Goes on with a thread after a `StateLostError`; see `accept_loss`."""
        driver = await self._faces.native()
        return await self._accept_loss(driver, _thread(thread_id, tenant_id))

    async def _accept_loss_blocking(self, thread: Thread) -> list[str]:
        return await self._accept_loss(await self._faces.blocking(), thread)

    async def _accept_loss(self, driver: Driver, thread: Thread) -> list[str]:
        places = [Place(thread, ns) for ns in await driver.flusher.namespaces(thread)]
        return [
            place.ns
            for place in places
            if await driver.arbiter.accept_loss(place) or await self._given_up(driver, place)
        ]

    async def _given_up(self, driver: Driver, place: Place) -> bool:
        """Gives up what Redis alone held of a head, if it is damaged there."""
        found = await driver.recovery.examine(self._serializer, place, None, thorough=False)
        if found.given_up is None:
            return False
        await driver.engine.give_up(place, found)
        return True


def _thread(thread_id: str, tenant_id: str) -> Thread:
    return thread_of({"configurable": {"thread_id": thread_id, "tenant_id": tenant_id}})
