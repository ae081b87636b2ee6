"""What a long chat costs: stored bytes, bytes sent, items serialized. Counts, never times."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.decisions.serializing import Serializer
from langgraph_durable_state.drivers.scripts import GuardedScripts
from langgraph_durable_state.drivers.sql import PooledSql
from langgraph_durable_state.tiers.arrays import Array

TURNS = 500
CHARACTERS = 400
WINDOW = 64
"""Turns averaged: 128 messages are two full chunks, so joining them falls alike on each window."""

CONFIG: Any = {"configurable": {"thread_id": "chat"}, "max_concurrency": 1}
"""LangGraph then stores one thing after the other: whether a put finds its task's writes
acknowledged, and need not send them again, does not depend on the threads' luck."""


class Meter:
    """Counts what goes to the tiers and through the serializer."""

    def __init__(self) -> None:
        self.puts = 0
        self.postgres = 0
        self.redis = 0
        self.items = 0

    def minus(self, other: Meter) -> Meter:
        left = Meter()
        left.__dict__ = {k: v - getattr(other, k) for k, v in vars(self).items()}
        return left

    def copy(self) -> Meter:
        return self.minus(Meter())


@contextmanager
def metered(patch: pytest.MonkeyPatch) -> Iterator[Meter]:
    meter = Meter()
    fetch, call, item = PooledSql.fetch, GuardedScripts.call, Serializer.item

    async def counted_fetch(self: PooledSql, name: str, params: Any) -> Any:
        if name in ("commit", "move_one", "put_one", "write_one"):
            meter.postgres += sum(size(p) for p in params)
            alone = name in ("move_one", "put_one")
            meter.puts += 1 if alone else puts_in(params) if name == "commit" else 0
        return await fetch(self, name, params)

    async def counted_call(self: GuardedScripts, name: str, keys: Any, args: Any) -> Any:
        if name == "raise":
            meter.redis += sum(len(a) if isinstance(a, bytes) else len(str(a)) for a in args)
        return await call(self, name, keys, args)

    def counted_item(self: Serializer, value: Any, where: str) -> Any:
        meter.items += 1
        return item(self, value, where)

    patch.setattr(PooledSql, "fetch", counted_fetch)
    patch.setattr(GuardedScripts, "call", counted_call)
    patch.setattr(Serializer, "item", counted_item)
    yield meter


def size(param: Any) -> int:
    """Bytes of a bound parameter."""
    if isinstance(param, Array):
        return len(param.data)
    return len(param) if isinstance(param, bytes) else 16


def puts_in(params: Any) -> int:
    """How many puts a batch holds: the length in the header of its first array."""
    header = params[0].data[12:16]
    return int.from_bytes(header) if header else 0


def words() -> Iterator[str]:
    """Texts of 400 characters, as compressible as made-up words are."""
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    known = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(3_000)]
    while True:
        text = ""
        while len(text) < CHARACTERS:
            text += chance.choice(known) + " "
        yield text[:CHARACTERS]


def test_a_long_chat(postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 turns store at most 6 times their final state, Redis at most 3 times, and a put sends
    at most 8 bytes more per 64 messages of history and serializes no more items."""
    text = words()
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [AIMessage(next(text))]})
    graph.add_edge(START, "model")
    early: Meter | None = None
    late: Meter | None = None
    with (
        metered(monkeypatch) as meter,
        DurableSaver(postgres_url, redis_url, hot_reads="always") as saver,
    ):
        chat = graph.compile(checkpointer=saver)
        for turn in range(1, TURNS + 1):
            if turn in (50, TURNS - WINDOW + 1):
                start = meter.copy()
            state = chat.invoke({"messages": [HumanMessage(next(text))]}, CONFIG)
            if turn == 49 + WINDOW:
                early = meter.minus(start)
        late = meter.minus(start)
        final = len(saver.serde.dumps_typed(state["messages"])[1])
    assert len(state["messages"]) == 2 * TURNS
    assert early is not None

    assert early.puts == late.puts == 3 * WINDOW
    history = 2 * (TURNS - WINDOW - 49) // 64
    assert (late.postgres - early.postgres) / late.puts <= 8 * history
    assert (late.redis - early.redis) / late.puts <= 8 * history
    assert late.items == early.items

    assert stored(postgres_url) <= 6 * final
    hot = redis.Redis.from_url(redis_url)
    assert 0 < sum(hot.memory_usage(key) or 0 for key in hot.scan_iter()) <= 3 * final
    hot.close()


def stored(url: str) -> int:
    """Bytes of all our tables, indexes included, once nothing dead is in them."""
    with psycopg.connect(url, autocommit=True) as admin:
        tables = admin.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname = 'durable_state'"
        ).fetchall()
        total = 0
        for (table,) in tables:
            admin.execute(f"VACUUM FULL {table}")
            size = admin.execute("SELECT pg_total_relation_size(%s)", [table]).fetchone()
            assert size is not None
            total += size[0]
        return total
