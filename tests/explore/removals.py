"""Scenarios in which something is removed while others read and write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_durable_state.errors import ConflictError
from tests.contract.superstep import config
from tests.explore.explorer import Task
from tests.explore.scenarios import Coros, Stored, big


class PutBesidePrune(Stored):
    """A run goes on while another process prunes its thread."""

    from_id: str | None = None
    """The checkpoint that is forked; None for a put on the head."""

    def begin(self) -> Coros:
        self.fill()
        run, pruner = self.saver(), self.saver()
        self.pruner = pruner
        put = self.step(run, run.get_tuple(config(id=self.from_id)), "a", {"more": big("a")})
        return [run.aput(*put), pruner.aprune(["t"])]

    def check(self, *tasks: Task) -> None:
        put, prune = tasks
        head = self.head()
        assert head in ("2", "a")
        for task in tasks:
            assert task.crashed or task.done, task.error
        if put.done:
            assert head == "a"
        there = self.listed()
        assert head in there
        if prune.done:
            assert "1" not in there
        self.pruner.prune(["t"])
        assert self.listed().keys() == {head}


class ForkBesidePrune(PutBesidePrune):
    """What is forked may be pruned: then the fork sends all of it."""

    from_id = "1"


class LoserBesidePrune(Stored):
    """A put that is refused, while the checkpoint it refers to is pruned."""

    apart = True

    def begin(self) -> Coros:
        self.fill()
        run, winner = self.saver(), self.saver()
        put = self.step(run, run.get_tuple(config()), "a", {"more": big("a")})
        ahead = self.step(winner, winner.get_tuple(config()), "w", {"own": big("w")})
        winner.put(*ahead)
        return [run.aput(*put), self.saver().aprune(["t"])]

    def check(self, *tasks: Task) -> None:
        put, prune = tasks
        assert self.head() == "w"
        assert put.crashed or isinstance(put.error, ConflictError), put.error
        assert prune.crashed or prune.done, prune.error
        there = self.listed()
        pruned = "1" not in there
        if put.error is not None and not pruned:
            assert "a" in there
        if prune.done:
            assert pruned
        assert there.keys() <= {"1", "2", "w", "a"}


class WritesBesidePrune(Stored):
    """Writes against the head and against a checkpoint that goes, beside prune.

    Two processes write for one task and differ, so one batch is stored beside the other.
    """

    apart = True

    def begin(self) -> Coros:
        self.fill()
        one, other = self.saver(), self.saver()
        other.put_writes(config(id="2"), [("log", big("first"))], "task")
        return [self.writes(one), self.saver().aprune(["t"])]

    async def writes(self, saver: Any) -> None:
        await saver.aput_writes(config(id="1"), [("log", big("old"))], "task")
        await saver.aput_writes(config(id="2"), [("log", big("other"))], "task")
        await saver.aput_writes(config(id="2"), [("log", big("more"))], "task 2")

    def check(self, *tasks: Task) -> None:
        writes, prune = tasks
        for task in tasks:
            assert task.crashed or task.done, task.error
        there = self.listed()
        pending = there["2"].pending_writes or []
        assert pending[0] == ("task", "log", big("first"))
        if writes.done:
            assert pending[1:] == [("task 2", "log", big("more"))]
        if prune.done:
            assert there.keys() == {"2"}
        else:
            assert there.keys() >= {"2"}


class RepeatedWritesBesidePrune(Stored):
    """A run makes again, beside prune, the writes that a dead one left, and then puts from them."""

    apart = True

    def begin(self) -> Coros:
        self.fill()
        self.written = [("own", big("a"))]
        run, dead = self.saver(), self.saver()
        loaded = run.get_tuple(config())
        dead.put_writes(dead.get_tuple(config()).config, self.written, "task")
        put = self.step(run, loaded, "a", dict(self.written))
        return [self.run(run, loaded, put), self.saver().aprune(["t"])]

    async def run(self, saver: Any, loaded: CheckpointTuple, put: Any) -> None:
        await saver.aput_writes(loaded.config, self.written, "task")
        await saver.aput(*put)

    def check(self, *tasks: Task) -> None:
        for task in tasks:
            assert task.crashed or task.done, task.error
        self.listed()
        if tasks[0].done:
            assert self.head() == "a"


class CopyBesidePrune(Stored):
    """A thread is copied while it moves on and is pruned: it may be what it was before or after,
    at any of the moments between, and is whole."""

    apart = True

    def begin(self) -> Coros:
        self.fill()
        run = self.saver()
        put = self.step(run, run.get_tuple(config()), "3", {"own": big("3")})
        return [self.saver().acopy_thread("t", "copy"), self.move(run, put)]

    async def move(self, saver: Any, put: Any) -> None:
        await saver.aput(*put)
        await saver.aprune(["t"])

    def check(self, *tasks: Task) -> None:
        copy, move = tasks
        for task in tasks:
            assert task.crashed or task.done, task.error
        reader = self.saver()
        head = reader.get_tuple(config("copy"))
        self.whole(head)
        for one in reader.list(config("copy")):
            self.whole(one)
        if copy.done:
            assert head is not None
            assert head.checkpoint["id"] in {"2", "3"}
        if move.done:
            assert self.listed().keys() == {"3"}


class ReadBesideDelete(Stored):
    """A reader of a head that is served hot, while the thread is deleted and begun again."""

    apart = True
    options: Mapping[str, Any] = {"hot_reads": "always"}

    def begin(self) -> Coros:
        self.fill()
        return [self.saver().aget_tuple(config()), self.delete(self.saver())]

    async def delete(self, saver: Any) -> None:
        await saver.adelete_thread("t")
        await saver.aput(*self.step(saver, None, "n", {"own": big("n")}))

    def check(self, *tasks: Task) -> None:
        read, delete = tasks
        assert delete.crashed or delete.done, delete.error
        if not read.crashed:
            assert read.done, read.error
            self.whole(read.result)
        if delete.done:
            assert self.listed().keys() == {"n"}
