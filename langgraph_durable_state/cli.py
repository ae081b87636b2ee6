"""The command `durable-state`.

Exit codes: 0 for success, those of `EXIT_CODES` for the library's errors, and 1 for the rest.
"""

import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from . import __version__
from .errors import ConflictError, CorruptionError, UnavailableError, UsageError
from .saver import DurableSaver

if TYPE_CHECKING:
    import typer

EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (UsageError, 2),
    (UnavailableError, 3),
    (CorruptionError, 4),
    (ConflictError, 5),
)
"""By class of error; the first that fits counts. A wrong option gives 2 as well."""

FAILED = 1


def exit_code(error: Exception) -> int:
    """The exit code that tells a script what kind of error it was."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


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
        sys.exit(exit_code(UsageError()))
    options = Options()
    try:
        _app()(obj=options)
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        _complain(str(error) or type(error).__name__)
        sys.exit(exit_code(error))


def _complain(what: str) -> None:
    print(f"durable-state: {what}", file=sys.stderr)


def _app() -> "typer.Typer":
    # The commands are defined in here because typer is an extra; their docstrings are their help.
    import typer

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
    def ddl(
        schema: Annotated[
            str, typer.Option(help="The schema of the tables in Postgres.")
        ] = "durable_state",
    ) -> None:
        """Print the tables as SQL, to be reviewed and run by an administrator."""
        typer.echo(DurableSaver.ddl(schema))

    return app


if __name__ == "__main__":
    main()
