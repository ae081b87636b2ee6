"""Stored objects: made again as what they were, of allowed classes only, and never silently not."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import ormsgpack
import pydantic
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Overwrite, Send
from typing_extensions import TypedDict

from langgraph_durable_state import DurableSaver, EvolutionError, UsageError, ValueRefusedError
from langgraph_durable_state.decisions.reviving import Unknown, permitting
from langgraph_durable_state.decisions.serializing import OnUnknownClass, Serializer, Verify

HERE = __name__


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


class Pair(NamedTuple):
    a: int
    b: Any


class Model(pydantic.BaseModel):
    number: int
    secret: pydantic.SecretStr = pydantic.SecretStr("s")


@dataclasses.dataclass
class Member:
    colour: Colour
    model: Model | None


def strict(*allow: Any, unknown: OnUnknownClass = "raise", verify: Verify = "raise") -> Serializer:
    return Serializer(permitting(None, allow), verify, unknown=unknown)


def bytes_of(value: Any) -> bytes:
    return JsonPlusSerializer().dumps_typed(value)[1]


class Cipher:
    """Turns bytes around."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "mirror", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "mirror"
        return ciphertext[::-1]


SAFE: list[Any] = [
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(2026, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")),
    datetime.date(2026, 1, 2),
    datetime.time(1, 2, 3, tzinfo=datetime.UTC),
    datetime.timedelta(1, 2, 3),
    datetime.timezone(datetime.timedelta(hours=1)),
    uuid.UUID(int=5),
    decimal.Decimal("1.10"),
    {1, 2},
    frozenset({"a"}),
    deque([1, 2]),
    ipaddress.ip_address("::1"),
    ipaddress.ip_network("10.0.0.0/8"),
    pathlib.PurePosixPath("a") if sys.platform == "never" else pathlib.Path("a/b"),
    zoneinfo.ZoneInfo("Europe/Paris"),
    re.compile("a+", re.I),
    HumanMessage("hi", id="1"),
    AIMessage("hi", tool_calls=[{"name": "a", "args": {"d": [1]}, "id": "1"}]),
    ToolMessage("x", tool_call_id="1", artifact={"when": datetime.date(2026, 1, 2)}),
    Document("text", metadata={"n": 1}),
    Send("node", {"m": [HumanMessage("hi")]}),
    Interrupt(value={"q": {1}}, id="i"),
    Command(update={"a": {1}}, goto="n"),
    Overwrite([1]),
    np.arange(6).reshape(2, 3),
    [{"deep": [{1}, {"er": uuid.UUID(int=1)}]}],
]


@pytest.mark.parametrize("value", SAFE, ids=lambda v: type(v).__name__)
def test_what_langgraph_calls_safe_is_read_as_langgraph_reads_it(value: Any) -> None:
    """Nothing has to be allowed for it."""
    data = bytes_of(value)
    theirs = JsonPlusSerializer(allowed_msgpack_modules=None).loads_typed(("msgpack", data))
    found = strict().loads("msgpack", data)
    assert type(found) is type(theirs) is type(value)
    assert repr(found) == repr(theirs)


OWN: list[Any] = [Point(1, [Point(2)]), Colour.RED, Word.YES, Pair(1, {2}), Model(number=1)]


@pytest.mark.parametrize("value", OWN, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("by", ["class", "name", "all"])
def test_an_allowed_class_is_read(value: Any, by: str) -> None:
    """Allowed as a class, as a pair of names, or with all others."""
    kind = type(value)
    allow: Any = {"class": [kind], "name": [(HERE, kind.__name__)], "all": True}[by]
    serializer = Serializer(permitting(None, allow))
    typed = serializer.dumps(value, "channel 'x'")
    found = serializer.loads(typed.tag, typed.data)
    assert (type(found), found) == (kind, value)


def test_the_classes_in_a_state_are_allowed_with_it() -> None:
    """As LangGraph collects them: of a TypedDict, of dataclasses and models, through containers."""

    class State(TypedDict):
        members: dict[str, list[Member] | None]

    value = {"m": [Member(Colour.RED, Model(number=1))]}
    serializer = strict(State)
    typed = serializer.dumps(value, "channel 'members'")
    assert serializer.loads(typed.tag, typed.data) == value
    with pytest.raises(ValueRefusedError, match="Word is not among"):
        serializer.dumps(Word.YES, "channel 'x'")


@pytest.mark.parametrize("value", OWN, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("verify", ["raise", "warn"])
def test_any_other_class_is_refused_when_it_is_put(value: Any, verify: Verify) -> None:
    """By its name and path, with what to do; a StrEnum too, which is equal to its text."""
    serializer = strict(verify=verify)
    if verify == "warn":
        assert serializer.dumps({"k": [0, value]}, "channel 'x'").data
        return
    with pytest.raises(ValueRefusedError, match=rf"{HERE}.{type(value).__name__}.*allow=\[") as no:
        serializer.dumps({"k": [0, value]}, "channel 'x'")
    assert no.value.where == "channel 'x', at ['k'][1]"


@pytest.mark.parametrize("value", OWN, ids=lambda v: type(v).__name__)
def test_any_other_class_is_not_read(value: Any) -> None:
    """Wherever it is in the value."""
    for data in map(bytes_of, (value, [value], {"k": {"l": value}}, Send("n", value))):
        with pytest.raises(EvolutionError, match=f"{HERE}.{type(value).__name__} is not among"):
            strict().loads("msgpack", data)


def test_raw_data_stands_for_what_may_not_be_read_if_that_is_wished() -> None:
    """As LangGraph itself has it; what may be read is read, around it and within."""
    data = bytes_of([Point({1}), Colour.RED, {2}])
    assert strict(unknown="raw").loads("msgpack", data) == [{"x": {1}, "y": 0}, "red", {2}]


def test_all_classes_that_are_missing_are_named() -> None:
    """Each once, the inner ones too."""
    data = bytes_of([Point(Colour.RED), Point(1)])
    with pytest.raises(Unknown) as error:
        strict().loads("msgpack", data)
    assert [each.name for each in dict.fromkeys(error.value.missed)] == ["Colour", "Point"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("its name is gone", "cannot be found"),
        ("its module is gone", "cannot be found"),
        ("it wants another field", "does not take what was stored"),
        ("it knows no such member", "does not take what was stored"),
    ],
)
def test_an_allowed_class_that_changed_is_named(
    how: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a dict where an object was, though LangGraph gives one."""
    gone: Any = "gone.away" if how == "its module is gone" else HERE
    monkeypatch.setattr(Point, "__module__", gone)
    data = bytes_of(Colour.RED if how == "it knows no such member" else Point(1))
    if how == "its name is gone":
        monkeypatch.delattr(sys.modules[HERE], "Point")
    elif how == "it wants another field":
        monkeypatch.setattr(sys.modules[HERE], "Point", dataclasses.make_dataclass("Point", ["z"]))
    elif how == "it knows no such member":
        monkeypatch.setattr(sys.modules[HERE], "Colour", enum.Enum("Colour", {"BLUE": "blue"}))
    for allow in ([(HERE, "Point"), (HERE, "Colour"), ("gone.away", "Point")], True):
        with pytest.raises(Unknown, match=why):
            Serializer(permitting(None, allow)).loads("msgpack", data)


def test_a_forged_call_is_not_made(tmp_path: pathlib.Path) -> None:
    """Whoever can write to the store cannot run code here, nor have a module imported."""
    trace = tmp_path / "trace"
    (tmp_path / "forged_module.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    try:
        for code, parts in (
            (0, ("os", "mkdir", str(trace))),
            (1, ("os", "mkdir", [str(trace)])),
            (2, ("os", "mkdir", {"path": str(trace)})),
            (3, ("pathlib", "Path", str(trace), "mkdir")),
            (3, ("datetime", "datetime", 5, "fromtimestamp")),
            (4, ("forged_module", "x", {})),
            (5, ("forged_module", "x", {})),
        ):
            data = ormsgpack.packb([ormsgpack.Ext(code, ormsgpack.packb(parts))])
            with pytest.raises(Unknown):
                strict().loads("msgpack", data)
            assert strict(unknown="raw").loads("msgpack", data) == [parts[2]]
    finally:
        sys.path.remove(str(tmp_path))
    assert not trace.exists()
    assert "forged_module" not in sys.modules


def test_what_a_constructor_complains_of_is_not_quoted() -> None:
    """It may be a secret."""
    data = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb((HERE, "Colour", "hunter2"))))
    with pytest.raises(Unknown) as error:
        strict(Colour).loads("msgpack", data)
    assert "Colour does not take" in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_serde_of_the_users_keeps_its_list(encrypted: bool) -> None:
    """`allow` adds to it, also where LangGraph's is wrapped in its encrypting one."""
    inner = JsonPlusSerializer(allowed_msgpack_modules=[Colour])
    serde: Any = EncryptedSerializer(Cipher(), inner) if encrypted else inner
    for made, fits in ((Serializer(permitting(serde, ())), False), (both(serde), True)):
        typed = made.dumps([Colour.RED], "channel 'x'")
        assert made.loads(typed.tag, typed.data) == [Colour.RED]
        assert made.serde.dumps_typed(1) == serde.dumps_typed(1)
        if fits:
            typed = made.dumps([Point(1)], "channel 'x'")
            assert made.loads(typed.tag, typed.data) == [Point(1)]
        else:
            with pytest.raises(ValueRefusedError, match="Point is not among"):
                made.dumps([Point(1)], "channel 'x'")


def both(serde: Any) -> Serializer:
    return Serializer(permitting(serde, [Point]))


def test_a_reader_that_the_user_gave_is_used() -> None:
    """It decides, and nothing is said about it here."""
    serde = JsonPlusSerializer(__unpack_ext_hook__=lambda code, data: f"theirs {code}")
    assert Serializer(serde).loads("msgpack", bytes_of(Point(1))) == "theirs 2"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"allow": "app"}, "allow="),
        ({"allow": Point}, "allow="),
        ({"allow": [("a", "b", "c")]}, "pairs"),
        ({"allow": [1]}, "pairs"),
        ({"allow": True, "serde": JsonPlusSerializer()}, "allowed_msgpack_modules"),
        ({"allow": [Point], "serde": JsonPlusSerializer(__unpack_ext_hook__=print)}, "allow="),
        ({"on_unknown_class": "ignore"}, "on_unknown_class"),
    ],
    ids=["text", "class", "triple", "number", "serde", "hook", "word"],
)
def test_what_cannot_be_used_is_said(options: Any, word: str) -> None:
    """When the saver is made."""
    with pytest.raises(UsageError, match=re.escape(word)):
        DurableSaver("postgresql://", **options)
