"""Data keys as rows."""

from __future__ import annotations

from ..decisions import keys
from ..ports import Sql
from ..words import DataKey, Owner, Thread
from . import arrays


class PostgresKeys:
    """Implements `KeyTable`; the part of `PostgresTier` that is about data keys."""

    _sql: Sql

    async def owner(self, thread: Thread) -> Owner:
        for (user,) in await self._sql.fetch("owner", (thread.key,)):
            return Owner(thread.tenant, _name(user))
        return Owner(thread.tenant, thread.user)

    async def data_key(self, id: bytes) -> DataKey | None:
        rows = await self._sql.fetch("data_key", (id,))
        if not rows:
            return None
        tenant, user, master, wrapped = rows[0]
        owner = Owner(keys.legible(tenant), _name(user))
        return DataKey(id, owner, master, wrapped)

    async def data_keys(self, owner: Owner) -> list[DataKey]:
        rows = await self._sql.fetch("data_keys", _owner(owner))
        return [DataKey(id, owner, master, wrapped) for id, master, wrapped in rows]

    async def add_data_key(self, key: DataKey) -> None:
        await self._sql.fetch("add_data_key", (key.id, *_owner(key.owner), key.master, key.wrapped))

    async def data_keys_besides(self, master: bytes, after: bytes, limit: int) -> list[DataKey]:
        rows = await self._sql.fetch("data_keys_besides", (master, after, arrays.int_(limit)))
        return [
            DataKey(id, Owner(keys.legible(tenant), _name(user)), other, wrapped)
            for id, tenant, user, other, wrapped in rows
        ]

    async def drop_data_keys(self, owner: Owner) -> int:
        return len(await self._sql.fetch("drop_data_keys", _owner(owner)))


def _name(user: bytes | None) -> str | None:
    return None if user is None else keys.legible(user)


def _owner(owner: Owner) -> tuple[bytes, bytes | None]:
    return keys.encoded(owner.tenant), None if owner.user is None else keys.encoded(owner.user)
