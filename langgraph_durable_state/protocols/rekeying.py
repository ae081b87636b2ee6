"""Threads and data keys brought under the current keys, so that old ones can be retired."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial

from ..decisions import codec, heads, projection
from ..decisions.codec import Unsound
from ..decisions.digest import Seal
from ..decisions.resealing import Resealed, chunks_of, parents_first
from ..decisions.serializing import Serializer
from ..errors import CorruptionError, EvolutionError, KeyMissingError
from ..ports import Durable, Outbox
from ..words import Listing, Owner, Page, Place, Thread, Typed
from .anchoring import Anchors
from .reading import corrupt
from .settling import Settler
from .shared import Shared
from .vault import Vault

PAGE = 100
"""Checkpoints read per round trip, with all that they hold."""

TRIES = 5
"""A thread that moves on meanwhile is read again; five times, then it is busy."""

KEYS = 500

_LAST = "\U0010ffff"
"""Comes after every namespace."""


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
        rewritten: how many of them were under other keys, and are under the current ones now.
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

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        outbox: Outbox | None,
        flusher: Settler,
        vault: Vault,
        anchors: Anchors,
    ) -> None:
        self._shared = shared
        self._durable = durable
        self._outbox = outbox
        self._flusher = flusher
        self._vault = vault
        self._anchors = anchors

    async def threads(self, tenant: str) -> AsyncIterator[Thread]:
        """All threads of a tenant."""
        listing = Listing(None, tenant, None, None, None, {}, 1, light=True)
        while (page := await self._durable.page(listing)).rows:
            thread = page.rows[-1][0]
            yield thread
            listing = replace(listing, after=(thread.key, _LAST, 0))

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
        await self._flusher.settle(thread)
        seal = self._vault.at_hand(thread, None)
        if seal is None:
            _, seal = await self._vault.of_owner(thread, renewed)
        rewritten, seen = False, ""
        for _ in range(TRIES):
            try:
                rewrite = partial(self._rewritten, serializer, thread, seal)
                done = await self._vault.reading(thread, rewrite)
            except CorruptionError as error:
                if str(error) == seen:
                    raise
                seen = str(error)  # it may have been removed while it was read
                continue
            if done is None:
                await self._flusher.end(thread)
                continue
            rewritten = rewritten or done
            await self._flusher.settle(thread)
            left = partial(self._is_left, thread, seal)
            if not await self._vault.reading(thread, left):
                return rewritten
        return None

    async def _is_left(self, thread: Thread, seal: Seal) -> bool:
        """Whether something came meanwhile that is under another seal, or waits to be stored."""
        for page in await self._pages(thread, light=True):
            blobs = [(row.record, row.digest) for _, row in page.rows]
            blobs += [(row.blob, row.digest) for rows in page.writes.values() for row in rows]
            try:
                if any(self._shared.blobs.unpack(*one).seal.id != seal.id for one in blobs):
                    return True
            except Unsound:
                return True  # the next look tells what is wrong
        if self._outbox is None or not self._shared.policy.asks_hot:
            return False
        return (await self._outbox.depth(thread))[0] > 0

    async def _rewritten(self, serializer: Serializer, thread: Thread, seal: Seal) -> bool | None:
        """Rewrites once; None if the thread moved on meanwhile."""
        known = await self._durable.heads(thread)
        pages = await self._pages(thread)
        shown = partial(self._shown, serializer)
        made = Resealed(self._shared.blobs, seal, self._shared.numbers, shown)
        for page in pages:
            self._reseal_writes(thread, page, made)
        records = [
            (row, self._shared.reader.record(Place(thread, row.ns), row, page.chunks))
            for page in reversed(pages)
            for _, row in reversed(page.rows)
        ]
        for row, record in parents_first(records):
            is_head = row.ns in known and known[row.ns].id == row.id
            made.record(row, record, is_head)
        rows = made.done()
        if made.old and not await self._durable.rewrite(thread, known, rows):
            return None
        if self._outbox is not None:
            for ns in known:
                await self._outbox.outdated(Place(thread, ns))
        for ns, head in rows.heads.items() if made.old else ():
            told = heads.witness(head.id, head.digest, head.seal)
            await self._anchors.tell(Place(thread, ns), told)
        return made.old

    def _reseal_writes(self, thread: Thread, page: Page, made: Resealed) -> None:
        for (ns, id), rows in page.writes.items():
            place = Place(thread, ns)
            for row in rows:
                try:
                    own = self._shared.reader.chunks(chunks_of(page.chunks, row.numbers))
                    batch = codec.read_batch(place, row, own, self._shared.blobs)
                    seal = self._shared.blobs.unpack(row.blob, row.digest).seal
                except Unsound as found:
                    raise corrupt(place, id, found) from found
                made.batch(place, row, batch, seal)

    async def _pages(self, thread: Thread, light: bool = False) -> list[Page]:
        """All of a thread, newest first; without its chunks' data if `light`."""
        listing = Listing(thread, thread.tenant, None, None, None, {}, PAGE, light=light)
        pages = []
        while (page := await self._durable.page(listing)).rows:
            pages.append(page)
            if len(page.rows) < PAGE:
                break
            row = page.rows[-1][1]
            listing = replace(listing, after=(thread.key, row.ns, row.seq))
        return pages

    def _shown(self, serializer: Serializer, metadata: Typed) -> str:
        try:
            found = serializer.loads(metadata.tag, metadata.data)
        except Exception as error:  # the bytes are what was written
            raise EvolutionError(f"its metadata cannot be read: {error}") from error
        return projection.of_metadata(found, self._shared.blobs.keys.clear)

    async def rewrap(self) -> tuple[int, list[Unrekeyed]]:
        """Wraps data keys that are under another master key anew: how many it did, and which it
        could not."""
        done, after, left = 0, b"", []
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
