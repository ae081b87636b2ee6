"""What a compiled graph looks like to the state that was stored under it, as a text to be kept
beside the code: sorted, a line for each fact, the same in every process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...errors import UsageError

FORMAT = 1
"""Of the text. A part that older readers may leave out needs no new one."""

UNTOLD = "?"
"""The kind and the type of a channel that an operation makes: no operation tells them."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A key of the state.

    Attributes:
        kind: of LangGraph's channels, or ``"managed"``.
        type: of its value, as `spelling` has it.
        reducer: what new values are taken up by, as ``module:name``.
        required: whether a node fails, or may, where it has no value yet.
    """

    kind: str
    type: str
    reducer: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """An edge that waits for several nodes: what it has seen of them is stored."""

    starts: tuple[str, ...]
    end: str

    @property
    def channel(self) -> str:
        return f"join:{'+'.join(self.starts)}:{self.end}"


@dataclass(frozen=True, slots=True)
class GraphShape:
    """One graph, without the graphs in its nodes.

    Attributes:
        channels: by name.
        nodes: its nodes' names.
        deferred: those that run last: what starts them is stored in another form.
        joins: its edges that wait for several nodes.
        checkpointer: of a graph in a node: ``"parent"`` if what it stores goes with the call,
            ``"kept"`` if it is kept from call to call, ``"own"`` if it has a saver of its own.
    """

    channels: Mapping[str, Channel] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()
    deferred: frozenset[str] = frozenset()
    joins: frozenset[Join] = frozenset()
    checkpointer: str = "parent"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The shape of a graph and of all graphs in its nodes.

    Attributes:
        graph: its name.
        version: of its schema.
        shapes: by path: ``""`` the graph itself, ``"research/inner"`` one further in.
    """

    graph: str
    version: int
    shapes: Mapping[str, GraphShape]

    def nodes_at(self, path: str) -> frozenset[str] | None:
        """The names of a graph's nodes; None for a graph that LangGraph cannot find by looking,
        as one that a function calls."""
        shape = self.shapes.get(path)
        return None if shape is None else shape.nodes

    def __str__(self) -> str:
        shapes = {path: _told(shape) for path, shape in self.shapes.items()}
        told = {
            "format": FORMAT,
            "graph": self.graph,
            "version": self.version,
            "shapes": shapes,
        }
        return json.dumps(told, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _told(shape: GraphShape) -> dict[str, Any]:
    return {
        "channels": {name: _channel(each) for name, each in shape.channels.items()},
        "nodes": {
            name: {"deferred": True} if name in shape.deferred else {} for name in shape.nodes
        },
        "joins": {each.channel: list(each.starts) for each in shape.joins},
    } | ({} if shape.checkpointer == "parent" else {"checkpointer": shape.checkpointer})


def _channel(channel: Channel) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": channel.kind, "type": channel.type}
    told |= {"reducer": channel.reducer} if channel.reducer else {}
    return told | ({"required": True} if channel.required else {})


@lru_cache(maxsize=8)  # a reader asks for each head
def fingerprint_of(text: str) -> Fingerprint:
    """The fingerprint that a text is.

    Raises:
        UsageError: if it is none, or one that a newer version of this library wrote.
    """
    try:
        told = json.loads(text)
        form = told["format"]
        if type(form) is int and form > FORMAT:
            raise UsageError(
                f"this fingerprint has format {form}; this version of the library knows formats up "
                f"to {FORMAT}"
            )
        return Fingerprint(
            _sure(told["graph"], str),
            _sure(told["version"], int),
            {"": _shape(told["shapes"].pop(""))}
            | {path: _shape(shape) for path, shape in told["shapes"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"this is no fingerprint of a graph ({error!r})") from error


def _shape(told: Any) -> GraphShape:
    return GraphShape(
        {name: Channel(**each) for name, each in told["channels"].items()},
        frozenset(told["nodes"]),
        frozenset(name for name, each in told["nodes"].items() if each.get("deferred")),
        frozenset(
            Join(tuple(starts), name.rpartition(":")[2]) for name, starts in told["joins"].items()
        ),
        _sure(told.get("checkpointer", "parent"), str),
    )


def _sure(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
