"""The command `durable-state`.

Exit codes: 0 for success, and those of `exit_codes`.
"""

import json
import logging
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from . import __version__
from .errors import DurableStateError, UnavailableError, UsageError
from .exit_codes import FAILED, code_of
from .health import Health, TierHealth
from .saver import DurableSaver

if TYPE_CHECKING:
    import typer
    from rich.table import Table


@dataclass
class Options:
    """What was asked of every command."""

    debug: bool = False


def main() -> None:
    """Runs the command line and exits."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        _complain(
            "the command line needs: pip install 'langgraph_durable_state[cli]'"
            f" ({error.name} is not installed)"
        )
        sys.exit(code_of(UsageError))
    options = Options()
    try:
        _app()(obj=options)
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        _complain(str(error) or type(error).__name__)
        sys.exit(code_of(type(error)))


def _complain(what: str) -> None:
    print(f"durable-state: {what}", file=sys.stderr)


def _app() -> "typer.Typer":
    # The commands are defined in here because typer is an extra; their docstrings are their help.
    import typer

    from . import cli_integrity, cli_keys, cli_migrate, cli_schema, cli_verify
    from .cli_options import AsJson, PostgresUrl, Prefix, RedisUrl, Schema, Stores, Tenant

    app = typer.Typer(
        help="Durable state for LangGraph agents, over Postgres and Redis.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(asked: bool) -> None:
        if asked:
            typer.echo(f"durable-state {__version__}")
            raise typer.Exit

    @app.callback()
    def every_command(
        context: typer.Context,
        debug: Annotated[
            bool, typer.Option("--debug", help="Show the traceback of an error.")
        ] = False,
        version: Annotated[
            bool,
            typer.Option("--version", callback=show_version, is_eager=True, help="Show it, exit."),
        ] = False,
    ) -> None:
        context.obj.debug = debug

    @app.command()
    def demo() -> None:
        """See it work: an agent is killed, resumed, forked and raced for, on real servers.

        Takes some 15 seconds, needs no network and leaves nothing behind. Exits with 0 only if
        every step was verified.
        """
        from rich.console import Console

        from .demo.story import run

        if not run(Console()):
            raise typer.Exit(FAILED)

    @app.command()
    def ddl(schema: Schema = "durable_state") -> None:
        """Print the tables as SQL, to be reviewed and run by an administrator."""
        typer.echo(DurableSaver.ddl(schema))

    @app.command()
    def health(
        postgres: PostgresUrl,
        redis: RedisUrl = None,
        schema: Schema = "durable_state",
        prefix: Prefix = "durable_state",
        as_json: AsJson = False,
    ) -> None:
        """Ask each tier how it is. Exits with 3 if one cannot be used."""
        from rich.console import Console

        # What the log would say stands in the answer.
        logging.getLogger("langgraph_durable_state").addHandler(logging.NullHandler())
        with Stores(postgres, redis, schema, prefix).open() as saver:
            found = saver.health()
        if as_json:
            typer.echo(json.dumps(found.as_dict()))
        else:
            Console().print(_table(found))
        if not found.ok:
            raise typer.Exit(code_of(UnavailableError))

    @app.command()
    def flush(
        postgres: PostgresUrl,
        redis: RedisUrl,
        schema: Schema = "durable_state",
        prefix: Prefix = "durable_state",
        follow: Annotated[
            bool, typer.Option("--follow", help="Go on until interrupted: a process of its own.")
        ] = False,
        timeout: Annotated[float, typer.Option(help="Seconds that one flush may take.")] = 300.0,
        as_json: AsJson = False,
    ) -> None:
        """Bring what Redis holds alone to Postgres, whoever left it there.

        Exits with 3 if a tier cannot be reached; what could not be flushed is still in Redis.
        """
        with Stores(postgres, redis, schema, prefix).open() as saver:
            if follow:
                _follow(saver, timeout)
                return
            threads = saver.flush(timeout, everyone=True)
        typer.echo(json.dumps({"threads": threads}) if as_json else f"{threads} threads flushed")

    @app.command()
    def accept_loss(
        thread_id: Annotated[str, typer.Argument(help="The thread that raises StateLostError.")],
        postgres: PostgresUrl,
        redis: RedisUrl,
        schema: Schema = "durable_state",
        prefix: Prefix = "durable_state",
        tenant: Tenant = "",
        as_json: AsJson = False,
    ) -> None:
        """Let a thread go on, from what is left, after Redis lost what it alone held of it."""
        with Stores(postgres, redis, schema, prefix).open() as saver:
            namespaces = saver.accept_loss(thread_id, tenant_id=tenant)
        if as_json:
            typer.echo(json.dumps({"namespaces": namespaces}))
        elif namespaces:
            typer.echo(f"accepted for {len(namespaces)} namespaces: {namespaces}")
        else:
            typer.echo("nothing is lost of a thread of this name and tenant, if there is one")

    for more in cli_integrity, cli_verify, cli_keys, cli_schema, cli_migrate:
        more.add_to(app)
    return app


FOLLOW_PAUSE = 1.0
"""Seconds between two looks for what to flush: processes flush their own within milliseconds."""


def _follow(saver: DurableSaver, timeout: float) -> None:
    """Flushes again and again, through outages, with a line that tells how it goes."""
    from rich.console import Console
    from rich.status import Status

    # What stops a service is the way to end it.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))

    threads, failed = 0, ""
    with Status("", console=Console(stderr=True)) as line, suppress(KeyboardInterrupt):
        while True:
            try:
                threads += saver.flush(timeout, everyone=True)
                failed = ""
            except DurableStateError as error:
                failed = f"; waiting: {error}"
            line.update(f"{threads} threads flushed{failed}")
            time.sleep(FOLLOW_PAUSE)


def _table(found: Health) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    tiers = {"Postgres": found.postgres, "Redis": found.redis}
    for name, said in found.rows():
        if name == "Head cache":
            continue  # of this process, which has read nothing
        table.add_row(name, Text(said, style=_style(tiers.get(name))))
    return table


def _style(tier: TierHealth | None) -> str:
    if tier is None or tier.state == "absent":
        return ""
    return "green" if tier.state == "up" else "red"


if __name__ == "__main__":
    main()
