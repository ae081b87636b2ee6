"""Namespaces of subgraphs under the names that nodes have today.

A namespace is made of the names of nodes and the ids of their tasks, so it changes where a node is
renamed. What was stored under the former one stays there; the code of today finds it by asking
which of the stored namespaces would be called so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langgraph._internal._constants import INTERRUPT, NS_END, NS_SEP

from ..decisions import keys
from ..decisions.codec import Batch, Record
from ..decisions.evolution.calling import caller_of
from ..decisions.evolution.evolving import moved_interrupts, moved_namespace, path_of
from ..decisions.evolution.snapshot import Snapshot
from ..decisions.serializing import Serializer
from ..errors import EvolutionError
from ..ports import Durable
from ..words import Place
from .dual_write import DualWrite
from .settling import Settler
from .shared import Shared
from .vault import Vault

LOOKS = 50
_LOOK_SECONDS = 0.02
"""LangGraph hands over a checkpoint before what is stored below it, but to another thread or task:
where that has to know it, it is waited for, for a second in all."""


class Naming:
    """Finds stored namespaces through one driver's durable tier.

    Args:
        shared: the saver's.
        durable: where to look.
        vault: finds the keys that it is read with.
        settler: makes durable what the hot tier alone holds.
        dual: knows checkpoints that were put here.
        pause: waits for some seconds, beside what else is going on.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        vault: Vault,
        settler: Settler,
        dual: DualWrite,
        pause: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._dual = dual
        self._pause = pause
        self._known = shared.namespaces
        self._settler = settler
        self._shape = shared.shape
        self._reader = shared.reader
        self._durable = durable
        self._vault = vault

    def is_plain(self, config: Mapping[str, Any]) -> bool:
        """Whether a config's namespace is certainly stored under the name that it has there."""
        return not self._shape.renames or not config["configurable"].get("checkpoint_ns")

    async def place(
        self, serializer: Serializer, config: Mapping[str, Any], known: bool = False
    ) -> Place:
        """The place that a config names.

        Args:
            serializer: reads the checkpoints around it.
            config: LangGraph's.
            known: whether it is enough where it was when it was last read: who writes has read it,
                and is told if it was moved since.

        Raises:
            UsageError: if it names none.
            EvolutionError: if a node has the name that another one had.
        """
        place = keys.place_of(config)
        if self.is_plain(config):
            return place
        if known and (found := self._known.get(place)) is not None:
            return found
        named = partial(self._stored, serializer, place, config)
        return await self._vault.reading(place.thread, named)

    async def _stored(
        self, serializer: Serializer, place: Place, config: Mapping[str, Any]
    ) -> Place:
        if NS_END not in place.ns:
            return await self._kept(place)
        found = await self._sought(serializer, place, config)
        if found is not None:
            self._known.put(place, found)
        return found or place

    async def _sought(
        self, serializer: Serializer, place: Place, config: Mapping[str, Any]
    ) -> Place | None:
        """Where a subgraph of a task is stored, or is to be; None if nothing tells."""
        outside = around_of(place.ns)
        if outside is None or await self._is_there(place):
            return place
        outer = await self.place(serializer, _at(config, outside), known=True)
        ids = config["configurable"].get("checkpoint_map") or {}
        id = ids.get(outside)
        found = await self._found(outer, id)
        parent = self._oldest(found[0], serializer) if found is not None else None
        if parent is not None and parent.version < self._shape.version:
            for ns in await self._durable.heads(place.thread):
                if around_of(ns) == outer.ns and self._named(parent, outer, ns) == place.ns:
                    return _at_name(place, ns)
        other = found[0].other if found is not None else None
        older = self._shape.beside if other is None else other.schema_version
        if older is None or not (found is not None or id):
            return None
        if found is None and (called := self._called(place, outer, config, id, older)) is not None:
            return called
        if found is None:
            await self._settler.settle(place.thread)
            found = await self._found(outer, id)
        newest = self._reader.stored(found[0], (), serializer) if found is not None else None
        today = await self.outline(serializer, outer, id or "", newest)
        return await self._beside(place, outer, today, older) if today is not None else None

    def _called(
        self, place: Place, outer: Place, config: Mapping[str, Any], id: str | None, older: int
    ) -> Place | None:
        """Where a subgraph is to be stored whose caller's checkpoint is not stored yet, nor may be
        until it ends."""
        told = config.get("metadata") or {}
        caller = caller_of(told, id, outer.named, self._shape.version) if id else None
        try:
            return self._under(place, outer, caller, older) if caller is not None else None
        except EvolutionError:  # it is of another task
            return None

    def _under(self, place: Place, outer: Place, parent: Snapshot, older: int) -> Place:
        schema = self._shape.schema
        assert schema is not None
        return _at_name(place, moved_namespace(parent, schema, older, place.ns, ns=outer.ns))

    async def _beside(self, place: Place, outer: Place, parent: Snapshot, older: int) -> Place:
        """Where a subgraph of a checkpoint that is stored in an older shape too is stored: under
        the name that older code gives it, if that is at work, or was when it began."""
        found = self._under(place, outer, parent, older)
        at_work = self._shape.beside is not None
        return found if at_work or await self._is_there(found) else place

    async def outline(
        self, serializer: Serializer, place: Place, id: str, found: Snapshot | None = None
    ) -> Snapshot | None:
        """A checkpoint in today's shape, without the user's values, from wherever it is; a put of
        it may be about to begin."""
        for _ in range(LOOKS):
            if (known := self._dual.outline(place, id)) is not None:
                return known
            found = found or await self._vault.reading(
                place.thread, partial(self.snapshot, serializer, place, id)
            )
            if found is not None:
                return self._dual.note(place, self._shape.today(place, found))
            await self._pause(_LOOK_SECONDS)
        return None

    async def _kept(self, place: Place) -> Place:
        """Of a subgraph that keeps its state from run to run: no task's id is in its name."""
        former = self._shape.former(path_of(place.ns))
        names = [renamed(place.ns, path) for path in former]
        if await self._is_there(place):
            return place
        for ns in names:
            if await self._is_there(found := _at_name(place, ns)):
                return found
        if self._shape.beside is not None:
            return _at_name(place, renamed(place.ns, self._shape.path(place, self._shape.beside)))
        return place

    async def _is_there(self, place: Place) -> bool:
        found = await self._durable.read(place, None, b"", -1)
        return found is not None and bool(found.head.digest or found.ahead)

    def _named(self, parent: Snapshot, outer: Place, ns: str) -> str | None:
        """What a stored namespace below another is called today; None if it is not of a task of
        that one's checkpoint."""
        schema = self._shape.schema
        assert schema is not None
        try:
            return moved_namespace(parent, schema, self._shape.version, ns, ns=outer.named)
        except EvolutionError:
            return None

    def _kept_name(self, ns: str, version: int) -> str:
        """What a stored namespace of names alone, of a version, is called today."""
        schema = self._shape.schema
        assert schema is not None
        return renamed(ns, schema.path(path_of(ns), version, self._shape.version))

    async def snapshot(
        self, serializer: Serializer, place: Place, id: str | None
    ) -> Snapshot | None:
        """A stored checkpoint, the head if `id` is None, in the shape it was stored in."""
        found = await self._found(place, id)
        if found is None:
            return None
        self._dual.read(*found)
        return self._reader.stored(*found, serializer)

    def _oldest(self, record: Record, serializer: Serializer) -> Snapshot:
        """A checkpoint in the oldest shape that it is stored in: what is below it is stored under
        the names that nodes had then."""
        return self._reader.stored(record.known_to(min(record.versions)), (), serializer)

    async def _found(self, place: Place, id: str | None) -> tuple[Record, list[Batch]] | None:
        found = await self._durable.read(place, id, b"", None)
        if found is None or found.row is None or not found.row.record:
            return None
        record = self._reader.record(place, found.row, found.chunks)
        return record, self._reader.batches(place, found.writes, found.chunks)

    async def interrupts(
        self, serializer: Serializer, record: Record, batches: Sequence[Batch]
    ) -> Mapping[str, str]:
        """Today's ids of the interrupts that wait in the subgraphs of a checkpoint that was read,
        by those that they were stored with."""
        self._dual.read(record, batches)
        if self._shape.schema is None or self._shape.fits(record, batches):
            return {}
        if not any(write.name == INTERRUPT for batch in batches for write in batch.writes):
            return {}
        await self._settler.settle(record.place.thread)
        return await self._below(serializer, record)

    async def _below(self, serializer: Serializer, record: Record) -> dict[str, str]:
        schema, outer = self._shape.schema, record.place
        assert schema is not None
        parent = self._oldest(record, serializer)
        out: dict[str, str] = {}
        for ns in await self._durable.heads(outer.thread):
            around = around_of(ns)
            if around is None or path_of(around) != path_of(outer.ns):
                continue
            kept = NS_END not in ns
            if not kept and around != outer.ns:
                continue
            named = self._kept_name(ns, parent.version) if kept else self._named(parent, outer, ns)
            if named is None:
                continue
            place = Place(outer.thread, ns, named)
            found = await self._found(place, None)
            if found is not None:
                inner = self._reader.stored(*found, serializer)
                out |= moved_interrupts(inner, schema, self._shape.version, ns=named)
                out |= await self._below(serializer, found[0])
        return out


def around_of(ns: str) -> str | None:
    """The namespace around another; None for the outermost. A part that is a number alone is of
    the same task as the one before it."""
    parts = ns.split(NS_SEP) if ns else []
    while parts and parts[-1].isdigit():
        parts.pop()
    return NS_SEP.join(parts[:-1]) if parts else None


def renamed(ns: str, path: str) -> str:
    """A namespace of names alone under other ones; its numbers stay."""
    names = iter(path.split("/"))
    return NS_SEP.join(part if part.isdigit() else next(names) for part in ns.split(NS_SEP))


def _at_name(place: Place, ns: str) -> Place:
    """A place that is stored as a namespace, which may be its own."""
    return place if ns == place.ns else replace(place, ns=ns, alias=place.ns)


def _at(config: Mapping[str, Any], ns: str) -> Mapping[str, Any]:
    return {"configurable": {**config["configurable"], "checkpoint_ns": ns}}
