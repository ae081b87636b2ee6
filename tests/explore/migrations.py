"""Scenarios in which a thread is migrated while others read and write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_durable_state.errors import ConflictError
from langgraph_durable_state.evolution import StateSchema, rename_channel
from langgraph_durable_state.migration import MigrateReport
from tests.contract.superstep import config
from tests.explore.explorer import Task
from tests.explore.scenarios import Coros, Stored, big

NAMES = {"own": "mine"}


def schema() -> StateSchema:
    made = StateSchema(version=1)
    made.step(0, rename_channel("own", "mine"))
    return made


class MigrateBesidePut(Stored):
    """New code goes on with a thread, and writes to it, while another process migrates it."""

    apart = True
    options: Mapping[str, Any] = {"hot_reads": "never", "state_schema": schema()}
    written = (("mine", big("w")),)

    def begin(self) -> Coros:
        old = self.saver(state_schema=None)
        old.put(*self.step(old, None, "1", {"shared": big("s"), "own": big("1")}))
        old.put(*self.step(old, old.get_tuple(config()), "2", {"own": big("2")}))
        for id, held in self.values.items():
            self.values[id] = {NAMES.get(name, name): value for name, value in held.items()}
        self.run = self.saver()
        put = self.step(self.run, self.run.get_tuple(config()), "a", {"mine": big("a")})
        return [self.go(put), self.saver().amigrate(["t"])]

    async def go(self, put: Any) -> None:
        await self.run.aput_writes(put[0], self.written, "task")
        await self.run.aput(*put)

    def check(self, *tasks: Task) -> None:
        put, migrate = tasks
        there = self.listed()
        assert put.crashed or put.done or isinstance(put.error, ConflictError), put.error
        assert migrate.crashed or migrate.done, migrate.error
        assert there.keys() >= {"1", "2"}
        if put.done:
            assert self.head() == "a"
        if put.done or put.error is not None:  # the writes before it were acknowledged
            self.written_to(there["2"])
        if migrate.done:
            report: MigrateReport = migrate.result
            assert report.failed == ()
        again = self.saver().migrate(["t"])
        assert (again.busy, again.failed) == ((), ())
        assert self.listed().keys() == there.keys()
        assert self.saver().migrate(["t"]).told == ()

    def written_to(self, found: CheckpointTuple) -> None:
        assert found.pending_writes == [("task", *write) for write in self.written]


class ReadBesideMigrate(MigrateBesidePut):
    """A reader meets the thread before or after, and whole."""

    def begin(self) -> Coros:
        put, migrate = super().begin()
        put.close()
        return [self.saver().aget_tuple(config()), migrate]

    def check(self, *tasks: Task) -> None:
        read, migrate = tasks
        assert migrate.crashed or migrate.done, migrate.error
        if not read.crashed:
            assert read.done, read.error
            self.whole(read.result)
        assert self.head() == "2"
