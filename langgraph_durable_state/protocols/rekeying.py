"""Threads and data keys brought under the current keys, so that old ones can be retired."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..decisions.codec import Unsound
from ..decisions.digest import Seal
from ..decisions.resealing import Resealed
from ..decisions.serializing import Serializer
from ..errors import CorruptionError, KeyMissingError
from ..ports import Durable
from ..words import Owner, Place, Thread
from .rewriting import TRIES, Rewriter
from .shared import Shared
from .vault import Vault

KEYS = 500


@dataclass(frozen=True, slots=True)
class Unrekeyed:
    """A thread that was left as it is, and why: something of it is damaged, lost, or under a key
    that is not known. Without a ``thread`` it is a data key."""

    thread: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """What a call of `rekey` did.

    Attributes:
        threads: how many were looked at.
        rewritten: how many of them were under other keys, or in a format without edges, and are
            under the current ones now.
        busy: ids of those that moved on whenever they were about to be rewritten.
        keys: how many data keys were wrapped anew.
        damaged: threads and data keys that cannot be brought under the current keys.
    """

    threads: int
    rewritten: int
    busy: tuple[str, ...]
    keys: int
    damaged: tuple[Unrekeyed, ...] = ()


class Rekeyer:
    """Over one driver's tiers."""

    def __init__(self, shared: Shared, durable: Durable, vault: Vault, rewriter: Rewriter) -> None:
        self._shared = shared
        self._durable = durable
        self._vault = vault
        self._rewriter = rewriter

    async def rekey(
        self, serializer: Serializer, thread: Thread, renewed: set[Owner] | None
    ) -> bool | None:
        """Brings a thread under the current keys, in today's format; whether it was under others,
        or in another; None if it is busy.

        Args:
            serializer: reads metadata, for what is searched.
            thread: which.
            renewed: owners that have got a new data key already; added to. None to give none.

        Raises:
            CorruptionError: if something of it is not what was written; it is left as it is.
            KeyMissingError: if it is under a key that is not known.
        """
        rewrite = partial(self._rewritten, serializer, thread)
        rewritten = False
        for _ in range(TRIES):
            done = await self._rewriter.tried(thread, renewed, rewrite)
            if done is None:
                return None
            old, seal = done
            rewritten = rewritten or old
            left = partial(self._is_left, thread, seal)
            if not await self._vault.reading(thread, left):
                return rewritten
        return None

    async def _is_left(self, thread: Thread, seal: Seal) -> bool:
        """Whether something came meanwhile that is under another seal, or waits to be stored."""
        async for page in self._rewriter.pages(thread, light=True):
            blobs = [(row.record, row.digest) for _, row in page.rows]
            blobs += [(row.blob, row.digest) for rows in page.writes.values() for row in rows]
            try:
                if any(self._shared.blobs.unpack(*one).seal.id != seal.id for one in blobs):
                    return True
            except Unsound:
                return True  # the next look tells what is wrong
        return await self._rewriter.waits(thread)

    async def _rewritten(
        self, serializer: Serializer, thread: Thread, seal: Seal
    ) -> tuple[bool, Seal] | None:
        """Rewrites once, whether that was needed, and under which seal; None if the thread moved
        on meanwhile."""
        known = await self._durable.heads(thread)
        pages = [page async for page in self._rewriter.pages(thread)]
        shown = partial(self._rewriter.shown, serializer)
        made = Resealed(self._shared.blobs, seal, self._shared.numbers, shown)
        for page in pages:
            for ns, id in page.writes:
                for write, batch, of in self._rewriter.batches(thread, page, ns, id):
                    made.batch([(ns, write)], Place(thread, ns), batch, of)
        for row, record in self._rewriter.records(thread, pages, known):
            is_head = row.ns in known and known[row.ns].id == row.id
            made.record(row, record, is_head)
        if made.old and not await self._rewriter.replaced(thread, known, made.done()):
            return None
        return made.old, seal

    async def rewrap(self) -> tuple[int, list[Unrekeyed]]:
        """Wraps data keys that are under another master key anew: how many it did, and which it
        could not."""
        done, after = 0, b""
        left: list[Unrekeyed] = []
        while (master := self._vault.master) is not None:
            stale = await self._durable.data_keys_besides(master, after, KEYS)
            if not stale:
                break
            for key in stale:
                try:
                    made = self._vault.rewrapped(key)
                except (CorruptionError, KeyMissingError) as error:
                    left.append(Unrekeyed("", f"data key {key.id.hex()}: {error}"))
                    continue
                await self._durable.add_data_key(made)
                done += 1
            after = stale[-1].id
        return done, left
