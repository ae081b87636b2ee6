"""Leases on both faces, under both write policies: who holds them, how they are lost, and what
becomes of those who go on all the same."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypedDict

import pytest
import redis
from langgraph.graph import START, StateGraph

from langgraph_durable_state import (
    DurableSaver,
    Event,
    LeaseHeldError,
    LeaseLostError,
    UnavailableError,
    UsageError,
)
from langgraph_durable_state.decisions.keys import named
from tests.cases import Face, query, until
from tests.conftest import MakeValkey
from tests.contract.superstep import config, superstep
from tests.servers import Proxy

POLICIES = ["write_through", "write_behind"]

THREAD = named("", "t")

Open = Callable[..., DurableSaver]


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def open_saver(postgres_url: str, redis_url: str, ends_in_loop: AsyncExitStack) -> Open:
    """Opens savers over one pair of stores, each like another process."""

    def opened(policy: str = "write_through", **options: Any) -> DurableSaver:
        servers = {"postgres": postgres_url, "redis": redis_url} | options
        saver = DurableSaver(write_policy=policy, **servers)
        ends_in_loop.push_async_callback(saver.aclose)
        return saver

    return opened


@asynccontextmanager
async def held(face: Face, saver: DurableSaver, id: str = "t", **options: Any) -> Any:
    """A lease of the face; the blocking one's is taken and given back in a thread."""
    if face.native:
        async with saver.alease(id, **options) as lease:
            yield lease
        return
    block = saver.lease(id, **options)
    lease = await asyncio.to_thread(block.__enter__)
    try:
        yield lease
    except BaseException as error:
        if not await asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await asyncio.to_thread(block.__exit__, None, None, None)


def run_out(url: str) -> None:
    """Lets every lease run out now, as if its holder had not renewed it."""
    query(url, "UPDATE durable_state.lease SET until = now()")


async def stored(face: Face, saver: DurableSaver) -> list[str]:
    return [found.checkpoint["id"] for found in await face(saver).list(config())]


async def grown(face: Face, saver: DurableSaver, *ids: str) -> Any:
    """Puts checkpoints of one run; the tuple of the last, loaded anew."""
    for id in ids:
        before = await face(saver).get_tuple(config())
        await face(saver).put(*superstep(saver, before, id, {"log": [id]}))
    return await face(saver).get_tuple(config())


# -- holding ---------------------------------------------------------------------------------


async def test_one_holds_it_and_the_others_are_told_who(face: Face, open_saver: Open) -> None:
    """The second of one process as well as another process; the thread need not be there."""
    one, other = open_saver(), open_saver()
    async with held(face, one) as lease:
        lease.check()
        for saver in (one, other):
            with pytest.raises(LeaseHeldError, match=str(os.getpid())) as told:
                async with held(face, saver):
                    pass
            assert told.value.retryable
            assert told.value.thread == "t"
        assert 0 < told.value.left <= 30
        async with held(face, other, "another"), held(face, other, tenant_id="x"):
            pass
    async with held(face, other) as later:
        assert later.fence > lease.fence
    with pytest.raises(LeaseLostError):
        lease.check()


async def test_it_is_given_back_when_the_block_fails(face: Face, open_saver: Open) -> None:
    one, other = open_saver(), open_saver()
    with pytest.raises(ZeroDivisionError):
        async with held(face, one):
            raise ZeroDivisionError
    async with held(face, other):
        pass


async def test_one_who_waits_gets_it_when_it_ends(face: Face, open_saver: Open) -> None:
    one, other = open_saver(), open_saver()
    ended = []

    async def waiter() -> None:
        async with held(face, other, wait=60):
            assert ended

    async with held(face, one):
        waiting = asyncio.create_task(waiter())
        with pytest.raises(LeaseHeldError):
            async with held(face, other, wait=0.2):
                pass
        assert not waiting.done()
        ended.append("one")
    await waiting


async def test_one_who_waits_gets_it_when_its_holder_died(face: Face, open_saver: Open) -> None:
    """It is not renewed any more; nobody gives it back."""
    dead = await open_saver()._faces.native()
    await dead.leasing.take(THREAD, "dead", 0.5)
    async with held(face, open_saver(), wait=60) as lease:
        lease.check()


@pytest.mark.parametrize("options", [{"ttl": 0}, {"ttl": float("inf")}, {"wait": -1}])
async def test_what_is_no_time_is_refused(
    face: Face, open_saver: Open, options: dict[str, float]
) -> None:
    with pytest.raises(UsageError):
        async with held(face, open_saver(), **options):
            pass


async def test_it_is_renewed_while_the_block_runs(
    face: Face, open_saver: Open, postgres_url: str
) -> None:
    """Past the time that it was taken for."""
    statement = "SELECT until, now() FROM durable_state.lease"
    async with held(face, open_saver(), ttl=2.0) as lease:
        ((first, _),) = query(postgres_url, statement)

        async def past() -> bool:
            ((_, now),) = query(postgres_url, statement)
            return now > first

        await until(past)
        lease.check()
        with pytest.raises(LeaseHeldError):
            async with held(face, open_saver()):
                pass


@pytest.mark.parametrize("when", ["before", "after"])
async def test_one_who_is_cancelled_while_taking_it_leaves_it_free(
    open_saver: Open, when: str
) -> None:
    """Whether or not the statement had been run."""
    saver, other = open_saver(), open_saver()
    durable: Any = (await saver._faces.native()).durable
    connections, text = durable._sql._connections, durable._sql._queries["take_lease"]
    ask = connections.ask

    async def cancelled(connection: Any, said: str, *rest: Any) -> Any:
        if said != text:
            return await ask(connection, said, *rest)
        if when == "after":
            assert (await ask(connection, said, *rest))[0][0]
        raise asyncio.CancelledError

    connections.ask = cancelled
    with pytest.raises(asyncio.CancelledError):
        async with saver.alease("t"):
            pass
    async with other.alease("t"):
        pass


async def test_one_who_is_cancelled_leaves_it_free(open_saver: Open) -> None:
    """While it waits, and while it holds it."""
    saver, other = open_saver(), open_saver()
    reached: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]

    async def hold(reached: asyncio.Event, **options: Any) -> None:
        async with saver.alease("t", **options):
            reached.set()
            await asyncio.Event().wait()

    async with other.alease("t") as lease:
        waiting = asyncio.create_task(hold(reached[0], wait=60))

        async def at_work() -> bool:
            return saver._faces.ready

        await until(at_work)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        lease.check()
    holding = asyncio.create_task(hold(reached[1]))
    await reached[1].wait()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    assert not reached[0].is_set()
    async with other.alease("t"):
        pass


# -- losing it -------------------------------------------------------------------------------


async def test_an_overtaken_holder_stores_nothing_more(
    face: Face, open_saver: Open, postgres_url: str, policy: str
) -> None:
    """Its put is refused before anybody told it; from then on all that it asks for is."""
    events: list[Event] = []
    old, new = open_saver(policy, observer=events.append), open_saver(policy)
    async with held(face, old) as lease:
        head = await grown(face, old, "1", "2")
        run_out(postgres_url)
        async with held(face, new) as next_lease:
            assert next_lease.fence > lease.fence
            read = await face(new).get_tuple(config())
            assert read.checkpoint["id"] == "2"
            late = superstep(old, head, "late", {"log": ["late"]})
            with pytest.raises(LeaseLostError) as told:
                await face(old).put(*late)
            assert (told.value.thread, told.value.fence) == ("t", lease.fence)
            assert not told.value.retryable
            with pytest.raises(LeaseLostError):
                await face(old).put(*late)
            with pytest.raises(LeaseLostError):
                await face(old).put_writes(head.config, [("log", ["late"])], "task")
            with pytest.raises(LeaseLostError):
                old.get_next_version(late[1]["channel_versions"]["log"], None)
            with pytest.raises(LeaseLostError):
                old.get_next_version(head.checkpoint["channel_versions"]["log"], None)
            with pytest.raises(LeaseLostError):
                lease.check()
            await face(new).put(*superstep(new, read, "3", {"log": ["3"]}))
    for saver in (old, new, open_saver(policy)):
        assert await stored(face, saver) == ["3", "2", "1"]
        assert (await face(saver).get_tuple(config())).pending_writes == []
    assert [(event.kind, event.thread) for event in events] == [("lease_lost", "t")]


async def test_an_overtaken_holder_writes_nothing_more(
    face: Face, open_saver: Open, postgres_url: str, policy: str
) -> None:
    """Where a task's writes come first."""
    old, new = open_saver(policy), open_saver(policy)
    async with held(face, old):
        head = await grown(face, old, "1")
        run_out(postgres_url)
        async with held(face, new):
            with pytest.raises(LeaseLostError):
                await face(old).put_writes(head.config, [("log", ["late"])], "task")
            with pytest.raises(LeaseLostError):
                old.get_next_version(head.checkpoint["channel_versions"]["log"], None)
    assert (await face(new).get_tuple(config())).pending_writes == []


async def test_a_fork_of_an_overtaken_holder_is_refused(
    face: Face, open_saver: Open, postgres_url: str, policy: str
) -> None:
    """No comparison of heads would do that."""
    old, new = open_saver(policy), open_saver(policy)
    async with held(face, old):
        await grown(face, old, "1", "2")
        first = await face(old).get_tuple(config(id="1"))
        run_out(postgres_url)
        async with held(face, new):
            with pytest.raises(LeaseLostError):
                await face(old).put(*superstep(old, first, "late", {"log": []}))
    assert await stored(face, new) == ["2", "1"]


async def test_a_run_keeps_the_fence_that_it_began_under(
    face: Face, open_saver: Open, postgres_url: str, policy: str
) -> None:
    """What still puts for it after its block is refused once somebody else has taken the lease,
    the same saver included."""
    saver = open_saver(policy)
    async with held(face, saver):
        head = await grown(face, saver, "1")
    await face(saver).put(*superstep(saver, head, "2", {"log": []}))
    async with held(face, saver) as lease:
        late = await face(saver).get_tuple(config(id="1"))
    async with held(face, saver):
        with pytest.raises(LeaseLostError) as told:
            await face(saver).put(*superstep(saver, late, "late", {"log": []}))
        assert told.value.fence == lease.fence
        await grown(face, saver, "3")
    assert await stored(face, saver) == ["3", "2", "1"]


async def test_who_goes_on_in_a_lost_block_does_not_get_the_next_lease(
    face: Face, open_saver: Open, postgres_url: str
) -> None:
    """One saver has a thread's lease once at a time: what is put in the first block would go
    under the second's fence."""
    old, new = open_saver(), open_saver()
    async with held(face, old):
        await grown(face, old, "1")
        run_out(postgres_url)
        async with held(face, new):
            pass
        with pytest.raises(LeaseHeldError):
            async with held(face, old):
                pass
        with pytest.raises(LeaseLostError):
            await grown(face, old, "late")
    async with held(face, old):
        await grown(face, old, "2")


async def test_renewal_finds_it_lost(face: Face, open_saver: Open, postgres_url: str) -> None:
    """Though nothing is put."""
    events: list[Event] = []
    old = open_saver(observer=events.append)
    async with held(face, old, ttl=1.0) as lease:
        head = await grown(face, old, "1")
        run_out(postgres_url)
        async with held(face, open_saver()):

            async def noticed() -> bool:
                return not lease.held

            await until(noticed)
            with pytest.raises(LeaseLostError):
                old.get_next_version(head.checkpoint["channel_versions"]["log"], None)
    assert [(event.kind, event.thread) for event in events] == [("lease_lost", "t")]


async def test_what_cannot_be_renewed_in_time_is_lost(
    face: Face, open_saver: Open, postgres_url: str, make_proxy: Callable[[str], Proxy]
) -> None:
    """Nobody knows whether somebody else has it by then."""
    proxy = make_proxy(postgres_url)
    saver = open_saver(postgres=proxy.url, timeout=0.3)
    async with held(face, saver, ttl=1.0) as lease:
        put = superstep(saver, await grown(face, saver, "1"), "2", {"log": []})
        proxy.blackhole()

        async def noticed() -> bool:
            return not lease.held

        await until(noticed)
        with pytest.raises(LeaseLostError):
            await face(saver).put(*put)
        proxy.restore()


async def test_what_carries_no_lease_is_not_checked(
    face: Face, open_saver: Open, policy: str
) -> None:
    """Only the proof of the head guards it: whoever needs a lease takes one."""
    holder, other = open_saver(policy), open_saver(policy)
    async with held(face, holder):
        await grown(face, holder, "1")
        await grown(face, other, "2")
        await grown(face, holder, "3")
    assert await stored(face, other) == ["3", "2", "1"]


# -- the tiers -------------------------------------------------------------------------------


async def test_a_hot_tier_that_cannot_be_told_of_the_fence(
    face: Face, open_saver: Open, make_valkey: MakeValkey, policy: str
) -> None:
    """Where it acknowledges, a paused holder could still write to it: the lease is not given, and
    nobody else is kept waiting. Where it does not, the lease is as good without it."""
    valkey = make_valkey()
    saver = open_saver(policy, redis=valkey.url)
    await grown(face, saver, "1")
    await face(saver).flush()
    valkey.kill()
    if policy == "write_behind":
        with pytest.raises(UnavailableError):
            async with held(face, saver):
                pass
        async with held(face, open_saver()):
            pass
    else:
        async with held(face, saver):
            await grown(face, saver, "2")


async def test_without_a_hot_tier(face: Face, open_saver: Open, postgres_url: str) -> None:
    old, new = open_saver(redis=None), open_saver(redis=None)
    async with held(face, old):
        await grown(face, old, "1")
        run_out(postgres_url)
        async with held(face, new):
            with pytest.raises(LeaseLostError):
                await grown(face, old, "late")


async def test_a_hot_tier_that_lost_everything_lets_nobody_in(
    face: Face, open_saver: Open, postgres_url: str, redis_url: str
) -> None:
    """It has forgotten the fence: the overtaken holder has to mark the durable head first."""
    old, new = open_saver("write_behind"), open_saver("write_behind")
    async with held(face, old):
        head = await grown(face, old, "1")
        driver = await (old._faces.native() if face.native else old._faces.blocking())
        await driver.flusher.end(THREAD)
        run_out(postgres_url)
        async with held(face, new):
            with redis.Redis.from_url(redis_url) as client:
                client.flushdb()
            with pytest.raises(LeaseLostError):
                await face(old).put(*superstep(old, head, "late", {"log": []}))
    assert await stored(face, new) == ["1"]


# -- graphs ----------------------------------------------------------------------------------


class State(TypedDict, total=False):
    n: int


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_graph_stops_whose_lease_is_lost(
    face: Face, open_saver: Open, postgres_url: str, policy: str, durability: Any
) -> None:
    """After the take-over, which comes amid its first node, nothing that it puts is there."""
    old, new = open_saver(policy), open_saver(policy)
    loop = asyncio.get_running_loop()
    successor = AsyncExitStack()
    seen: list[str] = []

    async def first(state: State) -> State:
        run_out(postgres_url)
        await successor.enter_async_context(held(face, new))
        seen.extend(await stored(face, new))
        return {"n": 1}

    def in_thread(state: State) -> State:
        return asyncio.run_coroutine_threadsafe(first(state), loop).result()

    ran = []

    def following(state: State) -> State:
        ran.append(state["n"])
        return {"n": state["n"] + 1}

    builder = StateGraph(State).add_node("0", first if face.native else in_thread)
    builder.add_edge(START, "0")
    for step in range(1, 6):
        builder.add_node(str(step), following).add_edge(str(step - 1), str(step))
    graph = builder.compile(checkpointer=old)
    async with held(face, old), successor:
        with pytest.raises(LeaseLostError):
            await face(graph).invoke({"n": 0}, config(), durability=durability)
        assert durability != "sync" or ran == []
        assert await stored(face, new) == seen


# -- processes -------------------------------------------------------------------------------

HOLDER = textwrap.dedent(
    """
    import asyncio, sys
    from langgraph_durable_state import DurableSaver, LeaseLostError
    from tests.contract.superstep import config, superstep

    face, policy, postgres, redis = sys.argv[1:]
    saver = DurableSaver(postgres, redis, write_policy=policy)

    def wait():
        print("held", flush=True)
        sys.stdin.readline()

    def blocking():
        with saver, saver.lease("t", ttl=1.0):
            head = saver.get_tuple(config())
            wait()
            saver.put(*superstep(saver, head, "late", {"log": ["late"]}))

    async def native():
        async with saver, saver.alease("t", ttl=1.0):
            head = await saver.aget_tuple(config())
            await asyncio.to_thread(wait)
            await saver.aput(*superstep(saver, head, "late", {"log": ["late"]}))

    try:
        blocking() if face == "blocking" else asyncio.run(native())
    except LeaseLostError as error:
        print("lost", error.thread, error.fence, flush=True)
    """
)


@pytest.fixture
def start_holder(postgres_url: str, redis_url: str, face: Face) -> Iterator[Any]:
    """Starts another process that takes the lease for a second, and puts when it is told to."""
    started: list[subprocess.Popen[str]] = []

    def start(policy: str) -> subprocess.Popen[str]:
        name = "native" if face.native else "blocking"
        command = [sys.executable, "-c", HOLDER, name, policy, postgres_url, redis_url]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


async def test_a_holder_that_was_frozen_and_overtaken_cannot_write(
    face: Face, open_saver: Open, start_holder: Any, policy: str
) -> None:
    """It goes on in the middle of its block, and does not know what has happened."""
    saver = open_saver(policy)
    await grown(face, saver, "1")
    holder = start_holder(policy)
    holder.send_signal(signal.SIGSTOP)
    async with held(face, saver, wait=60) as lease:
        head = await face(saver).get_tuple(config())
        holder.send_signal(signal.SIGCONT)
        told, _ = await asyncio.to_thread(holder.communicate, "go on\n")
        lost, thread, fence = told.split()
        assert (lost, thread) == ("lost", "t")
        assert int(fence) < lease.fence
        assert await stored(face, saver) == ["1"]
        await face(saver).put(*superstep(saver, head, "2", {"log": ["2"]}))
    assert await stored(face, saver) == ["2", "1"]


async def test_a_holder_that_was_frozen_and_not_overtaken_goes_on(
    face: Face, open_saver: Open, start_holder: Any, policy: str, postgres_url: str
) -> None:
    """Its lease ran out, and nobody wanted it."""
    saver = open_saver(policy)
    await grown(face, saver, "1")
    holder = start_holder(policy)
    holder.send_signal(signal.SIGSTOP)

    async def ran_out() -> bool:
        return query(postgres_url, "SELECT until < now() FROM durable_state.lease") == [(True,)]

    await until(ran_out)
    holder.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(holder.communicate, "go on\n") == ("", None)
    assert await stored(face, saver) == ["late", "1"]


def test_a_forked_child_is_no_holder(postgres_url: str) -> None:
    """What it puts carries its parent's fence, and the end of its block ends nothing."""
    with DurableSaver(postgres_url) as saver, DurableSaver(postgres_url) as other:
        with saver.lease("t") as lease:
            child = os.fork()
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                lease.check()
                with pytest.raises(LeaseHeldError), other.lease("t"):
                    pass
            else:
                put = superstep(saver, None, "1", {"log": ["child"]})
                saver.put(*put)
        if not child:
            os._exit(0)
        found = other.get_tuple(config())
        assert found is not None
        assert found.checkpoint["id"] == "1"
