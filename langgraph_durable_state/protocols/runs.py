"""Runs: what one `get_tuple` of a head started, and what it may claim when it puts.

The proof travels in the channel versions; a task's writes find their run by the thread id of the
config that `get_tuple` returned, or by the checkpoint that the run itself has put.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..decisions.codec import Record
from ..decisions.matching import Chunk
from ..decisions.versions import Tagged, run_of
from ..errors import ConflictError, LeaseLostError
from ..words import Claim, Digest, Place, frozen

Made = dict[tuple[str, int], Digest]
"""Digests of acknowledged writes against one checkpoint, by task and slot."""


@dataclass(slots=True)
class Against:
    """A run's writes against one checkpoint.

    Attributes:
        made: the digests of those acknowledged.
        known: their chunks, which a child of the checkpoint may refer to.
        flying: chunks of writes that are being stored, whose numbers a child uses as well.
    """

    made: Made = field(default_factory=dict)
    known: dict[Digest, Chunk] = field(default_factory=dict)
    flying: dict[Digest, Chunk] = field(default_factory=dict)


@dataclass(eq=False, slots=True, weakref_slot=True)
class Run:
    """One run's view of a head.

    Attributes:
        place: where; None until the first put of a run that claims an empty thread.
        at: the checkpoint this run left the head at; None if it claims that there is none.
        record: that checkpoint, whose chunks the next put may refer to.
        digest: its digest, which the head must have at the next put.
        head: the digest that the head must have instead, where this run was not given the head,
            since that is damaged; empty if it is gone.
        apart: what is stored of `record` is damaged, so that nothing may refer to it.
        addressed: the run was started at a checkpoint given by id, so it forks freely.
        loaded: digests of the pending writes loaded with `at`.
        unstored: those of them that Postgres does not have right, and need not have.
        writes: what this run has written, by checkpoint.
        conflict: set once the run has lost, or its lease has been.
        hot: the hot tier has, or may have, what this run stands on and Postgres has not.
        degraded: how its next checkpoint is to be marked.
        fence: that of the lease it is made under, even after that has ended.
    """

    place: Place | None = None
    at: str | None = None
    record: Record | None = None
    digest: Digest = b""
    head: Digest | None = None
    apart: bool = False
    addressed: bool = False
    loaded: tuple[Digest, ...] = ()
    unstored: tuple[Digest, ...] = ()
    writes: dict[str, Against] = field(default_factory=dict)
    conflict: ConflictError | LeaseLostError | None = None
    hot: bool = False
    degraded: str | None = None
    fence: int | None = None
    leader: Run | None = None

    def resolved(self) -> Run:
        """The run that this one turned out to be part of."""
        run = self
        while run.leader is not None:
            run = run.leader
        return run

    def joins(self, leader: Run) -> None:
        """This run turned out to be part of another; so did what it has written."""
        self.leader = leader
        for id, against in self.writes.items():
            whole = leader.against(id)
            whole.made.update(against.made)
            whole.known.update(against.known)
            whole.flying.update(against.flying)

    def advanced(self, record: Record, digest: Digest) -> None:
        """The head is at `record` now, put by this run."""
        if record.parent is not None:
            self.writes.pop(record.parent, None)
        self.at, self.record, self.digest, self.loaded = record.id, record, digest, ()
        self.head, self.apart, self.unstored = None, False, ()

    def against(self, id: str) -> Against:
        """This run's writes against a checkpoint."""
        return self.writes.setdefault(id, Against())

    def consumed(self) -> tuple[Digest, ...]:
        """The writes against `at` that a checkpoint built on it now has consumed."""
        made = self.against(self.at or "").made
        return tuple(dict.fromkeys((*self.loaded, *made.values())))


class Register:
    """Finds the run that a put or a task's writes belong to, within one process.

    Args:
        most_early: how many checkpoints' writes may wait for their put to begin.
    """

    def __init__(self, most_early: int = 4_096) -> None:
        self._by_put: weakref.WeakValueDictionary[tuple[Place, str], Run] = (
            weakref.WeakValueDictionary()
        )
        self._early: OrderedDict[tuple[Place, str], Made] = OrderedDict()
        self._most_early = most_early

    def started(self, run: Run, place: Place, id: str) -> None:
        """`run` is about to put `id`; writes against it, earlier and later, belong to this run."""
        run.place = place
        self._by_put[place, id] = run
        early = self._early.pop((place, id), None)
        if early is not None:
            run.against(id).made.update(early)

    def of_writes(self, config: Mapping[str, Any], place: Place, id: str) -> Run | None:
        """The run that makes writes against `id` with this config; None if it cannot be told."""
        run = tagged_run(config)
        if run is not None and run.place == place and (id == run.at or id in run.writes):
            return run
        found = self._by_put.get((place, id))
        return found.resolved() if found is not None else None

    def wrote(
        self, run: Run | None, place: Place, id: str, made: Made, chunks: Iterable[Chunk]
    ) -> None:
        """Writes against `id` were acknowledged."""
        run = run or self._by_put.get((place, id))
        if run is not None:
            against = run.resolved().against(id)
            against.made.update(made)
            against.known.update((chunk.digest, chunk) for chunk in chunks)
            return
        # The put of `id` has not begun yet.
        self._early.setdefault((place, id), {}).update(made)
        while len(self._early) > self._most_early:
            self._early.popitem(last=False)

    def consumed(self, run: Run, place: Place) -> tuple[Digest, ...]:
        """What a checkpoint that `run` puts now has consumed."""
        # Writes against a loaded head whose config lost its tag on the way.
        early = self._early.pop((place, run.at or ""), None)
        if early is not None:
            run.against(run.at or "").made.update(early)
        return run.consumed()

    def settled(self, place: Place, parent: str | None) -> None:
        """A child of `parent` is stored: writes against it wait for nothing any more."""
        self._early.pop((place, parent or ""), None)


def tagged_run(config: Mapping[str, Any]) -> Run | None:
    """The run that a config's thread id remembers."""
    run = run_of(config["configurable"].get("thread_id"))
    return run.resolved() if run is not None else None


def run_of_versions(versions: Mapping[str, Any]) -> Run | None:
    """The run whose proof these channel versions carry; None for a caller without one.

    `get_next_version` may have started more than one for a new thread: they are one.
    """
    runs = dict.fromkeys(_runs(versions))
    if not runs:
        return None
    bound = [run for run in runs if run.at is not None or run.place is not None]
    chosen = bound[0] if bound else next(iter(runs))
    for run in runs:
        if run is not chosen and run.place is None:
            run.joins(chosen)
    return chosen


def _runs(versions: Mapping[str, Any]) -> Iterator[Run]:
    for version in versions.values():
        run = run_of(version)
        if run is not None:
            yield run.resolved()


def tagged(versions: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """`versions` as carriers of `run`."""
    return {k: Tagged(v, run) if isinstance(v, str) else v for k, v in versions.items()}


@frozen
class Stance:
    """What a put claims, and on the strength of which run."""

    run: Run | None
    claim: Claim
    expected: Digest = b""


def _on_head(run: Run) -> Stance:
    """What a run that was given a head, or what there was instead, claims."""
    expected = run.digest if run.head is None else run.head
    return Stance(run, Claim.HEAD if expected else Claim.EMPTY, expected)


def stance(
    run: Run | None, config_run: Run | None, place: Place, parent: str | None, stub: bool
) -> Stance | None:
    """What a put may claim; None if that needs the parent's digest first.

    Args:
        run: what the channel versions carry.
        config_run: what the config's thread id carries.
        place: where the put goes.
        parent: the checkpoint it builds on.
        stub: it is the checkpoint without channels that LangGraph puts before the final one of
            a new thread under ``durability="exit"``.
    """
    loaded = config_run
    if loaded is not None and (loaded.at != parent or loaded.place != place):
        loaded = None
    if run is None:
        if loaded is not None and loaded.addressed:
            return Stance(loaded, Claim.ANY)
        return Stance(None, Claim.ASIDE if stub else Claim.ANY)
    if run.addressed:
        return Stance(run, Claim.ANY)
    if run.at is not None:
        return _on_head(run)
    if loaded is not None:
        # The loaded checkpoint carried no versions, so the run began at get_next_version(None).
        run.joins(loaded)
        return Stance(loaded, Claim.ANY) if loaded.addressed else _on_head(loaded)
    if place.ns:
        return Stance(run, Claim.ANY)  # a subgraph legitimately starts again on replay
    if parent is None:
        return Stance(run, Claim.EMPTY)
    return None
