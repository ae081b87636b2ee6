"""A recorded fingerprint as the declared steps make it: what the graph should look like now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Protocol

from .fingerprint import UNTOLD, Channel, Fingerprint, GraphShape, Join
from .operations import Free, Operation, Reclass, Renode, Reshape


class Steps(Protocol):
    """What is asked of a schema."""

    @property
    def version(self) -> int:
        """Of the graph as it is now."""

    def operations(self, version: int) -> Sequence[Operation]:
        """What was declared of the step from this version to the next."""

    def path(self, path: str, from_: int, to: int) -> str:
        """A graph's path at one version in the names of another."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the declared steps make of what was recorded.

    Attributes:
        shapes: by path, as in a fingerprint.
        freed: by path, the channels that functions of the user's are about, which tell nothing of
            what they make of them; None for all.
        idle: what steps name that the shape before them has not: version, path, what.
    """

    shapes: Mapping[str, GraphShape]
    freed: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    idle: tuple[tuple[int, str, str], ...] = ()


def expected(recorded: Fingerprint, schema: Steps) -> Expected:
    """What the schema's steps from the recorded version on make of the recorded shapes."""
    now = Expected(recorded.shapes)
    for version in range(recorded.version, schema.version):
        now = _stepped(now, schema, version)
    return now


def _stepped(was: Expected, schema: Steps, version: int) -> Expected:
    operations = schema.operations(version)
    shapes, freed = dict[str, GraphShape](), dict[str, frozenset[str] | None]()
    gone = _gone(was.shapes, operations)
    for path, shape in was.shapes.items():
        if any(path == each or path.startswith(f"{each}/") for each in gone):
            continue
        fitting = [each for each in operations if fnmatchcase(path, each.at)]
        after = schema.path(path, version, version + 1)
        shapes[after] = _applied(shape, fitting)
        told = [each.channels for each in fitting if isinstance(each, Free)]
        if told or path in was.freed:
            freed[after] = _together([*told, was.freed.get(path, frozenset())])
    return Expected(shapes, freed, (*was.idle, *_idle(was, operations, version)))


def _together(told: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    names = frozenset[str]()
    for each in told:
        if each is None:
            return None
        names |= each
    return names


def _gone(shapes: Mapping[str, GraphShape], operations: Sequence[Operation]) -> list[str]:
    """The paths of nodes that are no more; what a graph in them stored has no heir."""
    dropped = [each for each in operations if isinstance(each, Renode) and each.gone]
    return [
        f"{path}/{each.old}" if path else each.old
        for each in dropped
        for path in shapes
        if fnmatchcase(path, each.at)
    ]


def _applied(shape: GraphShape, operations: Sequence[Operation]) -> GraphShape:
    channels = dict(shape.channels)
    for each in operations:
        if isinstance(each, Reshape):
            channels = _reshaped(channels, each)
            shape = replace(shape, joins=frozenset(_left(shape.joins, each)))
        elif isinstance(each, Reclass):
            channels = {name: _moved(channel, each) for name, channel in channels.items()}
    nodes = {each.old: each.new for each in operations if isinstance(each, Renode)}
    return replace(renamed(shape, nodes), channels=channels)


def _reshaped(channels: Mapping[str, Channel], each: Reshape) -> dict[str, Channel]:
    made = dict.fromkeys(each.targets, Channel(UNTOLD, UNTOLD))
    if each.same and each.sources[0] in channels:
        made = {each.targets[0]: channels[each.sources[0]]}
    return {name: one for name, one in channels.items() if name not in each.sources} | made


def _left(joins: Iterable[Join], each: Reshape) -> Iterable[Join]:
    return (join for join in joins if join.channel not in each.sources)


def _moved(channel: Channel, each: Reclass) -> Channel:
    old, new = ":".join(each.old), ":".join(each.new)
    return replace(
        channel, type=re.sub(rf"(?<![\w.:]){re.escape(old)}(?![\w.:])", new, channel.type)
    )


def renamed(shape: GraphShape, nodes: Mapping[str, str | None]) -> GraphShape:
    if not nodes:
        return shape
    joins = (_rejoined(each, nodes) for each in shape.joins)
    return replace(
        shape,
        nodes=frozenset(_new(shape.nodes, nodes)),
        deferred=frozenset(_new(shape.deferred - _dropped(nodes, shape), nodes)),
        joins=frozenset(each for each in joins if each is not None),
    )


def _dropped(nodes: Mapping[str, str | None], shape: GraphShape) -> frozenset[str]:
    """Nodes that another one takes over from: it starts as it always did."""
    return frozenset(old for old, new in nodes.items() if new in shape.nodes)


def _new(names: Iterable[str], nodes: Mapping[str, str | None]) -> list[str]:
    """The new names, each once, of what is left."""
    return [new for new in dict.fromkeys(nodes.get(each, each) for each in names) if new]


def _rejoined(join: Join, nodes: Mapping[str, str | None]) -> Join | None:
    starts, end = tuple(_new(join.starts, nodes)), nodes.get(join.end, join.end)
    return Join(starts, end) if starts and end else None


def _idle(
    was: Expected, operations: Sequence[Operation], version: int
) -> Iterable[tuple[int, str, str]]:
    for each in operations:
        fitting = {path: one for path, one in was.shapes.items() if fnmatchcase(path, each.at)}
        if isinstance(each, Reshape) and not any(path in was.freed for path in fitting):
            for name in each.sources:
                if not any(_has(one, name) for one in fitting.values()):
                    yield version, each.at, f"channel {name!r}"
        elif isinstance(each, Renode) and not any(
            each.old in one.nodes for one in fitting.values()
        ):
            yield version, each.at, f"node {each.old!r}"


def _has(shape: GraphShape, name: str) -> bool:
    return name in shape.channels or any(join.channel == name for join in shape.joins)
