"""What has to be done before a thread is read, changed or left as a whole: nothing of it may be in
the hot tier alone then.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CorruptionError, UnavailableError
from ..ports import Durable, Outbox
from ..words import Place, Put, PutWrites, RecordRow, Spell, Thread
from .anchoring import Anchors
from .arbiter import Arbiter
from .flushing import Flusher
from .shared import Shared, Trace, trace_of
from .vault import Vault

THREADS = 1_000
"""Marked heads that are looked at in one go."""

EVERYTHING = 1_000_000


class Settler(Flusher):
    """A flusher that also ends spells, and finds what is to be flushed.

    Args:
        shared, durable, outbox, anchors, vault: as of a flusher.
        arbiter: over the same.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        outbox: Outbox | None,
        arbiter: Arbiter,
        anchors: Anchors,
        vault: Vault,
    ) -> None:
        super().__init__(shared, durable, outbox, anchors, vault)
        self._arbiter = arbiter

    async def settle(self, thread: Thread) -> set[str]:
        """Makes a thread's acknowledged state durable, if the hot tier may be ahead of it; the
        namespaces in which a loss was accepted.

        Raises:
            UnavailableError: if that cannot be done, or not be known.
            StateLostError: if the hot tier lost what it held alone.
        """
        lost: set[str] = set()
        asks = self._hot is not None and self._shared.policy.asks_hot
        if asks or await self._durable.ahead(thread.key, 1):
            try:
                await self.drain(thread)
            except UnavailableError as error:
                if error.tier != "redis" or not await self._ignorable(thread):
                    raise
                return lost
            for waiting in await self._durable.ahead(thread.key, THREADS):
                # What the hot tier lost is not made durable by flushing what it has.
                place = Place(thread, waiting.place.ns)
                if (await self._arbiter.view(place, b"", -1)).lost:
                    lost.add(place.ns)
        return lost

    async def _ignorable(self, thread: Thread) -> bool:
        """Whether a thread may be taken as Postgres has it, though Redis cannot be asked."""
        return self._shared.policy.accepts_loss or not await self._durable.ahead(thread.key, 1)

    async def settle_all(self) -> None:
        """The same for every thread."""
        for thread in await self.unsettled():
            await self.settle(thread)

    async def unsettled(self) -> list[Thread]:
        """The threads of which the hot tier may hold something alone; the names of some are not
        known."""
        found = await self._durable.ahead(None, EVERYTHING)
        threads = dict.fromkeys(waiting.place.thread for waiting in found)
        if self._hot is not None and self._shared.policy.asks_hot:
            threads |= dict.fromkeys(await self._unmarked_if_up())
        return list(threads)

    async def end(self, thread: Thread) -> None:
        """Flushes a thread and ends its spells; one that goes on meanwhile stays open."""
        await self.settle(thread)
        for waiting in await self._durable.ahead(thread.key, THREADS):
            await self.close(waiting.place, waiting.token, 0.0)

    async def erase(self, thread: Thread, namespaces: Sequence[str], needed: bool) -> bool:
        """Removes all that the hot tier holds of these namespaces of a thread that is gone; whether
        it can have held something alone.

        Raises:
            UnavailableError: if it cannot be reached, and is `needed`: what it held alone would be
                in its outbox for ever.
        """
        self._shared.unflushed.forget(thread)
        if self._hot is None and not needed:
            return False
        try:
            await self._outbox.erase(thread, sorted({"", *namespaces}))
        except UnavailableError:
            if needed:
                raise
        return needed or self._shared.policy.asks_hot

    async def give_up(self, place: Place, spell: Spell) -> None:
        """Goes on without what the hot tier alone held and what cannot be read any more; what can
        be is flushed."""
        await self.drain(place.thread)
        await self._outbox.discard(place, spell.token, spell.head.digest)
        await self._durable.clear_ahead(place, spell.token)
        await self._arbiter.accept_loss(place)  # of what the drain has set aside

    async def end_quiet(self, thread: Thread, quiet: float) -> None:
        """Ends the spells of a thread for which nothing came for `quiet` seconds."""
        for waiting in await self._durable.ahead(thread.key, THREADS):
            await self.close(waiting.place, waiting.token, quiet)

    async def namespaces(self, thread: Thread) -> list[str]:
        """Those of a thread in which the hot tier may be ahead, whether Postgres was told or not.

        Raises:
            UnavailableError: if either tier cannot be reached.
        """
        waiting = await self._durable.ahead(thread.key, THREADS)
        heads = await self._durable.heads(thread)
        try:
            out = await self._outbox.take(thread, b"", THREADS)
        except CorruptionError:
            out = None
        entries = out.entries if out is not None else ()
        found = (w.place.ns for w in waiting), (e.item.place.ns for e in entries)
        return sorted({*heads, *found[0], *found[1]})

    async def _unmarked_if_up(self) -> list[Thread]:
        try:
            return await self.unmarked()
        except UnavailableError:
            return []  # as of one thread: what Postgres was not told of is not waited for

    async def unmarked(self) -> list[Thread]:
        """The threads that have an outbox, whether Postgres knows of it or not."""
        return [Thread("", "", key) for key in await self._outbox.threads()]

    async def left_behind(self, limit: int, before: float) -> list[Thread]:
        """The threads whose heads were marked before then (seconds of the epoch)."""
        found = await self._durable.ahead(None, limit)
        return list(dict.fromkeys(w.place.thread for w in found if w.since < before))

    async def missing(self, items: Sequence[Trace]) -> None:
        """Reports those of these items that are not durable: nobody else knows of them."""
        for item in items:
            if not await self._has(item):
                head = await self._durable.read(item.place, None, b"", -1)
                self._shared.events.emit(
                    "state_lost",
                    f"Redis took {item.id}, which was never flushed, and no longer has it",
                    place=item.place,
                    checkpoint=head.head.id if head else None,
                )

    async def row_of(self, put: Put) -> RecordRow | None:
        """A put as it is durable, without its chunks."""
        rows = await self._durable.chain(put.place, put.id, 1)
        return rows[0] if rows else None

    async def has_writes(self, item: PutWrites) -> bool:
        """Whether a task's writes are durable, of special channels these or others."""
        return await self._has(trace_of(item))

    async def _has(self, item: Trace) -> bool:
        if item.writes is None:
            return bool(await self._durable.chain(item.place, item.id, 1))
        page = await self._durable.rest(item.place, [item.id], (), ())
        stored = page.writes.get((item.place.ns, item.id), ())
        ordinary = {(row.task, row.digest) for row in stored if row.slot >= 0}
        special = {(row.task, row.slot) for row in stored}
        return all(
            (task, digest) in ordinary if slot >= 0 else (task, slot) in special
            for task, slot, digest in item.writes
        )

    async def waits(self) -> list[tuple[int, float]]:
        """Of each thread that has something to flush, how many entries, and for how many seconds
        the oldest waits.

        Raises:
            UnavailableError: if the hot tier cannot be reached.
        """
        try:
            threads = await self.left_behind(THREADS, float("inf"))
        except UnavailableError:
            threads = await self.unmarked()
        own = self._shared.unflushed.threads()
        found = [await self._outbox.depth(thread) for thread in dict.fromkeys((*threads, *own))]
        return [(depth, age) for depth, age in found if depth]

    async def close(self, place: Place, token: bytes, quiet: float) -> bool:
        """Ends a spell in which nothing came for `quiet` seconds; tells whether it did."""
        if not await self._outbox.close(place, token, quiet):
            return False
        await self._durable.clear_ahead(place, token)
        await self._outbox.forget(place, token)
        return True
