"""`durable-state schema`: what it prints, how it exits, and what it says of what it cannot use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from langgraph_durable_state import cli

APP = """
from typing import Annotated

from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from langgraph_durable_state.evolution import StateSchema, rename_channel, rename_node


class State(TypedDict):
    {key}: Annotated[list, add_messages]


builder = StateGraph(State)
builder.add_node("{node}", lambda state: {{}})
builder.add_edge(START, "{node}")
graph = builder.compile(name="support")

schema = StateSchema({version}, "support")
"""
OLD = APP.format(key="msgs", node="ask", version=0)
NEW = APP.format(key="messages", node="ask_human", version=0)
DECLARED = APP.format(key="messages", node="ask_human", version=1) + (
    'schema.step(0, rename_channel("msgs", "messages"), rename_node("ask", "ask_human"))\n'
)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A module of a graph, in a directory of its own."""
    file = tmp_path / "support.py"
    file.write_text(OLD)
    return file


def schema(app: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "langgraph_durable_state.cli", "schema", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=app.parent,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.fixture
def within(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str, str]]:
    """Runs the command in this process: exit code, output, errors."""
    monkeypatch.chdir(app.parent)
    monkeypatch.syspath_prepend(app.parent)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["durable-state", "schema", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        sys.modules.pop("support", None)
        return left.value.code, *capsys.readouterr()

    return run


def test_a_change_is_found_declared_and_recorded(
    app: Path, within: Callable[..., tuple[object, str, str]]
) -> None:
    """The whole way, as one goes it once."""
    named = ("support:graph", "--schema", "support:schema")
    done = schema(app, "record", "support:graph")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "graph 'support', version 0, recorded in support.fingerprint.json\n"
    assert within("check", *named) == (0, "graph 'support', version 0: as it was recorded\n", "")

    app.write_text(NEW)
    done = schema(app, "check", *named)
    assert (done.returncode, done.stderr) == (8, "")
    assert done.stdout.startswith("graph 'support', version 0: 2 undeclared changes\n")
    assert done.stdout.endswith(
        "# version=1\n"
        "schema.step(\n"
        "    0,\n"
        '    rename_channel("msgs", "messages"),  # if it is the same\n'
        '    rename_node("ask", "ask_human"),  # if it is the same\n'
        ")\n"
    )

    app.write_text(DECLARED)
    code, out, _ = within("check", *named)
    assert (code, "nothing to be declared; record it" in out) == (0, True)
    code, out, _ = within("record", *named, "--json")
    told = {"file": "support.fingerprint.json", "graph": "support", "version": 1}
    assert (code, json.loads(out)) == (0, told)
    code, out, _ = within("check", *named, "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["stale"], found["differences"]) == (0, True, False, [])


def test_without_a_schema_the_recorded_version_is_kept(
    app: Path, within: Callable[..., tuple[object, str, str]]
) -> None:
    """For a graph that has none yet, and for a look in between."""
    app.write_text(DECLARED)
    file = "shapes.json"
    within("record", "support:graph", "--schema", "support:schema", "--fingerprint", file)
    code, out, _ = within("check", "support:graph", "--fingerprint", file)
    assert (code, out) == (0, "graph 'support', version 1: as it was recorded\n")
    within("record", "support:graph", "--fingerprint", file)
    assert json.loads((app.parent / file).read_text())["version"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["support"], "'support' is no name; write package.module:name"),
        (["nowhere:graph"], "module 'nowhere' cannot be imported: ModuleNotFoundError"),
        (["broken:graph"], "module 'broken' cannot be imported: ZeroDivisionError"),
        (["support:nothing"], "module 'support' has no 'nothing'"),
        (["support:builder"], "'support:builder': StateGraph is no compiled graph"),
        (["support:graph"], "there is no fingerprint 'support.fingerprint.json'"),
        (["support:graph", "--fingerprint", "."], "'.' cannot be read"),
        (["support:graph", "--fingerprint", "support.py"], "'support.py': this is no fingerprint"),
        (["support:graph", "--fingerprint", "bytes"], "'bytes': "),
        (["support:graph", "--fingerprint", "newer"], "'newer': this fingerprint has format 99"),
        (["support:graph", "--schema", "support:graph"], "not a StateSchema"),
        (["support:graph", "--schema", "support:State.x"], "module 'support' has no 'State.x'"),
    ],
)
def test_what_cannot_be_used_is_told(
    app: Path, arguments: list[str], said: str, within: Callable[..., tuple[object, str, str]]
) -> None:
    """In one line, with the exit code of a wrong call."""
    (app.parent / "broken.py").write_text("1 / 0")
    (app.parent / "bytes").write_bytes(b"\xff\xfe\xfa")
    (app.parent / "newer").write_text('{"format": 99}')
    code, out, err = within("check", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_record_that_cannot_be_written_is_told(
    within: Callable[..., tuple[object, str, str]],
) -> None:
    code, out, err = within("record", "support:graph", "--fingerprint", "no/such/place.json")
    assert (code, out) == (2, "")
    assert "'no/such/place.json' cannot be written" in err
