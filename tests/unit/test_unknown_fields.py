"""Code that does not know a field of an object keeps it: the code that does finds it again."""

from __future__ import annotations

import dataclasses
import gc
import sys
from typing import Annotated, Any

import pydantic
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

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
        return Serializer(permitting(None, [(__name__, "Person"), (__name__, "Crate")]))

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


@dataclasses.dataclass
class Crate:
    """An object that holds others."""

    inside: Any


def test_in_what_holds_it(codes: tuple[Code, Code]) -> None:
    old, new = codes
    one = new.person(name="a", email="a@x")
    for value in ({"k": [one]}, Crate([one]), Send("work", {"of": one})):
        assert new.read(old.stored(old.read(new.stored(value)))) == value


def a_box(code: Code, monkeypatch: pytest.MonkeyPatch, each: Any = None) -> Any:
    """A model of models, which LangGraph stores in one piece."""
    each = code.person if each is None else each
    fields: Any = {"one": (code.person, ...), "more": (list[each], []), "by": (dict[str, each], {})}
    made = pydantic.create_model("Crate", __module__=__name__, **fields)
    monkeypatch.setattr(HERE, "Crate", made)
    return made


@pytest.mark.parametrize("kind", ["model", "dataclass"])
def test_in_models_of_models(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each keeps its own, wherever it is put then; who takes its place gets nothing of it."""
    old, new = Code(OLD, monkeypatch, kind), Code(NEW, monkeypatch, kind)
    a, b, c = (new.person(name=name, email=f"{name}@x") for name in "abc")
    stored = new.stored(a_box(new, monkeypatch)(one=a, more=[b, c], by={"k": a}))
    a_box(old, monkeypatch)
    seen = old.read(stored)
    seen.one, seen.more = seen.more[1], [old.person(name="d"), seen.one, seen.more[0]]
    again = old.stored(seen)
    a_box(new, monkeypatch)
    found = new.read(again)
    assert (found.one, found.more) == (c, [new.person(name="d"), a, b])
    assert found.by == {"k": a}


def test_a_validator_within_may_put_one_in_anothers_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """So nothing is kept there: who is who, nobody can tell."""
    old, new = Code(OLD, monkeypatch), Code(NEW, monkeypatch)
    people = [new.person(name=name, email=f"{name}@x") for name in "ab"]
    stored = new.stored(a_box(new, monkeypatch)(one=people[0], more=people))
    seen_once: list[Any] = []

    def same(value: Any) -> Any:
        seen_once.append(value)
        return seen_once[0]

    before = len(unknown_fields._kept)
    a_box(old, monkeypatch, Annotated[old.person, pydantic.AfterValidator(same)])
    seen = old.read(stored)
    assert seen.more[0] is seen.more[1]
    assert len(unknown_fields._kept) == before


def test_in_a_model_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def tree(**more: Any) -> Any:
        inner: Any = {"name": (str, ""), "below": (list["Person"], []), **more}  # type: ignore[name-defined]  # noqa: F821
        made = pydantic.create_model("Person", __module__=__name__, **inner)
        monkeypatch.setattr(HERE, "Person", made, raising=False)
        made.model_rebuild()
        return made

    serializer = Serializer(permitting(None, [(__name__, "Person")]))
    newer = tree(note=(str, ""))
    whole = newer(name="a", note="1", below=[newer(name="b", note="2", below=[newer(note="3")])])
    stored = serializer.dumps(whole, "a test")
    tree()
    again = serializer.dumps(serializer.loads(stored.tag, stored.data), "a test")
    monkeypatch.setattr(HERE, "Person", newer)
    assert serializer.loads(again.tag, again.data) == whole


# -- classes that make something of their own of what is stored --------------------------------


def renamed(now: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What this class makes of an object that was stored with `fullname`."""
    before = Code({"fullname": "?"}, monkeypatch)
    stored = before.stored(before.person(fullname="ada"))
    now.__module__, now.__name__ = __name__, "Person"
    monkeypatch.setattr(HERE, "Person", now)
    return Serializer(permitting(None, [(__name__, "Person")])).loads("msgpack", stored)


class Choosing(pydantic.BaseModel):
    name: str = pydantic.Field("?", validation_alias=pydantic.AliasChoices("name", "fullname"))


class Mending(pydantic.BaseModel):
    name: str = "?"

    @pydantic.model_validator(mode="before")
    @classmethod
    def mend(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {"name": given.get("fullname", given.get("name", "?"))}


def test_a_class_that_reads_an_old_name_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(unknown_fields._kept)
    for now in (Choosing, Mending):
        assert renamed(now, monkeypatch).name == "ada"
    assert len(unknown_fields._kept) == before


@dataclasses.dataclass(init=False)
class Constructed:
    name: str

    def __init__(self, name: str = "?", fullname: str | None = None) -> None:
        self.name = fullname or name


@dataclasses.dataclass
class Initialised:
    fullname: dataclasses.InitVar[str]
    name: str = "?"

    def __post_init__(self, fullname: str) -> None:
        self.name = fullname


@pytest.mark.parametrize("now", [Constructed, Initialised])
def test_a_constructor_that_takes_an_old_name_is_given_it(
    now: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Code({"fullname": "?"}, monkeypatch, "dataclass")
    stored = before.stored(before.person(fullname="ada"))
    now.__name__ = "Person"
    monkeypatch.setattr(HERE, "Person", now)
    serializer = Serializer(permitting(None, [(__name__, "Person")]))
    assert serializer.loads("msgpack", stored).name == "ada"


class Tags(pydantic.RootModel[dict[str, int]]):
    pass


_known: dict[str, Any] = {}


class Currency(pydantic.BaseModel):
    code: str

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def one_of_each(cls, given: Any, handler: Any) -> Any:
        made = handler(given)
        return _known.setdefault(made.code, made)


def test_nothing_is_kept_beside_what_others_share(monkeypatch: pytest.MonkeyPatch) -> None:
    serializer = Serializer(permitting(None, [Currency, Tags]))
    wider = pydantic.create_model("Currency", __module__=__name__, code=(str, ...), note=(str, ""))
    with monkeypatch.context() as newer:
        newer.setattr(HERE, "Currency", wider)
        stored = serializer.dumps(wider(code="EUR", note="of one tenant"), "a test")
    mine = serializer.loads(stored.tag, stored.data)
    assert b"tenant" not in serializer.dumps(mine, "a test").data
    tags = serializer.loads("msgpack", serializer.dumps(Tags({"a": 1}), "a test").data)
    assert tags == Tags({"a": 1})


class Odd:
    """Only pickle takes it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)

    __hash__ = None  # type: ignore[assignment]


def test_other_values_are_stored_as_ever(codes: tuple[Code, Code]) -> None:
    """While something is kept beside some object of another thread's."""
    old, new = codes
    kept = old.read(new.stored(new.person(email="a@x")))
    serializer = Serializer(JsonPlusSerializer(pickle_fallback=True))
    assert serializer.dumps([Odd()], "a test").tag == "pickle"
    for value in ([1, {"a": Crate(None)}], Send("n", 1), HumanMessage("hi")):
        tag, data = JsonPlusSerializer().dumps_typed([value, {1, 2}])
        ours = Serializer(permitting(None, [Crate])).dumps([value, {1, 2}], "a test")
        assert (ours.tag, ours.data) == (tag, data)
    assert kept.name == "?"


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
