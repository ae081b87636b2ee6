"""LangGraph's conformance suite while Redis acknowledges what Postgres is told of later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_durable_state import DurableSaver, UnavailableError
from tests.conftest import MakePgBouncer, MakePostgres, MakeValkey
from tests.contract.test_conformance_outages import TESTS, conforms
from tests.faces import OnBlockingFace

BEHIND: dict[str, Any] = {"write_policy": "write_behind"}
QUEUE: dict[str, Any] = {"when_durable_down": "queue"}

Wrap = Callable[[DurableSaver], Any]


@pytest.fixture(params=["native", "blocking"])
def wrap(request: pytest.FixtureRequest) -> Wrap:
    return OnBlockingFace if request.param == "blocking" else lambda saver: saver


def nothing(_: int) -> None:
    """After each test."""


@pytest.mark.parametrize("options", [BEHIND, QUEUE], ids=["behind", "queue"])
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "nothing cached"])
async def test_with_both_tiers(
    postgres_url: str, redis_url: str, wrap: Wrap, options: Any, cached: bool
) -> None:
    """Every test passes, whoever answers first."""
    more = {} if cached else {"head_cache_bytes": 0}
    await conforms(lambda: DurableSaver(postgres_url, redis_url, **options, **more), wrap, nothing)


async def test_with_an_outbox_of_one_entry(postgres_url: str, redis_url: str, wrap: Wrap) -> None:
    """Nearly every put has to flush first."""
    make = lambda: DurableSaver(postgres_url, redis_url, outbox_limit=1, **BEHIND)  # noqa: E731
    await conforms(make, wrap, nothing)


@pytest.mark.parametrize("options", [BEHIND, QUEUE], ids=["behind", "queue"])
async def test_with_redis_dead_from_the_start(
    postgres_url: str, make_valkey: MakeValkey, wrap: Wrap, options: Any
) -> None:
    """All goes to Postgres at once."""
    server = make_valkey()
    server.kill()
    await conforms(lambda: DurableSaver(postgres_url, server.url, **options), wrap, nothing)


@pytest.mark.parametrize("options", [BEHIND, QUEUE], ids=["behind", "queue"])
async def test_with_redis_killed_half_way(
    postgres_url: str, make_valkey: MakeValkey, wrap: Wrap, options: Any
) -> None:
    """For good. What it held alone of a thread is lost, which those who use that thread accept."""
    server = make_valkey()

    def after_test(ended: int) -> None:
        if ended == TESTS // 2:
            server.kill()

    make = lambda: closing_anyway(postgres_url, server.url, **options)  # noqa: E731
    await conforms(make, wrap, after_test)


@pytest.mark.parametrize("options", [BEHIND, QUEUE], ids=["behind", "queue"])
async def test_through_a_pooler(
    postgres_url: str, redis_url: str, make_pgbouncer: MakePgBouncer, wrap: Wrap, options: Any
) -> None:
    """In transaction mode, with one server connection for callers and flusher alike."""
    pooler = make_pgbouncer(postgres_url, pool_size=1)
    await conforms(lambda: DurableSaver(pooler.url, redis_url, **options), wrap, nothing)


def closing_anyway(postgres: str, redis: str, **options: Any) -> DurableSaver:
    """A saver that closes in silence if it could not flush."""
    return ClosingAnyway(postgres, redis, on_hot_lost="accept", **options)


class ClosingAnyway(DurableSaver):
    async def aclose(self) -> None:
        try:
            await super().aclose()
        except UnavailableError:
            pass  # a tier is down, for good


# -- Postgres dies and comes back ---------------------------------------------------------


@pytest.mark.parametrize("options", [BEHIND, QUEUE], ids=["behind", "queue"])
async def test_with_postgres_killed_and_started_again(
    make_postgres: MakePostgres, redis_url: str, wrap: Wrap, options: Any
) -> None:
    """Between two tests, again and again: nothing that was acknowledged is missing after it.

    While it is down only heads are read and put, which the other tests of outages hold.
    """
    server = make_postgres(fsync="off")

    def after_test(ended: int) -> None:
        if ended % 20 == 7:
            server.kill()
            server.start()

    await conforms(lambda: DurableSaver(server.url, redis_url, **options), wrap, after_test)
