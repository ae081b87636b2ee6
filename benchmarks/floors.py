"""What nothing can beat: the bare cost of the parts, for a state of each size."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from time import perf_counter

import psycopg
import redis
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from . import texts
from .subjects import Site
from .workloads import Size

# EXTERNAL: the floor is a disk's and a wire's, not that of Postgres's own compression.
_TABLE = b"""
CREATE TABLE IF NOT EXISTS floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea);
ALTER TABLE floor ALTER data SET STORAGE EXTERNAL;
"""


# What a put under write-behind cannot do without: its bytes beside the head, and in the outbox.
_APPEND = """
redis.call('HSET', KEYS[1], 'record', ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[1])
redis.call('LTRIM', KEYS[2], -8, -1)
"""


def cases(site: Site, size: Size, stack: ExitStack) -> Mapping[str, Callable[[], float]]:
    """The floors at one size, by name."""
    serde = JsonPlusSerializer()
    rng = random.Random(size.bytes)
    messages = texts.history(rng, size.bytes)
    _, data = serde.dumps_typed(messages)
    connection = stack.enter_context(psycopg.connect(site.postgres, autocommit=True))
    client = stack.enter_context(redis.Redis.from_url(site.redis))
    connection.execute(_TABLE)

    def insert() -> None:
        connection.execute("INSERT INTO floor (data) VALUES (%b)", (data,), prepare=True)

    def keep() -> None:
        client.set(f"{site.prefix}:floor", data)

    def ask() -> None:
        client.ping()

    behind = client.register_script(_APPEND)

    def append() -> None:
        behind([f"{site.prefix}:head", f"{site.prefix}:outbox"], [data])

    def dump() -> None:
        serde.dumps_typed(messages)

    named = {
        "INSERT, committed": insert,
        "Redis SET": keep,
        "Redis append": append,
        "Redis round trip": ask,
        "serde.dumps_typed": dump,
    }
    return {name: _timed(function) for name, function in named.items()}


def _timed(function: Callable[[], None]) -> Callable[[], float]:
    def once() -> float:
        begin = perf_counter()
        function()
        return perf_counter() - begin

    return once
