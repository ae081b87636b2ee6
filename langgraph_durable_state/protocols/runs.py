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
from ..errors import ConflictError
from ..words import Claim, Digest, Place

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
        addressed: the run was started at a checkpoint given by id, so it forks freely.
        loaded: digests of the pending writes loaded with `at`.
        writes: what this run has written, by checkpoint.
        conflict: set once the run has lost.
    """

    place: Place | None = None
    at: str | None = None
    record: Record | None = None
    digest: Digest = b""
    addressed: bool = False
    loaded: tuple[Digest, ...] = ()
    writes: dict[str, Against] = field(default_factory=dict)
    conflict: ConflictError | None = None
    leader: Run | None = None

    def resolved(self) -> Run:
        """The run that this one turned out to be part of."""
        run = self
        while run.leader is not None:
            run = run.leader
        return run

    def advanced(self, record: Record, digest: Digest) -> None:
        """The head is at `record` now, put by this run."""
        if record.parent is not None:
            self.writes.pop(record.parent, None)
        self.at, self.record, self.digest, self.loaded = record.id, record, digest, ()

    def against(self, id: str) -> Against:
        """This run's writes against a checkpoint."""
        return self.writes.setdefault(id, Against())

    def consumed(self) -> tuple[Digest, ...]:
        """The writes against `at` that a checkpoint built on it now has consumed."""
        made = self.against(self.at or "").made
        return tuple(dict.fromkeys((*self.loaded, *made.values())))


class Register:
    """Finds the run that a put or a task's writes belong to, within one process."""

    def __init__(self, most_early: int = 65_536) -> None:
        self._by_put: weakref.WeakValueDictionary[tuple[Place, str], Run] = (
            weakref.WeakValueDictionary()
        )
        self._early: OrderedDict[tuple[Place, str], Against] = OrderedDict()
        self._most_early = most_early
        self._forgot = False

    def started(self, run: Run, place: Place, id: str) -> None:
        """`run` is about to put `id`; writes against it belong to this run."""
        run.place = place
        self._by_put[place, id] = run

    def of_writes(self, config: Mapping[str, Any], place: Place, id: str) -> Run | None:
        """The run that makes writes against `id` with this config; None if it cannot be told."""
        run = run_of(config["configurable"].get("thread_id"))
        if run is not None and run.place == place and (id == run.at or id in run.writes):
            return run  # type: ignore[no-any-return]
        return self._by_put.get((place, id))

    def wrote(
        self,
        run: Run | None,
        place: Place,
        id: str,
        made: Made,
        chunks: Iterable[Chunk],
    ) -> None:
        """Writes against `id` were acknowledged."""
        known = {chunk.digest: chunk for chunk in chunks}
        if run is not None:
            against = run.against(id)
        else:
            # The put of `id` may not have begun yet: kept until it, or its child's, is.
            against = self._early.setdefault((place, id), Against())
        against.made.update(made)
        against.known.update(known)
        while len(self._early) > self._most_early:
            self._early.popitem(last=False)
            self._forgot = True

    def consumed(self, run: Run, place: Place) -> tuple[Digest, ...] | None:
        """What a checkpoint that `run` puts now has consumed; None if it cannot be told."""
        early = self._early.pop((place, run.at or ""), None)
        if early is not None:
            against = run.against(run.at or "")
            against.made.update(early.made)
            against.known.update(early.known)
        return None if self._forgot else run.consumed()


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
            run.leader = chosen
    return chosen


def _runs(versions: Mapping[str, Any]) -> Iterator[Run]:
    for version in versions.values():
        run = run_of(version)
        if run is not None:
            yield run.resolved()


def tagged(versions: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """`versions` as carriers of `run`."""
    return {k: Tagged(v, run) if isinstance(v, str) else v for k, v in versions.items()}


@dataclass(frozen=True, slots=True)
class Stance:
    """What a put claims, and on the strength of which run."""

    run: Run | None
    claim: Claim
    expected: Digest = b""


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
    if run is None:
        return Stance(None, Claim.ASIDE if stub else Claim.ANY)
    if run.addressed:
        return Stance(None, Claim.ANY)  # begun at get_next_version(None), as below
    if run.at is not None:
        return Stance(run, Claim.HEAD, run.digest)
    if config_run is not None and config_run.at == parent and config_run.place == place:
        # The loaded checkpoint carried no versions, so the run began at get_next_version(None).
        run.leader = config_run
        claim = Claim.ANY if config_run.addressed else Claim.HEAD
        return Stance(None if config_run.addressed else config_run, claim, config_run.digest)
    if place.ns:
        return Stance(run, Claim.ANY)  # a subgraph legitimately starts again on replay
    if parent is None:
        return Stance(run, Claim.EMPTY)
    return None
