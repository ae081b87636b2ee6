"""What Redis holds of a thread checked, and put right from Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace

from ..asfound import HotRaw, Ids, RawEntries, RawHead, RawThread
from ..decisions import hotcopy, hotscrub, keys, outgoing
from ..decisions.codec import Unsound
from ..decisions.evidence import (
    EntryRepair,
    Flaw,
    HotRepair,
    Sources,
    hot_quarantined,
    unpacked,
)
from ..decisions.hotscrub import HotCase
from ..errors import EvolutionError
from ..ports import Outbox
from ..words import Entry, Place, Put, PutWrites, WriteRow
from .checking import LOOKS, Check

ENTRIES = 64
"""Entries of an outbox read at once; fewer if they are large."""


@dataclass
class HotScrub:
    """The hot side of one check.

    Attributes:
        check: which thread.
        outbox: the hot tier.
        namespaces: those in which something waits in the outbox.
        pending: writes against the durable heads that the durable tier must have.
        flawed: namespaces in which something is wrong.
    """

    check: Check
    outbox: Outbox
    namespaces: dict[str, None] = field(default_factory=dict)
    pending: dict[Ids, list[WriteRow]] = field(default_factory=dict)
    flawed: dict[str, None] = field(default_factory=dict)

    # -- entries -----------------------------------------------------------------------------

    async def names(self) -> RawThread | None:
        """What the thread is called in its outbox."""
        async for _, raw in self._entries():
            try:
                thread = outgoing.read_entry(raw).item.place.thread
            except (Unsound, EvolutionError):
                continue
            if thread.key == self.check.thread.key:
                self.check.thread = thread
                return RawThread(keys.encoded(thread.tenant), keys.encoded(thread.id))
        return None

    async def _entries(self) -> AsyncIterator[tuple[int, bytes]]:
        """The entries of the outbox with their numbers, while others flush it."""
        page, wanted, skip = await self._page(0), 0, 0
        while page.entries:
            if page.first > wanted > 0 and skip > 0:
                skip = max(0, skip - (page.first - wanted))  # those before were flushed meanwhile
                wanted = 0
                page = await self._page(skip)
                continue
            for number, raw in enumerate(page.entries, page.first):
                yield number, raw
            skip += len(page.entries)
            wanted = page.first + len(page.entries)
            page = await self._page(skip) if page.left else replace(page, entries=())

    async def _page(self, skip: int) -> RawEntries:
        return await self.outbox.entries(self.check.thread, skip, ENTRIES)

    async def scrub_entries(self) -> None:
        """Checks every entry, and puts it right."""
        sources: dict[str, Sources] = {}
        async for number, raw in self._entries():
            self.check.tally.entries += 1
            try:
                entry = outgoing.read_entry(raw)
            except (Unsound, EvolutionError) as error:
                unread = isinstance(error, EvolutionError)
                if await self._is_there(number, raw):
                    self._tell(Flaw("entry", "", f"entry {number}", str(error), unread=unread))
                continue
            ns = entry.item.place.ns
            self.namespaces[ns] = None
            if ns not in sources:
                sources[ns] = Sources()
                await self._add_hot(sources[ns], ns)
            await self._scrub_entry(number, raw, entry, sources[ns])

    async def _scrub_entry(self, number: int, raw: bytes, entry: Entry, sources: Sources) -> None:
        item = await self._with_chunks(entry.item, sources)
        flaw = self._judged(number, raw, item, sources)
        if flaw is not None:
            await self._add_durable(sources, item.place.ns, [item.id], ())
            flaw = self._judged(number, raw, item, sources)
        if flaw is not None and await self._is_there(number, raw):
            await self._settle_entry(flaw)
        _add_item(sources, item, self.check)

    def _judged(
        self, number: int, raw: bytes, item: Put | PutWrites, sources: Sources
    ) -> Flaw | None:
        check = self.check
        flaw = hotscrub.entry_flaw(number, raw, item, sources, check.blobs, check.describe)
        if item.place.thread.key == check.thread.key:
            return flaw
        named = replace(item, place=check.place(item.place.ns))
        if hotscrub.entry_flaw(number, raw, named, sources, check.blobs, check.describe):
            return flaw
        reason, ns = "it names another thread", item.place.ns
        kept = hot_quarantined(check.thread.key, "entry", ns, item.id, {"entry": raw}, reason)
        repair = EntryRepair(number, raw, outgoing.repacked(raw, named), kept)
        return Flaw("entry", ns, item.id, reason, repair)

    async def _with_chunks(self, item: Put | PutWrites, sources: Sources) -> Put | PutWrites:
        """The item, the chunks it refers to being among the sources: they are durable, perhaps
        under other numbers than those that it names."""
        missing = _missing(item, sources)
        if not missing:
            return item
        await self._add_chunks(sources, missing)
        if not isinstance(item, Put) or item.base_numbers is None or not _missing(item, sources):
            return item
        place = self.check.place(item.place.ns)
        rows = await self.check.durable.chain(place, item.refers or "", 1)
        if rows and rows[0].digest == item.base:
            other = outgoing.renumbered(item, rows[0].numbers)
            await self._add_chunks(sources, _missing(other, sources))
            return item if _missing(other, sources) else other
        return item

    async def _is_there(self, number: int, raw: bytes) -> bool:
        """Whether an entry is still in the outbox: what it refers to goes once it is flushed."""
        async for at, found in self._entries():
            if at == number:
                return found == raw
        return False

    async def _settle_entry(self, flaw: Flaw) -> None:
        repair, done = flaw.repair, False
        if self.check.repair and isinstance(repair, EntryRepair):
            await self.check.durable.quarantine([repair.kept])
            done = await self.outbox.mend_entry(
                self.check.thread, repair.number, repair.found, repair.right
            )
            if not done:
                return  # flushed meanwhile
        self._tell(flaw, done)

    # -- copies and pending writes -----------------------------------------------------------

    async def survey(self, namespaces: Iterable[str], heads: dict[str, RawHead]) -> None:
        """Looks at each namespace once; what is wrong in them is noted."""
        for ns in namespaces:
            raw = await self.outbox.inspect(self.check.place(ns))
            self.check.tally.copies += bool(raw.copy)
            head = heads.get(ns)
            case = HotCase(self.check.place(ns), raw, Sources(), self.check.blobs)
            if hotscrub.copy_flaw(case) or any(hotscrub.write_flaws(case)):
                self.flawed[ns] = None
            if not raw.spell and head is not None:
                found = hotscrub.sound_writes(self.check.place(ns), raw.writes, self.check.blobs)
                rows = [row for _, row, _ in found if row.id == head.id]
                self.pending |= {(ns, head.id): rows} if rows else {}

    async def settle(self, heads: dict[str, RawHead]) -> None:
        """Puts right what is wrong in the copies and pending writes, or reports it."""
        for ns in self.flawed:
            for _ in range(LOOKS):
                if await self._settled(ns, heads.get(ns)):
                    break

    async def _settled(self, ns: str, head: RawHead | None) -> bool:
        place = self.check.place(ns)
        raw = await self.outbox.inspect(place)
        sources = Sources()
        await self._add_entries(sources, ns)
        ids = [id for id in (hotcopy.copy_id(raw.copy), head.id if head else None) if id]
        ids += [name.split(b"\x00")[0].decode(errors="replace") for name in raw.writes]
        await self._add_durable(sources, ns, ids, _copy_numbers(ns, raw))
        case = HotCase(place, raw, sources, self.check.blobs, head.id if head else None)
        copy = hotscrub.copy_flaw(case)
        flaws = [*([copy] if copy is not None else []), *hotscrub.write_flaws(case)]
        for flaw in flaws:
            if not await self._mended(place, flaw):
                return False
        return True

    async def _mended(self, place: Place, flaw: Flaw) -> bool:
        """Reports a flaw, put right if it can be; False if it was no longer as it was found."""
        repair, done = flaw.repair, False
        if self.check.repair and isinstance(repair, HotRepair):
            await self.check.durable.quarantine(repair.kept)
            done = await self.outbox.mend_fields(place, repair.of, repair.changes)
            if not done:
                return False
        self._tell(flaw, done)
        return True

    def _tell(self, flaw: Flaw, repaired: bool = False) -> None:
        self.check.tell("redis", flaw, repaired)

    # -- sources -----------------------------------------------------------------------------

    async def sources(self, namespaces: Iterable[str]) -> Sources:
        """What the hot tier has that may take the place of rows of the durable one."""
        sources = Sources()
        for ns in sorted({*namespaces, *self.namespaces}):
            await self._add_hot(sources, ns)
        await self._add_entries(sources, None)
        return sources

    async def _add_hot(self, sources: Sources, ns: str) -> None:
        place, blobs = self.check.place(ns), self.check.blobs
        raw = await self.outbox.inspect(place)
        sources.add_chunks(hotcopy.chunks_of(raw.copy).values(), blobs)
        try:
            sources.add_record(hotcopy.copy_of(ns, raw.copy)[0])
            sources.copies[ns] = hotscrub.sound_copy(place, raw.copy, blobs).row
        except (Unsound, EvolutionError):
            pass
        for _, row, chunks in hotscrub.sound_writes(place, raw.writes, blobs):
            sources.add_write(ns, row)
            sources.add_chunks(chunks, blobs)

    async def _add_entries(self, sources: Sources, ns: str | None) -> None:
        async for _, raw in self._entries():
            try:
                item = outgoing.read_entry(raw).item
            except (Unsound, EvolutionError):
                continue
            if ns is None or item.place.ns == ns:
                _add_item(sources, item, self.check)

    async def _add_chunks(self, sources: Sources, numbers: Iterable[int]) -> None:
        sight = await self.check.durable.look(self.check.thread.key, [], sorted(numbers), [])
        sources.add_sight(sight, self.check.blobs)

    async def _add_durable(
        self, sources: Sources, ns: str, ids: Iterable[str], numbers: Iterable[int]
    ) -> None:
        at = [(ns, id) for id in dict.fromkeys(ids)]
        look, key = self.check.durable.look, self.check.thread.key
        first = await look(key, at, [], [ns])
        wanted = set(numbers)
        packed = [raw.packed for raw in first.records.values()]
        for data in [*packed, *(raw.packed for raw in first.writes)]:
            try:
                wanted.update(unpacked(data))
            except Unsound:
                continue
        sources.add_sight(await look(key, at, sorted(wanted), [ns]), self.check.blobs)


def _missing(item: Put | PutWrites, sources: Sources) -> set[int]:
    """The chunks that an item names and that are neither with it nor among the sources."""
    rows = [item] if isinstance(item, Put) else item.rows
    named = {no for row in rows for no in row.numbers}
    return named - {chunk.no for chunk in item.chunks} - sources.chunks.keys()


def _add_item(sources: Sources, item: Put | PutWrites, check: Check) -> None:
    sources.add_chunks(item.chunks, check.blobs)
    if isinstance(item, Put):
        sources.add_record(hotscrub.row_of(item))
        return
    for row in item.rows:
        sources.add_write(item.place.ns, row)


def _copy_numbers(ns: str, raw: HotRaw) -> set[int]:
    """The chunks that a copy names or has."""
    numbers = {*hotcopy.chunks_of(raw.copy)}
    try:
        numbers.update(hotcopy.copy_of(ns, raw.copy)[0].numbers)
    except Unsound:
        pass
    return numbers
