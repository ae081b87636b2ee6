"""Nothing acknowledged is lost, whatever is killed, frozen, cut off, emptied, set back or full."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.harness import LOSSY, STRICT, THROUGH, Mode, Plan, run

SECONDS = float(os.environ.get("DURABLE_STATE_CHAOS_SECONDS", "600"))
SEED = int(os.environ.get("DURABLE_STATE_CHAOS_SEED", random.SystemRandom().randrange(10**6)))


both_modes = pytest.mark.parametrize("mode", [STRICT, LOSSY], ids=lambda mode: mode.name)


def holds(plan: Plan, own_files: Path, template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(plan, own_files, template)
    with capsys.disabled():
        print(f"\n{report}")
    assert report.findings == []
    assert [name for name, count in report.faults.items() if count == 0] == []
    assert {"put", "put on a fork", "writes", "conflict"} <= report.acknowledged.keys()


@pytest.mark.timeout(300)
def test_a_minute_of_chaos(
    own_files: Path, postgres_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No finding, whatever falls together."""
    holds(Plan(60, SEED, THROUGH), own_files, postgres_template, capsys)


@pytest.mark.long
@pytest.mark.timeout(3 * SECONDS + 300)
@both_modes
def test_long_chaos(
    mode: Mode, own_files: Path, postgres_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same under both write policies, for ten minutes in all, or as long as
    DURABLE_STATE_CHAOS_SECONDS says."""
    holds(Plan(SECONDS / 2, SEED, mode), own_files, postgres_template, capsys)
