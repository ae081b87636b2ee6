"""What can happen to stored bytes, and how it is seen whether they are as they were."""

from __future__ import annotations

from typing import Any

import psycopg
import redis

from tests.cases import Store

KEYS: dict[str, str] = {
    "thread": "tk",
    "head": "tk, ns",
    "checkpoint": "tk, ns, id",
    "chunk": "tk, no",
    "write": "tk, ns, id, task, slot",
}

FLIP = "set_byte({0}, length({0}) - 1, get_byte({0}, length({0}) - 1) # 1)"
"""The last byte of a column with one bit turned over."""


def flipped(column: str) -> str:
    return f"{column} = {FLIP.format(column)}"


def rows(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the tables, without when it was stored."""
    found = {}
    for table, key in KEYS.items():
        shown = (
            f"SELECT to_jsonb(r) - 'at' - 'ahead_at' FROM durable_state.{table} r ORDER BY {key}"
        )
        found[table] = store.query(shown)
    return found


def harm(store: Store, statement: str) -> None:
    """Changes exactly one row behind the saver's back."""
    with psycopg.connect(store.postgres_url, autocommit=True) as connection:
        done = connection.execute(statement.replace("@", "durable_state.").encode())
        assert done.rowcount == 1, statement


def keys(store: Store) -> dict[bytes, Any]:
    """Everything in Redis but for how long it lives."""
    with redis.Redis.from_url(store.redis_url) as client:
        names: Any = client.keys()
        return {name: _value(client, name) for name in names}


def _value(client: Any, name: bytes) -> Any:
    kind = client.type(name)
    if kind == b"hash":
        return client.hgetall(name)
    return client.lrange(name, 0, -1) if kind == b"list" else client.get(name)


def key_of(store: Store, ending: str) -> bytes:
    """The one key that ends like this; of the copy, the one that ends in nothing else."""
    found = [name for name in keys(store) if name.decode().rpartition(":")[2] == ending.lstrip(":")]
    if not ending:
        known = ("writes", "spell", "outbox", "first", "lease", "fence", "witness")
        found = [name for name in keys(store) if not name.decode().endswith(known)]
    assert len(found) == 1, (ending, found)
    return found[0]


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def harm_field(store: Store, ending: str, field: bytes, value: bytes | None = None) -> None:
    """Turns over a bit of a field in Redis, or gives it another value, or removes it (``b""``)."""
    name = key_of(store, ending)
    with redis.Redis.from_url(store.redis_url) as client:
        have: Any = client.hget(name, field)  # type: ignore[arg-type]
        assert have is not None
        if value == b"":
            client.hdel(name, field)  # type: ignore[arg-type]
        else:
            client.hset(name, field, flip(have) if value is None else value)  # type: ignore[arg-type]
