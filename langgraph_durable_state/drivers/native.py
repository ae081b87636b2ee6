"""The native face's drivers: awaited in the caller's loop, one set per loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import redis
from psycopg import pq
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from redis.exceptions import RedisClusterException

from ..errors import UnavailableError
from ..ports import Durable
from ..words import Outcome, Put, PutWrites
from .batching import Ticket, commit_each, take
from .redis_clients import all_of, node_of
from .scripts import WAIT_SHARE, on_disk
from .sql import PATIENCE, Failures, OverloadError, Rows, bounded, has_rows


class Tasks:
    """Implements `Aside`: work is a task of the running loop."""

    def __init__(self) -> None:
        self._started: set[asyncio.Task[None]] = set()

    async def pause(self, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return True

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._started.add(task)
        task.add_done_callback(self._started.discard)

    def close(self) -> None:
        """Cancels what runs."""
        for task in list(self._started):
            task.cancel()


class NativeConnections:
    """Implements `Connections` over a `psycopg_pool.AsyncConnectionPool` of the running loop.

    Args:
        pool: opened on first use if it is not open.
        own: whether the pool is used for nothing else.
        failures: of its attempts to connect, if it is ours.
    """

    def __init__(self, pool: AsyncConnectionPool[Any], own: bool, failures: Failures) -> None:
        self.own = own
        self._pool = pool
        self._failures = failures
        self._out: dict[psycopg.AsyncConnection[Any], bool] = {}

    @property
    def most(self) -> int:
        return self._pool.max_size

    async def borrow(self, timeout: float) -> psycopg.AsyncConnection[Any]:
        if self.own and self._pool.closed:
            await self._pool.open()
        start = time.monotonic()
        connection: psycopg.AsyncConnection[Any]
        try:
            connection = await self._pool.getconn(timeout=min(timeout, PATIENCE))
        except PoolTimeout as error:
            if (failed := self._failures.since(start)) is not None:
                raise failed from error
            connection = await self._patiently(start, max(timeout - PATIENCE, 0.001))
        self._out[connection] = connection.autocommit
        if not connection.autocommit:
            await connection.set_autocommit(True)
        return connection

    async def _patiently(self, start: float, timeout: float) -> psycopg.AsyncConnection[Any]:
        try:
            found: psycopg.AsyncConnection[Any] = await self._pool.getconn(
                timeout=max(timeout, 0.001)
            )
            return found
        except PoolTimeout as error:
            busy = len(self._out) >= self._pool.max_size
            if busy or not (self.own or self._failures.grew(self._pool)):
                raise OverloadError("all connections are in use") from error
            raise self._failures.explained(start, error) from None

    async def give_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        autocommit = self._out.pop(connection)
        if connection.closed:
            pass
        elif connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            await connection.close()
        elif not autocommit:
            await connection.set_autocommit(False)
        await self._pool.putconn(connection)

    async def close_one(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.close()

    async def ask(
        self,
        connection: psycopg.AsyncConnection[Any],
        sql: str,
        params: Sequence[object] | None,
        prepare: bool,
        until: float,
    ) -> Rows:
        cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
        binary = params is not None
        async with connection.lock:
            step = cursor._execute_gen(sql.encode(), params, prepare=prepare, binary=binary)
            await connection.wait(bounded(step, until))
        return await cursor.fetchall() if has_rows(cursor.pgresult) else []


class NativeScriptClient:
    """Implements `ScriptClient`.

    Args:
        connect: makes the client, of the running loop.
        own: whether it is ours to close.
        turns: how many calls may be under way.
        patience: seconds that another waits for its turn.
    """

    def __init__(self, connect: Callable[[], Any], own: bool, turns: int, patience: float) -> None:
        self._connect = connect
        self._own = own
        self._turns = asyncio.Semaphore(turns)
        self._patience = patience
        self._wait_ms = round(patience * WAIT_SHARE * 1_000)
        self._client: Any = connect()

    def node(self, key: str) -> str | None:
        return node_of(self._client, key)

    async def evalsha(
        self,
        sha: str,
        keys: Sequence[str],
        args: Sequence[bytes | str | int],
        wait_aof: tuple[int, int] | None = None,
    ) -> Any:
        return await self._asked(("EVALSHA", sha, len(keys), *keys, *args), wait_aof)

    async def eval(
        self,
        text: str,
        keys: Sequence[str],
        args: Sequence[bytes | str | int],
        wait_aof: tuple[int, int] | None = None,
    ) -> Any:
        return await self._asked(("EVAL", text, len(keys), *keys, *args), wait_aof)

    async def _asked(self, command: tuple[Any, ...], wait_aof: tuple[int, int] | None) -> Any:
        async with self._turn() as client:
            if wait_aof is None:
                return await client.execute_command(*command)
            pipe: Any = client.pipeline(transaction=False)
            pipe.execute_command(*command)
            pipe.execute_command("WAITAOF", *wait_aof, self._wait_ms)
            return on_disk(await pipe.execute(raise_on_error=False), wait_aof)

    async def close(self) -> None:
        if self._own:
            for each in all_of(self._client):
                await each.aclose()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Any]:
        try:
            async with asyncio.timeout(self._patience):
                await self._turns.acquire()
        except TimeoutError:
            raise redis.ConnectionError("all connections are in use") from None
        client = self._client
        try:
            # A cluster's learns of the nodes here, so that the first call goes to the right one.
            await client.initialize()
            yield client
        except RedisClusterException:
            # It knows no node that answers any more. A new one begins with those we were given.
            if self._own and self._client is client:
                self._client = self._connect()
                await client.aclose()
            raise
        finally:
            self._turns.release()

    async def scan(self, pattern: str) -> list[bytes]:
        async with self._turn() as client:
            return [name async for name in client.scan_iter(match=pattern, count=1_000)]


class OneFlusher:
    """Implements `Commits` for a loop: one task commits batch after batch while any waits.

    A caller that is cancelled leaves its item in the batch: it may be stored or not, as with any
    acknowledgement that is lost.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._waiting: deque[Ticket] = deque()
        self._flusher: asyncio.Task[None] | None = None

    async def submit(self, item: Put | PutWrites) -> Outcome:
        ticket = Ticket(item, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        await ticket.event
        return ticket.result()

    async def _flush(self) -> None:
        while self._waiting:
            batch = take(self._waiting)
            try:
                await commit_each(self._durable, batch)
            finally:
                for ticket in batch:
                    if not ticket.done:
                        gone = UnavailableError("postgres", "the event loop stopped")
                        ticket.settle(None, gone)
                    if not ticket.event.done():
                        ticket.event.set_result(None)
