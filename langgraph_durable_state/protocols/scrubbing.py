"""A thread's rows in Postgres checked, a page at a time, and put right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..asfound import Ids, RawHead, RawRecord, RawThread, RawWrite, Repair, Sight
from ..decisions import anchors, edges, retention, scrub
from ..decisions.codec import Unsound, bare_chunk
from ..decisions.evidence import (
    Child,
    Flaw,
    Sources,
    chunk_reason,
    filtered_wrong,
    read_batch,
    read_record,
    record_row,
    unpacked,
    write_row,
)
from ..decisions.matching import Chunk
from ..decisions.scrub import Case
from ..errors import EvolutionError
from ..words import ChunkRow, Digest, Head, Place, RecordRow, WriteRow
from . import history
from .checking import LOOKS, Check

CHUNKS = 256
"""Chunks read at once; fewer if they are large."""

RECORDS = 50
"""Records, and rows of writes, read at once: some 200 KB."""

CHILDREN = 20
"""Of a checkpoint that are asked what they were made from, or of a namespace that are looked at."""

_ORDER: tuple[type, ...] = (RawThread, RawRecord, RawWrite, ChunkRow, RawHead)
"""A row that was missing is needed by one that is put before it."""

R = TypeVar("R")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Fact:
    """What is remembered of a checkpoint that was read."""

    parent: str | None
    seq: int
    digest: Digest
    refused: bool
    proven: bool
    parent_digest: Digest = b""
    consumed: tuple[Digest, ...] = ()
    counted: bool = False
    """Its metadata counts what DeltaChannels have seen."""
    edge: bytes = b""
    """What has to say it, should its parent have been removed; empty if nothing has to."""
    told: bool = False
    """It is said."""

    @property
    def needs(self) -> bool:
        """Whether its parent may not be missing."""
        return bool(self.edge) and not self.told


@dataclass
class DurableScrub:
    """The durable side of one check.

    Attributes:
        check: which thread.
        sources: asked for what the hot tier has of it, once something is wrong.
        prove: asked for what signs a head that is to be put right; None if it may not be the one
            that was put last.
        suspects: checkpoints to be looked at again.
        headless: namespaces whose head is missing, or names nothing.
        facts, written: the checkpoints, and the digests of the writes against each.
    """

    check: Check
    sources: Callable[[Iterable[str]], Awaitable[Sources]]
    prove: Callable[[Place, Head], Awaitable[bytes | None]]
    suspects: dict[Ids, None] = field(default_factory=dict)
    headless: dict[str, None] = field(default_factory=dict)
    facts: dict[Ids, Fact] = field(default_factory=dict)
    written: dict[Ids, set[Digest]] = field(default_factory=dict)
    heads: dict[str, RawHead] = field(default_factory=dict)
    _marks: dict[int, Chunk] = field(default_factory=dict)
    _bad: set[int] = field(default_factory=set)

    @property
    def namespaces(self) -> set[str]:
        return {*self.heads, *(ns for ns, _ in self.facts), *(ns for ns, _ in self.written)}

    # -- the thread's entry ------------------------------------------------------------------

    async def begin(self, names: RawThread | None) -> bool:
        """Checks the thread's entry; whether there is anything to check behind it. One that is
        being copied has neither entry nor heads yet."""
        check = self.check
        sight = await check.durable.look(check.thread.key, [], [], None)
        if sight.thread is None and not any(head.digest for head in sight.heads.values()):
            return False
        flaw = anchors.misnamed(check.thread.key, sight.thread, names)
        if flaw is not None:
            await self._settle([flaw])
        return True

    # -- pages -------------------------------------------------------------------------------

    async def scan(self) -> None:
        """Reads every row once, and notes what has to be looked at again."""
        await self._scan_chunks()
        await self._scan_records()
        await self._scan_writes()
        sight = await self.check.durable.look(self.check.thread.key, [], [], None)
        self.heads = {ns: head for ns, head in sight.heads.items() if head.digest}
        self._compare_heads()
        self._compare_chain()

    async def _scan_chunks(self) -> None:
        key, after = self.check.thread.key, None
        while page := await self.check.durable.scan_chunks(key, after, CHUNKS):
            for row in page:
                self._marks[row.no] = bare_chunk(row)
                if chunk_reason(row, self.check.blobs) is not None:
                    self._bad.add(row.no)
            self.check.tally.chunks += len(page)
            after = page[-1].no

    async def _scan_records(self) -> None:
        key, after = self.check.thread.key, None
        while page := await self.check.durable.scan_records(key, after, RECORDS):
            for raw in page:
                self.facts[raw.ns, raw.id] = self._fact(raw)
            self.check.tally.checkpoints += len(page)
            after = (page[-1].ns, page[-1].id)
            if len(page) < RECORDS:
                return

    def _fact(self, raw: RawRecord) -> Fact:
        try:
            row = record_row(raw)
            record = read_record(self.check.place(raw.ns), row, self._marks, self.check.blobs)
        except (Unsound, EvolutionError):
            self.suspects[raw.ns, raw.id] = None
            return Fact(raw.parent, raw.seq, raw.digest, raw.refused, False)
        meta = self.check.describe(record)
        if filtered_wrong(meta, raw.meta) or not self._bad.isdisjoint(row.numbers):
            self.suspects[raw.ns, raw.id] = None
        made = record.parent_digest, record.consumed or (), retention.COUNTERS in meta.text
        edge = edges.wanted(record, row)
        said = edge, raw.edge == edge
        return Fact(raw.parent, raw.seq, raw.digest, raw.refused, True, *made, *said)

    async def _scan_writes(self) -> None:
        key, after = self.check.thread.key, None
        while page := await self.check.durable.scan_writes(key, after, RECORDS):
            for raw in page:
                self.written.setdefault((raw.ns, raw.id), set()).add(raw.digest)
                if not self._is_sound(raw):
                    self.suspects[raw.ns, raw.id] = None
            self.check.tally.writes += len(page)
            after = (page[-1].ns, page[-1].id, page[-1].task, page[-1].slot)
            if len(page) < RECORDS:
                return

    def _is_sound(self, raw: RawWrite) -> bool:
        try:
            row = write_row(raw)
            read_batch(self.check.place(raw.ns), row, self._marks, self.check.blobs)
        except (Unsound, EvolutionError):
            return False
        return self._bad.isdisjoint(row.numbers)

    # -- what belongs together ---------------------------------------------------------------

    def _compare_heads(self) -> None:
        for ns, head in self.heads.items():
            fact = self.facts.get((ns, head.id))
            if fact is None:
                self.headless[ns] = None
            if fact is None or fact.digest != head.digest:
                self.suspects[ns, head.id] = None
        kept = {ns for (ns, _), fact in self.facts.items() if not fact.refused}
        self.headless |= dict.fromkeys(sorted(kept - self.heads.keys()))

    def _compare_chain(self) -> None:
        for (ns, _), fact in self.facts.items():
            where = (ns, fact.parent or "")
            parent = self.facts.get(where) if fact.parent is not None else None
            if parent is None and fact.needs:
                self.suspects[where] = None
            if parent is None or not fact.proven or not _is_later(fact, parent):
                continue
            unfit = fact.parent_digest not in (b"", parent.digest)
            if unfit or not self.written.get(where, set()).issuperset(fact.consumed):
                self.suspects[where] = None

    # -- what is looked at again -------------------------------------------------------------

    async def settle(self, pending: dict[Ids, list[WriteRow]]) -> None:
        """Looks at all that is suspect again, and puts it right, or reports it.

        Args:
            pending: what the hot tier says that the durable one must have.
        """
        for at, rows in pending.items():
            if not self.written.get(at, set()).issuperset(row.digest for row in rows):
                self.suspects[at] = None
        if self.suspects or self.headless:
            sources = await self.sources(self.namespaces)
            sources.pending = pending
            for ns in self.headless:
                await self._examine_head(ns, sources)
            for at in self.suspects:
                await self._examine(at, sources)
        for ns, head in self.heads.items():
            fact = self.facts.get((ns, head.id))
            if fact is not None and fact.counted:
                await self._examine_ancestry(ns, head)

    async def restore(self, at: Ids) -> None:
        """Restores a checkpoint, as far as it can be; what cannot is not told of."""
        sources = await self.sources([at[0]])
        for _ in range(LOOKS):
            case = await self._case(at, sources)
            if case is None:
                continue
            able = [flaw for flaw in scrub.examine(case) if flaw.repair is not None]
            if await self._settle(able):
                return

    async def _examine_head(self, ns: str, sources: Sources) -> None:
        facts = sorted(
            ((f.seq, id) for (at, id), f in self.facts.items() if at == ns and not f.refused),
            reverse=True,
        )
        last = max((f.seq, id) for (at, id), f in self.facts.items() if at == ns) if facts else None
        ids = {(ns, id) for _, id in (*facts[:CHILDREN], *([last] if last else []))}
        key, head = self.check.thread.key, self.heads.get(ns)
        for _ in range(LOOKS):
            if head is not None:
                same = (at for at, fact in self.facts.items() if fact.digest == head.digest)
                ids |= {(ns, head.id), *(at for at in same if at[0] == ns)}
            sight = await self.check.durable.look(key, sorted(ids), [], [ns])
            if sight.heads.get(ns) != head:
                head = sight.heads.get(ns)  # it moved: what it names now has to be looked for, too
                continue
            flaw = anchors.misplaced_head(key, sight, ns, sources)
            if flaw is None or await self._settle([flaw]):
                if flaw is not None and head is not None:
                    self.suspects.pop((ns, head.id), None)
                return

    async def _examine(self, at: Ids, sources: Sources) -> None:
        for _ in range(LOOKS):
            case = await self._case(at, sources)
            if case is not None and await self._settle(scrub.examine(case)):
                return

    async def _case(self, at: Ids, sources: Sources) -> Case | None:
        """All that belongs to a checkpoint, at one moment; None if it changed between two looks."""
        children = [
            (ns, id)
            for (ns, id), fact in self.facts.items()
            if (ns, fact.parent) == at and fact.proven
        ]
        ids = [at, *children[-CHILDREN:]]
        key, look = self.check.thread.key, self.check.durable.look
        first = await look(key, ids, [], [at[0]])
        sight = await look(key, ids, sorted(_numbers(first, at, sources)), [at[0]])
        if (first.records, first.writes) != (sight.records, sight.writes):
            return None
        return Case(
            self.check.place(at[0]),
            at[1],
            sight,
            sources,
            [child for ids in children if (child := self._child(sight, at, ids)) is not None],
            self.check.blobs,
            self.check.describe,
        )

    def _child(self, sight: Sight, at: Ids, ids: Ids) -> Child | None:
        """What a child that is still as it was proven says of its parent."""
        raw, fact, parent = sight.records.get(ids), self.facts[ids], sight.records.get(at)
        if raw is None or raw.digest != fact.digest:
            return None
        later = parent is None or (not raw.refused and parent.seq < raw.seq)
        needs = bool(fact.edge) and raw.edge != fact.edge
        return Child(fact.parent_digest, fact.consumed, later, needs)

    async def _examine_ancestry(self, ns: str, head: RawHead) -> None:
        """Whether all is there that the DeltaChannels of a head are made from."""
        if any(at == ns and not fact.proven for (at, _), fact in self.facts.items()):
            return  # what cannot be read tells nothing of what it is made from
        for _ in range(LOOKS):
            try:
                await self._replay(self.check.place(ns), head)
                return
            except EvolutionError:
                return  # it cannot be told
            except (Unsound, ValueError) as error:
                reason = str(error)
            sight = await self.check.durable.look(self.check.thread.key, [], [], [ns])
            if sight.heads.get(ns) != head:
                return
        self.check.tell("postgres", Flaw("checkpoint", ns, head.id, reason))

    async def _replay(self, place: Place, head: RawHead) -> None:
        durable, blobs, serializer = self.check.durable, self.check.blobs, self.check.serializer
        shape = self.check.shared.shape
        rows = await durable.chain(place, head.id, 1)
        if rows and (names := self._replayed(rows[0], place)):
            await history.ancestry(durable, blobs, shape, serializer, place, head.id, names)

    def _replayed(self, row: RecordRow, place: Place) -> set[str]:
        check = self.check
        try:
            return history.replayed_at(
                row, check.blobs, check.shared.shape, check.serializer, place
            )
        except (Unsound, EvolutionError):
            raise
        except Exception:  # the bytes are what was written; other code may read them
            return set()

    # -- outcomes ----------------------------------------------------------------------------

    async def _settle(self, flaws: Sequence[Flaw]) -> bool:
        """Puts right what can be, and reports it all; False if something was no longer as it was
        found, which has to be looked at again."""
        flaws = [await self._signed(flaw) for flaw in flaws]
        able = [flaw for flaw in flaws if isinstance(flaw.repair, Repair)]
        done: set[tuple[object, ...]] = set()
        if self.check.repair and able:
            repairs = [repair for f in able if isinstance(repair := f.repair, Repair)]
            order = sorted(range(len(able)), key=lambda i: _ORDER.index(type(repairs[i].right)))
            told = await self.check.durable.mend(self.check.thread.key, [repairs[i] for i in order])
            done = {able[i].name for i, did in zip(order, told, strict=True) if did}
            for i in order:
                if able[i].name in done:
                    self.check.tell("postgres", able[i], repaired=True)
            if len(done) < len(able):
                return False
        for flaw in flaws:
            if flaw.name not in done:
                self.check.tell("postgres", flaw)
        return True

    async def _signed(self, flaw: Flaw) -> Flaw:
        """The flaw, a head's repair with what signs it; nothing would put it right if nothing may
        sign it."""
        repair = flaw.repair
        if not isinstance(repair, Repair) or not isinstance(right := repair.right, RawHead):
            return flaw
        head = Head(right.id, right.seq, right.digest, right.seal)
        seal = await self.prove(self.check.place(right.ns), head)
        if seal is None:
            return replace(flaw, repair=None)
        return replace(flaw, repair=replace(repair, right=replace(right, seal=seal)))


def _is_later(child: Fact, parent: Fact) -> bool:
    """Whether a child must fit its parent as that is stored: not if that was replaced since."""
    return not child.refused and parent.seq < child.seq


def _numbers(sight: Sight, at: Ids, sources: Sources) -> set[int]:
    """The chunks that a checkpoint and its writes name, or those that may take their place."""
    packed = [raw.packed for raw in sight.writes if (raw.ns, raw.id) == at]
    packed += [raw.packed for raw in (sight.records.get(at),) if raw is not None]
    rows = (*sources.records.get(at, ()), *sources.writes.get(at, ()), *sources.pending.get(at, ()))
    found = {no for row in rows for no in row.numbers}
    for data in packed:
        try:
            found.update(unpacked(data))
        except Unsound:
            continue
    return found
