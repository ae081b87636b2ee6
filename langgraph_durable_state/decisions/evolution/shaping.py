"""A checkpoint through one step: its channels' values, and everywhere else that a channel or a
node is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ...errors import EvolutionError
from . import asking, tasks, updates
from .naming import Gone, Names
from .operations import Free, Reshape
from .steps import Stage

INTERRUPT = "__interrupt__"
_BUMPS = "__snapshot_bumps__"
_COUNTERS = "counters_since_delta_snapshot"

Becomes = Mapping[str, tuple[str, ...]]
"""What channels become, of those that do not stay what they are."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A checkpoint and its metadata, as LangGraph has them."""

    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @property
    def values(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.checkpoint["channel_values"]
        return found


def staged(shape: Shape, stage: Stage) -> tuple[Shape, dict[Free, frozenset[str]]]:
    """The checkpoint after a step; and for each user's function the channels that it left as they
    were.

    Raises:
        EvolutionError: if a function of the user's fails.
        Gone: if something waits for a node that is no more.
    """
    kept: dict[Free, frozenset[str]] = {}
    for each in stage.shapes:
        shape = _reshaped(shape, each)
    if stage.nodes:
        shape = _renamed(shape, Names(stage.nodes))
    for free in stage.frees:
        shape, kept[free] = _freed(shape, free)
    return shape, kept


# -- operations on channels ------------------------------------------------------------------


def _reshaped(shape: Shape, each: Reshape) -> Shape:
    if not each.sources:
        return _added(shape, {name: asking.reshaped(each, ())[0] for name in each.targets})
    _check_free(shape, each)
    if len(each.sources) > 1:
        _check_complete(shape, each)
    values = dict(shape.values)
    if any(name in values for name in each.sources):
        bare = [asking.bare(values.pop(name, None)) for name in each.sources]
        made = asking.reshaped(each, [value for value, _ in bare])
        wrap = bare[0][1] if len(bare) == 1 else lambda new: new
        values |= {name: wrap(value) for name, value in zip(each.targets, made, strict=True)}
    given = values.get(tasks.START)
    if isinstance(given, dict):
        values[tasks.START] = dict(updates.reshaped([*given.items()], each))
    elif given is not None:
        raise EvolutionError(
            f"A run's input waits to be taken up as a {type(given).__name__}, and of an object it "
            f"cannot be told what it held of {', '.join(each.sources)}: let the run begin with "
            "the code that it was given to",
            channel=tasks.START,
        )
    return _become(shape, values, dict.fromkeys(each.sources, each.targets))


def _check_free(shape: Shape, each: Reshape) -> None:
    """A channel is not put in another's place, which would be lost."""
    for name in each.targets:
        if name in shape.values and name not in each.sources:
            raise EvolutionError(
                f"{', '.join(each.sources)} would become {name!r}, and there is such a channel",
                channel=name,
            )


def _check_complete(shape: Shape, each: Reshape) -> None:
    """A channel that only its history tells the value of cannot be merged."""
    told = shape.metadata.get(_COUNTERS) or {}
    for name in each.sources:
        if name in told and name not in shape.values:
            raise EvolutionError(
                f"Channel {name!r} holds only what was written since its last snapshot, which "
                "cannot be merged",
                channel=name,
            )


def _added(shape: Shape, new: Mapping[str, Any]) -> Shape:
    """With channels that nobody has written to: no version of theirs is news to anybody."""
    versions = shape.checkpoint["channel_versions"]
    missing = {name: value for name, value in new.items() if name not in shape.values}
    if not versions or not missing:
        return shape
    latest = max(versions.values())
    seen = dict(shape.checkpoint["versions_seen"])
    if INTERRUPT in seen:
        seen[INTERRUPT] = {**seen[INTERRUPT], **dict.fromkeys(missing, latest)}
    checkpoint = {
        **shape.checkpoint,
        "channel_values": {**shape.values, **missing},
        "channel_versions": {**versions, **dict.fromkeys(missing, latest)},
        "versions_seen": seen,
    }
    return Shape(checkpoint, shape.metadata)


def _become(shape: Shape, values: Mapping[str, Any], become: Becomes) -> Shape:
    old = shape.checkpoint
    versions = old["channel_versions"]
    checkpoint = {
        **old,
        "channel_values": values,
        "channel_versions": _latest(versions, become),
        "versions_seen": {
            node: _marks(seen, become) if node == _BUMPS else _seen(node, seen, versions, become)
            for node, seen in old["versions_seen"].items()
        },
    }
    if old.get("updated_channels") is not None:
        checkpoint["updated_channels"] = sorted(set(_each(old["updated_channels"], become)))
    return Shape(checkpoint, _counted(shape.metadata, become))


def _each(names: Iterable[str], become: Becomes) -> list[str]:
    return [new for name in names for new in become.get(name, (name,))]


def _latest(versions: Mapping[str, Any], become: Becomes) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for name, version in versions.items():
        for target in become.get(name, (name,)):
            new[target] = max(new.get(target, version), version)
    return new


def _seen(
    node: str, seen: Mapping[str, Any], versions: Mapping[str, Any], become: Becomes
) -> dict[str, Any]:
    """Which versions a node has seen: of one channel that several became all of them, or less than
    there is."""
    latest = _latest(versions, become)
    sources: dict[str, list[str]] = {}
    # A breakpoint looks at all channels; a node only at those that start it.
    for name in dict.fromkeys([*seen, *(become if node == INTERRUPT else ())]):
        for target in become.get(name, (name,)):
            sources.setdefault(target, []).append(name)
    new: dict[str, Any] = {}
    for target, names in sources.items():
        behind = [name for name in names if name in versions and seen.get(name) != versions[name]]
        if len(names) == 1:
            if names[0] in seen:
                new[target] = seen[names[0]]
        elif not behind and target in latest:
            new[target] = latest[target]
        elif behind and all(name in seen for name in behind):
            new[target] = min(seen[name] for name in behind)
    return new


def _marks(marks: Mapping[str, Any], become: Becomes) -> dict[str, Any]:
    """LangGraph's notes of versions that were only snapshots, by node and channel."""
    new: dict[str, Any] = {}
    for key, version in marks.items():
        node, sign, channel = _mark(key)
        for target in become.get(channel, (channel,)):
            new[node + sign + target] = version
    return new


def _mark(key: str) -> tuple[str, str, str]:
    place = min(key.find(sign) % (len(key) + 1) for sign in (tasks.NS_SEP, tasks.NS_END))
    return key[:place], key[place : place + 1], key[place + 1 :]


def _counted(metadata: Mapping[str, Any], become: Becomes) -> Mapping[str, Any]:
    counters = metadata.get(_COUNTERS)
    if not counters:
        return metadata
    new: dict[str, Any] = {}
    for name, counter in counters.items():
        for target in become.get(name, (name,)):
            new[target] = max(new.get(target, counter), counter)
    rest = {key: value for key, value in metadata.items() if key != _COUNTERS}
    return {**rest, _COUNTERS: new} if new else rest


# -- nodes -----------------------------------------------------------------------------------


def _renamed(shape: Shape, names: Names) -> Shape:
    channels = shape.checkpoint["channel_versions"].keys() | shape.values.keys()
    for each in channels:
        _check_gone(shape, names, each)
    become: dict[str, tuple[str, ...]] = {}
    for each in channels:
        new = names.channel(each)
        if new != each:
            become[each] = () if new is None else (new,)
    _check_apart(shape, names)
    values = _values(shape, names, become)
    shape = _become(shape, values, become)
    return Shape({**shape.checkpoint, "versions_seen": _by_node(shape, names)}, shape.metadata)


def _check_gone(shape: Shape, names: Names, channel: str) -> None:
    """Nothing may wait for a node that is no more, or for a node to come from it."""
    node, join = tasks.started(channel), tasks.joined(channel)
    if channel not in shape.values:
        return
    if join is not None and _any_arrived(shape, channel):
        gone = names.gone(*join)
        if gone is not None:
            raise Gone(gone)
    if node is not None and names.node(node) is None and _is_news(shape, channel):
        raise Gone(node)


def _check_apart(shape: Shape, names: Names) -> None:
    """Two nodes that are both to run cannot become one: what one has done would stand for both."""
    runs = [
        node for name in shape.values if (node := tasks.started(name)) and _is_news(shape, name)
    ]
    for one, other in combinations(runs, 2):
        if names.node(one) == names.node(other) is not None:
            raise EvolutionError(
                f"Nodes {one!r} and {other!r} are both to run, and both are now {names.node(one)!r}"
            )


def _is_news(shape: Shape, channel: str) -> bool:
    seen = shape.checkpoint["versions_seen"].get(tasks.started(channel), {})
    version = shape.checkpoint["channel_versions"].get(channel)
    return version is not None and seen.get(channel) != version


def _any_arrived(shape: Shape, channel: str) -> bool:
    value = shape.values[channel]
    return bool(value[0] if isinstance(value, tuple) else value)


def _values(shape: Shape, names: Names, become: Becomes) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for channel, value in shape.values.items():
        for target in become.get(channel, (channel,)):
            held = _value(channel, value, names)
            new[target] = _both(new[target], held) if target in new else held
    return new


def _value(channel: str, value: Any, names: Names) -> Any:
    if tasks.joined(channel) is not None:
        return names.arrived(value)
    if channel != tasks.TASKS:
        return value
    if isinstance(value, tuple):  # of an old LangGraph: what was sent before, and what is now
        return (*value[:-1], [names.send(each) for each in value[-1]])
    return [names.send(each) for each in value]


def _both(one: Any, other: Any) -> Any:
    """What two channels of LangGraph's hold that one node's replace."""
    return one | other if isinstance(one, set) and isinstance(other, set) else one


def _by_node(shape: Shape, names: Names) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for node, seen in shape.checkpoint["versions_seen"].items():
        if node == _BUMPS:
            new[node] = {**new.get(node, {}), **_marked(seen, names)}
            continue
        name = names.node(node)
        if name is None:
            continue
        stays = name == node or name not in new
        new[name] = {**new.get(name, {}), **seen} if stays else {**seen, **new[name]}
    return new


def _marked(marks: Mapping[str, Any], names: Names) -> dict[str, Any]:
    parts = ((_mark(key), version) for key, version in marks.items())
    return {
        new + sign + channel: version
        for (node, sign, channel), version in parts
        if (new := names.node(node)) is not None
    }


# -- the user's own function -----------------------------------------------------------------


def _freed(shape: Shape, free: Free) -> tuple[Shape, frozenset[str]]:
    assert free.up is not None
    mine = {name: asking.bare(v) for name, v in shape.values.items() if asking.sees(free, name)}
    if not mine:
        return _input_freed(shape, free, frozenset()), frozenset()
    before = {name: value for name, (value, _) in mine.items()}
    after = asking.called(free.up, free, before)
    values = {name: value for name, value in shape.values.items() if name not in mine}
    for name in after.keys() & mine.keys():
        values[name] = mine[name][1](after[name])
    become: Becomes = {name: () for name in mine if name not in after}
    shape = _added(
        _become(shape, values, become), {n: v for n, v in after.items() if n not in mine}
    )
    names = after.keys() & mine.keys()
    kept = frozenset(name for name in names if asking.equal(before[name], after[name]))
    return _input_freed(shape, free, kept), kept


def _input_freed(shape: Shape, free: Free, kept: frozenset[str]) -> Shape:
    given = shape.values.get(tasks.START)
    if not isinstance(given, dict):
        return shape
    new = dict(updates.freed([*given.items()], free, kept))
    values = {**shape.values, tasks.START: new}
    return Shape({**shape.checkpoint, "channel_values": values}, shape.metadata)
