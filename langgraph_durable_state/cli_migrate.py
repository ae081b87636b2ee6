"""The command of `durable-state` that brings what is stored to a version of the user's state.
Imported once typer is known to be there."""

import json
import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .cli_options import AsJson, PostgresUrl, Prefix, RedisUrl, Schema, Stores, Tenant, bar
from .cli_schema import schema_named
from .errors import UsageError
from .exit_codes import BUSY, FAILED, INTERRUPTED
from .migration import MigrateProgress, MigrateReport, Progress


def add_to(app: typer.Typer) -> None:
    """Adds it; its docstring is its help."""
    app.command()(migrate)


def verdict(report: MigrateReport) -> int:
    """The exit code that tells a script how it stands."""
    return FAILED if report.failed else BUSY if report.busy else 0


def migrate(
    postgres: PostgresUrl,
    state_schema: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="The StateSchema of the graph.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do all but write.")] = False,
    to: Annotated[int | None, typer.Option(help="The version; the schema's without.")] = None,
    threads: Annotated[
        list[str] | None, typer.Option("--thread", help="A thread; all of the tenant without.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A class of which state may hold objects."),
    ] = None,
    redis: RedisUrl = None,
    schema: Schema = "durable_state",
    prefix: Prefix = "durable_state",
    tenant: Tenant = "",
    as_json: AsJson = False,
) -> None:
    """Rewrite threads in the shape of a version of the user's state.

    Exits with 1 if some could not be brought there, and stay as they were, and with 5 if some were
    busy: call it again. It may be stopped at any time and called again.
    """
    # What the log would say stands in the report.
    logging.getLogger("langgraph_durable_state").addHandler(logging.NullHandler())
    classes = tuple(_parts(each) for each in allow or ())
    stores = Stores(postgres, redis, schema, prefix)
    with stores.open(state_schema=schema_named(state_schema), allow=classes) as saver:
        report = _with_progress(
            lambda progress: saver.migrate(
                threads or None, to=to, dry_run=dry_run, tenant_id=tenant, progress=progress
            )
        )
    typer.echo(json.dumps(report.as_dict()) if as_json else str(report))
    if code := verdict(report):
        raise typer.Exit(code)


def _with_progress(work: Callable[[Progress], MigrateReport]) -> MigrateReport:
    """What `work` returns, while a bar on stderr shows how far it is."""
    progress = bar()
    task = progress.add_task("0 threads", total=1.0)
    failed = 0

    def show(now: MigrateProgress) -> None:
        nonlocal failed
        failed += now.last.outcome == "failed"
        told = f"{now.threads} threads" + (f", {failed} failed" if failed else "")
        progress.update(task, completed=now.share, description=told)

    try:
        with progress:
            return work(show)
    except KeyboardInterrupt:
        print("durable-state: what was migrated stays so; call it again", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _parts(name: str) -> tuple[str, str]:
    module, sign, attribute = name.partition(":")
    if not module or not sign or not attribute:
        raise UsageError(f"{name!r} is not of the form MODULE:NAME")
    return module, attribute
