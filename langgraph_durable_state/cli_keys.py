"""The commands of `durable-state` that are about keys. Imported once typer is known to be there."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from .cli_options import AsJson, PostgresUrl, Prefix, RedisUrl, Schema, Stores, Tenant
from .exit_codes import BUSY, DAMAGED


def add_to(app: typer.Typer) -> None:
    """Adds them."""
    for command in (rekey, shred, export_head, check_head, accept_rollback):
        app.command()(command)


def rekey(
    postgres: PostgresUrl,
    thread_ids: Annotated[
        list[str] | None, typer.Argument(help="Which threads; all of the tenant if none.")
    ] = None,
    redis: RedisUrl = None,
    schema: Schema = "durable_state",
    prefix: Prefix = "durable_state",
    tenant: Tenant = "",
    renew: Annotated[
        bool, typer.Option("--renew", help="Give each user a new data key first.")
    ] = False,
    accept_plain: Annotated[
        bool, typer.Option("--accept-plain", help="Believe what was stored without a key.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring threads under the current keys. Exits with 5 if some were busy: call it again; with 4
    if some were left as they are: they are damaged, or under a key that was not given.

    The keys are taken from the environment, the current one first.
    """
    from rich.console import Console
    from rich.status import Status

    stores = Stores(postgres, redis, schema, prefix)
    with (
        stores.open(accept_plain=accept_plain) as saver,
        Status("", console=Console(stderr=True)) as line,
    ):
        found = saver.rekey(
            thread_ids or None,
            tenant_id=tenant,
            renew=renew,
            progress=lambda id: line.update(f"{id!r} was looked at"),
        )
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        told = f"{found.rewritten} of {found.threads} threads rewritten, {found.keys} keys wrapped"
        typer.echo(f"{told}; busy: {list(found.busy)}" if found.busy else told)
        for one in found.damaged:
            typer.echo(f"left as it is: {one.thread!r}: {one.reason}", err=True)
    if found.damaged or found.busy:
        raise typer.Exit(DAMAGED if found.damaged else BUSY)


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


def export_head(
    thread_id: Annotated[str, typer.Argument(help="Whose head.")],
    postgres: PostgresUrl,
    redis: RedisUrl = None,
    schema: Schema = "durable_state",
    prefix: Prefix = "durable_state",
    tenant: Tenant = "",
    namespace: Annotated[str, typer.Option(help="The checkpoint namespace.")] = "",
) -> None:
    """Print a thread's head, signed, to be kept outside of both tiers."""
    with Stores(postgres, redis, schema, prefix).open() as saver:
        typer.echo(saver.export_head(thread_id, tenant_id=tenant, checkpoint_ns=namespace))


def check_head(
    file: Annotated[typer.FileText, typer.Argument(help="What export-head printed; - for stdin.")],
    postgres: PostgresUrl,
    redis: RedisUrl = None,
    schema: Schema = "durable_state",
    prefix: Prefix = "durable_state",
    as_json: AsJson = False,
) -> None:
    """Check that threads have gone on from exported heads, one a line. Exits with 4 if not."""
    with Stores(postgres, redis, schema, prefix).open() as saver:
        for line in file:
            moves = saver.check_head(line)
            told = f"{json.loads(line)['thread']}: {moves} moves since"
            typer.echo(json.dumps({"moves": moves}) if as_json else told)


def accept_rollback(
    postgres: PostgresUrl,
    thread_id: Annotated[
        str | None, typer.Argument(help="The thread that raises HeadMovedError; all if none.")
    ] = None,
    redis: RedisUrl = None,
    schema: Schema = "durable_state",
    prefix: Prefix = "durable_state",
    tenant: Tenant = "",
    as_json: AsJson = False,
) -> None:
    """Take heads as they are, after Postgres was restored from a backup on purpose."""
    with Stores(postgres, redis, schema, prefix).open() as saver:
        found = saver.accept_rollback(thread_id, tenant_id=tenant)
    if as_json:
        typer.echo(json.dumps({"namespaces": found}))
    else:
        typer.echo("accepted" if thread_id is None else f"accepted for {len(found)} namespaces")
