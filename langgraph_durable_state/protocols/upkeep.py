"""Removing and copying: delete, prune, copy, written once over the durable tier.

Whatever is removed, a kept checkpoint keeps all that it needs: chunks it shares, the ancestors
its DeltaChannels are made from, and its pending writes.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ..decisions import codec, edges, projection
from ..decisions.codec import Blobs, Record, Unsound
from ..decisions.digest import Seal
from ..decisions.evidence import answers, described
from ..decisions.keyring import KeyNeeded
from ..decisions.matching import Chunk
from ..decisions.rechaining import Rechained
from ..decisions.serializing import Serializer
from ..errors import (
    ConflictError,
    CorruptionError,
    EvolutionError,
    StateLostError,
    UsageError,
)
from ..ports import Durable
from ..words import Digest, Edge, Head, Listing, Page, Place, RecordRow, Thread, WriteRow
from . import history
from .anchoring import Anchors
from .copies import Copies
from .reading import corrupt
from .settling import Settler
from .shaping import Shape
from .vault import Vault

logger = logging.getLogger("langgraph_durable_state")

PAGE = 200
"""Records copied per round trip, without their chunks: some 200 KB."""

DELETIONS = 3
"""A put beside a deletion may begin a spell after each round of it, which then has no mark; after
the last one a flush marks it again."""

TRIES = 5
"""A prune of a thread whose head moves meanwhile starts again; five times, then it gives up."""


NO_HEAD = Head("", 0, b"")


class Upkeep:
    """Upkeep over one driver's tiers."""

    def __init__(
        self,
        durable: Durable,
        copies: Copies,
        flusher: Settler,
        blobs: Blobs,
        shape: Shape,
        vault: Vault,
        anchors: Anchors,
    ) -> None:
        self._vault = vault
        self._anchors = anchors
        self._durable = durable
        self._copies = copies
        self._flusher = flusher
        self._blobs = blobs
        self._shape = shape

    async def delete_thread(self, thread: Thread) -> None:
        try:
            # Namespaces that only the hot tier knows of are found once they are in the durable one.
            await self._flusher.settle(thread)
        except (CorruptionError, EvolutionError, StateLostError) as error:
            logger.warning("thread %r is deleted as it is: %s", thread.id, error)
        if self._anchors.signs:
            known = list(await self._durable.heads(thread))
            await self._anchors.forget(thread, known, before=True)
        ahead = await self._durable.delete_thread(thread)
        # Of a thread that is gone already too: its deletion may have been stopped before this.
        await self._anchors.forget(thread, sorted({"", *ahead}))
        for _ in range(DELETIONS):
            marked = any(ahead.values())
            if not await self._flusher.erase(thread, list(ahead), needed=marked):
                return
            # A flush under way may have stored what it had taken before, or a put marked a head:
            # its spell must not be left without the mark.
            ahead = await self._durable.delete_thread(thread)
            if not any(ahead.values()):
                return

    async def delete_for_runs(
        self, serializer: Serializer, tenant: str, run_ids: Sequence[str]
    ) -> None:
        """Removes what these runs put, but for what the DeltaChannels of a head that stays are
        made from.

        Raises:
            CorruptionError: if a record that has to be looked at is not what was written, or a
                checkpoint that was found is not one of theirs.
        """
        if not run_ids:
            return
        await self._flusher.settle_all()
        doomed: defaultdict[Thread, set[tuple[str, str]]] = defaultdict(set)
        for thread, ns, id in await self._durable.runs(tenant, run_ids):
            doomed[thread].add((ns, id))
        for thread in doomed:
            meant = partial(self._require_made_by, serializer, thread, run_ids)
            await self._vault.reading(thread, meant)
        for thread, ids in doomed.items():
            for _ in range(TRIES):
                removed = partial(self._removed, serializer, thread, ids)
                if await self._vault.reading(thread, removed):
                    break
                await self._flusher.end(thread)
            else:
                raise _busy(thread, "remove what was asked for")

    async def _require_made_by(
        self, serializer: Serializer, thread: Thread, run_ids: Sequence[str]
    ) -> None:
        """Raises CorruptionError if runs are said to have made what they did not."""
        for run_id in run_ids:
            wanted = projection.of_filter({"run_id": run_id})
            for page in await self._pages(thread, None, wanted):
                for _, row in page.rows:
                    place = Place(thread, row.ns)
                    try:
                        record = self._record(place, row, page)
                    except KeyNeeded:
                        raise
                    except (CorruptionError, EvolutionError):
                        continue  # it goes, whoever made it
                    shown = described(record, serializer, self._blobs.keys.clear)
                    if not answers(shown, wanted):
                        what = Unsound(None, "what runs are found by is not its metadata")
                        raise corrupt(place, row.id, what)

    async def _removed(
        self, serializer: Serializer, thread: Thread, ids: set[tuple[str, str]]
    ) -> bool:
        """Removes these checkpoints of a thread; not while the hot tier may be ahead of it."""
        heads = await self._surviving(thread, ids)
        needed = (await self._needed(serializer, thread, heads)).keys()
        doomed, left = sorted(ids - needed), None
        if self._anchors.signs:
            left = self._edges(thread, await self._durable.children(thread, doomed))
        seals = await self._signed(thread, heads) if self._anchors.signs else {}
        done = await self._durable.remove(thread, doomed, seals, left)
        await self._anchors.forget(thread, list(heads))
        if done and (kept := ids & needed):
            logger.warning(
                "%d checkpoints of thread %r stay: its head's DeltaChannels are made from them",
                len(kept),
                thread.id,
            )
        if done:
            await self._copies.drop(thread, sorted({ns for ns, _ in ids - needed}))
        return done

    async def _signed(self, thread: Thread, heads: dict[str, Head]) -> dict[Digest, bytes]:
        """What signs these heads, which are about to be moved back; so that nothing contradicts
        that, it is not witnessed what they were before."""
        seals: dict[Digest, bytes] = {}
        for ns, head in heads.items():
            page = await self._durable.page(
                Listing(thread, thread.tenant, ns, head.id, None, {}, 1, light=True)
            )
            for _, row in page.rows:
                place = Place(thread, ns)
                seals |= self._anchors.seals(place, [self._record(place, row, page)])
        await self._anchors.forget(thread, list(await self._durable.heads(thread)), before=True)
        return seals

    async def _surviving(self, thread: Thread, doomed: set[tuple[str, str]]) -> dict[str, Head]:
        """The heads that a thread will have without `doomed`."""
        out = {}
        for ns, head in (await self._durable.heads(thread)).items():
            if (ns, head.id) not in doomed:
                out[ns] = head
                continue
            listing = Listing(thread, thread.tenant, ns, None, None, {}, PAGE, light=True)
            while (page := await self._durable.page(listing)).rows:
                left = [r for _, r in page.rows if not r.refused and (ns, r.id) not in doomed]
                if left:
                    out[ns] = Head(left[0].id, left[0].seq, left[0].digest)
                    break
                listing = replace(listing, after=(thread.key, ns, page.rows[-1][1].seq))
        return out

    # -- prune -------------------------------------------------------------------------------

    async def prune(self, serializer: Serializer, thread: Thread, strategy: str) -> None:
        """Keeps the head of each namespace and what it needs, or nothing (``"delete"``).

        Raises:
            UsageError: if the strategy is unknown.
            ConflictError: if the thread moved on at each of several tries.
        """
        check_strategy(strategy)
        if strategy == "delete":
            await self.delete_thread(thread)
            return
        await self._flusher.settle(thread)
        for _ in range(TRIES):
            heads = await self._durable.heads(thread)
            keeping = partial(self._keeping, serializer, thread, heads)
            kept, left = await self._vault.reading(thread, keeping)
            if await self._durable.keep(thread, kept, heads, left):
                return
        raise _busy(thread, "prune it")

    async def _keeping(
        self, serializer: Serializer, thread: Thread, heads: dict[str, Head]
    ) -> tuple[list[tuple[str, str]], list[Edge]]:
        """What stays of a thread, and those of it whose parents do not."""
        rows = await self._needed(serializer, thread, heads)
        left = (row for row in rows.values() if row and (row.ns, row.parent or "") not in rows)
        return list(rows), self._edges(thread, left) if self._anchors.signs else []

    def _edges(self, thread: Thread, rows: Iterable[RecordRow]) -> list[Edge]:
        """What rows are to say of their parents, which are about to go.

        Raises:
            KeyMissingError: if one is under a key that is not known.
        """
        return [Edge(row.ns, row.id, row.digest, self._edge(thread, row)) for row in rows]

    def _edge(self, thread: Thread, row: RecordRow) -> bytes:
        try:
            seal = self._blobs.unpack(row.record, row.digest).seal
        except Unsound:
            return b""  # it is damage, whatever it says of its parent
        return edges.edge(seal, Place(thread, row.ns), row.id, row.digest, row.parent)

    async def _needed(
        self, serializer: Serializer, thread: Thread, heads: dict[str, Head]
    ) -> dict[tuple[str, str], RecordRow | None]:
        """What heads need, themselves included; None for one whose record is missing."""
        kept: dict[tuple[str, str], RecordRow | None] = {}
        for ns, head in heads.items():
            place = Place(thread, ns)
            rows = await self._durable.chain(place, head.id, 1)
            args = self._blobs, self._shape, serializer, place
            try:
                replayed = history.replayed_at(rows[0], *args) if rows else set()
                if replayed:
                    rows = await history.ancestry(self._durable, *args, head.id, replayed)
            except Unsound as found:
                raise corrupt(place, head.id, found) from found
            kept |= {(ns, head.id): None} | {(ns, row.id): row for row in rows}
        return kept

    # -- copy --------------------------------------------------------------------------------

    async def copy(
        self, serializer: Serializer, source: Thread, target: Thread, latest_only: bool
    ) -> None:
        """Copies a thread to a new one; it becomes visible when all of it is there.

        Raises:
            UsageError: if the target has checkpoints.
            CorruptionError: if a record or write is not what was written.
        """
        await self._flusher.settle(source)
        await self._flusher.settle(target)
        if source == target or await self._durable.heads(target):
            raise UsageError(f"copy_thread: thread {target.id!r} has checkpoints already")
        seal = self._vault.at_hand(source, None)
        if seal is None:
            owner, seal = await self._vault.of_owner(source)
            target = replace(target, user=owner.user)  # a copy is its source's owner's
        for _ in range(TRIES):
            copied = partial(self._copied, serializer, source, target, latest_only, seal)
            if await self._vault.reading(source, copied):
                return
            await self._durable.delete_thread(target)  # the source was pruned meanwhile
        raise _busy(source, "copy it")

    async def _copied(
        self,
        serializer: Serializer,
        source: Thread,
        target: Thread,
        latest_only: bool,
        seal: Seal,
    ) -> bool:
        """Copies once; False if a head of the source was removed meanwhile."""
        heads = await self._durable.heads(source)
        only = set(await self._needed(serializer, source, heads)) if latest_only else None
        pages = await self._pages(source, only)
        made = Rechained(target, self._blobs, seal)
        writes = [self._copied_writes(source, page, made) for page in pages]
        seals: dict[tuple[str, str], bytes] = {}
        for page, rows in zip(reversed(pages), reversed(writes), strict=True):
            records = []
            for _, row in reversed(page.rows):
                record = self._record(Place(source, row.ns), row, page)
                records.append(made.record(row, record))
                if heads.get(row.ns, NO_HEAD).id == row.id:
                    seals[row.ns, row.id] = made.signed(records[-1], record)
            await self._durable.copy(source, target, records, rows, [])
        if heads:
            last = [(ns, head.id) for ns, head in heads.items()]
            signed = [seals.get(ids, b"") for ids in last]
            await self._durable.copy(source, target, [], [], last, signed)
        return (await self._durable.heads(target)).keys() == heads.keys()

    async def _pages(
        self,
        source: Thread,
        only: set[tuple[str, str]] | None,
        wanted: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Page]:
        """All of a thread, or what a filter finds, without its chunks' data, newest first."""
        listing = Listing(source, source.tenant, None, None, None, wanted, PAGE, light=True)
        pages: list[Page] = []
        while True:
            page = await self._durable.page(listing)
            if not page.rows:
                return pages
            row = page.rows[-1][1]
            listing = replace(listing, after=(source.key, row.ns, row.seq))
            if only is not None:
                rows = tuple((t, r) for t, r in page.rows if (r.ns, r.id) in only)
                ids = {(r.ns, r.id) for _, r in rows}
                found = {k: w for k, w in page.writes.items() if k in ids}
                page = Page(rows, page.chunks, found)
            if page.rows:
                pages.append(page)

    def _bare(self, numbers: Sequence[int], page: Page) -> dict[int, Chunk]:
        rows = ((no, page.chunks.get(no)) for no in numbers)
        return {no: codec.bare_chunk(row) for no, row in rows if row is not None}

    def _record(self, place: Place, row: RecordRow, page: Page) -> Record:
        try:
            chunks = self._bare(row.numbers, page)
            return codec.read_record(place, row, chunks, self._blobs)
        except Unsound as found:
            raise corrupt(place, row.id, found) from found

    def _copied_writes(
        self, source: Thread, page: Page, made: Rechained
    ) -> list[tuple[str, WriteRow]]:
        out = []
        for (ns, id), rows in page.writes.items():
            for row in rows:
                place = Place(source, ns)
                try:
                    chunks = self._bare(row.numbers, page)
                    batch = codec.read_batch(place, row, chunks, self._blobs)
                except Unsound as found:
                    raise corrupt(place, id, found) from found
                out.append((ns, made.batch(ns, row, batch)))
        return out


def _busy(thread: Thread, what: str) -> ConflictError:
    """The error of upkeep on a thread that moved on at each try."""
    return ConflictError(
        thread=thread.id,
        namespace="",
        expected=None,
        actual=None,
        refused=None,
        message=f"Thread {thread.id!r} moved on at each of {TRIES} tries to {what}. Nothing of it "
        "was changed; try again when it is quieter.",
    )


def check_strategy(strategy: str) -> None:
    """Refuses what `prune` does not know.

    Raises:
        UsageError: if it is not one of its strategies.
    """
    if strategy not in ("keep_latest", "delete"):
        raise UsageError(f"prune strategy {strategy!r}: use 'keep_latest' or 'delete'")
