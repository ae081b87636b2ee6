"""The faces and tiers that the tests of known failures run under."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import pytest

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.drivers import background
from tests.calls import Open
from tests.cases import FACES, TIERS, Face, Store, close_anyway
from tests.conftest import MakePostgres, MakeValkey
from tests.integration.outages import Pair


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of what runs in every deploy, under every policy, on every face, the half that has each pair
    of these once is for all runs; the other half is long."""
    for item in items:
        indices = getattr(getattr(item, "callspec", None), "indices", {})
        if "deploy" in indices and sum(indices[n] for n in ("deploy", "policy_store", "face")) % 2:
            item.add_marker("long")


@pytest.fixture(params=FACES)
async def face(request: pytest.FixtureRequest) -> Face:
    """One face after the other; the blocking one has threads for all that a test does at once."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))
    return Face(request.param)


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> str:
    """Who answers a fresh reader."""
    return str(request.param)


@pytest.fixture
async def ends_in_loop() -> AsyncIterator[AsyncExitStack]:
    """What the test opened, closed within its loop."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def store(
    postgres_url: str, redis_url: str, face: Face, tier: str, ends_in_loop: AsyncExitStack
) -> Store:
    """Both tiers, read back on one face from one of them."""
    return Store(postgres_url, redis_url, face, tier, ends_in_loop)


@pytest.fixture
async def hot_store(
    postgres_url: str, redis_url: str, face: Face, ends_in_loop: AsyncExitStack
) -> Store:
    """Both tiers, read back on one face from Redis."""
    return Store(postgres_url, redis_url, face, "hot", ends_in_loop)


@pytest.fixture(params=["write_through", "write_behind"])
def policy_store(
    request: pytest.FixtureRequest, hot_store: Store, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """`hot_store` under both write policies; what Redis is ahead in ends soon, and often."""
    monkeypatch.setattr(background, "QUIET", 0.05)
    # A machine that is busy must not look like a Redis that is down.
    hot_store.options = {"write_policy": request.param, "redis_timeout": 10.0}
    return hot_store


@pytest.fixture
async def pair(
    make_postgres: MakePostgres, make_valkey: MakeValkey, face: Face, ends_in_loop: AsyncExitStack
) -> Pair:
    return Pair(make_postgres(fsync="off"), make_valkey(), face, ends_in_loop)


@pytest.fixture
async def lasting(
    make_postgres: MakePostgres, make_valkey: MakeValkey, face: Face, ends_in_loop: AsyncExitStack
) -> Pair:
    """A pair whose Valkey keeps all on disk."""
    valkey = make_valkey(appendonly="yes", appendfsync="always")
    return Pair(make_postgres(fsync="off"), valkey, face, ends_in_loop)


@pytest.fixture
async def open_saver(face: Face, ends_in_loop: AsyncExitStack) -> Open:
    """Opens savers on the face, closed after the test: `open_saver(postgres, redis)`."""

    def opened(postgres: Any, redis: str | None = None, **options: Any) -> Any:
        saver = DurableSaver(postgres, redis, **({"hot_reads": "always"} | options))
        ends_in_loop.push_async_callback(close_anyway, saver)
        return face(saver)

    return opened
