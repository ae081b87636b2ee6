"""Whatever is done to raw rows and keys, no read gives a wrong value, and none crashes."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.harness import run
from tests.fuzz.world import Guard, World

SEED = int(os.environ.get("DURABLE_STATE_FUZZ_SEED", "7"))
EDITS = int(os.environ.get("DURABLE_STATE_FUZZ_EDITS", "10000"))

guards = pytest.mark.parametrize("guard", ["plain", "signed", "encrypted"])
policies = pytest.mark.parametrize("behind", [False, True], ids=["write_through", "write_behind"])


def holds(
    postgres_url: str,
    redis_url: str,
    behind: bool,
    guard: Guard,
    edits: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(postgres_url, redis_url, behind, guard)
    try:
        report = run(world, edits, SEED)
    finally:
        world.close()
    with capsys.disabled():
        print(f"\nseed {SEED}: {report}")
    assert report.findings == []
    assert report.edits == edits
    assert report.answers["told"] > 0 < report.answers["right"]


@guards
@policies
def test_some_random_edits(
    postgres_url: str,
    redis_url: str,
    behind: bool,
    guard: Guard,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each read is right, or an error of this library; what may be missing is known beforehand,
    and under write-through nothing that is done to Redis is seen at all."""
    holds(postgres_url, redis_url, behind, guard, 60, capsys)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@guards
@policies
def test_ten_thousand_random_edits(
    postgres_url: str,
    redis_url: str,
    behind: bool,
    guard: Guard,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Half of them under each policy; DURABLE_STATE_FUZZ_EDITS says how many, and
    DURABLE_STATE_FUZZ_SEED which."""
    holds(postgres_url, redis_url, behind, guard, EDITS // 2, capsys)
