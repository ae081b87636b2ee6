"""Pools and clients for either face, from a URL or from what the user hands over."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import psycopg
import redis
import redis.asyncio
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from ..errors import UsageError
from ..settings import Settings
from .sql import Failures

PostgresSource = str | ConnectionPool[Any] | AsyncConnectionPool[Any]
RedisSource = str | redis.Redis | redis.asyncio.Redis

_REDIS_CONNECTIONS = 32
"""A bound that waits: redis-py's default pool fails at 64 concurrent threads."""

_STALE = (RedisConnectionError,)
"""What is tried again, once and at once: the connection was from before a restart. A time-out is
not, or a call would take several."""

_POOL = "durable_state"


def _is_not_ours(record: logging.LogRecord) -> bool:
    """The breaker says once what a pool would say of each connection and each attempt."""
    about = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return about != _POOL and not hasattr(about, "durable_state_own")


logging.getLogger("psycopg.pool").addFilter(_is_not_ours)

_COPIED = ("host", "port", "db", "username", "password", "path")


def check_sources(postgres: object, redis_: object) -> None:
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
            psycopg.conninfo.conninfo_to_dict(postgres)
        except psycopg.ProgrammingError:
            # libpq quotes the whole URL, which may hold a password.
            raise UsageError(
                "postgres must be a URL like postgresql://user@host/database (not SQLAlchemy's "
                "postgresql+psycopg://) or a conninfo string like host=… dbname=…"
            ) from None
    if redis_ is None:
        return
    if not isinstance(redis_, (str, redis.Redis, redis.asyncio.Redis)):
        raise UsageError(f"redis must be a URL or a redis client, not {type(redis_).__name__}")
    if isinstance(redis_, str):
        try:
            redis.ConnectionPool.from_url(redis_)
        except ValueError as error:
            raise UsageError(f"redis URL: {error}") from error
    elif redis_.connection_pool.connection_kwargs.get("decode_responses"):
        raise UsageError("the redis client must not decode responses: state is bytes")


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
                return super().connect(*args, **kwargs)
            except Exception as error:
                failures.note(error)
                raise

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
                return await super().connect(*args, **kwargs)
            except Exception as error:
                failures.note(error)
                raise

    return AsyncConnectionPool(**_options(source, settings, DurableStateConnection)), True


def _options(source: PostgresSource | Elsewhere, settings: Settings, kind: type) -> dict[str, Any]:
    conninfo, kwargs = _conninfo(source)
    limits = {
        "connect_timeout": max(2, round(settings.timeout)),
        "autocommit": True,
        "fallback_application_name": "langgraph_durable_state",
    }
    return {
        "conninfo": conninfo,
        "kwargs": limits | kwargs,
        "connection_class": kind,
        "min_size": 0,
        # Or a pool tries again by itself after 1, 2, 4, 8, … seconds, and no call makes it sooner:
        # after an outage of 40 s Postgres was not used for 18 s more.
        "reconnect_timeout": 0.0,
        "max_size": settings.pool_size,
        "open": False,
        "name": _POOL,
    }


@dataclass(frozen=True)
class Elsewhere:
    """A pool or client that serves another loop: only where it connects to is taken from it."""

    source: Any


def elsewhere(source: Any) -> Any:
    """`source` for a loop that it does not belong to."""
    native = (AsyncConnectionPool, redis.asyncio.Redis)
    return Elsewhere(source) if isinstance(source, native) else source


def _conninfo(source: PostgresSource | Elsewhere) -> tuple[Any, dict[str, Any]]:
    source = source.source if isinstance(source, Elsewhere) else source
    if isinstance(source, str):
        return source, {}
    kwargs = source.kwargs
    return source.conninfo, dict(kwargs) if isinstance(kwargs, dict) else {}


def blocking_redis(source: RedisSource, settings: Settings) -> tuple[redis.Redis, bool]:
    """A client for the blocking face, and whether it is ours to close."""
    if isinstance(source, redis.Redis):
        return source, False
    options = _redis_options(settings) | {"retry": Retry(NoBackoff(), 1, _STALE)}
    if isinstance(source, str):
        pool = redis.BlockingConnectionPool.from_url(source, **options)
    else:
        kind: Any = redis.BlockingConnectionPool
        pool = kind(**_copied(source, redis), **options)
    return redis.Redis(connection_pool=pool), True


def native_redis(
    source: RedisSource | Elsewhere, settings: Settings
) -> tuple[redis.asyncio.Redis, bool]:
    """A client for the running loop, and whether it is ours to close."""
    if isinstance(source, redis.asyncio.Redis):
        return source, False
    options = _redis_options(settings) | {"retry": AsyncRetry(NoBackoff(), 1, _STALE)}
    if isinstance(source, str):
        pool = redis.asyncio.BlockingConnectionPool.from_url(source, **options)
    else:
        pool = redis.asyncio.BlockingConnectionPool(**_copied(source, redis.asyncio), **options)
    return redis.asyncio.Redis(connection_pool=pool), True


def _redis_options(settings: Settings) -> dict[str, Any]:
    return {
        "socket_timeout": settings.redis_timeout,
        "socket_connect_timeout": settings.redis_timeout,
        "timeout": settings.redis_timeout,
        "max_connections": _REDIS_CONNECTIONS,
    }


def _copied(source: redis.Redis | redis.asyncio.Redis | Elsewhere, module: Any) -> dict[str, Any]:
    """Where and as whom a client of the other face, or of another loop, connects."""
    source = source.source if isinstance(source, Elsewhere) else source
    pool = source.connection_pool
    known = pool.connection_kwargs
    copied = {name: known[name] for name in _COPIED if name in known}
    kind = pool.connection_class.__name__
    copied |= {name: value for name, value in known.items() if name.startswith("ssl_")}
    return copied | {"connection_class": getattr(module, kind, module.Connection)}
