"""A long chat through a compiled graph, and what it leaves behind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import redis
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph

from . import texts
from .subjects import Site, Subject
from .thread import Thread
from .workloads import cold_get

MESSAGE = 400
"""Characters of each message; two messages a turn."""

EDGE = 20
"""Turns at the beginning and at the end that have a row each."""


@dataclass(frozen=True)
class Stored:
    """What one subject keeps after the chat.

    Attributes:
        subject: its name.
        where: ``Postgres``, ``Redis`` or ``SQLite``.
        bytes: stored there, indexes included.
        state: bytes of the final state, serialized.
    """

    subject: str
    where: str
    bytes: int
    state: int


class Chat:
    """One subject's chat; `turn` is one turn of it."""

    def __init__(self, subject: Subject, turns: int) -> None:
        rng = random.Random(turns)
        self.subject = subject
        self._asked = [texts.text(rng, MESSAGE) for _ in range(turns)]
        self._answers = [texts.text(rng, MESSAGE) for _ in range(turns)]
        self._graph = self._compiled()
        self._turn = 0
        self._config: Any = {"configurable": {"thread_id": "chat"}}
        # Connections, prepared statements and code that is imported late are not the chat's.
        for _ in range(2):
            self._say({"configurable": {"thread_id": "warm-up"}}, self._asked[0])
        self._forget("warm-up")

    def _compiled(self) -> Any:
        def answer(state: MessagesState) -> dict[str, Any]:
            turn = (len(state["messages"]) - 1) // 2
            return {"messages": [AIMessage(self._answers[turn])]}

        async def answer_natively(state: MessagesState) -> dict[str, Any]:
            return answer(state)

        graph = StateGraph(MessagesState)
        node: Any = answer_natively if self.subject.kind.native else answer
        graph.add_node("answer", node)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        return graph.compile(checkpointer=self.subject.saver)

    def turn(self) -> float:
        """The next turn; what it took, in seconds."""
        self._say(self._config, self._asked[self._turn])
        self._turn += 1
        return self.subject.took

    def _say(self, config: Any, words: str) -> None:
        self.subject.invoke(self._graph, {"messages": [HumanMessage(words)]}, config)

    def _forget(self, thread_id: str) -> None:
        if self.subject.kind.native:
            self.subject.wait(self.subject.saver.adelete_thread(thread_id))
        else:
            self.subject.saver.delete_thread(thread_id)

    def after(self) -> After:
        return After(self.subject)

    def stored(self) -> Iterator[Stored]:
        """What is stored, wherever this subject stores. To be called last: it rewrites tables."""
        saved = self.subject.get(self._config)
        messages = saved.checkpoint["channel_values"]["messages"]
        assert len(messages) >= 2 * self._turn
        state = len(JsonPlusSerializer().dumps_typed(messages)[1])
        kind, site = self.subject.kind, self.subject.site
        if kind.postgres:
            yield Stored(kind.name, "Postgres", _postgres_bytes(site), state)
        if kind.redis:
            yield Stored(kind.name, "Redis", _redis_bytes(site), state)
        if site.file.exists():
            yield Stored(kind.name, "SQLite", _sqlite_bytes(self.subject), state)


class After:
    """Reads of the chat once it is over."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._chat = Thread(subject, "chat")
        self._small = Thread(subject, "small")
        self._small.put(count=1)

    def get_warm(self) -> float:
        self._subject.get(self._chat.asked)
        return self._subject.took

    def get_cold(self) -> float:
        return cold_get(self._subject, self._chat, self._small)

    def list(self) -> float:
        self._subject.list(self._chat.asked, 20)
        return self._subject.took

    def put(self) -> float:
        messages = self._chat.values["messages"]
        return self._chat.put(messages=[*messages, AIMessage("x" * MESSAGE)])


_TABLES = b"""
SELECT c.oid::regclass::text, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""


def _postgres_bytes(site: Site) -> int:
    total = 0
    with psycopg.connect(site.postgres, autocommit=True) as connection:
        for name, oid in connection.execute(_TABLES).fetchall():
            connection.execute(f"VACUUM FULL {name}".encode())
            row = connection.execute("SELECT pg_total_relation_size(%s::oid)", (oid,)).fetchone()
            total += row[0] if row else 0
    return total


def _redis_bytes(site: Site) -> int:
    client: Any
    with redis.Redis.from_url(site.redis) as client:
        keys = list(client.scan_iter(f"{site.prefix}*", count=1000))
        return sum(client.memory_usage(key, samples=0) for key in keys)


def _sqlite_bytes(subject: Subject) -> int:
    connection = subject.saver.conn
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])
