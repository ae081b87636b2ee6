"""Health as it is read: by people, by machines, and by a saver over memory."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from langgraph_durable_state import ClosedError, DurableSaver, Health
from langgraph_durable_state.errors import UnavailableError, UsageError
from langgraph_durable_state.health import HeadCacheHealth, TierHealth
from langgraph_durable_state.testing import World, memory_saver
from tests.cases import at, cp

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
CACHE = HeadCacheHealth(entries=3, bytes=2 * 2**20, max_bytes=64 * 2**20, hits=5, misses=2)
WELL = Health(TierHealth("up", NOON), TierHealth("absent"), None, None, CACHE)
ILL = Health(
    TierHealth("up", NOON), TierHealth("down", NOON, "Connection refused.", "open"), 7, 3.25, CACHE
)


def test_its_text_is_for_people() -> None:
    """A line for each thing there is to say."""
    assert str(WELL).splitlines() == [
        "Postgres    up since 2025-06-01 12:00:00 UTC",
        "Redis       absent",
        "Head cache  3 heads, 2.0 of 64.0 MiB, 5 hits, 2 misses",
    ]
    assert str(ILL).splitlines()[1:3] == [
        "Redis       down since 2025-06-01 12:00:00 UTC: Connection refused.",
        "Outbox      7 wait for Postgres, the oldest for 3.2 s",
    ]


def test_its_dict_is_json() -> None:
    """All there is, and whether it is well."""
    assert json.loads(json.dumps(ILL.as_dict())) == {
        "ok": False,
        "postgres": {
            "state": "up",
            "since": "2025-06-01T12:00:00+00:00",
            "why": None,
            "breaker": "closed",
        },
        "redis": {
            "state": "down",
            "since": "2025-06-01T12:00:00+00:00",
            "why": "Connection refused.",
            "breaker": "open",
        },
        "outbox_depth": 7,
        "oldest_unflushed": 3.25,
        "head_cache": {
            "entries": 3,
            "bytes": 2 * 2**20,
            "max_bytes": 64 * 2**20,
            "hits": 5,
            "misses": 2,
        },
    }


@pytest.mark.parametrize(
    ("state", "ok"),
    [("up", True), ("absent", True), ("down", False), ("refusing", False), ("unknown", False)],
)
def test_it_is_ok_if_every_tier_given_is_up(state: Any, ok: bool) -> None:
    """Either of them."""
    assert replace(WELL, redis=TierHealth(state)).ok is ok
    assert replace(WELL, postgres=TierHealth(state)).ok is ok


HealthOf = Callable[[DurableSaver], Awaitable[Health]]


@pytest.fixture(params=["blocking", "native"])
def health_of(request: pytest.FixtureRequest) -> HealthOf:
    """A saver's health on either face."""

    async def blocking(saver: DurableSaver) -> Health:
        return saver.health()

    return blocking if request.param == "blocking" else DurableSaver.ahealth


async def test_a_saver_over_memory_is_well(health_of: HealthOf) -> None:
    """With a hot tier or without."""
    with_hot, without = memory_saver(), memory_saver(hot=False)
    assert [(await health_of(s)).redis.state for s in (with_hot, without)] == ["up", "absent"]
    assert (await health_of(with_hot)).ok


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (UnavailableError("postgres", "all connections are in use"), "unknown"),
        (UsageError("password authentication failed"), "refusing"),
    ],
)
async def test_a_tier_that_cannot_be_asked_is_not_called_up(
    health_of: HealthOf, error: Exception, state: str
) -> None:
    """Nothing is raised, and what it said is told."""

    async def step(name: str) -> None:
        if name == "ping":
            raise error

    found = await health_of(memory_saver(World(step)))
    assert (found.postgres.state, found.postgres.why) == (state, str(error))
    assert found.redis.state == "up"
    assert not found.ok


async def test_the_head_cache_tells_what_it_served(health_of: HealthOf) -> None:
    """A head that this process holds and that is still the head."""
    world = World()
    saver, other = memory_saver(world), memory_saver(world)
    config = saver.put(at(), cp({"c": 1}), {}, {"c": "1"})
    saver.get_tuple(at())
    saver.get_tuple(at())
    other.put(config, cp({"c": 2}, versions={"c": "2"}), {}, {"c": "2"})
    saver.get_tuple(at())
    saver.get_tuple(at("elsewhere"))
    found = (await health_of(saver)).head_cache
    assert (found.entries, found.hits, found.misses) == (1, 2, 2)
    assert 0 < found.bytes < found.max_bytes == 64 * 2**20


async def test_a_closed_saver_has_no_health(health_of: HealthOf) -> None:
    """As with every other call."""
    saver = memory_saver()
    saver.close()
    with pytest.raises(ClosedError):
        await health_of(saver)
