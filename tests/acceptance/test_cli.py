"""The command line: what it prints and how it exits."""

from __future__ import annotations

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


def durable_state(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "langgraph_durable_state.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
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
