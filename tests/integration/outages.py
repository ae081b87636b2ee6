"""A pair of servers that a test may harm, and what a test of outages looks at."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis

from langgraph_durable_state import DurableSaver, UnavailableError
from langgraph_durable_state.decisions import keys
from tests.cases import Face, at, close_anyway, cp, id_of, put, query
from tests.servers import PostgresServer, ValkeyServer

THROUGH: dict[str, Any] = {}
QUEUE: dict[str, Any] = {"when_durable_down": "queue"}
BEHIND: dict[str, Any] = {"write_policy": "write_behind"}
BEHIND_ONLY: dict[str, Any] = {"write_policy": "write_behind", "when_durable_down": "raise"}

POLICIES = {"through": THROUGH, "queue": QUEUE, "behind": BEHIND, "behind only": BEHIND_ONLY}
QUEUING = {"queue": QUEUE, "behind": BEHIND}
BEHINDS = {"behind": BEHIND, "behind only": BEHIND_ONLY}

LOGGER = "langgraph_durable_state"


def each(policies: dict[str, dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("policy", policies.values(), ids=policies)


class Pair:
    """A Postgres and a Valkey to be harmed, and savers over them, each like another process."""

    def __init__(
        self, postgres: PostgresServer, valkey: ValkeyServer, face: Face, ends: AsyncExitStack
    ) -> None:
        self.postgres = postgres
        self.redis = valkey
        self.face = face
        self._ends = ends

    def saver(self, policy: dict[str, Any] | None = None, **options: Any) -> Any:
        return self.opened(self.redis.url, **(policy or {}), **options)

    def alone(self, **options: Any) -> Any:
        """A saver that was given no Redis."""
        return self.opened(None, **options)

    def opened(self, redis_url: str | None, **options: Any) -> Any:
        """A saver that reaches Redis at this URL."""
        # What is down costs the whole time-out once; Redis is up, but maybe slow on a busy machine.
        patience = {"timeout": 1.0, "redis_timeout": 2.0}
        saver = DurableSaver(self.postgres.url, redis_url, **(patience | options))
        self._ends.push_async_callback(close_anyway, saver)
        return self.face(saver)

    def hold(self, thread_id: str = "t") -> None:
        """Nobody flushes this thread in the background: another has the lease, and is stuck."""
        with redis.Redis.from_url(self.redis.url) as client:
            client.set(self._key(thread_id, ":lease"), "another")

    def release(self, thread_id: str = "t") -> None:
        with redis.Redis.from_url(self.redis.url) as client:
            client.delete(self._key(thread_id, ":lease"))

    def waiting(self, thread_id: str = "t") -> int:
        """Entries of a thread that Redis alone holds."""
        with redis.Redis.from_url(self.redis.url) as client:
            return int(client.llen(self._key(thread_id, "")))  # type: ignore[arg-type]

    def empty_redis(self) -> None:
        with redis.Redis.from_url(self.redis.url) as client:
            client.flushall()

    def _key(self, thread_id: str, what: str) -> str:
        return keys.outbox_key("durable_state", keys.thread_of(at(thread_id)).key, what)

    def stored(self) -> list[str]:
        """The checkpoint ids in Postgres, oldest first."""
        rows = query(self.postgres.url, "SELECT id FROM durable_state.checkpoint ORDER BY seq")
        return [id for (id,) in rows]

    def marked(self) -> bool:
        """Whether Postgres says that Redis may be ahead of a head."""
        told = query(
            self.postgres.url, "SELECT count(*) FROM durable_state.head WHERE ahead IS NOT NULL"
        )
        return bool(told[0][0])


async def step(saver: Any, config: Any, n: int) -> Any:
    """Put checkpoint number `n` of a chain."""
    made = cp({"c": n}, versions={"c": str(n)})
    return await put(saver, config, made, {"source": "loop", "step": n})


class Turn:
    """What LangGraph does from a read of the head on: each step says what it builds on."""

    def __init__(self, saver: Any, found: Any) -> None:
        self._saver = saver
        self._config = found.config
        self._versions = found.checkpoint["channel_versions"]

    async def step(self, n: int) -> Any:
        """The end of a superstep; its config."""
        version = self._saver.target.get_next_version(self._versions["c"], None)
        self._versions = self._versions | {"c": version}
        made = cp({"c": n}, versions=self._versions)
        metadata = {"source": "loop", "step": n}
        self._config = await put(self._saver, self._config, made, metadata, {"c": version})
        return self._config


async def head(saver: Any, thread_id: str = "t") -> Any:
    found = await saver.get_tuple(at(thread_id))
    assert found is not None
    return found


def marks(found: Any) -> dict[str, Any]:
    """What the metadata of a tuple says of how it was stored and read."""
    return {
        name.removeprefix("durable_state_"): value
        for name, value in found.metadata.items()
        if name.startswith("durable_state_")
    }


def told(caplog: pytest.LogCaptureFixture, kind: str) -> list[str]:
    """The events of a kind that the log has."""
    events = [record.args[0] for record in caplog.records if record.name == LOGGER and record.args]
    return [str(event) for event in events if getattr(event, "kind", None) == kind]


async def refused(call: Any, tier: str) -> None:
    with pytest.raises(UnavailableError) as error:
        await call
    assert (error.value.tier, error.value.retryable) == (tier, True)


async def in_spell(pair: Pair, saver: Any, flushed: int = 1, held: int = 1) -> list[Any]:
    """Checkpoints 1 to `flushed` are in Postgres, those after them in Redis alone; the configs."""
    configs = [at()]
    for n in range(flushed):
        configs.append(await step(saver, configs[-1], n + 1))
    await saver.flush()
    pair.hold()
    for n in range(flushed, flushed + held):
        configs.append(await step(saver, configs[-1], n + 1))
    assert pair.waiting() == held
    assert pair.marked()
    return configs[1:]


async def unmarked(pair: Pair) -> bool:
    """Whether Postgres says of no head that Redis may be ahead."""
    return not pair.marked()


async def has_stored(pair: Pair, config: Any) -> bool:
    """Whether Postgres has this checkpoint and no other."""
    return pair.stored() == [id_of(config)]
