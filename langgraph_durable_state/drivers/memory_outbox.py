"""What the hot tier holds before the durable one does, in memory: the scripts' steps, each atomic.

Entries go through their stored form, so that what could not be flushed is found here as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from ..decisions import outgoing
from ..decisions.codec import differing_slot
from ..tiers.outbox import LEASE
from ..words import (
    Answer,
    ChunkRow,
    Claim,
    Cold,
    Digest,
    Head,
    HotFound,
    Kept,
    Opened,
    Outgoing,
    Phase,
    Place,
    Put,
    PutWrites,
    RecordRow,
    Spell,
    Step,
    Stored,
    Thread,
    Unfit,
    Won,
)
from .memory_hot import HOT
from .memory_scrub import MemoryHotScrub
from .memory_world import Change, HotSpell, World, spot

_NOBODY = b"\x00" * 16
_UNKNOWN = b"?"
_NEVER = b"%016d" % 0
"""There is no clock here."""
_ON_UNKNOWN = {
    Claim.ANY: outgoing.UNKNOWN,
    Claim.HEAD: outgoing.ADVANCED,
    Claim.EMPTY: outgoing.OPENED,
    Claim.ASIDE: outgoing.OPENED,
}


class MemoryOutbox(MemoryHotScrub):
    """Implements `Outbox`.

    Args:
        world: what the tiers hold.
        secured: what loses nothing that this saver acknowledges; see `Policy`.
        bound: entries that a thread's outbox may hold.
    """

    def __init__(self, world: World, secured: int = 0, bound: int = 1_000) -> None:
        self._world = world
        self._bound = bound
        self._secured = secured

    # -- appending ---------------------------------------------------------------------------

    async def append(
        self, put: Put, step: Step, token: bytes, opened: Opened | None, refused: bool
    ) -> Answer:
        async with Change(self._world, HOT + "append"):
            if self.fenced(put):
                return Unfit.FENCED
            spell = self._open(put.place, token, opened)
            if not isinstance(spell, HotSpell):
                return spell
            if spell.head.digest == put.digest:
                return Won(spell.head.seq, repeated=True, guarded=spell.marked)
            wins = not refused and _claims(put, spell)
            if not wins and not refused and put.claim is not Claim.ASIDE:
                return Unfit.LOST
            if self._full(put.place):
                return Unfit.FULL
            if not wins:
                self._push(put, spell, outgoing.REFUSED if refused else outgoing.ASIDE)
                return Kept(spell.head.seq)
            return self._win(put, step, spell)

    def _open(self, place: Place, token: bytes, opened: Opened | None) -> HotSpell | Answer:
        spells = self._world.spells
        spell = spells.get(spot(place))
        if spell is not None and spell.phase is Phase.OPEN:
            if spell.server != self._world.server:
                return Unfit.RESTARTED
            spell.secured = min(spell.secured, self._secured)
            return spell
        here = spell is not None and spell.server == self._world.server
        if spell is not None and spell.phase is Phase.OPENING and here:
            if opened is None or spell.token != token:
                spell.secured = min(spell.secured, self._secured)
                return Cold(spell.token, spell.previous)
            spell.phase, spell.server = Phase.OPEN, self._world.server
            spell.head = opened.head or Head("", 0, _UNKNOWN)
            spell.base = opened.head.digest if opened.head else None
            spell.marked, spell.secured = opened.marked, self._secured
            spell.at = self._world.now
            return spell
        if spell is not None and spell.token == token:
            return Cold(token, token)
        previous = b""
        if spell is not None and spell.phase is Phase.CLOSING:
            previous = spell.token
        elif spell is not None and spell.secured:  # it was opening when its server was restarted
            previous = spell.token + spell.previous
        spells[spot(place)] = HotSpell(
            token,
            Phase.OPENING,
            previous,
            server=self._world.server,
            at=self._world.now,
            secured=self._secured,
        )
        return Cold(token, previous)

    def _full(self, place: Place) -> bool:
        return len(self._world.outboxes.get(place.thread.key, ())) >= self._bound

    def _win(self, put: Put, step: Step, spell: HotSpell) -> Answer:
        copy = self._world.copies.get(spot(put.place))
        chunks: dict[int, ChunkRow] = {}
        if step.base:
            if copy is None or copy[0].digest != step.base:
                return Unfit.WHOLE
            chunks = {no: c for no, c in copy[1].items() if no not in step.dropped}
        seq, before = spell.head.seq + 1, spell.head
        row = RecordRow(put.place.ns, put.id, put.parent, seq, put.digest, put.record, put.numbers)
        self._world.copies[spot(put.place)] = row, chunks | {c.no: c for c in step.chunks}
        writes = self._world.hot_writes.get(spot(put.place), {})
        left = {key: write for key, write in writes.items() if key[0] != before.id}
        self._world.hot_writes[spot(put.place)] = left
        spell.head = Head(put.id, seq, put.digest)
        spell.chain = (*spell.chain, put.digest)
        how = outgoing.ADVANCED if before.digest else outgoing.OPENED
        if before.digest == _UNKNOWN:
            how = _ON_UNKNOWN[put.claim]
            spell.base = None if put.claim is Claim.ANY else put.expected
        spell.at = self._world.now
        self._push(put, spell, how, before.digest if before.digest != _UNKNOWN else put.expected)
        return Won(seq, guarded=spell.marked)

    def _push(
        self, item: Put | PutWrites, spell: HotSpell, how: bytes, before: bytes = b""
    ) -> None:
        self._world.appended += 1
        number = b"%016d" % self._world.appended + _NEVER
        stored = how + spell.token + (before or _NOBODY) + number + outgoing.pack_item(item)
        entries = self._world.outboxes.setdefault(item.place.thread.key, [])
        entries.append((self._world.appended, outgoing.read_entry(stored)))

    async def append_writes(self, item: PutWrites, token: bytes, opened: Opened | None) -> Answer:
        async with Change(self._world, HOT + "append writes"):
            if self.fenced(item):
                return Unfit.FENCED
            spell = self._open(item.place, token, opened)
            if not isinstance(spell, HotSpell):
                return spell
            if self._full(item.place):
                return Unfit.FULL
            held = self._world.hot_writes.setdefault(spot(item.place), {})
            news = False
            for row in item.rows:
                key = (row.id, row.task, row.slot)
                have = held.get(key)
                same = have is not None and have[0].digest == row.digest
                if have is not None and not same and row.slot >= 0:
                    key = (row.id, row.task, differing_slot(row.digest))
                    same = key in held
                if not same:
                    kept = replace(row, slot=key[2])
                    held[key] = kept, tuple(c for c in item.chunks if c.no in row.numbers)
                    news = True
            if not news:
                return Stored(repeated=True, guarded=spell.marked)
            spell.at = self._world.now
            self._push(item, spell, outgoing.WRITES)
            return Stored(guarded=spell.marked)

    async def raise_fence(self, thread: Thread, fence: int) -> None:
        async with Change(self._world, HOT + "fence"):
            self._raise(thread, fence)

    def fenced(self, item: Put | PutWrites) -> bool:
        """Whether a larger fence is known than an item's; if not, its own is from now on."""
        return item.fence is not None and self._raise(item.place.thread, item.fence) > item.fence

    def _raise(self, thread: Thread, fence: int) -> int:
        known = self._world.fences[thread.key] = max(
            fence, self._world.fences.get(thread.key, fence)
        )
        return known

    async def note(self, item: PutWrites) -> None:
        async with Change(self._world, HOT + "note"):
            if spot(item.place) not in self._world.spells:
                held = self._world.hot_writes.get(spot(item.place), {})
                held = {key: write for key, write in held.items() if key[0] == item.id}
                for row in item.rows:
                    sent = tuple(c for c in item.chunks if c.no in row.numbers)
                    held[row.id, row.task, row.slot] = row, sent
                self._world.hot_writes[spot(item.place)] = held

    async def evicts(self) -> str:
        return ""

    # -- reading -----------------------------------------------------------------------------

    async def peek(self, place: Place, held: Digest) -> HotFound:
        await self._world.step(HOT + "peek")
        spell = self._world.spells.get(spot(place))
        row, chunks = self._world.copies.get(spot(place), (None, {}))
        writes = sorted(self._world.hot_writes.get(spot(place), {}).items())
        digest = row.digest if row is not None else b""
        if digest == held:
            row, chunks = None, {}
        own = {c.no: c for _, (_, sent) in writes for c in sent}
        told = self._told(spell) if spell is not None else None
        return HotFound(told, digest, row, chunks, tuple(w for _, (w, _) in writes), own)

    def _told(self, spell: HotSpell) -> Spell:
        head = spell.head if spell.head.digest != _UNKNOWN else replace(spell.head, digest=b"")
        restarted = spell.server != self._world.server
        return Spell(
            spell.token,
            spell.phase,
            spell.previous,
            head,
            spell.base,
            spell.chain,
            spell.marked,
            spell.secured > 0,
            restarted,
        )

    # -- flushing ----------------------------------------------------------------------------

    async def take(self, thread: Thread, holder: bytes, limit: int) -> Outgoing | None:
        await self._world.step(HOT + "take")
        flushers, now = self._world.flushers, self._world.now
        owner, until = flushers.get(thread.key, (b"", now))
        if holder and until > now and owner != holder:
            return None
        entries = self._world.outboxes.get(thread.key, [])
        if not entries and owner == holder:
            flushers.pop(thread.key, None)
        elif entries and holder:
            flushers[thread.key] = holder, now + LEASE / 1_000
        first = entries[0][0] if entries else 0
        taken = tuple(entry for _, entry in entries[:limit])
        return Outgoing(first, taken, len(entries) - len(taken))

    async def skip(self, thread: Thread, known: bytes | None = None) -> bytes | None:
        await self._world.step(HOT + "skip")
        return None  # what is here is what was acknowledged

    async def ack(
        self,
        thread: Thread,
        holder: bytes,
        first: int,
        count: int,
        last: int,
        flushed: Mapping[tuple[str, bytes], Sequence[Digest]],
    ) -> int:
        async with Change(self._world, HOT + "ack"):
            entries = self._world.outboxes.get(thread.key, [])
            if not entries or entries[0][0] != first:
                return -1
            if len(entries) < count or entries[count - 1][1].number != last:
                return -1
            for (ns, token), digests in flushed.items():
                spell = self._world.spells.get((thread.key, ns))
                if spell is not None and spell.token == token:
                    found = [i for i, d in enumerate(spell.chain) if d == digests[-1]]
                    after = found[-1] + 1 if found else 0
                    spell.base, spell.chain = digests[-1], spell.chain[after:]
            left = entries[count:]
            if left:
                self._world.outboxes[thread.key] = left
            else:
                del self._world.outboxes[thread.key]
                if self._world.flushers.get(thread.key, (b"", 0.0))[0] == holder:
                    self._world.flushers.pop(thread.key, None)
            return len(left)

    async def depth(self, thread: Thread) -> tuple[int, float]:
        await self._world.step(HOT + "depth")
        return len(self._world.outboxes.get(thread.key, ())), 0.0

    async def threads(self) -> list[UUID]:
        await self._world.step(HOT + "threads")
        return sorted(self._world.outboxes)

    # -- ending ------------------------------------------------------------------------------

    async def close(self, place: Place, token: bytes, quiet: float) -> bool:
        async with Change(self._world, HOT + "close"):
            spell = self._world.spells.get(spot(place))
            if spell is None or spell.token != token:
                return False
            held = spell.chain or self._world.outboxes.get(place.thread.key)
            if spell.phase is Phase.OPEN and held:
                return False
            known = spell.server == self._world.server and self._world.now - spell.at >= quiet
            if spell.phase is not Phase.CLOSING and not known:
                return False
            spell.phase = Phase.CLOSING
            return True

    async def forget(self, place: Place, token: bytes) -> None:
        async with Change(self._world, HOT + "forget"):
            spell = self._world.spells.get(spot(place))
            if spell is not None and (spell.token, spell.phase) == (token, Phase.CLOSING):
                del self._world.spells[spot(place)]

    async def outdated(self, place: Place) -> None:
        async with Change(self._world, HOT + "outdated"):
            if spot(place) not in self._world.spells:
                self._drop(place)

    async def discard(self, place: Place, token: bytes, head: Digest) -> bool:
        async with Change(self._world, HOT + "discard"):
            spell = self._world.spells.get(spot(place))
            if spell is None or spell.token != token or (head and spell.head.digest != head):
                return False
            self._drop(place)
            return True

    def _drop(self, place: Place) -> None:
        self._world.spells.pop(spot(place), None)
        self._world.copies.pop(spot(place), None)
        self._world.hot_writes.pop(spot(place), None)

    async def guard(self, place: Place, token: bytes) -> bool:
        async with Change(self._world, HOT + "guard"):
            spell = self._world.spells.get(spot(place))
            if spell is None or spell.token != token:
                return False
            spell.marked = True
            return True

    async def adopt(self, place: Place, token: bytes, flushed: int) -> None:
        async with Change(self._world, HOT + "adopt"):
            spell = self._world.spells.get(spot(place))
            if spell is not None and spell.token == token:
                spell.server, spell.at = self._world.server, self._world.now
                self._world.appended = max(self._world.appended, flushed)

    async def erase(self, thread: Thread, namespaces: Sequence[str]) -> None:
        async with Change(self._world, HOT + "erase"):
            for ns in namespaces:
                self._drop(Place(thread, ns))
            self._world.outboxes.pop(thread.key, None)
            self._world.flushers.pop(thread.key, None)


def _claims(put: Put, spell: HotSpell) -> bool:
    """The compare of the hot compare-and-set."""
    if put.claim is Claim.ANY:
        return True
    head = spell.head.digest
    if head == _UNKNOWN:
        return True
    return head == put.expected if put.claim is Claim.HEAD else not head
