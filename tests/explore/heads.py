"""Scenarios over heads that are signed, while a thread goes or a head is moved back on purpose.

Redis keeps the newest signed head that it was told of. Whoever tells it late, of a head that is
gone by then, must leave nothing that contradicts what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langgraph_durable_state.decisions.keys import named
from langgraph_durable_state.errors import ConflictError, CorruptionError
from tests.contract.superstep import config
from tests.explore.explorer import Task
from tests.explore.scenarios import Coros, Stored, big

THREAD = named("", "t")


class Signed(Stored):
    """The heads are signed, and the thread goes while another process does what `beside` says."""

    apart = True
    options: Mapping[str, Any] = {
        "hot_reads": "never",
        "head_cache_bytes": 0,
        "integrity_key": b"k" * 32,
    }

    def begin(self) -> Coros:
        self.fill()
        return [self.beside(self.saver()), self.moved(self.saver())]

    def beside(self, saver: Any) -> Any:
        return saver.aget_tuple(config())

    def moved(self, saver: Any) -> Any:
        return saver.adelete_thread("t")

    def check(self, *tasks: Task) -> None:
        other, delete = tasks
        assert other.crashed or other.done or isinstance(other.error, ConflictError), other.error
        assert delete.crashed or delete.done, delete.error
        if not delete.done:
            self.saver().delete_thread("t")  # what was stopped half-way is asked for again
        left = self.head()
        assert left in self.left(other)
        assert set(self.listed()) == {left} - {None}
        if left is None:
            self.saver().put(*self.step(self.saver(), None, "n", {"own": big("n")}))
            assert self.head() == "n"

    def left(self, other: Task) -> set[str | None]:
        """What the head may be at the end."""
        return {None}


class ReadBesideDelete(Signed):
    """A reader has Redis told of the head that it has seen, where Redis does not know it."""


class VerifyBesideDelete(Signed):
    """So does a check of the thread."""

    crashes = 0

    def beside(self, saver: Any) -> Any:
        return saver.averify(["t"])


class PutBesideDelete(Signed):
    """So does a run of its put, which may be gone by then."""

    def beside(self, saver: Any) -> Any:
        return saver.aput(*self.step(saver, saver.get_tuple(config()), "3", {"own": big("3")}))


class FirstPutBesideDelete(PutBesideDelete):
    """Whatever Redis has seen, for a thread that begins."""

    def fill(self) -> None:
        pass

    def left(self, other: Task) -> set[str | None]:
        """There may have been nothing to delete yet."""
        return {None, "3"}


class ReadBesideRemoval(Signed):
    """The head's run is removed, and the head moved back."""

    def fill(self) -> None:
        super().fill()
        saver = self.saver()
        args = self.step(saver, saver.get_tuple(config()), "3", {"own": big("3")})
        saver.put(args[0], args[1], {**args[2], "run_id": "r"}, args[3])

    def moved(self, saver: Any) -> Any:
        return saver.adelete_for_runs(["r"])

    def check(self, *tasks: Task) -> None:
        read, remove = tasks
        assert read.crashed or read.done, read.error
        assert remove.crashed or remove.done, remove.error
        if not remove.done:
            self.saver().delete_for_runs(["r"])
        assert self.head() == "2"
        assert set(self.listed()) == {"1", "2"}


class ReadBesidePutAndRemoval(ReadBesideRemoval):
    """What Redis had seen when it was asked is gone when the head is looked at again."""

    crashes = 0

    def fill(self) -> None:
        Signed.fill(self)

    async def moved(self, saver: Any) -> None:
        found = await saver.aget_tuple(config())
        args = self.step(saver, found, "3", {"own": big("3")})
        await saver.aput(args[0], args[1], {**args[2], "run_id": "r"}, args[3])
        await saver.adelete_for_runs(["r"])


class ListBesidePutAndRemoval(ReadBesidePutAndRemoval):
    """Likewise of a list."""

    async def beside(self, saver: Any) -> None:
        assert [found.checkpoint["id"] async for found in saver.alist(config())]


class Forked(Signed):
    """The head is damaged, and moved back to the last sound checkpoint."""

    crashes = 0

    def harm(self) -> None:
        rows = self.world.rows(THREAD)
        at = "", rows.heads[""].id
        stored = rows.checkpoints[at]
        rows.checkpoints[at] = replace(stored, row=replace(stored.row, record=b"damaged"))


class ReadBesideFork(Forked):
    """Whoever reads meanwhile is told of the damage, or served what is sound."""

    options: Mapping[str, Any] = {**Signed.options, "hot": False}

    def begin(self) -> Coros:
        self.fill()
        self.harm()
        saver = self.saver()
        return [self.beside(self.saver()), saver.afork_from(saver.recover(config()))]

    def check(self, *tasks: Task) -> None:
        read, fork = tasks
        assert read.crashed or read.done or isinstance(read.error, CorruptionError), read.error
        assert fork.crashed or fork.done, fork.error
        self.on_corrupt = "raise" if fork.done else "fall_back"
        assert self.head() == "1"


class PutBesideFork(Forked):
    """What Redis is told of late may be the head that was damaged."""

    def beside(self, saver: Any) -> Any:
        return saver.aput(*self.step(saver, saver.get_tuple(config()), "3", {"own": big("3")}))

    async def moved(self, saver: Any) -> None:
        await self.world.step("wait")
        if "3" in {id for _, id in self.world.rows(THREAD).checkpoints}:
            self.harm()
            await saver.afork_from(await saver.arecover(config()))

    def check(self, *tasks: Task) -> None:
        assert all(task.done for task in tasks), [task.error for task in tasks]
        damaged = self.world.rows(THREAD).checkpoints["", "3"].row.record == b"damaged"
        assert self.head() == ("2" if damaged else "3")
