"""Pools and clients for either face, from a URL or from what the user hands over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import redis
import redis.asyncio
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from ..errors import UsageError
from ..settings import Settings
from . import redis_clients
from .sql import Failures

PostgresSource = str | ConnectionPool[Any] | AsyncConnectionPool[Any]
RedisSource = redis_clients.RedisSource

_POOL = "durable_state"


def _is_not_ours(record: logging.LogRecord) -> bool:
    """The breaker says once what a pool would say of each connection and each attempt."""
    about = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return about != _POOL and not hasattr(about, "durable_state_own")


logging.getLogger("psycopg.pool").addFilter(_is_not_ours)


def check_sources(postgres: object, redis_: object, waits_for_disk: bool = False) -> None:
    """Refuses what no driver can be made from.

    Raises:
        UsageError: if an argument is of another kind than documented.
    """
    if not isinstance(postgres, (str, ConnectionPool, AsyncConnectionPool)):
        raise UsageError(
            f"postgres must be a URL or a psycopg_pool pool, not {type(postgres).__name__}"
        )
    if isinstance(postgres, str):
        try:
            conninfo_to_dict(postgres)
        except psycopg.ProgrammingError:
            # libpq quotes the whole URL, which may hold a password.
            raise UsageError(
                "postgres must be a URL like postgresql://user@host/database (not SQLAlchemy's "
                "postgresql+psycopg://) or a conninfo string like host=… dbname=…"
            ) from None
    if redis_ is not None:
        redis_clients.check(redis_)
    if waits_for_disk and redis_clients.is_cluster(redis_):
        raise UsageError(
            "wait_aof cannot be had on a Redis Cluster: redis-py sends no WAITAOF there"
        )


def blocking_pool(
    source: PostgresSource, settings: Settings, failures: Failures
) -> tuple[ConnectionPool[Any], bool]:
    """A pool for the blocking face, and whether it is ours to close."""
    if isinstance(source, ConnectionPool):
        return source, False

    class DurableStateConnection(psycopg.Connection[Any]):
        durable_state_own = True

        @classmethod
        def connect(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                connection = super().connect(*args, **kwargs)
            except Exception as error:
                failures.note(error)
                raise
            connection.durable_state_answered = time.monotonic()  # type: ignore[attr-defined]
            return connection

    return ConnectionPool(**_options(source, settings, DurableStateConnection)), True


def native_pool(
    source: PostgresSource | Elsewhere, settings: Settings, failures: Failures
) -> tuple[AsyncConnectionPool[Any], bool]:
    """A pool for the running loop, and whether it is ours to close.

    It starts empty: one left open with a connection hangs the end of `asyncio.run`.
    """
    if isinstance(source, AsyncConnectionPool):
        return source, False

    class DurableStateConnection(psycopg.AsyncConnection[Any]):
        durable_state_own = True

        @classmethod
        async def connect(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                connection = await super().connect(*args, **kwargs)
            except Exception as error:
                failures.note(error)
                raise
            connection.durable_state_answered = time.monotonic()  # type: ignore[attr-defined]
            return connection

    return AsyncConnectionPool(**_options(source, settings, DurableStateConnection)), True


def _options(source: PostgresSource | Elsewhere, settings: Settings, kind: type) -> dict[str, Any]:
    conninfo, kwargs = _conninfo(source)
    named = kwargs if callable(conninfo) else conninfo_to_dict(conninfo, **kwargs)
    hosts = str(named.get("host") or named.get("hostaddr") or "").split(",")
    limits: dict[str, Any] = {
        # Of one attempt, and each host is one: a first host that is silent must leave time for
        # the next. psycopg waits 2 s at least.
        "connect_timeout": max(2, int(settings.timeout / len(hosts))),
        "autocommit": True,
        "fallback_application_name": "langgraph_durable_state",
    }
    if len(hosts) > 1 and "target_session_attrs" not in named:
        limits["target_session_attrs"] = "read-write"
    return {
        "conninfo": conninfo,
        "kwargs": limits | kwargs,
        "connection_class": kind,
        "min_size": 0,
        "max_size": settings.pool_size,
        # The pool's own back-off goes on growing while the breaker probes: half a minute after
        # Postgres had come back it still waited (measured). Calls open what they need.
        "reconnect_timeout": 0.0,
        "open": False,
        "name": _POOL,
    }


@dataclass(frozen=True)
class Elsewhere:
    """A pool or client that serves another loop: only where it connects to is taken from it."""

    source: Any


def elsewhere(source: Any) -> Any:
    """`source` for a loop that it does not belong to."""
    native = (AsyncConnectionPool, *redis_clients.NATIVE)
    return Elsewhere(source) if isinstance(source, native) else source


def _conninfo(source: PostgresSource | Elsewhere) -> tuple[Any, dict[str, Any]]:
    source = source.source if isinstance(source, Elsewhere) else source
    if isinstance(source, str):
        return source, {}
    kwargs = source.kwargs
    return source.conninfo, dict(kwargs) if isinstance(kwargs, dict) else {}


def blocking_redis(source: RedisSource, settings: Settings) -> tuple[Callable[[], Any], bool, int]:
    """What makes clients for the blocking face, whether they are ours to close, and how many calls
    one takes at once."""
    return _redis(source, redis_clients.BLOCKING, redis, settings)


def native_redis(
    source: RedisSource | Elsewhere, settings: Settings
) -> tuple[Callable[[], Any], bool, int]:
    """What makes clients for the running loop, whether they are ours to close, and how many calls
    one takes at once."""
    return _redis(source, redis_clients.NATIVE, redis.asyncio, settings)


def _redis(
    source: RedisSource | Elsewhere, kinds: tuple[type, ...], module: Any, settings: Settings
) -> tuple[Callable[[], Any], bool, int]:
    if isinstance(source, kinds):
        return (lambda: source), False, redis_clients.TURNS
    target = redis_clients.target_of(source.source if isinstance(source, Elsewhere) else source)
    return (lambda: target.client(module, settings.redis_timeout)), True, target.turns
