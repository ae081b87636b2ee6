"""`Sql`, written once over the few verbs that differ between the faces.

Here stand the rules for deadlines, dead connections, races and errors. The blocking verbs never
suspend.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Dumper

from ..errors import DurableStateError, NumberTakenError, UnavailableError, UsageError
from ..tiers.arrays import KINDS, Array
from ..tiers.statements import queries
from .breaker import Breaker

T = TypeVar("T")
Rows = list[tuple[Any, ...]]

RETRIES_ON_RACE = 5
"""Serialization failures and deadlocks are tried again; they are possible only under another
isolation level than Postgres's default, or beside other users of the tables."""


class DeadlineError(psycopg.OperationalError):
    """The server did not answer in time."""


class OverloadError(psycopg.OperationalError):
    """Every connection was in use for too long: Postgres is not down, it is asked too much."""


class Failures:
    """The last failure to connect, which a pool itself only logs: a caller who waits for a
    connection is told at once, and why."""

    def __init__(self) -> None:
        self._last: tuple[float, BaseException] | None = None
        self._counted = 0

    def note(self, error: BaseException) -> None:
        self._last = time.monotonic(), error

    def grew(self, pool: Any) -> bool:
        """Whether a pool of the user's, whose other borrowers we do not know, failed to connect
        since this was last asked."""
        before, self._counted = self._counted, pool.get_stats().get("connections_errors", 0)
        return bool(self._counted > before)

    def since(self, start: float) -> BaseException | None:
        """The last failure, if it is not older than `start`."""
        last = self._last
        return last[1] if last is not None and last[0] >= start else None

    def explained(self, start: float, error: BaseException) -> BaseException:
        """Why there was no connection: the failure to open one, or else `error`."""
        return self.since(start) or error


PATIENCE = 0.25
"""Seconds to wait for a connection before looking whether one can be opened at all."""


class Connections(Protocol):
    """A pool of one face, with the verbs that this face does its own way.

    `own` tells whether its sessions are used for nothing else.
    """

    own: bool

    async def borrow(self, timeout: float) -> Any:
        """A connection in autocommit.

        Raises:
            OverloadError: if all are in use until then.
            PoolTimeout, PoolClosed: if there is none for another reason.
        """

    async def give_back(self, connection: Any) -> None:
        """Takes a borrowed connection back, as it was; one amid a transaction is closed."""

    async def close_one(self, connection: Any) -> None:
        """Closes a connection that answers no more."""

    async def ask(
        self,
        connection: Any,
        sql: str,
        params: Sequence[object] | None,
        prepare: bool,
        until: float,
    ) -> Rows:
        """The rows of one statement, given up at `until`. Without `params` it may be several."""


class PooledSql:
    """Implements `Sql`.

    Args:
        connections: one face's pool.
        schema: of the tables.
        timeout: seconds that one operation may take in all.
        breaker: this tier's.
    """

    def __init__(
        self, connections: Connections, schema: str, timeout: float, breaker: Breaker
    ) -> None:
        self._connections = connections
        self._queries = queries(schema)
        self._timeout = timeout
        self._breaker = breaker

    async def fetch(self, name: str, params: Sequence[object]) -> Rows:
        async def work(ask: _Ask) -> Rows:
            return await ask(self._queries[name], params)

        return await self._guarded(work)

    async def transaction(
        self,
        steps: Sequence[tuple[str, Sequence[object]]],
        go_on: Callable[[Rows], bool] | None = None,
        then: Callable[[list[Rows]], Sequence[tuple[str, Sequence[object]]]] | None = None,
    ) -> list[Rows]:
        async def work(ask: _Ask) -> list[Rows]:
            await ask("BEGIN")
            rows: list[Rows] = []
            for name, params in steps:
                rows.append(await ask(self._queries[name], params))
                if len(rows) == 1 and go_on is not None and not go_on(rows[0]):
                    await ask("ROLLBACK")
                    return rows
            for name, params in then(rows) if then is not None else ():
                rows.append(await ask(self._queries[name], params))
            await ask("COMMIT")
            return rows

        return await self._guarded(work)

    async def script(self, sql: str) -> None:
        async def work(ask: _Ask) -> None:
            await ask("BEGIN")
            await ask(sql)
            await ask("COMMIT")

        await self._guarded(work)

    async def _guarded(self, work: Callable[[_Ask], Awaitable[T]]) -> T:
        """`work` on a connection, unless Postgres failed a moment ago."""
        if not self._breaker.admits():
            raise UnavailableError("postgres", self._breaker.refusal())
        try:
            result = await self._persist(work, time.monotonic() + self._timeout)
        except Exception as error:
            known = translated(error)
            if isinstance(known, UnavailableError) and not isinstance(error, _BUSY):
                self._breaker.failed(error)
            else:
                self._breaker.succeeded()
            if known is error:
                raise
            raise known from error
        self._breaker.succeeded()
        return result

    async def _persist(self, work: Callable[[_Ask], Awaitable[T]], until: float) -> T:
        """`work` on a connection; again on another while connections turn out to be dead."""
        races = 0
        while True:
            connection = await self._connections.borrow(max(until - time.monotonic(), 0.01))
            try:
                return await work(await self._asker(connection, until))
            except Exception as error:
                if isinstance(error, DeadlineError):
                    await self._connections.close_one(connection)
                    raise
                races += is_race(error)
                dead = is_dead(connection, error)
                if dead:
                    await self._connections.close_one(connection)
                again = dead or (is_race(error) and races <= RETRIES_ON_RACE)
                if not again or time.monotonic() > until:
                    raise
            finally:
                await self._connections.give_back(connection)

    async def _asker(self, connection: Any, until: float) -> _Ask:
        """Statements are prepared, but not behind a pooler, where the session changes."""
        prepares = getattr(connection, "durable_state_prepares", None)
        if prepares is None:
            for kind, dumper in _DUMPERS.items():
                connection.adapters.register_dumper(kind, dumper)
            ask = _Ask(self._connections, connection, until, False)
            pid = (await ask("SELECT pg_backend_pid()", ()))[0][0]
            prepares = pid == connection.info.backend_pid
            if prepares and self._connections.own:
                # Planning `commit` anew each time takes longer than running it (0.7 of 1.25 ms).
                await ask("SET plan_cache_mode = force_generic_plan", ())
                # A thread that somebody else has locked must not use up the deadline of others.
                await ask(f"SET lock_timeout = {round(self._timeout * 500)}", ())
            connection.durable_state_prepares = prepares
        return _Ask(self._connections, connection, until, prepares)


def has_rows(result: Any) -> bool:
    """Whether a statement returned rows (`Cursor.description` would build a column of each)."""
    return result is not None and result.nfields > 0


class _Ask:
    """Runs statements on one connection until a deadline."""

    def __init__(
        self, connections: Connections, connection: Any, until: float, prepares: bool
    ) -> None:
        self._ask = connections.ask
        self._connection = connection
        self._until = until
        self._prepares = prepares

    async def __call__(self, sql: str, params: Sequence[object] | None = None) -> Rows:
        prepare = self._prepares and params is not None
        return await self._ask(self._connection, sql, params, prepare, self._until)


def bounded(gen: Generator[Any, Any, T], until: float) -> Generator[Any, Any, T]:
    """`gen`, a protocol step of psycopg's, given up once the clock passes `until`.

    psycopg sends an empty readiness every 0.1 s while the socket is silent, on either face.

    Raises:
        DeadlineError: if the server was silent for too long.
    """
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise DeadlineError("the server did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def is_dead(connection: Any, error: BaseException) -> bool:
    """Whether the connection, rather than the statement, failed."""
    dead = (
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.ReadOnlySqlTransaction,  # a primary that was demoted under us
        errors.InvalidSqlStatementName,  # somebody discarded what this session had prepared
    )
    return bool(connection.closed) or isinstance(error, dead)


def is_race(error: BaseException) -> bool:
    """Whether trying the same statement again is the remedy."""
    return isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected))


def translated(error: Exception) -> Exception:
    """The error of this library for one of psycopg's."""
    if isinstance(error, errors.NotNullViolation) and error.diag.table_name == "chunk":
        return NumberTakenError()
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName)):
        return UsageError(
            "the tables are not installed: call setup(), or have an administrator run what "
            f"`durable-state ddl` prints ({error})"
        )
    if isinstance(error, _MISUSE):
        return UsageError(str(error))
    connecting = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    if connecting and any(words in str(error) for words in _HOPELESS):
        return UsageError(f"Postgres: {error}")
    kinds = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
    if isinstance(error, kinds):
        return UnavailableError("postgres", str(error) or type(error).__name__)
    if isinstance(error, psycopg.Error):
        return DurableStateError(f"Postgres: {error}")
    return error


_HOPELESS = ("authentication failed", "does not exist", "no pg_hba.conf entry")
"""In libpq's words, which carry no code while a connection is made: trying again is no use."""

_BUSY = (OverloadError, errors.LockNotAvailable, errors.QueryCanceled)
"""Postgres is there and answers, only not this: other threads need not be refused."""


_MISUSE = (
    errors.InsufficientPrivilege,
    errors.InvalidAuthorizationSpecification,
    errors.InvalidCatalogName,
    errors.InvalidPassword,
)


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Array) -> bytes:
        return obj.data


def _dumper(kind: type[Array]) -> type[Dumper]:
    return type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": kind.oid})


_DUMPERS = {kind: _dumper(kind) for kind in KINDS}
