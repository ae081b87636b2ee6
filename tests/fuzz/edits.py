"""Random edits of raw rows and keys, as bit rot, a bad restore or a careless hand makes them.

An edit tells what it did, and which silence it may lead to: `OMITS` where rows or keys went away
or a head points elsewhere, so that a checkpoint, a write or a place in the order is missing and,
without a key that signs them, nothing is left to tell of it. A value may never be wrong.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import psycopg
import redis
from psycopg import sql

from tests.fuzz.world import KEYS, World


@dataclass(frozen=True)
class Edit:
    """One edit that was made.

    Attributes:
        tier: ``"postgres"`` or ``"redis"``.
        what: a sentence.
        omits: whether something that was there may be missing without a word.
    """

    tier: str
    what: str
    omits: bool


def made(world: World, dice: random.Random) -> Edit | None:
    """Makes an edit; None if the store would not have it, or it changed nothing."""
    try:
        tier = dice.choice((in_postgres, in_postgres, in_redis))
        return tier(world, dice)
    except (psycopg.IntegrityError, psycopg.DataError, redis.ResponseError):
        return None


# -- Postgres --------------------------------------------------------------------------------

POINTS = {
    ("head", "*"), ("thread", "*"), ("checkpoint", "seq"), ("checkpoint", "refused"),
    ("checkpoint", "meta"), ("write", "slot"),
}  # fmt: skip
"""Columns that order, point or project, and that no digest covers."""


_UNCOVERED = {"here", "at", "ahead_at", "user_id", "session_id"}
"""Where a row is, when it was written, and whose a thread is: told, and covered by no digest."""


def in_postgres(world: World, dice: random.Random) -> Edit | None:
    tables = ("thread", "head", "checkpoint", "checkpoint", "chunk", "write", "write")
    table = dice.choice((*tables, "data_key") if world.guard == "encrypted" else tables)
    rows = _rows(world, table)
    if not rows:
        return None
    row, other = dice.choice(rows), dice.choice(rows)
    act = dice.choices((_change, _swap, _delete, _overwrite, _copy), (12, 3, 2, 2, 1))[0]
    return act(world, dice, table, row, other)


def _rows(world: World, table: str) -> list[dict[str, Any]]:
    order = sql.SQL(", ").join(map(sql.Identifier, KEYS[table]))
    query = sql.SQL("SELECT ctid::text AS here, * FROM durable_state.{} ORDER BY {}")
    cursor = world.sql.execute(query.format(sql.Identifier(table), order))
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _columns(row: dict[str, Any]) -> list[str]:
    return [name for name in row if name not in _UNCOVERED]


def _set(world: World, table: str, row: dict[str, Any], values: dict[str, Any]) -> None:
    parts = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in values]
    query = sql.SQL("UPDATE durable_state.{} SET {} WHERE ctid = %s::tid")
    with world.sql.transaction():
        world.sql.execute(
            query.format(sql.Identifier(table), sql.SQL(", ").join(parts)),
            (*map(_bound, values.values()), row["here"]),
        )


def _bound(value: Any) -> Any:
    return psycopg.types.json.Jsonb(value) if isinstance(value, (dict, list)) else value


def _omits(table: str, columns: list[str]) -> bool:
    moved = any(
        column in KEYS[table] and (table, column) != ("chunk", "digest") for column in columns
    )
    points = any((table, column) in POINTS for column in columns) or (table, "*") in POINTS
    return points or (moved and table != "chunk")


def _change(
    world: World, dice: random.Random, table: str, row: dict[str, Any], other: dict[str, Any]
) -> Edit | None:
    column = dice.choice(_columns(row))
    value = altered(row[column], dice)
    if row[column] is None:
        value = "0002" if column == "parent" else b"x"
    if value == row[column]:
        return None
    _set(world, table, row, {column: value})
    what = f"{table}.{column} of {_name(table, row)}: {row[column]!r:.80} became {value!r:.80}"
    return Edit("postgres", what, _omits(table, [column]))


def _swap(
    world: World, dice: random.Random, table: str, row: dict[str, Any], other: dict[str, Any]
) -> Edit | None:
    column = dice.choice([name for name in _columns(row) if name not in KEYS[table][:1]])
    if row[column] == other[column]:
        return None
    _set(world, table, row, {column: other[column]})
    again = next(r for r in _rows(world, table) if _is(table, r, other))
    _set(world, table, again, {column: row[column]})
    what = f"{table}.{column} of {_name(table, row)} and {_name(table, other)} were swapped"
    return Edit("postgres", what, _omits(table, [column]))


def _is(table: str, row: dict[str, Any], other: dict[str, Any]) -> bool:
    return row["here"] == other["here"]


def _delete(
    world: World, dice: random.Random, table: str, row: dict[str, Any], other: dict[str, Any]
) -> Edit | None:
    query = sql.SQL("DELETE FROM durable_state.{} WHERE ctid = %s::tid")
    world.sql.execute(query.format(sql.Identifier(table)), (row["here"],))
    return Edit("postgres", f"{table} {_name(table, row)} was deleted", table != "chunk")


def _overwrite(
    world: World, dice: random.Random, table: str, row: dict[str, Any], other: dict[str, Any]
) -> Edit | None:
    """All but the key comes from another row: of another thread, or an older one of the same."""
    columns = [name for name in _columns(row) if name not in KEYS[table] or name == "digest"]
    values = {name: other[name] for name in columns if other[name] != row[name]}
    if not values:
        return None
    _set(world, table, row, values)
    what = f"{table} {_name(table, row)} has the content of {_name(table, other)}"
    return Edit("postgres", what, _omits(table, list(values)))


def _copy(
    world: World, dice: random.Random, table: str, row: dict[str, Any], other: dict[str, Any]
) -> Edit | None:
    """A row is there again under another key."""
    key = dice.choice(KEYS[table]) if table != "chunk" else dice.choice(("tk", "no"))
    names = [name for name in row if name != "here"]
    values = [other[key] if name == key else row[name] for name in names]
    if other[key] == row[key]:
        return None
    query = sql.SQL("INSERT INTO durable_state.{} ({}) VALUES ({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.SQL(", ").join([sql.Placeholder()] * len(names)),
    )
    world.sql.execute(query, [_bound(value) for value in values])
    what = f"{table} {_name(table, row)} is there again with {key} of {_name(table, other)}"
    return Edit("postgres", what, _omits(table, [key]))


def _name(table: str, row: dict[str, Any]) -> str:
    return "(" + ", ".join(f"{row[name]!s:.40}" for name in KEYS[table]) + ")"


# -- values ----------------------------------------------------------------------------------


def altered(value: Any, dice: random.Random) -> Any:
    """Another value of the same type, or None."""
    if dice.random() < 0.03:
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice((value + 1, value - 1, -value, 0, dice.randrange(-(2**31), 2**31)))
    if isinstance(value, (bytes, memoryview)):
        return spoilt(bytes(value), dice)
    if isinstance(value, str):
        data = spoilt(value.encode(), dice)
        return data.decode("latin-1").replace("\x00", "0")
    if isinstance(value, dict):
        return {**value, dice.choice([*value, "new"]): dice.choice(("blue", 1, None, [1], {}))}
    if value is None:
        return None
    return type(value)(bytes=spoilt(value.bytes, dice)[:16].ljust(16, b"\x00"))


def spoilt(data: bytes, dice: random.Random) -> bytes:
    """Some bytes with a bit flipped, a piece lost, added, moved, or all of it gone."""
    at = dice.randrange(len(data)) if data else 0
    kind = dice.choice(
        ("bit", "bit", "bit", "byte", "cut", "lose", "add", "turn", "empty", "noise")
    )
    if not data or kind == "add":
        return data[:at] + dice.randbytes(dice.choice((1, 4, 16))) + data[at:]
    if kind == "bit":
        return data[:at] + bytes((data[at] ^ 1 << dice.randrange(8),)) + data[at + 1 :]
    if kind == "byte":
        return data[:at] + dice.randbytes(1) + data[at + 1 :]
    if kind == "cut":
        return data[:at]
    if kind == "lose":
        return data[:at] + data[at + dice.randrange(1, 9) :]
    if kind == "turn":
        return data[at:] + data[:at]
    return b"" if kind == "empty" else dice.randbytes(len(data))


# -- Redis -----------------------------------------------------------------------------------


def in_redis(world: World, dice: random.Random) -> Edit | None:
    keys = sorted(world.redis.scan_iter())
    if not keys:
        return None
    key, other = dice.choice(keys), dice.choice(keys)
    acts = (_field, _type, _gone, _over, _moved)
    return dice.choices(acts, (12, 1, 1, 2, 1))[0](world, dice, key, other)


def _field(world: World, dice: random.Random, key: bytes, other: bytes) -> Edit | None:
    """One field of a hash, or one item of a list."""
    kind = world.redis.type(key)
    if kind == b"list":
        n = dice.randrange(world.redis.llen(key))  # type: ignore[arg-type]
        value = world.redis.lindex(key, n)
        world.redis.lset(key, n, spoilt(value, dice))  # type: ignore[arg-type]
        return Edit("redis", f"item {n} of {key!r} was spoilt", world.behind)
    if kind == b"string":
        world.redis.set(key, spoilt(world.redis.get(key) or b"", dice), keepttl=True)  # type: ignore[arg-type]
        return Edit("redis", f"{key!r} was spoilt", world.behind)
    if kind != b"hash":
        return _gone(world, dice, key, other)
    fields = sorted(world.redis.hgetall(key).items(), key=lambda pair: (len(pair[0]) == 9, pair[1]))  # type: ignore[union-attr]
    name, value = dice.choice(fields)
    second = dice.choice(fields)
    how = dice.choice(("spoil", "spoil", "spoil", "lose", "swap", "rename", "add"))
    if how == "spoil":
        world.redis.hset(key, name, spoilt(value, dice))  # type: ignore[arg-type]
    elif how == "lose":
        world.redis.hdel(key, name)
    elif how == "swap":
        world.redis.hset(key, mapping={name: second[1], second[0]: value})
    elif how == "rename":
        world.redis.hdel(key, name)
        world.redis.hset(key, spoilt(name, dice), value)  # type: ignore[arg-type]
    else:
        world.redis.hset(key, spoilt(name, dice), second[1])  # type: ignore[arg-type]
    return Edit("redis", f"field {name!r} of {key!r}: {how}, with {second[0]!r}", world.behind)


def _type(world: World, dice: random.Random, key: bytes, other: bytes) -> Edit | None:
    """A key of another type."""
    world.redis.delete(key)
    if dice.random() < 0.5:
        world.redis.set(key, b"spoilt")
    else:
        world.redis.rpush(key, b"spoilt")
    return Edit("redis", f"{key!r} is of another type", world.behind)


def _gone(world: World, dice: random.Random, key: bytes, other: bytes) -> Edit | None:
    world.redis.delete(key)
    return Edit("redis", f"{key!r} was deleted", world.behind)


def _over(world: World, dice: random.Random, key: bytes, other: bytes) -> Edit | None:
    """A key has another one's content: of another thread, or of another kind."""
    if key == other:
        return None
    world.redis.restore(key, 0, world.redis.dump(other), replace=True)  # type: ignore[arg-type]
    return Edit("redis", f"{key!r} has the content of {other!r}", world.behind)


def _moved(world: World, dice: random.Random, key: bytes, other: bytes) -> Edit | None:
    world.redis.rename(key, other)
    return Edit("redis", f"{key!r} stands where {other!r} was", world.behind)
