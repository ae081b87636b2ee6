"""`durable-state verify`: what it prints, how it exits, and how it goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from langgraph_durable_state import DurableSaver, UnavailableError, cli, cli_verify
from langgraph_durable_state.verification import Finding, VerifyProgress, VerifyReport
from tests.acceptance.test_cli import durable_state
from tests.contract.superstep import superstep

BROKEN = (
    "UPDATE durable_state.checkpoint SET record = set_byte(record, 9, get_byte(record, 9) # 1)"
    " WHERE id = '1'"
)


@pytest.fixture
def verify(postgres_url: str, redis_url: str) -> Callable[..., Any]:
    """Runs the command over two threads of one checkpoint each, which Redis has as well."""
    with DurableSaver(postgres_url, redis_url, hot_reads="always") as saver:
        for thread in ("a", "b"):
            saver.put(*superstep(saver, None, "1", {"x": thread * 1000}, thread=thread))

    def run(*arguments: str, redis: str = redis_url) -> Any:
        where = {"DURABLE_STATE_POSTGRES": postgres_url, "DURABLE_STATE_REDIS": redis}
        return durable_state("verify", *arguments, **where)

    return run


def harm(postgres_url: str, statement: str = BROKEN) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_what_is_clean_exits_with_0(verify: Callable[..., Any]) -> None:
    """And says what was looked at."""
    done = verify()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "checked 2 threads, 2 checkpoints, 2 chunks, 0 writes, 2 hot copies, 0 outbox entries",
        "all of it is as it was written",
    ]
    done = verify("a", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["threads"], found["clean"], found["findings"], found["lost"]) == (1, True, [], 0)
    assert re.fullmatch("[0-9a-f]{32}", found["token"])


def test_what_was_restored_exits_with_7(verify: Callable[..., Any], postgres_url: str) -> None:
    """So does what can be, if that was not asked for; afterwards all is clean."""
    harm(postgres_url)
    done = verify()
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.splitlines()[-1] == "2 repairable"
    done = verify("--repair", "--json")
    assert (done.returncode, done.stderr) == (7, "")
    findings = json.loads(done.stdout)["findings"]
    assert {(f["thread"], f["tier"], f["kind"], f["outcome"]) for f in findings} == {
        ("a", "postgres", "checkpoint", "repaired"),
        ("b", "postgres", "checkpoint", "repaired"),
    }
    assert verify("--repair").returncode == 0


def test_what_is_lost_exits_with_4(verify: Callable[..., Any], postgres_url: str) -> None:
    """Without Redis nothing else has it."""
    harm(postgres_url)
    done = verify("--repair", "b", redis="")
    assert (done.returncode, done.stderr) == (4, "")
    assert "lost: thread 'b', namespace '', checkpoint 1, checkpoint in Postgres:" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 lost"


def test_a_thread_of_which_there_is_nothing_exits_with_2(
    verify: Callable[..., Any], postgres_url: str
) -> None:
    """It may be mistyped: that is not as it was written. What is lost counts for more."""
    done = verify("nosuch", "a")
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "checked 1 threads, 1 checkpoints, 1 chunks, 0 writes, 1 hot copies, 0 outbox entries",
        "unknown: there is nothing of a thread 'nosuch'",
        "1 unknown",
    ]
    found = json.loads(verify("nosuch", "--json").stdout)
    assert (found["unknown"], found["clean"], found["threads"]) == (["nosuch"], False, 0)
    assert verify("a", "--tenant", "other").returncode == 2
    harm(postgres_url)
    assert verify("nosuch", "a", redis="").returncode == 4


def test_it_goes_on_behind_a_token(verify: Callable[..., Any]) -> None:
    first, second = (json.loads(verify(id, "--json").stdout)["token"] for id in "ab")
    before = min(first, second)
    assert json.loads(verify("--after", before, "--json").stdout)["threads"] == 1
    done = verify("--after", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "token" in done.stderr


def test_a_tier_that_is_down_exits_with_3(verify: Callable[..., Any]) -> None:
    done = verify(redis="redis://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "redis could not be reached" in done.stderr


def finding(outcome: Any) -> Finding:
    return Finding("postgres", "chunk", outcome, "r", "", "t", "", "1", "k", chunk=7)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        (["repaired"], 7),
        (["repairable", "repaired"], 7),
        (["repaired", "lost"], 4),
        (["repaired", "unread"], 1),
        (["unread", "lost"], 4),
    ],
)
def test_the_worst_tells_the_exit_code(outcomes: list[Any], code: int) -> None:
    report = VerifyReport(1, 1, 1, 1, 1, 1, tuple(map(finding, outcomes)), None)
    assert cli_verify.verdict(report) == code


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (UnavailableError("postgres", "gone"), 3)]
)
def test_who_is_stopped_is_told_how_to_go_on(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing that was done has to be done again."""

    def verify(self: Any, threads: Any, *, progress: Any, **options: Any) -> Any:
        progress(VerifyProgress(3, 0.5, 1, "token"))
        raise error

    monkeypatch.setattr(DurableSaver, "verify", verify)
    monkeypatch.setattr("sys.argv", ["durable-state", "verify", "--postgres", "postgresql://x"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == code
    said = capsys.readouterr()
    assert said.out == ""
    assert "3 threads checked; go on with --after token" in said.err
