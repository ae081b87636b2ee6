"""The blocking face: the same coroutines over verbs that never suspend.

`run` drives a coroutine to its end without a loop; if it ever suspended it would wait for ever,
so that is an error. It works inside a running event loop too, and costs about 1 us.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
import redis
from psycopg import pq
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool, PoolTimeout
from redis.exceptions import RedisClusterException

from ..ports import Durable
from ..words import Outcome, Put, PutWrites
from .batching import Ticket, commit_each, take
from .redis_clients import all_of, node_of
from .scripts import WAIT_SHARE, on_disk
from .sql import PATIENCE, Failures, OverloadError, Rows, bounded, has_rows

T = TypeVar("T")


def run(coro: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends.

    Raises:
        RuntimeError: if it does suspend; it is closed first.
    """
    try:
        coro.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coro.close()
    raise RuntimeError(f"{getattr(coro, '__qualname__', coro)} suspended on the blocking face")


class Threads:
    """Implements `Aside`: work runs in a thread of its own, which keeps no process alive."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    async def pause(self, seconds: float) -> bool:
        return not self._closed.wait(seconds)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        threading.Thread(target=run, args=(work,), name="durable_state", daemon=True).start()

    def close(self) -> None:
        """Ends pauses; work does the rest."""
        self._closed.set()


class BlockingConnections:
    """Implements `Connections` over a `psycopg_pool.ConnectionPool`.

    Args:
        pool: opened on first use if it is not open.
        own: whether the pool is used for nothing else.
        failures: of its attempts to connect, if it is ours.
    """

    def __init__(self, pool: ConnectionPool[Any], own: bool, failures: Failures) -> None:
        self.own = own
        self._pool = pool
        self._failures = failures
        self._out: dict[psycopg.Connection[Any], bool] = {}

    @property
    def most(self) -> int:
        return self._pool.max_size

    async def borrow(self, timeout: float) -> psycopg.Connection[Any]:
        if self.own and self._pool.closed:
            self._pool.open()
        start = time.monotonic()
        connection: psycopg.Connection[Any]
        try:
            connection = self._pool.getconn(timeout=min(timeout, PATIENCE))
        except PoolTimeout as error:
            if (failed := self._failures.since(start)) is not None:
                raise failed from error
            connection = self._patiently(start, max(timeout - PATIENCE, 0.001))
        self._out[connection] = connection.autocommit
        if not connection.autocommit:
            connection.autocommit = True
        return connection

    def _patiently(self, start: float, timeout: float) -> psycopg.Connection[Any]:
        try:
            found: psycopg.Connection[Any] = self._pool.getconn(timeout)
            return found
        except PoolTimeout as error:
            busy = len(self._out) >= self._pool.max_size
            if busy or not (self.own or self._failures.grew(self._pool)):
                raise OverloadError("all connections are in use") from error
            raise self._failures.explained(start, error) from None

    async def give_back(self, connection: psycopg.Connection[Any]) -> None:
        autocommit = self._out.pop(connection)
        if connection.closed:
            pass
        elif connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            connection.close()
        elif not autocommit:
            connection.autocommit = False
        self._pool.putconn(connection)

    async def close_one(self, connection: psycopg.Connection[Any]) -> None:
        connection.close()

    async def ask(
        self,
        connection: psycopg.Connection[Any],
        sql: str,
        params: Sequence[object] | None,
        prepare: bool,
        until: float,
    ) -> Rows:
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        binary = params is not None
        with connection.lock:
            step = cursor._execute_gen(sql.encode(), params, prepare=prepare, binary=binary)
            connection.wait(bounded(step, until))
        return cursor.fetchall() if has_rows(cursor.pgresult) else []


class BlockingScriptClient:
    """Implements `ScriptClient`.

    Args:
        connect: makes the client. A cluster's asks for the nodes at once, so it is made by the
            first call, and is that call's failure if it fails.
        own: whether it is ours to close.
        turns: how many calls may be under way.
        patience: seconds that another waits for its turn.
    """

    def __init__(self, connect: Callable[[], Any], own: bool, turns: int, patience: float) -> None:
        self._connect = connect
        self._own = own
        self._turns = threading.Semaphore(turns)
        self._patience = patience
        self._wait_ms = round(patience * WAIT_SHARE * 1_000)
        self._lock = threading.Lock()
        self._client: Any = None

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
        with self._turn() as client:
            if wait_aof is None:
                return client.execute_command(*command)
            pipe: Any = client.pipeline(transaction=False)
            pipe.execute_command(*command)
            pipe.execute_command("WAITAOF", *wait_aof, self._wait_ms)
            return on_disk(pipe.execute(raise_on_error=False), wait_aof)

    def close(self) -> None:
        self._forget(self._client)

    @contextmanager
    def _turn(self) -> Iterator[Any]:
        if not self._turns.acquire(timeout=self._patience):
            raise redis.ConnectionError("all connections are in use")
        client = self._client
        try:
            if client is None:
                client = self._opened()
            yield client
        except RedisClusterException:
            # It knows no node that answers any more. A new one begins with those we were given.
            self._forget(client)
            raise
        finally:
            self._turns.release()

    def _opened(self) -> Any:
        """The client. Threads do not wait for each other here: where nothing answers, each would
        wait for the time-outs of all before it."""
        fresh = self._connect()
        with self._lock:
            if self._client is None:
                self._client = fresh
            found = self._client
        if found is not fresh:
            self._close(fresh)
        return found

    def _forget(self, client: Any) -> None:
        with self._lock:
            if client is None or self._client is not client:
                return
            self._client = None
        self._close(client)

    def _close(self, client: Any) -> None:
        if self._own:
            for each in all_of(client):
                each.close()

    async def scan(self, pattern: str) -> list[bytes]:
        with self._turn() as client:
            return list(client.scan_iter(match=pattern, count=1_000))


class LeaderAndFollowers:
    """Implements `Commits` for threads: one commits for all that wait, then hands over.

    The leader commits the batch that its own item is the first of, then wakes the next in line;
    nobody waits longer than for the batch under way and its own. There is no artificial delay.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._led = False

    async def submit(self, item: Put | PutWrites) -> Outcome:
        with self._lock:
            leads, self._led = not self._led, True
            ticket = Ticket(item, None if leads else threading.Event())
            self._waiting.append(ticket)
        if not leads:
            self._follow(ticket)
        if not ticket.done:
            self._lead()
        return ticket.result()

    def _follow(self, ticket: Ticket) -> None:
        try:
            ticket.event.wait()
        except BaseException:  # interrupted: whoever is next must not wait for this thread
            with self._lock:
                heir = ticket.event.is_set() and not ticket.done
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                if heir:
                    self._hand_over()
            raise

    def _lead(self) -> None:
        with self._lock:
            batch = take(self._waiting)
        try:
            run(commit_each(self._durable, batch))
        finally:
            with self._lock:
                self._hand_over()
            for ticket in batch:
                if ticket.event is not None:
                    ticket.event.set()

    def _hand_over(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].event.set()
