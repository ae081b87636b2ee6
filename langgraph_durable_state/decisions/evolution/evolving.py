"""A snapshot of one version of a graph in the shape of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import EvolutionError
from . import inputs, settling, tasks
from .naming import Gone
from .reusing import current_name, path_up, stored_name, touched, value_up
from .settling import Settled
from .shaping import Shape
from .snapshot import Snapshot
from .steps import StateSchema
from .tasks import Frame
from .walking import Walk, gone_error, walk

__all__ = [
    "current_name",
    "evolved",
    "moved",
    "moved_interrupts",
    "moved_namespace",
    "path_of",
    "path_up",
    "shown",
    "stored_name",
    "touched",
    "value_up",
]

path_of = tasks.path_of


@dataclass(frozen=True, slots=True)
class Moved:
    """A snapshot of another version.

    Attributes:
        tasks: the id of each task that has written, by the version of what it wrote and the id that
            it had.
    """

    snapshot: Snapshot
    tasks: Mapping[tuple[int, str], str]


def evolved(
    snapshot: Snapshot,
    schema: StateSchema,
    to: int,
    ns: str | None = None,
    interrupts: Mapping[str, str] | None = None,
) -> Snapshot:
    """The snapshot in the shape of version `to`; each write from the version that it is of.

    Args:
        snapshot: as stored; it is not changed.
        schema: the graph's.
        to: the version asked for.
        ns: the namespace under the names of that version; None if it is the same.
        interrupts: new ids of interrupts that subgraphs below raised; see `moved_interrupts`.

    Raises:
        EvolutionError: if it cannot be brought there without losing anything.
    """
    return moved(snapshot, schema, to, ns, interrupts).snapshot


def moved(
    snapshot: Snapshot,
    schema: StateSchema,
    to: int,
    ns: str | None = None,
    interrupts: Mapping[str, str] | None = None,
) -> Moved:
    """The snapshot in the shape of version `to`, with what its tasks have become; see `evolved`."""
    ns = snapshot.ns if ns is None else ns
    stale = {write.version for write in snapshot.writes} - {to}
    if snapshot.version == to and ns == snapshot.ns and not stale and not interrupts:
        return Moved(snapshot, {})
    walked = _walked(snapshot, schema, to).shape
    shape = inputs.closed(walked, snapshot.checkpoint["channel_values"])
    settled = tuple(_settled(snapshot, schema, to, ns))
    told = [write for each in settled for write in each.all(interrupts or {})]
    metadata = _under(shape.metadata, snapshot.ns, ns)
    made = Snapshot(ns, to, shape.checkpoint, metadata, settling.merged(told, to))
    return Moved(made, {(each.version, each.was): each.task for each in settled})


def shown(
    snapshot: Snapshot,
    schema: StateSchema,
    to: int,
    ns: str | None = None,
    interrupts: Mapping[str, str] | None = None,
) -> Snapshot:
    """The snapshot as `evolved` makes it; without what waits on it, if that cannot be brought up.

    For whoever looks at a thread's history, which holds checkpoints that waited for nodes that are
    no more: not for whoever goes on from one.

    Raises:
        EvolutionError: if its values cannot be brought there.
    """
    try:
        return evolved(snapshot, schema, to, ns, interrupts)
    except EvolutionError:
        return evolved(_resting(snapshot), schema, to, ns)


def _resting(snapshot: Snapshot) -> Snapshot:
    values = snapshot.checkpoint["channel_values"]
    kept = {name: value for name, value in values.items() if tasks.is_users(name)}
    return replace(snapshot, checkpoint={**snapshot.checkpoint, "channel_values": kept}, writes=())


def moved_interrupts(
    snapshot: Snapshot, schema: StateSchema, to: int, ns: str | None = None
) -> dict[str, str]:
    """The new id of each interrupt that this snapshot's own tasks wait at, by the old one."""
    ns = snapshot.ns if ns is None else ns
    pairs = (
        pair for each in _settled(snapshot, schema, to, ns) for pair in each.interrupts.items()
    )
    return {old: new for old, new in pairs if old != new}


def moved_namespace(
    snapshot: Snapshot, schema: StateSchema, to: int, below: str, ns: str | None = None
) -> str:
    """What the namespace `below`, of a subgraph that one of this snapshot's tasks ran, is called
    at version `to`.

    Args:
        snapshot: of the graph around it, whose task the namespace names; its writes do not matter.
        schema: the graph's.
        to: the version asked for.
        below: a namespace that starts with that of `snapshot`, one level deeper. To map one that
            is deeper still, go on with the snapshot in between.
        ns: as for `evolved`, of `snapshot`.

    Raises:
        EvolutionError: if the task that it names is none of this checkpoint's.
    """
    ns = snapshot.ns if ns is None else ns
    part, sign, rest = below[len(snapshot.ns) + 1 if snapshot.ns else 0 :].partition(tasks.NS_SEP)
    node, _, known = part.partition(tasks.NS_END)
    if not known:  # a subgraph with one namespace for all its runs
        path = tasks.path_of(tasks.below(snapshot.ns, node))
        name = schema.path(path, snapshot.version, to).rpartition("/")[2]
        return tasks.below(ns, name) + sign + rest
    stages = schema.stages(snapshot.version, to, path_of(snapshot.ns))
    if ns == snapshot.ns and not any(stage.nodes for stage in stages):
        return below  # else the node may keep its name, and what starts it not
    return _moved(snapshot, schema, to, ns, node, known) + sign + rest


def _moved(snapshot: Snapshot, schema: StateSchema, to: int, ns: str, node: str, known: str) -> str:
    at = tasks.frame(snapshot.ns, snapshot.checkpoint, snapshot.metadata)
    tried = (
        tasks.found(at, snapshot.checkpoint, task, known)
        for task in tasks.running(snapshot.checkpoint, node)
    )
    found = next((each for each in tried if each is not None), None)
    if found is None:
        raise EvolutionError(
            f"Task {known} of node {node!r} is none of checkpoint {snapshot.checkpoint['id']}",
            namespace=snapshot.ns,
            checkpoint=snapshot.checkpoint["id"],
        )
    walked = _walked(snapshot, schema, to)
    try:
        task = walked.task(found)
    except Gone as gone:
        raise gone_error(schema, walked.shape, to, gone.node) from None
    return tasks.task_ns(_frame(walked.shape, ns), task)


def _walked(snapshot: Snapshot, schema: StateSchema, to: int) -> Walk:
    shape = Shape(snapshot.checkpoint, snapshot.metadata)
    return walk(schema, shape, path_of(snapshot.ns), snapshot.version, to)


def _frame(shape: Shape, ns: str) -> Frame:
    return tasks.frame(ns, shape.checkpoint, shape.metadata)


def _settled(snapshot: Snapshot, schema: StateSchema, to: int, ns: str) -> Iterator[Settled]:
    for version in dict.fromkeys(write.version for write in snapshot.writes):
        yield from _settled_of(snapshot, schema, version, to, ns)


def _settled_of(
    snapshot: Snapshot, schema: StateSchema, version: int, to: int, ns: str
) -> Iterator[Settled]:
    """What waits of one version, from the checkpoint as code of that version saw it."""
    base = _walked(snapshot, schema, version).shape
    path = schema.path(path_of(snapshot.ns), snapshot.version, version)
    known = _ns_at(snapshot, version, to, ns, path)
    at = None if known is None else _frame(base, known)
    before = settling.batches(snapshot.writes, version, base, at)
    there = walk(schema, base, path, version, to, before)
    renamed = any(stage.nodes for stage in there.stages)
    for one, other in zip(before, there.batches, strict=True):
        yield settling.settled(one, other, at, _frame(there.shape, ns), version, renamed)


def _ns_at(snapshot: Snapshot, version: int, to: int, ns: str, path: str) -> str | None:
    """The namespace that code of a version knew; None if nobody told it."""
    if version == to:
        return ns
    older = version < snapshot.version
    if older and snapshot.former is not None and path == path_of(snapshot.former):
        return snapshot.former
    if version == snapshot.version or (ns == snapshot.ns and path == path_of(ns)):
        return snapshot.ns
    return None


def _under(metadata: Mapping[str, Any], old: str, new: str) -> Mapping[str, Any]:
    """The metadata of a namespace that is called something else: with its parents' names too."""
    parents = metadata.get("parents")
    if old == new or not parents:
        return metadata
    olds, news = old.split(tasks.NS_SEP), new.split(tasks.NS_SEP)
    names = {
        tasks.NS_SEP.join(olds[:depth]): tasks.NS_SEP.join(news[:depth])
        for depth in range(1, len(olds))
    }
    return {**metadata, "parents": {names.get(each, each): id for each, id in parents.items()}}
