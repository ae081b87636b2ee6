"""`Sql`, written once over the few verbs that differ between the faces.

Here stand the rules for deadlines, dead connections, races and errors. The blocking verbs never
suspend.
"""

from __future__ import annotations

import random
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
from .probing import PROBE_SECONDS, Aside, probe_aside

T = TypeVar("T")
Rows = list[tuple[Any, ...]]

RETRIES_ON_RACE = 5
"""Serialization failures and deadlocks are tried again; they are possible only under another
isolation level than Postgres's default, or beside other users of the tables."""

_RACE_PAUSE = 0.01
_DEAD_PAUSE = 0.1
"""Seconds at most before another try: after a race, twice as long after each further one; after
more dead connections than a pool can have held. Drawn at random, so that those who met do not meet
again."""
STANDBYS = 3
"""New sessions that may be a standby's before there is taken to be no primary: where a pool or a
pooler shares them out among servers, the next one may be the primary's."""


class DeadlineError(psycopg.OperationalError):
    """The server did not answer in time."""


class StandbyError(psycopg.OperationalError):
    """A read reached a standby, which may be behind."""


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

    `own` tells whether its sessions are used for nothing else, `most` how many there can be.
    """

    own: bool

    @property
    def most(self) -> int: ...

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
        aside: what the face does beside calls.
        is_installed: whether the tables are there, as far as the saver knows.
    """

    def __init__(
        self,
        connections: Connections,
        schema: str,
        timeout: float,
        breaker: Breaker,
        aside: Aside,
        is_installed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connections = connections
        self._queries = queries(schema)
        self._timeout = timeout
        self._breaker = breaker
        self._aside = aside
        self._is_installed = is_installed
        # Sessions that have not answered since then may be as dead as the one that fell silent:
        # tried one after the other, each would cost a call its deadline.
        self._silent_since = 0.0

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

    async def ping(self) -> None:
        await self._guarded(self._answers)

    async def _answers(self, ask: _Ask) -> None:
        if not (await ask(self._queries["ping"], ()))[0][0]:
            raise errors.ReadOnlySqlTransaction("it takes no writes now")

    async def _probe(self) -> None:
        try:
            await self._told(self._answers, min(self._timeout, PROBE_SECONDS))
        except DurableStateError:
            pass  # the breaker knows

    async def _guarded(self, work: Callable[[_Ask], Awaitable[T]]) -> T:
        """`work` on a connection, unless Postgres failed a moment ago."""
        if not self._breaker.admits():
            raise UnavailableError("postgres", self._breaker.refusal(), sent=False)
        return await self._told(work, self._timeout)

    async def _told(self, work: Callable[[_Ask], Awaitable[T]], timeout: float) -> T:
        """`work` on a connection; the breaker is told how it went."""
        try:
            result = await self._persist(work, time.monotonic() + timeout)
        except Exception as error:
            known = translated(error)
            if isinstance(error, OverloadError):
                pass  # Postgres was not asked
            elif isinstance(known, UnavailableError) and not isinstance(error, _BUSY):
                if self._breaker.failed(error):
                    probe_aside(self._breaker, self._aside, self._probe)
            else:
                self._breaker.succeeded()
            if isinstance(error, _ABSENT) and not self._is_installed():
                # Postgres was down when they were to be, and came back amid this call.
                known = UnavailableError("postgres", "its tables are installed by the next call")
            if known is error:
                raise
            raise known from error
        self._breaker.succeeded()
        return result

    async def _persist(self, work: Callable[[_Ask], Awaitable[T]], until: float) -> T:
        """`work` on a connection; again on another while connections turn out to be dead."""
        races = dead = standbys = 0
        while True:
            connection = await self._connections.borrow(max(until - time.monotonic(), 0.01))
            new = not hasattr(connection, "durable_state_prepares")
            try:
                if getattr(connection, "durable_state_answered", until) < self._silent_since:
                    await self._connections.close_one(connection)
                    continue
                result = await work(await self._asker(connection, until))
                connection.durable_state_answered = time.monotonic()
                return result
            except Exception as error:
                if isinstance(error, DeadlineError):
                    self._silent_since = until - self._timeout
                    await self._connections.close_one(connection)
                    raise
                standbys += new and isinstance(error, _STANDBY)
                if is_dead(connection, error):
                    dead += 1
                    await self._connections.close_one(connection)
                elif is_race(error) and races < RETRIES_ON_RACE:
                    races += 1
                else:
                    raise
                if standbys >= STANDBYS or time.monotonic() > until:
                    raise
            finally:
                await self._connections.give_back(connection)
            if pause := self._pause(races, dead):
                await self._aside.pause(pause)

    def _pause(self, races: int, dead: int) -> float:
        """Seconds to wait before the next try."""
        longest = _RACE_PAUSE * 2 ** (races - 1) if races else 0.0
        if dead > self._connections.most:
            longest = max(longest, _DEAD_PAUSE)
        return longest * random.random()

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
        try:
            return await self._ask(self._connection, sql, params, prepare, self._until)
        except errors.InvalidRowCountInResultOffsetClause as error:  # see `queries.sql`
            raise StandbyError("this server is a standby, which may be behind") from error


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
        errors.InvalidSqlStatementName,  # somebody discarded what this session had prepared
        *_STANDBY,
    )
    return bool(connection.closed) or isinstance(error, dead)


def is_race(error: BaseException) -> bool:
    """Whether trying the same statement again is the remedy."""
    return isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected))


def translated(error: Exception) -> Exception:
    """The error of this library for one of psycopg's."""
    if isinstance(error, errors.NotNullViolation) and error.diag.table_name == "chunk":
        return NumberTakenError()
    if isinstance(error, _ABSENT):
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


_ABSENT = (errors.UndefinedTable, errors.InvalidSchemaName)

_HOPELESS = ("authentication failed", "does not exist", "no pg_hba.conf entry")
"""In libpq's words, which carry no code while a connection is made: trying again is no use."""

_STANDBY = (StandbyError, errors.ReadOnlySqlTransaction)
"""What a standby says to a read, and to a write; a primary that was demoted under us, too."""

_BUSY = (errors.LockNotAvailable, errors.QueryCanceled)
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
