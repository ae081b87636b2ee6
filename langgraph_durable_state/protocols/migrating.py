"""Threads rewritten in the shape of one version of the user's state.

Namespaces of subgraphs are stored under the names of that version afterwards, in the same
transaction: a lazy read looks for former names only below a checkpoint that is of an older version.
"""

from __future__ import annotations

from functools import partial

from ..decisions import codec
from ..decisions.codec import Unsound
from ..decisions.digest import Seal
from ..decisions.resealing import Resealed
from ..decisions.serializing import Serializer
from ..errors import (
    CorruptionError,
    DurableStateError,
    EvolutionError,
    HeadMovedError,
    StateLostError,
    UsageError,
    ValueRefusedError,
)
from ..migration import ThreadMigration
from ..ports import Durable
from ..words import Head, Page, Place, Thread
from .chronicle import Chronicle
from .reading import Reader, corrupt
from .renaming import Key
from .reshaping import Reshaping, Stored
from .rewriting import Rewriter
from .settling import Settler
from .shared import Shared

OF_ONE_THREAD = (
    CorruptionError,
    EvolutionError,
    HeadMovedError,
    StateLostError,
    ValueRefusedError,
)
"""What is wrong with one thread alone: the others are migrated all the same."""


class Migrator:
    """Over one driver's tiers."""

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        flusher: Settler,
        rewriter: Rewriter,
        chronicle: Chronicle,
    ) -> None:
        self._flusher = flusher
        self._blobs = shared.blobs
        self._numbers = shared.numbers
        self._shape = shared.shape
        self._reader = Reader(shared.blobs, keep=False, shape=shared.shape)
        self._durable = durable
        self._rewriter = rewriter
        self._chronicle = chronicle

    def checked(self, to: int | None) -> int:
        """The version to migrate to.

        Raises:
            UsageError: if there is no schema, or no such version of it, or a class was moved after
                that: what is stored names classes as this code does.
        """
        schema = self._shape.schema
        if schema is None:
            raise UsageError("migrate() needs state_schema: nothing says what a version means")
        if self._shape.beside is not None:
            raise UsageError("migrate() is for when no older code is at work: end dual_write first")
        to = schema.version if to is None else to
        if type(to) is not int or not 0 <= to <= schema.version:
            raise UsageError(f"to={to!r} is not one of the versions 0 to {schema.version}")
        revival = schema.revival(to, schema.version)
        if revival.moved or revival.fields:
            raise UsageError(
                f"to={to}: classes were moved or changed after that version, and what is stored "
                "would name them as this code does"
            )
        return to

    async def settle(self) -> dict[Thread, str]:
        """Flushes what the hot tier holds alone, so that all threads can be listed; of which
        threads it could not be, and why.

        Raises:
            UnavailableError: if a tier cannot be reached.
        """
        failed = {}
        for thread in await self._flusher.unsettled():
            try:
                await self._flusher.settle(thread)
            except OF_ONE_THREAD as error:
                failed[thread] = _told(error)
        return failed

    async def migrate(
        self, serializer: Serializer, thread: Thread, to: int, dry_run: bool
    ) -> ThreadMigration:
        """Brings one thread there, if it can be.

        Raises:
            UnavailableError: if a tier cannot be reached.
        """
        try:
            once = partial(self._once, serializer.strict(), thread, to, dry_run)
            done = await self._rewriter.tried(thread, None, once)
        except OF_ONE_THREAD as error:
            return ThreadMigration(thread.id, "failed", _told(error))
        if done is None:
            return ThreadMigration(thread.id, "busy")
        if done.namespaces and not dry_run:
            names = dict(done.namespaces)
            await self._chronicle.note(thread, "migrated", {"to": to, "namespaces": names})
        return done

    async def _once(
        self, serializer: Serializer, thread: Thread, to: int, dry_run: bool, seal: Seal
    ) -> ThreadMigration | None:
        """Rewrites once; None if the thread moved on meanwhile."""
        known = await self._durable.heads(thread)
        if await self._is_there(thread, to):
            return ThreadMigration(thread.id, "current")
        shown = partial(self._rewriter.shown, serializer)
        made = Resealed(self._blobs, seal, self._numbers, shown)
        work = await self._read(serializer, thread, to, known, made)
        rows = work.done()
        left = tuple(work.counts.left)
        if rows is None:
            return ThreadMigration(thread.id, "current", left=left)
        if not dry_run and not await self._rewriter.replaced(thread, known, rows):
            return None
        return ThreadMigration(
            thread.id,
            "migrated",
            checkpoints=work.counts.checkpoints,
            writes=work.counts.writes,
            namespaces={old: new for new, old in rows.former.items()},
            left=left,
        )

    async def _read(
        self,
        serializer: Serializer,
        thread: Thread,
        to: int,
        known: dict[str, Head],
        made: Resealed,
    ) -> Reshaping:
        pages = [page async for page in self._rewriter.pages(thread)]
        writes: dict[Key, tuple[Stored, ...]] = {
            (ns, id): tuple(self._rewriter.batches(thread, page, ns, id))
            for page in pages
            for ns, id in page.writes
        }
        records = tuple(self._rewriter.records(thread, pages, known))
        return Reshaping(self._reader, serializer, to, known, records, writes, made)

    async def _is_there(self, thread: Thread, to: int) -> bool:
        """Whether all of a thread is of a version; looked at without its values."""
        async for page in self._rewriter.pages(thread, light=True):
            if self._versions(thread, page) - {to}:
                return False
        return True

    def _versions(self, thread: Thread, page: Page) -> set[int]:
        found = set()
        for _, row in page.rows:
            try:
                parts = codec.record_parts(row, self._blobs)
                forms = (parts.form, parts.other)
                found |= {form.schema_version for form in forms if form is not None}
                for write in page.writes.get((row.ns, row.id), ()):
                    found |= codec.versions_of(write, self._blobs)
            except Unsound as error:
                raise corrupt(Place(thread, row.ns), row.id, error) from error
        return found


def _told(error: DurableStateError) -> str:
    return f"{type(error).__name__}: {error}"
