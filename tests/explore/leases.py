"""Scenarios in which a lease runs out beside what its holder puts.

What must hold in all of them: what an overtaken holder puts is there before the next holder reads
for the first time, or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph_durable_state.decisions.keys import named
from langgraph_durable_state.drivers.blocking import run
from langgraph_durable_state.errors import (
    ConflictError,
    LeaseLostError,
    StateLostError,
    UnavailableError,
)
from langgraph_durable_state.words import Granted, Place
from tests.contract.superstep import config
from tests.explore.explorer import Task
from tests.explore.scenarios import Coros, Stored, big

THREAD = named("", "t")
TTL = 30.0


class Leased(Stored):
    """A holder that loaded the head under its lease, and the next one.

    Attributes:
        begun: the checkpoint that the holder builds on; None for the head.
        base: the head that both meet.
        taken: when the next holder took the lease, by the world's clock.
        seen: what was stored when it had read for the first time.
        gone: what was stored, and Redis forgot.
    """

    apart = True
    begun: str | None = None
    base = "2"
    taken: float | None = None
    seen: set[str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str] = set()

    def holder(self) -> tuple[Any, Any]:
        """A saver that holds the lease, and what it puts."""
        saver = self.saver()
        assert isinstance(run(leasing_of(saver).take(THREAD, "old", TTL)), Granted)
        loaded = saver.get_tuple(config(id=self.begun))
        return saver, self.step(saver, loaded, "a", {"own": big("a")})

    async def next(self) -> None:
        """Takes the lease if it can be had, reads, and puts."""
        saver = self.saver()
        found = await leasing_of(saver).take(THREAD, "new", TTL)
        if not isinstance(found, Granted):
            return
        self.taken = self.world.now
        read = await saver.aget_tuple(config())
        self.seen = self.stored()
        self.whole(read)
        await saver.aput(*self.step(saver, read, "b", {"more": big("b")}))

    def stored(self) -> set[str]:
        """Ids of all that was stored, in either tier."""
        held = {entry.item.id for _, entry in self.world.outboxes.get(THREAD.key, ())}
        return self.gone | held | {id for _, id in self.world.rows(THREAD).checkpoints}

    def overtaken(self) -> bool:
        return self.world.leases[THREAD.key].holder != "old"

    # -- what must hold ------------------------------------------------------------------

    def check(self, *tasks: Task) -> None:
        old, new, stored = tasks[0], tasks[1], self.stored()
        self.fared_under_lease(old, stored)
        assert new.crashed or new.done or self.allowed(new.error), new.error
        if new.done and self.taken is not None:
            assert "b" in stored
        if self.taken is not None:
            assert self.taken >= TTL
        if self.seen is not None:
            assert ("a" in stored) == ("a" in self.seen)
        self.check_head(stored)

    def check_head(self, stored: set[str]) -> None:
        head = "b" if "b" in stored else "a" if "a" in stored else self.base
        assert self.head() == head
        self.listed()

    def allowed(self, error: Exception | None) -> bool:
        """Whether a task may end so, besides."""
        return False

    def fared_under_lease(self, old: Task, stored: set[str]) -> None:
        """What was acknowledged is there, what was refused is not."""
        fenced = isinstance(old.error, LeaseLostError)
        assert old.crashed or old.done or fenced or self.allowed(old.error), old.error
        if old.done:
            assert "a" in stored
        if fenced:
            assert "a" not in stored
            assert self.overtaken()


def leasing_of(saver: Any) -> Any:
    return run(saver._faces.blocking()).leasing


class TakeOverBesidePut(Leased):
    """The lease has run out, and is taken over beside the put."""

    def begin(self) -> Coros:
        self.fill()
        saver, put = self.holder()
        self.world.now += 2 * TTL
        return [saver.aput(*put), self.next()]


class TakeOverBesideFork(TakeOverBesidePut):
    """The holder forks an older checkpoint, which no comparison of heads would refuse."""

    begun = "1"


class TakeOverBesideLoser(TakeOverBesidePut):
    """Somebody without a lease has moved the head: the holder's put is refused, and kept as long
    as its lease was not taken over."""

    base = "o"

    def begin(self) -> Coros:
        tasks = super().begin()
        other = self.saver()
        other.put(*self.step(other, other.get_tuple(config()), "o", {"own": big("o")}))
        return tasks

    def fared_under_lease(self, old: Task, stored: set[str]) -> None:
        error = old.error
        assert old.crashed or isinstance(error, (LeaseLostError, ConflictError)), error
        if error is not None:
            kept = isinstance(error, ConflictError) and error.refused == "a"
            assert ("a" in stored) == kept

    def check_head(self, stored: set[str]) -> None:
        super().check_head(stored - {"a"})


class TakeOverBesideWrites(TakeOverBesidePut):
    """The holder writes for tasks, one of which another wrote for already, before it puts."""

    def begin(self) -> Coros:
        self.fill()
        other = self.saver()
        other.put_writes(config(id="2"), [("log", big("first"))], "task")
        saver, put = self.holder()
        self.world.now += 2 * TTL
        return [self.run(saver, put), self.next()]

    async def run(self, saver: Any, put: Any) -> None:
        await saver.aput_writes(put[0], [("log", big("a"))], "task")
        await saver.aput_writes(put[0], [("own", big("a"))], "task 2")
        await saver.aput(*put)

    def rows(self) -> set[str]:
        """The writes that are stored."""
        return {f"{task} {slot}" for _, _, task, slot in self.world.rows(THREAD).writes}

    def stored(self) -> set[str]:
        return super().stored() | self.rows()

    def check(self, *tasks: Task) -> None:
        super().check(*tasks)
        if self.seen is not None:
            assert self.rows() <= self.seen


class ExpiryBesideRenewal(Leased):
    """A third task is the clock; the holder renews its lease, and then puts."""

    failures = 1

    def begin(self) -> Coros:
        self.fill()
        saver, put = self.holder()
        return [self.renew(saver, put), self.next(), self.clock()]

    async def renew(self, saver: Any, put: Any) -> None:
        fence = saver._leases.fence(THREAD)
        renewed = await leasing_of(saver).renew(THREAD, fence, "old", TTL)
        assert renewed or self.overtaken()
        await saver.aput(*put)

    async def clock(self) -> None:
        await self.world.step("clock")
        self.world.now += 2 * TTL

    def may_fail(self, point: str) -> bool:
        return point != "clock"

    def allowed(self, error: Exception | None) -> bool:
        return isinstance(error, UnavailableError)


class HotTakeOverBesidePut(TakeOverBesidePut):
    """Redis acknowledges; it is ahead of Postgres when the lease is taken over."""

    options: Mapping[str, Any] = {"hot_reads": "never", "write_policy": "write_behind"}

    def check_head(self, stored: set[str]) -> None:
        self.saver().flush(everyone=True)
        super().check_head(stored)


class HotTakeOverBesideFork(HotTakeOverBesidePut):
    """The holder forks an older checkpoint, which no comparison of heads would refuse."""

    begun = "1"


class HotTakeOverBesideFirstPut(HotTakeOverBesidePut):
    """Redis is not ahead: a put has to mark the durable head first."""

    def fill(self) -> None:
        super().fill()
        end_spell(self)


class HotTakeOverBesideLoss(HotTakeOverBesidePut):
    """A third task is Redis, which forgets everything, the fence included."""

    def fill(self) -> None:
        super().fill()
        self.saver().flush(everyone=True)

    def begin(self) -> Coros:
        return [*super().begin(), self.forget()]

    async def forget(self) -> None:
        await self.world.step("forget")
        before = self.stored()
        self.world.lose_hot()
        self.gone = before - self.stored()

    def allowed(self, error: Exception | None) -> bool:
        return isinstance(error, StateLostError)

    def check_head(self, stored: set[str]) -> None:
        """What is left is nobody's promise."""


class HotTakeOverBesideFirstPutAndLoss(HotTakeOverBesideLoss):
    """The same, where a put has to mark the durable head first."""

    def fill(self) -> None:
        super().fill()
        end_spell(self)


def end_spell(scenario: Stored) -> None:
    """Flushes the thread and takes its mark off."""
    saver = scenario.saver()
    saver.flush(everyone=True)
    token = scenario.world.rows(THREAD).ahead[""]
    assert run(run(saver._faces.blocking()).flusher.close(Place(THREAD, ""), token, 0.0))
