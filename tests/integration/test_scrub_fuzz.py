"""Random edits of raw rows and keys: each is judged, and what can be restored is."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
import redis

from langgraph_durable_state import DurableSaver
from tests.cases import Face, Store, at, values_of
from tests.integration.damage import keys, rows
from tests.integration.test_scrub import QUEUE, hold, release, story, text
from tests.unit.test_scrub_fuzz import mangled

COLUMNS = {
    "chunk": ["data", "digest"],
    "checkpoint": ["record", "digest", "chunks"],
    "write": ["data", "digest", "chunks"],
    "head": ["digest"],
}


def edit_row(store: Store, chance: random.Random) -> tuple[str, Any]:
    """Mangles one column of one row; how to undo that."""
    table = chance.choice(list(COLUMNS))
    column = chance.choice(COLUMNS[table])
    with psycopg.connect(store.postgres_url, autocommit=True) as connection:
        found = connection.execute(
            f"SELECT ctid::text, {column} FROM durable_state.{table} ORDER BY 1".encode()
        ).fetchall()
        where, value = chance.choice(found)
        change = f"UPDATE durable_state.{table} SET {column} = %s"
        (new,) = connection.execute(
            f"{change} WHERE ctid = %s::tid RETURNING ctid::text".encode(),
            (mangled(value, chance), where),
        ).fetchall()
        return f"{change} WHERE ctid = '{new[0]}'", value


def edit_key(store: Store, chance: random.Random) -> None:
    """Mangles a field of a hash or an entry of a list, or the name of a field."""
    with redis.Redis.from_url(store.redis_url) as client:
        known: Any = [name for name in keys(store) if client.type(name) in (b"hash", b"list")]
        name = chance.choice(sorted(n for n in known if not n.endswith(b":spell")))
        if client.type(name) == b"list":
            i = chance.randrange(client.llen(name))  # type: ignore[arg-type]
            entry: Any = client.lindex(name, i)
            client.lset(name, i, mangled(entry, chance))  # type: ignore[arg-type]
            return
        fields: Any = client.hgetall(name)
        field = chance.choice(sorted(fields))
        client.hdel(name, field)
        if chance.random() < 0.2:
            client.hset(name, mangled(field, chance), fields[field])  # type: ignore[arg-type]
        else:
            client.hset(name, field, mangled(fields[field], chance))  # type: ignore[arg-type]


def put_back(store: Store, before: dict[bytes, Any]) -> None:
    """Makes Redis as it was."""
    with redis.Redis.from_url(store.redis_url) as client:
        client.flushdb()
        for name, value in before.items():
            if isinstance(value, dict):
                client.hset(name, mapping=value)  # type: ignore[arg-type]
            elif isinstance(value, list):
                client.rpush(name, *value)
            else:
                client.set(name, value)


@pytest.fixture
def hot(postgres_url: str, redis_url: str) -> Store:
    return Store(postgres_url, redis_url, Face("blocking"), "hot", AsyncExitStack())


async def test_an_edited_row_is_restored_or_lost(hot: Store) -> None:
    """All of it is as it was then, or nothing was touched; it may have been no edit, too."""
    chance = random.Random(1)
    with DurableSaver(hot.postgres_url, hot.redis_url, **QUEUE) as saver:
        await story(hot.face(saver))
        before, there, outcomes = rows(hot), keys(hot), Counter[str]()
        for _ in range(80):
            undo, value = edit_row(hot, chance)
            harmed = rows(hot)
            report = saver.verify(repair=True)
            outcomes.update(found.outcome for found in report.findings)
            if report.clean or report.lost:
                assert rows(hot) == harmed
                with psycopg.connect(hot.postgres_url, autocommit=True) as connection:
                    connection.execute(undo.encode(), (value,))
            assert rows(hot) == before
            assert keys(hot) == there
        assert saver.verify()
        assert min(outcomes["repaired"], outcomes["lost"]) > 10


async def test_an_edited_key_is_restored(hot: Store) -> None:
    """Postgres has all of it."""
    chance = random.Random(2)
    with DurableSaver(hot.postgres_url, hot.redis_url, **QUEUE) as saver:
        await story(hot.face(saver))
        before, there = rows(hot), keys(hot)
        for _ in range(100):
            edit_key(hot, chance)
            report = saver.verify(repair=True)
            assert not report.lost, str(report)
            assert saver.verify()
            assert rows(hot) == before
            assert report.clean or keys(hot) == there
            put_back(hot, there)  # bytes behind the end of what is stored change nothing
        found = saver.get_tuple(at())
        assert values_of(found)["own"] == text("3")


async def test_an_edited_outbox_is_restored_or_not_touched(hot: Store) -> None:
    """What Redis alone holds is never removed."""
    chance = random.Random(3)
    hold(hot)
    with DurableSaver(hot.postgres_url, hot.redis_url, write_policy="write_behind") as saver:
        await story(hot.face(saver))
        there, outcomes = keys(hot), Counter[str]()
        for _ in range(150):
            edit_key(hot, chance)
            harmed = keys(hot)
            report = saver.verify(repair=True)
            outcomes.update(found.outcome for found in report.findings)
            if report.lost or report.clean:
                assert keys(hot) == harmed
            put_back(hot, there)
        assert saver.verify()
        assert min(outcomes["repaired"], outcomes["lost"]) > 10
        release(hot)
        saver.flush()
        assert saver.verify()
