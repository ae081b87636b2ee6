"""The commands that compare a graph with its recorded fingerprint. Imported once typer is known to
be there."""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from .cli_options import AsJson
from .decisions.evolution.differing import SchemaReport
from .decisions.evolution.fingerprint import Fingerprint, fingerprint_of
from .errors import UsageError
from .evolution import StateSchema
from .exit_codes import UNDECLARED

Graph = Annotated[str, typer.Argument(metavar="MODULE:GRAPH", help="The compiled graph.")]
Schema = Annotated[
    str | None, typer.Option("--schema", metavar="MODULE:SCHEMA", help="Its StateSchema.")
]
File = Annotated[
    Path | None,
    typer.Option(
        "--fingerprint", metavar="FILE", help="The record; GRAPH.fingerprint.json if not told."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds them; their docstrings are their help."""
    schema = typer.Typer(help="Compare a graph with its recorded shape.", no_args_is_help=True)
    schema.command()(check)
    schema.command()(record)
    app.add_typer(schema, name="schema")


def check(
    graph: Graph, schema: Schema = None, fingerprint: File = None, as_json: AsJson = False
) -> None:
    """Say what changed in a graph since its shape was recorded, but for what its schema declares.

    Exits with 8 if something changed that stored threads would notice, with 0 otherwise. Reads no
    stored state.
    """
    known = schema_named(schema)
    compiled, taken = _taken(graph, known)
    file = fingerprint or _default(taken)
    recorded = _read(file)
    report = (known or _as_recorded(recorded)).check(compiled, recorded)
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        _show(report, file)
    if not report.ok:
        raise typer.Exit(UNDECLARED)


def record(
    graph: Graph, schema: Schema = None, fingerprint: File = None, as_json: AsJson = False
) -> None:
    """Write down a graph's shape, to be kept with the code: what it has now is what is right.

    Without a schema the version is the one that was recorded before, or 0.
    """
    known = schema_named(schema)
    compiled, taken = _taken(graph, known)
    file = fingerprint or _default(taken)
    if known is None and file.exists():
        taken = _as_recorded(_read(file)).record(compiled)
    try:
        file.write_text(str(taken), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{str(file)!r} cannot be written: {error.strerror}") from None
    told = {"file": str(file), "graph": taken.graph, "version": taken.version}
    line = f"graph {taken.graph!r}, version {taken.version}, recorded in {file}"
    typer.echo(json.dumps(told) if as_json else line)


def object_named(what: str) -> Any:
    """What stands under a name in a module, which is looked for in the working directory too."""
    module, _, name = what.partition(":")
    if not module or not name:
        raise UsageError(f"{what!r} is no name; write package.module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"module {module!r} cannot be imported: {reason}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"module {module!r} has no {name!r}") from None
    return found


def schema_named(what: str | None) -> StateSchema | None:
    found = None if what is None else object_named(what)
    if found is not None and not isinstance(found, StateSchema):
        raise UsageError(f"{what!r} is a {type(found).__name__}, not a StateSchema")
    return found


def _taken(what: str, schema: StateSchema | None) -> tuple[Any, Fingerprint]:
    """A graph, and its shape now."""
    graph = object_named(what)
    try:
        return graph, (schema or StateSchema(0)).record(graph)
    except UsageError as error:
        raise UsageError(f"{what!r}: {error}") from None


def _as_recorded(recorded: Fingerprint) -> StateSchema:
    """A schema that declares nothing since the record was made."""
    schema = StateSchema(recorded.version, recorded.graph)
    for version in range(recorded.version):
        schema.step(version)
    return schema


def _default(taken: Fingerprint) -> Path:
    return Path(f"{taken.graph}.fingerprint.json")


def _read(file: Path) -> Fingerprint:
    try:
        return fingerprint_of(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        how = "durable-state schema record makes one"
        raise UsageError(f"there is no fingerprint {str(file)!r}; {how}") from None
    except OSError as error:
        raise UsageError(f"{str(file)!r} cannot be read: {error.strerror}") from None
    except ValueError as error:  # bytes that are no text included
        raise UsageError(f"{str(file)!r}: {error}") from None


def _show(report: SchemaReport, file: Path) -> None:
    color = "red" if not report.ok else "yellow" if report.stale else "green"
    console = Console()
    console.print(Text(report.verdict, style=color), soft_wrap=True)
    if report.differences:
        table = Table(*(Column(each, overflow="fold") for each in ("change", "why", "what to do")))
        for each in report.differences:
            style = "red" if each.needed else ""
            told = (f"{each.change}: {each.what}", each.why, each.remedy)
            table.add_row(*(Text(one) for one in told), style=style)
        console.print(table)
    if report.code:
        typer.echo(report.code)
    elif report.ok and report.stale:
        typer.echo(f"durable-state schema record writes {file}")
