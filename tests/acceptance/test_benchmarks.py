"""The benchmarks run from end to end. What they measure is never asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.subjects import BLOCKING, NATIVE
from benchmarks.workloads import ALL, SIZES

pytestmark = pytest.mark.timeout(300)  # a busy machine is no failure

ROOT = Path(__file__).parents[2]
SMALLEST = ("--quick", "--turns", "10", "--rounds", "1")


def measured(file: Path, script: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, script, *SMALLEST, "--json", str(file), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "PostgresSaver" in done.stdout
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run of everything found: it takes half a minute, mostly to store 1 MB states."""
    return measured(tmp_path_factory.mktemp("bench") / "figures.json", "-mbenchmarks")


def cells(figures: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(f["workload"], f["size"], f["subject"]) for f in figures}


def test_every_subject_has_a_figure_for_every_workload(found: dict[str, Any]) -> None:
    """And each figure is positive, and stands beside the stock saver's."""
    subjects = [kind.name for kind in BLOCKING]
    sized = [
        (workload.name, size.name)
        for workload, size in product(ALL, SIZES)
        if workload.only is None or size.name in workload.only
    ]
    chatted = [("chat turn", "1 to 10")] + [
        (name, "after 10 turns")
        for name in (
            "get of the head, warm",
            "get of the head, cold",
            "list(20)",
            "put, one message more",
        )
    ]
    expected = {(*row, subject) for row in (*sized, *chatted) for subject in subjects}
    assert expected == cells(found["rows"])
    for figure in found["rows"]:
        assert 0 < figure["median"] <= figure["p95"]
        assert figure["ratio"] > 0


def test_floors_and_stored_bytes_are_reported(found: dict[str, Any]) -> None:
    """The floors at each size, and what the chat left wherever a saver stores."""
    assert {size.name for size in SIZES} == {figure["size"] for figure in found["floors"]}
    assert all(figure["median"] > 0 for figure in found["floors"])
    stored = {(row["subject"], row["where"]): row["bytes"] for row in found["stored"]}
    expected = {
        ("durable + redis", "Postgres"),
        ("durable + redis", "Redis"),
        ("durable only", "Postgres"),
        ("write behind", "Postgres"),
        ("write behind", "Redis"),
        ("PostgresSaver", "Postgres"),
        ("SqliteSaver", "SQLite"),
    }
    assert expected == set(stored)
    # A chat of 10 turns is too small to be copied to Redis.
    assert all(bytes > 0 for (_, where), bytes in stored.items() if where != "Redis")


def test_outages_are_measured(found: dict[str, Any]) -> None:
    """Each tier dead and hung: what calls cost, and its return."""
    rows = {(row["what"], row["tier"]) for row in found["outages"]}
    calls = product(("put, 2 KB", "get, 2 KB"), ("no Redis", "Redis dead", "Redis hung"))
    errors = product(
        ("first call, until its error", "later calls, until their errors"),
        ("Postgres dead", "Postgres hung"),
    )
    tiers = ("Redis dead", "Redis hung", "Postgres dead", "Postgres hung")
    assert rows == {*calls, *errors, *(("in use again", tier) for tier in tiers)}
    assert all(0 < row["median"] <= row["p95"] <= row["worst"] for row in found["outages"])


def test_one_row_of_the_native_savers_is_measured_on_request(tmp_path: Path) -> None:
    """By the command's other spelling, as a script."""
    options = ("--native", "--only", "put, one message more, 2 KB")
    found = measured(tmp_path / "figures.json", "benchmarks/bench.py", *options)
    subjects = {kind.name for kind in (*BLOCKING, *NATIVE)}
    row = ("put, one message more", "2 KB")
    assert {(*row, subject) for subject in subjects} == cells(found["rows"])
    assert not found["stored"]
    assert not found["outages"]
