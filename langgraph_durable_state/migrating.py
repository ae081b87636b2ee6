"""What is done to a saver when the shape of the user's state has changed for good."""

from __future__ import annotations

from collections.abc import Iterable

from .decisions import arguments
from .decisions.serializing import Serializer
from .drivers.blocking import run
from .drivers.driver import Driver
from .drivers.faces import Faces
from .migration import MigrateProgress, MigrateReport, Progress, ThreadMigration


class Migrating:
    """The part of `DurableSaver` that brings what is stored to a version of the user's state."""

    _faces: Faces

    @property
    def _serializer(self) -> Serializer:
        raise NotImplementedError  # the saver's

    def migrate(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        to: int | None = None,
        dry_run: bool = False,
        tenant_id: str = "",
        progress: Progress | None = None,
    ) -> MigrateReport:
        """Rewrites threads in the shape of a version of this saver's `state_schema`.

        What is stored is read in today's shape without that; afterwards the steps from older ones
        are no longer needed. A thread is read, proven and rewritten as a whole, in one transaction;
        one that is in that shape already is left alone, so a call that was interrupted goes on
        where it was. Code of older versions must not run any more. A run that is under way on a
        thread that is rewritten meets a `ConflictError` at its next put, and may be run again.

        Args:
            thread_ids: which threads; None for all of the tenant.
            to: the version; None for the schema's. A lower one than what is stored needs the way
                back to be declared.
            dry_run: do all but write, and report the same.
            tenant_id: whose.
            progress: called after each thread.

        Returns:
            What was done, and which threads were busy, or could not be brought there: they are as
            they were.

        Raises:
            UnavailableError: if a tier cannot be reached. What was migrated stays so.
            UsageError: if this saver has no `state_schema`, or that has no such version.
        """
        return run(self._migrate_blocking(thread_ids, to, dry_run, tenant_id, progress))

    async def amigrate(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        to: int | None = None,
        dry_run: bool = False,
        tenant_id: str = "",
        progress: Progress | None = None,
    ) -> MigrateReport:
        """Rewrites threads in the shape of a version; see `migrate`."""
        driver = await self._faces.native()
        return await self._migrate(driver, thread_ids, to, dry_run, tenant_id, progress)

    async def _migrate_blocking(
        self,
        thread_ids: Iterable[str] | None,
        to: int | None,
        dry_run: bool,
        tenant: str,
        progress: Progress | None,
    ) -> MigrateReport:
        driver = await self._faces.blocking()
        return await self._migrate(driver, thread_ids, to, dry_run, tenant, progress)

    async def _migrate(
        self,
        driver: Driver,
        thread_ids: Iterable[str] | None,
        to: int | None,
        dry_run: bool,
        tenant: str,
        progress: Progress | None,
    ) -> MigrateReport:
        arguments.text("tenant_id", tenant)
        arguments.flag("dry_run", dry_run)
        arguments.function("progress", progress)
        ids = None if thread_ids is None else arguments.texts("thread_ids", thread_ids)
        version = driver.migrator.checked(to)
        seen, told = 0, list[ThreadMigration]()
        unsettled = await driver.migrator.settle() if ids is None else {}
        async for thread, share in driver.rewriter.threads(tenant, ids):
            unsettled.pop(thread, None)
            done = await driver.migrator.migrate(self._serializer, thread, version, dry_run)
            if ids is not None and not await driver.durable.heads(thread):
                done = ThreadMigration(thread.id, "failed", "there is nothing of it")
            seen += 1
            if done.outcome != "current" or done.left:
                told.append(done)
            if progress is not None:
                progress(MigrateProgress(seen, share, done))
        for thread, why in unsettled.items():  # nothing of it is durable yet
            if thread.tenant == tenant:
                told.append(ThreadMigration(thread.id or thread.key.hex, "failed", why))
        return MigrateReport(version, dry_run, seen, tuple(told))
