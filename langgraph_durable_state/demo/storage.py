"""What `durable-state demo` measures: bytes stored, and what rewriting would have taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

import psycopg
import redis
from langchain_core.runnables import RunnableConfig

from ..decisions.keys import hot_key, named
from ..saver import DurableSaver
from ..words import Place

SCHEMA = "durable_state"
PREFIX = "durable_state"

_TABLES: LiteralString = """
SELECT relname, oid, pg_total_relation_size(oid) FROM pg_class
 WHERE relnamespace = 'durable_state'::regnamespace AND relkind = 'r' ORDER BY relname
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table: its rows, the bytes in them, and its bytes on disk with indexes and free space."""

    name: str
    rows: int
    values: int
    disk: int


def postgres_sizes(url: str) -> list[TableSize]:
    """Every table of the library."""
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(_TABLES).fetchall()
        return [_size(connection, name, disk) for name, _, disk in tables]


def _size(connection: psycopg.Connection, name: str, disk: int) -> TableSize:
    table = psycopg.sql.Identifier(SCHEMA, name)
    count = psycopg.sql.SQL("SELECT count(*), coalesce(sum(pg_column_size(t.*)), 0) FROM {} t")
    row = connection.execute(count.format(table)).fetchone()
    assert row is not None
    return TableSize(name, row[0], int(row[1]), disk)


def thread_bytes(url: str, thread_id: str) -> int:
    """The bytes in all rows of one thread, in every table."""
    with psycopg.connect(url, autocommit=True) as connection:
        return sum(
            _thread_bytes(connection, table, named("", thread_id).key)
            for table in ("checkpoint", "chunk", "head", "thread", "write")
        )


def _thread_bytes(connection: psycopg.Connection, name: str, key: UUID) -> int:
    table = psycopg.sql.Identifier(SCHEMA, name)
    total = "SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {} t WHERE tk = %s"
    row = connection.execute(psycopg.sql.SQL(total).format(table), [key]).fetchone()
    assert row is not None
    return int(row[0])


def redis_bytes(url: str) -> int:
    """The memory that the library's keys take, every field counted."""
    with redis.Redis.from_url(url) as client:
        keys: Iterable[bytes] = client.scan_iter(match=f"{PREFIX}:*")
        return sum(int(client.memory_usage(key, samples=0) or 0) for key in keys)


def hot_checkpoint(url: str, thread_id: str) -> str | None:
    """The id of the checkpoint that Redis holds a copy of."""
    key = hot_key(PREFIX, Place(named("", thread_id), ""))
    with redis.Redis.from_url(url) as client:
        id = client.hget(key, "id")
        return id.decode() if isinstance(id, bytes) else None


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What a saver stores that writes a channel's whole value at each new version.

    Attributes:
        bytes: all values of all versions, serialized.
        final: the values of the newest checkpoint.
        checkpoints: how many there are.
    """

    bytes: int
    final: int
    checkpoints: int


def rewriting(saver: DurableSaver, thread_id: str) -> Rewriting:
    """Counts it over a thread's checkpoints as they are stored."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    versions: dict[tuple[str, str], int] = {}
    checkpoints, final = 0, 0
    for found in saver.list(config):
        sizes = _new_sizes(saver, found.checkpoint, versions)
        if not checkpoints:
            final = sum(sizes.values())
        versions |= sizes
        checkpoints += 1
    return Rewriting(sum(versions.values()), final, checkpoints)


def _new_sizes(
    saver: DurableSaver, checkpoint: object, known: dict[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    assert isinstance(checkpoint, dict)
    versions = checkpoint["channel_versions"]
    new = {(name, versions[name]) for name in checkpoint["channel_values"]} - known.keys()
    values = checkpoint["channel_values"]
    return {key: len(saver.serde.dumps_typed(values[key[0]])[1]) for key in new}
