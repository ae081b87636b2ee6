"""One saver, many callers: faces, loops, threads, forks, pools handed over, and its end."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio
from langgraph.checkpoint.base import empty_checkpoint
from psycopg import conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_durable_state import ClosedError, DurableSaver, UnavailableError, UsageError
from langgraph_durable_state.drivers.blocking import run


def config(thread: str = "t", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def put(saver: DurableSaver, thread: str, value: Any) -> Any:
    checkpoint, versions = made(value)
    return saver.put(config(thread), checkpoint, {"step": 0}, versions)


def made(value: Any) -> tuple[Any, Any]:
    versions = {"x": "1"}
    found = empty_checkpoint() | {"channel_values": {"x": value}, "channel_versions": versions}
    return found, versions


def value_of(saver: DurableSaver, thread: str) -> Any:
    found = saver.get_tuple(config(thread))
    return None if found is None else found.checkpoint["channel_values"]["x"]


async def avalue_of(saver: DurableSaver, thread: str) -> Any:
    found = await saver.aget_tuple(config(thread))
    return None if found is None else found.checkpoint["channel_values"]["x"]


def test_the_constructor_does_no_io() -> None:
    """Nothing listens there, and nothing is said until the first call."""
    DurableSaver("postgresql://127.0.0.1:1/none", "redis://127.0.0.1:1").close()


def test_one_saver_serves_both_faces_and_several_loops(postgres_url: str, redis_url: str) -> None:
    """Two asyncio.run calls, a blocking call between and one inside a running loop."""
    saver = DurableSaver(postgres_url, redis_url)

    async def inside() -> Any:
        put(saver, "t", "blocking within a loop")
        return await avalue_of(saver, "t")

    put(saver, "t", "first")
    assert asyncio.run(avalue_of(saver, "t")) == "first"
    assert asyncio.run(inside()) == "blocking within a loop"
    assert value_of(saver, "t") == "blocking within a loop"
    saver.close()


@pytest.mark.parametrize("way", ["close", "aclose", "with", "async with"])
def test_a_closed_saver_says_so(postgres_url: str, way: str) -> None:
    """Whichever way it was closed, on both faces, and closing again is nothing."""
    saver = DurableSaver(postgres_url)
    put(saver, "t", 1)

    async def native_end() -> None:
        assert await avalue_of(saver, "t") == 1
        if way == "aclose":
            await saver.aclose()
        else:
            async with saver:
                pass

    if way == "close":
        saver.close()
    elif way == "with":
        with saver:
            pass
    else:
        asyncio.run(native_end())
    with pytest.raises(ClosedError):
        value_of(saver, "t")
    with pytest.raises(ClosedError):
        asyncio.run(avalue_of(saver, "t"))
    saver.close()


def test_many_threads_put_at_once(postgres_url: str, redis_url: str) -> None:
    """64 threads share a saver: every put is stored, none waits for a connection of its own."""
    start = threading.Barrier(64)
    failed: list[BaseException] = []

    def work(i: int) -> None:
        try:
            start.wait()
            for n in range(5):
                put(saver, f"t{i}", [i, n])
        except BaseException as error:
            failed.append(error)

    with DurableSaver(postgres_url, redis_url, hot_reads="always", pool_size=4) as saver:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert [value_of(saver, f"t{i}") for i in range(64)] == [[i, 4] for i in range(64)]


async def test_many_tasks_put_at_once(postgres_url: str, redis_url: str) -> None:
    """256 tasks of one loop: every put is stored."""
    async with DurableSaver(postgres_url, redis_url, hot_reads="always") as saver:

        async def work(i: int) -> Any:
            checkpoint, versions = made(i)
            await saver.aput(config(f"t{i}"), checkpoint, {"step": 0}, versions)
            return await avalue_of(saver, f"t{i}")

        assert await asyncio.gather(*map(work, range(256))) == list(range(256))


async def test_a_cancelled_put_leaves_the_saver_usable(postgres_url: str) -> None:
    """Cancelled at any await: the checkpoint is whole or not there, and the next call works."""
    async with DurableSaver(postgres_url) as saver:
        await avalue_of(saver, "warm")
        for steps in range(12):
            checkpoint, versions = made(steps)
            task = asyncio.ensure_future(
                saver.aput(config(f"t{steps}"), checkpoint, {"step": 0}, versions)
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await avalue_of(saver, f"t{steps}") in (None, steps)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections(postgres_url: str, redis_url: str) -> None:
    """Parent and child go on with one saver object, and neither disturbs the other."""
    with DurableSaver(postgres_url, redis_url, hot_reads="always") as saver:
        put(saver, "t", "parent")
        child = os.fork()
        if child == 0:
            try:
                assert value_of(saver, "t") == "parent"
                put(saver, "child", "child")
                saver.close()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert value_of(saver, "t") == "parent"
        assert value_of(saver, "child") == "child"


def test_a_pool_with_default_settings_is_used_and_given_back_as_it_was(postgres_url: str) -> None:
    """Its connections are not in autocommit, and return rows as dicts."""
    with ConnectionPool(postgres_url, kwargs={"row_factory": dict_row}, open=True) as pool:
        with DurableSaver(pool) as saver:
            put(saver, "t", 1)
            assert value_of(saver, "t") == 1
            assert asyncio.run(avalue_of(saver, "t")) == 1
        with pool.connection() as connection:
            assert not connection.autocommit
            assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}


async def test_an_async_pool_is_used(postgres_url: str) -> None:
    """And is left open for its owner."""
    async with AsyncConnectionPool(postgres_url, open=False) as pool:
        async with DurableSaver(pool) as saver:
            checkpoint, versions = made(1)
            await saver.aput(config(), checkpoint, {"step": 0}, versions)
            assert await avalue_of(saver, "t") == 1
            assert value_of(saver, "t") == 1
        async with pool.connection() as connection:
            assert not connection.autocommit


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_a_redis_client_is_used(postgres_url: str, redis_url: str, kind: Any) -> None:
    """Of either face, for both faces."""
    client: Any = kind.from_url(redis_url)

    async def native() -> None:
        checkpoint, versions = made("async")
        await saver.aput(config("a"), checkpoint, {"step": 0}, versions)
        assert await avalue_of(saver, "a") == "async"
        if kind is redis.asyncio.Redis:
            await client.aclose()

    with DurableSaver(postgres_url, client, hot_reads="always") as saver:
        put(saver, "t", "blocking")
        asyncio.run(native())
    with redis.Redis.from_url(redis_url) as check:
        assert len(check.keys()) == 2
    if kind is redis.Redis:
        client.close()


@pytest.mark.parametrize("first", ["native", "blocking"])
def test_a_redis_client_serves_several_loops(
    postgres_url: str, redis_url: str, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It belongs to the loop it is first used in; in the next, we connect where it does."""
    client = redis.asyncio.Redis.from_url(redis_url)
    saver = DurableSaver(postgres_url, client, hot_reads="always", head_cache_bytes=0)

    async def used(thread: str, end: Callable[[], Any]) -> None:
        checkpoint, versions = made(thread)
        await saver.aput(config(thread), checkpoint, {"step": 0}, versions)
        assert await avalue_of(saver, thread) == thread
        await end()

    if first == "blocking":
        put(saver, "before", "before")
    asyncio.run(used("a", client.aclose))
    asyncio.run(used("b", saver.aclose))
    with redis.Redis.from_url(redis_url) as check:
        assert len(check.keys()) == 2 + (first == "blocking")
    assert [r.getMessage() for r in caplog.records] == []


def test_a_redis_client_stays_with_its_loop(postgres_url: str, redis_url: str) -> None:
    """While that loop is there still, idle, with a connection of the client's open."""
    client = redis.asyncio.Redis.from_url(redis_url)
    saver = DurableSaver(postgres_url, client, hot_reads="always", head_cache_bytes=0)

    async def used(thread: str) -> None:
        checkpoint, versions = made(thread)
        await saver.aput(config(thread), checkpoint, {"step": 0}, versions)
        assert await avalue_of(saver, thread) == thread

    with asyncio.Runner() as one, asyncio.Runner() as two, redis.Redis.from_url(redis_url) as check:
        for n, runner in enumerate([one, two, two, one]):
            runner.run(used(f"t{n}"))
            assert len(check.keys()) == n + 1
        two.run(saver.aclose())
        one.run(client.aclose())


def test_an_async_pool_serves_several_loops(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its owner closes it with its loop; in the next, we connect where it did."""
    pools = []

    async def first() -> None:
        async with pools[0]:
            assert await used("a") is None

    async def second() -> None:
        assert await used("b") == "a"
        await saver.aclose()

    async def used(thread: str) -> Any:
        before = await avalue_of(saver, "a")
        checkpoint, versions = made(thread)
        await saver.aput(config(thread), checkpoint, {"step": 0}, versions)
        assert await avalue_of(saver, thread) == thread
        return before

    pools.append(AsyncConnectionPool(postgres_url, open=False))
    saver = DurableSaver(pools[0], timeout=2)
    asyncio.run(first())
    asyncio.run(second())
    assert [r.getMessage() for r in caplog.records] == []


@pytest.mark.parametrize("timeout", [0.2, 0.6])
def test_a_pool_whose_owner_holds_all_is_busy_and_not_down(
    postgres_url: str, timeout: float
) -> None:
    """A call meanwhile is told so; the first one afterwards works."""
    with (
        ConnectionPool(postgres_url, min_size=1, max_size=2, open=True) as pool,
        DurableSaver(pool, timeout=timeout) as saver,
    ):
        put(saver, "t", 1)
        for _ in range(2):
            with pool.connection(), pool.connection(), pytest.raises(UnavailableError):
                value_of(saver, "t")
            assert value_of(saver, "t") == 1


@pytest.mark.parametrize("timeout", [0.2, 0.6])
async def test_an_async_pool_whose_owner_holds_all_is_busy_and_not_down(
    postgres_url: str, timeout: float
) -> None:
    async with AsyncConnectionPool(postgres_url, min_size=1, max_size=2, open=False) as pool:
        saver = DurableSaver(pool, timeout=timeout)
        checkpoint, versions = made(1)
        await saver.aput(config(), checkpoint, {"step": 0}, versions)
        for _ in range(2):
            async with pool.connection(), pool.connection():
                with pytest.raises(UnavailableError):
                    await avalue_of(saver, "t")
            assert await avalue_of(saver, "t") == 1
        await saver.aclose()


async def test_what_changes_while_the_first_call_installs_is_stored_as_it_was(
    postgres_url: str,
) -> None:
    """A caller may go on with its objects once it has called, also of a saver that is new."""
    saver, other = DurableSaver(postgres_url), DurableSaver(postgres_url)
    value, written = ["as it was", {"deep": [1]}], [["as it was"], {"deep": [1]}]
    checkpoint, versions = made(value)
    where = config() | {"configurable": config(checkpoint_id=checkpoint["id"])["configurable"]}
    calls = [
        asyncio.create_task(saver.aput(config(), checkpoint, {"step": 0}, versions)),
        asyncio.create_task(other.aput_writes(where, [("x", w) for w in written], "task")),
    ]
    await asyncio.sleep(0)
    for each in (value, written[0]):
        each.append("later")
    for each in (value[1], written[1]):
        each["deep"].append("later")
    await asyncio.gather(*calls)
    async with DurableSaver(postgres_url) as reader:
        found = await reader.aget_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": ["as it was", {"deep": [1]}]}
    assert [w[2] for w in found.pending_writes or []] == [["as it was"], {"deep": [1]}]
    for each in (saver, other):
        await each.aclose()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5,), "postgres must be a URL"),
        (("not a URL",), "postgres must be a URL"),
        (("postgresql+psycopg://u:secret@h/d",), "not SQLAlchemy"),
        (("postgresql://x", 5), "redis must be a URL"),
        (("postgresql://x", "http://x"), "redis URL"),
        (("postgresql://x", redis.Redis(decode_responses=True)), "must not decode"),
    ],
)
def test_sources_that_cannot_be_used_are_refused(arguments: Any, message: str) -> None:
    """At once, with what is wrong."""
    with pytest.raises(UsageError, match=message):
        DurableSaver(*arguments)


def test_a_copy_with_another_serializer_works(postgres_url: str) -> None:
    """LangGraph copies the saver and swaps its serializer."""
    with DurableSaver(postgres_url) as saver:
        clone = copy.copy(saver)
        clone.serde = Pickled()
        put(clone, "t", {1, (2, 3)})
        assert value_of(clone, "t") == {1, (2, 3)}


class Pickled:
    """A serializer that is not LangGraph's."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "pickle", pickle.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return pickle.loads(data[1])


def test_tables_that_are_missing_are_named(postgres_url: str) -> None:
    """Without auto_setup the first call says what to do; after setup() it works."""
    with DurableSaver(postgres_url, auto_setup=False) as saver:
        with pytest.raises(UsageError, match=r"call setup\(\)"):
            value_of(saver, "t")
        saver.setup()
        saver.setup()
        assert value_of(saver, "t") is None


def test_two_schemas_are_two_worlds(postgres_url: str) -> None:
    """The same thread in each."""
    with (
        DurableSaver(postgres_url, schema="one") as one,
        DurableSaver(postgres_url, schema="two") as two,
    ):
        put(one, "t", 1)
        assert value_of(two, "t") is None


def test_tenants_do_not_see_each_other(postgres_url: str) -> None:
    """The same thread id under two tenants is two threads; configs that come back say whose."""
    with DurableSaver(postgres_url) as saver:
        for tenant in ("a", "b"):
            checkpoint, versions = made(tenant)
            saver.put(config(tenant_id=tenant), checkpoint, {"step": 0}, versions)
        found = saver.get_tuple(config(tenant_id="a"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"x": "a"}
        assert found.config["configurable"]["tenant_id"] == "a"
        assert value_of(saver, "t") is None


def test_a_blocking_coroutine_that_suspends_fails_loudly() -> None:
    """Naming the coroutine, instead of waiting for ever."""

    async def sleeps() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="sleeps suspended"):
        run(sleeps())


def test_the_function_that_unpacks_chunk_numbers_agrees(postgres_url: str) -> None:
    """Postgres reads the bytes that Python writes, from few blocks and from many."""
    from langgraph_durable_state.decisions.keys import Numbers, packed

    blocks = [Numbers() for _ in range(300)]
    lists: list[list[int]] = [
        [],
        [0, 2**63 - 1],
        [next(blocks[0]) for _ in range(50)],
        [next(b) for b in blocks[:255] for _ in range(2)],
        [next(b) for b in blocks],
    ]
    with DurableSaver(postgres_url) as saver, psycopg.connect(postgres_url) as admin:
        saver.setup()
        for numbers in lists:
            row = admin.execute(
                "SELECT durable_state.numbers(%s::bytea)", [packed(numbers)]
            ).fetchone()
            assert row is not None
            assert row[0] == numbers


@pytest.mark.parametrize("size", [0, 1, 50, 51, 120])
def test_a_long_history_is_listed_in_pages(postgres_url: str, size: int) -> None:
    """Every checkpoint once, newest first, however many pages it takes."""
    put_all: Callable[[int], Any] = lambda n: [put(saver, "t", i) for i in range(n)]  # noqa: E731
    with DurableSaver(postgres_url) as saver:
        saver.setup()
        put_all(size)
        listed = [t.checkpoint["channel_values"]["x"] for t in saver.list(config())]
        assert listed == list(reversed(range(size)))
        everything = [t.checkpoint["channel_values"]["x"] for t in saver.list(None)]
        assert everything == listed
        assert len(list(saver.list(config(), limit=7))) == min(size, 7)


@pytest.mark.parametrize("face", [value_of, lambda s, t: asyncio.run(avalue_of(s, t))])
def test_why_there_is_no_connection_is_said(postgres_url: str, face: Any) -> None:
    """A refused connection and an unknown database are told apart, with the server's words."""
    with (
        DurableSaver("postgresql://postgres@127.0.0.1:1/none") as nobody,
        pytest.raises(UnavailableError, match="refused"),
    ):
        face(nobody, "t")
    database = conninfo.conninfo_to_dict(postgres_url)["dbname"]
    unknown = conninfo.make_conninfo(postgres_url, dbname=f"{database}_none")
    with (
        DurableSaver(unknown) as lost,
        pytest.raises(UsageError, match="does not exist"),
    ):
        face(lost, "t")
