"""LangGraph's conformance suite while Redis dies, is away, and comes back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from langgraph_durable_state import DurableSaver
from tests.conftest import MakeValkey
from tests.faces import OnBlockingFace

CAPABILITIES = 8
TESTS = 81


@pytest.fixture(params=["native", "blocking"])
def wrap(request: pytest.FixtureRequest) -> Callable[[DurableSaver], Any]:
    return OnBlockingFace if request.param == "blocking" else lambda saver: saver


async def conforms(
    make: Callable[[], DurableSaver],
    wrap: Callable[[DurableSaver], Any],
    after_test: Callable[[int], None],
) -> None:
    """Every capability passes; `after_test` is told how many tests have ended."""
    ended = 0

    async def factory() -> AsyncGenerator[Any, None]:
        async with make() as saver:
            yield wrap(saver)

    def on_test_result(*_: Any) -> None:
        nonlocal ended
        ended += 1
        after_test(ended)

    progress = ProgressCallbacks(on_test_result=on_test_result)
    report = await validate(checkpointer_test(name="DurableSaver")(factory), progress=progress)
    failures = {name: r.failures for name, r in report.results.items() if r.failures}
    assert not failures
    assert sum(r.tests_passed for r in report.results.values()) == TESTS
    assert len([r for r in report.results.values() if r.passed]) == CAPABILITIES


async def test_with_redis_killed_half_way(
    postgres_url: str, make_valkey: MakeValkey, wrap: Callable[[DurableSaver], Any]
) -> None:
    """Killed within a capability, in the middle of a saver's life, for good."""
    server = make_valkey()

    def after_test(ended: int) -> None:
        if ended == TESTS // 2:
            server.kill()

    await conforms(
        lambda: DurableSaver(postgres_url, server.url, hot_reads="always"), wrap, after_test
    )


async def test_with_redis_killed_and_started_again_and_again(
    postgres_url: str, make_valkey: MakeValkey, wrap: Callable[[DurableSaver], Any]
) -> None:
    """Empty each time it comes back, and nothing cached in the process meanwhile."""
    server = make_valkey()

    def after_test(ended: int) -> None:
        if ended % 20 == 7:
            server.kill()
        if ended % 20 == 17:
            server.start()

    await conforms(
        lambda: DurableSaver(postgres_url, server.url, hot_reads="always", head_cache_bytes=0),
        wrap,
        after_test,
    )
