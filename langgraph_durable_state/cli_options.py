"""The options that commands of `durable-state` have in common. Imported once typer is known to be
there."""

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from .saver import DurableSaver

PostgresUrl = Annotated[
    str, typer.Option("--postgres", envvar="DURABLE_STATE_POSTGRES", help="A URL or conninfo.")
]
RedisUrl = Annotated[
    str | None,
    typer.Option("--redis", envvar="DURABLE_STATE_REDIS", help="A URL, if Redis is used."),
]
Schema = Annotated[str, typer.Option(help="The schema of the tables in Postgres.")]
StateSchemaName = Annotated[
    str | None,
    typer.Option("--state-schema", metavar="MODULE:NAME", help="The StateSchema of the graph."),
]
Prefix = Annotated[str, typer.Option(help="What the keys in Redis begin with.")]
Tenant = Annotated[str, typer.Option(help="Whose it is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def bar() -> Progress:
    """A bar on stderr; nothing where that is no terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@dataclass(frozen=True)
class Stores:
    """Where a command finds the tiers."""

    postgres: str
    redis: str | None
    schema: str
    prefix: str

    def open(self, **options: Any) -> DurableSaver:
        """A saver over them, with the keys that the environment holds."""
        return DurableSaver(
            self.postgres,
            self.redis or None,
            schema=self.schema,
            prefix=self.prefix,
            auto_setup=False,  # a mistyped schema must not be made
            **_keys(),
            **options,
        )


def _keys() -> dict[str, Any]:
    """The keys that the environment holds."""
    names = {name: f"DURABLE_STATE_{name.upper()}" for name in ("integrity_key", "encryption_key")}
    return {name: f"env:{of}" for name, of in names.items() if os.environ.get(of)}
