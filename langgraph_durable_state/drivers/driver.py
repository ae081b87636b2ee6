"""One face's set of everything, from tiers to engine: blocking, or native for one loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..ports import Commits, Durable, Hot
from ..protocols.copies import Copies
from ..protocols.engine import Engine
from ..protocols.shared import Shared
from ..protocols.upkeep import Upkeep
from ..protocols.writer import Writer
from ..settings import Settings
from ..tiers.postgres import PostgresTier
from ..tiers.redis import RedisTier
from . import clients
from .blocking import BlockingConnections, BlockingScriptClient, LeaderAndFollowers
from .breaker import Breaker
from .native import NativeConnections, NativeScriptClient, OneFlusher
from .scripts import GuardedScripts, ScriptClient
from .sql import Connections, Failures, PooledSql


@dataclass(frozen=True)
class Breakers:
    """One per tier, shared by all drivers of a saver."""

    postgres: Breaker
    redis: Breaker


class Driver:
    """What the saver's methods need of one face.

    Attributes:
        durable: installs the tables.
        copies: the hot tier's.
        engine, writer, upkeep: read, write and tidy up through this face's tiers.
        close: gives back what this driver opened itself.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        commits: Commits,
        hot: Hot | None,
        close: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.durable = durable
        self.copies = Copies(hot, shared)
        self.engine = Engine(shared, durable, self.copies)
        self.writer = Writer(shared, durable, commits, self.copies)
        self.upkeep = Upkeep(durable, self.copies, shared.blobs)
        self.close = close


def blocking(
    postgres: clients.PostgresSource,
    redis: clients.RedisSource | None,
    settings: Settings,
    shared: Shared,
    breakers: Breakers,
) -> Driver:
    """The blocking face's driver. Opens nothing yet."""
    failures = Failures()
    pool, own_pool = clients.blocking_pool(postgres, settings, failures)
    durable = _durable(BlockingConnections(pool, own_pool, failures), settings, breakers)
    scripts = None
    if redis is not None:
        client = clients.blocking_redis(redis, settings)
        scripts = BlockingScriptClient(*client, settings.redis_timeout)

    async def close() -> None:
        if own_pool:
            pool.close()
        if scripts is not None:
            scripts.close()

    hot = _hot(scripts, settings, breakers) if scripts is not None else None
    return Driver(shared, durable, LeaderAndFollowers(durable), hot, close)


async def native(
    postgres: clients.PostgresSource | clients.Elsewhere,
    redis: clients.RedisSource | clients.Elsewhere | None,
    settings: Settings,
    shared: Shared,
    breakers: Breakers,
) -> Driver:
    """The running loop's driver, which goes with it."""
    failures = Failures()
    pool, own_pool = clients.native_pool(postgres, settings, failures)
    durable = _durable(NativeConnections(pool, own_pool, failures), settings, breakers)
    scripts = None
    if redis is not None:
        client = clients.native_redis(redis, settings)
        scripts = NativeScriptClient(*client, settings.redis_timeout)

    async def close() -> None:
        if scripts is not None:
            await scripts.close()
        if own_pool:
            # At the end of a loop the pool's own tasks are cancelled already, and it says so.
            await asyncio.gather(pool.close(), return_exceptions=True)

    # A loop that ends closes its asynchronous generators: the pools go then.
    guard = _until_loop_ends(close)
    await anext(guard)
    hot = _hot(scripts, settings, breakers) if scripts is not None else None
    return Driver(shared, durable, OneFlusher(durable), hot, guard.aclose)


async def _until_loop_ends(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()


def _durable(connections: Connections, settings: Settings, breakers: Breakers) -> PostgresTier:
    sql = PooledSql(connections, settings.schema, settings.timeout, breakers.postgres)
    return PostgresTier(sql, settings.schema)


def _hot(client: ScriptClient, settings: Settings, breakers: Breakers) -> RedisTier:
    scripts = GuardedScripts(client, breakers.redis)
    return RedisTier(scripts, settings.prefix, settings.hot_ttl, settings.touch_on_read)
