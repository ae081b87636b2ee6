"""What the tiers hold in memory, and the switch points between their steps.

Nothing here suspends by itself. At a switch point (`World.step`) an explorer can let another task
go on, stop one for ever, or raise an error as if an answer had been lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from ..asfound import Quarantined
from ..decisions import projection
from ..errors import NumberTakenError
from ..words import (
    ChunkRow,
    DataKey,
    Digest,
    Edge,
    Entry,
    EventRow,
    Head,
    Phase,
    Place,
    RecordRow,
    Thread,
    WriteRow,
)

AFTER = ", answered"
"""Ends the name of the switch point between a change and its acknowledgement."""

Step = Callable[[str], Awaitable[None]]
Ids = tuple[str, str]
"""A namespace and a checkpoint id."""


async def go_on(name: str) -> None:
    """The default at a switch point: nothing, without suspending."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A row of the table of checkpoints: what is read back, what it is found by, and what says that
    its parent was removed."""

    row: RecordRow
    size: int
    meta: str
    edge: bytes = b""


@dataclass
class Rows:
    """All rows of one thread. ``thread`` is its entry, None if it has none; ``ahead`` are the
    tokens of heads that the hot tier may be ahead of, ``flushed`` how far they are flushed. While
    it is ``copying``, heads come last."""

    thread: Thread | None = None
    heads: dict[str, Head] = field(default_factory=dict)
    ahead: dict[str, bytes] = field(default_factory=dict)
    flushed: dict[str, int] = field(default_factory=dict)
    checkpoints: dict[Ids, Checkpoint] = field(default_factory=dict)
    writes: dict[tuple[str, str, str, int], WriteRow] = field(default_factory=dict)
    chunks: dict[int, ChunkRow] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    copying: bool = False

    def newest(self, ns: str) -> RecordRow | None:
        """The newest checkpoint of a namespace that was not refused."""
        of = [c.row for c in self.checkpoints.values() if c.row.ns == ns and not c.row.refused]
        return max(of, key=lambda row: row.seq, default=None)

    def add_chunks(self, chunks: Iterable[ChunkRow]) -> None:
        for chunk in chunks:
            self.chunks.setdefault(chunk.no, chunk)

    def require_free(self, chunks: Iterable[ChunkRow]) -> None:
        """Refuses numbers that are taken by other content, before anything is changed."""
        if any(self.chunks.get(c.no, c).digest != c.digest for c in chunks):
            raise NumberTakenError()

    def seq_of(self, ids: Ids) -> int | None:
        stored = self.checkpoints.get(ids)
        return stored.row.seq if stored else None

    def last(self, ns: str) -> int:
        """The last place in the order of a namespace that is taken; 0 if none is."""
        return max((c.row.seq for c in self.checkpoints.values() if c.row.ns == ns), default=0)

    def writes_of(self, ns: str, id: str) -> tuple[WriteRow, ...]:
        return tuple(row for key, row in sorted(self.writes.items()) if key[:2] == (ns, id))

    def has_parent(self, row: RecordRow) -> bool:
        """Whether the parent of a checkpoint is there."""
        return row.parent is not None and (row.ns, row.parent) in self.checkpoints

    def children(self, doomed: Iterable[Ids]) -> list[RecordRow]:
        """The checkpoints that stay when others go which are their parents."""
        gone = set(doomed)
        rows = [c.row for ids, c in sorted(self.checkpoints.items()) if ids not in gone]
        return [row for row in rows if (row.ns, row.parent) in gone and self.has_parent(row)]

    def sever(self, edges: Iterable[Edge]) -> None:
        """Says in checkpoints that their parents, which are there, are removed."""
        for edge in edges:
            stored = self.checkpoints.get((edge.ns, edge.id))
            if stored and stored.row.digest == edge.digest and self.has_parent(stored.row):
                self.checkpoints[edge.ns, edge.id] = replace(stored, edge=edge.signed)

    def remove(self, doomed: Iterable[Ids]) -> None:
        gone = set(doomed)
        self.checkpoints = {ids: c for ids, c in self.checkpoints.items() if ids not in gone}
        self.writes = {key: row for key, row in self.writes.items() if key[:2] not in gone}

    def settle(self, seals: Mapping[Digest, bytes]) -> None:
        """Moves heads that stand on nothing to the newest checkpoint left, or removes them; `seals`
        sign those by their digests."""
        for ns, head in list(self.heads.items()):
            if (ns, head.id) in self.checkpoints:
                continue
            newest = self.newest(ns)
            if newest is None:
                del self.heads[ns]
            else:
                seal = seals.get(newest.digest, b"")
                self.heads[ns] = Head(newest.id, head.seq, newest.digest, seal)

    def sweep(self) -> None:
        used = {no for c in self.checkpoints.values() for no in c.row.numbers}
        used |= {no for row in self.writes.values() for no in row.numbers}
        self.chunks = {no: chunk for no, chunk in self.chunks.items() if no in used}


HotWrite = tuple[WriteRow, tuple[ChunkRow, ...]]
Spot = tuple[UUID, str]
"""A thread's key and a namespace: what a Redis key tells. Who flushes what others left behind knows
no more of a place."""


def spot(place: Place) -> Spot:
    """Where the hot tier has what it has of a place."""
    return place.thread.key, place.ns


@dataclass
class HotSpell:
    """A namespace's spell, as the scripts keep it."""

    token: bytes
    phase: Phase
    previous: bytes = b""
    head: Head = field(default=Head("", 0, b""))
    base: Digest | None = b""
    chain: tuple[Digest, ...] = ()
    marked: bool = True
    secured: int = 0
    server: int = 0
    at: float = 0.0


@dataclass
class LeaseRow:
    """A row of the table of leases; ``until`` is by the world's clock."""

    fence: int
    holder: str
    until: float


class World:
    """What both tiers hold, shared by all drivers over it.

    Attributes:
        step: awaited at each switch point with its name; may be replaced at any time.
        threads: the durable rows.
        copies: the hot copies; clear it to lose them.
        witnesses: of durable heads, likewise.
        drops: how often they were dropped.
        leases: their rows, by thread.
        data_keys: by id, the newest last.
        quarantine: what was found in the place of what was written, by thread.
        now: the clock of both, in seconds; it stands still until somebody moves it.
        spells, hot_writes, outboxes: what the hot tier holds alone; `lose_hot` loses it all.
        fences: the largest that the hot tier was told of, by thread.
        flushers: who flushes a thread, and until when.
        server: which server holds it; another one after a restart.
    """

    def __init__(self, step: Step = go_on) -> None:
        self.step = step
        self.threads: defaultdict[UUID, Rows] = defaultdict(Rows)
        self.copies: dict[Spot, tuple[RecordRow, Mapping[int, ChunkRow]]] = {}
        self.witnesses: dict[Spot, bytes] = {}
        self.drops: dict[Spot, bytes] = {}
        self.spells: dict[Spot, HotSpell] = {}
        self.hot_writes: dict[Spot, dict[tuple[str, str, int], HotWrite]] = {}
        self.outboxes: dict[UUID, list[tuple[int, Entry]]] = {}
        self.leases: dict[UUID, LeaseRow] = {}
        self.data_keys: dict[bytes, DataKey] = {}
        self.quarantine: dict[UUID, list[Quarantined]] = {}
        self.now = 0.0
        self.fences: dict[UUID, int] = {}
        self.flushers: dict[UUID, tuple[bytes, float]] = {}
        self.appended = 0
        self.server = 0

    def lose_hot(self) -> None:
        """The hot tier forgets everything, as a server does that was killed."""
        self.copies, self.spells, self.hot_writes, self.outboxes = {}, {}, {}, {}
        self.fences, self.flushers, self.witnesses, self.drops = {}, {}, {}, {}
        self.server += 1

    def rows(self, thread: Thread) -> Rows:
        return self.threads[thread.key]


class Change:
    """An atomic change, between its two switch points."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    async def __aenter__(self) -> None:
        await self._world.step(self._name)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self._world.step(self._name + AFTER)


def matches(meta: str, wanted: Mapping[str, str]) -> bool:
    """Whether metadata equals the filter's JSON text at each of its keys, types included."""
    _, have = projection.typed(meta)
    return all(key in have and have[key] == projection.typed(text) for key, text in wanted.items())
