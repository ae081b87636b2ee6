"""Data keys in memory."""

from __future__ import annotations

from ..words import DataKey, Owner, Thread
from .memory_world import Change, World


class MemoryKeys:
    """Implements `KeyTable`; the part of `MemoryDurable` that is about data keys."""

    _world: World

    async def owner(self, thread: Thread) -> Owner:
        await self._world.step("owner")
        rows = self._world.threads.get(thread.key)
        stored = rows.thread if rows is not None else None
        return Owner(thread.tenant, (stored or thread).user)

    async def data_key(self, id: bytes) -> DataKey | None:
        await self._world.step("data_key")
        return self._world.data_keys.get(id)

    async def data_keys(self, owner: Owner) -> list[DataKey]:
        await self._world.step("data_keys")
        return [key for key in reversed(self._world.data_keys.values()) if key.owner == owner]

    async def add_data_key(self, key: DataKey) -> None:
        async with Change(self._world, "add_data_key"):
            self._world.data_keys[key.id] = key

    async def data_keys_besides(self, master: bytes, after: bytes, limit: int) -> list[DataKey]:
        await self._world.step("data_keys_besides")
        found = sorted(self._world.data_keys.items())
        return [key for id, key in found if id > after and key.master != master][:limit]

    async def drop_data_keys(self, owner: Owner) -> int:
        async with Change(self._world, "drop_data_keys"):
            gone = [id for id, key in self._world.data_keys.items() if key.owner == owner]
            for id in gone:
                del self._world.data_keys[id]
            return len(gone)
