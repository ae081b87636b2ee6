"""The commands that explain and mend what is stored."""

import json
from typing import TYPE_CHECKING, Annotated, Any

from . import errors
from .recovery import RecoveryReport

if TYPE_CHECKING:
    import typer
    from rich.table import Table

REPAIRED = 7
"""What is served is right, but something is damaged that the other tier has."""

DAMAGED = 4
"""Something is damaged that nobody has."""


def recovery_code(report: RecoveryReport) -> int:
    """The exit code of a report: 0 if all is well, otherwise that of the damage or the error."""
    from .cli import FAILED, exit_code

    if report.decision == "refuse":
        kind = getattr(errors, (report.error or "").partition(":")[0], None)
        # exit_code asks for an instance; what it was made with does not matter.
        return exit_code(kind.__new__(kind)) if kind is not None else FAILED
    return {"repair": REPAIRED, "fall_back": DAMAGED}.get(report.decision, 0)


def add_to(app: "typer.Typer") -> None:
    """Adds the commands; their docstrings are their help."""
    import typer

    from .cli import Stores

    @app.command()
    def recover(
        thread_id: Annotated[str, typer.Argument(help="The thread to explain.")],
        postgres: Annotated[
            str,
            typer.Option("--postgres", envvar="DURABLE_STATE_POSTGRES", help="A URL or conninfo."),
        ],
        redis: Annotated[
            str | None,
            typer.Option("--redis", envvar="DURABLE_STATE_REDIS", help="A URL, if it is used."),
        ] = None,
        schema: Annotated[str, typer.Option(help="Of the tables in Postgres.")] = "durable_state",
        prefix: Annotated[str, typer.Option(help="Of the keys in Redis.")] = "durable_state",
        tenant: Annotated[str, typer.Option(help="Whose thread it is.")] = "",
        namespace: Annotated[str, typer.Option(help="Of a subgraph.")] = "",
        checkpoint: Annotated[str, typer.Option(help="Its id; the head unless told.")] = "",
        fork: Annotated[
            bool, typer.Option("--fork", help="Make the last sound checkpoint the head.")
        ] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    ) -> None:
        """Say what a read of a thread finds, what it is given, and why. Changes nothing.

        Exits with 0 if the thread resumes as it was left, 7 if it does by what the other tier has,
        4 if something is damaged that nobody has, otherwise as the error that a read raises.
        With --fork the last sound checkpoint becomes the head, and 0 says that it is.
        """
        named: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace}
        named |= {"tenant_id": tenant} if tenant else {}
        named |= {"checkpoint_id": checkpoint} if checkpoint else {}
        with Stores(postgres, redis, schema, prefix).open() as saver:
            found = saver.recover({"configurable": named})
            if fork:
                saver.fork_from(found)
        _print(found, as_json)
        raise typer.Exit(0 if fork else recovery_code(found))


def _print(found: RecoveryReport, as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        Console().print(_table(found))


_STYLES = {"resume": "green", "start_fresh": "green", "refuse": "red", "fall_back": "red"}


def _table(found: RecoveryReport) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    for name, said in found.rows():
        style = _STYLES.get(found.decision, "yellow") if name == "Decision" else ""
        table.add_row(name, Text(said, style=style))
    return table
