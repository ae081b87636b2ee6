"""Brings what the hot tier holds alone to Postgres: in order, at least once, idempotent.

A drained put that finds the durable head moved is kept beside it and reported, never dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..decisions import keys
from ..decisions.outgoing import NEVER
from ..errors import UnavailableError
from ..ports import Durable, Outbox
from ..words import (
    Ahead,
    Claim,
    Digest,
    Entry,
    Kept,
    Lost,
    Outcome,
    Outgoing,
    ParentGone,
    Place,
    Put,
    Stored,
    Thread,
    Won,
)
from .shared import Shared

BATCH = 64
"""Entries of one thread that are taken at once."""

THREADS = 1_000
"""Marked heads that are looked at in one go."""


@dataclass
class Taken:
    """A thread's oldest entries on their way to Postgres.

    Attributes:
        thread, out: which, as taken.
        at: how many of them are done.
        flushed: digests of the heads among those, by namespace and token.
    """

    thread: Thread
    out: Outgoing
    at: int = 0
    flushed: defaultdict[tuple[str, bytes], list[Digest]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def wave(self) -> Sequence[Entry]:
        """The entries that may go together next: at most one put per head."""
        heads: set[Place] = set()
        rest = self.out.entries[self.at :]
        for i, entry in enumerate(rest):
            if isinstance(entry.item, Put):
                if entry.item.place in heads:
                    return rest[:i]
                heads.add(entry.item.place)
        return rest


class Flusher:
    """Flushes through one driver's tiers.

    Args:
        shared: the saver's.
        durable: where to.
        outbox: where from; None if there is no hot tier.
    """

    def __init__(self, shared: Shared, durable: Durable, outbox: Outbox | None) -> None:
        self._shared = shared
        self._durable = durable
        self._hot = outbox
        self._holder = keys.token()

    @property
    def _outbox(self) -> Outbox:
        if self._hot is None:
            raise UnavailableError("redis", "this saver has none, and it may be ahead of Postgres")
        return self._hot

    # -- flushing ----------------------------------------------------------------------------

    async def drain(self, thread: Thread) -> None:
        """Makes all that was acknowledged of a thread so far durable.

        Raises:
            UnavailableError: if either tier cannot be reached.
        """
        while (out := await self._outbox.take(thread, b"", BATCH)) is not None and out.entries:
            taken = Taken(thread, out)
            await self._store([taken])
            await self._ack(taken, b"")
            if not out.left:
                return

    async def flush(self, threads: Iterable[Thread]) -> list[Thread]:
        """Flushes a round of several threads together; those that have more are returned.

        Raises:
            UnavailableError: if either tier cannot be reached.
        """
        taken, more = [], []
        for thread in threads:
            out = await self._outbox.take(thread, self._holder, BATCH)
            if out is None:
                more.append(thread)
            elif out.entries:
                taken.append(Taken(thread, out))
        if taken:
            await self._store(taken)
        for one in taken:
            if await self._ack(one, self._holder):
                more.append(one.thread)
        return more

    async def _ack(self, taken: Taken, holder: bytes) -> int:
        return await self._outbox.ack(
            taken.thread, holder, taken.out.first, len(taken.out.entries), taken.flushed
        )

    async def _store(self, taken: Sequence[Taken]) -> None:
        """Commits in waves, each of which has at most one put per head."""
        while True:
            waves = [(one, entry) for one in taken for entry in one.wave()]
            if not waves:
                return
            await self._guard(entry for _, entry in waves if not entry.guarded)
            outcomes = await self._durable.commit([entry.item for _, entry in waves])
            for (one, entry), outcome in zip(waves, outcomes, strict=True):
                await self._settle(one, entry, outcome)
                one.at += 1

    async def _guard(self, entries: Iterable[Entry]) -> None:
        """Marks the durable heads of spells that were opened while Postgres could not be asked."""
        for place, token in {(entry.item.place, entry.token): None for entry in entries}:
            marked = await self._durable.mark_ahead(place, token, [token])
            if marked is not None and marked[1] == token:
                await self._outbox.guard(place, token)

    async def _settle(self, taken: Taken, entry: Entry, outcome: Outcome) -> None:
        item = entry.item
        if not isinstance(item, Put) or entry.refused or isinstance(outcome, (Kept, Stored)):
            return
        if isinstance(outcome, Won):
            if entry.advances:
                taken.flushed[item.place.ns, entry.token].append(item.digest)
            return
        if isinstance(outcome, Ahead):
            # Another spell has begun since: this one was not known to Postgres.
            aside = replace(item, claim=Claim.HEAD, expected=NEVER, spell=outcome.token)
            outcome = (await self._durable.commit([aside]))[0]
        await self._durable.clear_ahead(item.place, entry.token)
        await self._outbox.discard(item.place, entry.token, b"")
        self._report(item, outcome)

    def _report(self, put: Put, outcome: Outcome) -> None:
        kept = isinstance(outcome, Lost) and outcome.kept
        actual = outcome.actual if isinstance(outcome, Lost) else None
        gone = "what it is made from is gone" if isinstance(outcome, ParentGone) else "it is gone"
        self._shared.events.emit(
            "branch_kept" if kept else "state_lost",
            thread=put.place.thread.id,
            namespace=put.place.ns,
            checkpoint=put.id,
            detail=f"it was acknowledged by Redis, but the durable head is {actual} now"
            + ("; it is kept beside it" if kept else f"; {gone}"),
        )

    # -- before a thread is read or changed as a whole ---------------------------------------

    async def settle(self, thread: Thread) -> None:
        """Makes a thread's acknowledged state durable, if the hot tier may be ahead of it.

        Raises:
            UnavailableError: if that cannot be done, or not be known.
        """
        asks = self._hot is not None and self._shared.policy.asks_hot
        if asks or await self._durable.ahead(thread.key, 1):
            try:
                await self.drain(thread)
            except UnavailableError as error:
                if error.tier != "redis" or not await self._ignorable(thread):
                    raise

    async def _ignorable(self, thread: Thread) -> bool:
        """Whether a thread may be taken as Postgres has it, though Redis cannot be asked."""
        return self._shared.policy.accepts_loss or not await self._durable.ahead(thread.key, 1)

    async def settle_all(self) -> None:
        """The same for every thread."""
        for waiting in await self._durable.ahead(None, THREADS):
            await self.settle(waiting.place.thread)

    async def end(self, thread: Thread) -> None:
        """Flushes a thread and ends its spells; one that goes on meanwhile stays open."""
        await self.settle(thread)
        for waiting in await self._durable.ahead(thread.key, THREADS):
            await self.close(waiting.place, waiting.token, 0.0)

    async def erase(self, thread: Thread, namespaces: Sequence[str], needed: bool) -> None:
        """Removes all that the hot tier holds of these namespaces of a thread that is gone.

        Raises:
            UnavailableError: if it cannot be reached, and is `needed`: what it held alone would be
                in its outbox for ever.
        """
        if self._hot is None and not needed:
            return
        try:
            await self._outbox.erase(thread, sorted({"", *namespaces}))
        except UnavailableError:
            if needed:
                raise

    async def end_quiet(self, thread: Thread, quiet: float) -> None:
        """Ends the spells of a thread for which nothing came for `quiet` seconds."""
        for waiting in await self._durable.ahead(thread.key, THREADS):
            await self.close(waiting.place, waiting.token, quiet)

    async def left_behind(self, limit: int, before: float) -> list[Thread]:
        """The threads whose heads were marked before then (seconds of the epoch)."""
        found = await self._durable.ahead(None, limit)
        return list(dict.fromkeys(w.place.thread for w in found if w.since < before))

    async def close(self, place: Place, token: bytes, quiet: float) -> bool:
        """Ends a spell in which nothing came for `quiet` seconds; tells whether it did."""
        if not await self._outbox.close(place, token, quiet):
            return False
        await self._durable.clear_ahead(place, token)
        await self._outbox.forget(place, token)
        return True
