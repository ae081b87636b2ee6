"""Values: what comes back is what was given, or nothing is written and the error says where."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import uuid
import zoneinfo
from collections import deque
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send

from langgraph_durable_state import Redact, ValueRefusedError
from langgraph_durable_state.decisions.blobs import unreadable
from langgraph_durable_state.decisions.escape import escape_text, unescape_text
from langgraph_durable_state.decisions.serializing import Serializer, plain
from langgraph_durable_state.testing import memory_saver
from tests.contract.superstep import config, superstep

SERDE = JsonPlusSerializer()


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    number: int
    secret: pydantic.SecretStr = pydantic.SecretStr("s")


@dataclasses.dataclass
class Late:
    a: int
    b: int = dataclasses.field(init=False)


@dataclasses.dataclass
class Point:
    x: int
    y: int

    @functools.cached_property
    def sum(self) -> int:
        return self.x + self.y


class Private(pydantic.BaseModel):
    number: int
    _note: str = pydantic.PrivateAttr("")
    _lock: Any = pydantic.PrivateAttr(default_factory=object)

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.number


class Odd:
    """It can be stored, and not be compared."""

    def __init__(self, a: int) -> None:
        self.a = a

    def _asdict(self) -> dict[str, int]:
        return {"a": self.a}

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def looked_at(value: Any, name: str) -> Any:
    """A value that has worked something out, and keeps it."""
    getattr(value, name)
    return value


def changed(value: Any, **attributes: Any) -> Any:
    """A value with attributes that its class's constructor does not take."""
    for name, part in attributes.items():
        setattr(value, name, part)
    return value


def there_and_back(value: Any) -> Any:
    serializer = Serializer(SERDE)
    typed = serializer.dumps(value, "channel 'x'")
    return serializer.loads(typed.tag, typed.data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "value",
    [
        None,
        b"bytes",
        bytearray(b"bytes"),
        "a\x00b",
        "lone \ud800 surrogate",
        {"key \udfff": ["nested \ud800"]},
        [HumanMessage("lone \ud801", additional_kwargs={"\ud802": 1})],
        "mark \U0010ffff00d800 itself",
        float("inf"),
        {1: 2, None: 3, 1.5: 4, (1, "a"): 5, b"b": 6, False: 7},
        [{"deep": {1: {2: [{3: 4}]}}}],
        decimal.Decimal("NaN"),
        datetime.datetime(2026, 1, 2),
        looked_at(Point(1, 2), "sum"),
        looked_at(Private(number=1), "double"),
        {1, 2},
        frozenset({1}),
        deque([1, 2]),
        decimal.Decimal("1.10"),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        uuid.UUID(int=5),
        Colour.RED,
        Point(1, 2),
        Model(number=1),
        [AIMessage("hi", tool_calls=[{"name": "a", "args": {}, "id": "1"}], extra=[1])],
        [ToolMessage("x", tool_call_id="1", artifact={"a": [1]})],
        Send("node", {"a": [1]}),
        Interrupt(value={"q": Point(1, 2)}, id="i"),
        np.arange(6).reshape(2, 3),
        np.array([math.nan]),
        np.array(["a", "b"]),
    ],
    ids=lambda v: repr(v)[:30].encode("ascii", "replace").decode(),
)
def test_comes_back(value: Any) -> None:
    """Equal, and of the same type."""
    back = there_and_back(value)
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert np.array_equal(back, value, equal_nan=value.dtype.kind == "f")
    else:
        assert back == value or repr(back) == repr(value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({(1, 2), (3, 4)}, ""),
        (2**64, ""),
        ({"a": {"b": [0, fractions.Fraction(1, 3)]}}, "['a']['b'][1]"),
        ({"a": [{"b": 1 + 2j}]}, "['a'][0]['b']"),
        ({"a": {"b": {"c": np.float64(1.5)}}}, "['a']['b']['c']"),
        ({"a": np.int64(1)}, "['a']"),
        ([ToolMessage("x", tool_call_id="1", artifact=fractions.Fraction(1))], "[0].artifact"),
        ({"deep": [{(1, 2)}]}, "['deep'][0]"),
        ({uuid.UUID(int=1): 1}, ""),
        ({"a": [{datetime.date(2026, 1, 2): 1}]}, "['a'][0]"),
        ({"a": {1: {datetime.datetime(2026, 1, 2): 1}}}, "['a'][1]"),
        ([{Colour.RED: 1}], "[0]"),
        ({(1, Colour.RED): 1}, ""),
        ([datetime.datetime(2026, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))], "[0]"),
        ([datetime.datetime(2026, 1, 2, fold=1)], "[0]"),
        ({"last": deque([1], maxlen=3)}, "['last']"),
        ({"a": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])}, "['a']"),
        ({"a": np.array([None])}, "['a']"),
        ([changed(Point(1, 2), late=1)], "[0]"),
        ([changed(Private(number=1), _note="kept")], "[0]._note"),
        ([ToolMessage("x", tool_call_id="1", artifact=Point(1, 2))], "[0].artifact"),
        (HumanMessage("x", additional_kwargs={"f": object()}), ".additional_kwargs['f']"),
    ],
    ids=lambda v: repr(v)[:40],
)
def test_is_refused_with_its_path(value: Any, path: str) -> None:
    """The error names the channel and the innermost value that is to blame."""
    with pytest.raises(ValueRefusedError) as refused:
        there_and_back(value)
    assert refused.value.where == ("channel 'x'" + (f", at {path}" if path else ""))


@pytest.mark.filterwarnings("ignore")
def test_a_field_set_late_is_kept_or_refused() -> None:
    """A dataclass whose constructor does not take a field would come back as a dict."""
    late = Late(1)
    late.b = 2
    with pytest.raises(ValueRefusedError, match="Late would come back as"):
        there_and_back(late)


def test_too_large_is_refused() -> None:
    """max_value_bytes bounds the serialized size, and the error says both numbers."""
    with pytest.raises(ValueRefusedError, match=r"1,005 bytes, more than max_value_bytes=1,000"):
        Serializer(SERDE, max_bytes=1_000).dumps("x" * 1_002, "channel 'x'")


def test_what_cannot_be_compared_is_refused() -> None:
    """Whatever comparing it raises: it stays within the errors of this library."""

    with pytest.raises(ValueRefusedError, match="would not come back"):
        there_and_back([Odd(1)])


def test_plain_values_cost_no_second_encoding() -> None:
    """What ormsgpack encodes directly is byte for byte what the serializer makes."""
    value = {"a": [1, 2.5, None, True, "text", b"bytes", {"n": {"m": []}}], "é": -(2**63)}
    assert plain(value) == SERDE.dumps_typed(value)[1]


@given(st.text(st.characters(), max_size=50))
def test_escaping_is_reversible(text: str) -> None:
    """Any text comes back, and nothing that a store would change is left."""
    for nul in (False, True):
        spelled = escape_text(text, nul=nul)
        spelled.encode()
        assert unescape_text(spelled) == text
        assert not (nul and "\x00" in spelled)


# -- messages that their class would change ---------------------------------------------------

CALL = {"id": "1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
CALL_CHUNK = {"name": "pay", "args": "{}", "id": "1", "index": 0, "type": "tool_call_chunk"}


def with_set(message: Any, **fields: Any) -> Any:
    """A message some of whose fields were set once it was made."""
    for name, value in fields.items():
        setattr(message, name, value)
    return message


CHANGED = {
    "tool calls cleared": (
        with_set(AIMessage("x", additional_kwargs={"tool_calls": [CALL]}), tool_calls=[]),
        "tool_calls",
    ),
    "a chunk's cleared": (
        with_set(AIMessageChunk("x", tool_call_chunks=[CALL_CHUNK]), tool_calls=[]),
        "tool_calls",
    ),
    "a chunk's cleared beside its kwargs": (
        with_set(AIMessageChunk("x", additional_kwargs={"tool_calls": [CALL]}), tool_calls=[]),
        "tool_calls",
    ),
    "an id that is a number": (
        with_set(ToolMessage("x", tool_call_id="1"), tool_call_id=5),
        "tool_call_id",
    ),
}
PLACES = {
    "itself": lambda m: m,
    "item": lambda m: [HumanMessage("first"), m],
    "field": lambda m: {"last": m, "n": 1},
    "deep": lambda m: {"a": [{"b": m}]},
    "long": lambda m: [HumanMessage("y" * 400) for _ in range(20)] + [m],
}


def fields(value: Any) -> Any:
    """All that is in a value, also what comparing messages passes over."""
    if isinstance(value, (list, tuple)):
        return [fields(v) for v in value]
    if isinstance(value, dict):
        return {k: fields(v) for k, v in value.items()}
    if isinstance(value, pydantic.BaseModel):
        return type(value), value.__dict__, value.__pydantic_extra__
    return value


def stored(value: Any) -> Any:
    """A channel's value as it is read back, nothing of it being held."""
    saver = memory_saver(head_cache_bytes=0)
    saver.put(*superstep(saver, None, "1", {"x": value}))
    found = saver.get_tuple(config())
    assert found is not None
    return found.checkpoint["channel_values"]["x"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("changed", CHANGED)
def test_a_message_that_its_class_would_change_is_refused(changed: str, place: str) -> None:
    """By the name of the field; it is never stored and then read as something else."""
    message, field = CHANGED[changed]
    with pytest.raises(ValueRefusedError) as refused:
        stored(PLACES[place](message))
    assert f".{field}" in refused.value.where


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
def test_a_message_that_its_class_leaves_alone_is_stored(place: str) -> None:
    """What is refused above is so for what was done to it, not for its kind."""
    call = {"name": "pay", "args": {"a": 1}, "id": "1"}
    for message in (
        AIMessage("x", additional_kwargs={"tool_calls": [CALL]}),
        AIMessage("x", tool_calls=[call]),
        with_set(AIMessage("x", tool_calls=[call]), tool_calls=[]),
        AIMessageChunk("x", tool_call_chunks=[CALL_CHUNK]),
        ToolMessage("x", tool_call_id="1"),
    ):
        value = PLACES[place](message)
        assert fields(stored(value)) == fields(value)


@pytest.mark.parametrize(
    "value",
    [
        [HumanMessage("x" * 1_000)],
        [HumanMessage("x" * 300) for _ in range(4)],
        {"a": HumanMessage("x" * 1_000)},
        ["x" * 300 for _ in range(4)],
        dict.fromkeys("abcd", "x" * 300),
    ],
    ids=["message", "messages", "map of a message", "texts", "map of texts"],
)
def test_too_large_a_list_is_refused(value: Any) -> None:
    """max_value_bytes is of the value as a whole, however it is stored."""
    saver = memory_saver(max_value_bytes=1_000)
    with pytest.raises(ValueRefusedError, match="more than max_value_bytes=1,000"):
        saver.put(*superstep(saver, None, "1", {"messages": value}))
    assert saver.get_tuple(config()) is None


def test_a_list_that_grows_too_large_is_refused() -> None:
    """Though what is new of it is small."""
    saver = memory_saver(max_value_bytes=1_000)
    messages = [HumanMessage("x" * 250)] * 2
    saver.put(*superstep(saver, None, "1", {"messages": messages}))
    longer = [*messages, HumanMessage("x" * 250)]
    put = superstep(saver, saver.get_tuple(config()), "2", {"messages": longer})
    with pytest.raises(ValueRefusedError, match="more than max_value_bytes=1,000"):
        saver.put(*put)


# -- without end -----------------------------------------------------------------------------


@dataclasses.dataclass
class Link:
    next: Any


def nested(levels: int, wrap: Any) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = wrap(value)
    return value


def in_itself(value: Any, put: Any) -> Any:
    put(value, value)
    return value


WRAPS: dict[str, Any] = {
    "list": lambda v: [v],
    "dict": lambda v: {"a": v},
    "tuple": lambda v: (v,),
    "set": lambda v: frozenset([v]),
    "object": Link,
}
ENDLESS: dict[str, Any] = {
    **{f"deep {name}": nested(3_000, wrap) for name, wrap in WRAPS.items()},
    "a list in itself": in_itself([], list.append),
    "a dict in itself": in_itself({}, lambda d, v: d.update(a=v)),
    "an object in itself": in_itself(Link(None), lambda o, v: setattr(o, "next", v)),
    "a deep message": HumanMessage("x", additional_kwargs={"a": nested(3_000, lambda v: [v])}),
    "a message in itself": in_itself(
        HumanMessage("x"), lambda m, v: m.additional_kwargs.update(a=v)
    ),
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unverified": {"verify_round_trip": "off"},
    "pattern": {"redact": Redact("x")},
    "path": {"redact": Redact(path="$..x")},
    "function": {"redact": lambda channel, value: value},
    "detecting": {"detect_secrets": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ENDLESS)
def test_what_has_no_end_is_refused_by_its_channel(kind: str, way: str) -> None:
    """What holds itself, or is nested deeper than can be stored: also as an item, as a task's
    write, in metadata, and where it has to be copied first."""
    saver = memory_saver(allow=[Link], **WAYS[way])
    value = ENDLESS[kind]
    for values in ({"c": value}, {"c": [value] * 3}, {"c": {"k": value, "l": "x" * 900}}):
        with pytest.raises(ValueRefusedError) as refused:
            saver.put(*superstep(saver, None, "1", values))
        assert refused.value.where.startswith("channel 'c'")
        assert len(str(refused.value)) < 300
    with pytest.raises(ValueRefusedError, match="write to 'c'" if saver._screen is None else "'c'"):
        saver.put_writes(config(id="1"), [("c", value)], "task")
    with pytest.raises(ValueRefusedError, match="metadata"):
        saver.put(*superstep(saver, None, "1", {}, metadata={"source": "loop", "m": value}))
    if saver._screen is None:
        with pytest.raises(ValueRefusedError, match="channel 'c'"):
            saver._serializer.copied(value, "c")
    assert saver.get_tuple(config()) is None


@pytest.mark.parametrize("kind", WRAPS)
def test_as_deep_as_can_be_stored_comes_back(kind: str) -> None:
    """It is stored and read, or refused when it is put."""
    for levels in (10, 60, 100, 120, 200, 250, 254, 260):
        saver = memory_saver(allow=[Link], redact=Redact("no"), detect_secrets=True)
        value = nested(levels, WRAPS[kind])
        try:
            saver.put(*superstep(saver, None, "1", {"c": value}))
        except ValueRefusedError:
            assert levels > 50
            continue
        found = saver.get_tuple(config())
        assert found is not None
        back = found.checkpoint["channel_values"]["c"]
        assert repr(back) == repr(value if kind != "tuple" else nested(levels, WRAPS["list"]))


# -- in the caller's words --------------------------------------------------------------------


ID = uuid.UUID(int=1)
REASONS: list[tuple[Any, str]] = [
    (object(), "object cannot be serialized"),
    (fractions.Fraction(1, 2), "Fraction cannot be serialized"),
    (np.float64(1), "float64 cannot be serialized"),
    (2**64, "int cannot be serialized: Integer exceeds 64-bit range"),
    ({object: 1}, "dict cannot be serialized: one of its keys cannot be"),
    ({ID: 1}, f"the key {ID!r} would come back as '{ID}'"),
    ({Colour.RED: 1}, "the key <Colour.RED: 'red'> would come back as 'red'"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "reason"), REASONS, ids=lambda v: type(v).__name__)
def test_a_reason_speaks_of_the_value(value: Any, reason: str) -> None:
    """Not of what the serializer is made of."""
    saver = memory_saver()
    with pytest.raises(ValueRefusedError) as refused:
        saver.put(*superstep(saver, None, "1", {"c": [value]}))
    assert refused.value.reason.partition(" (")[0] == reason


def test_what_cannot_be_taken_apart_is_told_without_the_code_that_met_it() -> None:
    """What speaks of the bytes is told."""
    errors = TypeError("'NoneType' object is not iterable"), KeyError("x"), ValueError("cut")
    told = [unreadable(None, "the record", error).detail for error in errors]
    form = "the record cannot be read (it has another form than what is written)"
    assert told == [form, form, "the record cannot be read (cut)"]
