"""Threads and data keys brought under the current keys, so that old ones can be retired."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..decisions.digest import Seal
from ..decisions.resealing import Resealed
from ..decisions.serializing import Serializer
from ..ports import Durable
from ..words import Owner, Place, Thread
from .rewriting import Rewriter
from .shared import Shared
from .vault import Vault

KEYS = 500


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """What a call of `rekey` did.

    Attributes:
        threads: how many were looked at.
        rewritten: how many of them were under other keys, and are under the current ones now.
        busy: ids of those that moved on whenever they were about to be rewritten.
        keys: how many data keys were wrapped anew.
    """

    threads: int
    rewritten: int
    busy: tuple[str, ...]
    keys: int


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
        """Brings a thread under the current keys; whether it was under others, None if it is busy.

        Args:
            serializer: reads metadata, for what is searched.
            thread: which.
            renewed: owners that have got a new data key already; added to. None to give none.

        Raises:
            CorruptionError: if something of it is not what was written; it is left as it is.
            KeyMissingError: if it is under a key that is not known.
        """
        rewrite = partial(self._rewritten, serializer, thread)
        return await self._rewriter.tried(thread, renewed, rewrite)

    async def _rewritten(self, serializer: Serializer, thread: Thread, seal: Seal) -> bool | None:
        """Rewrites once; None if the thread moved on meanwhile."""
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
        return made.old

    async def rewrap(self) -> int:
        """Wraps data keys that are under another master key anew; how many there were.

        Raises:
            KeyMissingError: if one is under a master key that is not known.
        """
        done, after = 0, b""
        while (master := self._vault.master) is not None:
            stale = await self._durable.data_keys_besides(master, after, KEYS)
            if not stale:
                break
            for key in stale:
                await self._durable.add_data_key(self._vault.rewrapped(key))
            done, after = done + len(stale), stale[-1].id
        return done
