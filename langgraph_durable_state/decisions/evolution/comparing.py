"""A recorded shape beside the one that a graph has: which changes a stored thread would notice.

What is harmless was tried on LangGraph itself; `tests/unit/test_harmless.py` holds each claim.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TypeVar

from ...errors import UsageError
from . import declaring
from .declaring import Expected, Steps, expected
from .differing import Change, Difference, SchemaReport
from .fingerprint import UNTOLD, Channel, Fingerprint, GraphShape
from .spelling import fits

_STORED = ("LastValue", "BinaryOperatorAggregate", "Topic, accumulated")
_KEPT = {(was, now) for was in _STORED for now in (*_STORED, "DeltaChannel")} | {
    ("DeltaChannel", "BinaryOperatorAggregate")
}
"""From which kind of channel to which a stored value is read as it was: they store it alike, and
what a DeltaChannel left out LangGraph replays for a BinaryOperatorAggregate, and for no other."""

_UNKEPT = ("AnyValue", "EphemeralValue", "Topic", "UntrackedValue", "managed")
"""Kinds that keep nothing from one step to the next, or store nothing."""

T = TypeVar("T")

_CLASS = re.compile(r"[\w.]+:[\w.]+")
_ALIKE = 0.6
"""How alike two names are, by difflib, to be taken for one that was changed; its own advice."""


def compared(recorded: Fingerprint, now: Fingerprint, schema: Steps) -> SchemaReport:
    """How a graph's fingerprint differs from the recorded one, but for what the schema declares.

    Raises:
        UsageError: if the record is of a newer version than the schema, or of another graph.
    """
    if recorded.version > schema.version:
        raise UsageError(
            f"version {recorded.version} of graph {recorded.graph!r} was recorded; this schema "
            f"has version {schema.version}"
        )
    if recorded.graph != now.graph:
        raise UsageError(f"the record is of graph {recorded.graph!r}, not of {now.graph!r}")
    wanted = expected(recorded, schema)
    found = [*_idle(wanted), *_graph(wanted, now.shapes, "", "")]
    found.sort(key=lambda each: (not each.needed, each.path))
    return SchemaReport(now.graph, recorded.version, schema.version, tuple(found))


def _idle(wanted: Expected) -> Iterator[Difference]:
    for version, at, what in wanted.idle:
        why = f"step {version} is about it, and version {version} has none"
        then = f"correct step {version}"
        yield Difference(at, "step without effect", what, why, otherwise=then)


@dataclass(frozen=True, slots=True)
class _At:
    """Where a difference is found, and what the steps there look like."""

    path: str

    def step(self, name: str, *arguments: object, more: str = "") -> str:
        told = [*map(json.dumps, arguments)] + ([more] if more else [])
        at = [f"at={json.dumps(self.path)}"] if self.path else []
        return f"{name}({', '.join([*told, *at])})"


def _graph(
    wanted: Expected, now: Mapping[str, GraphShape], old: str, new: str
) -> Iterator[Difference]:
    """The differences of a graph that has one path in the record, and one now, and of all in it."""
    at, was, shape = _At(old), wanted.shapes[old], now[new]
    if was.checkpointer != shape.checkpointer:
        yield _checkpointer(old, was, shape)
    freed = wanted.freed.get(old, frozenset())
    for each in _channels(at, was.channels, shape.channels):
        names = {each.name, each.now if each.change == "channel renamed" else each.name}
        yield _by_function(each) if freed is None or names & freed else each
    renamed = _renames(wanted.shapes, now, old, new)
    yield from _nodes(at, was, shape, renamed)
    known = declaring.renamed(was, renamed)
    yield from _joins(at, known, shape)
    yield from _inner(wanted, now, old, new, renamed)


def _by_function(each: Difference) -> Difference:
    why = "a function that was declared is about it, and is taken to do it"
    return replace(each, why=why, needed=False, step=None, guess=False)


def _checkpointer(path: str, was: GraphShape, now: GraphShape) -> Difference:
    why = "what it stored is under another namespace: it starts afresh, and what ran runs again"
    above, _, node = path.rpartition("/")
    modes = was.checkpointer, now.checkpointer
    return Difference(above, "subgraph's checkpointer", node, why, True, *modes)


# -- channels --------------------------------------------------------------------------------


def _channels(
    at: _At, was: Mapping[str, Channel], now: Mapping[str, Channel]
) -> Iterator[Difference]:
    removed = {name: was[name] for name in sorted(was.keys() - now.keys())}
    added = {name: now[name] for name in sorted(now.keys() - was.keys())}
    renames = _same(removed, added, _same_value)
    for old, new in renames.items():
        why = f"what {old!r} held would be gone, if {new!r} is the same"
        step = at.step("rename_channel", old, new)
        yield Difference(at.path, "channel renamed", old, why, now=new, step=step, guess=True)
    for name in sorted(removed.keys() - renames.keys()):
        yield from _removed(at, name, was[name])
    for name in sorted(added.keys() - set(renames.values())):
        yield _added(at, name, now[name], "channel added")
    for name in sorted(was.keys() & now.keys()):
        yield from _changed(at, name, was[name], now[name])


def _same_value(was: Channel, now: Channel) -> bool:
    kept = was.kind == now.kind or (was.kind, now.kind) in _KEPT
    return kept and was.type == now.type and was.kind != "managed"


def _removed(at: _At, name: str, was: Channel) -> Iterator[Difference]:
    if was.kind == "managed":
        yield Difference(at.path, "channel removed", name, "nothing of it is stored", needed=False)
    elif was.kind == UNTOLD:
        why = "a step makes it, and the graph has no such channel"
        then = "correct the step that makes it"
        yield Difference(at.path, "channel removed", name, why, otherwise=then)
    else:
        why = "what it held is dropped, and a run that waits before a node waits there once more"
        yield Difference(
            at.path, "channel removed", name, why, was=was.type, step=at.step("drop_channel", name)
        )


def _added(at: _At, name: str, now: Channel, change: Change) -> Difference:
    if not now.required:
        why = "it has a value from the start, or its readers do without"
        return Difference(at.path, change, name, why, needed=False, now=now.type)
    why = "no thread that was stored before has a value for it, and a node that reads it fails"
    step = at.step("add_channel", name, more="default=...")
    return Difference(at.path, change, name, why, now=now.type, step=step)


def _changed(at: _At, name: str, was: Channel, now: Channel) -> Iterator[Difference]:
    if UNTOLD in (was.kind, now.kind):
        return
    if was.kind != now.kind and (was.kind, now.kind) not in _KEPT:
        yield _of_another_kind(at, name, was, now)
    elif was.kind != now.kind:
        why = "it stores its value alike"
        yield Difference(at.path, "channel of another kind", name, why, False, was.kind, now.kind)
    if was.type != now.type and was.kind not in _UNKEPT:
        yield _of_another_type(at, name, was.type, now.type)
    if was.kind == now.kind and was.reducer != now.reducer:
        yield _reduced(at, name, was, now)
    if now.required and not was.required and was.kind == now.kind:
        yield _added(at, name, now, "channel now required")


def _of_another_kind(at: _At, name: str, was: Channel, now: Channel) -> Difference:
    change: Change = "channel of another kind"
    if was.kind in _UNKEPT:
        found = _added(at, name, now, change)
        return replace(found, was=was.kind, now=now.kind)
    if now.kind in _UNKEPT:
        why = "what it held is gone after the next step, as the new kind has it"
    else:
        why = "what was stored is not read, or not as it was"
    return Difference(at.path, change, name, why, was=was.kind, now=now.kind)


def _of_another_type(at: _At, name: str, was: str, now: str) -> Difference:
    change: Change = "channel of another type"
    if fits(was, now):
        return Difference(at.path, change, name, "what was stored is of it", False, was, now)
    why = "what was stored is served as it is, and is not of the new type"
    if move := _move(was, now):
        return Difference(at.path, change, name, why, True, was, now, move, guess=True)
    step = at.step("convert_channel", name, more="lambda value: ...")
    return Difference(at.path, change, name, why, True, was, now, step)


def _move(was: str, now: str) -> str | None:
    """The move of one class that would explain it."""
    olds = dict.fromkeys(_CLASS.findall(was))
    news = dict.fromkeys(_CLASS.findall(now))
    gone = [each for each in olds if each not in news]
    come = [each for each in news if each not in olds]
    if (
        len(gone) == len(come) == 1
        and _CLASS.sub(lambda found: come[0] if found[0] == gone[0] else found[0], was) == now
    ):
        return f"move_class({json.dumps(gone[0])}, {json.dumps(come[0])})"
    return None


def _reduced(at: _At, name: str, was: Channel, now: Channel) -> Difference:
    change: Change = "channel with another reducer"
    if was.kind == "DeltaChannel":
        why = "what was stored is made again by it, from all updates since the last snapshot"
        return Difference(at.path, change, name, why, True, was.reducer, now.reducer)
    why = "only what is written from now on is taken up by it"
    return Difference(at.path, change, name, why, False, was.reducer, now.reducer)


# -- nodes and edges -------------------------------------------------------------------------


def _renames(
    wanted: Mapping[str, GraphShape], now: Mapping[str, GraphShape], old: str, new: str
) -> dict[str, str]:
    """Nodes that vanished, each with the one that appeared and may be the same."""

    def shapes(names: frozenset[str], of: Mapping[str, GraphShape], path: str) -> dict[str, object]:
        return {name: of.get(_below(path, name)) for name in sorted(names)}

    removed = wanted[old].nodes - now[new].nodes
    added = now[new].nodes - wanted[old].nodes
    return _same(
        shapes(removed, wanted, old),
        shapes(added, now, new),
        lambda a, b: (a is None) == (b is None),
    )


def _nodes(
    at: _At, was: GraphShape, now: GraphShape, renamed: Mapping[str, str]
) -> Iterator[Difference]:
    for old, new in renamed.items():
        why = f"a run that waits in {old!r} ends without a word, if {new!r} is the same"
        step = at.step("rename_node", old, new)
        yield Difference(at.path, "node renamed", old, why, now=new, step=step, guess=True)
    for name in sorted(was.nodes - now.nodes - renamed.keys()):
        why = "a run that waits in it ends without a word, and an answer to it is swallowed"
        yield Difference(at.path, "node removed", name, why, step=at.step("drop_node", name))
    for name in sorted(now.nodes - was.nodes - set(renamed.values())):
        yield Difference(at.path, "node added", name, "nothing waits in it yet", needed=False)
    for name in sorted(was.nodes & now.nodes):
        if (name in was.deferred) == (name in now.deferred):
            continue
        joined = any(each.end == name for each in was.joins)
        if name in now.deferred or joined:
            why = "a run that waits for it, or before it, cannot be loaded"
            yield Difference(at.path, "node deferred", name, why)
        else:
            why = "a run that waits for it starts it at once"
            yield Difference(at.path, "node deferred", name, why, needed=False)


def _joins(at: _At, was: GraphShape, now: GraphShape) -> Iterator[Difference]:
    for join in sorted(was.joins - now.joins, key=lambda each: each.channel):
        if join.end in now.nodes:
            why = (
                "what it has seen is lost, and a run that waits before a node waits there once more"
            )
            step = at.step("drop_channel", join.channel)
            yield Difference(at.path, "edge that waits removed", join.channel, why, step=step)
    for join in sorted(now.joins - was.joins, key=lambda each: each.channel):
        fresh = join.end not in was.nodes and was.nodes.isdisjoint(join.starts)
        why = (
            "none of its nodes has run yet"
            if fresh
            else f"where one of its nodes has run, {join.end!r} never will; work in it is forgotten"
        )
        yield Difference(at.path, "edge that waits added", join.channel, why, needed=not fresh)


# -- graphs in nodes -------------------------------------------------------------------------


def _inner(
    wanted: Expected,
    now: Mapping[str, GraphShape],
    old: str,
    new: str,
    renamed: Mapping[str, str],
) -> Iterator[Difference]:
    for name in sorted(wanted.shapes[old].nodes):
        before, after = _below(old, name), _below(new, renamed.get(name, name))
        if before in wanted.shapes and after in now:
            yield from _graph(wanted, now, before, after)
        elif before in wanted.shapes:
            moved = [path for path in now if path not in wanted.shapes]
            to = [path for path in moved if now[path] == wanted.shapes[before]]
            why = f"it is in {to[0]!r} now" if to else "its node is a function now"
            why += "; a run that waits in it is forgotten, and its node runs from the start"
            yield Difference(old, "subgraph removed", name, why, now=to[0] if to else None)
        elif after in now and name in now[new].nodes:
            why = "the node runs from the start, as it would have"
            yield Difference(old, "subgraph added", name, why, needed=False)


def _below(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _same(
    removed: Mapping[str, T], added: Mapping[str, T], alike: Callable[[T, T], bool]
) -> dict[str, str]:
    """Each name that vanished with the one that appeared and may be the same: of those that are
    alike in what they are, the only one, or the one whose name is likest."""
    pairs = [(a, b) for a in removed for b in added if alike(removed[a], added[b])]
    olds, news = [a for a, _ in pairs], [b for _, b in pairs]
    found = {a: b for a, b in pairs if olds.count(a) == news.count(b) == 1}
    for a, b in sorted(pairs, key=lambda pair: -_likeness(*pair)):
        if _likeness(a, b) >= _ALIKE and a not in found and b not in found.values():
            found[a] = b
    return found


def _likeness(one: str, other: str) -> float:
    if one in other or other in one:
        return 1.0
    return SequenceMatcher(None, one, other).ratio()
