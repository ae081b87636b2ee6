"""One face's set of everything, from tiers to engine: blocking, or native for one loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..errors import DurableStateError
from ..health import Health, TierHealth, Waits
from ..ports import Commits, Durable, Hot, Outbox
from ..protocols.anchoring import Anchors
from ..protocols.arbiter import Arbiter
from ..protocols.attesting import Attestor
from ..protocols.behind import Behind
from ..protocols.chronicle import Chronicle
from ..protocols.copies import Copies
from ..protocols.dual_write import DualWrite
from ..protocols.engine import Engine
from ..protocols.leasing import Leasing
from ..protocols.migrating import Migrator
from ..protocols.naming import Naming
from ..protocols.recovering import Recovery
from ..protocols.rekeying import Rekeyer
from ..protocols.rewriting import Rewriter
from ..protocols.scrub import Scrubber
from ..protocols.settling import Settler
from ..protocols.shared import Shared
from ..protocols.telling import Teller
from ..protocols.upkeep import Upkeep
from ..protocols.vault import Vault
from ..protocols.writer import Writer
from ..settings import Settings
from ..tiers.outbox import RedisOutbox
from ..tiers.postgres import PostgresTier
from ..tiers.redis import RedisTier
from . import clients
from .blocking import BlockingConnections, BlockingScriptClient, LeaderAndFollowers, Threads
from .breaker import Breaker
from .checkup import examined
from .native import NativeConnections, NativeScriptClient, OneFlusher, Tasks
from .probing import Aside
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
        arbiter, flusher: compare the tiers, and bring one up to the other.
        leasing: takes and keeps leases.
        chronicle, recovery, teller: write down what happened, find what is to be served where
            something is damaged, and tell of it.
        vault: finds and makes data keys.
        naming: finds namespaces under their former names.
        anchors: sign heads, and tell those that were moved.
        attestor: compares heads with what is kept outside.
        scrubber: checks what is stored, and restores it.
        rewriter: finds threads, and rewrites them as a whole.
        migrator: brings threads to a version of the user's state.
        rekeyer: brings threads under the current keys.
        outbox: what the hot tier holds alone; None if there is none.
        close: gives back what this driver opened itself.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        commits: Commits,
        hot: Hot | None,
        outbox: Outbox | None,
        breakers: Breakers,
        close: Callable[[], Coroutine[Any, Any, None]],
        pause: Callable[[float], Awaitable[bool]],
    ) -> None:
        self.durable = durable
        self.outbox = outbox
        self.copies = copies = Copies(hot, shared)
        self.arbiter = Arbiter(shared, durable, outbox)
        self.anchors = anchors = Anchors(shared, durable, hot)
        self.vault = vault = Vault(shared.blobs.keys, durable)
        self.flusher = Settler(shared, durable, outbox, self.arbiter, anchors, vault)
        self.leasing = Leasing(shared, durable, outbox)
        behind = None
        if outbox is not None:
            behind = Behind(shared, durable, outbox, self.arbiter, self.flusher, anchors)
        self.chronicle = Chronicle(durable)
        dual = DualWrite(shared.reader, shared.outlines, shared.over, shared.interrupts)
        settler = self.flusher
        self.naming = naming = Naming(shared, durable, vault, settler, dual, pause)
        tiers = (durable, copies, self.arbiter, outbox)
        self.recovery = Recovery(shared, *tiers, anchors, naming)
        self.teller = Teller(shared, self.recovery, self.chronicle)
        told, kept = (self.recovery, self.teller), (vault, anchors)
        self.attestor = Attestor(shared, durable, anchors)
        self.scrubber = scrubber = Scrubber(shared, durable, outbox, vault, self.attestor)
        read = (*told, *kept, scrubber, naming)
        self.engine = Engine(shared, durable, copies, self.arbiter, settler, *read)
        written = (durable, commits, copies, behind, settler)
        self.writer = Writer(shared, *written, *kept, naming, dual)
        self.rewriter = Rewriter(shared, durable, outbox, settler, *kept)
        self.migrator = Migrator(shared, durable, settler, self.rewriter, self.chronicle)
        self.rekeyer = Rekeyer(shared, durable, vault, self.rewriter)
        self.upkeep = Upkeep(durable, copies, settler, shared.blobs, shared.shape, *kept)
        self.close = close
        self._shared = shared
        self._hot = hot
        self._breakers = breakers

    async def health(self) -> Health:
        """How the tiers are, each asked once unless its breaker is open."""
        postgres = await examined(self.durable, self._breakers.postgres)
        hot = self._hot
        redis = await examined(hot, self._breakers.redis) if hot else TierHealth("absent")
        waits = await self.waits()
        depth, oldest = (waits.depth, waits.oldest) if waits else (None, None)
        return Health(postgres, redis, depth, oldest, self._shared.heads.health())

    async def waits(self) -> Waits | None:
        """What waits in the hot tier; None if nothing can, or if it could not be asked."""
        if self.outbox is None:
            return None
        try:
            found = await self.flusher.waits()
        except DurableStateError:  # it cannot be reached, or is not installed
            return None
        return Waits(sum(depth for depth, _ in found), max((age for _, age in found), default=None))


def blocking(
    postgres: clients.PostgresSource,
    redis: clients.RedisSource | None,
    settings: Settings,
    shared: Shared,
    breakers: Breakers,
    is_installed: Callable[[], bool],
) -> Driver:
    """The blocking face's driver. Opens nothing yet."""
    failures = Failures()
    pool, own_pool = clients.blocking_pool(postgres, settings, failures)
    aside = Threads()
    connections = BlockingConnections(pool, own_pool, failures)
    durable = _durable(connections, settings, breakers, aside, is_installed)
    scripts = None
    if redis is not None:
        client = clients.blocking_redis(redis, settings)
        scripts = BlockingScriptClient(*client, settings.redis_timeout)

    async def close() -> None:
        aside.close()
        if own_pool:
            pool.close()
        if scripts is not None:
            scripts.close()

    tiers = _hot(scripts, settings, breakers, aside)
    return Driver(
        shared, durable, LeaderAndFollowers(durable), *tiers, breakers, close, aside.pause
    )


async def native(
    postgres: clients.PostgresSource | clients.Elsewhere,
    redis: clients.RedisSource | clients.Elsewhere | None,
    settings: Settings,
    shared: Shared,
    breakers: Breakers,
    is_installed: Callable[[], bool],
) -> Driver:
    """The running loop's driver, which goes with it."""
    failures = Failures()
    pool, own_pool = clients.native_pool(postgres, settings, failures)
    aside = Tasks()
    connections = NativeConnections(pool, own_pool, failures)
    durable = _durable(connections, settings, breakers, aside, is_installed)
    scripts = None
    if redis is not None:
        client = clients.native_redis(redis, settings)
        scripts = NativeScriptClient(*client, settings.redis_timeout)

    async def close() -> None:
        aside.close()
        if scripts is not None:
            await scripts.close()
        if own_pool:
            # At the end of a loop the pool's own tasks are cancelled already, and it says so.
            await asyncio.gather(pool.close(), return_exceptions=True)

    # A loop that ends closes its asynchronous generators: the pools go then.
    guard = _until_loop_ends(close)
    await anext(guard)
    tiers = _hot(scripts, settings, breakers, aside)
    return Driver(shared, durable, OneFlusher(durable), *tiers, breakers, guard.aclose, aside.pause)


async def _until_loop_ends(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()


def _durable(
    connections: Connections,
    settings: Settings,
    breakers: Breakers,
    aside: Aside,
    is_installed: Callable[[], bool],
) -> PostgresTier:
    told = breakers.postgres, aside, is_installed
    sql = PooledSql(connections, settings.schema, settings.timeout, *told)
    return PostgresTier(sql, settings.schema)


def _hot(
    client: ScriptClient | None, settings: Settings, breakers: Breakers, aside: Aside
) -> tuple[Hot | None, Outbox | None]:
    if client is None:
        return None, None
    scripts = GuardedScripts(client, breakers.redis, aside, settings.wait_aof)
    prefix, ttl = settings.prefix, settings.hot_ttl
    hot = RedisTier(scripts, prefix, ttl, settings.touch_on_read)
    return hot, RedisOutbox(scripts, prefix, ttl, settings.outbox_limit, settings.policy.secured)
