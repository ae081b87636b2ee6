"""The command line: what it prints and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import langgraph_durable_state
from langgraph_durable_state import (
    ClosedError,
    ConflictError,
    CorruptionError,
    DurableSaver,
    EvolutionError,
    UnavailableError,
    UsageError,
    ValueRefusedError,
    cli,
)

ROOT = Path(langgraph_durable_state.__file__).parent.parent

CONFLICT = ConflictError(thread="t", namespace="", expected=None, actual="a", refused="b")
CORRUPTION = CorruptionError(thread="t", namespace="", checkpoint="a", channel=None, detail="d")


def durable_state(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "langgraph_durable_state.cli", *arguments]
    env = os.environ | environment
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, env=env
    )


def test_the_version_is_the_packages() -> None:
    """One line, for bug reports."""
    done = durable_state("--version")
    version = langgraph_durable_state.__version__
    assert (done.returncode, done.stdout) == (0, f"durable-state {version}\n")


def test_ddl_prints_what_the_saver_installs() -> None:
    """The output can be piped into psql."""
    done = durable_state("ddl")
    assert (done.returncode, done.stdout) == (0, DurableSaver.ddl() + "\n")


def test_ddl_prints_it_for_another_schema() -> None:
    """Nothing of the default schema is in it."""
    done = durable_state("ddl", "--schema", "agents")
    assert (done.returncode, done.stdout) == (0, DurableSaver.ddl("agents") + "\n")
    assert "durable_state." not in done.stdout


def test_health_is_a_table_and_exits_with_0(postgres_url: str, redis_url: str) -> None:
    """Where the tiers are may stand in the environment."""
    told = durable_state(
        "health", DURABLE_STATE_POSTGRES=postgres_url, DURABLE_STATE_REDIS=redis_url
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert [line.split()[1:4] for line in told.stdout.splitlines()[1:3]] == [
        ["Postgres", "│", "up"],
        ["Redis", "│", "up"],
    ]


def test_health_of_a_dead_tier_exits_with_3(postgres_url: str) -> None:
    """What the tier said is in the answer, and nothing beside it."""
    nowhere = "redis://127.0.0.1:1"
    told = durable_state("health", "--json", "--postgres", postgres_url, "--redis", nowhere)
    assert (told.returncode, told.stderr) == (3, "")
    found = json.loads(told.stdout)
    assert (found["ok"], found["postgres"]["state"]) == (False, "up")
    assert (found["redis"]["state"], found["redis"]["breaker"]) == ("down", "open")
    assert "127.0.0.1:1" in found["redis"]["why"]
    told = durable_state("health", "--postgres", "postgresql://127.0.0.1:1/none")
    assert (told.returncode, told.stderr) == (3, "")
    assert "down since" in told.stdout
    assert "absent" in told.stdout


def test_health_must_know_where(postgres_url: str) -> None:
    """Redis may be left out, Postgres may not."""
    told = durable_state("health")
    assert (told.returncode, told.stdout) == (2, "")
    assert "DURABLE_STATE_POSTGRES" in told.stderr
    told = durable_state("health", "--postgres", postgres_url, "--schema", "No")
    assert (told.returncode, told.stdout) == (2, "")
    assert "lower-case" in told.stderr


def test_a_wrong_option_is_a_usage_error() -> None:
    """As everywhere on Unix."""
    done = durable_state("ddl", "--no-such-option")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such option: --no-such-option" in done.stderr


def test_help_names_the_commands() -> None:
    """So does the command without arguments."""
    for arguments in (["--help"], ["-h"]):
        done = durable_state(*arguments)
        assert done.returncode == 0
        assert "demo" in done.stdout
        assert "ddl" in done.stdout
        assert "health" in done.stdout


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_it_says_what_to_install(missing: str) -> None:
    """A bare installation has the command, but not what it is made of."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from langgraph_durable_state.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'langgraph_durable_state[cli]'" in done.stderr
    assert f"{missing} is not installed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError(), 2),
        (ClosedError(), 2),
        (ValueRefusedError("channel 'a'", "no"), 2),
        (UnavailableError("postgres", "refused"), 3),
        (CORRUPTION, 4),
        (CONFLICT, 5),
        (EvolutionError(), 1),
        (OSError("no space left"), 1),
    ],
)
def test_the_exit_code_tells_the_class_of_error(
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message is on stderr, on its own."""
    assert fails_with(error, ["ddl"], monkeypatch) == code
    assert tuple(capsys.readouterr()) == ("", f"durable-state: {error}\n")


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the message, which stays the last line."""
    assert fails_with(CONFLICT, ["--debug", "ddl"], monkeypatch) == 5
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):")
    assert said.endswith(f"durable-state: {CONFLICT}\n")


def fails_with(
    error: Exception, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> int | str | None:
    def ddl(schema: str) -> str:
        raise error

    monkeypatch.setattr(DurableSaver, "ddl", staticmethod(ddl))
    monkeypatch.setattr(sys, "argv", ["durable-state", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code
