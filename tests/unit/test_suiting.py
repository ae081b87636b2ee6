"""Which values the class of a state does not take, named by where they are."""

from __future__ import annotations

import dataclasses
import operator
import uuid
from typing import Annotated, Any, NotRequired, Required

import pydantic
import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from typing_extensions import TypedDict

from langgraph_durable_state import UsageError
from langgraph_durable_state.decisions.suiting import Suit


class Item(pydantic.BaseModel):
    sku: str
    n: int = pydantic.Field(1, gt=0)


class Order(pydantic.BaseModel):
    items: list[Item] = []
    by: str = pydantic.Field("", alias="from")


class Thing:
    """Of no class that pydantic knows."""


@dataclasses.dataclass
class Parcel:
    item: Item


class Model(pydantic.BaseModel):
    name: str
    orders: Annotated[list[Order], operator.add] = []
    messages: Annotated[list[AnyMessage], add_messages] = []


class Ordered(pydantic.BaseModel):
    low: int
    high: int

    @pydantic.model_validator(mode="after")
    def check(self) -> Ordered:
        if self.low > self.high:
            raise ValueError(f"{self.low} and {self.high}")
        return self


class Typed(TypedDict):
    name: Required[str]
    count: NotRequired[Annotated[int, pydantic.Field(gt=0)]]
    orders: Annotated[list[Order], operator.add]
    thing: Thing


@dataclasses.dataclass
class Plain:
    name: str
    parcel: Parcel | None = None


BAD = Item.model_construct(sku=7, n=0)
FINE = Order(items=[Item(sku="a")], **{"from": "b"})


def found(state: Any, values: dict[str, Any], *others: str) -> list[str]:
    versions = dict.fromkeys((*values, *others), 1)
    misfits = Suit(state).misfits({"channel_values": values, "channel_versions": versions})
    return [each.path for each in misfits]


def graph(state: Any) -> Any:
    builder = StateGraph(state)
    builder.add_node("a", lambda _: {})
    builder.add_edge(START, "a")
    return builder


@pytest.mark.parametrize("state", [Model, graph(Model), graph(Model).compile(), Typed, Plain])
def test_what_suits(state: Any) -> None:
    values = {"name": "n", "orders": [FINE], "messages": [AIMessage("hi")], "branch:to:a": None}
    if state is Typed:
        values["thing"] = Thing()
    if state is Plain:
        values = {"name": "n", "parcel": Parcel(Item(sku="a"))}
    assert found(state, values) == []


@pytest.mark.parametrize(
    ("state", "values", "paths"),
    [
        (Model, {"name": 1}, ["name"]),
        (Model, {}, []),  # a run that has not begun
        (Ordered, {"low": 3, "high": 1}, [""]),
        (Typed, {"name": "n", "count": 0}, ["count"]),
        (Model, {"name": "n", "orders": ["text", FINE, 3]}, ["orders[0]", "orders[2]"]),
        (
            Model,
            {"name": "n", "orders": [FINE, Order.model_construct(items=[BAD])]},
            ["orders[1].items[0].sku", "orders[1].items[0].n"],
        ),
        (Typed, {"name": 1, "orders": "many", "thing": 3}, ["name", "orders", "thing"]),
        (Typed, {}, []),
        (Plain, {"parcel": Parcel(BAD)}, ["parcel.item.sku", "parcel.item.n"]),
        (Model, {"name": "n", "extra": [{"deep": BAD}]}, ["extra[0].deep.sku", "extra[0].deep.n"]),
    ],
)
def test_what_does_not(state: Any, values: dict[str, Any], paths: list[str]) -> None:
    assert found(state, values) == paths


@pytest.mark.parametrize("state", [MessagesState, Model])
def test_every_kind_of_message_suits(state: Any) -> None:
    messages = [
        HumanMessage("a"),
        AIMessage("b"),
        SystemMessage("c"),
        ToolMessage("d", tool_call_id="1"),
    ]
    assert found(state, {"name": "n", "messages": messages}) == []


class Left(pydantic.BaseModel):
    """What LangGraph puts in is no channel; a key that only some nodes know is one."""

    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    left: RemainingSteps


def test_what_a_graph_adds_and_leaves_out_suits() -> None:
    assert found(graph(Left), {"name": "n", "private": 1}) == []


class Elsewise(pydantic.BaseModel):
    """Stored by its fields, read by other names."""

    name: str = pydantic.Field(validation_alias=pydantic.AliasChoices("called", "named"))


def test_a_model_with_ways_of_its_own_is_not_judged() -> None:
    values = {"name": "n", "extra": Elsewise(called="x")}
    assert found(Model, values) == []


def test_nothing_of_the_value_is_told() -> None:
    class Picky(pydantic.BaseModel):
        name: str

        @pydantic.field_validator("name")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError(f"not {value}")

    values = {"name": "sesame"}
    (misfit,) = Suit(Picky).misfits({"channel_values": values, "channel_versions": {}})
    assert str(misfit) == "name: it is refused"
    (misfit,) = Suit(Model).misfits({"channel_values": {"name": 4711}, "channel_versions": {}})
    assert "4711" not in str(misfit)
    (misfit,) = Suit(Dated).misfits({"channel_values": {"at": "sesame"}, "channel_versions": {}})
    assert str(misfit) == "at: it is refused"


class Dated(TypedDict):
    at: uuid.UUID


@pytest.mark.parametrize("state", [3, "Model", lambda: None])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(UsageError, match="state="):
        found(state, {"name": 1})
