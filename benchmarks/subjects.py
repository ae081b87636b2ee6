"""The savers under measurement, each opened as its own documentation says."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import psycopg
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.embedded import Servers

STOCK, STOCK_NATIVE = "PostgresSaver", "AsyncPostgresSaver"
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Site:
    """Where one subject keeps its state: nothing else is there.

    Attributes:
        postgres: a conninfo string of an empty database.
        redis: a URL.
        prefix: stands before every key in Redis.
        file: a path for SQLite.
    """

    postgres: str
    redis: str
    prefix: str
    file: Path


def site(servers: Servers, directory: Path, name: str) -> Site:
    """A new site; `name` must not have been used before."""
    with psycopg.connect(servers.postgres, autocommit=True) as administrator:
        administrator.execute(f'CREATE DATABASE "{name}" TEMPLATE template0'.encode())
    conninfo = make_conninfo(servers.postgres, dbname=name)
    return Site(conninfo, servers.redis, name, directory / f"{name}.sqlite")


class Subject:
    """One saver, called on its blocking face. `took` is what the last call took, in seconds."""

    def __init__(self, kind: Kind, site: Site, stack: ExitStack) -> None:
        self.kind = kind
        self.name = kind.name
        self.site = site
        self.took = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        if kind.native:
            self._loop = asyncio.new_event_loop()
            stack.callback(self._end_loop)
        self.saver: Any = kind.open(self, site, stack)

    def get(self, config: Config) -> Any:
        return self._call(self.saver.get_tuple, self.saver.aget_tuple, config)

    def put(self, *args: Any) -> Any:
        return self._call(self.saver.put, self.saver.aput, *args)

    def put_writes(self, *args: Any) -> None:
        self._call(self.saver.put_writes, self.saver.aput_writes, *args)

    def list(self, config: Config, limit: int) -> Any:
        async def native() -> Any:
            return [found async for found in self.saver.alist(config, limit=limit)]

        return self._call(lambda: [*self.saver.list(config, limit=limit)], native)

    def invoke(self, graph: Any, value: Any, config: Config) -> Any:
        return self._call(graph.invoke, graph.ainvoke, value, config)

    @contextmanager
    def fresh(self) -> Iterator[Subject]:
        """The same state through a new saver, whose caches are empty."""
        if not self.kind.shared:
            yield self
            return
        with ExitStack() as stack:
            yield Subject(self.kind, self.site, stack)

    def _call(
        self,
        blocking: Callable[..., Any],
        native: Callable[..., Awaitable[Any]],
        *args: Any,
    ) -> Any:
        if self._loop is not None:
            return self._loop.run_until_complete(self._timed(native, *args))
        begin = perf_counter()
        result = blocking(*args)
        self.took = perf_counter() - begin
        while self.kind.behind and self.saver.health().outbox_depth:
            sleep(0.001)  # what goes on in the background would be at the expense of the others
        return result

    async def _timed(self, native: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        begin = perf_counter()
        result = await native(*args)
        self.took = perf_counter() - begin
        return result

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """The result of something that needs this subject's loop."""
        assert self._loop is not None
        return self._loop.run_until_complete(_awaited(awaitable))

    def _end_loop(self) -> None:
        assert self._loop is not None
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@dataclass(frozen=True)
class Kind:
    """One column of the tables.

    Attributes:
        name: its heading.
        peer: the subject that its figures are compared with.
        open: opens the saver, and has the stack close it.
        native: whether it is called on its native face.
        shared: whether another saver of the same kind sees the same state.
        postgres, redis: whether it keeps state there.
        behind: whether something is left to be flushed after a call.
    """

    name: str
    peer: str
    open: Callable[[Subject, Site, ExitStack], Any]
    native: bool = False
    shared: bool = True
    postgres: bool = True
    redis: bool = False
    behind: bool = False


def _write_behind(_: Subject, site: Site, stack: ExitStack) -> Any:
    saver = DurableSaver(site.postgres, site.redis, prefix=site.prefix, write_policy="write_behind")
    return stack.enter_context(saver)


def _durable_with_redis(_: Subject, site: Site, stack: ExitStack) -> Any:
    return stack.enter_context(DurableSaver(site.postgres, site.redis, prefix=site.prefix))


def _durable(_: Subject, site: Site, stack: ExitStack) -> Any:
    return stack.enter_context(DurableSaver(site.postgres))


def _native_with_redis(subject: Subject, site: Site, stack: ExitStack) -> Any:
    return _closing(DurableSaver(site.postgres, site.redis, prefix=site.prefix), subject, stack)


def _native(subject: Subject, site: Site, stack: ExitStack) -> Any:
    return _closing(DurableSaver(site.postgres), subject, stack)


def _closing(saver: DurableSaver, subject: Subject, stack: ExitStack) -> Any:
    stack.callback(lambda: subject.wait(saver.aclose()))
    return saver


_POOL: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
"""As the documentation of LangGraph's Postgres savers asks for."""


def _stock(_: Subject, site: Site, stack: ExitStack) -> Any:
    pool: Any = stack.enter_context(ConnectionPool(site.postgres, max_size=10, kwargs=_POOL))
    saver = PostgresSaver(pool)
    saver.setup()
    return saver


def _stock_native(subject: Subject, site: Site, stack: ExitStack) -> Any:
    async def opened() -> Any:
        pool: Any = AsyncConnectionPool(site.postgres, max_size=10, kwargs=_POOL, open=False)
        await pool.open()
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        return pool, saver

    pool, saver = subject.wait(opened())
    stack.callback(lambda: subject.wait(pool.close()))
    return saver


def _sqlite(_: Subject, site: Site, stack: ExitStack) -> Any:
    connection = sqlite3.connect(site.file, check_same_thread=False)
    stack.callback(connection.close)
    return SqliteSaver(connection)


def _memory(_: Subject, site: Site, stack: ExitStack) -> Any:
    return InMemorySaver()


BLOCKING = (
    Kind("durable + redis", STOCK, _durable_with_redis, redis=True),
    Kind("durable only", STOCK, _durable),
    Kind("write behind", STOCK, _write_behind, redis=True, behind=True),
    Kind(STOCK, STOCK, _stock),
    Kind("SqliteSaver", STOCK, _sqlite, postgres=False),
    Kind("InMemorySaver", STOCK, _memory, shared=False, postgres=False),
)
NATIVE = (
    Kind("durable + redis, native", STOCK_NATIVE, _native_with_redis, native=True, redis=True),
    Kind("durable only, native", STOCK_NATIVE, _native, native=True),
    Kind(STOCK_NATIVE, STOCK_NATIVE, _stock_native, native=True),
)
