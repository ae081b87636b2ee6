"""The commands that explain and mend what is stored. Imported once typer is known to be there."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import errors
from .cli_options import (
    AsJson,
    PostgresUrl,
    Prefix,
    RedisUrl,
    Schema,
    StateSchemaName,
    Stores,
    Tenant,
)
from .cli_schema import object_named, schema_named
from .decisions.suiting import class_of
from .exit_codes import DAMAGED, FAILED, REPAIRED, code_of
from .recovery import RecoveryReport
from .saver import DurableSaver


def recovery_code(report: RecoveryReport) -> int:
    """The exit code of a report: 0 if all is well, otherwise that of the damage or the error."""
    if report.decision == "refuse":
        kind = getattr(errors, (report.error or "").partition(":")[0], None)
        return code_of(kind) if kind is not None else FAILED
    return {"repair": REPAIRED, "fall_back": DAMAGED}.get(report.decision, 0)


def add_to(app: typer.Typer) -> None:
    """Adds them; their docstrings are their help."""
    app.command()(recover)


def recover(
    thread_id: Annotated[str, typer.Argument(help="The thread to explain.")],
    postgres: PostgresUrl,
    redis: RedisUrl = None,
    schema: Schema = "durable_state",
    state_schema: StateSchemaName = None,
    prefix: Prefix = "durable_state",
    tenant: Tenant = "",
    namespace: Annotated[str, typer.Option(help="Of a subgraph.")] = "",
    checkpoint: Annotated[str, typer.Option(help="Its id; the head unless told.")] = "",
    fork: Annotated[
        bool, typer.Option("--fork", help="Make the last sound checkpoint the head.")
    ] = False,
    readable: Annotated[
        bool, typer.Option("--readable", help="With --fork: the last that the schema can read.")
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(help="module:name of the graph, or its state's class."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a read of a thread finds, what it is given, and why. Changes nothing.

    Exits with 0 if the thread resumes as it was left, 7 if it does by what the other tier has,
    4 if something is damaged that nobody has, otherwise as the error that a read raises; 2 if the
    thread has no such checkpoint or namespace. With --state it names the values that the class of
    the state does not take, and the newest checkpoint of which it takes all. With --fork the last
    sound checkpoint becomes the head, and 0 says that it is.
    """
    named: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace}
    named |= {"tenant_id": tenant} if tenant else {}
    named |= {"checkpoint_id": checkpoint} if checkpoint else {}
    suits = object_named(state) if state is not None else None
    options: dict[str, Any] = {"state_schema": schema_named(state_schema)}
    if suits is not None:
        options["allow"] = [class_of(suits)]
    with Stores(postgres, redis, schema, prefix).open(**options) as saver:
        found = saver.recover({"configurable": named}, state=suits)
        refused = _fork(saver, found, readable) if fork else None
    forks = (found.asked, found.last_readable) if readable else found.forks
    forked = dict(zip(("from", "to"), forks, strict=True)) if forks else None
    done = {"forked": forked} if fork and refused is None else {}
    if as_json:
        typer.echo(json.dumps(found.as_dict() | done))
    else:
        Console().print(_table(found))
    if refused is not None:
        raise refused
    if done and not as_json:
        typer.echo(_told(found, forks))
    if found.decision == "start_fresh" and (checkpoint or namespace):
        what = f"checkpoint {checkpoint!r}" if checkpoint else f"namespace {namespace!r}"
        raise errors.UsageError(f"thread {thread_id!r} has no {what}")
    raise typer.Exit(0 if fork else recovery_code(found))


def _fork(
    saver: DurableSaver, found: RecoveryReport, readable: bool
) -> errors.DurableStateError | None:
    """Forks, and what is to be said after the report if that cannot be done."""
    try:
        saver.fork_from(found, readable=readable)
    except errors.DurableStateError as error:
        return error
    return None


def _told(found: RecoveryReport, forks: tuple[str | None, str | None] | None) -> str:
    """What a fork did."""
    if forks is None:
        return f"nothing to fork from: the head is checkpoint {found.last_sound} already"
    was, now = forks
    return f"forked: the head is checkpoint {now} now, and was {was or 'gone'}"


_STYLES = {"resume": "green", "start_fresh": "green", "refuse": "red", "fall_back": "red"}


def _table(found: RecoveryReport) -> Table:
    table = Table(show_header=False)
    for name, said in found.rows():
        style = _STYLES.get(found.decision, "yellow") if name == "Decision" else ""
        table.add_row(name, Text(said, style=style))
    return table
