"""Objects whose class changed since they were stored, and objects of classes nobody allowed."""

from __future__ import annotations

import dataclasses
import logging
import sys
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import Event, EvolutionError, ValueRefusedError
from tests.cases import Store, at, cp, grown, put, values_of


@dataclasses.dataclass
class Order:
    """A class of the application's."""

    item: str
    n: int = 1


NAME = f"{__name__}.Order"
RAW = {"item": "tea", "n": 1}
PAD = [{"n": n, "pad": "x" * 60} for n in range(9)]

KINDS: dict[str, tuple[Any, Any]] = {
    "bare": (Order("tea"), RAW),
    "in a long list": ([*PAD, Order("tea")], [*PAD, RAW]),
    "in a map": ({"a": "x" * 400, "b": Order("tea")}, {"a": "x" * 400, "b": RAW}),
    "large": (Order("tea" * 500), RAW | {"item": "tea" * 500}),
}


async def stored(store: Store, value: Any) -> None:
    """Once as a channel's value, once as a pending write."""
    saver = store.saver(allow=[Order])
    config = await put(saver, at(), cp({"fine": 1, "order": value}))
    await saver.put_writes(config, [("order", value)], "task")


def gone(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Removes the class; what still allows it by its name."""
    monkeypatch.delattr(sys.modules[__name__], "Order")
    return [(__name__, "Order")]


# -- 3: a class that no longer exists at load -------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["gone", "not allowed"])
async def test_a_class_that_cannot_be_used_is_named_with_its_channel(
    store: Store, kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is not empty, not damaged, and no dict stands where an object was."""
    await stored(store, KINDS[kind][0])
    allow = gone(monkeypatch) if how == "gone" else []
    reader = store.reader(allow=allow)
    for reading in (reader.get_tuple(at()), reader.list(at())):
        with pytest.raises(EvolutionError, match=NAME) as error:
            await reading
        assert (error.value.channel, error.value.classes) == ("order", (NAME,))
        assert (error.value.thread, error.value.namespace) == ("t", "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["gone", "not allowed"])
async def test_raw_data_is_given_if_that_is_wished_and_it_is_recorded(
    store: Store,
    kind: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the channel and the class, once for each place where it stands."""
    value, raw = KINDS[kind]
    await stored(store, value)
    allow = gone(monkeypatch) if how == "gone" else []
    told: list[Event] = []
    reader = store.reader(allow=allow, on_unknown_class="raw", observer=told.append)
    with caplog.at_level(logging.WARNING, logger="langgraph_durable_state"):
        found = await reader.get_tuple(at())
    assert values_of(found) == {"fine": 1, "order": raw}
    assert found.pending_writes == [("task", "order", raw)]
    assert [(event.kind, event.thread) for event in told] == [("unknown_class", "t")] * 2
    for said in (*map(str, told), *(record.getMessage() for record in caplog.records)):
        assert NAME in said
        assert "channel 'order'" in said


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_allowed_is_read_from_either_tier(store: Store, kind: str) -> None:
    """And at once, by a saver that another one's refusal did not harm."""
    await stored(store, KINDS[kind][0])
    with pytest.raises(EvolutionError):
        await store.reader().get_tuple(at())
    found = await store.reader(allow=[Order]).get_tuple(at())
    assert values_of(found) == {"fine": 1, "order": KINDS[kind][0]}
    assert found.pending_writes == [("task", "order", KINDS[kind][0])]


async def test_what_is_not_allowed_is_refused_before_it_is_stored(hot_store: Store) -> None:
    """So that nobody learns of it when a thread has to be resumed."""
    saver = hot_store.saver()
    base = await put(saver, at(), cp({"fine": 1}))
    before = hot_store.counts()
    with pytest.raises(ValueRefusedError, match=r"Order is not among.*allow=\[") as refused:
        await put(saver, base, cp({"order": [1, Order("tea")]}))
    assert refused.value.where == "channel 'order', item 1"
    with pytest.raises(ValueRefusedError, match="write to 'order'"):
        await saver.put_writes(base, [("order", Order("tea"))], "task")
    assert before == hot_store.counts()


async def test_a_channel_that_was_read_raw_and_not_changed_stays_as_it_was(store: Store) -> None:
    """It is the object again, once its class is allowed."""
    await stored(store, Order("tea"))
    raw = store.reader(on_unknown_class="raw")
    found = await raw.get_tuple(at())
    assert values_of(found)["order"] == RAW
    following = cp({**values_of(found), "fine": 2}, versions={"fine": "2"})
    await put(raw, found.config, following, new={"fine": "2"})
    found = await store.reader(allow=[Order]).get_tuple(at())
    assert values_of(found) == {"fine": 2, "order": Order("tea")}


# -- in a graph -------------------------------------------------------------------------------


class State(TypedDict, total=False):
    orders: Annotated[list[Order], grown]


def shop(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("take", lambda _: {"orders": [Order("tea")]})
    builder.add_node("ask", lambda s: {"orders": [Order(interrupt(s["orders"][0]), 2)]})
    builder.add_edge(START, "take")
    builder.add_edge("take", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


async def test_a_graph_whose_state_is_allowed_is_resumed_elsewhere(store: Store) -> None:
    """The state's own class names those within it; the interrupt holds one as well."""
    graph = store.face(shop(store.open(allow=[State])))
    await graph.invoke({}, at())
    saver = store.open_reader(allow=[State])
    graph = store.face(shop(saver))
    waiting = await graph.get_state(at())
    assert [each.value for each in waiting.interrupts] == [Order("tea")]
    assert await graph.invoke(Command(resume="milk"), at()) == {
        "orders": [Order("tea"), Order("milk", 2)]
    }


async def test_older_code_keeps_a_field_that_newer_code_gave_an_object(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has not been replaced yet goes on with the list that the object is in."""
    fields: list[Any] = [("item", str), ("n", int, 1), ("note", str, "")]
    newer: Any = dataclasses.make_dataclass("Order", fields, namespace={"__module__": __name__})
    allowed = [(__name__, "Order")]
    with monkeypatch.context() as deployed:
        deployed.setattr(sys.modules[__name__], "Order", newer)
        builder = StateGraph(State)
        builder.add_node("take", lambda _: {"orders": [newer("tea", note="green")]})
        builder.add_node("ask", lambda _: {"orders": [newer(interrupt("what else?"))]})
        builder.add_edge(START, "take")
        builder.add_edge("take", "ask")
        new = builder.compile(checkpointer=store.open(allow=allowed))
        await store.face(new).invoke({}, at())
    old = store.face(shop(store.open_reader(allow=allowed)))
    assert await old.invoke(Command(resume="milk"), at()) == {
        "orders": [Order("tea"), Order("milk", 2)]
    }
    monkeypatch.setattr(sys.modules[__name__], "Order", newer)
    found = await store.reader(allow=allowed).get_tuple(at())
    assert values_of(found)["orders"] == [newer("tea", note="green"), newer("milk", 2)]
