"""Values that checkpointers are known to lose: back as they were, or refused by name."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pytest
import redis
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from langgraph_durable_state import ValueRefusedError
from tests.cases import Derived, Late, Plain, Store, Unset, at, chain, cp, put, values_of

MEGABYTE = 1024 * 1024


async def refused_or_done(call: Awaitable[Any]) -> ValueRefusedError | None:
    try:
        await call
    except ValueRefusedError as error:
        return error
    return None


async def comes_back_or_is_refused(store: Store, value: Any, same: Callable[[Any], bool]) -> None:
    """Once as a channel's value, once as a pending write."""
    saver = store.saver()
    base = await put(saver, at(), cp({"kept": 1}))
    before = store.counts()
    refused = await refused_or_done(put(saver, base, cp({"kept": 2, "odd": value})))
    for reader in store.readers():
        found = values_of(await reader.get_tuple(at()))
        assert same(found["odd"]) if refused is None else found == {"kept": 1}
    if refused is not None:
        assert "'odd'" in refused.where
        assert before == store.counts()
    before = store.counts()
    refused = await refused_or_done(saver.put_writes(base, [("odd", value)], "task"))
    found = await store.reader().get_tuple(base)
    if refused is None:
        assert [write[:2] for write in found.pending_writes] == [("task", "odd")]
        assert same(found.pending_writes[0][2])
    else:
        assert "'odd'" in refused.where
        assert before == store.counts()
        assert found.pending_writes == []


# -- 1: containers whose items a serializer turns into others ---------------------------------

CONTAINERS: dict[str, Any] = {
    "set of tuples": {(1, 2), (3, 4)},
    "frozenset of tuples": frozenset({(1, 2), (3, 4)}),
    "set of tuples in a dict": {"k": {(1, 2), (3, 4)}},
    "set of tuples in a long list": [{"n": n, "pad": "x" * 60} for n in range(9)] + [{(1, 2)}],
    "dict with tuple keys": {(1, 2): "x", (3, 4): "y"},
    "dict with keys 1 and '1'": {1: "number", "1": "text"},
    "dict with keys True and None": {True: "yes", None: "nothing"},
    "frozenset of frozensets": frozenset({frozenset({1}), frozenset({2})}),
}


@pytest.mark.parametrize("name", CONTAINERS)
async def test_a_container_comes_back_equal_or_is_refused(hot_store: Store, name: str) -> None:
    """Never a list of lists where a set of tuples was."""
    value = CONTAINERS[name]

    def same(found: Any) -> bool:
        kept = found == value and type(found) is type(value)
        return kept and (type(value) is not dict or [*map(type, found)] == [*map(type, value)])

    await comes_back_or_is_refused(hot_store, value, same)


# -- 2: dataclasses that a constructor alone cannot make --------------------------------------


def late() -> Late:
    made = Late("n")
    made.total = 7
    return made


DATACLASSES: dict[str, Callable[[], Any]] = {
    "init=False, set later": late,
    "init=False, never set": lambda: Unset("n"),
    "frozen, derived": lambda: Derived("abc"),
    "inside another": lambda: Plain("outer", late()),
    "in a list": lambda: Plain("outer", [late()]),
    "ordinary": lambda: Plain("n", {"k": [1, 2]}),
}


@pytest.mark.parametrize("name", DATACLASSES)
async def test_a_dataclass_comes_back_as_its_class_or_is_refused(
    hot_store: Store, name: str
) -> None:
    """Never a dict in its place, and never without what was set."""
    hot_store.options["allow"] = [Late, Unset, Derived, Plain]
    value = DATACLASSES[name]()

    def same(found: Any) -> bool:
        return type(found) is type(value) and repr(found.__dict__) == repr(value.__dict__)

    await comes_back_or_is_refused(hot_store, value, same)


async def test_an_ordinary_dataclass_is_not_refused(hot_store: Store) -> None:
    """Refusing is for what would be lost only."""
    hot_store.options["allow"] = [Plain]
    await put(hot_store.saver(), at(), cp({"c": Plain("n", {"k": 1})}))
    assert {"c": Plain("n", {"k": 1})} == values_of(await hot_store.reader().get_tuple(at()))


# -- 4: values that cannot be stored, deep inside ---------------------------------------------

UNSTORABLE: dict[str, Any] = {
    "2**64": 2**64,
    "-2**63 - 1": -(2**63) - 1,
    "Fraction": Fraction(1, 3),
    "complex": 1 + 2j,
    "numpy scalar": np.int64(5),
    "numpy float32": np.float32(0.5),
    "function": len,
}


def buried(value: Any) -> Any:
    """Three levels deep, in a list long enough to be stored in parts."""
    return [{"pad": "x" * 100, "n": n} for n in range(20)] + [{"a": [0, {"b": value}]}]


@pytest.mark.parametrize("name", UNSTORABLE)
@pytest.mark.parametrize("into", ["channel", "write", "metadata"])
async def test_what_cannot_be_stored_is_refused_with_its_path(
    hot_store: Store, name: str, into: str
) -> None:
    """Nothing of the call is written, and the head is the one before."""
    saver = hot_store.saver()
    base = await put(saver, at(), cp({"c": "before"}))
    before = hot_store.counts()
    value = buried(UNSTORABLE[name])
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "channel": lambda: put(saver, base, cp({"c": value, "d": "after"}, versions={"c": "2"})),
        "write": lambda: saver.put_writes(base, [("d", "fine"), ("c", value)], "task"),
        "metadata": lambda: put(saver, base, cp({"d": 1}), {"source": "loop", "c": value}),
    }
    with pytest.raises(ValueRefusedError) as refused:
        await calls[into]()
    where = refused.value.where
    named = {"channel": "channel 'c'", "write": "write to 'c'", "metadata": "metadata"}[into]
    assert named in where
    assert [where.index(part) for part in ("20", "'a'", "[1]", "'b'")] == sorted(
        where.index(part) for part in ("20", "'a'", "[1]", "'b'")
    )
    assert before == hot_store.counts()
    for reader in hot_store.readers():
        found = await reader.get_tuple(at())
        assert values_of(found) == {"c": "before"}
        assert found.pending_writes == []


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63)])
async def test_the_largest_integers_come_back(store: Store, value: int) -> None:
    """What fits is not refused."""
    await put(store.saver(), at(), cp({"c": buried(value)}))
    assert {"c": buried(value)} == values_of(await store.reader().get_tuple(at()))


# -- 5: texts and numbers that databases do not take ------------------------------------------

TEXTS = {
    "NUL": "a\x00b",
    "lone surrogate": "a\ud800b",
    "low surrogate": "\udfff",
    "1 MB": "x" * MEGABYTE,
    "escape-like": "\\u0000 \U0010ffff \x1b",
    "empty": "",
}
NUMBERS = {"NaN": math.nan, "infinity": math.inf, "-infinity": -math.inf, "-0.0": -0.0}


def same(found: Any, value: Any) -> bool:
    """Equal, where NaN is NaN and -0.0 is not 0.0."""
    return (
        type(found) is type(value)
        and (found == value or found != found)
        and (repr(found) == repr(value))
    )


@pytest.mark.parametrize("name", [*TEXTS, *NUMBERS])
async def test_odd_values_come_back_exactly(hot_store: Store, name: str) -> None:
    """In a channel, within containers and messages, in metadata and in a pending write."""
    value: Any = TEXTS.get(name, NUMBERS.get(name))
    saver = hot_store.saver()
    message = HumanMessage("hi", id="1", additional_kwargs={"odd": value})
    channels = {
        "bare": value,
        "nested": {"k": [value, {"deep": value}]},
        "long": [{"n": n, "pad": "x" * 60, "odd": value if n == 9 else n} for n in range(12)],
        "messages": [HumanMessage("m" * 60, id=f"m{n}") for n in range(9)] + [message],
    }
    metadata = {"source": "loop", "step": 3, "odd": value, "nested": {"k": [value]}}
    config = await put(saver, at(), cp(channels), metadata)
    await saver.put_writes(config, [("bare", value), ("nested", [value])], "task")

    for reader in hot_store.readers():
        found = await reader.get_tuple(at())
        got = values_of(found)
        assert same(got["bare"], value)
        assert same(got["nested"]["k"][0], value)
        assert same(got["nested"]["k"][1]["deep"], value)
        assert [n for n in range(12) if n != 9] == [i["odd"] for i in got["long"] if i["n"] != 9]
        assert same(got["long"][9]["odd"], value)
        assert same(got["messages"][9].additional_kwargs["odd"], value)
        assert type(got["messages"][9]) is HumanMessage
        assert same(found.metadata["odd"], value)
        assert same(found.metadata["nested"]["k"][0], value)
        assert same(found.pending_writes[0][2], value)
        assert same(found.pending_writes[1][2][0], value)


@pytest.mark.parametrize("name", TEXTS)
async def test_odd_texts_may_be_keys(hot_store: Store, name: str) -> None:
    """Of metadata, of a dict, and names of channels of pending writes."""
    key = TEXTS[name]
    saver = hot_store.saver()
    config = await put(saver, at(), cp({"c": {key: 1}}), {"source": "loop", "step": 0, key: "v"})
    await saver.put_writes(config, [("c", {key: 2})], "task")
    for reader in hot_store.readers():
        found = await reader.get_tuple(at())
        assert {"c": {key: 1}} == values_of(found)
        assert {"source": "loop", "step": 0, key: "v"} == found.metadata
        assert [("task", "c", {key: 2})] == found.pending_writes


@pytest.mark.parametrize("name", [*TEXTS, *NUMBERS])
async def test_odd_metadata_does_not_disturb_filters(hot_store: Store, name: str) -> None:
    """Other keys of the same checkpoint are found, and so is the odd one itself."""
    value: Any = TEXTS.get(name, NUMBERS.get(name))
    saver = hot_store.saver()
    odd = await put(saver, at(), cp({"c": 1}), {"source": "loop", "colour": "red", "odd": value})
    await put(saver, odd, cp({"c": 2}), {"source": "loop", "colour": "blue", "odd": "plain"})
    reader = hot_store.reader()
    by_other = await reader.list(at(), filter={"colour": "red"})
    by_itself = await reader.list(at(), filter={"odd": value})
    assert [values_of(found)["c"] for found in by_other] == [1]
    assert [values_of(found)["c"] for found in by_itself] == [1]


@pytest.mark.parametrize("name", TEXTS)
async def test_an_odd_metadata_key_can_be_filtered_by(hot_store: Store, name: str) -> None:
    """It is told from others, and others from it."""
    saver = hot_store.saver()
    first = await put(saver, at(), cp({"c": 1}), {TEXTS[name]: "v", "colour": "red"})
    await put(saver, first, cp({"c": 2}), {"other": "v", "colour": "red"})
    reader = hot_store.reader()
    assert [
        values_of(found)["c"] for found in await reader.list(at(), filter={TEXTS[name]: "v"})
    ] == [1]
    assert [
        values_of(found)["c"] for found in await reader.list(at(), filter={"colour": "red"})
    ] == [2, 1]


# -- 7: one value in fifty checkpoints --------------------------------------------------------

SIZE = 5 * MEGABYTE


def incompressible(seed: int = 7) -> str:
    return random.Random(seed).randbytes(SIZE // 2).hex()  # zstd gets half of it back, no more


def stored_bytes(store: Store) -> int:
    return sum(
        store.query(f"SELECT coalesce(sum(octet_length({column})), 0) FROM durable_state.{table}")[
            0
        ][0]
        for table, column in (("chunk", "data"), ("checkpoint", "record"), ("write", "data"))
    )


def hot_bytes(store: Store) -> int:
    with redis.Redis.from_url(store.redis_url) as client:
        return sum(client.memory_usage(key, samples=0) for key in client.scan_iter())


@pytest.mark.parametrize("how", ["carried along", "set again", "within a list"])
async def test_a_value_that_fifty_checkpoints_carry_is_stored_once(
    hot_store: Store, how: str
) -> None:
    """Whether its version stays, or an equal value gets a new one each time."""
    saver = hot_store.saver()
    big = incompressible()
    config: Any = at()
    for n in range(50):
        document: Any = [big, n] if how == "within a list" else big
        version = "1" if how == "carried along" else f"{n + 1}"
        checkpoint = cp({"document": document, "n": n}, versions={"document": version, "n": str(n)})
        new = {"n": str(n)} | ({"document": version} if n == 0 or version != "1" else {})
        config = await put(saver, config, checkpoint, new=new)
    assert stored_bytes(hot_store) < 1.1 * SIZE
    assert hot_bytes(hot_store) < 1.5 * SIZE
    assert values_of(await hot_store.reader().get_tuple(at()))["document"] == document


async def test_a_value_that_a_node_returned_is_stored_once(hot_store: Store) -> None:
    """Its pending write and the checkpoints after it share one copy."""
    big = incompressible()

    class State(TypedDict, total=False):
        document: str
        steps: Annotated[int, lambda a, b: a + b]

    builder = StateGraph(State)
    builder.add_node("load", lambda _: {"document": big})
    builder.add_node("count", lambda _: {"steps": 1})
    builder.add_edge(START, "load")
    builder.add_edge("load", "count")
    builder.add_conditional_edges("count", lambda s: END if s["steps"] == 10 else "count")
    graph = hot_store.face(builder.compile(checkpointer=hot_store.open()))
    await graph.invoke({"steps": 0}, at(), durability="sync")
    assert stored_bytes(hot_store) < 1.1 * SIZE
    found = values_of(await hot_store.reader().get_tuple(at()))
    assert (big, 10) == (found["document"], found["steps"])


async def test_equal_values_of_two_channels_are_stored_once(hot_store: Store) -> None:
    """What is stored is known by its content."""
    big = incompressible()
    await put(hot_store.saver(), at(), cp({"a": big, "b": big}))
    assert stored_bytes(hot_store) < 1.1 * SIZE
    assert {"a": big, "b": big} == values_of(await hot_store.reader().get_tuple(at()))


# -- who answers ------------------------------------------------------------------------------


async def test_the_readers_of_these_tests_are_answered_by_the_tier_they_name(store: Store) -> None:
    """With the other tier's copy of the value gone or spoilt, they still get it."""
    await chain(store.saver(), [{"c": "x" * 5000}])
    if store.tier == "hot":
        reader = store.reader()
        store.query("DELETE FROM durable_state.chunk")
    else:
        reader = store.reader()
        with redis.Redis.from_url(store.redis_url) as client:
            for key in client.scan_iter():
                client.hset(key, "record", b"spoilt")
    assert values_of(await reader.get_tuple(at())) == {"c": "x" * 5000}
