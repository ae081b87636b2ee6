"""Redaction: what a rule names is not stored, anything else is, and nothing is looked at twice."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import ipaddress
import itertools
import pathlib
import re
import uuid
from collections import defaultdict, deque
from typing import Any, NamedTuple

import numpy
import pydantic
import pydantic.v1
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Send

from langgraph_durable_state import DurableSaver, Event, Redact, UsageError, ValueRefusedError
from langgraph_durable_state.decisions.redaction import Screen
from langgraph_durable_state.decisions.secret_shapes import SHAPES, shape_of
from langgraph_durable_state.testing import World, memory_saver
from tests.contract.superstep import config, superstep

SSN = Redact(r"\d{3}-\d{2}-\d{4}")
S = "123-45-6789"
X = "[redacted]"


@dataclasses.dataclass(frozen=True, slots=True)
class Person:
    name: str
    ssn: Any = None


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", frozen=True)
    ssn: str
    password: pydantic.SecretStr = pydantic.SecretStr("s")


class Pair(NamedTuple):
    name: str
    ssn: str


class Old(pydantic.v1.BaseModel):
    ssn: str


class Shy(str):
    """Shows nothing of what is stored of it."""

    __slots__ = ()

    def __str__(self) -> str:
        return "***"


class Colour(enum.StrEnum):
    RED = S
    BLUE = "blue"


Secret = pydantic.SecretStr
AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def answer(artifact: Any) -> ToolMessage:
    return ToolMessage("a", tool_call_id="1", artifact=artifact)


def calling(**args: Any) -> AIMessage:
    return AIMessage("a", tool_calls=[{"name": "p", "args": args, "id": "1"}])


def screened(value: Any, *rules: Any, channel: str = "c") -> Any:
    return Screen(rules, None).whole(channel, value)


# -- a pattern --------------------------------------------------------------------------------

ANYWHERE: list[tuple[Any, Any]] = [
    (f"a {S} b {S}", f"a {X} b {X}"),
    ({"k": [f"{S}", ("x", S)]}, {"k": [X, ("x", X)]}),
    (HumanMessage(f"my {S}", id="1"), HumanMessage(f"my {X}", id="1")),
    (HumanMessage([{"type": "text", "text": S}]), HumanMessage([{"type": "text", "text": X}])),
    (HumanMessage("a", name=S, extra=S), HumanMessage("a", name=X, extra=X)),
    (answer([S]), answer([X])),
    (Person("a", [S]), Person("a", [X])),
    (Model(ssn=S, more=S), Model(ssn=X, more=X)),
    (Model(ssn="a", password=Secret(S)), Model(ssn="a", password=Secret(X))),
    (Pair("a", S), Pair("a", X)),
    ({S, "b"}, {X, "b"}),
    (frozenset({S}), frozenset({X})),
    (deque([S], 3), deque([X], 3)),
    (S.encode(), X.encode()),
    (bytearray(S.encode()), bytearray(X.encode())),
    (pathlib.Path(f"/home/{S}/x"), pathlib.Path(f"/home/{X}/x")),
    (Send("n", {"k": S}), Send("n", {"k": X})),
    (Interrupt(value={"q": S}, id="i"), Interrupt(value={"q": X}, id="i")),
    (Command(update={"k": S}, goto="n"), Command(update={"k": X}, goto="n")),
    (Command(goto=Send("n", {"k": S})), Command(goto=Send("n", {"k": X}))),
    (Command(goto=["n", Send("n", S)]), Command(goto=["n", Send("n", X)])),
    (Command(resume={"i": S}), Command(resume={"i": X})),
    (ValueError(f"no {S}"), f"ValueError('no {X}')"),
    (Shy(S), X),
    (Shy("x" + S), "x" + X),
    (memoryview(S.encode()), X.encode()),
    (memoryview(bytes(c for d in S.encode() for c in (d, 0)))[::2], X.encode()),
    (re.compile(f"^{S}$", re.I), re.compile(f"^{X}$", re.I)),
    (re.compile(S.encode()), re.compile(X.encode())),
    (Old(ssn=S), Old(ssn=X)),
    (Item(value={"k": S}, key="k", namespace=("n",), created_at=AT, updated_at=AT),
     Item(value={"k": X}, key="k", namespace=("n",), created_at=AT, updated_at=AT)),
    (defaultdict(list, a=[S]), defaultdict(list, a=[X])),
    ({"a": 1, S: 2, ("b", S): 3, "c": 4}, {"a": 1, X: 2, ("b", X): 3, "c": 4}),
    (defaultdict(list, {S: [S]}), defaultdict(list, {X: [X]})),
]  # fmt: skip


@pytest.mark.parametrize(("value", "after"), ANYWHERE, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("deep", [False, True])
def test_a_pattern_is_taken_out_of_every_text(value: Any, after: Any, deep: bool) -> None:
    """Whatever holds it; what was given is not changed."""
    shown = repr(value)
    value, after = ({"a": [value, 1]}, {"a": [after, 1]}) if deep else (value, after)
    found = screened(value, SSN)
    assert (type(found), found) == (type(after), after)
    assert S not in repr(found) + str(getattr(found, "password", ""))
    assert repr(value["a"][0] if deep else value) == shown


UNTOUCHED: list[Any] = [
    "plain", 1, None, True, 1.5, {"k": [1]}, [HumanMessage("hi")], Person("a"), Model(ssn="a"),
    b"\xff", {"k": 1}, Colour.BLUE, Send("n", {}), ValueError("x"), object(), Person, AT,
    uuid.UUID(int=5), ipaddress.ip_address("::1"), re.compile("x"), memoryview(b"x"),
    numpy.array(["x"]), numpy.array([1]), Command(goto=[S, Send(S, "x")], graph=S),
]  # fmt: skip


@pytest.mark.parametrize("value", UNTOUCHED, ids=lambda v: type(v).__name__)
def test_what_holds_nothing_of_it_is_left_itself(value: Any) -> None:
    """Not even copied; numbers, dates and names by which LangGraph finds things are no texts."""
    assert screened(value, SSN) is value


ADDRESS = "10.20.30.40"
IRREPLACEABLE: list[tuple[str, Any]] = [
    (S, Colour.RED),
    (S, b"\xff" + S.encode()),
    (S, numpy.array(["a", S])),
    (S, numpy.array([S.encode()])),
    (S, numpy.array([{"k": S}], dtype=object)),
    (S, {S: 1, "987-65-4321": 2}),
    (S, {Colour.RED: 1}),
    ("^a", re.compile("ab")),
    (re.escape(ADDRESS), ipaddress.ip_address(ADDRESS)),
    (re.escape(ADDRESS), ipaddress.ip_interface(ADDRESS)),
    (re.escape(ADDRESS), ipaddress.ip_network(ADDRESS)),
    ("2001:db8", ipaddress.ip_address("2001:db8::1")),
    ("-4000-8000-", uuid.UUID("00000000-0000-4000-8000-000000000000")),
]


@pytest.mark.parametrize(("pattern", "value"), IRREPLACEABLE, ids=lambda v: type(v).__name__)
def test_what_cannot_be_made_of_another_text_is_refused(pattern: str, value: Any) -> None:
    """With its channel and what it is, and without what it holds; nothing is stored."""
    rule = Redact(r"\d{3}-\d{2}-\d{4}" if pattern == S else pattern, by="(")
    saver = memory_saver(redact=rule, allow=[Colour])
    for values in ({"c": {"a": [value]}}, {"c": [value]}, {"c": value}):
        with pytest.raises(ValueRefusedError, match=r"channel 'c'.*redact") as refused:
            saver.put(*superstep(saver, None, "1", values))
        assert S not in str(refused.value)
        assert saver.get_tuple(config()) is None


def test_the_keys_of_a_channel_that_is_a_dict_are_stored_redacted() -> None:
    """Small or large, and beside entries that are stored already."""
    saver = memory_saver(redact=SSN)
    files = {f"f{i}": "x" * 80 for i in range(50)}
    saver.put(*superstep(saver, None, "1", {"c": files}))
    saver.put(
        *superstep(saver, saver.get_tuple(config()), "2", {"c": {**files, S: S}, "d": {S: 1}})
    )
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"c": {**files, X: X}, "d": {X: 1}}


def test_what_is_found_by_its_id_stays_findable() -> None:
    """A pattern without a path leaves names alone that are looked up, and nothing beside them."""
    digits = Redact(r"\d{4,}")
    call = {"name": "pay", "args": {"id": "12345"}, "id": "call_12345", "type": "tool_call"}
    found = screened([AIMessage("12345", id="run-12345", tool_calls=[call])], digits)[0]
    assert (found.content, found.id) == (X, "run-12345")
    assert found.tool_calls == [call | {"args": {"id": X}}]
    found = screened(ToolMessage("12345", tool_call_id="call_12345", id="12345"), digits)
    assert (found.content, found.tool_call_id, found.id) == (X, "call_12345", "12345")
    block = {"type": "tool_use", "id": "toolu_12345", "name": "pay", "input": {"n": "12345"}}
    assert screened(AIMessage([block]), digits).content == [block | {"input": {"n": X}}]
    assert screened(Interrupt(value="12345", id="12345"), digits) == Interrupt(value=X, id="12345")
    assert screened(Send("12345", "12345"), digits) == Send("12345", X)


def test_what_stands_in_its_place_may_be_made_of_it() -> None:
    """By a group, or a function of the match."""
    assert screened(S, Redact(r"\d{3}-\d{2}-(\d{4})", by=r"***-\1")) == "***-6789"
    assert screened("ab", Redact("b", by=lambda found: found[0].upper())) == "aB"


# -- a path -----------------------------------------------------------------------------------

STATE = {
    "ssn": "a",
    "people": [{"ssn": "b", "n": 1}, {"n": 2}],
    "deep": {"er": {"ssn": ["c"], "keep": "ssn"}},
    "with.dot": {"x": 1},
}
PATHS = {
    "$.ssn": STATE | {"ssn": X},
    "$['ssn']": STATE | {"ssn": X},
    '$["with.dot"].x': STATE | {"with.dot": {"x": X}},
    "$.people[*].ssn": STATE | {"people": [{"ssn": X, "n": 1}, {"n": 2}]},
    "$.people.*.n": STATE | {"people": [{"ssn": "b", "n": X}, {"n": X}]},
    "$.deep..ssn": STATE | {"deep": {"er": {"ssn": X, "keep": "ssn"}}},
    "$..er.ssn[*]": STATE | {"deep": {"er": {"ssn": [X], "keep": "ssn"}}},
    "$..ssn": {
        "ssn": X,
        "people": [{"ssn": X, "n": 1}, {"n": 2}],
        "deep": {"er": {"ssn": X, "keep": "ssn"}},
        "with.dot": {"x": 1},
    },
    "$.ssn.more": STATE,
    "$": X,
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_leads_to_what_is_replaced(path: str) -> None:
    """Through dicts and lists, as JSONPath has it."""
    before = repr(STATE)
    assert screened(STATE, Redact(path=path)) == PATHS[path]
    assert repr(STATE) == before


@pytest.mark.parametrize(
    ("path", "value", "after"),
    [
        ("$[*].content", [HumanMessage("a", id="1")], [HumanMessage(X, id="1")]),
        ("$[*].id", [HumanMessage("a", id="1")], [HumanMessage("a", id=X)]),
        ("$[*].tool_calls[*].args.pin", [calling(pin=1)], [calling(pin=X)]),
        ("$..ssn", [Person("a", 5), Model(ssn="b")], [Person("a", X), Model(ssn=X)]),
        ("$[*].ssn", [Pair("c", "d")], [Pair("c", X)]),
        ("$.password", Model(ssn="a"), Model(ssn="a", password=Secret(X))),
        ("$.ssn", Person("a"), Person("a")),
        ("$[*]", ["a", "b"], [X, X]),
        ("$", ["a", "b"], [X, X]),
    ],
)  # fmt: skip
def test_a_path_leads_through_objects(path: str, value: Any, after: Any) -> None:
    """A name is an attribute as well; what is None is nothing to take out."""
    found = screened(value, Redact(path=path))
    assert found == after
    assert path != "$.password" or found.password.get_secret_value() == X


def test_a_path_and_a_pattern_hold_both() -> None:
    """The pattern counts where the path leads, and within that everywhere."""
    rule = Redact(r"\d+", path="$.a", by="#")
    assert screened({"a": ["1x", {"k": "2"}], "b": "3"}, rule) == {
        "a": ["#x", {"k": "#"}],
        "b": "3",
    }


def test_rules_come_one_after_the_other() -> None:
    """Each is given what the last one left; functions and rules mix."""
    rules = (Redact("a", by="b"), lambda channel, value: f"{channel} {value}", Redact("b", by="c"))
    assert screened("ab", *rules, channel="x") == "x cc"


# -- which channels ---------------------------------------------------------------------------


def test_a_channels_rule_holds_for_its_channel_wherever_that_is_stored() -> None:
    """Itself, in a run's input, and in what is sent to a node; not under any other name."""
    rule = Redact("secret", channel="a")
    there = {"a": ["secret"], "b": "secret"}
    after = {"a": [X], "b": "secret"}
    assert screened(["secret"], rule, channel="a") == [X]
    assert screened("secret", rule, channel="b") == "secret"
    assert screened(there, rule, channel="__start__") == after
    assert Screen([rule], None).entry("__start__", "a", ["secret"]) == [X]
    assert screened([Send("n", there)], rule, channel="__pregel_tasks") == [Send("n", after)]
    assert (
        screened(Model(ssn="secret"), Redact("secret", channel="ssn"), channel="__start__").ssn == X
    )
    assert screened("secret", Redact("secret"), channel="__start__") == X


def test_metadata_but_langgraphs_own_and_ids_is_screened() -> None:
    """By the name of `__metadata__` alone, or with all channels."""
    metadata = {"source": S, "step": 1, "parents": {"": S}, "run_id": S, "mail": S, "n": {"k": [S]}}
    metadata |= {"user_id": S, "session_id": S, "tenant_id": S, "thread_id": S}
    own = {k: v for k, v in metadata.items() if k not in ("mail", "n")}
    for rule in (SSN, Redact(r"[\d-]{11}", channel="__metadata__")):
        assert Screen([rule], None).metadata(metadata) == own | {"mail": X, "n": {"k": [X]}}
    only = Screen([Redact(path="$.mail", channel="__metadata__")], None).metadata(metadata)
    assert only == metadata | {"mail": X}
    assert Screen([Redact("x", channel="mail")], None).metadata(metadata) == metadata
    with pytest.raises(ValueRefusedError, match="metadata"):
        Screen([lambda channel, value: None], None).metadata(metadata)


# -- only what is new -------------------------------------------------------------------------


class Counting:
    """A function that redacts, and keeps what it was called with."""

    def __init__(self, after: Any = lambda value: value) -> None:
        self.calls: list[Any] = []
        self.after = after

    def __call__(self, channel: str, value: Any) -> Any:
        self.calls.append(value)
        return self.after(value)


def marked(value: Any) -> Any:
    """Another value each time it is applied."""
    if isinstance(value, HumanMessage):
        return value.model_copy(update={"content": f"<{value.content}>"})
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(value, name=f"<{value.name}>")  # type: ignore[type-var]
    return {k: f"<{v}>" for k, v in value.items()} if isinstance(value, dict) else value


ITEMS: dict[str, Any] = {
    "messages": lambda i: HumanMessage(f"{i} " + "x" * 80, id=f"{i}"),
    "dicts": lambda i: {"text": f"{i} " + "x" * 80},
    "objects": lambda i: Person(f"{i} " + "x" * 80),
}


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("loaded", [False, True], ids=["one run", "loaded each time"])
def test_what_is_stored_already_is_not_looked_at_again(
    kind: str, changes: bool, loaded: bool
) -> None:
    """Whether the run goes on with what it had in hand, or loads what was stored; and a function
    that is not stable is applied once to each item."""
    function = Counting(marked if changes else lambda value: value)
    saver = memory_saver(redact=function, allow=[Person])
    make, held, before = ITEMS[kind], [ITEMS[kind](n) for n in range(9)], None
    for n in range(9, 150):
        if loaded and before is not None:
            held = before.checkpoint["channel_values"]["c"]
        held = [*held, make(n)]
        saver.put(*superstep(saver, before, f"{n:04}", {"c": held}))
        before = saver.get_tuple(config())
    items = [call for call in function.calls if type(call) is type(make(0)) and call != {}]
    assert items == [make(n) for n in range(150)]
    stored = saver.get_tuple(config()).checkpoint["channel_values"]["c"]  # type: ignore[union-attr]
    assert stored == [marked(make(n)) if changes else make(n) for n in range(150)]


def test_an_edit_is_looked_at_and_its_neighbours_are_not() -> None:
    """Nor what a trimmed front moves."""
    function = Counting()
    saver = memory_saver(redact=function)
    make = ITEMS["messages"]
    first = [make(i) for i in range(100)]
    saver.put(*superstep(saver, None, "1", {"c": first}))
    function.calls.clear()
    edited = [*first[:40], make(1000), *first[41:]]
    saver.put(*superstep(saver, saver.get_tuple(config()), "2", {"c": edited}))
    saver.put(*superstep(saver, saver.get_tuple(config()), "3", {"c": edited[10:]}))
    assert [call for call in function.calls if call != {}] == [make(1000)]


def test_the_entries_of_a_dict_are_taken_one_by_one_by_rules() -> None:
    """A rule's own function is called for a changed entry only."""
    seen: list[str] = []

    def by(found: re.Match[str]) -> str:
        seen.append(found[0])
        return "#"

    saver = memory_saver(redact=Redact(r"secret \d+", by=by))
    files = {f"f{i}": f"secret {i} " + "x" * 80 for i in range(50)}
    saver.put(*superstep(saver, None, "1", {"c": files}))
    assert len(seen) == 50
    files = {**files, "new": "secret 99"}
    saver.put(*superstep(saver, saver.get_tuple(config()), "2", {"c": files}))
    assert seen[50:] == ["secret 99"]
    found = saver.get_tuple(config()).checkpoint["channel_values"]["c"]  # type: ignore[union-attr]
    assert found == {f"f{i}": "# " + "x" * 80 for i in range(50)} | {"new": "#"}


@given(
    st.lists(
        st.lists(st.integers(0, 12), max_size=12).map(tuple),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_whatever_a_list_goes_through_each_item_is_stored_redacted_once(
    versions: list[tuple[int, ...]], loaded: bool
) -> None:
    """Moved, repeated, removed, put back: never as it was, never redacted twice."""
    saver = memory_saver(redact=lambda channel, value: marked(value))
    make = ITEMS["messages"]
    for n, version in enumerate(versions):
        before = saver.get_tuple(config()) if n else None
        saver.put(*superstep(saver, before, f"{n:04}", {"c": [make(i) for i in version]}))
        found = saver.get_tuple(config()).checkpoint["channel_values"]["c"]  # type: ignore[union-attr]
        assert found == [marked(make(i)) for i in version]
        if loaded:
            saver.put(*superstep(saver, saver.get_tuple(config()), f"{n:04}b", {"c": found}))
            again = saver.get_tuple(config()).checkpoint["channel_values"]["c"]  # type: ignore[union-attr]
            assert again == found


# -- in the way -------------------------------------------------------------------------------


def test_what_could_not_be_stored_may_be_taken_out() -> None:
    """Redaction comes first."""
    saver = memory_saver(redact=Redact(path="$..handle"))
    value = {"handle": object(), "n": 1}
    saver.put(*superstep(saver, None, "1", {"c": value, "l": [value] * 5}))
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"]["c"] == {"handle": X, "n": 1}


def test_what_waits_to_be_stored_is_redacted_once() -> None:
    """A fork of a checkpoint that this process has not seen is read first, and what is put is
    copied meanwhile: also what cannot be stored."""
    world = World()
    writer = memory_saver(world, redact=lambda channel, value: marked(value))
    make = ITEMS["messages"]
    writer.put(*superstep(writer, None, "1", {"c": [make(i) for i in range(9)]}))
    forker = memory_saver(world, redact=[Redact(path="$..handle"), lambda _, value: marked(value)])
    values = {"c": [make(10)], "d": {"handle": object()}}
    _, *put = superstep(forker, None, "2", values)
    forker.put(config(id="1"), *put)
    found = forker.get_tuple(config(id="2"))
    assert found is not None
    held = found.checkpoint["channel_values"]
    assert held == {"c": [marked(make(10))], "d": {"handle": f"<{X}>"}}


def test_a_function_that_raises_stores_nothing_and_is_named_without_what_it_said() -> None:
    """What it says may quote the value."""

    def failing(channel: str, value: Any) -> Any:
        raise KeyError(f"cannot do {value}")

    saver = memory_saver(redact=failing)
    with pytest.raises(ValueRefusedError) as refused:
        saver.put(*superstep(saver, None, "1", {"c": "hunter2"}))
    assert (refused.value.where, refused.value.reason) == (
        "channel 'c'",
        "rule 1 of redact, failing: raised KeyError",
    )
    assert saver.get_tuple(config()) is None
    rules = [Redact("never"), Redact("h", path="$.k", by=lambda found: found[9])]
    saver = memory_saver(redact=rules)
    with pytest.raises(ValueRefusedError) as refused:
        saver.put(*superstep(saver, None, "1", {"c": {"k": "hunter2"}}))
    told = "rule 2 of redact, Redact(pattern='h', path='$.k'): raised IndexError"
    assert refused.value.reason == told


class Ticket(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    age: int = 30
    code: str = pydantic.Field("AB1", pattern="[A-Z]+[0-9]")
    note: str = ""


class OldTicket(pydantic.v1.BaseModel):
    age: int = 30


def aged(channel: str, value: Any) -> Any:
    return value.model_copy(update={"age": "old"}) if isinstance(value, Ticket) else value


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (Redact(path="$..age"), Ticket()),
        (Redact(path="$..age"), {"k": [Ticket()]}),
        (Redact(path="$..age"), OldTicket()),
        (Redact("AB"), Ticket()),
        (aged, Ticket()),
        (aged, [Ticket()]),
        (Redact(path="$..content", by=5), HumanMessage("x")),
    ],
)
def test_what_its_class_refuses_is_not_stored_in_its_place(rule: Any, value: Any) -> None:
    """A graph that goes on from it would refuse it, long after what it was is gone."""
    saver = memory_saver(redact=rule, allow=[Ticket, OldTicket])
    with pytest.raises(ValueRefusedError, match=r"channel 'c'.* its class refuses"):
        saver.put(*superstep(saver, None, "1", {"c": value}))
    assert saver.get_tuple(config()) is None


def test_what_its_class_takes_is_stored_in_its_place() -> None:
    """Also beside what it would not have taken before."""
    odd = Ticket.model_construct(age=1, code="none", note=S)
    for value, rule in [
        (Ticket(), Redact(path="$..age", by=0)),
        (Ticket(), Redact("AB", by="X")),
        (Ticket(note=S), SSN),
        (odd, SSN),
    ]:
        after = screened(value, rule)
        saver = memory_saver(redact=rule, allow=[Ticket])
        saver.put(*superstep(saver, None, "1", {"c": value}))
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"c": after}
        assert repr(after) != repr(value)


async def coroutine(channel: str, value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    "make",
    [
        Redact,
        functools.partial(Redact, "("),
        functools.partial(Redact, b"x"),
        functools.partial(Redact, "a{99999999999}"),
        functools.partial(Redact, "(" * 5_000 + ")" * 5_000),
        functools.partial(Redact, "x", by=5),
        functools.partial(Redact, "x", by=r"\9"),
        functools.partial(Redact, "x", by=r"\g<name>"),
        functools.partial(Redact, "x", by=r"\q"),
        functools.partial(Redact, "x", channel=5),
        functools.partial(Redact, path="ssn"),
        functools.partial(Redact, path="$[0]"),
        functools.partial(Redact, path="$.a["),
        functools.partial(Redact, path="$.people[?(@.n>1)]"),
        functools.partial(DurableSaver, "", redact="x"),
        functools.partial(DurableSaver, "", redact=""),
        functools.partial(DurableSaver, "", redact={}),
        functools.partial(DurableSaver, "", redact={"x": "y"}),
        functools.partial(DurableSaver, "", redact=["x"]),
        functools.partial(DurableSaver, "", redact=coroutine),
        functools.partial(DurableSaver, "", detect_secrets="warn"),
    ],
)
def test_what_cannot_be_used_is_said(make: Any) -> None:
    """When it is made, not when something is stored."""
    with pytest.raises(UsageError):
        make()


# -- secrets ----------------------------------------------------------------------------------

TOKENS = {
    "an AWS access key": "AKIA" + "IOSFODNN7EXAMPLE"[:16],
    "a GitHub token": "ghp_" + "a1" * 18,
    "a GitLab token": "glpat-" + "a1" * 10,
    "an Anthropic API key": "sk-ant-" + "api03-" + "aB-_" * 20,
    "an OpenAI API key": "sk-" + "proj-" + "a1" * 30 + "T3Blbk" + "FJ" + "a1" * 30,
    "a LangSmith API key": "lsv2_" + "pt_" + "0a" * 16 + "_" + "0a" * 5,
    "a Google API key": "AIza" + "Sy" + "a" * 33,
    "a Slack token": "xoxb-" + "1234567890-" + "a1" * 12,
    "a Slack webhook": "https://hooks.slack." + "com/services/T0123456/B0123456/" + "a1" * 12,
    "a Stripe key": "sk_" + "live_" + "a1" * 12,
    "a Hugging Face token": "hf_" + "aB" * 17,
    "an npm token": "npm_" + "a1" * 18,
    "a PyPI token": "pypi-AgE" + "IcHlwaS5vcmc" * 5,
    "a SendGrid key": "SG." + "a1" * 11 + "." + "a1" * 21 + "a",
    "a Telegram bot token": "123456789:AA" + "a1" * 16 + "a",
    "a JSON Web Token": "eyJhbGciOiJI" + "." + "eyJzdWIiOiIx" + "." + "c2lnbmF0dXJl",
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "a URL with a password": "postgresql://app:" + "hunter2@db:5432/x",
}


def test_each_shape_is_known_and_is_not_taken_for_another() -> None:
    """In the middle of a sentence."""
    assert TOKENS.keys() == SHAPES.keys()
    assert {name: shape_of(f"use {token}, please") for name, token in TOKENS.items()} == {
        name: name for name in TOKENS
    }


@pytest.mark.parametrize(
    "text",
    [
        "the sky is blue", "sk-learn and scikit-learn", "https://example.org:8080/a@b",
        "mailto:someone@example.org", "2026-01-01T00:00:00+00:00", "AKIA is a prefix",
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "a:b@c", "-----BEGIN CERTIFICATE-----",
        "http://localhost:5432/x", "postgresql://app@db/x", "hf_hub", "e" * 5_000,
    ],
)  # fmt: skip
def test_ordinary_texts_are_not_taken_for_secrets(text: str) -> None:
    """A warning that is mostly wrong is turned off."""
    assert shape_of(text) is None


def test_secrets_are_told_with_channel_and_path_and_never_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In state, writes and metadata; once for each place, and they are stored all the same."""
    told: list[Event] = []
    saver = memory_saver(detect_secrets=True, observer=told.append)
    token = TOKENS["a GitHub token"]
    messages = [HumanMessage(f"{i} {token}", id=f"{i}") for i in range(5)]
    values = {
        "messages": messages,
        "env": {"keys": [token]},
        "fine": "x",
        "safe": pydantic.SecretStr(token),
    }
    where, *put = superstep(saver, None, "1", values, metadata={"source": "loop", "note": token})
    saver.put(where, *put)
    found = saver.get_tuple(config())
    assert found is not None
    saver.put_writes(found.config, [("answer", Person("a", token).ssn)], "task")
    assert [(event.kind, event.detail) for event in told] == [
        ("secret_seen", "channel 'messages', at $[0].content, a GitHub token"),
        ("secret_seen", "channel 'env', at $.keys[0], a GitHub token"),
        ("secret_seen", "metadata, at $.note, a GitHub token"),
        ("secret_seen", "channel 'answer', at $, a GitHub token"),
    ]  # fmt: skip
    assert token not in caplog.text + "".join(map(str, told))
    assert found.checkpoint["channel_values"]["messages"] == messages


def test_a_secret_that_is_a_key_or_within_an_object_is_told_without_itself() -> None:
    """Nor is it shown in the paths of what stands under it."""
    told: list[Event] = []
    saver = memory_saver(detect_secrets=True, observer=told.append)
    token = TOKENS["a GitHub token"]
    values = {
        "a": {token: 1},
        "b": {"k": {token: {"l": TOKENS["an npm token"]}}},
        "c": [pathlib.Path("/x", token)],
        "d": re.compile(token),
    }
    saver.put(*superstep(saver, None, "1", values))
    assert [event.detail for event in told] == [
        "channel 'a', at $[a key], a GitHub token",
        "channel 'b', at $.k[a key], a GitHub token",
        "channel 'b', at $.k[a key].l, an npm token",
        "channel 'c', at $[0], a GitHub token",
        "channel 'd', at $, a GitHub token",
    ]


def test_what_is_redacted_is_not_told_as_a_secret() -> None:
    """It is not stored."""
    told: list[Event] = []
    saver = memory_saver(redact=Redact("ghp_[a-z0-9]+"), detect_secrets=True, observer=told.append)
    saver.put(*superstep(saver, None, "1", {"c": [TOKENS["a GitHub token"]] * 9}))
    assert told == []


def test_secrets_are_looked_for_in_what_is_new_only() -> None:
    """As rules are applied."""
    told: list[Event] = []
    saver = memory_saver(detect_secrets=True, observer=told.append)
    make = ITEMS["messages"]
    first = [make(i) for i in range(50)]
    saver.put(*superstep(saver, None, "1", {"c": first}))
    looked = itertools.count()
    original = Screen._look
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Screen, "_look", lambda *args: next(looked) or original(*args))
        saver.put(*superstep(saver, saver.get_tuple(config()), "2", {"c": [*first, make(50)]}))
    assert next(looked) == 2  # the item, and the metadata
