"""Scenarios in which a process checks a thread, and restores it, while others go on with it.

Nothing was damaged but where it says so: then nothing may be found, whatever is put, flushed or
removed meanwhile, and whoever crashes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langgraph_durable_state.decisions.keys import named
from langgraph_durable_state.drivers.blocking import run as run_of
from langgraph_durable_state.drivers.memory_world import Rows
from langgraph_durable_state.errors import ConflictError
from langgraph_durable_state.verification import VerifyReport
from tests.contract.superstep import config, with_id
from tests.explore.behind import Behind
from tests.explore.explorer import Task
from tests.explore.scenarios import Coros, Stored, big

THREAD = named("", "t")


class InOrder(Stored):
    """Each saver's chunk numbers come after those of the savers before it, so that a page of chunks
    holds the same in each run of a schedule."""

    savers = 0

    def saver(self, **options: Any) -> Any:
        saver = super().saver(**options)
        self.savers += 1
        saver._faces._shared.numbers._block = self.savers << 23, itertools.count()
        return saver


class Scrubbed(InOrder):
    """One process checks while another does what `beside` says."""

    apart = True
    crashes = 0
    options: Mapping[str, Any] = {"hot": False}

    def begin(self) -> Coros:
        self.fill()
        saver = self.saver()
        saver.put_writes(config(id="2"), [("log", big("w"))], "task")
        return [self.beside(self.saver()), self.saver().averify(["t"], repair=True)]

    def beside(self, saver: Any) -> Any:
        raise NotImplementedError

    def check(self, *tasks: Task) -> None:
        other, scrub = tasks
        assert other.crashed or other.done or isinstance(other.error, ConflictError), other.error
        assert scrub.crashed or scrub.done, scrub.error
        for found in [scrub.result] * scrub.done, [self.saver().verify(["t"])]:
            assert not any(self.wrong(report) for report in found), [str(r) for r in found]
        self.listed()

    def wrong(self, report: VerifyReport) -> bool:
        return not report.clean


class ScrubBesidePut(Scrubbed):
    """A run goes on: the next checkpoint is made from the writes, and has some of its own."""

    def beside(self, saver: Any) -> Any:
        found = saver.get_tuple(config())
        return self.put(saver, found, self.step(saver, found, "3", {"own": big("3")}))

    async def put(self, saver: Any, found: Any, args: Any) -> None:
        await saver.aput(*args)
        await saver.aput_writes(with_id(found.config, "3"), [("log", big("v"))], "task")


class ScrubBesideTwoPuts(Scrubbed):
    """The head moves on twice, so that the one that was seen is no longer it."""

    def beside(self, saver: Any) -> Any:
        found = saver.get_tuple(config())
        return self.put(saver, self.step(saver, found, "3", {"own": big("3")}))

    async def put(self, saver: Any, args: Any) -> None:
        await saver.aput(*args)
        found = await saver.aget_tuple(config())
        await saver.aput(*self.step(saver, found, "4", {"own": big("4")}))


class ScrubBesideReplacement(Scrubbed):
    """The head is put again with another content, and a child on it."""

    def beside(self, saver: Any) -> Any:
        found = saver.get_tuple(config(id="1"))
        return self.replace(saver, self.step(saver, found, "2", {"own": big("other")}))

    async def replace(self, saver: Any, args: Any) -> None:
        await saver.aput(*args)
        found = await saver.aget_tuple(config())
        await saver.aput(*self.step(saver, found, "3", {"own": big("3")}))

    def check(self, *tasks: Task) -> None:
        self.values["2"] = {**self.values["1"], "own": self.owns()}
        super().check(*tasks)

    def owns(self) -> str:
        found = self.saver().get_tuple(config(id="2"))
        assert found is not None
        own = found.checkpoint["channel_values"]["own"]
        assert own in (big("2"), big("other"))
        return str(own)


class ScrubBesidePrune(Scrubbed):
    """History goes, and with it the chunks that only it had."""

    def beside(self, saver: Any) -> Any:
        return saver.aprune(["t"])


class ScrubBesideDelete(Scrubbed):
    """The thread goes, and begins anew; in between there is nothing of it."""

    def wrong(self, report: VerifyReport) -> bool:
        return bool(report.findings)

    async def beside(self, saver: Any) -> None:
        await saver.adelete_thread("t")
        await saver.aput(*self.step(saver, None, "9", {"own": big("9")}))


class ScrubBesideCopy(Scrubbed):
    """The thread becomes visible with its last page, and there is nothing of it before; it is the
    copy that is checked."""

    def wrong(self, report: VerifyReport) -> bool:
        return bool(report.findings)

    def begin(self) -> Coros:
        self.fill()
        return [
            self.saver().acopy_thread("t", "copy"),
            self.saver().averify(["copy"], repair=True),
        ]


class ScrubBesideFlush(InOrder, Behind):
    """What is checked in the outbox goes to Postgres."""

    crashes = 0

    def begin(self) -> Coros:
        self.fill()
        run_of(self.flusher().drain(THREAD))
        saver = self.saver()
        found = saver.get_tuple(config())
        saver.put_writes(found.config, [("log", big("w"))], "task")
        saver.put(*self.step(saver, saver.get_tuple(config()), "a", {"own": big("a")}))
        return [self.flusher().drain(THREAD), self.saver().averify(["t"], repair=True)]

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        _, scrub = tasks
        assert not scrub.done or scrub.result.clean, str(scrub.result)
        found = self.saver().verify(["t"])
        assert found.clean, str(found)
        assert list(self.survivors()) == ["a", "2", "1"]


class ScrubBesidePutBehind(ScrubBesideFlush):
    """A run goes on in Redis."""

    def begin(self) -> Coros:
        self.fill()
        run_of(self.flusher().drain(THREAD))
        return [self.put("a"), self.saver().averify(["t"], repair=True)]

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        put, scrub = tasks
        assert not scrub.done or scrub.result.clean, str(scrub.result)
        assert list(self.survivors()) == [*(["a"] if put.done else []), "2", "1"] or put.crashed


class MendBesidePut(ScrubBesidePut):
    """The head's chunk is damaged where a run goes on from it."""

    options: Mapping[str, Any] = {"hot_reads": "always"}

    def begin(self) -> Coros:
        coros = super().begin()
        rows: Rows = self.world.rows(THREAD)
        no = max(rows.checkpoints["", "2"].row.numbers)
        rows.chunks[no] = replace(rows.chunks[no], blob=rows.chunks[no].blob[:-1] + b"?")
        return coros

    def wrong(self, report: VerifyReport) -> bool:
        """Either it was restored, or the run had dropped it; nothing else was touched."""
        return bool({found.outcome for found in report.findings} - {"repaired", "lost"})

    def check(self, *tasks: Task) -> None:
        other, scrub = tasks
        assert other.crashed or other.done, other.error
        assert scrub.crashed or scrub.done, scrub.error
        if scrub.done and not other.done:
            assert not scrub.result.lost
            self.listed()


class MendBesidePrune(MendBesidePut):
    """A chunk is missing that history alone has, and that history is removed."""

    def begin(self) -> Coros:
        coros = Scrubbed.begin(self)
        rows: Rows = self.world.rows(THREAD)
        del rows.chunks[max(rows.checkpoints["", "2"].row.numbers)]
        return coros

    def beside(self, saver: Any) -> Any:
        return saver.aprune(["t"])

    def check(self, *tasks: Task) -> None:
        prune, scrub = tasks
        assert prune.crashed or prune.done, prune.error
        assert scrub.crashed or scrub.done, scrub.error
        if scrub.done:
            assert [found.outcome for found in scrub.result.findings] == ["repaired"]
            assert self.head() == "2"
            assert self.saver().verify(["t"])
