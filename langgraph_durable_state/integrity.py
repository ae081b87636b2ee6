"""What proves that a saver's stores hold what was written, and restores it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .decisions.keys import thread_of
from .drivers.blocking import run
from .drivers.faces import Faces
from .errors import UsageError
from .protocols.scrub import Asked, after_token
from .verification import Progress, VerifyReport

if TYPE_CHECKING:
    from .decisions.serializing import Serializer


class Integrity:
    """The part of `DurableSaver` that checks what is stored."""

    _faces: Faces

    if TYPE_CHECKING:

        @property
        def _serializer(self) -> Serializer: ...

    def verify(
        self,
        threads: Sequence[str] | None = None,
        *,
        repair: bool = False,
        after: str | None = None,
        tenant_id: str | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Checks every row of both tiers against its digests, and what belongs together.

        Checkpoints, chunks of values, pending writes, the chain from child to parent, heads, the
        metadata that filters look at, hot copies and what waits in outboxes. It reads a page at a
        time and may run beside anything else; what is put, flushed or removed meanwhile is not
        taken for damage.

        Args:
            threads: ids of the threads to be checked; None for all.
            repair: put right what can be: a row that is missing or not what was written is
                restored from the other tier if it can be proven there, or from what is left of it.
                What was found in its place is kept in the table ``quarantine``. What neither tier
                can prove is left as it is.
            after: the token of a report or of a progress: go on behind that thread.
            tenant_id: whose threads; None for everybody's, of `threads` for those without one.
            progress: called after each thread.

        Raises:
            UnavailableError: if a tier cannot be reached. What was restored stays so, and the
                token of the last progress says where to go on.
            UsageError: if an argument cannot be used.
        """
        return run(self._verify_blocking(_asked(threads, repair, after, tenant_id), progress))

    async def averify(
        self,
        threads: Sequence[str] | None = None,
        *,
        repair: bool = False,
        after: str | None = None,
        tenant_id: str | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Checks every row of both tiers against its digests; see `verify`."""
        asked = _asked(threads, repair, after, tenant_id)
        scrubber = (await self._faces.native()).scrubber
        return await scrubber.verify(self._serializer, asked, progress)

    async def _verify_blocking(self, asked: Asked, progress: Progress | None) -> VerifyReport:
        scrubber = (await self._faces.blocking()).scrubber
        return await scrubber.verify(self._serializer, asked, progress)


def _asked(
    threads: Sequence[str] | None, repair: bool, after: str | None, tenant: str | None
) -> Asked:
    if threads is None:
        return Asked(None, tenant, repair, after_token(after))
    if isinstance(threads, str):
        raise UsageError(f"threads must be a list of str, not {threads!r}")
    named = [{"thread_id": id, "tenant_id": tenant or ""} for id in threads]
    found = [thread_of({"configurable": names}) for names in named]
    return Asked(found, tenant, repair, after_token(after))
