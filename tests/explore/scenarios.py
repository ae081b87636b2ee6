"""The scenarios: small, and each with all that must hold after any schedule of it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_durable_state.drivers.memory import MemoryDurable
from langgraph_durable_state.drivers.memory_hot import HOT
from langgraph_durable_state.errors import ConflictError, UnavailableError
from langgraph_durable_state.testing import memory_saver
from tests.contract.superstep import config, superstep, with_id
from tests.explore.explorer import Scenario, Task

Coros = Sequence[Coroutine[Any, Any, Any]]


def big(text: str) -> str:
    """A value that is stored as a chunk of its own: values up to 256 bytes are not."""
    return text * 400


BASE = {"shared": big("s"), "own": big("0")}


class Stored(Scenario):
    """Scenarios over a thread with an older checkpoint ``1`` and a head ``2``.

    Attributes:
        durable: makes the durable tier.
        options: of every saver.
        on_corrupt: likewise; damage that nobody planted must not be passed over.
        values: of each checkpoint that may be there at the end, by id.
    """

    durable: type[MemoryDurable] = MemoryDurable
    options: Mapping[str, Any] = {"hot_reads": "never"}
    on_corrupt = "raise"

    def saver(self, **options: Any) -> Any:
        """A saver of another process over the same stores."""
        return memory_saver(
            self.world,
            durable=self.durable,
            auto_setup=False,
            compression="none",
            on_corrupt=self.on_corrupt,
            **{**self.options, **options},
        )

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Mapping[str, Any]] = {}

    def fill(self) -> None:
        saver = self.saver()
        saver.put(*self.step(saver, None, "1", {**BASE, "own": big("1")}))
        saver.put(*self.step(saver, saver.get_tuple(config()), "2", {"own": big("2")}))

    def step(
        self, saver: Any, before: CheckpointTuple | None, id: str, values: Mapping[str, Any]
    ) -> Any:
        """The arguments of a put, noted for `check`."""
        args = superstep(saver, before, id, values)
        self.values[id] = args[1]["channel_values"]
        return args

    # -- what must hold ------------------------------------------------------------------

    def whole(self, found: CheckpointTuple | None) -> None:
        """A reader gets a whole checkpoint or none, never a mixed one."""
        if found is not None:
            assert found.checkpoint["channel_values"] == self.values[found.checkpoint["id"]]

    def listed(self) -> dict[str, CheckpointTuple]:
        """All that is stored, each read whole by its id as well; what is read is verified."""
        reader = self.saver()
        found = {t.checkpoint["id"]: t for t in reader.list(config())}
        for id, one in found.items():
            self.whole(one)
            self.whole(reader.get_tuple(config(id=id)))
        return found

    def head(self) -> str | None:
        found = self.saver().get_tuple(config())
        self.whole(found)
        return found.checkpoint["id"] if found else None

    def fared(
        self, task: Task, id: str, head_id: str | None, there: Mapping[str, CheckpointTuple]
    ) -> None:
        """What was acknowledged, as done or as refused, is there."""
        assert task.crashed or task.done or isinstance(task.error, ConflictError), task.error
        if task.done:
            assert id in there
        if isinstance(task.error, ConflictError):
            assert id in there
            assert task.error.refused == id
            assert head_id != id

    def one_winner(self, tasks: Mapping[str, Task], base: str | None) -> None:
        """Of puts on one head exactly one wins, whatever crashes."""
        head, there = self.head(), self.listed()
        assert head in {base, *tasks}
        for id, task in tasks.items():
            self.fared(task, id, head, there)
        winners = [id for id, task in tasks.items() if task.done]
        assert len(winners) <= 1
        if winners:
            assert [head] == winners
        if not any(task.crashed for task in tasks.values()):
            assert len(winners) == 1
        errors = [t.error for t in tasks.values() if isinstance(t.error, ConflictError)]
        assert all(error.actual == head and error.expected == base for error in errors)


class TwoPuts(Stored):
    """Two processes that loaded one head each put a checkpoint on it."""

    def begin(self) -> Coros:
        self.fill()
        return [self.run("a"), self.run("b")]

    def run(self, id: str) -> Any:
        saver = self.saver()
        return saver.aput(*self.step(saver, saver.get_tuple(config()), id, {"own": big(id)}))

    def check(self, *tasks: Task) -> None:
        self.one_winner({"a": tasks[0], "b": tasks[1]}, "2")


class TwoPutsOnDamage(TwoPuts):
    """The same, where the head is damaged: both were given the checkpoint before it."""

    on_corrupt = "fall_back"

    def fill(self) -> None:
        super().fill()
        (rows,) = self.world.threads.values()
        stored = rows.checkpoints["", "2"]
        rows.checkpoints["", "2"] = replace(stored, row=replace(stored.row, record=b"damaged"))

    def check(self, *tasks: Task) -> None:
        done = any(task.done for task in tasks)
        self.on_corrupt = "raise" if done else "fall_back"
        there = self.head()
        assert there in ({"a", "b"} if done else {"1", "a", "b"})
        self.on_corrupt = "fall_back"
        assert sum(task.done for task in tasks) <= 1
        for id, task in zip("ab", tasks, strict=True):
            self.fared(task, id, there, self.listed())
            if isinstance(task.error, ConflictError):
                assert (task.error.expected, task.error.actual) == ("1", there)


class TwoFirstPuts(TwoPuts):
    """Two processes that found no thread each put its first checkpoint."""

    def begin(self) -> Coros:
        return [self.run("a"), self.run("b")]

    def check(self, *tasks: Task) -> None:
        self.one_winner({"a": tasks[0], "b": tasks[1]}, None)


class TwoPutsOfOneProcess(TwoPuts):
    """Two runs of one process: they share its caches and its register."""

    def run(self, id: str) -> Any:
        saver = self._one = getattr(self, "_one", None) or self.saver()
        return saver.aput(*self.step(saver, saver.get_tuple(config()), id, {"own": big(id)}))


class TwoPutsAndReader(TwoPuts):
    """The same, with hot copies, and a third process that reads the head."""

    apart = True
    options: Mapping[str, Any] = {"hot_reads": "always"}

    def begin(self) -> Coros:
        return [*super().begin(), self.saver().aget_tuple(config())]

    def check(self, *tasks: Task) -> None:
        super().check(*tasks[:2])
        if not tasks[2].crashed:
            assert tasks[2].done, tasks[2].error
            assert tasks[2].result is not None
            self.whole(tasks[2].result)
            assert tasks[2].result.checkpoint["id"] in {"2", "a", "b"}


class ForkBesidePut(Stored):
    """A deliberate fork of the older checkpoint beside a put on the head."""

    def begin(self) -> Coros:
        self.fill()
        run, forker = self.saver(), self.saver()
        put = self.step(run, run.get_tuple(config()), "a", {"own": big("a")})
        fork = self.step(forker, forker.get_tuple(config(id="1")), "f", {"own": big("f")})
        return [run.aput(*put), forker.aput(*fork)]

    def check(self, *tasks: Task) -> None:
        head, there, (put, fork) = self.head(), self.listed(), tasks
        self.fared(put, "a", head, there)
        self.fared(fork, "f", head, there)
        assert fork.error is None
        if fork.done:
            assert head == "f"
        if fork.done and put.done:
            assert {"a", "f"} <= there.keys()
        if isinstance(put.error, ConflictError):
            assert head == "f"


class PutBesideWrites(Stored):
    """A run's put beside a task's writes: against it, or against its parent.

    The writes' value is the channel's as well, so the put refers to chunks that may be stored,
    being stored, or lost.
    """

    failures = 1
    against = "a"

    def begin(self) -> Coros:
        self.fill()
        self.run = run = self.saver()
        loaded = run.get_tuple(config())
        put = self.step(run, loaded, "a", {"own": big("a")})
        where = with_id(loaded.config, self.against)
        self.written = [("own", big("a")), ("log", big("w")), ("log", "small")]
        return [run.aput(*put), run.aput_writes(where, self.written, "task", "path")]

    def check(self, *tasks: Task) -> None:
        put, writes = tasks
        for task in tasks:
            assert task.crashed or task.done or isinstance(task.error, UnavailableError)
        there = self.listed()
        if put.done:
            assert self.head() == "a"
            assert there["a"].checkpoint["channel_values"] == self.values["a"]
        if self.against in there:
            pending = there[self.against].pending_writes
            assert pending in ([], [("task", *w) for w in self.written])
            if writes.done:
                assert pending
        if put.done and writes.done and self.against == "a":
            self.next_superstep()

    def next_superstep(self) -> None:
        """The run goes on; a DeltaChannel's history finds the writes."""
        before = self.saver().get_tuple(config())
        assert before is not None
        tagged = self.run.get_tuple(config())
        self.run.put(*self.step(self.run, tagged, "c", {"own": big("w")}))
        found = self.saver().get_delta_channel_history(config=config(), channels=["log"])
        assert found["log"]["writes"] == [("task", *w) for w in self.written[1:]]
        assert self.head() == "c"
        self.listed()


class PutBesideItsParentsWrites(PutBesideWrites):
    """The writes are those that the put is made from, still on their way."""

    against = "2"

    def check(self, *tasks: Task) -> None:
        super().check(*tasks)
        if all(task.done for task in tasks):
            found = self.saver().get_delta_channel_history(config=config(), channels=["log"])
            assert found["log"]["writes"] in ([], [("task", *w) for w in self.written[1:]])


class HotFails(Stored):
    """A run of two supersteps whose hot tier fails at any steps, however many."""

    crashes = 0
    failures = 100
    apart = True
    options: Mapping[str, Any] = {"hot_reads": "always", "head_cache_bytes": 0}

    def may_fail(self, point: str) -> bool:
        return point.startswith(HOT)

    def begin(self) -> Coros:
        saver = self.saver()
        saver.put(*self.step(saver, None, "1", BASE))
        run = self.saver()
        loaded = run.get_tuple(config())
        return [self.run(run, self.step(run, loaded, "a", {"own": big("a")}))]

    async def run(self, saver: Any, first: Any) -> None:
        await saver.aput(*first)
        found = await saver.aget_tuple(config())
        assert found is not None
        assert found.checkpoint["id"] == "a"
        self.whole(found)
        await saver.aput(*self.step(saver, found, "b", {"own": big("b")}))

    def check(self, *tasks: Task) -> None:
        assert tasks[0].done, tasks[0].error
        assert self.head() == "b"
        assert self.listed().keys() == {"1", "a", "b"}


class HotFailsBesideReader(HotFails):
    """The same with a reader in another process, and one failure."""

    failures = 1

    def begin(self) -> Coros:
        return [*super().begin(), self.saver().aget_tuple(config())]

    def check(self, *tasks: Task) -> None:
        super().check(tasks[0])
        assert tasks[1].done, tasks[1].error
        assert tasks[1].result is not None
        self.whole(tasks[1].result)


class LostAnswer(Stored):
    """A put whose answer is lost is made again, and the run goes on from it."""

    failures = 1
    crashes = 0

    def begin(self) -> Coros:
        self.fill()
        saver = self.saver()
        loaded = saver.get_tuple(config())
        return [self.run(saver, self.step(saver, loaded, "a", {"own": big("a")}))]

    async def run(self, saver: Any, put: Any) -> None:
        try:
            await saver.aput(*put)
        except UnavailableError:
            await saver.aput(*put)
        before = CheckpointTuple(with_id(put[0], "a"), put[1], put[2])
        await saver.aput(*self.step(saver, before, "b", {"more": big("m")}))

    def check(self, *tasks: Task) -> None:
        error = tasks[0].error
        assert error is None or isinstance(error, UnavailableError), error
        if error is None:
            assert self.head() == "b"
        there = self.listed()
        assert there.keys() >= {"1", "2"}
