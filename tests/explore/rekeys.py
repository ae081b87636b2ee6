"""Scenarios in which a thread is brought under another key while others go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langgraph_durable_state.drivers.memory import MemoryDurable
from langgraph_durable_state.words import Listing, Page
from tests.contract.superstep import config
from tests.explore.explorer import Task
from tests.explore.scenarios import Coros, Stored, big

OLD, NEW = b"o" * 32, b"n" * 32


class PagesInParts(MemoryDurable):
    """A page's chunks are read after its records, as in Postgres."""

    async def page(self, listing: Listing) -> Page:
        page = await super().page(listing)
        if listing.thread is None or listing.light or not page.rows:
            return page
        await self._world.step("chunks")
        there = self._world.rows(listing.thread).chunks
        return replace(page, chunks={no: c for no, c in page.chunks.items() if no in there})


class Rekeyed(Stored):
    """One process rekeys while another does what `beside` says."""

    apart = True
    crashes = 0
    durable = PagesInParts
    options: Mapping[str, Any] = {
        "hot_reads": "never",
        "head_cache_bytes": 0,
        "integrity_key": [OLD, NEW],
        "hot": False,
    }

    def begin(self) -> Coros:
        self.fill()
        self.early = False
        return [self.beside(self.saver()), self.rekey(self.saver(integrity_key=[NEW, OLD]))]

    def beside(self, saver: Any) -> Any:
        raise NotImplementedError

    async def rekey(self, saver: Any) -> Any:
        return await saver.arekey(["t"])

    def check(self, *tasks: Task) -> None:
        other, rekey = tasks
        assert other.done, other.error
        assert rekey.done, rekey.error
        assert rekey.result.damaged == ()


class RekeyBesidePrune(Rekeyed):
    """What is pruned while it is read is no damage."""

    def beside(self, saver: Any) -> Any:
        return saver.aprune(["t"])

    def check(self, *tasks: Task) -> None:
        super().check(*tasks)
        assert tasks[1].result.busy == ()
        self.options = {**self.options, "integrity_key": NEW}
        assert self.listed().keys() == {"2"}


class RekeyBesideDelete(Rekeyed):
    """Nor is what is deleted; and nothing of it is left."""

    def beside(self, saver: Any) -> Any:
        return saver.adelete_thread("t")

    def check(self, *tasks: Task) -> None:
        super().check(*tasks)
        assert self.head() is None
        assert self.listed() == {}


class RekeyBesideWrites(Rekeyed):
    """What is stored under the old key before it has ended is under the new one, or is named."""

    async def beside(self, saver: Any) -> None:
        await saver.aput_writes(config(id="2"), [("log", big("w"))], "task")
        self.early = True

    async def rekey(self, saver: Any) -> Any:
        done = await saver.arekey(["t"])
        self.late = not self.early
        return done

    def check(self, *tasks: Task) -> None:
        super().check(*tasks)
        if not self.late and not tasks[1].result.busy:
            self.options = {**self.options, "integrity_key": NEW}
        there = self.listed()
        assert there["2"].pending_writes == [("task", "log", big("w"))]


class RekeyBesideWritesBehind(RekeyBesideWrites):
    """Likewise of what Redis acknowledges."""

    options: Mapping[str, Any] = {
        **Rekeyed.options,
        "hot": True,
        "write_policy": "write_behind",
    }

    def fill(self) -> None:
        super().fill()
        self.saver().flush()

    def check(self, *tasks: Task) -> None:
        self.saver().flush()
        super().check(*tasks)
