"""What an operator sees of servers that die and come back: health, events, and the log."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg_pool import ConnectionPool

from langgraph_durable_state import DurableSaver, Event, Health, UnavailableError
from tests.cases import Face, at, cp, put, query, until, values_of
from tests.conftest import MakePostgres, MakeValkey
from tests.servers import PostgresServer, Proxy, Server, ValkeyServer

QUICK: dict[str, Any] = {"timeout": 1.0, "redis_timeout": 0.2, "hot_reads": "always"}


class Heard:
    """An observer of the running loop's test, called from any thread."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._add, event)

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()

    async def until(self, kind: str) -> Event:
        """The next event, which must be of this kind."""
        while not self.events:
            self._more.clear()
            await self._more.wait()
        event = self.events.pop(0)
        assert event.kind == kind
        return event


@pytest.fixture
async def heard() -> Heard:
    return Heard()


Open = Callable[..., Any]


@pytest.fixture
async def open_saver(face: Face, heard: Heard, ends_in_loop: AsyncExitStack) -> Open:
    """Opens savers that `heard` observes, on the face, closed after the test."""

    def opened(postgres: Any, redis: Any = None, **options: Any) -> Any:
        saver = DurableSaver(postgres, redis, observer=heard, **(QUICK | options))
        ends_in_loop.push_async_callback(saver.aclose)
        return face(saver)

    return opened


def states(health: Health) -> tuple[str, str]:
    return health.postgres.state, health.redis.state


def moment(event: Event) -> datetime:
    return datetime.fromtimestamp(event.at, UTC)


async def dies_and_is_back(
    saver: Any,
    server: Server,
    tier: str,
    one_call: Callable[[], Any],
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An outage of one tier, as everybody is told of it."""
    assert (await saver.health()).ok
    server.kill()
    began = datetime.now(UTC)
    for _ in range(3):
        await one_call()
    down = await heard.until("tier_down")
    health = await saver.health()
    told = getattr(health, tier)
    assert (told.state, told.breaker, told.since) == ("down", "open", moment(down))
    assert (down.tier, told.why) == (tier, down.detail)
    assert began <= told.since <= datetime.now(UTC)
    assert not health.ok
    server.start()
    up = await heard.until("tier_up")  # nobody calls meanwhile
    told = getattr(await saver.health(), tier)
    assert (up.tier, told.state, told.breaker, told.why) == (tier, "up", "closed", None)
    assert told.since == moment(up) > moment(down)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        str(down),
        str(up),
    ]
    assert heard.events == []


async def test_a_dead_redis_is_seen_by_all_and_used_again_by_itself(
    postgres_url: str,
    make_valkey: MakeValkey,
    open_saver: Open,
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Puts go on; one line says that it failed, and one that it is back."""
    server = make_valkey()
    saver = open_saver(postgres_url, server.url)
    config = await put(saver, at(), cp({"c": 0}))

    async def one_call() -> None:
        nonlocal config
        config = await put(saver, config, cp({"c": 1}, versions={"c": "2"}))

    with caplog.at_level(logging.INFO, logger="langgraph_durable_state"):
        await dies_and_is_back(saver, server, "redis", one_call, heard, caplog)
    assert values_of(await saver.get_tuple(at())) == {"c": 1}


async def test_a_dead_postgres_is_seen_by_all_and_used_again_by_itself(
    redis_url: str,
    make_postgres: MakePostgres,
    open_saver: Open,
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Calls fail; one line says that it failed, and one that it is back."""
    server = make_postgres(fsync="off")
    saver = open_saver(server.url, redis_url)
    await put(saver, at(), cp({"c": 0}))

    async def one_call() -> None:
        with pytest.raises(UnavailableError):
            await saver.get_tuple(at())

    with caplog.at_level(logging.INFO, logger="langgraph_durable_state"):
        await dies_and_is_back(saver, server, "postgres", one_call, heard, caplog)
    assert values_of(await saver.get_tuple(at())) == {"c": 0}


async def tried_again(proxy: Proxy) -> None:
    before = proxy.accepted

    async def twice() -> bool:
        return proxy.accepted > before + 1

    await until(twice)


async def test_a_hung_server_is_used_again_by_itself(
    postgres_url: str,
    redis_url: str,
    make_proxy: Callable[[str], Proxy],
    open_saver: Open,
    heard: Heard,
) -> None:
    """It takes connections and answers nothing, not even to probes."""
    for tier in ("postgres", "redis"):
        proxy = make_proxy(postgres_url if tier == "postgres" else redis_url)
        urls = (proxy.url, redis_url) if tier == "postgres" else (postgres_url, proxy.url)
        saver = open_saver(*urls)
        await saver.setup()
        proxy.blackhole()
        assert getattr(await saver.health(), tier).state == "down"
        assert (await heard.until("tier_down")).tier == tier
        await tried_again(proxy)
        proxy.restore()
        assert (await heard.until("tier_up")).tier == tier
        assert (await saver.health()).ok


async def test_health_of_servers_that_were_never_there(
    make_postgres: MakePostgres, make_valkey: MakeValkey, open_saver: Open
) -> None:
    """It raises nothing, and says what they said."""
    postgres, valkey = make_postgres(), make_valkey()
    postgres.kill()
    valkey.kill()
    saver = open_saver(postgres.url, valkey.url)
    for _ in range(2):
        health = await saver.health()
        assert states(health) == ("down", "down")
        assert str(postgres.port) in str(health.postgres.why)
        assert str(valkey.port) in str(health.redis.why)


async def test_health_needs_and_makes_no_tables(postgres_url: str, open_saver: Open) -> None:
    """It may be asked before anything is installed."""
    assert states(await open_saver(postgres_url).health()) == ("up", "absent")
    assert query(postgres_url, "SELECT to_regclass('durable_state.head')") == [(None,)]


async def test_a_postgres_that_does_not_let_us_in_is_refusing(
    shared_postgres: PostgresServer, open_saver: Open, heard: Heard
) -> None:
    """It answers: it is not down, and other calls need not be spared it."""
    saver = open_saver(shared_postgres.url_of("nowhere"))
    told = (await saver.health()).postgres
    assert (told.state, told.breaker) == ("refusing", "closed")
    assert '"nowhere" does not exist' in str(told.why)


async def test_a_postgres_that_takes_no_writes_is_down(
    postgres_url: str, databases: Callable[[str], None], open_saver: Open, heard: Heard
) -> None:
    """As a standby is, even if it would still serve reads, of an older state perhaps."""
    saver = open_saver(postgres_url)
    config = await put(saver, at(), cp({"c": 0}))
    name = postgres_url.rpartition("/")[2]
    databases(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    query(
        postgres_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = '{name}' AND pid <> pg_backend_pid()",
    )
    told = (await saver.health()).postgres
    assert (told.state, told.why) == ("down", "it takes no writes now")
    assert (await heard.until("tier_down")).tier == "postgres"
    databases(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert (await heard.until("tier_up")).tier == "postgres"
    await put(saver, config, cp({"c": 1}, versions={"c": "2"}))


async def test_a_pool_without_a_free_connection_is_not_called_down(
    postgres_url: str, open_saver: Open, heard: Heard
) -> None:
    """Nobody can say; once there is one, all is well."""
    pool: Any = ConnectionPool(postgres_url, min_size=1, max_size=1, open=True)
    with pool:
        saver = open_saver(pool, timeout=0.4)
        if saver._native:
            pytest.skip("another loop's pool would be a saver's own")
        with pool.connection():
            told = (await saver.health()).postgres
            assert (told.state, told.breaker) == ("unknown", "closed")
            assert "in use" in str(told.why)
        assert (await saver.health()).ok
    assert heard.events == []


async def test_a_full_redis_is_refusing_and_said_once(
    postgres_url: str, make_valkey: MakeValkey, open_saver: Open, heard: Heard
) -> None:
    """It serves what it holds in between, which is no news."""
    server = make_valkey(maxmemory="3mb", maxmemory_policy="noeviction")
    saver = open_saver(postgres_url, server.url, head_cache_bytes=0)
    config = await put(saver, at(), cp({"c": 0}))
    fill_up(server)
    for n in range(5):
        value = random.Random(n).randbytes(100_000)
        config = await put(saver, config, cp({"c": value}, versions={"c": str(n + 2)}))
        assert values_of(await saver.get_tuple(at())) == {"c": value}
    assert (await heard.until("tier_refuses")).tier == "redis"
    told = (await saver.health()).redis
    assert (told.state, told.breaker) == ("refusing", "closed")
    assert "maxmemory" in str(told.why)
    assert heard.events == []


def fill_up(server: ValkeyServer) -> None:
    """Writes until the server takes no more."""
    import redis

    with redis.Redis.from_url(server.url) as client:
        for size in (100_000, 1_000, 10):
            for n in range(100_000):
                try:
                    client.set(f"junk:{size}:{n}", "x" * size)
                except redis.ResponseError:
                    break


def test_a_tier_that_was_lost_in_one_loop_is_found_again_in_the_next(
    postgres_url: str, make_valkey: MakeValkey
) -> None:
    """The probes ended with the loop they went on in."""
    server = make_valkey()
    heard: list[str] = []
    saver = DurableSaver(
        postgres_url, server.url, **QUICK, observer=lambda event: heard.append(event.kind)
    )

    async def is_down() -> None:
        assert (await saver.ahealth()).redis.state == "up"
        server.kill()
        assert (await saver.ahealth()).redis.state == "down"

    async def is_up() -> None:
        await until(is_seen)

    async def is_seen() -> bool:
        return (await saver.ahealth()).redis.state == "up"

    asyncio.run(is_down())
    server.start()
    asyncio.run(is_up())
    assert heard == ["tier_down", "tier_up"]
    asyncio.run(saver.aclose())
