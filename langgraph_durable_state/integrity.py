"""What was written is what is read, or you are told what to do: the part of the saver that explains
and mends."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig

from .decisions import arguments, heads, keys
from .decisions.serializing import Serializer
from .decisions.suiting import Suit
from .drivers.blocking import run
from .drivers.driver import Driver
from .drivers.faces import Faces
from .errors import (
    ConflictError,
    CorruptionError,
    KeyMissingError,
    UnavailableError,
    UsageError,
)
from .protocols.reading import config_of
from .protocols.scrub import Asked, after_token
from .recovery import OnRecovery, RecoveryReport
from .verification import Progress, VerifyReport
from .words import Head, Place


class Integrity:
    """The part of `DurableSaver` that explains what a read finds, continues from what is sound, and
    checks and restores what is stored."""

    _faces: Faces

    @property
    def _serializer(self) -> Serializer:
        raise NotImplementedError

    # -- recovery ----------------------------------------------------------------------------

    def recover(self, config: RunnableConfig, *, state: Any = None) -> RecoveryReport:
        """What `get_tuple` would do for `config`, and why. Nothing is changed, and an outage,
        damage or a missing key is in the report, not raised.

        Args:
            config: names a thread, and perhaps a namespace and a checkpoint.
            state: the compiled graph, or the class of its state: the report then tells as well
                which values that does not take, and the newest checkpoint of which it takes all.

        Raises:
            UsageError: if the config or the class cannot be used.
        """
        return run(self._recover_blocking(config, state))

    async def _recover_blocking(self, config: RunnableConfig, state: Any) -> RecoveryReport:
        return await self._recover(await self._faces.blocking(), config, state)

    async def arecover(self, config: RunnableConfig, *, state: Any = None) -> RecoveryReport:
        """What `aget_tuple` would do for `config`, and why; see `recover`."""
        return await self._recover(await self._faces.native(), config, state)

    async def _recover(self, driver: Driver, config: RunnableConfig, state: Any) -> RecoveryReport:
        suit = Suit(state) if state is not None else None
        place, id = keys.place_of(config), keys.checkpoint_id_of(config)
        with suppress(UnavailableError):  # which the report tells of
            place = await driver.naming.place(self._serializer, config)
        report = partial(driver.teller.report, self._serializer, place, id, suit)
        try:
            try:
                return await driver.vault.reading(place.thread, report)
            except (KeyMissingError, CorruptionError) as error:
                return await driver.teller.unkeyed(place, id, error)
        except UnavailableError as down:
            return driver.teller.outage(place, down)

    def fork_from(self, report: RecoveryReport, *, readable: bool = False) -> RunnableConfig:
        """Makes the last sound checkpoint of a report the head, with the pending writes that it
        has, so that a run of the thread continues from there. Nothing is deleted: what was the
        head can still be looked up by its id, if it can be read.

        Args:
            report: what `recover` said of the head.
            readable: the last one that this code can read instead, where a sound head cannot be
                brought into today's shape, say: what came after it is gone back on.

        Returns:
            The config of the thread: ``graph.invoke(None, saver.fork_from(report))``.

        Raises:
            ConflictError: if the thread has moved since.
            UsageError: if the report is not of a head, or has no sound checkpoint, or the head is
                the last sound one itself and still refused: this code cannot read it, for one.
            UnavailableError: if Postgres cannot be reached, or Redis where it may be ahead.
        """
        return run(self._fork_blocking(report, readable))

    async def _fork_blocking(self, report: RecoveryReport, readable: bool) -> RunnableConfig:
        return await self._fork(await self._faces.blocking(), report, readable)

    async def afork_from(self, report: RecoveryReport, *, readable: bool = False) -> RunnableConfig:
        """Makes the last sound checkpoint of a report the head; see `fork_from`."""
        return await self._fork(await self._faces.native(), report, readable)

    async def _fork(self, driver: Driver, report: RecoveryReport, readable: bool) -> RunnableConfig:
        if not isinstance(report, RecoveryReport):
            raise UsageError("fork_from needs what recover() returned")
        arguments.flag("readable", readable)
        to, known, sound = report.last_sound, report._head, report._sound
        if readable:
            to, sound = report.last_readable, report._readable
        why = f" Reading it is refused: {report.error}" if report.error else ""
        if to is None or known is None or sound is None:
            raise UsageError(
                f"fork_from needs what recover() said of a head with a sound checkpoint.{why}"
            )
        if report.decision == "refuse" and known == sound:
            raise UsageError(
                f"there is nothing to go back to: the head, checkpoint {to}, is itself the last"
                f" sound one.{why}{_otherwise(report)}"
            )
        place = Place(keys.named(report.tenant, report.thread), report.namespace)
        if known != sound:
            await driver.flusher.end(place.thread)
            sign = partial(driver.attestor.signing, place, to)
            head = Head(to, 0, sound, await driver.vault.reading(place.thread, sign))
            await driver.anchors.forget(place.thread, [place.ns], before=True)
            done = await driver.durable.move_head(place, known, head)
            await driver.anchors.forget(place.thread, [place.ns])
            if not done:
                raise await _moved(driver, place, report)
            await driver.anchors.tell(place, heads.witness(to, sound, head.seal))
            await driver.copies.drop(place.thread, [place.ns])
            detail = {"namespace": place.ns, "from": report.asked, "to": to}
            await driver.chronicle.note(place.thread, "forked", detail)
        config: Any = config_of(place, to, None)
        del config["configurable"]["checkpoint_id"]
        return config  # type: ignore[no-any-return]

    # -- checking and restoring ---------------------------------------------------------------

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
        asked = _asked(threads, repair, after, tenant_id, progress)
        return run(self._verify_blocking(asked, progress))

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
        asked = _asked(threads, repair, after, tenant_id, progress)
        scrubber = (await self._faces.native()).scrubber
        return await scrubber.verify(self._serializer, asked, progress)

    async def _verify_blocking(self, asked: Asked, progress: Progress | None) -> VerifyReport:
        scrubber = (await self._faces.blocking()).scrubber
        return await scrubber.verify(self._serializer, asked, progress)


def _asked(
    threads: Sequence[str] | None,
    repair: bool,
    after: str | None,
    tenant: str | None,
    progress: Progress | None,
) -> Asked:
    arguments.flag("repair", repair)
    arguments.function("progress", progress)
    if tenant is not None:
        arguments.text("tenant_id", tenant)
    if threads is None:
        return Asked(None, tenant, repair, after_token(after))
    ids = arguments.texts("threads", threads)
    named = [{"thread_id": id, "tenant_id": tenant or ""} for id in ids]
    found = [keys.thread_of({"configurable": names}) for names in named]
    return Asked(found, tenant, repair, after_token(after))


async def _moved(driver: Driver, place: Place, report: RecoveryReport) -> ConflictError:
    found = await driver.durable.read(place, None, b"", -1)
    return ConflictError(
        thread=place.thread.id,
        namespace=place.ns,
        expected=report.asked,
        actual=found.head.id if found is not None else None,
        refused=None,
        what="The head moved since the report on",
    )


def check_hook(hook: OnRecovery | None) -> OnRecovery | None:
    """`hook`, if it can be called.

    Raises:
        UsageError: if not, or if it would have to be awaited.
    """
    if hook is not None and not callable(hook):
        raise UsageError(f"on_recovery must be a function, not {hook!r}")
    if inspect.iscoroutinefunction(hook):
        raise UsageError("on_recovery must be a plain function: nothing awaits a coroutine")
    return hook


def _otherwise(report: RecoveryReport) -> str:
    """What can be done where a head is sound and cannot be read."""
    if report.last_readable is None:
        return ""
    return (
        f". To go back to {report.last_readable}, which this code can read, ask for it: "
        "fork_from(report, readable=True), or recover --fork --readable"
    )
