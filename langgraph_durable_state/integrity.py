"""What is done to a saver by those who answer for what it stores."""

from __future__ import annotations

from .drivers.blocking import run
from .drivers.driver import Driver
from .drivers.faces import Faces
from .errors import UsageError
from .words import Owner


class Integrity:
    """The part of `DurableSaver` that is about keys."""

    _faces: Faces

    def shred(self, user_id: str, *, tenant_id: str = "") -> int:
        """Deletes the keys of a user: nobody can read any more what was encrypted with them.

        That includes what is in Redis, in replicas and in archives; not a backup of Postgres that
        holds the keys as well. Other processes use a key that they know for up to a minute.

        Args:
            user_id: whose.
            tenant_id: of which tenant.

        Returns:
            How many keys there were; 0 if nothing of this user is encrypted.

        Raises:
            UnavailableError: if Postgres cannot be reached.
            UsageError: if the id is no `str`, or empty.
        """
        return run(self._shred_blocking(user_id, tenant_id))

    async def ashred(self, user_id: str, *, tenant_id: str = "") -> int:
        """Deletes the keys of a user; see `shred`."""
        return await self._shred(await self._faces.native(), user_id, tenant_id)

    async def _shred_blocking(self, user_id: str, tenant_id: str) -> int:
        return await self._shred(await self._faces.blocking(), user_id, tenant_id)

    async def _shred(self, driver: Driver, user_id: str, tenant_id: str) -> int:
        if not isinstance(user_id, str) or not user_id:
            raise UsageError(f"user_id {user_id!r}: use the str that threads are begun with")
        return await driver.vault.shred(Owner(tenant_id, user_id))
