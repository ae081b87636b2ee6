"""Scenarios in which Redis acknowledges, and Postgres is told later.

Whatever crashes, what was acknowledged is durable once another process has flushed it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_durable_state.decisions.keys import named
from langgraph_durable_state.drivers.blocking import run as run_of
from langgraph_durable_state.drivers.memory_hot import HOT
from langgraph_durable_state.drivers.memory_world import go_on
from langgraph_durable_state.errors import ConflictError, StateLostError, UnavailableError
from langgraph_durable_state.protocols.settling import Settler
from langgraph_durable_state.words import Phase, Place
from tests.contract.superstep import config, with_id
from tests.explore.explorer import Task, switch
from tests.explore.scenarios import Coros, Stored, big

THREAD = named("", "t")


class Noted:
    """Events, kept for `check`."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str | None]] = []

    def emit(
        self, kind: str, detail: str = "", *, checkpoint: str | None = None, **more: Any
    ) -> None:
        self.all.append((kind, checkpoint))

    def of(self, *kinds: str) -> set[str | None]:
        """The checkpoints of events of these kinds."""
        return {checkpoint for kind, checkpoint in self.all if kind in kinds}


class Behind(Stored):
    """Scenarios over a thread of which Redis holds all and Postgres nothing yet."""

    apart = True
    options: Mapping[str, Any] = {
        "write_policy": "write_behind",
        "hot_reads": "never",
        "head_cache_bytes": 0,
    }

    def __init__(self) -> None:
        super().__init__()
        self.events = Noted()

    def saver(self, **options: Any) -> Any:
        saver = super().saver(**options)
        object.__setattr__(saver._faces._shared, "events", self.events)
        return saver

    def flusher(self) -> Settler:
        """Another process's."""
        return run_of(self.saver()._faces.blocking()).flusher

    def flush(self) -> None:
        """All is durable then, and the spell is still open."""
        run_of(self.flusher().drain(THREAD))

    def end(self) -> None:
        """All is durable then, and Redis is not ahead any more."""
        self.flush()
        run_of(self.flusher().end(THREAD))

    def put(self, id: str, saver: Any = None) -> Coroutine[Any, Any, Any]:
        """A put on the head, which is loaded now."""
        saver = saver or self.saver()
        return saver.aput(*self.step(saver, saver.get_tuple(config()), id, {"own": big(id)}))  # type: ignore[no-any-return]

    async def superstep(self, saver: Any, id: str) -> None:
        found = await saver.aget_tuple(config())
        await saver.aput(*self.step(saver, found, id, {"own": big(id)}))

    def went_well(self, *tasks: Task) -> None:
        """Nothing failed, and nothing was reported."""
        for task in tasks:
            assert task.crashed or task.done, task.error
        assert not self.events.all

    def survivors(self) -> Mapping[str, CheckpointTuple]:
        """What is left when all was flushed by another process, and Redis then lost everything."""
        head = self.head()
        self.end()
        assert not self.world.outboxes
        assert not self.world.rows(THREAD).ahead
        assert all(spell.phase is not Phase.OPEN for spell in self.world.spells.values())
        self.world.lose_hot()
        assert self.head() == head
        return self.listed()


class FlushBesidePut(Behind):
    """A run goes on and reads, while another process flushes."""

    def begin(self) -> Coros:
        self.fill()
        self.flush()
        run_of(self.put("a"))
        self.acknowledged = "a"
        saver = self.saver()
        return [self.run(saver, self.put("b", saver)), self.flusher().drain(THREAD)]

    async def run(self, saver: Any, put: Coroutine[Any, Any, Any]) -> None:
        await put
        self.acknowledged = "b"
        found = await saver.aget_tuple(config())
        assert found is not None
        assert found.checkpoint["id"] == "b"

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        head = self.head()
        assert head is not None
        assert self.acknowledged <= head
        assert list(self.survivors()) == [*(["b"] if head == "b" else []), "a", "2", "1"]


class FlushBesideFlush(Behind):
    """Two processes flush what a third has left."""

    def begin(self) -> Coros:
        self.fill()
        self.flush()
        run_of(self.put("a"))
        return [self.flusher().drain(THREAD), self.flusher().drain(THREAD)]

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        if any(task.done for task in tasks):
            assert not self.world.outboxes
        assert self.head() == "a"
        assert list(self.survivors()) == ["a", "2", "1"]


class FlushBesideFlushOfTwo(FlushBesideFlush):
    """The same, of two supersteps, the first of the thread."""

    crashes = 0

    def begin(self) -> Coros:
        self.fill()
        return [self.flusher().drain(THREAD), self.flusher().drain(THREAD)]

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        if any(task.done for task in tasks):
            assert not self.world.outboxes
        assert list(self.survivors()) == ["2", "1"]


class TwoPutsBehind(Behind):
    """Two processes that loaded one head, which Redis holds, each put a checkpoint on it."""

    def begin(self) -> Coros:
        self.fill()
        return [self.put("a"), self.put("b")]

    def check(self, *tasks: Task) -> None:
        named = dict(zip("ab", tasks, strict=True))
        self.one_winner(named, "2")
        left = self.survivors()
        assert left.keys() >= {"1", "2"}
        for id, task in named.items():
            assert id in left or task.crashed
        assert not self.events.all


class TwoPutsBegin(TwoPutsBehind):
    """The same on a head that Redis is not ahead of: both begin the spell."""

    def begin(self) -> Coros:
        self.fill()
        self.end()
        return [self.put("a"), self.put("b")]


class TwoFirstPutsBehind(TwoPutsBehind):
    """The same without a thread."""

    def begin(self) -> Coros:
        return [self.put("a"), self.put("b")]

    def check(self, *tasks: Task) -> None:
        named = dict(zip("ab", tasks, strict=True))
        self.one_winner(named, None)
        left = self.survivors()
        for id, task in named.items():
            assert id in left or task.crashed


class ThroughBesideBehind(TwoPutsBehind):
    """One of them writes through."""

    crashes = 0
    cold = False

    def begin(self) -> Coros:
        self.fill()
        if self.cold:
            self.end()
        else:
            self.flush()
        through = self.saver(write_policy="write_through")
        return [self.put("a"), self.put("b", through)]


class ThroughBesideBegin(ThroughBesideBehind):
    """The same on a head that Redis is not ahead of."""

    cold = True


class PutBesideEnd(Behind):
    """A run goes on while another process ends the spell."""

    def begin(self) -> Coros:
        self.fill()
        self.flush()
        token = self.world.rows(THREAD).ahead[""]
        return [self.put("a"), self.flusher().close(Place(THREAD, ""), token, 0.0)]

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        head = self.head()
        assert head in ({"a"} if tasks[0].done else {"2", "a"})
        assert list(self.survivors()) == (["a"] if head == "a" else []) + ["2", "1"]


class LossBesidePut(Behind):
    """Redis loses all while a run begins a spell; another run goes on then."""

    cold = True
    accepts = False

    def saver(self, **options: Any) -> Any:
        lost = "accept" if self.accepts else "raise"
        return super().saver(**{"on_hot_lost": lost, **options})

    def begin(self) -> Coros:
        self.fill()
        if self.cold:
            self.end()
        else:
            self.flush()
        return [self.run(self.saver()), self.lose()]

    acknowledged: str | None = None

    async def run(self, saver: Any) -> None:
        for id in "ab":
            await self.superstep(saver, id)
            self.acknowledged = id

    async def lose(self) -> None:
        await switch("Redis is killed")
        self.world.lose_hot()

    def check(self, *tasks: Task) -> None:
        writer, _ = tasks
        if not writer.crashed and not writer.done:
            assert isinstance(writer.error, (StateLostError, ConflictError)), writer.error
        reader = self.saver()
        lost = self.is_lost(reader)
        if lost:
            assert reader.accept_loss("t") == [""]
        found = reader.get_tuple(config())
        self.whole(found)
        lost = lost or "state_lost" in {kind for kind, _ in self.events.all}
        assert found is not None
        id = found.checkpoint["id"]
        if self.acknowledged is not None:
            assert lost or id >= self.acknowledged
        reader.put(*self.step(reader, found, "c", {"own": big("c")}))
        assert next(iter(self.survivors())) == "c"

    def is_lost(self, reader: Any) -> bool:
        try:
            reader.get_tuple(config())
        except StateLostError as error:
            return not self.accepts and error.last_durable == "2"
        return False


class LossBesidePutOnOpen(LossBesidePut):
    """The same in a spell that is open."""

    cold = False


class LossBesideThroughOnOpen(LossBesidePut):
    """The same to one that writes through, who is promised that Postgres has it."""

    cold = False

    async def run(self, saver: Any) -> None:
        saver = self.saver(write_policy="write_through")
        await self.superstep(saver, "a")
        self.acknowledged = "a"
        await saver.aput_writes(config(id="a"), [("own", "w")], "task")
        self.acknowledged = "a's writes"

    def check(self, *tasks: Task) -> None:
        writer, _ = tasks
        known = (StateLostError, ConflictError, UnavailableError)
        assert writer.crashed or writer.done or isinstance(writer.error, known), writer.error
        reader = self.saver()
        if self.is_lost(reader):
            assert reader.accept_loss("t") == [""]
        left = self.survivors()
        if self.acknowledged is not None:
            assert next(iter(left)) == "a"
        if self.acknowledged == "a's writes":
            assert left["a"].pending_writes == [("task", "own", "w")]

    def is_lost(self, reader: Any) -> bool:
        try:
            reader.get_tuple(config())
        except StateLostError as error:
            return error.last_durable in ("2", "a")
        return False


class AcceptedLossBesidePut(LossBesidePut):
    """The same for those who go on from what Postgres has."""

    accepts = True


class AcceptedLossBesidePutOnOpen(AcceptedLossBesidePut):
    cold = False


class FlushBesideDelete(Behind):
    """A thread is deleted while another process flushes it."""

    crashes = 0

    def begin(self) -> Coros:
        self.fill()
        self.flush()
        run_of(self.put("a"))
        return [self.flusher().drain(THREAD), self.saver().adelete_thread("t")]

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        if not tasks[1].done:
            return
        assert self.survivors() == {}
        assert not self.world.rows(THREAD).checkpoints
        assert not self.world.rows(THREAD).writes


class CrashesBesideDelete(FlushBesideDelete):
    """One of them dies."""

    crashes = 1


class PutBesideDelete(FlushBesideDelete):
    """A thread is deleted while a run goes on."""

    def begin(self) -> Coros:
        self.fill()
        self.flush()
        return [self.put("a"), self.saver().adelete_thread("t")]

    def check(self, *tasks: Task) -> None:
        put, delete = tasks
        refused = (ConflictError, UnavailableError)  # whom the deletion overtook again and again
        assert put.crashed or put.done or isinstance(put.error, refused), put.error
        assert delete.crashed or delete.done, delete.error
        self.head()
        self.listed()
        if delete.done:
            self.end()
            assert self.head() is None
            assert not self.world.rows(THREAD).checkpoints


class WritesBesideFlush(Behind):
    """Tasks write, one of them for the second time and differently, while another process
    flushes."""

    def begin(self) -> Coros:
        self.fill()
        self.flush()
        one = self.saver()
        one.put_writes(config(id="2"), [("log", big("first"))], "task")
        one.put_writes(config(id="2"), [("__interrupt__", "old")], "asks")
        return [self.run(), self.flusher().drain(THREAD)]

    async def run(self) -> None:
        saver = self.saver()
        await saver.aput_writes(config(id="2"), [("log", big("second"))], "task")
        await saver.aput_writes(config(id="2"), [("__interrupt__", "new")], "asks")

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        left = self.survivors()
        assert list(left) == ["2", "1"]
        pending = left["2"].pending_writes
        asked = {"new"} if tasks[0].done else {"old", "new"}
        assert pending is not None
        assert ("task", "log", big("first")) in pending
        assert next(w[2] for w in pending if w[0] == "asks") in asked
        rows = [w for w in self.world.rows(THREAD).writes.values() if w.task == "task"]
        assert len(rows) == 2 or not tasks[0].done


class ReadBesideEnd(Behind):
    """A spell ends, the next begins and ends, while somebody reads."""

    crashes = 0

    def begin(self) -> Coros:
        self.fill()
        self.flush()
        return [self.saver().aget_tuple(config()), self.go_on()]

    async def go_on(self) -> None:
        flusher = self.flusher()
        await flusher.end(THREAD)
        await self.superstep(self.saver(), "a")
        await flusher.end(THREAD)

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        if tasks[0].done:
            assert tasks[0].result is not None
            self.whole(tasks[0].result)
            assert tasks[0].result.checkpoint["id"] in {"2", "a"}
        assert list(self.survivors())[-2:] == ["2", "1"]


class FlushOfQueued(Behind):
    """Two processes flush what Redis took while Postgres was down: no head is marked."""

    crashes = 0

    def begin(self) -> Coros:
        self.fill()
        self.end()
        put = self.put("a")
        self.world.step = self.down
        run_of(put)
        self.world.step = go_on
        assert self.events.of("queued") == {"a"}
        self.events.all.clear()
        return [self.flusher().drain(THREAD), self.flusher().flush([THREAD])]

    async def down(self, name: str) -> None:
        if not name.startswith(HOT):
            raise UnavailableError("postgres", "it is down")

    def whole(self, found: CheckpointTuple | None) -> None:
        super().whole(found)
        if found is not None and found.checkpoint["id"] == "a":
            assert found.metadata["durable_state_degraded"] == "queued"

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        assert list(self.survivors()) == ["a", "2", "1"]


class EndOfQueued(FlushOfQueued):
    """One of them ends the spell then."""

    def begin(self) -> Coros:
        drain, other = super().begin()
        other.close()
        return [drain, self.flusher().end(THREAD)]


class PutBesideWritesBehind(Behind):
    """A run's put beside a task's writes against it, which come before, after or beside it."""

    def begin(self) -> Coros:
        self.fill()
        self.end()
        saver = self.saver()
        loaded = saver.get_tuple(config())
        put = self.step(saver, loaded, "a", {"own": big("a")})
        where = with_id(loaded.config, "a")
        self.written = [("own", big("a")), ("log", big("w"))]
        return [saver.aput(*put), saver.aput_writes(where, self.written, "task")]

    def check(self, *tasks: Task) -> None:
        self.went_well(*tasks)
        before = self.saver().get_tuple(config())
        left = self.survivors()
        assert before is not None
        id = before.checkpoint["id"]
        assert id == "a" or not tasks[0].done
        assert left[id].pending_writes == before.pending_writes
        if tasks[0].done and tasks[1].done:
            assert before.pending_writes == [("task", *write) for write in self.written]
