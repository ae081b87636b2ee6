"""Scenarios under a key in which parents are removed on purpose while others build on them: nobody
may be told that somebody else did it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph_durable_state.errors import ConflictError
from tests.contract.superstep import config, superstep
from tests.explore import removals, scrubs
from tests.explore.explorer import Task
from tests.explore.scenarios import BASE, Coros, Stored, big

OPTIONS: Mapping[str, Any] = {
    "hot_reads": "never",
    "head_cache_bytes": 0,
    "integrity_key": b"k" * 32,
    "hot": False,
}


class Sound(Stored):
    """What everything is found in order after."""

    options = OPTIONS

    def check(self, *tasks: Task) -> None:
        assert self.saver().verify()
        super().check(*tasks)


class ForkBesidePrune(Sound, removals.ForkBesidePrune):
    """What is forked may be pruned before, while, or after the fork is stored."""

    apart = True


class LoserBesidePrune(Sound, removals.LoserBesidePrune):
    """So may what was put by who has lost."""


class CopyBesidePrune(Sound, removals.CopyBesidePrune):
    """A copy that left something behind says so, whatever was pruned meanwhile."""


class ScrubBesidePrune(scrubs.ScrubBesidePrune):
    """A check that has seen the child before, and looks for the parent after, a prune."""

    options = OPTIONS


class ForkBesideRemoval(Stored):
    """A checkpoint is forked while it goes with its run."""

    apart = True
    options = OPTIONS

    def fill(self) -> None:
        saver = self.saver()
        gone = {"source": "loop", "step": 1, "run_id": "gone"}
        put = superstep(saver, None, "1", {**BASE, "own": big("1")}, metadata=gone)
        self.values["1"] = put[1]["channel_values"]
        saver.put(*put)
        saver.put(*self.step(saver, saver.get_tuple(config()), "2", {"own": big("2")}))

    def begin(self) -> Coros:
        self.fill()
        run = self.saver()
        put = self.step(run, run.get_tuple(config(id="1")), "a", {"more": big("a")})
        return [run.aput(*put), self.saver().adelete_for_runs(["gone"])]

    def check(self, *tasks: Task) -> None:
        put, removal = tasks
        assert put.crashed or put.done or isinstance(put.error, ConflictError), put.error
        assert removal.crashed or removal.done, removal.error
        there = self.listed()
        assert self.saver().verify()
        assert there.keys() <= {"1", "2", "a"}
        assert not put.done or "a" in there
        assert not removal.done or "1" not in there
