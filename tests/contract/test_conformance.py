"""LangGraph's own conformance suite: all eight capabilities, on both faces, in every condition."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from langgraph_durable_state import DurableSaver
from tests.faces import OnBlockingFace

CAPABILITIES = 8
TESTS = 81

SEARCHED = ["user_id", "score", "env"]
"""Metadata keys beside LangGraph's own that it filters by."""

Make = Callable[[], DurableSaver]


async def conforms(make: Make, wrap: Callable[[DurableSaver], Any]) -> None:
    async def factory() -> AsyncGenerator[Any, None]:
        async with make() as saver:
            yield wrap(saver)

    report = await validate(checkpointer_test(name="DurableSaver")(factory))
    failures = {name: r.failures for name, r in report.results.items() if r.failures}
    assert not failures
    assert sum(r.tests_passed for r in report.results.values()) == TESTS
    assert len([r for r in report.results.values() if r.passed]) == CAPABILITIES


@pytest.fixture(params=["native", "blocking"])
def wrap(request: pytest.FixtureRequest) -> Callable[[DurableSaver], Any]:
    return OnBlockingFace if request.param == "blocking" else lambda saver: saver


@pytest.mark.parametrize("hot_reads", ["auto", "always"])
async def test_with_both_tiers(
    postgres_url: str, redis_url: str, wrap: Callable[[DurableSaver], Any], hot_reads: Any
) -> None:
    """Every test passes with Redis, whether or not it serves small heads."""
    await conforms(lambda: DurableSaver(postgres_url, redis_url, hot_reads=hot_reads), wrap)


SEALED: dict[str, dict[str, Any]] = {
    "signed": {"integrity_key": b"k" * 32},
    "encrypted": {"encryption_key": b"k" * 32, "clear_metadata": SEARCHED},
    "encrypted, behind": {
        "encryption_key": b"k" * 32,
        "clear_metadata": SEARCHED,
        "write_policy": "write_behind",
    },
}


@pytest.mark.parametrize("options", SEALED.values(), ids=SEALED)
async def test_under_a_key(
    postgres_url: str, redis_url: str, wrap: Callable[[DurableSaver], Any], options: dict[str, Any]
) -> None:
    """Every test passes, signed or encrypted; the metadata that it filters by is named."""
    make = lambda: DurableSaver(postgres_url, redis_url, hot_reads="always", **options)  # noqa: E731
    await conforms(make, wrap)


async def test_without_redis(postgres_url: str, wrap: Callable[[DurableSaver], Any]) -> None:
    """Every test passes on Postgres alone, with nothing cached."""
    await conforms(lambda: DurableSaver(postgres_url, head_cache_bytes=0), wrap)
