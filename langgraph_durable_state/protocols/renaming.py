"""What the namespaces of one thread are called at each version of a graph, told by its checkpoints.

A namespace is named by the code that first stored something in it, of whatever version that was.
Which one is told by the checkpoint around it: only code of that version gives one of its tasks the
id that the name holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from langgraph._internal._constants import NS_END, NS_SEP

from ..decisions.codec import Record
from ..decisions.evolution.evolving import evolved, moved_namespace, path_of
from ..decisions.evolution.snapshot import Snapshot
from ..decisions.evolution.steps import StateSchema
from ..errors import EvolutionError
from .naming import around_of, renamed

Key = tuple[str, str]
"""A stored namespace, and the id of a checkpoint in it."""

HELD = 16
"""Checkpoints kept at hand: those around several namespaces come one after the other."""


class Renaming:
    """The names of one thread's namespaces.

    Args:
        schema: the graph's.
        to: the version that they are wanted for.
        records: all that is stored of the thread, in each namespace oldest first.
        read: a record in the oldest shape that it is stored in: LangGraph's own channels, and
            nothing that waits on it.
        metadata: that of a record, likewise.
    """

    def __init__(
        self,
        schema: StateSchema,
        to: int,
        records: Mapping[Key, Record],
        read: Callable[[Record], Snapshot],
        metadata: Callable[[Record], Mapping[str, Any]],
    ) -> None:
        self._schema = schema
        self._to = to
        self._records = records
        self._read = lru_cache(HELD)(lambda key: read(records[key]))
        self._metadata = metadata
        self._versions = sorted({to, *(v for each in records.values() for v in each.versions)})
        self._within: dict[str, list[Record]] = {}
        self._first: dict[str, int] = {}
        for (ns, _), record in records.items():
            self._within.setdefault(ns, []).append(record)
            self._first[ns] = min(*record.versions, self._first.get(ns, schema.version))
        self._stored: dict[str, str] = {}
        """Which stored namespace each name is, or was, of."""
        self._origins: dict[str, Snapshot | None] = {}
        self._named: dict[tuple[str, int], str] = {}
        for ns in sorted(self._within, key=lambda ns: (ns.count(NS_SEP), ns)):
            self._stored.setdefault(ns, ns)
            self._origins[ns] = self._origin(ns)
            for version in self._versions:
                self._stored.setdefault(self.named(ns, version), ns)
        self._names = self._settled()

    def name(self, ns: str) -> str:
        """What a stored namespace is to be called."""
        return self._names[ns]

    def named(self, ns: str, version: int) -> str:
        """What code of a version calls a stored namespace; as it is stored, if nobody can tell."""
        key = ns, version
        if key not in self._named:
            self._named[key] = self._name(ns, version)
        return self._named[key]

    def parent(self, ns: str) -> Key | None:
        """The checkpoint whose task a stored namespace is of; None if it is of none, or that is not
        there."""
        outside = around_of(ns)
        above = None if outside is None else self._stored.get(outside)
        if outside is None or above is None or NS_END not in ns[len(outside) :]:
            return None
        # One that a run with durability="exit" began from has no metadata.
        told = (self._metadata(record).get("parents") for record in self._within[ns])
        parents: Mapping[str, str] = next(filter(None, told), {})
        key = above, str(parents.get(outside, parents.get(above)))
        return key if key in self._records else None

    def _settled(self) -> dict[str, str]:
        """The names, but for those that another namespace has already."""
        out = {ns: ns for ns in self._within if self.named(ns, self._to) == ns}
        taken = set(out)
        for ns in self._within:
            if ns not in out:
                name = self.named(ns, self._to)
                out[ns] = ns if name in taken else name
                taken.add(out[ns])
        return out

    def _name(self, ns: str, version: int) -> str:
        if NS_END not in ns:  # one for all runs
            return renamed(ns, self._schema.path(path_of(ns), self._first[ns], version))
        origin = self._origins[ns]
        if origin is None:
            return ns
        above = self.named(self._stored[origin.ns], version)
        try:
            return moved_namespace(origin, self._schema, version, ns, above)
        except EvolutionError:
            return ns

    def _origin(self, ns: str) -> Snapshot | None:
        """The graph around a namespace, at the version that it was named by; None if that cannot be
        told, or nothing is around it."""
        outside = around_of(ns)
        if outside is None or outside not in self._stored:
            return None
        if NS_END not in ns[len(outside) :]:
            return Snapshot(outside, self._first[ns], {}, {})
        parent = self.parent(ns)
        return None if parent is None else self._at_naming(ns, outside, self._read(parent))

    def _at_naming(self, ns: str, outside: str, stored: Snapshot) -> Snapshot | None:
        above = self._stored[outside]
        snapshot = replace(stored, ns=self.named(above, stored.version))
        for version in self._versions:
            named = self.named(above, version)
            if version < stored.version or named != outside:
                continue
            try:
                made = evolved(snapshot, self._schema, version, named)
                moved_namespace(made, self._schema, self._to, ns, self.named(above, self._to))
            except EvolutionError:
                continue
            return made
        return None
