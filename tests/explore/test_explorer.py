"""Every interleaving and one crash of small scenarios; and that the explorer would see a fault."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import Any
from uuid import UUID

import pytest

from langgraph_durable_state import words
from langgraph_durable_state.drivers.memory import MemoryDurable
from langgraph_durable_state.drivers.memory_world import LeaseRow, Rows, World
from langgraph_durable_state.words import (
    Granted,
    Head,
    Occupied,
    Outcome,
    Place,
    Put,
    PutWrites,
    Thread,
)
from tests.explore import (
    behind,
    edges,
    heads,
    leases,
    migrations,
    rekeys,
    removals,
    scenarios,
    scrubs,
)
from tests.explore.explorer import FoundError, Scenario, Task, explore, replay, switch
from tests.explore.scenarios import Stored

LEAST: Mapping[type[Stored], int] = {
    # Two puts: see `two_puts`. A put that wins has 3 parts (to the commit, to its answer, to the
    # end), writes too; prune 5 (heads, chain, the removal and its answer). Without crashes and
    # failures parts of a and b steps interleave in at least comb(a + b, a) ways.
    scenarios.TwoPuts: 146,
    scenarios.TwoPutsOnDamage: 146,
    scenarios.TwoFirstPuts: 146,
    scenarios.TwoPutsOfOneProcess: 146,
    scenarios.ForkBesidePut: comb(6, 3),
    scenarios.PutBesideWrites: comb(6, 3),
    scenarios.PutBesideItsParentsWrites: comb(6, 3),
    removals.PutBesidePrune: comb(8, 3),
    removals.ForkBesidePrune: comb(8, 3),
    # Apart, a step and its answer are one part: a loser has 3 (commit, standing, keep), prune 3.
    removals.LoserBesidePrune: comb(6, 3),
    removals.WritesBesidePrune: comb(7, 3),
    removals.RepeatedWritesBesidePrune: comb(6, 3),
    # A copy has 7 steps (heads of both, two pages, rows, heads set and seen), the other 4 (commit,
    # heads, chain, the removal); a copy that starts again has more.
    removals.CopyBesidePrune: comb(11, 4),
    # The winner commits and raises the copy, the loser has 3 parts: 4 orders for each winner;
    # the reader's two steps (read, fetch) fall anywhere between those five.
    scenarios.TwoPutsAndReader: 2 * 4 * comb(7, 2),
    # Five of the run's steps use the hot tier: raise and its answer, fetch, raise and its answer.
    scenarios.HotFails: 2**5,
    scenarios.HotFailsBesideReader: comb(7, 2),
    scenarios.LostAnswer: 1 + 2 * 2,
    # Behind, all are apart. A flush takes, asks how far it is, flushes, and acknowledges: 4 steps
    # for each wave, the second of one batch needs 2.
    behind.FlushBesidePut: comb(8 + 3, 3),
    behind.FlushBesideFlush: comb(8, 4),
    behind.FlushBesideFlushOfTwo: comb(12, 6),
    behind.FlushBesideDelete: comb(4 + 7, 4),
    behind.WritesBesideFlush: comb(4 + 2, 2),
    # The loser looks at both tiers, drains, and is kept: 7 steps after the winner's one.
    behind.TwoPutsBehind: 2 * 8,
    # Both begin the spell in three steps.
    behind.TwoPutsBegin: comb(6, 3),
    behind.TwoFirstPutsBehind: comb(6, 3),
    behind.PutBesideEnd: comb(3 + 1, 1),
    behind.PutBesideDelete: comb(7 + 3, 3),
    behind.PutBesideWritesBehind: comb(6, 3),
    # Redis is lost at any of the steps of a run.
    behind.LossBesidePut: 8,
    behind.LossBesidePutOnOpen: 6,
    behind.LossBesideThroughOnOpen: 6,
    behind.AcceptedLossBesidePut: 8,
    behind.AcceptedLossBesidePutOnOpen: 6,
    # Two steps to read and one more if the copy is gone; deletion, drop, commit, raise.
    removals.ReadBesideDelete: comb(6, 2),
    # The next holder takes the lease, reads and puts. If it takes it before the last of a holder's
    # n steps, one that is refused follows, anywhere among the other two: 3 n + 1 orders. A put is
    # one step, or three if it is kept; writes two, if they differ.
    leases.TakeOverBesidePut: 3 * 1 + 1,
    leases.TakeOverBesideFork: 3 * 1 + 1,
    leases.TakeOverBesideLoser: 3 * 3 + 1,
    leases.TakeOverBesideWrites: 3 * 4 + 1,
    # Renewal and put, beside the clock and whoever then takes the lease, reads and puts.
    leases.ExpiryBesideRenewal: comb(6, 2),
    # To take it is two steps where there is a hot tier, and so is reading.
    leases.HotTakeOverBesidePut: comb(6, 1),
    leases.HotTakeOverBesideFork: comb(6, 1),
    leases.HotTakeOverBesideFirstPut: comb(6, 1),
    leases.HotTakeOverBesideLoss: 6 * comb(6, 1),
    leases.HotTakeOverBesideFirstPutAndLoss: 6 * comb(6, 1),
    # A check of Postgres alone has 6 steps: entry and heads, two pages of chunks, records, writes,
    # heads again. With a hot tier there are two more at least. Put and writes are one each, reading
    # is another, so is each of prune's three.
    scrubs.ScrubBesidePut: comb(8, 2),
    scrubs.ScrubBesideTwoPuts: comb(9, 3),
    scrubs.ScrubBesideReplacement: comb(9, 3),
    scrubs.ScrubBesidePrune: comb(9, 3),
    scrubs.ScrubBesideDelete: comb(8, 2),
    # Until the last of eight steps there is nothing to be seen.
    scrubs.ScrubBesideCopy: 8,
    scrubs.ScrubBesidePutBehind: comb(9, 1),
    scrubs.ScrubBesideFlush: comb(12, 4),
    scrubs.MendBesidePut: comb(10, 2),
    scrubs.MendBesidePrune: comb(11, 3),
    # A reader has two steps where nothing has to be told, a put two, a check eight; a deletion six
    # (ahead, heads, drop, the removal, drop, erase), one for runs ten, a fork seven without a hot
    # tier, or twelve, with the look that comes before it.
    heads.ReadBesideDelete: comb(8, 2),
    heads.PutBesideDelete: comb(8, 2),
    heads.FirstPutBesideDelete: comb(8, 2),
    heads.VerifyBesideDelete: comb(14, 6),
    heads.ReadBesideRemoval: comb(12, 2),
    heads.ReadBesidePutAndRemoval: comb(14, 2),
    heads.ListBesidePutAndRemoval: comb(14, 2),
    heads.ReadBesideFork: comb(9, 2),
    heads.PutBesideFork: comb(14, 2),
    # To rekey takes six steps without a hot tier: ahead, heads, page, the rewriting, ahead, page;
    # prune four, a deletion three, writes one.
    rekeys.RekeyBesidePrune: comb(10, 4),
    rekeys.RekeyBesideDelete: comb(9, 3),
    rekeys.RekeyBesideWrites: 7,
    # Under a key a fork has five steps: who is head, what is there of it, the commit that finds the
    # parent gone, the look for it, and the commit of all of it; or three.
    edges.ForkBesidePrune: comb(6, 3),
    edges.LoserBesidePrune: comb(6, 3),
    edges.CopyBesidePrune: comb(11, 4),
    edges.ScrubBesidePrune: comb(9, 3),
    edges.ForkBesideRemoval: comb(10, 3),
    # Migrating takes 5 steps: what Redis may be ahead of, heads, a page without values, one with
    # them, and the rewriting. The run has two, reading one.
    migrations.MigrateBesidePut: comb(7, 2),
    migrations.ReadBesideMigrate: comb(6, 1),
}


LONG = (
    behind.CrashesBesideDelete,
    behind.ThroughBesideBehind,
    behind.ThroughBesideBegin,
    behind.ReadBesideEnd,
    behind.FlushOfQueued,
)
"""Thousands of schedules each."""


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("scenario", LONG, ids=lambda s: s.__name__)
def test_every_schedule_of_the_long(scenario: type[Stored]) -> None:
    print(f"{scenario.__name__}: {explore(scenario)} schedules")


@pytest.mark.parametrize("before", range(9))
@pytest.mark.parametrize("slow", "01")
def test_a_slow_flusher_disturbs_no_spell_that_ended(slow: str, before: int) -> None:
    """One stops after each of its first parts until the other has come to its end: of all schedules
    of that scenario, which are millions, those in which a flusher marked a head for a spell that
    was gone, or reported a loss of what the other had stored."""
    other = "10"[int(slow)]
    replay(behind.EndOfQueued, ",".join([slow] * before + [f"{other}*", f"{slow}*", f"{other}*"]))


@pytest.mark.parametrize("before", range(0, 43, 3))
def test_what_redis_takes_while_a_thread_is_rekeyed_is_not_left_unnamed(before: int) -> None:
    """After each third part of it; of all schedules there are millions."""
    steps = ["1"] * before + ["0*", "1*", "0*"]
    replay(rekeys.RekeyBesideWritesBehind, ",".join(steps))


SLOW = {
    behind.FlushBesideDelete,
    removals.CopyBesidePrune,
    scrubs.ScrubBesideFlush,
    scrubs.MendBesidePrune,
    heads.VerifyBesideDelete,
    heads.ListBesidePutAndRemoval,
    edges.CopyBesidePrune,
    edges.ForkBesideRemoval,
    migrations.MigrateBesidePut,
}
"""Half a minute each, or more."""


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(s, marks=pytest.mark.long if s in SLOW else ()) for s in LEAST],
    ids=lambda s: s.__name__,
)
def test_every_schedule_of(scenario: type[Stored]) -> None:
    """What must hold holds after each."""
    count = explore(scenario)
    print(f"{scenario.__name__}: {count} schedules")
    assert count >= LEAST[scenario]


def two_puts(winner: int = 3, loser: int = 6) -> int:
    """The schedules of two puts with one crash, counted without running any.

    Whoever commits first (its second part) wins; the loser looks what is there and keeps its
    record. After a crash there is one way to go on; one is possible after each part of a task
    that has not ended with it, and for either task before anything.
    """

    def count(at: tuple[int, int], first: int | None) -> int:
        ends = [9 if first is None else winner if first == i else loser for i in (0, 1)]
        live = [i for i in (0, 1) if at[i] < ends[i]]
        total = 0 if live else 1
        for i in live:
            now = (at[0] + (i == 0), at[1] + (i == 1))
            wins = first is None and now[i] == 2
            end = winner if wins or first == i else loser
            total += (now[i] < end) + count(now, i if wins else first)
        return total

    return 2 + count((0, 0), None)


def test_the_schedules_of_two_puts_are_all_there() -> None:
    assert explore(scenarios.TwoPuts) == two_puts() == 146


class _Counting(Scenario):
    """Two tasks of two and three switch points."""

    crashes = 0
    seen: list[str]

    def begin(self) -> Sequence[Coroutine[Any, Any, Any]]:
        self.order = ""
        return [self.task("a", 2), self.task("b", 3)]

    async def task(self, name: str, points: int) -> None:
        for _ in range(points):
            self.order += name
            await switch("point")
        self.order += name

    def check(self, *tasks: Task) -> None:
        self.seen.append(self.order)


def test_every_order_comes_exactly_once() -> None:
    class Orders(_Counting):
        seen: list[str] = []  # noqa: RUF012

    assert explore(Orders) == comb(7, 3) == len(set(Orders.seen)) == len(Orders.seen)
    assert Orders.seen[0] == "aaabbbb"


def test_a_task_crashes_at_each_of_its_points() -> None:
    """Once before anything and after each part but the last."""

    class One(_Counting):
        crashes = 1
        seen: list[str] = []  # noqa: RUF012

        def begin(self) -> Sequence[Coroutine[Any, Any, Any]]:
            self.order = ""
            return [self.task("a", 2)]

    assert explore(One) == 4
    assert sorted(One.seen) == ["", "a", "aa", "aaa"]


# -- faults that are planted -----------------------------------------------------------------


class ComparesNothing(MemoryDurable):
    """A put becomes the head whatever the head is."""

    def claims(self, put: Put, head: Head | None) -> bool:
        return True


class KeepsNoLoser(MemoryDurable):
    """A refused put is answered, and forgotten."""

    async def keep_aside(self, put: Put, refused: bool) -> int | None:
        return 0


class PrunesBlindly(MemoryDurable):
    """What is to be kept was chosen before the head moved."""

    def unmoved(self, now: Mapping[str, Head], then: Mapping[str, Head]) -> bool:
        return True


class SweepsWrites(MemoryDurable):
    """Chunks that only pending writes refer to are swept."""

    async def keep(self, thread: Thread, *args: Any) -> bool:
        rows = self._world.rows(thread)
        done = await super().keep(thread, *args)
        bare = Rows(checkpoints=dict(rows.checkpoints), chunks=dict(rows.chunks))
        bare.sweep()
        rows.chunks = bare.chunks
        return done


class TrustsTheBase(MemoryDurable):
    """A put may refer to chunks of a checkpoint that is gone."""

    def able(self, put: Put) -> bool:
        return True


class ForgetsFences(MemoryDurable):
    """What carries an old fence is stored."""

    def fenced(self, item: Put | PutWrites) -> bool:
        return False


class KeepsFenced(MemoryDurable):
    """The fence is looked at by the statement that compares, and not by the one that keeps."""

    async def keep_aside(self, put: Put, refused: bool) -> int | None:
        return await super().keep_aside(replace(put, fence=None), refused)


class TakesWhatRuns(MemoryDurable):
    """A lease is taken over though it has not run out."""

    async def take_lease(self, thread: Thread, holder: str, ttl: float) -> Granted | Occupied:
        self._world.leases.setdefault(thread.key, LeaseRow(0, "", 0.0)).until = 0.0
        return await super().take_lease(thread, holder, ttl)


class OpensForAnybody(MemoryDurable):
    """The durable head is marked for an overtaken holder."""

    async def mark_ahead(self, place: Place, token: bytes, *more: Any) -> tuple[Head, bytes] | None:
        return await super().mark_ahead(place, token, more[0])


class Forgetful(dict[UUID, int]):
    def __setitem__(self, key: UUID, value: int) -> None:
        pass


class HotForgetsFences(MemoryDurable):
    """The hot tier is told of no fence."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.fences = Forgetful()


class DropsLaterBatches(MemoryDurable):
    """A task's batch that differs from its first is acknowledged, and forgotten."""

    def _write_differing(self, *args: Any) -> Outcome:
        return words.Stored()


class FlushesWithoutKeeping(MemoryDurable):
    """What is left of a flush is stored after it, if nobody dies in between."""

    async def flush(self, *args: Any) -> list[Outcome] | None:
        self.flushing = True
        return await super().flush(*args)

    def _write_differing(self, *args: Any) -> Outcome:
        if self.flushing:
            self.flushing = False
            return words.Stored()
        return super()._write_differing(*args)

    flushing = False


class RemovesBlindly(MemoryDurable):
    """Whose parents go was looked for before the last of them came."""

    async def remove(self, thread: Thread, doomed: Any, seals: Any = None, edges: Any = ()) -> bool:
        self._world.rows(thread).sever(edges)
        return await super().remove(thread, doomed, seals or {})


class StoresNoEdges(MemoryDurable):
    """A put whose parent was gone does not say so."""

    async def commit(self, batch: Sequence[Put | PutWrites]) -> list[Outcome]:
        bare = [replace(one, edge=b"") if isinstance(one, Put) else one for one in batch]
        return await super().commit(bare)


FAULTS: Sequence[tuple[type[Stored], type[MemoryDurable]]] = [
    (scenarios.TwoPuts, ComparesNothing),
    (scenarios.TwoFirstPuts, ComparesNothing),
    (scenarios.TwoPutsAndReader, ComparesNothing),
    (scenarios.TwoPuts, KeepsNoLoser),
    (removals.PutBesidePrune, PrunesBlindly),
    (edges.ForkBesideRemoval, RemovesBlindly),
    (edges.ForkBesidePrune, StoresNoEdges),
    (removals.WritesBesidePrune, SweepsWrites),
    (removals.ForkBesidePrune, TrustsTheBase),
    (behind.WritesBesideFlush, DropsLaterBatches),
    (behind.WritesBesideFlush, FlushesWithoutKeeping),
    (leases.TakeOverBesidePut, ForgetsFences),
    (leases.TakeOverBesideFork, ForgetsFences),
    (leases.TakeOverBesideWrites, ForgetsFences),
    (leases.TakeOverBesideLoser, KeepsFenced),
    (leases.ExpiryBesideRenewal, TakesWhatRuns),
    (leases.HotTakeOverBesidePut, HotForgetsFences),
    (leases.HotTakeOverBesideFork, HotForgetsFences),
    (leases.HotTakeOverBesideFirstPut, HotForgetsFences),
    (leases.HotTakeOverBesideFirstPutAndLoss, OpensForAnybody),
]


def planted(scenario: type[Stored], fault: type[MemoryDurable]) -> Callable[[], Stored]:
    return type("Planted", (scenario,), {"durable": fault})


@pytest.mark.parametrize(
    ("scenario", "fault"), FAULTS, ids=lambda kind: getattr(kind, "__name__", "?")
)
def test_a_planted_fault_is_found(scenario: type[Stored], fault: type[MemoryDurable]) -> None:
    """By a schedule that fails again when it is replayed."""
    with pytest.raises(FoundError) as found:
        explore(planted(scenario, fault))
    schedule = found.value.schedule
    with pytest.raises(FoundError, match=schedule) as again:
        replay(planted(scenario, fault), schedule)
    assert again.value.schedule == schedule


def test_a_schedule_is_replayed_step_by_step() -> None:
    """A part that cannot follow is named, with what could."""
    replay(scenarios.TwoPuts, "0,0,0,1,1,1,1,1,1")
    replay(scenarios.TwoPuts, "0,0,0x,1,1,1,1,1,1")
    with pytest.raises(ValueError, match="'7' cannot follow"):
        replay(scenarios.TwoPuts, "0,7")
