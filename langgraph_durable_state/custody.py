"""What is done to a saver by those who answer for what it stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from .decisions import arguments
from .decisions.keys import place_of
from .decisions.serializing import Serializer
from .drivers.blocking import run
from .drivers.driver import Driver
from .drivers.faces import Faces
from .errors import CorruptionError, EvolutionError, StateLostError, UsageError
from .protocols.rekeying import Rekeyed, Unrekeyed
from .words import Owner, Place, Thread


class Custody:
    """The part of `DurableSaver` that is about keys, and about what they prove."""

    _faces: Faces

    @property
    def _serializer(self) -> Serializer:
        raise NotImplementedError  # the saver's

    # -- heads -------------------------------------------------------------------------------

    def export_head(self, thread_id: str, *, tenant_id: str = "", checkpoint_ns: str = "") -> str:
        """What a thread's head is now, signed, as one line of JSON: an anchor for `check_head`.

        Keep it where whoever may write to Postgres and to Redis may not. What Redis alone holds of
        the thread is flushed first.

        Args:
            thread_id, tenant_id, checkpoint_ns: whose head.

        Raises:
            UsageError: if there is no head, or no key.
            HeadMovedError: if somebody without the key moved it, or it was set back.
            UnavailableError, StateLostError: as `flush`.
        """
        return run(self._export_blocking(_place(thread_id, tenant_id, checkpoint_ns)))

    async def aexport_head(
        self, thread_id: str, *, tenant_id: str = "", checkpoint_ns: str = ""
    ) -> str:
        """What a thread's head is now, signed; see `export_head`."""
        place = _place(thread_id, tenant_id, checkpoint_ns)
        return await self._export(await self._faces.native(), place)

    async def _export_blocking(self, place: Place) -> str:
        return await self._export(await self._faces.blocking(), place)

    async def _export(self, driver: Driver, place: Place) -> str:
        await driver.flusher.settle(place.thread)
        return await driver.vault.reading(place.thread, partial(driver.attestor.export, place))

    def check_head(self, anchor: str) -> int:
        """Whether a thread has gone on from an exported head, and not from before it.

        Args:
            anchor: what `export_head` gave.

        Returns:
            How often its head has moved since.

        Raises:
            HeadMovedError: if it has not: both tiers were set back, or the thread was deleted, or
                checkpoints were (`delete_for_runs`), or it was brought under another key (`rekey`):
                export the head again after that.
            KeyMissingError: if it was exported under a key that this saver was not given.
            UsageError: if it is no exported head, or was changed.
            UnavailableError, StateLostError: as `flush`.
        """
        return run(self._check_blocking(anchor))

    async def acheck_head(self, anchor: str) -> int:
        """Whether a thread has gone on from an exported head; see `check_head`."""
        return await self._check(await self._faces.native(), anchor)

    async def _check_blocking(self, anchor: str) -> int:
        return await self._check(await self._faces.blocking(), anchor)

    async def _check(self, driver: Driver, anchor: str) -> int:
        async def read() -> int:
            try:
                place, signed = driver.attestor.read(arguments.text("anchor", anchor))
            except RecursionError:
                raise UsageError("this is no head that export_head() gave") from None
            await driver.flusher.settle(place.thread)
            return await driver.attestor.check(place, signed)

        return await driver.vault.reading(None, read)

    def accept_rollback(self, thread_id: str | None = None, *, tenant_id: str = "") -> list[str]:
        """Takes the heads of a thread as they are after a `HeadMovedError`: a backup was restored.

        Args:
            thread_id: which thread; None for all threads, whose heads must still be signed: after
                a restore of all of Postgres they are.
            tenant_id: whose.

        Returns:
            The namespaces of the thread that have a head.

        Raises:
            CorruptionError: if what a head is at is not what was written.
            UnavailableError: if a tier cannot be reached.
        """
        return run(self._accept_rollback_blocking(thread_id, tenant_id))

    async def aaccept_rollback(
        self, thread_id: str | None = None, *, tenant_id: str = ""
    ) -> list[str]:
        """Takes the heads of a thread as they are; see `accept_rollback`."""
        return await self._accept_rollback(await self._faces.native(), thread_id, tenant_id)

    async def _accept_rollback_blocking(self, thread_id: str | None, tenant_id: str) -> list[str]:
        return await self._accept_rollback(await self._faces.blocking(), thread_id, tenant_id)

    async def _accept_rollback(
        self, driver: Driver, thread_id: str | None, tenant_id: str
    ) -> list[str]:
        arguments.text("tenant_id", tenant_id)
        if thread_id is None:
            await driver.anchors.forget(None, None)
            return []
        thread = _place(thread_id, tenant_id, "").thread
        await driver.flusher.settle(thread)
        await driver.anchors.forget(thread, None)
        found = []
        for ns in await driver.durable.heads(thread):
            accept = partial(driver.attestor.accept, Place(thread, ns))
            if await driver.vault.reading(thread, accept):
                found.append(ns)
        return found

    # -- keys --------------------------------------------------------------------------------

    def rekey(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        tenant_id: str = "",
        renew: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> Rekeyed:
        """Brings threads under the current keys, so that older ones can be retired.

        A thread is read, proven and rewritten as a whole, in one transaction; what is under the
        current keys already, in today's format, is left alone, so a call that was interrupted goes
        on where it was. A run that is under way on a thread that is rewritten meets a
        `ConflictError` at its next put, and may be run again. What was stored without a key needs
        `accept_plain`.

        Args:
            thread_ids: which threads; None for all of the tenant, and to have all data keys wrapped
                by the current master key.
            tenant_id: whose.
            renew: give each owner a new data key first, and encrypt anew with that.
            progress: called with the id of each thread that was looked at.

        Returns:
            How many threads there were, how many were rewritten, which were busy (call it again for
            those), and which were left as they are, since something of them is damaged, lost, or
            under a key that this saver was not given.

        Raises:
            UnavailableError: as `flush`.
            UsageError: if this saver has no key.
        """
        return run(self._rekey_blocking(thread_ids, tenant_id, renew, progress))

    async def arekey(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        tenant_id: str = "",
        renew: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> Rekeyed:
        """Brings threads under the current keys; see `rekey`."""
        driver = await self._faces.native()
        return await self._rekey(driver, thread_ids, tenant_id, renew, progress)

    async def _rekey_blocking(
        self,
        thread_ids: Iterable[str] | None,
        tenant: str,
        renew: bool,
        progress: Callable[[str], None] | None,
    ) -> Rekeyed:
        driver = await self._faces.blocking()
        return await self._rekey(driver, thread_ids, tenant, renew, progress)

    async def _rekey(
        self,
        driver: Driver,
        thread_ids: Iterable[str] | None,
        tenant: str,
        renew: bool,
        progress: Callable[[str], None] | None,
    ) -> Rekeyed:
        arguments.text("tenant_id", tenant)
        arguments.flag("renew", renew)
        arguments.function("progress", progress)
        ids = None if thread_ids is None else arguments.texts("thread_ids", thread_ids)
        if not driver.anchors.signs:
            raise UsageError("rekey() needs integrity_key or encryption_key")
        if renew and not driver.vault.encrypts:
            raise UsageError("rekey(renew=True) needs encryption_key: there are no data keys")
        renewed: set[Owner] | None = set() if renew else None
        seen = rewritten = keys = 0
        busy: list[str] = []
        damaged: list[Unrekeyed] = []

        async def one(thread: Thread) -> None:
            nonlocal seen, rewritten
            try:
                done = await driver.rekeyer.rekey(self._serializer, thread, renewed)
            except (CorruptionError, EvolutionError, StateLostError) as error:
                done = False
                damaged.append(Unrekeyed(thread.id, str(error)))
            seen, rewritten = seen + 1, rewritten + bool(done)
            if done is None:
                busy.append(thread.id)
            if progress is not None:
                progress(thread.id)

        if ids is None:
            keys, unwrapped = await driver.rekeyer.rewrap()
            damaged += unwrapped
        async for thread, _ in driver.rewriter.threads(tenant, ids):
            await one(thread)
        return Rekeyed(seen, rewritten, tuple(busy), keys, tuple(damaged))

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
        arguments.text("tenant_id", tenant_id)
        return await driver.vault.shred(Owner(tenant_id, user_id))


def _place(thread_id: str, tenant_id: str, ns: str) -> Place:
    named = {"thread_id": thread_id, "tenant_id": tenant_id, "checkpoint_ns": ns}
    return place_of({"configurable": named})
