"""`durable-state migrate`: what it prints, how it exits, and that it may be killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from langgraph_durable_state import DurableSaver, MigrateReport, UsageError
from langgraph_durable_state.cli_migrate import verdict
from langgraph_durable_state.errors import ConflictError
from langgraph_durable_state.exit_codes import BUSY, FAILED, code_of
from langgraph_durable_state.migration import ThreadMigration
from tests.cases import at, cp, id_of, query

SHAPES = """
import os, signal
from langgraph_durable_state.evolution import StateSchema, convert_channel

met = []

def up(value):
    met.append(value)
    if len(met) == int(os.environ.get("DIES_AT", 0)):
        os.kill(os.getpid(), signal.SIGKILL)
    if value == "bad":
        raise ValueError
    return [value]

schema = StateSchema(version=1, graph="test")
schema.step(0, convert_channel("c", up))
before = StateSchema(version=0)
gap = StateSchema(version=2)
gap.step(1)
"""


@pytest.fixture
def stored(postgres_url: str, tmp_path: Path) -> Any:
    """Six threads, and what runs the command on them."""
    (tmp_path / "shapes.py").write_text(SHAPES)
    with DurableSaver(postgres_url) as saver:
        for n in range(6):
            saver.put(at(f"t{n}"), cp({"c": f"v{n}"}), {}, {"c": "1"})  # type: ignore[arg-type]

    def called(
        *arguments: str, name: str = "shapes:schema", do: str = "migrate", **environment: str
    ) -> Any:
        command = [sys.executable, "-m", "langgraph_durable_state.cli", do]
        env = {**os.environ, "DURABLE_STATE_POSTGRES": postgres_url, **environment}
        return run(
            [*command, "--state-schema", name, *arguments],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return called


def test_it_reports_what_it_did(stored: Any) -> None:
    """As a line, or as JSON; the same if nothing was to be written."""
    dry = stored("--dry-run")
    line = "6 threads: 6 would be migrated to version 1 (6 checkpoints), 0 in its shape already,"
    assert (dry.returncode, dry.stdout) == (0, f"{line} 0 busy, 0 failed\n")
    some = stored("--thread", "t0", "--thread", "t3", "--json")
    told = json.loads(some.stdout)
    assert (some.returncode, told["threads"], told["migrated"], told["failed"]) == (0, 2, 2, [])
    assert [each["thread"] for each in told["told"]] == ["t0", "t3"]
    done = stored("--to", "1")
    assert "4 migrated to version 1" in done.stdout
    assert "2 in its shape already" in done.stdout


def test_it_may_be_killed_and_called_again(stored: Any, postgres_url: str) -> None:
    """Each thread is as it was, or in the new shape; the second call does only what is left."""
    killed = stored(DIES_AT="4")
    assert killed.returncode == -signal.SIGKILL
    done = stored("--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["threads"], told["migrated"]) == (0, 6, 3)
    assert query(postgres_url, "SELECT count(*) FROM durable_state.checkpoint") == [(6,)]
    again = json.loads(stored("--json").stdout)
    assert again["told"] == []


def test_what_cannot_be_brought_there_fails(stored: Any, postgres_url: str) -> None:
    """The others are migrated; the thread, and why, are printed."""
    with DurableSaver(postgres_url) as saver:
        saver.put(at("b"), cp({"c": "bad"}), {}, {"c": "1"})  # type: ignore[arg-type]
    done = stored()
    assert done.returncode == FAILED
    failed, summary = done.stdout.splitlines()
    assert failed.startswith("failed: thread 'b': EvolutionError: What is declared of channel 'c'")
    assert "6 migrated" in summary
    assert "1 failed" in summary
    back = stored("--to", "0", "--thread", "t0")
    assert back.returncode == FAILED
    assert "No way back" in back.stdout


def test_the_other_commands_take_the_schema_too(stored: Any) -> None:
    """They say what the code that has it is given."""
    seen = stored("t0", "--json", do="recover")
    assert (seen.returncode, json.loads(seen.stdout)["decision"]) == (0, "migrate")
    stored()
    for name, code, decision in (("shapes:schema", 0, "resume"), ("shapes:before", 1, "refuse")):
        seen = stored("t0", "--json", do="recover", name=name)
        assert (seen.returncode, json.loads(seen.stdout)["decision"]) == (code, decision)
        checked = stored("--json", do="verify", name=name)
        assert (checked.returncode, json.loads(checked.stdout)["findings"]) == (0, [])


def test_a_thread_that_is_not_there_fails(stored: Any) -> None:
    """A mistyped id is not in the right shape already."""
    done = stored("--thread", "t0", "--thread", "nosuch", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["migrated"], told["failed"]) == (FAILED, 1, ["nosuch"])


def test_a_thread_goes_on_from_what_can_be_read(stored: Any, postgres_url: str) -> None:
    """Where its head cannot be brought into the new shape, if that is asked for."""
    with DurableSaver(postgres_url) as saver:
        first = saver.put(at("b"), cp({"c": "good"}), {}, {"c": "1"})  # type: ignore[arg-type]
        saver.put(first, cp({"c": "bad"}, versions={"c": "2"}), {}, {"c": "2"})  # type: ignore[arg-type]
    done = stored("b", "--fork", do="recover")
    assert done.returncode == code_of(UsageError)
    assert "recover --fork --readable" in done.stderr
    done = stored("b", "--fork", "--readable", "--json", do="recover")
    assert (done.returncode, json.loads(done.stdout)["forked"]["to"]) == (0, id_of(first))
    seen = stored("b", "--json", do="recover")
    assert json.loads(seen.stdout)["checkpoint"] == id_of(first)


@pytest.mark.parametrize("name", ["shapes", "nowhere:schema", "shapes:none", "shapes:gap"])
def test_a_schema_that_cannot_be_used_is_refused(stored: Any, name: str) -> None:
    """Before anything is looked at."""
    done = stored(name=name)
    assert done.returncode == code_of(UsageError)
    assert done.stderr.startswith("durable-state: ")
    assert done.stdout == ""


def test_the_exit_code_tells_a_script_how_it_stands() -> None:
    """What failed comes before what was busy."""
    busy, failed = ThreadMigration("a", "busy"), ThreadMigration("b", "failed", "why")
    codes = [verdict(MigrateReport(1, False, 2, told)) for told in ((), (busy,), (busy, failed))]
    assert codes == [0, BUSY, FAILED]
    assert code_of(ConflictError) == BUSY
