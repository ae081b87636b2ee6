"""Ropes: whatever a list went through, its bytes are the serializer's and only news is stored."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_durable_state.decisions import codec
from langgraph_durable_state.decisions.chunking import Channel, Weaver, joined
from langgraph_durable_state.decisions.codec import Blobs
from langgraph_durable_state.decisions.matching import FAN_OUT, LARGEST_ITEMS
from langgraph_durable_state.decisions.serializing import Serializer
from langgraph_durable_state.protocols.reading import Reader

SERDE = JsonPlusSerializer()


def message(i: int) -> BaseMessage:
    return HumanMessage(f"message {i} " + "word " * 60, id=f"id-{i}")


class Rope:
    """One channel's versions, one after the other."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.serializer = Serializer(SERDE)
        self.channel: Channel | None = None
        self.sent: list[int] = []

    def put(self, value: Any) -> Channel:
        weaver = Weaver(self.serializer, self.numbers)
        self.channel = weaver.channel("messages", value, version="1", base=self.channel)
        self.sent.append(sum(c.count for c in weaver.to_store([self.channel])))
        return self.channel

    def read(self, keep: bool = False) -> Any:
        assert self.channel is not None
        return Reader(Blobs(), keep).value(self.channel, self.serializer)


def test_the_bytes_are_the_serializers_own() -> None:
    """Joined chunks give back exactly what dumps_typed returns."""
    rope = Rope()
    for n in range(1, 200):
        values = [message(i) for i in range(n)]
        channel = rope.put(values)
        assert joined(channel) == SERDE.dumps_typed(values)[1]
    assert rope.read() == values


def test_an_append_stores_only_the_new_item_until_small_chunks_are_joined() -> None:
    """Each item is stored once alone, once among 8, once among 64: on average below 3."""
    rope = Rope()
    for n in range(1, 641):
        rope.put([message(i) for i in range(n)])
    assert rope.sent[-FAN_OUT:] == [1, 1, 1, 1, 1, 1, 1, LARGEST_ITEMS]
    assert sum(rope.sent) <= 3 * 640
    assert rope.channel is not None
    assert [p.chunk.count for p in rope.channel.pieces] == [LARGEST_ITEMS] * 10


def test_a_cold_read_of_a_thousand_messages_fetches_some_thirty_chunks() -> None:
    """Never more than 15 full chunks and twice 7 that wait to be joined."""
    rope = Rope()
    for n in range(1, 1_001):
        rope.put([message(i) for i in range(n)])
        assert rope.channel is not None
        assert len(rope.channel.pieces) <= n // LARGEST_ITEMS + 2 * (FAN_OUT - 1)


@pytest.mark.parametrize(
    ("change", "news"),
    [
        (lambda old: [*old[:50], message(999), *old[51:]], 1),
        (lambda old: old[:50] + old[51:], 0),
        (lambda old: old[3:], 0),
        (lambda old: [message(999), *old], 1),
        (lambda old: old[:20], 0),
    ],
    ids=["edit", "removal", "trimmed front", "insert", "cut"],
)
def test_a_change_stores_only_what_is_new(change: Any, news: int) -> None:
    """An edit, a removal or a trimmed front refers to the parts of the chunks that stay."""
    rope = Rope()
    old = [message(i) for i in range(100)]
    rope.put(old)
    new = change(old)
    rope.put(new)
    assert rope.sent[-1] == news
    assert rope.read() == new


def test_a_window_that_slides_for_long_does_not_keep_its_whole_past() -> None:
    """Chunks of which little is used are given up."""
    rope = Rope()
    for start in range(1_000):
        rope.put([message(i) for i in range(start, start + 20)])
    assert rope.channel is not None
    stored = {p.chunk.no: p.chunk.count for p in rope.channel.pieces}
    assert sum(stored.values()) <= 2 * 20 + LARGEST_ITEMS
    assert sum(rope.sent) <= 6 * 1_000


def test_a_list_in_another_order_is_not_read_as_small_parts_of_large_chunks() -> None:
    """To read it, at most twice its items are decoded: a part is decoded with its whole chunk."""
    rope = Rope()
    rope.put([message(i) for i in range(640)])
    value = [message(i) for block in reversed(range(0, 640, 10)) for i in range(block, block + 10)]
    channel = rope.put(value)
    assert sum(p.chunk.count for p in channel.pieces) <= 2 * 640 + LARGEST_ITEMS
    assert rope.read() == value


def test_a_message_changed_in_place_is_noticed() -> None:
    """Identity proves nothing: every field, an extra one too, counts."""
    values = [message(i) for i in range(20)]
    rope = Rope()
    rope.put(values)
    values[3].content = "changed"
    values[4].additional_kwargs["deep"] = {"list": [1]}
    values[5].__pydantic_extra__ = {"extra": 1}
    rope.put(values)
    assert rope.sent[-1] == 3
    again = rope.read()
    assert again == values
    assert again[5].__pydantic_extra__ == {"extra": 1}


def test_what_is_read_is_never_shared() -> None:
    """Changing a value that was read changes nothing that is read later."""
    rope = Rope()
    rope.put([AIMessage("x" * 300, additional_kwargs={"a": [1]}, id="1")])
    reader = Reader(Blobs(), keep=True)
    assert rope.channel is not None
    first = reader.value(rope.channel, rope.serializer)
    first[0].additional_kwargs["a"].append(2)
    first[0].content = "changed"
    second = reader.value(rope.channel, rope.serializer)
    assert second[0].additional_kwargs == {"a": [1]}
    assert second[0].content == "x" * 300


def test_a_map_is_a_rope_too() -> None:
    """Of a dict of files only the file that changed is stored."""
    files = {f"/f{i}.txt": f"text of file {i} " * 30 for i in range(50)}
    rope = Rope()
    rope.put(files)
    files["/f7.txt"] = "new " * 50
    rope.put(files)
    assert rope.sent == [50, 1]
    assert rope.read() == files
    assert list(rope.read()) == list(files)


ITEMS = st.one_of(
    st.integers(0, 40).map(message),
    st.text(max_size=80),
    st.none(),
    st.binary(max_size=40),
    st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 9)), max_size=3),
    st.builds(
        lambda n: ToolMessage("done " * n, tool_call_id="t", artifact={"n": n}), st.integers(1, 30)
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ITEMS, max_size=90), min_size=1, max_size=6), st.data())
def test_any_sequence_of_lists_is_read_back(lists: list[list[Any]], data: st.DataObject) -> None:
    """Values derived from each other by slices and joins are read back exactly."""
    rope = Rope()
    blobs = Blobs()
    value: list[Any] = []
    for fresh in lists:
        cut = data.draw(st.integers(0, len(value)))
        value = value[cut:] + fresh + value[: data.draw(st.integers(0, cut))]
        channel = rope.put(value)
        assert rope.read() == value
        for piece in channel.pieces:
            row = codec.chunk_row(piece.chunk, blobs)
            assert codec.chunk_of(row, blobs).plain == piece.chunk.plain
