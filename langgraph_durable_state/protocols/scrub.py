"""Checking what both tiers hold against its digests, thread by thread, and putting it right.

Whatever looks wrong in a page is looked at again, all that belongs to it at one moment, so that
nothing is taken for damage that was put, flushed or removed in between. What is replaced is
replaced only where it is still as it was found.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from ..asfound import RawThread
from ..decisions import anchors, keys, recording
from ..decisions.evidence import Flaw, Sources
from ..decisions.serializing import Serializer
from ..errors import (
    CorruptionError,
    DurableStateError,
    EvolutionError,
    HeadMovedError,
    UsageError,
)
from ..ports import Durable, Outbox
from ..verification import Progress, VerifyProgress, VerifyReport
from ..words import Head, Place, Thread, Tip
from .attesting import Attestor
from .checking import Check, Tally
from .hotscrubbing import HotScrub
from .scrubbing import DurableScrub
from .shared import Shared
from .vault import Vault

logger = logging.getLogger("langgraph_durable_state")

KEYS = 100
"""Threads whose keys are read at once."""

EVENTS = 500
"""Of a thread, read at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be checked: some threads, or all of a tenant, or all, behind a token; and whether
    to put right what can be."""

    threads: Sequence[Thread] | None = None
    tenant: str | None = None
    repair: bool = False
    after: UUID | None = None


def after_token(token: str | None) -> UUID | None:
    """The key that a token stands for.

    Raises:
        UsageError: if it is none.
    """
    try:
        return UUID(token) if token is not None else None
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f"after={token!r}: use the token of a report") from None


@dataclass
class Scrubber:
    """Checks through one driver's tiers.

    Attributes:
        shared: the saver's.
        durable: the tier whose rows are checked.
        outbox: what the hot tier holds; None if there is none.
        vault: finds the keys that it is read with.
        attestor: tells heads that were moved.
    """

    shared: Shared
    durable: Durable
    outbox: Outbox | None
    vault: Vault
    attestor: Attestor

    async def verify(
        self, serializer: Serializer, asked: Asked, progress: Progress | None
    ) -> VerifyReport:
        """Checks thread by thread, in the order of their keys.

        Raises:
            UnavailableError: if a tier cannot be reached; what was done stays done.
        """
        tally, token = Tally(), asked.after
        async for thread, share in self._threads(asked):
            there = await self._scrub(
                Check(
                    self.shared,
                    self.durable,
                    self.outbox,
                    serializer,
                    asked.repair,
                    tally,
                    thread,
                )
            )
            token = thread.key
            if asked.threads is not None and not there:
                tally.unknown.append(thread.id)
            else:
                tally.threads += 1
            if progress is not None:
                progress(VerifyProgress(tally.threads, share, len(tally.findings), token.hex))
        return tally.report(token.hex if token is not None else None)

    async def restore(self, serializer: Serializer, place: Place, id: str) -> None:
        """Restores a head that was served from the other tier, if that can be done: as soon as the
        thread moves on, the other tier has it no more."""
        check = Check(
            self.shared, self.durable, self.outbox, serializer, True, Tally(), place.thread
        )
        hot = HotScrub(check, self.outbox) if self.outbox is not None else None
        rows = DurableScrub(check, hot.sources if hot is not None else _no_sources, self._prove)
        try:
            await self.vault.gather(place.thread)
            await rows.restore((place.ns, id))
        except DurableStateError as error:
            logger.warning("checkpoint %s of %r was not restored: %s", id, place.thread.id, error)

    async def _scrub(self, check: Check) -> bool:
        """Checks a thread; whether there is anything of it."""
        await self.vault.gather(check.thread)
        await check_events(check)
        hot = HotScrub(check, self.outbox) if self.outbox is not None else None
        known = RawThread(keys.encoded(check.thread.tenant), keys.encoded(check.thread.id))
        names = known if check.named else None
        if names is None and hot is not None:
            names = await hot.names()
        sources = hot.sources if hot is not None else _no_sources
        rows = DurableScrub(check, sources, self._prove)
        there = await rows.begin(names)
        if not check.named:  # digests cover the names: only what cannot be read can be told
            if hot is not None:
                await hot.scrub_entries()
            return True
        if there:
            await rows.scan()
        if hot is not None:
            await hot.scrub_entries()
            await hot.survey(sorted({*rows.namespaces, *hot.namespaces}), rows.heads)
        if there:
            await rows.settle(hot.pending if hot is not None else {})
            for ns in rows.heads:
                await self._attest(check, ns)
        if hot is not None:
            await hot.settle(rows.heads)
        return there or bool(hot is not None and hot.namespaces)

    async def _prove(self, place: Place, head: Head) -> bytes | None:
        try:
            prove = partial(self.attestor.prove, place, head)
            return await self.vault.reading(place.thread, prove)
        except (CorruptionError, EvolutionError):
            return None

    async def _attest(self, check: Check, ns: str) -> None:
        """Whether a head that is what was written is the one that was put last, as far as a key
        tells."""
        try:
            attest = partial(self.attestor.attest, check.place(ns))
            await self.vault.reading(check.thread, attest)
        except HeadMovedError as moved:
            check.tell("postgres", Flaw("head", ns, moved.found or "", str(moved)))
        except (CorruptionError, EvolutionError):
            pass  # that has been told

    async def _threads(self, asked: Asked) -> AsyncIterator[tuple[Thread, float]]:
        """Which threads, and how far each is in all."""
        if asked.threads is not None:
            named = sorted(set(asked.threads), key=lambda thread: thread.key)
            for done, thread in enumerate(named, 1):
                if asked.after is None or thread.key > asked.after:
                    yield thread, done / len(named)
            return
        async for key, entry in self._keys(asked.after):
            thread = _named(key, entry)
            if asked.tenant is None or (thread.id and thread.tenant == asked.tenant):
                yield thread, keys.share(key)

    async def _keys(self, after: UUID | None) -> AsyncIterator[tuple[UUID, RawThread | None]]:
        """The keys of all threads in order, also of those of which only Redis knows."""
        queued = await self.outbox.threads() if self.outbox is not None else []
        while True:
            page = dict(await self.durable.scan_keys(after, KEYS))
            last = max(page, default=None) if len(page) == KEYS else None
            for key in sorted({*page, *queued}):
                if (after is None or key > after) and (last is None or key <= last):
                    yield key, page.get(key)
            if last is None:
                return
            after = last


async def check_events(check: Check) -> None:
    """Checks a thread's chain of events. It is read again where it is broken: the thread may have
    been deleted meanwhile, and begun anew."""
    found = await _breaks(check)
    again = set(await _breaks(check)) if found else set()
    for n, reason in found:
        if (n, reason) in again:
            check.tell("postgres", Flaw("event", "", None, reason, no=n))


async def _breaks(check: Check) -> list[tuple[int, str]]:
    thread, found, after = check.thread, list[tuple[int, str]](), -(2**63)
    before = Tip(0, b"", 0)
    while rows := await check.durable.events(thread, after, EVENTS):
        found += recording.breaks(thread.key, rows, before)
        after = rows[-1].n
        before = Tip(after, rows[-1].digest, rows[-1].at)
    return found


def _named(key: UUID, entry: RawThread | None) -> Thread:
    """The thread of a key, under its names if they can be read."""
    if entry is not None and anchors.is_key(key, entry):
        return keys.named(keys.decoded(entry.tenant), keys.decoded(entry.id))
    return Thread("", "", key)


async def _no_sources(namespaces: Iterable[str]) -> Sources:
    """There is no hot tier."""
    return Sources()
