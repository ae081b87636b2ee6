"""The fingerprint of a compiled graph: what LangGraph's own objects tell, in our words.

What LangGraph makes for itself is left out: its channels and nodes are those of the nodes and
edges that are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_origin, get_type_hints

from langgraph._internal._typing import MISSING as ABSENT
from langgraph.channels import (
    AnyValue,
    BaseChannel,
    BinaryOperatorAggregate,
    DeltaChannel,
    EphemeralValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
    Topic,
    UntrackedValue,
)
from langgraph.pregel import Pregel
from pydantic import BaseModel
from typing_extensions import is_typeddict

from ...errors import UsageError
from .fingerprint import Channel, Fingerprint, GraphShape, Join
from .spelling import MARKS, home, spelled

_BRANCH, _JOIN = "branch:to:", "join:"

_EMPTY_AT_TIMES = (AnyValue, EphemeralValue, Topic, UntrackedValue)
"""Channels that lose what they hold: a node that cannot do without it does not read them."""


def taken(graph: Any, name: str, version: int) -> Fingerprint:
    """The fingerprint of a compiled graph, and of the graphs in its nodes.

    Args:
        graph: compiled.
        name: the graph's own if empty.
        version: of its schema.

    Raises:
        UsageError: if it is no compiled graph.
    """
    if not isinstance(graph, Pregel):
        hint = "; call its compile()" if hasattr(graph, "compile") else ""
        raise UsageError(f"{type(graph).__name__} is no compiled graph{hint}")
    return Fingerprint(name or graph.get_name(), version, dict(_shapes(graph, "", ())))


def _shapes(graph: Any, path: str, around: tuple[Any, ...]) -> Iterator[tuple[str, GraphShape]]:
    yield path, _shape(graph, "parent" if not around else _checkpointer(graph))
    for node, inner in graph.get_subgraphs():
        # A graph that calls itself is told once; one on another machine keeps its own state.
        if isinstance(inner, Pregel) and not any(inner is each for each in (*around, graph)):
            yield from _shapes(inner, f"{path}/{node}" if path else node, (*around, graph))


def _checkpointer(graph: Any) -> str:
    if graph.checkpointer is None:
        return "parent"
    return "kept" if graph.checkpointer is True else "own"


def _shape(graph: Any, checkpointer: str) -> GraphShape:
    demanded = frozenset(_demanded(graph))
    joins = {each: one for each, one in graph.channels.items() if each.startswith(_JOIN)}
    return GraphShape(
        channels={
            name: _channel(each, name in demanded)
            for name, each in graph.channels.items()
            if _is_users(name)
        },
        nodes=frozenset(name for name in graph.nodes if not name.startswith("__")),
        deferred=frozenset(_deferred(graph)),
        joins=frozenset(_join(name, each) for name, each in joins.items()),
        checkpointer=checkpointer,
    )


def _is_users(channel: str) -> bool:
    if channel.startswith((_BRANCH, _JOIN)):
        return False
    return not channel.startswith("__") or channel == "__root__"


def _channel(channel: Any, demanded: bool) -> Channel:
    if not isinstance(channel, BaseChannel):
        return Channel("managed", home(channel))
    # A channel that LangGraph starts with an empty list, or a zero, is never without a value.
    starts = channel.from_checkpoint(ABSENT).is_available()
    required = demanded and not starts and not isinstance(channel, _EMPTY_AT_TIMES)
    return Channel(_kind(channel), _type(channel), _reducer(channel), required)


def _kind(channel: BaseChannel[Any, Any, Any]) -> str:
    if isinstance(channel, Topic):
        return "Topic, accumulated" if channel.accumulate else "Topic"
    where = home(type(channel))
    return where.rpartition(":")[2] if where.startswith("langgraph.channels.") else where


def _type(channel: BaseChannel[Any, Any, Any]) -> str:
    typ = getattr(channel, "typ", Any)
    return f"list[{spelled(typ)}]" if isinstance(channel, Topic) else spelled(typ)


def _reducer(channel: BaseChannel[Any, Any, Any]) -> str | None:
    if isinstance(channel, BinaryOperatorAggregate):
        return home(channel.operator)
    return home(channel.reducer) if isinstance(channel, DeltaChannel) else None


def _deferred(graph: Any) -> Iterator[str]:
    """Nodes that run once nothing else does."""
    for name, channel in graph.channels.items():
        if isinstance(channel, LastValueAfterFinish) and name.startswith(_BRANCH):
            yield name.removeprefix(_BRANCH)
        elif isinstance(channel, NamedBarrierValueAfterFinish):
            yield name.rpartition(":")[2]


def _join(name: str, channel: NamedBarrierValue[str]) -> Join:
    starts, _, end = name.removeprefix(_JOIN).rpartition(":")
    # In the order that the channel is named by: a node's name may have a plus in it.
    known = sorted(channel.names, key=lambda each: f"+{starts}+".find(f"+{each}+"))
    return Join(tuple(known), end)


# -- what a node cannot do without -----------------------------------------------------------


def _demanded(graph: Any) -> Iterator[str]:
    builder = getattr(graph, "builder", None)
    if builder is None:
        return
    schemas = [builder.state_schema, *(node.input_schema for node in builder.nodes.values())]
    for schema in schemas:
        yield from _needs(schema)


def _needs(schema: Any) -> Iterator[str]:
    """The keys of a class of state that must have a value for it to be what it says."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        yield from (name for name, each in schema.model_fields.items() if each.is_required())
    elif is_dataclass(schema):
        for each in fields(schema):
            if each.init and each.default is MISSING and each.default_factory is MISSING:
                yield each.name
    elif is_typeddict(schema):
        yield from _keys(schema)


def _keys(schema: Any) -> Iterator[str]:
    # `__required_keys__` knows nothing of what stands in quotes, as all does under
    # `from __future__ import annotations`.
    hints = get_type_hints(schema, include_extras=True)
    for name in hints:
        marks = set(_marks(hints[name]))
        if "Required" in marks or (name in schema.__required_keys__ and "NotRequired" not in marks):
            yield name


def _marks(hint: Any) -> Iterator[str]:
    origin = get_origin(hint)
    while origin is Annotated or origin in MARKS:
        yield MARKS.get(origin, "")
        hint = hint.__origin__ if origin is Annotated else hint.__args__[0]
        origin = get_origin(hint)
