"""A thread rewritten as a whole, in one transaction: what all that do so have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ..decisions import codec, heads, keys, projection
from ..decisions.codec import Batch, Record, Unsound
from ..decisions.digest import Seal
from ..decisions.matching import Chunk
from ..decisions.resealing import chunks_of, parents_first
from ..decisions.serializing import Serializer
from ..errors import CorruptionError, EvolutionError
from ..ports import Durable, Outbox
from ..words import Head, Listing, Owner, Page, Place, RecordRow, Rewritten, Thread, WriteRow
from .anchoring import Anchors
from .reading import corrupt
from .settling import Settler
from .shared import Shared
from .vault import Vault

PAGE = 100
"""Checkpoints read per round trip, with all that they hold."""

TRIES = 5
"""A thread that moves on meanwhile is read again; five times, then it is busy."""

_LAST = "\U0010ffff"
"""Comes after every namespace."""

T = TypeVar("T")


class Rewriter:
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
        self._policy = shared.policy
        self._reader = shared.reader
        self._blobs = shared.blobs
        self._durable = durable
        self._outbox = outbox
        self._flusher = flusher
        self._vault = vault
        self._anchors = anchors

    async def threads(
        self, tenant: str, ids: Sequence[str] | None
    ) -> AsyncIterator[tuple[Thread, float]]:
        """Threads of a tenant, and which part of all come no later than each: those with these
        ids, or all, in the order of their keys.

        Raises:
            UsageError: if an id cannot be used.
        """
        if ids is not None:
            for n, id in enumerate(ids, 1):
                named = {"thread_id": id, "tenant_id": tenant}
                yield keys.thread_of({"configurable": named}), n / len(ids)
            return
        listing = Listing(None, tenant, None, None, None, {}, 1, light=True)
        while (page := await self._durable.page(listing)).rows:
            thread = page.rows[-1][0]
            yield thread, keys.share(thread.key)
            listing = replace(listing, after=(thread.key, _LAST, 0))

    async def tried(
        self,
        thread: Thread,
        renewed: set[Owner] | None,
        once: Callable[[Seal], Awaitable[T | None]],
    ) -> T | None:
        """What `once` gives that rewrites a thread under a seal; None if it gave None, since the
        thread moved on meanwhile, each time.

        Args:
            thread: which; what the hot tier alone holds of it is flushed first.
            renewed: owners that have got a new data key already; added to. None to give none.
            once: rewrites it.

        Raises:
            KeyMissingError: if it is under a key that is not known.
            UnavailableError, StateLostError, CorruptionError: as of a settler.
        """
        await self._flusher.settle(thread)
        seal = self._vault.at_hand(thread, None)
        if seal is None:
            _, seal = await self._vault.of_owner(thread, renewed)
        seen = ""
        for _ in range(TRIES):
            try:
                done = await self._vault.reading(thread, partial(once, seal))
            except CorruptionError as error:
                if str(error) == seen:
                    raise
                seen = str(error)  # it may have been removed while it was read
                continue
            if done is not None:
                return done
            await self._flusher.end(thread)
        return None

    async def waits(self, thread: Thread) -> bool:
        """Whether something waits in the hot tier to be stored."""
        if self._outbox is None or not self._policy.asks_hot:
            return False
        return (await self._outbox.depth(thread))[0] > 0

    async def pages(self, thread: Thread, light: bool = False) -> AsyncIterator[Page]:
        """All of a thread, newest first."""
        listing = Listing(thread, thread.tenant, None, None, None, {}, PAGE, light=light)
        while (page := await self._durable.page(listing)).rows:
            yield page
            if len(page.rows) < PAGE:
                return
            row = page.rows[-1][1]
            listing = replace(listing, after=(thread.key, row.ns, row.seq))

    def records(
        self, thread: Thread, pages: Sequence[Page], known: Mapping[str, Head]
    ) -> Iterator[tuple[RecordRow, Record]]:
        """All records, verified, none before its parent.

        Raises:
            CorruptionError: if one is not what was written.
            HeadMovedError: if a head was not signed as one.
        """
        parsed: dict[int, Chunk] = {}
        records = [
            (row, self._reader.record(Place(thread, row.ns), row, page.chunks, parsed))
            for page in reversed(pages)
            for _, row in reversed(page.rows)
        ]
        for row, record in records:
            head = known.get(row.ns)
            if head is not None and (head.id, head.digest) == (row.id, row.digest):
                self._anchors.check(record.place, head, record)
        return parents_first(records)

    def batches(
        self, thread: Thread, page: Page, ns: str, id: str
    ) -> Iterator[tuple[WriteRow, Batch, Seal]]:
        """The writes against a checkpoint, verified.

        Raises:
            CorruptionError: if one is not what was written.
        """
        place = Place(thread, ns)
        for row in page.writes.get((ns, id), ()):
            try:
                own = self._reader.chunks(chunks_of(page.chunks, row.numbers))
                batch = codec.read_batch(place, row, own, self._blobs)
                yield row, batch, self._blobs.unpack(row.blob, row.digest).seal
            except Unsound as found:
                raise corrupt(place, id, found) from found

    def shown(self, serializer: Serializer, record: Record) -> str:
        """A record's metadata as it is searched.

        Raises:
            EvolutionError: if this code cannot read it.
        """
        of = self._reader.shape.reader(serializer, record.schema_version)
        try:
            found = of.loads(record.metadata.tag, record.metadata.data)
        except Exception as error:  # the bytes are what was written
            raise EvolutionError(f"its metadata cannot be read: {error}") from error
        return projection.of_metadata(found, self._blobs.keys.clear)

    async def replaced(self, thread: Thread, known: Mapping[str, Head], rows: Rewritten) -> bool:
        """Stores what was made of a thread, if it is still what it was; tells whether it was."""
        gone = sorted(rows.former.values())
        if gone:
            await self._anchors.forget(thread, gone)
        if not await self._durable.rewrite(thread, known, rows):
            return False
        if gone:  # a reader may have told it again
            await self._anchors.forget(thread, gone)
        if self._outbox is not None:
            for ns in known:
                await self._outbox.outdated(Place(thread, ns))
        for ns, head in rows.heads.items():
            told = heads.witness(head.id, head.digest, head.seal)
            await self._anchors.tell(Place(thread, ns), told)
        return True
