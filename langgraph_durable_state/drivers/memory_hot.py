"""The hot tier in memory: what the scripts in `tiers/lua` do, each one atomic step.

Nothing expires by itself; clear `World.copies` to lose all that is hot.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..words import PENDING, ChunkRow, Digest, Place, Put, RecordRow, Thread, Witnessed
from .memory_world import Change, World, spot

HOT = "hot "
"""Begins the name of every switch point of this tier."""


class MemoryHot:
    """Implements `Hot`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ping(self) -> None:
        await self._world.step(HOT + "ping")

    async def raise_to(self, put: Put, seq: int, previous: Digest, dropped: Sequence[int]) -> bool:
        async with Change(self._world, HOT + "raise"):
            copies = self._world.copies
            if spot(put.place) in self._world.spells:
                return True
            row, chunks = copies.get(spot(put.place), (None, {}))
            have = row.digest if row is not None else b""
            if have == put.digest:
                return True
            if have != previous:
                if row is not None and row.seq <= seq:
                    del copies[spot(put.place)]
                return False
            left = {no: chunk for no, chunk in chunks.items() if no not in set(dropped)}
            raised = RecordRow(
                put.place.ns, put.id, put.parent, seq, put.digest, put.record, put.numbers
            )
            copies[spot(put.place)] = raised, left | {c.no: c for c in put.chunks}
            return True

    async def fill(self, place: Place, row: RecordRow, chunks: Sequence[ChunkRow]) -> None:
        async with Change(self._world, HOT + "fill"):
            have = self._world.copies.get(spot(place))
            if spot(place) in self._world.spells:
                return
            if have is None or have[0].seq <= row.seq:
                self._world.copies[spot(place)] = row, {c.no: c for c in chunks}

    async def fetch(
        self, place: Place, digest: Digest
    ) -> tuple[RecordRow, dict[int, ChunkRow]] | None:
        await self._world.step(HOT + "fetch")
        have = self._world.copies.get(spot(place))
        if have is None or have[0].digest != digest:
            return None
        return have[0], dict(have[1])

    async def witness(self, place: Place) -> Witnessed:
        await self._world.step(HOT + "witness")
        at = spot(place)
        return Witnessed(self._world.witnesses.get(at, b""), self._world.drops.get(at, b""))

    async def raise_witness(self, place: Place, witness: bytes, force: bool, drops: bytes) -> bool:
        async with Change(self._world, HOT + "raise_witness"):
            if self._world.drops.get(spot(place), b"") != drops:
                return False
            have = self._world.witnesses.get(spot(place), b"")
            if force or have[:16] <= witness[:16]:
                self._world.witnesses[spot(place)] = witness
            return True

    async def drop_witnesses(
        self, thread: Thread | None, namespaces: Sequence[str] | None, before: bool
    ) -> None:
        async with Change(self._world, HOT + "drop_witnesses"):
            if thread is None or namespaces is None:
                every = self._world.witnesses
                spots = [at for at in every if thread is None or at[0] == thread.key]
            else:
                spots = [(thread.key, ns) for ns in namespaces]
            for at in spots:
                self._world.witnesses.pop(at, None)
                drops = int(self._world.drops.get(at, b"0").rstrip(b"?")) + 1
                self._world.drops[at] = f"{drops}{PENDING if before else ''}".encode()

    async def drop(self, thread: Thread, namespaces: Sequence[str]) -> None:
        async with Change(self._world, HOT + "drop"):
            for ns in namespaces:
                self._world.copies.pop((thread.key, ns), None)
