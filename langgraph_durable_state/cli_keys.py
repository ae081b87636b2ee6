"""The commands of `durable-state` that are about keys. Imported once typer is known to be there."""

import json
from typing import Annotated

import typer

from .cli import Stores

PostgresUrl = Annotated[
    str, typer.Option("--postgres", envvar="DURABLE_STATE_POSTGRES", help="A URL or conninfo.")
]
Schema = Annotated[str, typer.Option(help="The schema of the tables in Postgres.")]
Tenant = Annotated[str, typer.Option(help="Whose it is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def add_to(app: typer.Typer) -> None:
    """Adds them."""
    app.command()(shred)


def shred(
    user_id: Annotated[str, typer.Argument(help="The user whose data is to be unreadable.")],
    postgres: PostgresUrl,
    schema: Schema = "durable_state",
    tenant: Tenant = "",
    as_json: AsJson = False,
) -> None:
    """Delete a user's data keys: what was encrypted with them cannot be read any more.

    Needs no key. Savers that know a key use it for up to a minute.
    """
    with Stores(postgres, None, schema, "durable_state").open() as saver:
        keys = saver.shred(user_id, tenant_id=tenant)
    typer.echo(json.dumps({"keys": keys}) if as_json else f"{keys} keys deleted")
