"""Brings what the hot tier holds alone to Postgres: in order, and each entry of a spell once,
however many flush it, since how far it is flushed is stored in the same transaction.

A drained put that finds the durable head moved is kept beside it and reported, never dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile

from ..decisions import edges, keys, outgoing
from ..decisions.codec import Unsound
from ..decisions.matching import Chunk
from ..decisions.outgoing import NEVER
from ..errors import CorruptionError, DurableStateError, UnavailableError
from ..ports import Durable, Outbox
from ..words import (
    Advance,
    Ahead,
    Claim,
    Digest,
    Entry,
    Lost,
    Outcome,
    Outgoing,
    ParentGone,
    Place,
    Progress,
    Put,
    PutWrites,
    Thread,
    Won,
)
from .anchoring import Anchors
from .customs import Customs
from .shared import Shared
from .vault import Vault

BATCH = 256
"""Entries of one thread that are taken at once."""

ROUND = 32
"""Threads that are flushed together."""


Marks = Mapping[Place, Progress]
"""How far the spell of each marked head is flushed."""


@dataclass
class Taken:
    """A thread's oldest entries on their way to Postgres.

    Attributes:
        thread, out: which, as taken.
        at: how many of them are done.
        flushed: digests of the heads among those, by namespace and token.
        dead: places and tokens of spells that have lost.
        known: chunks that are durable, for what refers to them to be proven.
        bad: whether the entry behind the last of them is not what was acknowledged.
    """

    thread: Thread
    out: Outgoing
    at: int = 0
    flushed: defaultdict[tuple[str, bytes], list[Digest]] = field(
        default_factory=lambda: defaultdict(list)
    )
    dead: set[tuple[Place, bytes]] = field(default_factory=set)
    known: dict[int, Chunk] = field(default_factory=dict)
    bad: bool = False

    def wave(self) -> Sequence[Entry]:
        """The entries that may go together next: at most one put per head, and each row of writes
        once; all of one place from one spell."""
        seen: set[object] = set()
        tokens: dict[Place, bytes] = {}
        rest = self.out.entries[self.at :]
        for i, entry in enumerate(rest):
            names = _names(entry.item)
            other = tokens.setdefault(entry.item.place, entry.token) != entry.token
            if other or not seen.isdisjoint(names):
                return rest[:i]
            seen.update(names)
        return rest

    def stop(self) -> None:
        """The next entry is not what was acknowledged."""
        self.out, self.bad = replace(self.out, entries=self.out.entries[: self.at]), True

    def done(self, entry: Entry, advanced: bool) -> None:
        """An entry is stored, and has advanced the durable head if it did the hot one."""
        self.at += 1
        if advanced and entry.advances and isinstance(entry.item, Put):
            self.flushed[entry.item.place.ns, entry.token].append(entry.item.digest)


def _is_marked(marks: Marks, entry: Entry) -> bool:
    mark = marks.get(entry.item.place)
    return mark is not None and mark.token == entry.token


def _names(item: Put | PutWrites) -> set[object]:
    """What may be stored once in a statement."""
    if isinstance(item, Put):
        return {item.place}
    return {(item.place, item.id, row.task, row.slot) for row in item.rows}


class Flusher:
    """Flushes through one driver's tiers.

    Args:
        shared: the saver's.
        durable: where to.
        outbox: where from; None if there is no hot tier.
        anchors: have the heads witnessed that it moves.
        vault: has the keys by which entries are proven.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        outbox: Outbox | None,
        anchors: Anchors,
        vault: Vault,
    ) -> None:
        self._anchors = anchors
        self._customs = Customs(shared, durable, vault)
        self._shared = shared
        self._durable = durable
        self._hot = outbox
        self._holder = keys.token()
        self._failing: set[Thread] = set()

    @property
    def _outbox(self) -> Outbox:
        if self._hot is None:
            raise UnavailableError("redis", "this saver was given none, but another may be ahead")
        return self._hot

    # -- flushing ----------------------------------------------------------------------------

    async def drain(self, thread: Thread) -> bool:
        """Makes all that was acknowledged of a thread so far durable; whether anything was not.

        Raises:
            UnavailableError: if either tier cannot be reached.
        """
        found = False
        while (out := await self._take(thread, b"")) is not None and out.entries:
            found, taken = True, Taken(thread, out)
            await self._store([taken])
            if not await self._ack(taken, b""):
                break
        return found

    async def flush(self, threads: Sequence[Thread]) -> list[Thread]:
        """Flushes a round of several threads together; those that have more are returned, and those
        that could not be flushed for a reason of their own, which is an event.

        Raises:
            UnavailableError: if either tier cannot be reached.
        """
        more: list[Thread] = []
        for at in range(0, len(threads), ROUND):
            more += await self._flush_round(threads[at : at + ROUND])
        return more

    async def _flush_round(self, threads: Sequence[Thread]) -> list[Thread]:
        """One node of a cluster that is down holds up no threads but its own."""
        taken, more = [], []
        down: UnavailableError | None = None
        for thread in threads:
            try:
                out = await self._take(thread, self._holder)
            except UnavailableError as error:
                down = error
                more.append(thread)
                continue
            except DurableStateError as error:
                self._failed(thread, error)
                more.append(thread)
                continue
            if out is None:
                more.append(thread)
            elif out.entries:
                taken.append(Taken(thread, out))
        if down is not None and len(more) == len(threads):
            raise down
        stored = await self._stored(taken)
        more += [one.thread for one in taken if one not in stored]
        for one in stored:
            if await self._ack(one, self._holder):
                more.append(one.thread)
            self._failing.discard(one.thread)
        return more

    async def _stored(self, taken: Sequence[Taken]) -> Sequence[Taken]:
        """Commits all together, or, if that is refused, each for itself; those that could be."""
        try:
            await self._store(taken)
            return taken
        except UnavailableError:
            raise
        except DurableStateError as error:
            if len(taken) == 1:
                self._failed(taken[0].thread, error)
                return []
        return [one for each in taken for one in await self._stored([each])]

    def _failed(self, thread: Thread, error: Exception) -> None:
        """What is in the outbox stays there, and is tried again; it is said once."""
        if thread not in self._failing:
            self._failing.add(thread)
            named = thread if thread.id else replace(thread, id=thread.key.hex)
            self._shared.events.emit("flush_failed", str(error), place=Place(named, ""))

    async def _take(self, thread: Thread, holder: bytes) -> Outgoing | None:
        stuck = False
        while True:
            try:
                return await self._outbox.take(thread, holder, BATCH)
            except CorruptionError:
                if stuck:
                    raise  # it is not for an entry
                stuck = not await self._clear(thread)

    async def _clear(self, thread: Thread) -> bool:
        async def prove(entry: Entry) -> None:
            await self._customs.proven(thread, await self._fitting(entry, None), {})

        return await self._customs.clear(self._outbox, thread, prove)

    async def _ack(self, taken: Taken, holder: bytes) -> int:
        out, left = taken.out, 1
        if out.entries:
            last = out.entries[-1].number
            left = await self._outbox.ack(
                taken.thread, holder, out.first, len(out.entries), last, taken.flushed
            )
        if taken.bad:
            await self._clear(taken.thread)
            return 1
        return left

    async def _store(self, taken: Sequence[Taken]) -> None:
        """Commits in waves: of each thread what may go together, of all threads at once."""
        while left := [one for one in taken if one.at < len(one.out.entries)]:
            waves = {one.thread: one.wave() for one in left}
            places = {entry.item.place: None for wave in waves.values() for entry in wave}
            marks = await self._durable.progress(list(places))
            batch: list[tuple[Taken, Entry]] = []
            for one in left:
                wave = await self._proven(one, waves[one.thread], marks)
                fit = takewhile(partial(_is_marked, marks), wave)
                ready = [(one, entry) for entry in fit]
                batch += ready
                if wave and not ready:
                    await self._store_stray(one, wave[0], marks)
            await self._store_marked(batch, marks)

    async def _proven(self, one: Taken, wave: Sequence[Entry], marks: Marks) -> Sequence[Entry]:
        """The entries of a wave as they are to be stored, up to one that is not what was
        acknowledged; those that another flusher has stored already as they are."""
        good: list[Entry] = []
        for entry in wave:
            mark = marks.get(entry.item.place)
            if mark is not None and _is_marked(marks, entry) and entry.number <= mark.flushed:
                good.append(entry)
                continue
            item = await self._fitting(entry, mark)
            try:
                right = await self._customs.proven(one.thread, item, one.known)
            except Unsound:
                if not good:
                    one.stop()
                break
            if right is not item:
                self._shared.events.emit(
                    "repaired",
                    "what no digest covers of an entry of the outbox",
                    tier="redis",
                    place=item.place,
                    checkpoint=item.id,
                )
            if isinstance(right, Put):
                right = edges.told(right, self._shared.blobs)
            good.append(replace(entry, item=right))
        return good

    async def _store_marked(self, batch: Sequence[tuple[Taken, Entry]], marks: Marks) -> None:
        """Commits entries of spells that the durable heads are marked with, those that another
        flusher has stored already left out."""
        news = [entry for _, entry in batch if entry.number > marks[entry.item.place].flushed]
        last = {entry.item.place: entry.number for entry in news}
        advances = [
            Advance(place, marks[place].token, marks[place].flushed, number)
            for place, number in last.items()
        ]
        outcomes: list[Outcome] | None = []
        if news:
            items = [await self._fitting(entry, marks.get(entry.item.place)) for entry in news]
            outcomes = await self._durable.flush(advances, items)
        if outcomes is None:
            return  # another was faster, or a mark is gone: look again
        told = {id(entry): outcome for entry, outcome in zip(news, outcomes, strict=True)}
        moved = {
            entry.item.place: entry.item
            for entry, outcome in zip(news, outcomes, strict=True)
            if isinstance(outcome, Won) and isinstance(entry.item, Put)
        }
        for put in moved.values():
            await self._anchors.note(put, force=put.claim is Claim.EMPTY)
        for one, entry in batch:
            await self._settle(one, entry, told.get(id(entry)))

    async def _fitting(self, entry: Entry, head: Progress | None) -> Put | PutWrites:
        """What is to be stored of an entry: a put refers to its parent's chunks, which are under
        other numbers where a call whose answer was lost had stored the parent before."""
        item = entry.item
        if not isinstance(item, Put) or item.base_numbers is None:
            return item
        base = item.base, keys.mark(item.base_numbers)
        if head is not None and (head.digest, head.mark) == base:
            return item
        rows = await self._durable.chain(item.place, item.refers or "", 1)
        same = rows and rows[0].digest == item.base
        return outgoing.renumbered(item, rows[0].numbers) if same else item

    async def _settle(self, one: Taken, entry: Entry, outcome: Outcome | None) -> None:
        item = entry.item
        if outcome is None and isinstance(item, Put):
            outcome = await self._as_stored(item)
        failed = isinstance(outcome, (Lost, ParentGone, Ahead)) and not entry.refused
        one.done(entry, advanced=not failed)
        if failed and isinstance(item, Put) and outcome is not None:
            one.dead.add((item.place, entry.token))
            await self._durable.clear_ahead(item.place, entry.token)
            await self._outbox.discard(item.place, entry.token, b"")
            self._report(item, outcome)

    async def _as_stored(self, put: Put) -> Outcome | None:
        """What became of a put that another flusher stored, who may have died before he told."""
        found = await self._durable.read(put.place, put.id, b"", None)
        if found is None or found.row is None or not found.row.refused:
            return None  # stored, and perhaps pruned since
        head = await self._durable.read(put.place, None, b"", -1)
        return Lost(head.head.id if head else None)

    async def _store_stray(self, one: Taken, entry: Entry, marks: Marks) -> None:
        """An entry whose spell the durable head is not marked with: the head could not be reached
        when the spell began, or was set back, or the spell has lost, or the thread is gone."""
        place, known = entry.item.place, (entry.item.place, entry.token) in one.dead
        if not known:
            still = await self._outbox.take(one.thread, b"", 1)
            if still is None or still.first != one.out.first:
                one.at = len(one.out.entries)  # erased, or flushed by another
                return
            if place not in marks and await self._mark(place, entry.token):
                return
        item = await self._aside(entry, marks, dead=known)
        outcome = (await self._durable.commit([item]))[0] if item is not None else None
        if isinstance(outcome, Ahead):
            return  # marked meanwhile: look again
        one.done(entry, advanced=False)
        if isinstance(item, Put) and isinstance(outcome, (Lost, ParentGone)) and not entry.refused:
            self._report(item, outcome)

    async def _aside(self, entry: Entry, marks: Marks, dead: bool) -> Put | PutWrites | None:
        """What of a stray entry may be stored: a put beside the head, unless the head is still the
        one that it advanced; of writes no special one over another, which may be newer."""
        mark = marks.get(entry.item.place)
        spell = mark.token if mark is not None else None
        item = replace(await self._fitting(entry, mark), spell=spell)
        if isinstance(item, Put):
            if mark is not None or dead or item.claim is not Claim.HEAD:
                item = replace(item, claim=Claim.HEAD, expected=NEVER)
            return item
        page = await self._durable.rest(item.place, [item.id], (), ())
        there = {(row.task, row.slot) for row in page.writes.get((item.place.ns, item.id), ())}
        rows = tuple(r for r in item.rows if r.slot >= 0 or (r.task, r.slot) not in there)
        return replace(item, rows=rows) if rows else None

    async def _mark(self, place: Place, token: bytes) -> bool:
        """Marks the durable head for a spell that goes on; False if the spell is gone: its entries
        are flushed without a mark then, which without a spell would say that something is lost."""
        spell = (await self._outbox.peek(place, b"")).spell
        if spell is None or spell.token != token:
            return False
        marked = await self._durable.mark_ahead(place, token, [token])
        ours = marked is not None and marked[1] == token
        if ours and not await self._outbox.guard(place, token):
            await self._durable.clear_ahead(place, token)  # another flushed and ended it meanwhile
        return True

    def _report(self, put: Put, outcome: Outcome) -> None:
        kept = isinstance(outcome, Lost) and outcome.kept
        actual = outcome.actual if isinstance(outcome, Lost) else None
        if kept:
            detail = "Redis had acknowledged it"
            self._shared.events.emit(
                "branch_kept", detail, place=put.place, checkpoint=put.id, head=actual
            )
            return
        detail = f"Redis had acknowledged {put.id}, and what it is made from is gone"
        self._shared.events.emit("state_lost", detail, place=put.place, checkpoint=actual)
