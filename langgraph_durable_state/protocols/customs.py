"""Entries of outboxes on their way into Postgres: whoever can write to Redis must not write rows by
that. What is not what was acknowledged is restored from what else there is of it, or set aside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from ..decisions import arrivals, outgoing
from ..decisions.codec import Unsound, bare_chunk
from ..decisions.evidence import described, hot_quarantined
from ..decisions.keys import token
from ..decisions.matching import Chunk
from ..errors import CorruptionError, EvolutionError
from ..ports import Durable, Outbox
from ..words import Entry, Place, Put, PutWrites, Thread
from .checking import Check, Tally
from .hotscrubbing import HotScrub
from .shared import Shared
from .vault import Vault

MARKED = 1_000
"""Marked heads of a thread that are looked at in one go."""

_TOKEN = slice(1, 17)


class Customs:
    """Over one driver's tiers.

    Args:
        shared: the saver's.
        durable: where entries go to; has the chunks that they refer to.
        vault: has the keys.
    """

    def __init__(self, shared: Shared, durable: Durable, vault: Vault) -> None:
        self._shared = shared
        self._durable = durable
        self._vault = vault

    async def proven(
        self, thread: Thread, item: Put | PutWrites, known: dict[int, Chunk]
    ) -> Put | PutWrites:
        """The item as it is to be stored; as it is where nobody here can tell: it is under a key
        that this process has not, and whoever reads it has to prove it.

        Args:
            thread: whose outbox it is from.
            item: as it is.
            known: chunks of the thread that are durable already; added to.

        Raises:
            Unsound: if it is not what was acknowledged.
        """
        if item.place.thread.key != thread.key:
            raise Unsound(None, "it names another thread")
        if numbers := arrivals.missing(item, known):
            page = await self._durable.rest(item.place, (), (), sorted(numbers))
            known.update((no, bare_chunk(row)) for no, row in page.chunks.items())
        if arrivals.missing(item, known) and await self._is_bereft(item):
            return item  # which is told by who stores it

        blobs = self._shared.blobs
        describe = partial(described, serializer=self._shared.serializer, clear=blobs.keys.clear)

        async def prove() -> Put | PutWrites:
            return arrivals.proven(item, known, blobs, describe)

        try:
            right = await self._vault.reading(thread, prove)
        except (EvolutionError, CorruptionError):
            return item
        known.update((chunk.no, bare_chunk(chunk)) for chunk in item.chunks)
        return right

    async def _is_bereft(self, item: Put | PutWrites) -> bool:
        """Whether what an item is made from is gone, and its chunks with that."""
        if not isinstance(item, Put) or item.refers is None:
            return False
        rows = await self._durable.chain(item.place, item.refers, 1)
        return not rows or rows[0].digest != item.base

    async def clear(
        self, outbox: Outbox, thread: Thread, prove: Callable[[Entry], Awaitable[object]]
    ) -> bool:
        """Deals with the oldest entry of an outbox, if it is not what was acknowledged, which
        ``prove`` says by an `Unsound`; whether the oldest is another one now.

        It is restored from Redis or Postgres if one of them has it. If not, it goes to quarantine,
        and if the head stands on it, that is lost until the loss is accepted.
        """
        await self._vault.gather(thread)
        before = (await outbox.entries(thread, 0, 1)).entries
        tally = Tally()
        check = Check(
            self._shared, self._durable, outbox, self._shared.serializer, True, tally, thread
        )
        hot = HotScrub(check, outbox)
        if not check.named:
            await hot.names()
        await hot.scrub_entries()
        for raw in (await outbox.entries(thread, 0, 1)).entries:
            entry: Entry | None = None
            try:
                entry = outgoing.read_entry(raw)
                await prove(entry)
            except Unsound as found:
                await self._set_aside(outbox, check.thread, raw, entry, found.detail)
        return (await outbox.entries(thread, 0, 1)).entries != before

    async def _set_aside(
        self, outbox: Outbox, thread: Thread, raw: bytes, entry: Entry | None, reason: str
    ) -> None:
        ns, id = (entry.item.place.ns, entry.item.id) if entry is not None else ("", "")
        kept = hot_quarantined(thread.key, "entry", ns, id, {"entry": raw}, reason)
        await self._durable.quarantine([kept])
        if raw[:1] != outgoing.WRITES and (entry is None or entry.advances):
            await self._lose(outbox, thread, raw[_TOKEN])
        if await outbox.skip(thread, raw) is not None:
            head = await self._durable.read(Place(thread, ns), None, b"", -1)
            named = thread if thread.id else replace(thread, id=thread.key.hex)
            self._shared.events.emit(
                "state_lost",
                f"Redis had acknowledged {id or 'something'}, which is in quarantine: {reason}",
                place=Place(named, ns),
                checkpoint=head.head.id or None if head is not None else None,
            )

    async def _lose(self, outbox: Outbox, thread: Thread, spell: bytes) -> None:
        """Has nothing served of the heads that stand on an entry: they are marked with the name
        of a spell that there is not, as if Redis had lost it."""
        waiting = await self._durable.ahead(thread.key, MARKED)
        for one in [w for w in waiting if w.token == spell] or waiting:
            await self._durable.mark_ahead(one.place, token(), [one.token])
            await outbox.discard(one.place, one.token, b"")
