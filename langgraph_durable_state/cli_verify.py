"""The commands of `durable-state` that check what is stored, and restore it. Imported once typer is
known to be there."""

import json
import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from . import verification
from .cli_options import AsJson, PostgresUrl, Prefix, RedisUrl, Schema, StateSchemaName, Stores, bar
from .cli_schema import schema_named
from .errors import DurableStateError, UsageError
from .exit_codes import DAMAGED, FAILED, INTERRUPTED, REPAIRED, code_of
from .verification import VerifyProgress, VerifyReport


def verdict(report: VerifyReport) -> int:
    """The exit code that tells a script how it stands."""
    if report.clean:
        return 0
    outcomes = {found.outcome for found in report.findings}
    if "lost" in outcomes:
        return DAMAGED
    if report.unknown:
        return code_of(UsageError)
    return FAILED if "unread" in outcomes else REPAIRED


def add_to(app: typer.Typer) -> None:
    """Adds them; their docstrings are their help."""
    app.command()(verify)


def verify(
    postgres: PostgresUrl,
    threads: Annotated[
        list[str] | None, typer.Argument(help="Threads to check; all without.")
    ] = None,
    redis: RedisUrl = None,
    schema: Schema = "durable_state",
    state_schema: StateSchemaName = None,
    prefix: Prefix = "durable_state",
    tenant: Annotated[str | None, typer.Option(help="Whose threads; everybody's without.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Restore what can be, and keep what was there.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Go on where another one stopped.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check all that is stored against its digests, beside whatever else goes on.

    Exits with 0 if all is as it was written, 7 if what is not was restored (or, without
    --repair, can be), 4 if something is lost, 2 if there is nothing of a thread that was named.
    """
    # What the log would say stands in the report.
    logging.getLogger("langgraph_durable_state").addHandler(logging.NullHandler())
    with Stores(postgres, redis, schema, prefix).open(
        state_schema=schema_named(state_schema)
    ) as saver:
        report = _with_progress(
            lambda progress: saver.verify(
                threads or None,
                repair=repair,
                after=after,
                tenant_id=tenant,
                progress=progress,
            )
        )
    typer.echo(json.dumps(report.as_dict()) if as_json else str(report))
    if code := verdict(report):
        raise typer.Exit(code)


def _with_progress(
    work: Callable[[verification.Progress], VerifyReport],
) -> VerifyReport:
    """What `work` returns, while a bar on stderr shows how far it is; if it stops before its end,
    how to go on is said."""
    last, shown = list[VerifyProgress](), bar()
    task = shown.add_task("0 threads", total=1.0)

    def show(now: VerifyProgress) -> None:
        last[:] = [now]
        found = f", {now.findings} findings" if now.findings else ""
        shown.update(task, completed=now.share, description=f"{now.threads} threads{found}")

    try:
        with shown:
            return work(show)
    except (KeyboardInterrupt, DurableStateError) as error:
        if last:
            how = f"go on with --after {last[0].token}"
            print(f"durable-state: {last[0].threads} threads checked; {how}", file=sys.stderr)
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(INTERRUPTED) from None
        raise
