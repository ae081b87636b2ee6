"""Values: what comes back is what was given, or nothing is written and the error says where."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import uuid
from collections import deque
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send

from langgraph_durable_state import ValueRefusedError
from langgraph_durable_state.decisions.escape import escape_text, unescape_text
from langgraph_durable_state.decisions.serializing import Serializer, plain

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
        {1: 2, None: 3, 1.5: 4},
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
    ],
    ids=lambda v: repr(v)[:30].encode("ascii", "replace").decode(),
)
def test_comes_back(value: Any) -> None:
    """Equal, and of the same type."""
    back = there_and_back(value)
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert np.array_equal(back, value)
    else:
        assert back == value


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
