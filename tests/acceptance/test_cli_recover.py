"""`durable-state recover`: what it prints, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from langgraph_durable_state import DurableSaver, RecoveryReport, cli_integrity
from tests.acceptance.test_cli import durable_state
from tests.cases import at, cp, id_of, query

FLIP = "set_byte(record, 9, get_byte(record, 9) # 90)"


@pytest.fixture
def configs(postgres_url: str) -> list[Any]:
    """A thread of two checkpoints, without Redis; their configs."""
    made: list[Any] = [at()]
    with DurableSaver(postgres_url) as saver:
        for n in range(2):
            checkpoint = cp({"n": n}, versions={"n": str(n)})
            versions = checkpoint["channel_versions"]
            made.append(saver.put(made[-1], checkpoint, {"source": "loop"}, versions))
    return made[1:]


def test_a_sound_thread_exits_with_0(postgres_url: str, configs: list[Any]) -> None:
    told = durable_state("recover", "t", "--postgres", postgres_url)
    assert (told.returncode, told.stderr) == (0, "")
    assert "resume" in told.stdout
    assert id_of(configs[1]) in told.stdout
    told = durable_state("recover", "other", "--json", "--postgres", postgres_url)
    assert (told.returncode, json.loads(told.stdout)["decision"]) == (0, "start_fresh")


def test_damage_exits_with_4_and_a_fork_mends_it(postgres_url: str, configs: list[Any]) -> None:
    query(
        postgres_url,
        f"UPDATE durable_state.checkpoint SET record = {FLIP} WHERE id = '{id_of(configs[1])}'",
    )
    told = durable_state("recover", "t", "--json", "--postgres", postgres_url)
    found = json.loads(told.stdout)
    assert (told.returncode, found["decision"]) == (4, "fall_back")
    assert (found["asked"], found["checkpoint"]) == (id_of(configs[1]), id_of(configs[0]))
    by_id = ("--checkpoint", id_of(configs[1]))
    told = durable_state("recover", "t", *by_id, "--json", "--postgres", postgres_url)
    assert (told.returncode, json.loads(told.stdout)["decision"]) == (4, "refuse")
    told = durable_state("recover", "t", "--fork", "--postgres", postgres_url)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines()[-1] == (
        f"forked: the head is checkpoint {id_of(configs[0])} now, and was {id_of(configs[1])}"
    )
    told = durable_state("recover", "t", "--json", "--postgres", postgres_url)
    found = json.loads(told.stdout)
    assert (told.returncode, found["decision"]) == (0, "resume")
    assert found["checkpoint"] == id_of(configs[0])


def test_a_fork_says_for_machines_what_it_did(postgres_url: str, configs: list[Any]) -> None:
    """And that there was nothing to be done, once it is."""
    query(
        postgres_url,
        f"UPDATE durable_state.checkpoint SET record = {FLIP} WHERE id = '{id_of(configs[1])}'",
    )
    for forked in ({"from": id_of(configs[1]), "to": id_of(configs[0])}, None):
        told = durable_state("recover", "t", "--fork", "--json", "--postgres", postgres_url)
        assert (told.returncode, told.stderr) == (0, "")
        assert json.loads(told.stdout)["forked"] == forked
    query(postgres_url, "DELETE FROM durable_state.head")
    told = durable_state("recover", "t", "--fork", "--postgres", postgres_url)
    assert told.stdout.splitlines()[-1].endswith("now, and was gone")
    told = durable_state("recover", "t", "--fork", "--postgres", postgres_url)
    last = f"nothing to fork from: the head is checkpoint {id_of(configs[0])} already"
    assert told.stdout.splitlines()[-1] == last


def test_a_fork_that_is_refused_is_explained(postgres_url: str, configs: list[Any]) -> None:
    """The report is printed, nothing is moved, and the error says why."""
    query(postgres_url, f"UPDATE durable_state.checkpoint SET record = {FLIP}")
    for form in ((), ("--json",)):
        told = durable_state("recover", "t", "--fork", *form, "--postgres", postgres_url)
        assert told.returncode == 2
        assert "refuse" in told.stdout
        assert "a head with a sound checkpoint. Reading it is refused: Corrup" in told.stderr


@pytest.mark.parametrize("option", ["--checkpoint", "--namespace"])
def test_an_id_that_names_nothing_is_no_fresh_start(
    postgres_url: str, configs: list[Any], option: str
) -> None:
    """A mistyped one is a usage error; a thread of which there is nothing is as it should be."""
    told = durable_state("recover", "t", option, "nonsense", "--json", "--postgres", postgres_url)
    assert (told.returncode, json.loads(told.stdout)["decision"]) == (2, "start_fresh")
    assert f"thread 't' has no {option[2:]} 'nonsense'" in told.stderr


def test_an_outage_is_explained_and_exits_with_3() -> None:
    told = durable_state("recover", "t", "--json", "--postgres", "postgresql://127.0.0.1:1/none")
    assert told.returncode == 3
    assert json.loads(told.stdout)["decision"] == "refuse"


@pytest.mark.parametrize(
    ("decision", "error", "code"),
    [
        ("resume", None, 0),
        ("resume_stale", None, 0),
        ("migrate", None, 0),
        ("start_fresh", None, 0),
        ("repair", None, 7),
        ("fall_back", None, 4),
        ("refuse", "CorruptionError: x", 4),
        ("refuse", "UnavailableError: x", 3),
        ("refuse", "StateLostError: x", 6),
        ("refuse", "EvolutionError: x", 1),
    ],
)
def test_the_exit_code_tells_the_decision(decision: Any, error: str | None, code: int) -> None:
    report = RecoveryReport("t", "", decision, "why", error=error)
    assert cli_integrity.recovery_code(report) == code


def test_values_that_the_state_does_not_take_are_named(
    postgres_url: str, configs: list[Any], tmp_path: Path
) -> None:
    """And the newest checkpoint of which it takes all; `n` is 0 in the first, 1 in the second."""
    (tmp_path / "shapes.py").write_text(
        "import pydantic\nclass State(pydantic.BaseModel):\n    n: int = pydantic.Field(lt=1)\n"
    )
    there = {"PYTHONPATH": str(tmp_path)}
    stated = ("recover", "t", "--state", "shapes:State", "--postgres", postgres_url)
    told = durable_state(*stated, "--json", **there)
    found = json.loads(told.stdout)
    assert (told.returncode, found["decision"]) == (0, "resume")
    assert [each["path"] for each in found["misfits"]] == ["n"]
    assert found["last_valid"] == id_of(configs[0])
    told = durable_state(*stated, **there)
    assert "less than 1" in told.stdout
    assert id_of(configs[0]) in told.stdout
    told = durable_state(
        "recover", "t", "--state", "shapes:nobody", "--postgres", postgres_url, **there
    )
    assert (told.returncode, "nobody" in told.stderr) == (2, True)
