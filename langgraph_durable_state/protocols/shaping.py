"""The shape of the user's state that this saver's code has, and how stored ones become it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from ..decisions.chunking import Channel
from ..decisions.codec import Batch, Record
from ..decisions.evolution.evolving import (
    current_name,
    evolved,
    path_of,
    path_up,
    stored_name,
    touched,
    value_up,
)
from ..decisions.evolution.operations import Operation, Renode
from ..decisions.evolution.snapshot import Snapshot, Write
from ..decisions.evolution.steps import StateSchema
from ..decisions.reviving import Revival
from ..decisions.serializing import Serializer
from ..errors import EvolutionError
from ..words import Place


class Shape:
    """See above.

    Args:
        schema: what the user declared; None for a state that has no versions, which is version 0.
    """

    def __init__(self, schema: StateSchema | None = None) -> None:
        self.schema = schema
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

    def fits(self, record: Record, batches: Iterable[Batch]) -> bool:
        """Whether a checkpoint, and the writes that wait on it, are in today's shape."""
        versions = {record.schema_version, *(batch.schema_version for batch in batches)}
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

    def today(
        self, place: Place, snapshot: Snapshot, interrupts: Mapping[str, str] = MappingProxyType({})
    ) -> Snapshot:
        """A stored checkpoint in today's shape, its writes in LangGraph's order.

        Args:
            place: where it is stored.
            snapshot: as stored.
            interrupts: today's ids of those that wait in its subgraphs.

        Raises:
            EvolutionError: if a step fails, or cannot be taken.
        """
        assert self.schema is not None
        made = evolved(snapshot, self.schema, self.version, place.named, interrupts)
        return replace(made, writes=tuple(sorted(made.writes, key=_order)))

    def unchanged(self, record: Record) -> Mapping[str, Channel]:
        """The channels of a stored checkpoint whose bytes are those of today's shape."""
        found = record.by_name()
        if self.schema is None or record.schema_version == self.version:
            return found
        path = path_of(record.place.named)
        of = touched(self.schema, record.schema_version, self.version, path)
        return {} if of is None else {n: c for n, c in found.items() if n not in of}

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
        path = self.schema.path(path_of(place.named), self.version, version)
        return current_name(self.schema, channel, version, self.version, path)

    def value(self, place: Place, channel: str, value: Any, version: int) -> Any:
        """A value of a channel of today, or of one write to it, that is of a version.

        Raises:
            EvolutionError: if a step fails.
        """
        if self.schema is None or version == self.version:
            return value
        return value_up(self.schema, channel, value, version, self.version, path_of(place.named))

    def order(self, place: Place, path: str, version: int, to: int) -> str:
        """What code of version `to` orders a task of an older version by, from its path."""
        if self.schema is None or version == to:
            return path
        at = self.schema.path(path_of(place.named), self.version, to)
        return path_up(self.schema, path, version, to, at)


def _order(write: Write) -> tuple[str, str, int]:
    return write.path, write.task, WRITES_IDX_MAP.get(write.channel, 0)


def newer(place: Place, id: str, stored: int, ours: int) -> EvolutionError:
    """The error of a state in a newer shape than this code has."""
    return EvolutionError(
        f"Thread {place.thread.id!r}, checkpoint {id}: its state has version {stored}, this code "
        f"knows {ours}"
    )
