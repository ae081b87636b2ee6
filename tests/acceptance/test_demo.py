"""The demo, as a newcomer runs it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from rich.console import Console

import langgraph_durable_state
from langgraph_durable_state.demo import story as demo

ROOT = Path(langgraph_durable_state.__file__).parent.parent

FACTS = [
    "Postgres holds the answers of the two that finished, and no other",
    "began with weather_forecast, the one that was cut off",
    "it stopped where a human must agree: book TP 571 and Casa Alfama?",
    'the agent says: "Done: TP 571 and Casa Alfama are booked."',
    "8 pieces of work, each done exactly once, by three processes",
    "one more turn over Postgres alone",
    "a process that reads now gets the newest state all the same",
    "the fork ends with Pensao Sol",
    "the first branch still ends with Casa Alfama and the umbrella",
    "one finished, one got a ConflictError",
    "nothing of the other is mixed in",
    "is kept, with what was asked",
    "300 checkpoints of the chat are kept",
    "All 28 checks held",
]


def test_the_demo_shows_what_it_says(own_files: Path) -> None:
    """It exits with 0, prints no colours into a pipe, and leaves neither files nor processes."""
    done = subprocess.run(
        [sys.executable, "-m", "langgraph_durable_state.cli", "demo"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(own_files), "COLUMNS": "200"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [fact for fact in FACTS if fact not in done.stdout] == []
    assert "\x1b" not in done.stdout
    assert list(own_files.iterdir()) == []
    assert [command for command in commands() if str(own_files) in command] == []


def commands() -> list[str]:
    found = psutil.process_iter(["cmdline"])
    return [" ".join(process.info["cmdline"] or []) for process in found]


def test_a_check_that_fails_ends_the_demo(own_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was expected and what was found, takes no further step, and cleans up."""

    def wrong(scene: demo.Scene) -> None:
        scene.stage.equal("two and two are four", 2 + 2, 5)

    def never(scene: demo.Scene) -> None:
        raise AssertionError("the step after a failed check was taken")

    monkeypatch.setattr("tempfile.tempdir", str(own_files))
    monkeypatch.setattr(demo, "STEPS", (wrong, never))
    said = io.StringIO()
    assert demo.run(Console(file=said)) is False
    assert said.getvalue().splitlines()[-3:] == [
        "A check failed: two and two are four",
        "  expected: 5",
        "  found:    4",
    ]
    assert list(own_files.iterdir()) == []


def test_a_worker_that_fails_is_shown_with_what_it_said(
    own_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process's last words are the only hint there is."""

    def fails(scene: demo.Scene) -> None:
        with demo.Worker(demo.Task("worker 1", "", "nonsense", "t", "")) as worker:
            worker.until("stored")

    monkeypatch.setattr("tempfile.tempdir", str(own_files))
    monkeypatch.setattr(demo, "STEPS", (fails,))
    monkeypatch.chdir(ROOT)
    said = io.StringIO()
    assert demo.run(Console(file=said, width=500)) is False
    assert "worker 1 reports its progress" in said.getvalue()
    assert "UsageError" in said.getvalue()
