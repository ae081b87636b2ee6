"""The shape of the user's state that this saver's code has, and how stored ones become it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from ..decisions import recovery
from ..decisions.chunking import Channel
from ..decisions.codec import Batch, Record
from ..decisions.evolution.evolving import (
    current_name,
    evolved,
    path_of,
    path_up,
    shown,
    stored_name,
    touched,
    value_up,
)
from ..decisions.evolution.fingerprint import fingerprint_of
from ..decisions.evolution.operations import Operation, Reclass, Renode, Reshape
from ..decisions.evolution.snapshot import Snapshot, Write
from ..decisions.evolution.steps import StateSchema
from ..decisions.evolution.unknown import unknown_tasks
from ..decisions.recovery import Version
from ..decisions.reviving import Revival
from ..decisions.serializing import Serializer
from ..errors import EvolutionError, UsageError
from ..words import Place


class Shape:
    """See above.

    Args:
        schema: what the user declared; None for a state that has no versions, which is version 0.
        beside: an older version in whose shape all is stored as well; None for none.
    """

    def __init__(self, schema: StateSchema | None = None, beside: int | None = None) -> None:
        self.schema = schema
        self.beside = beside
        self.version = schema.version if schema is not None else 0
        self._revivals: dict[int, Revival] = {}

    def reader(self, serializer: Serializer, version: int) -> Serializer:
        """The serializer for what code of a version stored: classes may have other names now."""
        if self.schema is None or version == self.version:
            return serializer
        if version not in self._revivals:
            self._revivals[version] = self.schema.revival(version, self.version)
        return serializer.as_of(self._revivals[version])

    def check(self, place: Place, id: str, version: int) -> None:
        """Refuses what newer code stored: this code cannot know what it means.

        Raises:
            EvolutionError: if it is in a newer shape than this code has.
        """
        if version > self.version:
            raise newer(place, id, version, self.version)

    def fits(self, record: Record, batches: Sequence[Batch]) -> bool:
        """Whether a checkpoint, and the writes that wait on it, are in today's shape."""
        if record.schema_version == self.version and not batches:
            return True
        versions = {batch.known_to(self.version).schema_version for batch in batches}
        versions.add(record.known_to(self.version).schema_version)
        return versions == {self.version}

    @cached_property
    def renames(self) -> bool:
        """Whether a node was ever called something else: then its tasks, and the namespaces of
        its subgraphs, were too."""
        versions = range(self.version) if self.schema is not None else ()
        return any(isinstance(each, Renode) for v in versions for each in self._steps(v))

    def _steps(self, version: int) -> Sequence[Operation]:
        assert self.schema is not None
        return self.schema.operations(version)

    def former(self, path: str) -> Iterator[str]:
        """The paths that a graph had before, latest first.

        Raises:
            EvolutionError: if another one had its path then, and may have left its state there.
        """
        assert self.schema is not None
        last = path
        for version in reversed(range(self.version)):
            moved = self.schema.path(path, version, self.version)
            if moved != path:
                raise EvolutionError(
                    f"Node {path!r} has the name that {moved!r} had at version {version}: its "
                    "subgraph, which keeps its state from run to run, would find the other one's. "
                    "Give it another name"
                )
            before = self.schema.path(path, self.version, version)
            if before != last:
                yield before
            last = before

    def _nodes(self, place: Place) -> frozenset[str] | None:
        """Those of a graph of today's code; None if nobody told."""
        told = self.schema.fingerprint if self.schema is not None else None
        if told is None:
            return None
        known = fingerprint_of(told) if isinstance(told, str) else told
        return known.nodes_at(path_of(place.named))

    def version_of(self, record: Record) -> Version:
        """How the version of a stored checkpoint, in the form that this code reads, is to be
        taken."""
        return recovery.version_of(record.known_to(self.version).schema_version, self.version)

    def today(
        self,
        place: Place,
        snapshot: Snapshot,
        interrupts: Mapping[str, str] = MappingProxyType({}),
        past: bool = False,
    ) -> Snapshot:
        """A stored checkpoint in today's shape, its writes in LangGraph's order.

        Args:
            place: where it is stored.
            snapshot: as stored.
            interrupts: today's ids of those that wait in its subgraphs.
            past: nothing goes on from it: it may wait for what is no more.

        Raises:
            EvolutionError: if a step fails, or cannot be taken.
        """
        assert self.schema is not None
        bring_up = shown if past else evolved
        try:
            made = bring_up(snapshot, self.schema, self.version, place.named, interrupts)
        except EvolutionError as error:
            error.thread, error.namespace = place.thread.id, place.ns
            raise
        return replace(made, writes=tuple(sorted(made.writes, key=_order)))

    def check_nodes(self, place: Place, seen: Snapshot) -> None:
        """Refuses a checkpoint of today's shape that waits for a node that today's code has not:
        LangGraph would prepare no task for it, and forget the answer to its interrupt.

        Raises:
            EvolutionError: if it does, as far as the schema's fingerprint tells.
        """
        nodes = self._nodes(place)
        unknown = unknown_tasks(seen, nodes) if nodes is not None else ()
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise EvolutionError(
                f"Thread {place.thread.id!r}, checkpoint {seen.checkpoint['id']}: it waits for "
                f"{names}, which this code does not have. Declare what became of it: "
                "rename_node, or drop_node(to=…). (Or record the fingerprint of this code.)",
                thread=place.thread.id,
                namespace=place.ns,
                checkpoint=seen.checkpoint["id"],
            )

    def before(
        self, place: Place, snapshot: Snapshot, interrupts: Mapping[str, str] = MappingProxyType({})
    ) -> Snapshot:
        """A checkpoint of today in the shape that is stored beside it.

        Raises:
            EvolutionError: if a step cannot be taken back.
        """
        assert self.schema is not None
        assert self.beside is not None
        return evolved(snapshot, self.schema, self.beside, place.ns, interrupts)

    def unchanged(self, record: Record, version: int | None = None) -> Mapping[str, Channel]:
        """The channels of a stored checkpoint whose bytes are those of a version's shape, today's
        if none is given."""
        to = self.version if version is None else version
        record = record.known_to(to)
        found = record.by_name()
        if self.schema is None or record.schema_version == to:
            return found
        if record.schema_version > to:
            return {}
        path = self.path(record.place, to)
        of = touched(self.schema, record.schema_version, to, path)
        return {} if of is None else {n: c for n, c in found.items() if n not in of}

    def path(self, place: Place, version: int) -> str:
        """A graph's path in the names of a version."""
        path = path_of(place.named)
        return path if self.schema is None else self.schema.path(path, self.version, version)

    def ns(self, place: Place, version: int) -> str:
        """A namespace in the names of a version.

        Raises:
            EvolutionError: if it was called something else then than it is now, and than it was
                stored under.
        """
        path = self.path(place, version)
        if version < self.version and path == path_of(place.ns):
            return place.ns
        if path == path_of(place.named):
            return place.named
        raise EvolutionError(
            f"Thread {place.thread.id!r}, namespace {place.ns!r}: what it was called at version "
            f"{version} cannot be told: it was stored under the name of one version, and put to "
            "by code of the next. migrate() gives it the name of today",
            thread=place.thread.id,
            namespace=place.ns,
        )

    def task_path(self, place: Place, batch: Batch) -> str:
        """Where the task of a batch is in its step, in the name that its node has today."""
        batch = batch.known_to(self.version)
        return self.order(place, batch.path, batch.schema_version, self.version)

    def name_of(self, place: Place, channel: str, version: int) -> str | None:
        """What a channel of today was called in a version; None if it was not there.

        Raises:
            EvolutionError: if it was made from others, or by a function.
        """
        if self.schema is None or version == self.version:
            return channel
        return stored_name(self.schema, channel, self.version, version, path_of(place.named))

    def name_today(self, place: Place, channel: str, version: int) -> str | None:
        """What a channel of a version is called today; None if there is none any more.

        Raises:
            EvolutionError: if others were made from it, or by a function.
        """
        if self.schema is None or version == self.version:
            return channel
        path = self.path(place, version)
        return current_name(self.schema, channel, version, self.version, path)

    def names_today(self, place: Place, channels: Iterable[str], version: int) -> set[str]:
        """What some channels of a version are called today, if they are left; see `name_today`."""
        today = (self.name_today(place, name, version) for name in channels)
        return {name for name in today if name is not None}

    def value(self, place: Place, channel: str, value: Any, version: int) -> Any:
        """A value of a channel of today, or of one write to it, that is of a version.

        Raises:
            EvolutionError: if a step fails.
        """
        if self.schema is None or version == self.version:
            return value
        return value_up(self.schema, channel, value, version, self.version, path_of(place.named))

    def order(self, place: Place, path: str, version: int, to: int) -> str:
        """What code of version `to` orders a task of another version by, from its path."""
        if self.schema is None or version == to:
            return path
        at = self.schema.path(path_of(place.named), self.version, to)
        return path_up(self.schema, path, version, to, at)


def shape_of(schema: StateSchema | None, dual_write: tuple[int, int] | None) -> Shape:
    """The shape that a saver's arguments tell of.

    Raises:
        UsageError: if a step is missing, or one between the versions to write has no way back.
    """
    if schema is not None and not isinstance(schema, StateSchema):
        raise UsageError(f"state_schema must be a StateSchema, not {schema!r}")
    checked = schema.checked() if schema is not None else None
    if dual_write is None:
        return Shape(checked)
    if checked is None:
        raise UsageError("dual_write needs state_schema: nothing says what a version means")
    version = checked.version
    if version == 0:
        raise UsageError("dual_write: the schema's version is 0, there is none before it")
    if dual_write not in ((version - 1, version), [version - 1, version]):
        raise UsageError(
            f"dual_write={dual_write!r}: use ({version - 1}, {version}), the version before the "
            "schema's and its own"
        )
    # What is stored of an object names its class and fields, whatever it is stored for.
    one_way = [
        each
        for each in checked.operations(version - 1)
        if not each.reversible or isinstance(each, Reclass)
    ]
    if one_way:
        raise UsageError(
            f"dual_write: the step from version {version - 1} has no way back for "
            f"{_subject(one_way[0])}"
        )
    return Shape(checked, version - 1)


def _subject(each: Operation) -> str:
    """What an operation is about."""
    if isinstance(each, Reshape):
        return f"channel {', '.join(map(repr, each.sources))}"
    if isinstance(each, Renode):
        return f"node {each.old!r}"
    if isinstance(each, Reclass):
        return f"class {':'.join(each.old)}"
    return "its function"


def _order(write: Write) -> tuple[str, str, int]:
    return write.path, write.task, WRITES_IDX_MAP.get(write.channel, 0)


def newer(place: Place, id: str, stored: int, ours: int) -> EvolutionError:
    """The error of a state in a newer shape than this code has."""
    return EvolutionError(
        f"Thread {place.thread.id!r}, checkpoint {id}: its state has version {stored}, this code "
        f"knows {ours}"
    )
