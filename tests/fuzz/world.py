"""Threads of several shapes in both tiers, what reading them gives, and both put back as they were.

The ids and values are always the same; only the chunks' numbers and what comes from clocks differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import psycopg
import redis
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt

from langgraph_durable_state import DurableSaver, DurableStateError
from tests.contract.superstep import superstep, with_id

KEYS = {
    "thread": ("tk",),
    "head": ("tk", "ns"),
    "checkpoint": ("tk", "ns", "id"),
    "chunk": ("tk", "digest", "no"),
    "write": ("tk", "ns", "id", "task", "slot"),
    "data_key": ("id",),
}
"""The tables and what their rows are told apart by; chunks by content, since numbers are drawn."""

_TAKE_OUT = """DELETE FROM durable_state.{table} d
  WHERE NOT EXISTS (SELECT FROM kept.{table} k WHERE k IS NOT DISTINCT FROM d)"""
_PUT_BACK = """INSERT INTO durable_state.{table} SELECT k.* FROM kept.{table} k
  WHERE NOT EXISTS (SELECT FROM durable_state.{table} d WHERE d IS NOT DISTINCT FROM k)"""

PLACES = [("", "a", ""), ("", "a", "sub:1"), ("", "b", ""), ("acme", "a", "")]
"""Tenant, thread and namespace."""


def config(place: tuple[str, str, str], id: str | None = None) -> Any:
    tenant, thread, ns = place
    named = {"thread_id": thread, "checkpoint_ns": ns} | ({"tenant_id": tenant} if tenant else {})
    return {"configurable": named | ({"checkpoint_id": id} if id else {})}


SERDE = JsonPlusSerializer()

Guard = Literal["plain", "signed", "encrypted"]
"""What the digests are made under: nothing, an integrity key, or data keys."""

_KEYS: dict[Guard, dict[str, Any]] = {
    "plain": {},
    "signed": {"integrity_key": b"i" * 32},
    "encrypted": {"encryption_key": b"e" * 32},
}

NOTHING = "an empty history"
"""Of a thread that is not there."""


def shown(found: Any) -> str:
    """All that a reader sees of a checkpoint but its writes, as a text that differs where it does.

    The serializer's bytes tell classes, fields and order, and are made faster than any `repr`.
    """
    seen = (found.config, found.checkpoint, found.metadata, found.parent_config)
    return f"{found.checkpoint['id']} {hashlib.sha256(SERDE.dumps_typed(seen)[1]).hexdigest()}"


def writes_shown(found: Any) -> list[str]:
    writes = found.pending_writes or ()
    return sorted(
        f"{task} {name} {hashlib.sha256(SERDE.dumps_typed(value)[1]).hexdigest()}"
        for task, name, value in writes
    )


@dataclass(frozen=True)
class Answer:
    """What one read gave: an error, or checkpoints in order with their pending writes."""

    error: str | None = None
    crash: BaseException | None = None
    found: tuple[tuple[str, tuple[str, ...]], ...] = ()


def asked(read: Callable[[], Any]) -> Answer:
    try:
        found = read()
    except DurableStateError as error:
        return Answer(error=f"{type(error).__name__}: {error}")
    except Exception as error:
        return Answer(crash=error)
    if isinstance(found, str):
        return Answer(found=((found, ()),))
    every = found if isinstance(found, list) else [] if found is None else [found]
    try:
        return Answer(found=tuple((shown(f), tuple(writes_shown(f))) for f in every))
    except Exception as error:
        return Answer(crash=error)


def _listed(saver: DurableSaver, where: Any) -> list[Any]:
    return list(saver.list(where))


def _replayed(saver: DurableSaver, where: Any) -> str:
    found = saver.get_delta_channel_history(config=where, channels=["messages", "never"])
    if all(history == {"writes": []} for history in found.values()):
        return NOTHING
    return f"history {hashlib.sha256(SERDE.dumps_typed(dict(found))[1]).hexdigest()}"


def message(n: int) -> Any:
    kind = HumanMessage if n % 2 else AIMessage
    return kind(f"message {n} " + "word " * 40, id=f"m{n}")


@dataclass
class World:
    """Both tiers, filled once.

    Args:
        postgres_url, redis_url: empty databases.
        behind: leave the newest of each thread in Redis, not flushed yet.
        guard: how all of it is stored, and read.
    """

    postgres_url: str
    redis_url: str
    behind: bool = False
    guard: Guard = "plain"
    keys: dict[bytes, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.redis = redis.Redis.from_url(self.redis_url)
        self.sql = psycopg.connect(self.postgres_url, autocommit=True)
        with self.saver() as saver:
            for n, place in enumerate(PLACES):
                self._fill(saver, place, n)
        if self.behind:
            # It ends as a killed process would: nothing of this is flushed.
            late = self.saver(write_policy="write_behind")
            late._faces.background.start = lambda: None  # type: ignore[method-assign]
            for place in PLACES:
                self._follow(late, place)
        self.keep()

    def saver(self, **options: Any) -> DurableSaver:
        """A saver that holds nothing between two calls."""
        # What is served in the place of what is damaged would be told, but is not what was put.
        strict = {"on_corrupt": "raise", "hot_reads": "always", "head_cache_bytes": 0}
        options = strict | _KEYS[self.guard] | options
        return DurableSaver(self.postgres_url, self.redis_url, **options)

    def _fill(self, saver: DurableSaver, place: tuple[str, str, str], n: int) -> None:
        """A chat of a few steps with a fork, writes that were consumed and others that wait."""
        _, thread, ns = place
        before: Any = None
        options = {"thread": thread, "ns": ns}
        for step in range(3):
            values: dict[str, Any] = {
                "messages": [message(i) for i in range(2 * step + 4 + n)],
                "n": step,
                "text": f"{n} {step} " + "t" * 900,
                "files": {f"f{i}": f"{i} {step if i == step else 0} " * 40 for i in range(6)},
            }
            metadata = {"source": "loop", "step": step, "colour": "red", "run_id": f"run-{step}"}
            put = superstep(saver, before, f"{step:04}", values, metadata=metadata, **options)
            saver.put(self._owned(put[0], place, before), *put[1:])
            here = self._owned(with_id(put[0], f"{step:04}"), place, before)
            saver.put_writes(here, [("messages", [message(90 + step)]), ("n", step + 1)], "task-1")
            saver.put_writes(here, [("text", "w" * 800)], "task-2", "~path")
            before = saver.get_tuple(config(place))
        saver.put_writes(here, [("__interrupt__", [Interrupt("sure?", id="i")])], "task-3")
        saver.put_writes(here, [("__resume__", "yes")], "task-3")
        old = saver.get_tuple(config(place, "0001"))
        fork = superstep(saver, old, "0001-fork", {"n": 77}, **options)
        saver.put(fork[0] | {}, *fork[1:])
        head = superstep(saver, saver.get_tuple(config(place, "0002")), "0003", {"n": 5}, **options)
        saver.put(head[0], *head[1:])
        saver.put_writes(config(place, "0003"), [("text", "pending " * 60)], "task-9")

    def _follow(self, saver: DurableSaver, place: tuple[str, str, str]) -> None:
        for id in ("0004", "0005"):
            before = saver.get_tuple(config(place))
            assert before is not None
            held = before.checkpoint["channel_values"]["messages"]
            values = {"messages": [*held, message(int(id))], "n": int(id)}
            put = superstep(saver, before, id, values, thread=place[1], ns=place[2])
            saver.put(*put)
            here = with_id(put[0], id)
            saver.put_writes(here, [("text", f"hot {id} " + "h" * 500)], "task-h")

    @staticmethod
    def _owned(where: Any, place: tuple[str, str, str], before: Any) -> Any:
        tenant = {"tenant_id": place[0]} if place[0] else {}
        return {"configurable": {**where["configurable"], **tenant}}

    # -- reading ---------------------------------------------------------------------------------

    def reads(self, saver: DurableSaver) -> dict[str, Callable[[], Any]]:
        """Every way in, by name."""
        found: dict[str, Callable[[], Any]] = {}
        for place in PLACES:
            name = "/".join(place)
            found[f"head {name}"] = partial(saver.get_tuple, config(place))
            for id in ("0000", "0001", "0003", "0001-fork"):
                found[f"{id} {name}"] = partial(saver.get_tuple, config(place, id))
            found[f"history {name}"] = partial(_replayed, saver, config(place, "0003"))
        for tenant, thread in (("", "a"), ("", "b"), ("acme", "a")):
            where = config((tenant, thread, ""))
            del where["configurable"]["checkpoint_ns"]
            found[f"list {tenant}/{thread}"] = partial(_listed, saver, where)
        found["list all"] = partial(_listed, saver, None)
        return found

    # -- as it was -------------------------------------------------------------------------------

    def keep(self) -> None:
        """What is there now is what `restore` brings back."""
        self.sql.execute("CREATE SCHEMA IF NOT EXISTS kept")
        for table in KEYS:
            self.sql.execute(f"DROP TABLE IF EXISTS kept.{table}".encode())
            self.sql.execute(f"CREATE TABLE kept.{table} AS TABLE durable_state.{table}".encode())
        self.keys = {key: self.redis.dump(key) for key in self.redis.scan_iter()}  # type: ignore[misc]

    def restore(self) -> None:
        """Puts both tiers back as they were kept; what is as it was is not touched."""
        with self.sql.transaction():
            for table in KEYS:
                self.sql.execute(_TAKE_OUT.format(table=table).encode())
                self.sql.execute(_PUT_BACK.format(table=table).encode())
        there = set(self.redis.scan_iter())  # type: ignore[arg-type]
        changed = [key for key, dump in self.keys.items() if self.redis.dump(key) != dump]
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.delete(*(there - self.keys.keys()), "nothing")
            for key in changed:
                pipe.restore(key, 0, self.keys[key], replace=True)  # type: ignore[arg-type]
            pipe.execute()

    def close(self) -> None:
        self.sql.close()
        self.redis.close()
