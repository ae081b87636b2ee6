"""Code that does not know a field of an object keeps it: the code that does finds it again."""

from __future__ import annotations

import dataclasses
import gc
import sys
from typing import Any

import pydantic
import pytest

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.decisions import unknown_fields
from langgraph_durable_state.decisions.redaction import Redact, Screen
from langgraph_durable_state.decisions.reviving import permitting
from langgraph_durable_state.decisions.serializing import Serializer

HERE = sys.modules[__name__]
KINDS = ["model", "model that forbids others", "dataclass"]


def a_person(kind: str, fields: dict[str, Any]) -> type:
    """A class of this module with these fields and their defaults."""
    if kind == "dataclass":
        given = [(name, Any, dataclasses.field(default=d)) for name, d in fields.items()]
        made: type = dataclasses.make_dataclass("Person", given)
    else:
        config = pydantic.ConfigDict(extra="forbid" if "forbids" in kind else "ignore")
        typed: Any = {name: (Any, d) for name, d in fields.items()}
        made = pydantic.create_model("Person", __config__=config, **typed)
    made.__module__ = __name__
    return made


OLD = {"name": "?", "age": 7}
NEW = OLD | {"email": None}


class Code:
    """One version of the code: its class `Person`, by which it reads and stores."""

    def __init__(
        self, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch, kind: str = "model"
    ) -> None:
        self.person: Any = a_person(kind, fields)
        self._monkeypatch = monkeypatch

    def _serializer(self) -> Serializer:
        self._monkeypatch.setattr(HERE, "Person", self.person, raising=False)
        return Serializer(permitting(None, [(__name__, "Person"), (__name__, "Box")]))

    def read(self, data: bytes) -> Any:
        return self._serializer().loads("msgpack", data)

    def stored(self, value: Any) -> bytes:
        return self._serializer().dumps(value, "a test").data


@pytest.fixture(params=KINDS)
def codes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Code, Code]:
    """Code that knows no `email`, and code that does."""
    kind = request.param
    return Code(OLD, monkeypatch, kind), Code(NEW, monkeypatch, kind)


def test_what_older_code_stores_again_has_it(codes: tuple[Code, Code]) -> None:
    old, new = codes
    stored = new.stored([new.person(name="a", email="a@x"), new.person(name="b")])
    seen = old.read(stored)
    assert seen == [old.person(name="a"), old.person(name="b")]
    seen[0].name = "A"
    again = new.read(old.stored([old.person(name="first"), *seen]))
    assert again == [
        new.person(name="first"),
        new.person(name="A", email="a@x"),
        new.person(name="b", email=None),
    ]


def test_what_is_not_stored_is_what_the_class_says(codes: tuple[Code, Code]) -> None:
    old, new = codes
    assert new.read(old.stored(old.person(name="a"))) == new.person(name="a", age=7, email=None)


def test_another_object_has_it_not(codes: tuple[Code, Code]) -> None:
    """In the place of the first, and made from it."""
    old, new = codes
    one = old.read(new.stored(new.person(name="a", email="a@x")))
    made = one.model_copy() if hasattr(one, "model_copy") else dataclasses.replace(one)
    assert new.read(old.stored([old.person(name="b"), made])) == [
        new.person(name="b"),
        new.person(name="a"),
    ]


def test_it_is_kept_as_long_as_its_object(codes: tuple[Code, Code]) -> None:
    old, new = codes
    gc.collect()
    before = len(unknown_fields._kept)
    one = old.read(new.stored(new.person(email="a@x")))
    assert len(unknown_fields._kept) == before + 1
    assert one.name == "?"
    del one
    gc.collect()
    assert len(unknown_fields._kept) == before


def test_in_models_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are stored in one piece; each keeps its own, wherever it is then."""
    old, new = Code(OLD, monkeypatch), Code(NEW, monkeypatch)

    def box(code: Code) -> Any:
        made = pydantic.create_model("Box", one=(code.person, ...), more=(list[code.person], ...))
        made.__module__ = __name__
        monkeypatch.setattr(HERE, "Box", made, raising=False)
        return made

    given = [new.person(name=name, email=f"{name}@x") for name in "abc"]
    stored = new.stored(box(new)(one=given[0], more=given[1:]))
    box(old)
    seen = old.read(stored)
    seen.one, seen.more = seen.more[1], [old.person(name="d"), seen.one]
    again = old.stored(seen)
    box(new)
    found = new.read(again)
    assert found.one == new.person(name="c", email="c@x")
    assert found.more == [new.person(name="d"), new.person(name="a", email="a@x")]


@dataclasses.dataclass(slots=True)
class Narrow:
    name: str


def test_where_nothing_can_be_kept_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = dataclasses.make_dataclass("Narrow", [("name", str), ("email", str)], slots=True)
    wide.__module__ = __name__
    serializer = Serializer(permitting(None, [(__name__, "Narrow")]))
    with monkeypatch.context() as newer:
        newer.setattr(HERE, "Narrow", wide)
        stored = serializer.dumps(wide("a", "a@x"), "a test")
    with pytest.raises(EvolutionError, match="Narrow does not take what was stored"):
        serializer.loads(stored.tag, stored.data)


def test_nothing_is_kept_that_a_screen_cannot_look_into(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Code(OLD, monkeypatch), Code(NEW, monkeypatch)
    one = old.read(new.stored(new.person(name="a", email="a@x")))
    screened = Serializer(
        permitting(None, [(__name__, "Person")]), screen=Screen(Redact("other"), None)
    )
    again = screened.dumps(one, "a test").data
    assert new.read(again) == new.person(name="a")
