"""Builders for the tests of known failures, and the two faces and three states of the tiers they
run under."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import psycopg
import redis
from langgraph.checkpoint.base import empty_checkpoint

from langgraph_durable_state import DurableSaver, UnavailableError
from tests.servers import wait_until

FACES = ["native", "blocking"]

TIERS = ["hot", "durable", "flushed"]
"""Who answers a fresh reader: Redis; Postgres; Postgres after Redis was emptied."""

TABLES = ("thread", "head", "checkpoint", "chunk", "write")


class Face:
    """Shows a saver or a graph through one of its faces, every method to be awaited.

    The blocking one's methods run in a thread each, so that several can be at work at once.
    `list` and `get_state_history` give lists.
    """

    def __init__(self, name: str) -> None:
        self.native = name == "native"

    def __call__(self, target: Any) -> Any:
        return _Seen(target, self.native)


class _Seen:
    def __init__(self, target: Any, native: bool) -> None:
        self.target = target
        self._native = native

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.target, f"a{name}" if self._native else name)
        if name in ("list", "get_state_history"):
            return _collected_natively(method) if self._native else _collected_in_thread(method)
        return method if self._native else _in_thread(method)


def _in_thread(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(method, *args, **options)

    return call


def _collected_in_thread(method: Callable[..., Any]) -> Callable[..., Awaitable[list[Any]]]:
    async def call(*args: Any, **options: Any) -> list[Any]:
        return await asyncio.to_thread(lambda: list(method(*args, **options)))

    return call


def _collected_natively(method: Callable[..., Any]) -> Callable[..., Awaitable[list[Any]]]:
    async def call(*args: Any, **options: Any) -> list[Any]:
        return [found async for found in method(*args, **options)]

    return call


class Store:
    """One database of each server, and savers over them.

    Args:
        tier: one of `TIERS`: who answers a `reader()`.
    """

    def __init__(
        self, postgres_url: str, redis_url: str, face: Face, tier: str, ends: AsyncExitStack
    ) -> None:
        self.postgres_url = postgres_url
        self.redis_url = redis_url
        self.face = face
        self.tier = tier
        self.options: dict[str, Any] = {}
        """Of every saver."""
        self._ends = ends

    def open(self, kind: type[DurableSaver] = DurableSaver, **options: Any) -> DurableSaver:
        """A fresh saver that keeps every head in Redis, closed after the test."""
        options = {"hot_reads": "always"} | self.options | options
        saver = kind(self.postgres_url, self.redis_url, **options)
        self._ends.push_async_callback(saver.aclose)
        return saver

    def saver(self, **options: Any) -> Any:
        """A fresh saver on this store's face."""
        return self.face(self.open(**options))

    def reader(self, **options: Any) -> Any:
        """A fresh saver, with nothing cached, that this store's tier answers."""
        return self.face(self.open_reader(**options))

    def open_reader(self, **options: Any) -> DurableSaver:
        """The saver of a `reader()`."""
        if self.tier == "flushed":
            self.flush_redis()
        hot_reads = "never" if self.tier == "durable" else "always"
        return self.open(hot_reads=hot_reads, **options)

    def readers(self) -> Iterator[Any]:
        """A fresh saver that Redis answers, one that Postgres answers, and one after a flush."""
        for self.tier in TIERS:
            yield self.reader()

    def flush_redis(self) -> None:
        """Empty Redis, once it holds nothing alone."""
        if self.options.get("write_policy") == "write_behind":
            marked = "SELECT 1 FROM durable_state.head WHERE ahead IS NOT NULL"
            wait_until(lambda: not self.query(marked), "the end of what Redis is ahead in")
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushdb()

    def keys(self) -> set[bytes]:
        """The keys in Redis."""
        with redis.Redis.from_url(self.redis_url) as client:
            return set(client.keys())  # type: ignore[arg-type]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        return query(self.postgres_url, statement)

    def counts(self) -> dict[str, int]:
        """Rows per table."""
        return {
            table: self.query(f"SELECT count(*) FROM durable_state.{table}")[0][0]
            for table in TABLES
        }


async def close_anyway(saver: DurableSaver) -> None:
    """Closes a saver whose servers may be gone already, with what was not flushed yet."""
    with suppress(UnavailableError):
        await saver.aclose()


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """The rows of one statement."""
    with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def at(thread_id: Any = "t", ns: str = "", id: str | None = None) -> dict[str, Any]:
    """The config of a thread, or of one checkpoint of it."""
    named = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": named | ({"checkpoint_id": id} if id else {})}


def cp(
    values: Mapping[str, Any],
    id: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> Any:
    """A checkpoint with these channel values, and `versions` of them (`"1"` unless told)."""
    made = empty_checkpoint()
    made["id"] = id or made["id"]
    made["channel_values"] = dict(values)
    made["channel_versions"] = dict.fromkeys(values, "1") | dict(versions or {})
    return made


async def put(
    saver: Any,
    config: Any,
    checkpoint: Any,
    metadata: Mapping[str, Any] | None = None,
    new: Mapping[str, str] | None = None,
) -> Any:
    """Puts a checkpoint, all of whose channels are new unless told."""
    new = checkpoint["channel_versions"] if new is None else new
    metadata = {"source": "loop", "step": 0} if metadata is None else dict(metadata)
    return await saver.put(config, checkpoint, metadata, dict(new))


async def chain(saver: Any, values: list[Mapping[str, Any]], thread_id: str = "t") -> list[Any]:
    """One checkpoint after the other, each of whose values are new; their configs."""
    configs: list[Any] = []
    for step, now in enumerate(values):
        versions = dict.fromkeys(now, f"{step + 1}")
        parent = configs[-1] if configs else at(thread_id)
        meta = {"source": "loop", "step": step}
        configs.append(await put(saver, parent, cp(now, versions=versions), meta))
    return configs


def values_of(found: Any) -> Any:
    """The channel values of a checkpoint tuple, which must be there."""
    assert found is not None
    return found.checkpoint["channel_values"]


def id_of(config: Any) -> str:
    """The checkpoint id in a config."""
    return config["configurable"]["checkpoint_id"]  # type: ignore[no-any-return]


def ids_of(found: list[Any]) -> list[str]:
    """The checkpoint ids of tuples."""
    return [id_of(each.config) for each in found]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Returns once `holds()` does; the test's own deadline ends what never does."""
    while True:
        if await holds():
            return
        await asyncio.sleep(0.01)


async def until_served(call: Callable[[], Awaitable[Any]]) -> Any:
    """What `call` returns once its tier, which was restored, is tried again."""
    while True:
        try:
            return await call()
        except UnavailableError:
            await asyncio.sleep(0.02)


def grown(items: list[Any] | None, more: Any) -> list[Any]:
    """A reducer of a plain channel: appends."""
    return [*(items or []), *more]


def replayed(items: list[Any], batches: Any) -> list[Any]:
    """A reducer of a DeltaChannel: appends each batch."""
    return [*items, *(item for batch in batches for item in batch)]


@dataclasses.dataclass
class Late:
    """A dataclass one of whose fields its constructor does not take."""

    name: str
    total: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Unset:
    """A dataclass one of whose fields is missing until somebody sets it."""

    name: str
    total: int = dataclasses.field(init=False)


@dataclasses.dataclass(frozen=True)
class Derived:
    """A frozen dataclass that works out a field by itself."""

    name: str
    size: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.name))


@dataclasses.dataclass
class Plain:
    """An ordinary dataclass."""

    name: str
    part: Any = None
