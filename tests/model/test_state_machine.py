"""Whatever LangGraph may ask in any order, against its own `InMemorySaver` as the model.

Differences that are on purpose, and therefore not compared: a task's first batch of ordinary
writes wins whole (the model keeps the first of each index); a filter tells True from 1, and an
explicit None from an absent key; metadata keeps its NUL characters. Ids grow within a namespace,
as LangGraph's do, so that the last put is the largest id as well.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.testing import World, memory_saver
from langgraph_durable_state.words import NULL_TASK_ID
from tests.contract.superstep import config, superstep

EXAMPLES = 250
"""On each store: 500 together."""

STEPS = 20

# -- values ----------------------------------------------------------------------------------

atoms = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | st.binary(max_size=12)
    | st.sampled_from(
        [
            "a\x00b",
            "\U0010ffff000000",
            "x" * 300,
            b"\x00" * 300,
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
            uuid.UUID(int=7),
        ]
    )
)
messages = st.builds(HumanMessage, st.text(max_size=200), id=st.none() | st.text(max_size=5)) | (
    st.builds(
        AIMessage,
        st.text(max_size=20),
        tool_calls=st.lists(
            st.builds(
                lambda name, arg: {"name": name, "args": {"x": arg}, "id": "1"},
                st.text(min_size=1, max_size=5),
                st.integers(0, 9),
            ),
            max_size=2,
        ),
    )
    | st.builds(ToolMessage, st.text(max_size=20), tool_call_id=st.just("1"))
)
nested = st.recursive(
    atoms | messages,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
CHANNELS = ["own", "other", "é\x00", "delta"]
channels = st.dictionaries(st.sampled_from(CHANNELS), nested, max_size=2)
metadata = st.fixed_dictionaries(
    {"source": st.sampled_from(["loop", "input"])},
    optional={"k": st.sampled_from([None, True, 1, "a\x00", [1, True]])},
)
threads = st.sampled_from(["t", "t", "t", "ü"])
namespaces = st.sampled_from(["", "", "sub:1"])
older = st.sampled_from([0, 0, 1, 2, 7])
"""How far back from the newest checkpoint, counted round where there are fewer."""
ordinary = st.lists(st.tuples(st.sampled_from(["delta", *CHANNELS]), atoms), max_size=3)
special = st.lists(
    st.tuples(st.sampled_from(["__interrupt__", "__resume__", "__error__"]), atoms), max_size=2
)

Place = tuple[str, str]


def same(a: Any, b: Any) -> bool:
    """Equality of JSON values: numbers by value, and True is not 1."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def plain(versions: dict[str, Any]) -> dict[str, str]:
    return {name: str(version) for name, version in versions.items()}


def shown(found: CheckpointTuple | None, metadata: Any = None) -> Any:
    """All of a tuple in one text, types included."""
    if found is None:
        return None
    body = dict(found.checkpoint)
    body["channel_versions"] = plain(found.checkpoint["channel_versions"])
    body["channel_values"] = sorted(found.checkpoint["channel_values"].items())
    named, parent = found.config["configurable"], found.parent_config
    return repr(
        (
            str(named["thread_id"]),
            named["checkpoint_ns"],
            named["checkpoint_id"],
            parent and parent["configurable"],
            sorted(body.items()),
            found.metadata if metadata is None else metadata,
            found.pending_writes,
        )
    )


# -- the machine -----------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Two savers, like two processes over the same stores, and one model."""

    def __init__(self, savers: tuple[DurableSaver, DurableSaver], prefix: str) -> None:
        super().__init__()
        self.savers = savers
        self.prefix = prefix
        self.model = InMemorySaver()
        self.ids = count(1)
        self.stored: dict[Place, list[str]] = {}
        self.ahead: dict[Place, str] = {}
        self.parents: set[tuple[Place, str]] = set()
        self.metadata: dict[tuple[Place, str], Any] = {}
        self.first: dict[tuple[Place, str, str], list[Any]] = {}

    def place(self, thread: str, ns: str) -> Place:
        return self.prefix + thread, ns

    # -- writing ---------------------------------------------------------------------------

    @initialize(ns=namespaces)
    def begin(self, ns: str) -> None:
        self.superstep(0, "t", ns)

    @rule(who=st.integers(0, 1), thread=threads, ns=namespaces)
    def superstep(self, who: int, thread: str, ns: str) -> None:
        """One more message from the head: what happens most."""
        self.put(who, thread, ns, {}, [], 1, 1000, {"source": "loop", "k": True}, None)

    @rule(
        who=st.integers(0, 1),
        thread=threads,
        ns=namespaces,
        values=channels,
        appended=st.lists(messages | atoms, max_size=2),
        many=st.sampled_from([0, 0, 1, 9, 70]),
        kept=st.sampled_from([1000, 1000, 1000, 3, 0]),
        metadata=metadata,
        fork=st.none() | st.none() | older,
    )
    def put(
        self,
        who: int,
        thread: str,
        ns: str,
        values: dict[str, Any],
        appended: list[Any],
        many: int,
        kept: int,
        metadata: dict[str, Any],
        fork: int | None,
    ) -> None:
        """A superstep from the head, or from an older checkpoint by its id."""
        place, saver = self.place(thread, ns), self.savers[who]
        old = self.stored.get(place, [])
        base = old[-1 - fork % len(old)] if fork is not None and old else None
        before = saver.get_tuple(config(place[0], base, ns))
        id = self.ahead.pop(place, None) or f"{next(self.ids):08d}"
        log = before.checkpoint["channel_values"].get("log", []) if before else []
        more = [HumanMessage(f"message {i} of {id}", id=f"{id}-{i}") for i in range(many)]
        values = {**values, "log": [*log[:kept], *appended, *more]}
        dropped = tuple({"delta"} - values.keys())
        where, checkpoint, _, new = superstep(
            saver, before, id, values, thread=place[0], ns=ns, dropped=dropped
        )
        note(f"{place} {id} after {base or 'the head'}")
        saver.put(where, checkpoint, metadata, new)  # type: ignore[arg-type]
        bare = {**checkpoint, "channel_versions": plain(checkpoint["channel_versions"])}
        bare["versions_seen"] = {k: plain(v) for k, v in checkpoint["versions_seen"].items()}
        parent = before.config["configurable"]["checkpoint_id"] if before else None
        self.model.put(config(place[0], parent, ns), bare, metadata, plain(new))
        self.stored.setdefault(place, []).append(id)
        self.metadata[place, id] = metadata
        if parent is not None:
            self.parents.add((place, parent))

    @rule(
        who=st.integers(0, 1),
        thread=threads,
        ns=namespaces,
        which=older | older | st.none(),
        task=st.sampled_from(["task 1", "task 1", "task 2", NULL_TASK_ID]),
        ordinary=ordinary,
        special=special,
    )
    def put_writes(
        self,
        who: int,
        thread: str,
        ns: str,
        which: int | None,
        task: str,
        ordinary: list[Any],
        special: list[Any],
    ) -> None:
        """A task's writes, against a checkpoint that is there or the next one that will be."""
        place, saver = self.place(thread, ns), self.savers[who]
        old = self.stored.get(place, [])
        if which is None or not old:
            id = self.ahead.setdefault(place, f"{next(self.ids):08d}")
        else:
            id = old[-1 - which % len(old)]
        key = (place, id, task)
        if (place, id) in self.parents:  # what its child consumed stays what it is
            ordinary = [w for w in ordinary if w[0] != "delta"]
            if key in self.first or task == NULL_TASK_ID:
                ordinary = []
        known = self.first.get(key)
        if task == NULL_TASK_ID:
            ordinary = [*(known or []), *ordinary]
        count = ordinary if known is None or task == NULL_TASK_ID else []
        if ordinary:
            self.first.setdefault(key, ordinary)
            if task == NULL_TASK_ID:
                self.first[key] = ordinary
        where = config(place[0], id, ns)
        note(f"{place} {id} {task}")
        saver.put_writes(where, [*ordinary, *special], task, f"~{task[-1]}")
        self.model.put_writes(where, [*count, *special], task, f"~{task[-1]}")

    @rule(
        who=st.integers(0, 1),
        thread=threads,
        ns=namespaces,
        task=st.sampled_from(["task 1", "task 2"]),
        ordinary=st.lists(st.lists(atoms, min_size=1, max_size=2), min_size=2, max_size=2),
    )
    def put_writes_of_two_tries(
        self, who: int, thread: str, ns: str, task: str, ordinary: list[list[Any]]
    ) -> None:
        """A task that ran twice, each time in another process, and whose answers may differ."""
        for i, values in enumerate(ordinary):
            writes = [("delta", value) for value in values]
            self.put_writes(who ^ i, thread, ns, 0, task, writes, [])

    @rule(who=st.integers(0, 1), thread=threads, sure=st.sampled_from([False, False, True]))
    def delete_thread(self, who: int, thread: str, sure: bool) -> None:
        if not sure:
            return
        name = self.prefix + thread
        self.savers[who].delete_thread(name)
        self.model.delete_thread(name)
        for notes in (self.stored, self.ahead):
            for place in [p for p in notes if p[0] == name]:
                del notes[place]
        self.parents = {p for p in self.parents if p[0][0] != name}
        self.first = {key: v for key, v in self.first.items() if key[0][0] != name}

    # -- reading ---------------------------------------------------------------------------

    def expected(self, found: CheckpointTuple | None) -> Any:
        if found is None:
            return None
        named = found.config["configurable"]
        place = named["thread_id"], named["checkpoint_ns"]
        return shown(found, self.metadata[place, named["checkpoint_id"]])

    @rule(who=st.integers(0, 1), thread=threads, ns=namespaces)
    def get_head(self, who: int, thread: str, ns: str) -> None:
        where = config(self.prefix + thread, None, ns)
        expected = self.expected(self.model.get_tuple(where))
        assert shown(self.savers[who].get_tuple(where)) == expected

    @rule(who=st.integers(0, 1), thread=threads, ns=namespaces, which=older)
    def get_by_id(self, who: int, thread: str, ns: str, which: int) -> None:
        place = self.place(thread, ns)
        known = [self.ahead.get(place, "none"), *self.stored.get(place, [])]
        where = config(place[0], known[-1 - which % len(known)], ns)
        expected = self.expected(self.model.get_tuple(where))
        assert shown(self.savers[who].get_tuple(where)) == expected

    @rule(
        who=st.integers(0, 1),
        thread=threads,
        ns=st.none() | namespaces,
        wanted=st.none() | metadata,
        before=st.none() | st.integers(1, 30),
        limit=st.none() | st.integers(0, 6),
    )
    def list(
        self,
        who: int,
        thread: str,
        ns: str | None,
        wanted: dict[str, Any] | None,
        before: int | None,
        limit: int | None,
    ) -> None:
        name = self.prefix + thread
        where: Any = {"configurable": {"thread_id": name}}
        if ns is not None:
            where["configurable"]["checkpoint_ns"] = ns
        until = None if before is None else config(name, f"{before:08d}", "")
        found = sorted(
            self.model.list(where, before=until),
            key=lambda t: t.config["configurable"]["checkpoint_ns"],
        )
        expected = [self.expected(t) for t in found if self.matches(t, wanted or {})][:limit]
        listed = self.savers[who].list(where, filter=wanted, before=until, limit=limit)
        assert [shown(t) for t in listed] == expected

    def matches(self, found: CheckpointTuple, wanted: dict[str, Any]) -> bool:
        named = found.config["configurable"]
        have = self.metadata[(named["thread_id"], named["checkpoint_ns"]), named["checkpoint_id"]]
        return all(k in have and same(have[k], v) for k, v in wanted.items())

    @rule(
        who=st.integers(0, 1),
        thread=threads,
        ns=namespaces,
        which=st.none() | older,
    )
    def delta_history(self, who: int, thread: str, ns: str, which: int | None) -> None:
        place = self.place(thread, ns)
        old = self.stored.get(place, [])
        id = old[-1 - which % len(old)] if which is not None and old else None
        where, names = config(place[0], id, ns), ["delta", "own", "never"]
        expected = self.model.get_delta_channel_history(config=where, channels=["delta", "never"])
        found = self.savers[who].get_delta_channel_history(config=where, channels=names)
        assert repr({n: found[n] for n in expected}) == repr(dict(expected))

    def teardown(self) -> None:
        """All of it once more, through each saver; then nothing is left."""
        for who in (0, 1):
            for thread in ("t", "ü"):
                self.list(who, thread, None, None, None, None)
                for ns in ("", "sub:1"):
                    self.get_head(who, thread, ns)
                    self.delta_history(who, thread, ns, None)
        for thread in ("t", "ü"):
            self.delete_thread(0, thread, True)
        assert list(self.savers[1].list(None)) == []


def holds(savers: tuple[DurableSaver, DurableSaver], examples: int, *, random: bool) -> None:
    numbers: Iterator[int] = count()
    run_state_machine_as_test(
        lambda: Machine(savers, f"{next(numbers)} "),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not random,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def real(postgres_url: str, redis_url: str) -> tuple[DurableSaver, DurableSaver]:
    """One that serves all heads hot and caches none, one as it comes."""
    first = DurableSaver(
        postgres_url, redis_url, hot_reads="always", head_cache_bytes=0, on_corrupt="raise"
    )
    return first, DurableSaver(postgres_url, redis_url, on_corrupt="raise")


def test_the_saver_over_memory_is_the_model() -> None:
    world = World()
    first = memory_saver(world, hot_reads="always", head_cache_bytes=0, on_corrupt="raise")
    holds((first, memory_saver(world, on_corrupt="raise")), EXAMPLES, random=False)


def test_the_saver_is_the_model(postgres_url: str, redis_url: str) -> None:
    first, second = real(postgres_url, redis_url)
    with first, second:
        holds((first, second), EXAMPLES, random=False)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_saver_is_the_model_in_other_examples(postgres_url: str, redis_url: str) -> None:
    """Others each time it is run."""
    first, second = real(postgres_url, redis_url)
    with first, second:
        holds((first, second), 4 * EXAMPLES, random=True)
