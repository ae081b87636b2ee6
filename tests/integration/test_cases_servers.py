"""Servers that die, hang, fill up, forget, or are not there yet."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import redis
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import START, StateGraph

from langgraph_durable_state import DurableSaver, UnavailableError, UsageError
from tests.calls import CALLS, QUICK, STEPS, Open, done_right, three_steps
from tests.cases import (
    Face,
    Store,
    at,
    chain,
    cp,
    id_of,
    ids_of,
    put,
    query,
    until,
    until_served,
    values_of,
)
from tests.conftest import MakePgBouncer, MakePostgres, MakeValkey
from tests.servers import PostgresServer, Proxy, ValkeyServer

under_both_policies = pytest.mark.parametrize("policy", ["write_through", "write_behind"])


# -- 24: sessions that were ended -------------------------------------------------------------


def end_sessions(url: str) -> int:
    """Terminate every other session of this database, and say how many there were."""
    rows = query(
        url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'",
    )
    return len(rows)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_succeeds_after_all_our_sessions_were_ended(
    hot_store: Store, name: str
) -> None:
    """However many dead connections the pool holds."""
    saver = hot_store.saver()
    configs = await three_steps(saver)
    await asyncio.gather(*(saver.get_tuple(config) for config in configs * 3))
    assert end_sessions(hot_store.postgres_url) > 0
    result = await CALLS[name](saver, configs)
    assert await done_right(name, result, hot_store.reader(), configs)


async def test_a_listing_goes_on_after_all_our_sessions_were_ended(hot_store: Store) -> None:
    """No session is held between two pages."""
    saver = hot_store.open()
    await chain(hot_store.face(saver), [{"c": n} for n in range(130)])
    found = []
    if hot_store.face.native:
        async for each in saver.alist(at()):
            found.append(values_of(each)["c"])
            if len(found) in (1, 60):
                end_sessions(hot_store.postgres_url)
    else:
        for each in saver.list(at()):
            found.append(values_of(each)["c"])
            if len(found) in (1, 60):
                end_sessions(hot_store.postgres_url)
    assert list(reversed(range(130))) == found


async def test_calls_at_once_succeed_after_all_our_sessions_were_ended(hot_store: Store) -> None:
    """Puts, writes and reads of several threads, each of which meets a dead connection."""
    saver = hot_store.saver()
    names = [f"t{n}" for n in range(8)]
    configs = await asyncio.gather(*(put(saver, at(t), cp({"c": 1})) for t in names))
    end_sessions(hot_store.postgres_url)
    await asyncio.gather(
        *(put(saver, c, cp({"c": 2}, versions={"c": "2"})) for c in configs),
        *(saver.put_writes(c, [("c", 3)], "task") for c in configs),
        *(saver.get_tuple(c) for c in configs),
    )
    reader = hot_store.reader()
    for thread_id, config in zip(names, configs, strict=True):
        assert values_of(await reader.get_tuple(at(thread_id))) == {"c": 2}
        assert (await reader.get_tuple(config)).pending_writes == [("task", "c", 3)]


async def sessions_of(saver: Any, most: int) -> list[Any]:
    """The sessions of a saver, at least so many, all of them idle."""
    faces = saver.target._faces
    driver: Any = await (faces.native() if saver._native else faces.blocking())
    connections = driver.upkeep._durable._sql._connections
    for session in [await connections.borrow(5.0) for _ in range(most)]:
        await connections.give_back(session)
    return list(connections._pool._pool)


DISTURBANCES = {
    "somebody discarded what they had prepared": "DISCARD ALL",
    "the server was demoted for a while": "SET default_transaction_read_only = on",
}


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_succeeds_after_all_our_sessions_were_disturbed(
    hot_store: Store, name: str, disturbance: str
) -> None:
    """However many such sessions the pool holds: others are opened, and nobody is told."""
    saver = hot_store.saver()
    configs = await three_steps(saver)
    sessions = await sessions_of(saver, 3)
    for _ in range(4 * len(sessions)):  # one after the other, so that each has all prepared
        for reading in ("get_tuple of the head", "get_tuple by id", "list"):
            await CALLS[reading](saver, configs)
    for session in sessions:
        session.pgconn.exec_(DISTURBANCES[disturbance].encode())  # psycopg does not see it
    result = await CALLS[name](saver, configs)
    assert await done_right(name, result, hot_store.reader(), configs)


# -- a thread that somebody else has locked ---------------------------------------------------


async def test_a_locked_thread_holds_up_no_other_thread(
    postgres_url: str, open_saver: Open
) -> None:
    """Its puts fail and say so; others may be held up with them once, and are not refused."""
    saver = open_saver(postgres_url, timeout=1.0, pool_size=4)
    for thread in "xy":
        await put(saver, at(thread), cp({"c": 0}))
    lock = (
        "SELECT FROM durable_state.head h JOIN durable_state.thread t USING (tk)"
        " WHERE t.id = convert_to('x', 'UTF8') FOR UPDATE OF h"
    )
    with psycopg.connect(postgres_url) as other:
        assert other.execute(lock).rowcount == 1
        for _ in range(2):
            jobs = [put(saver, at(t), cp({"c": 1})) for t in "yxyyxy"]
            told = await asyncio.gather(*jobs, return_exceptions=True)
            assert all(isinstance(each, (dict, UnavailableError)) for each in told), told
            assert all(isinstance(told[i], UnavailableError) for i in (1, 4))
            assert "lock" in str(told[1])
            last = cp({"c": 2})
            await put(saver, at("y"), last)
            assert ids_of([await saver.get_tuple(at("y"))]) == [last["id"]]
    await put(saver, at("x"), cp({"c": 3}))
    assert values_of(await open_saver(postgres_url).get_tuple(at("x"))) == {"c": 3}


# -- 25: a pooler between ---------------------------------------------------------------------


@under_both_policies
@pytest.mark.parametrize("name", CALLS)
async def test_every_call_works_through_a_pooler(
    postgres_url: str,
    redis_url: str,
    open_saver: Open,
    make_pgbouncer: MakePgBouncer,
    name: str,
    policy: str,
) -> None:
    """Transaction mode, one server connection, two clients that take turns, default settings."""
    pooler = make_pgbouncer(postgres_url, pool_size=1)
    one, other = (open_saver(pooler.url, redis_url, write_policy=policy) for _ in range(2))
    configs = await three_steps(one)
    assert STEPS[2] == values_of(await other.get_tuple(at()))
    result = await CALLS[name](other, configs)
    assert await done_right(name, result, one, configs)


@under_both_policies
async def test_two_clients_at_once_work_through_a_pooler(
    postgres_url: str, redis_url: str, open_saver: Open, make_pgbouncer: MakePgBouncer, policy: str
) -> None:
    """Every statement of either may find a session that the other has used."""
    pooler = make_pgbouncer(postgres_url, pool_size=1)
    savers = [open_saver(pooler.url, redis_url, write_policy=policy) for _ in range(2)]

    async def turns(saver: Any, thread_id: str) -> Any:
        configs = await chain(saver, [{"c": n} for n in range(8)], thread_id)
        for config in configs:
            await saver.put_writes(config, [("c", "w")], "task")
        listed = await saver.list(at(thread_id))
        head = await saver.get_tuple(at(thread_id))
        return [values_of(f)["c"] for f in listed], head.pending_writes

    jobs = [turns(savers[n % 2], f"t{n}") for n in range(8)]
    for told in await asyncio.gather(*jobs):
        assert told == ([7, 6, 5, 4, 3, 2, 1, 0], [("task", "c", "w")])


# -- 26: sockets that never answer ------------------------------------------------------------


@pytest.mark.parametrize("name", ["get_tuple of the head", "list", "put", "put_writes"])
async def test_a_postgres_that_never_answers_is_a_typed_error(
    postgres_url: str,
    open_saver: Open,
    make_proxy: Callable[[str], Proxy],
    name: str,
) -> None:
    """In time; and once it answers again the call works, over a new connection."""
    proxy = make_proxy(postgres_url)
    saver = open_saver(proxy.url, **QUICK)
    configs = await three_steps(saver)
    before = proxy.accepted
    proxy.blackhole()
    with pytest.raises(UnavailableError) as error:
        await CALLS[name](saver, configs)
    assert (error.value.tier, error.value.retryable) == ("postgres", True)
    proxy.restore()
    result = await until_served(lambda: CALLS[name](saver, configs))
    assert await done_right(name, result, open_saver(postgres_url), configs)
    assert proxy.accepted > before


async def test_a_postgres_that_never_answered_is_a_typed_error(
    postgres_url: str, open_saver: Open, make_proxy: Callable[[str], Proxy]
) -> None:
    """Not even the first connection is made; later it is, by itself."""
    await three_steps(open_saver(postgres_url))
    proxy = make_proxy(postgres_url)
    proxy.blackhole()
    saver = open_saver(proxy.url, **QUICK)
    with pytest.raises(UnavailableError) as error:
        await saver.get_tuple(at())
    assert error.value.tier == "postgres"
    proxy.restore()
    assert STEPS[2] == values_of(await until_served(lambda: saver.get_tuple(at())))


async def test_a_postgres_that_never_answers_is_not_asked_by_every_call(
    postgres_url: str, open_saver: Open, make_proxy: Callable[[str], Proxy]
) -> None:
    """Of sixty calls a few try, one at a time; the others are told at once."""
    proxy = make_proxy(postgres_url)
    saver = open_saver(proxy.url, **QUICK)
    configs = await three_steps(saver)
    proxy.blackhole()
    before = proxy.accepted
    for _ in range(20):
        for call in (
            saver.get_tuple(at()),
            saver.put_writes(configs[2], [("c", 1)], "task"),
            put(saver, configs[2], cp({"c": 3})),
        ):
            with pytest.raises(UnavailableError):
                await call
    assert proxy.accepted - before <= 6
    proxy.restore()
    assert STEPS[2] == values_of(await until_served(lambda: saver.get_tuple(at())))


async def test_calls_at_once_to_a_postgres_that_never_answers_all_end(
    postgres_url: str, open_saver: Open, make_proxy: Callable[[str], Proxy]
) -> None:
    """Those that wait for a connection or for another's commit, too."""
    proxy = make_proxy(postgres_url)
    saver = open_saver(proxy.url, **QUICK, pool_size=2)
    configs = await three_steps(saver)
    proxy.blackhole()
    told = await asyncio.gather(
        *(saver.get_tuple(at()) for _ in range(6)),
        *(saver.put_writes(configs[2], [("c", n)], f"task{n}") for n in range(6)),
        *(put(saver, at(f"new{n}"), cp({"c": n})) for n in range(6)),
        return_exceptions=True,
    )
    assert [UnavailableError] * 18 == [type(each) for each in told]


async def test_a_redis_that_never_answers_costs_a_few_calls_only(
    hot_store: Store, open_saver: Open, make_proxy: Callable[[str], Proxy]
) -> None:
    """Puts succeed, reads are right, few connections are tried; later Redis is used again."""
    proxy = make_proxy(hot_store.redis_url)
    options = QUICK | {"head_cache_bytes": 0}
    saver = open_saver(hot_store.postgres_url, proxy.url, **options)
    config = await put(saver, at(), cp({"c": 0}))
    proxy.blackhole()
    before = proxy.accepted
    for n in range(1, 21):
        config = await put(saver, config, cp({"c": n}, versions={"c": str(n)}))
        assert {"c": n} == values_of(await saver.get_tuple(at()))
    assert proxy.accepted - before <= 8
    proxy.restore()
    with redis.Redis.from_url(hot_store.redis_url) as client:

        async def is_hot() -> bool:
            assert values_of(await saver.get_tuple(at())) == {"c": 20}
            copies = [client.hget(key, "id") for key in client.scan_iter()]
            return copies == [id_of(config).encode()]

        await until(is_hot)


@under_both_policies
async def test_a_redis_that_never_answered_does_not_keep_us_from_starting(
    hot_store: Store, open_saver: Open, make_proxy: Callable[[str], Proxy], policy: str
) -> None:
    """Its first connection is never made."""
    await three_steps(hot_store.saver())
    proxy = make_proxy(hot_store.redis_url)
    proxy.blackhole()
    saver = open_saver(hot_store.postgres_url, proxy.url, write_policy=policy, **QUICK)
    assert STEPS[2] == values_of(await saver.get_tuple(at()))
    assert len(await saver.list(at())) == 3


async def test_a_postgres_that_never_answers_holds_up_few_puts_behind(
    hot_store: Store, open_saver: Open, make_proxy: Callable[[str], Proxy]
) -> None:
    """Nor heads that Redis knows; once it answers again all is there."""
    proxy = make_proxy(hot_store.postgres_url)
    saver = open_saver(proxy.url, hot_store.redis_url, write_policy="write_behind", **QUICK)
    config = await put(saver, at(), cp({"c": 0}))
    configs = [config]
    proxy.blackhole()
    before = proxy.accepted
    for n in range(1, 21):
        config = await put(saver, config, cp({"c": n}, versions={"c": str(n)}))
        configs.append(config)
        await saver.put_writes(config, [("c", n)], "task")
        found = await saver.get_tuple(at())
        assert values_of(found) == {"c": n}
        assert found.metadata["durable_state_unverified"] is True
    assert proxy.accepted - before <= 12
    proxy.restore()
    await until_served(saver.flush)
    listed = await saver.list(at())
    assert ids_of(listed) == [id_of(c) for c in configs[::-1]]
    assert [f.pending_writes for f in listed[:-1]] == [[("task", "c", n)] for n in range(20, 0, -1)]


# -- 27: Redis is full ------------------------------------------------------------------------


def text(seed: Any, size: int) -> str:
    return random.Random(f"{seed}").randbytes(size // 2).hex()


def fill_up(server: ValkeyServer) -> None:
    """Writes until the server takes no more."""
    with redis.Redis.from_url(server.url) as client:
        for size in (100_000, 1_000, 10):
            for n in range(100_000):
                try:
                    client.set(f"junk:{size}:{n}", "x" * size)
                except redis.ResponseError:
                    break


async def test_a_full_redis_fails_no_put_and_gives_no_part_of_a_head(
    postgres_url: str, open_saver: Open, make_valkey: MakeValkey
) -> None:
    """`noeviction`: full before the first put, full in the middle of one, and freed again."""
    server = make_valkey(maxmemory="4mb", maxmemory_policy="noeviction")
    saver = open_saver(postgres_url, server.url)
    values: list[Any] = [[text((n, i), 2_000) for i in range(n * 5 + 1)] for n in range(12)]
    expected: dict[str, Any] = {}

    async def turn(name: str, n: int) -> None:
        found = await saver.get_tuple(at(name))
        parent = found.config if found else at(name)
        await put(saver, parent, cp({"c": values[n]}, versions={"c": f"{n}"}))
        expected[name] = values[n]
        for thread_id, value in expected.items():
            fresh = open_saver(postgres_url, server.url)
            for _ in range(2):  # the first one may fill the hot copy for the second
                assert {"c": value} == values_of(await fresh.get_tuple(at(thread_id)))

    await turn("before", 2)
    fill_up(server)
    for n in range(3, 6):
        await turn("before", n)
        await turn("new", n)
    with redis.Redis.from_url(server.url) as client:
        client.delete(*[f"junk:100000:{n}" for n in range(2)])  # room for a part of what comes
        for n in range(6, 12):
            await turn("before", n)
            await turn("new", n)
        client.flushall()
        await turn("before", 1)
        assert client.dbsize() > 0


async def test_a_redis_that_evicts_gives_no_part_of_a_head(
    postgres_url: str, open_saver: Open, make_valkey: MakeValkey
) -> None:
    """`allkeys-lru` with room for a few heads only."""
    server = make_valkey(maxmemory="4mb", maxmemory_policy="allkeys-lru")
    saver = open_saver(postgres_url, server.url, head_cache_bytes=0)
    names = [f"t{n}" for n in range(24)]
    configs = {name: at(name) for name in names}
    for step in range(3):
        for name in names:
            value = [text((name, i), 4_000) for i in range(20 * (step + 1))]
            made = cp({"c": value}, versions={"c": f"{step}"})
            configs[name] = await put(saver, configs[name], made)
    reader = open_saver(postgres_url, server.url, head_cache_bytes=0)
    for name in names * 2:
        value = [text((name, i), 4_000) for i in range(60)]
        assert {"c": value} == values_of(await reader.get_tuple(at(name)))
    with redis.Redis.from_url(server.url) as client:
        assert client.info("stats")["evicted_keys"] > 0


async def test_a_redis_that_fills_up_under_puts_behind_loses_nothing_of_them(
    postgres_url: str, open_saver: Open, make_valkey: MakeValkey
) -> None:
    """What it holds alone can be flushed while it is full; then the thread goes on without it."""
    server = make_valkey(maxmemory_policy="noeviction")
    saver = open_saver(postgres_url, server.url, write_policy="write_behind", redis_timeout=2.0)
    configs = await chain(saver, [{"c": [n, "x" * 200]} for n in range(5)])
    await saver.put_writes(configs[-1], [(INTERRUPT, "really?")], "task")
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.OutOfMemoryError):
            client.set("anything", "more")
    await saver.flush()
    reader = open_saver(postgres_url)
    assert [id for (id,) in query(postgres_url, SEQUENCE)] == [id_of(c) for c in configs]
    found = await until_served(lambda: reader.get_tuple(at()))
    assert found.pending_writes == [("task", INTERRUPT, "really?")]
    for n in range(5, 10):
        made = cp({"c": [n, "x" * 200]}, versions={"c": f"{n + 1}"})
        parent = configs[-1]
        configs.append(await until_served(lambda p=parent, made=made: put(saver, p, made)))
        for one in (saver, open_saver(postgres_url, server.url, write_policy="write_behind")):
            assert id_of((await one.get_tuple(at())).config) == id_of(configs[-1])
    assert [id for (id,) in query(postgres_url, SEQUENCE)] == [id_of(c) for c in configs]


SEQUENCE = "SELECT id FROM durable_state.checkpoint ORDER BY seq"


@pytest.mark.parametrize(
    "options", [{"write_policy": "write_behind"}, {"when_durable_down": "queue"}]
)
async def test_a_redis_that_may_evict_what_it_alone_holds_is_refused(
    postgres_url: str, open_saver: Open, make_valkey: MakeValkey, options: dict[str, Any]
) -> None:
    """At the first call, unless it is told that this is wanted; under write-through it is fine."""
    server = make_valkey(maxmemory="4mb", maxmemory_policy="allkeys-lru")
    saver = open_saver(postgres_url, server.url, **options)
    for _ in range(2):
        with pytest.raises(UsageError, match="allkeys-lru"):
            await put(saver, at(), cp({"c": 1}))
        with pytest.raises(UsageError, match="allkeys-lru"):
            await saver.get_tuple(at())
    for allowed in ({}, options | {"allow_eviction": True}):
        saver = open_saver(postgres_url, server.url, **allowed)
        await put(saver, at(f"{len(allowed)}"), cp({"c": 1}))
        assert values_of(await saver.get_tuple(at(f"{len(allowed)}"))) == {"c": 1}


# -- 28: Redis was away -----------------------------------------------------------------------


@under_both_policies
@pytest.mark.parametrize("back", ["with what it had", "from an old snapshot", "empty"])
async def test_a_redis_that_was_away_for_a_turn_serves_no_older_head(
    postgres_url: str, open_saver: Open, make_valkey: MakeValkey, back: str, policy: str
) -> None:
    """Neither to the process that went on without it, nor to another, nor after more turns."""
    kept = {} if back == "empty" else {"appendonly": "yes", "appendfsync": "always"}
    server = make_valkey(**kept)
    options = {"write_policy": policy, "redis_timeout": 2.0}
    saver = open_saver(postgres_url, server.url, **options)
    config = await put(saver, at(), cp({"c": "old" * 50}))
    snapshot = server.snapshot() if back == "from an old snapshot" else None
    if snapshot is not None:
        config = await put(saver, config, cp({"c": "between" * 50}, versions={"c": "2"}))
    await until(lambda: is_unmarked(postgres_url))
    server.kill()
    config = await put(saver, config, cp({"c": "newer" * 50}, versions={"c": "3"}))
    await saver.flush()
    assert values_of(await saver.get_tuple(at())) == {"c": "newer" * 50}
    if snapshot is not None:
        server.restore(snapshot)
    else:
        server.start()
    for reader in (open_saver(postgres_url, server.url, **options), saver):
        assert values_of(await reader.get_tuple(at())) == {"c": "newer" * 50}
    for n in range(3):
        config = await put(saver, config, cp({"c": n}, versions={"c": f"{n + 4}"}))
        for reader in (open_saver(postgres_url, server.url, **options), saver):
            assert {"c": n} == values_of(await reader.get_tuple(at()))


async def is_unmarked(url: str) -> bool:
    """Whether Postgres says of no head that Redis may be ahead."""
    return query(url, "SELECT 1 FROM durable_state.head WHERE ahead IS NOT NULL") == []


async def test_a_postgres_that_was_set_back_is_not_overruled_by_a_newer_hot_copy(
    make_postgres: MakePostgres, redis_url: str, open_saver: Open
) -> None:
    """After a restore the same positions come again, with other contents."""
    server = make_postgres(fsync="off")
    saver = open_saver(server.url, redis_url)
    first = await put(saver, at(), cp({"c": "first"}))
    kept = server.snapshot()
    await until_served(lambda: put(saver, first, cp({"c": "lost"}, versions={"c": "2"})))
    server.restore(kept)
    for reader in (open_saver(server.url, redis_url), saver):
        found = await until_served(lambda reader=reader: reader.get_tuple(at()))
        assert values_of(found) == {"c": "first"}
    again = await put(saver, first, cp({"c": "again"}, versions={"c": "2"}))
    await put(saver, again, cp({"c": "and again"}, versions={"c": "3"}))
    for reader in (open_saver(server.url, redis_url), saver):
        assert values_of(await reader.get_tuple(at())) == {"c": "and again"}
        assert values_of(await reader.get_tuple(again)) == {"c": "again"}


# -- 29: everybody installs at once -----------------------------------------------------------

INSTALLER = textwrap.dedent(
    """
    import asyncio, sys
    from langgraph_durable_state import DurableSaver
    from tests.cases import at, cp

    face, url, name = sys.argv[1:]
    saver = DurableSaver(url)
    print("ready", flush=True)
    sys.stdin.readline()
    what = (at(name), cp({"c": name}), {"source": "loop"}, {"c": "1"})

    async def natively():
        async with saver:
            await saver.asetup()
            await saver.aput(*what)
            return await saver.aget_tuple(at(name))

    if face == "native":
        found = asyncio.run(natively())
    else:
        with saver:
            saver.setup()
            saver.put(*what)
            found = saver.get_tuple(at(name))
    print(found.checkpoint["channel_values"], flush=True)
    """
)


@pytest.fixture
def installers(postgres_url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Eight processes, four on each face, that are about to install and use the tables."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", INSTALLER, face, postgres_url, f"{face} {n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
        for face in ("native", "blocking")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def release(installers: list[subprocess.Popen[str]]) -> None:
    for process in installers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def outcomes(installers: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    told = [process.communicate() for process in installers]
    return [
        (p.returncode, (out or err).strip()) for p, (out, err) in zip(installers, told, strict=True)
    ]


EACH_INSTALLED = [
    (0, str({"c": f"{face} {n}"})) for n in range(4) for face in ("native", "blocking")
]


def test_eight_processes_may_install_at_once(
    postgres_url: str, installers: list[subprocess.Popen[str]]
) -> None:
    """All succeed, each version is recorded once, and nobody was a deadlock's victim."""
    release(installers)
    assert outcomes(installers) == EACH_INSTALLED
    installed = query(postgres_url, "SELECT version FROM durable_state.installed ORDER BY 1")
    assert installed == [(1,), (2,), (3,), (4,)]
    assert query(postgres_url, DEADLOCKS) == [(0,)]


DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_savers_may_install_beside_a_transaction_that_does(
    postgres_url: str, open_saver: Open, end: str
) -> None:
    """An administrator's transaction holds them up until it ends, however it ends."""
    with psycopg.connect(postgres_url, autocommit=True) as administrator:
        administrator.execute("BEGIN")
        administrator.execute("CREATE TABLE beside ()")
        administrator.execute(DurableSaver.ddl().encode())
        savers = [open_saver(postgres_url) for _ in range(8)]
        jobs = [asyncio.create_task(saver.setup()) for saver in savers]
        await until(lambda: all_wait(postgres_url, len(jobs)))
        administrator.execute(end.encode())
    await asyncio.gather(*jobs)
    for n, saver in enumerate(savers):
        await put(saver, at(f"t{n}"), cp({"c": n}))
        assert values_of(await saver.get_tuple(at(f"t{n}"))) == {"c": n}
    beside = query(postgres_url, "SELECT to_regclass('beside') IS NOT NULL")
    assert beside == [(end == "COMMIT",)]


async def all_wait(url: str, most: int) -> bool:
    """Whether so many sessions wait for an advisory lock."""
    rows = query(
        url,
        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
        " WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted",
    )
    return bool(rows[0][0] == most)


async def test_first_calls_at_once_of_one_process_do_not_block_each_other(
    postgres_url: str, open_saver: Open
) -> None:
    """Forty requests to a process that has just started: none is a deadlock's victim."""
    saver = open_saver(postgres_url)
    await asyncio.gather(
        *(put(saver, at(f"t{n}"), cp({"c": n})) for n in range(20)),
        *(saver.get_tuple(at(f"t{n}")) for n in range(20)),
    )
    for n in range(20):
        assert {"c": n} == values_of(await saver.get_tuple(at(f"t{n}")))
    assert query(postgres_url, DEADLOCKS) == [(0,)]


async def test_installing_again_beside_traffic_disturbs_nobody(
    postgres_url: str, open_saver: Open
) -> None:
    """An administrator runs the DDL on a live system, as often as they like."""
    saver = open_saver(postgres_url)
    configs = await asyncio.gather(*(put(saver, at(f"t{n}"), cp({"c": 0})) for n in range(8)))
    done = asyncio.Event()

    async def traffic(config: Any) -> int:
        turns = 0
        while not done.is_set() or turns == 0:
            turns += 1
            config = await put(saver, config, cp({"c": turns}, versions={"c": f"{turns}"}))
            await saver.get_tuple(at(config["configurable"]["thread_id"]))
        return turns

    def install() -> None:
        with psycopg.connect(postgres_url) as administrator:
            for _ in range(20):
                administrator.execute(DurableSaver.ddl().encode())
                administrator.commit()

    running = [asyncio.create_task(traffic(config)) for config in configs]
    await asyncio.to_thread(install)
    done.set()
    for n, turns in enumerate(await asyncio.gather(*running)):
        assert {"c": turns} == values_of(await saver.get_tuple(at(f"t{n}")))
    assert query(postgres_url, DEADLOCKS) == [(0,)]


@pytest.fixture
def plain_role(postgres_url: str, numbers: Iterator[int]) -> Iterator[str]:
    """A role that may log in and nothing more; its URL of the test's database."""
    role = f"plain_{next(numbers)}"
    query(postgres_url, f"CREATE ROLE {role} LOGIN")
    yield postgres_url.replace("postgres@", f"{role}@")
    query(postgres_url, f"DROP OWNED BY {role}")
    query(postgres_url, f"DROP ROLE {role}")


def grant(url: str, role_url: str) -> None:
    role = role_url.partition("//")[2].partition("@")[0]
    query(url, f"GRANT USAGE ON SCHEMA durable_state TO {role}")
    rights = "SELECT, INSERT, UPDATE, DELETE"
    query(url, f"GRANT {rights} ON ALL TABLES IN SCHEMA durable_state TO {role}")


@pytest.mark.parametrize("name", CALLS)
async def test_a_role_without_ddl_rights_can_do_everything_once_installed(
    postgres_url: str, plain_role: str, redis_url: str, open_saver: Open, name: str
) -> None:
    """With default settings; it needs no more than the rights on the rows."""
    query(postgres_url, DurableSaver.ddl())
    grant(postgres_url, plain_role)
    saver = open_saver(plain_role, redis_url)
    configs = await three_steps(saver)
    result = await CALLS[name](saver, configs)
    assert await done_right(name, result, open_saver(plain_role), configs)


async def test_a_role_without_ddl_rights_is_told_that_nothing_is_installed(
    postgres_url: str, plain_role: str, open_saver: Open
) -> None:
    """Whether it is to install by itself or not; afterwards, the same saver works."""
    savers = [open_saver(plain_role), open_saver(plain_role, auto_setup=False)]
    for saver in savers:
        with pytest.raises(UsageError):
            await saver.get_tuple(at())
    with pytest.raises(UsageError):
        await savers[0].setup()
    query(postgres_url, DurableSaver.ddl())
    grant(postgres_url, plain_role)
    for n, saver in enumerate(savers):
        await put(saver, at(f"t{n}"), cp({"c": n}))
        assert {"c": n} == values_of(await saver.get_tuple(at(f"t{n}")))


# -- 30: servers that are not there -----------------------------------------------------------


@pytest.fixture
def down(make_postgres: MakePostgres) -> PostgresServer:
    """A Postgres that is down."""
    server = make_postgres(fsync="off")
    server.kill()
    return server


async def test_a_postgres_that_is_down_at_the_start_is_an_error_of_every_call(
    down: PostgresServer, redis_url: str, open_saver: Open
) -> None:
    """Never an empty thread; once it is up, the same saver works."""
    saver = open_saver(down.url, redis_url, **QUICK)
    configs = [at(id=str(n)) for n in range(3)]
    for call in CALLS.values():
        with pytest.raises(UnavailableError) as error:
            await call(saver, configs)
        assert error.value.tier == "postgres"
    down.start()
    assert await until_served(lambda: saver.get_tuple(at())) is None
    await three_steps(saver)
    assert STEPS[2] == values_of(await open_saver(down.url, redis_url).get_tuple(at()))


async def test_a_postgres_that_was_down_for_long_is_used_again_before_any_call_tries_it(
    make_postgres: MakePostgres, open_saver: Open
) -> None:
    """However often it was tried in vain meanwhile."""
    server = make_postgres(fsync="off")
    heard: list[str] = []
    saver = open_saver(server.url, timeout=1.0, observer=lambda event: heard.append(event.kind))
    await three_steps(saver)
    server.kill()
    for _ in range(5):
        with pytest.raises(UnavailableError):
            await saver.get_tuple(at())
        await asyncio.sleep(1.0)
    server.start()

    async def is_told() -> bool:
        return "tier_up" in heard

    await until(is_told)
    assert STEPS[2] == values_of(await saver.get_tuple(at()))


@pytest.mark.parametrize(
    "options",
    [{}, {"write_policy": "write_behind", "when_durable_down": "raise"}],
    ids=["write_through", "write_behind"],
)
async def test_a_postgres_that_is_down_at_the_first_read_is_no_empty_thread(
    make_postgres: MakePostgres, redis_url: str, open_saver: Open, options: dict[str, Any]
) -> None:
    """Whatever Redis holds: it alone cannot say what is current; a graph does not start anew."""
    server = make_postgres(fsync="off")
    before = open_saver(server.url, redis_url, **options)
    ran: list[str] = []

    def graph(saver: Any) -> Any:
        builder = StateGraph(dict)
        builder.add_node("node", lambda s: ran.append("node") or {"n": s.get("n", 0) + 1})
        builder.add_edge(START, "node")
        return builder.compile(checkpointer=saver.target)

    face = Face("native" if before._native else "blocking")
    await face(graph(before)).invoke({"n": 1}, at())
    configs = [(await before.get_tuple(at())).config] * 3
    server.kill()
    fresh = open_saver(server.url, redis_url, **QUICK, **options)
    for saver in (fresh, before):
        for name in ("get_tuple of the head", "get_tuple by id", "list", "list of all threads"):
            with pytest.raises(UnavailableError):
                await CALLS[name](saver, configs)
        with pytest.raises(UnavailableError):
            await face(graph(saver)).invoke({"n": 100}, at())
    assert ran == ["node"]
    server.start()
    for saver in (fresh, before):
        found = await until_served(lambda saver=saver: saver.get_tuple(at()))
        assert values_of(found)["__root__"] == {"n": 2}


@under_both_policies
@pytest.mark.parametrize("when", ["at the start", "at the first read"])
async def test_a_redis_that_is_down_changes_no_answer_and_is_said_once(
    postgres_url: str,
    open_saver: Open,
    make_valkey: MakeValkey,
    caplog: pytest.LogCaptureFixture,
    when: str,
    policy: str,
) -> None:
    """Puts succeed, reads are right, the log has one warning; later Redis is used again."""
    server = make_valkey()
    if when == "at the start":
        server.kill()
    options = {"head_cache_bytes": 0, "write_policy": policy} | QUICK
    configs = await three_steps(open_saver(postgres_url, server.url, **options))
    if when == "at the first read":
        await until(lambda: is_unmarked(postgres_url))
        server.kill()
    caplog.clear()
    saver = open_saver(postgres_url, server.url, **options)
    with caplog.at_level(logging.WARNING, logger="langgraph_durable_state"):
        for name in ("get_tuple of the head", "get_tuple by id", "list", "put_writes", "put"):
            result = await CALLS[name](saver, configs)
            assert await done_right(name, result, open_saver(postgres_url), configs)
    said = [r.getMessage() for r in caplog.records if r.name == "langgraph_durable_state"]
    assert ["redis" in each.lower() for each in said] == [True]
    server.start()
    with redis.Redis.from_url(server.url) as client:
        while not client.dbsize():
            assert values_of(await saver.get_tuple(at())) == {"c": 3}
            await asyncio.sleep(0.02)


@under_both_policies
async def test_both_down_is_an_error(
    down: PostgresServer, open_saver: Open, make_valkey: MakeValkey, policy: str
) -> None:
    """Not an empty thread, and not silence."""
    server = make_valkey()
    server.kill()
    saver = open_saver(down.url, server.url, write_policy=policy, **QUICK)
    with pytest.raises(UnavailableError):
        await saver.get_tuple(at())
    with pytest.raises(UnavailableError):
        await put(saver, at(), cp({"c": 1}))
    with pytest.raises(UnavailableError):
        await saver.put_writes(at(id="1"), [(INTERRUPT, "q")], "task")
