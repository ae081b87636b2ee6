"""What was written is what is read, or you are told what to do: the part of the saver that explains
and mends."""

from __future__ import annotations

import inspect
from typing import Any

from langchain_core.runnables import RunnableConfig

from .decisions import keys
from .decisions.serializing import Serializer
from .drivers.blocking import run
from .drivers.driver import Driver
from .drivers.faces import Faces
from .errors import ConflictError, UsageError
from .protocols.reading import config_of
from .recovery import OnRecovery, RecoveryReport
from .words import Head, Place


class Integrity:
    """The part of `DurableSaver` that explains what a read finds, and continues from what is
    sound."""

    _faces: Faces

    @property
    def _serializer(self) -> Serializer:
        raise NotImplementedError

    # -- recovery ----------------------------------------------------------------------------

    def recover(self, config: RunnableConfig) -> RecoveryReport:
        """What `get_tuple` would do for `config`, and why. Nothing is changed, and an outage or
        damage is in the report, not raised.

        Args:
            config: names a thread, and perhaps a namespace and a checkpoint.

        Raises:
            UsageError: if the config cannot be used.
        """
        return run(self._recover_blocking(config))

    async def _recover_blocking(self, config: RunnableConfig) -> RecoveryReport:
        return await self._recover(await self._faces.blocking(), config)

    async def arecover(self, config: RunnableConfig) -> RecoveryReport:
        """What `aget_tuple` would do for `config`, and why; see `recover`."""
        return await self._recover(await self._faces.native(), config)

    async def _recover(self, driver: Driver, config: RunnableConfig) -> RecoveryReport:
        place, id = keys.place_of(config), keys.checkpoint_id_of(config)
        return await driver.teller.report(self._serializer, place, id)

    def fork_from(self, report: RecoveryReport) -> RunnableConfig:
        """Makes the last sound checkpoint of a report the head, with the pending writes that it
        has, so that a run of the thread continues from there. Nothing is deleted: what was the
        head can still be looked up by its id, if it can be read.

        Args:
            report: what `recover` said of the head.

        Returns:
            The config of the thread: ``graph.invoke(None, saver.fork_from(report))``.

        Raises:
            ConflictError: if the thread has moved since.
            UsageError: if the report is not of a head, or has no sound checkpoint.
            UnavailableError: if Postgres cannot be reached, or Redis where it may be ahead.
        """
        return run(self._fork_blocking(report))

    async def _fork_blocking(self, report: RecoveryReport) -> RunnableConfig:
        return await self._fork(await self._faces.blocking(), report)

    async def afork_from(self, report: RecoveryReport) -> RunnableConfig:
        """Makes the last sound checkpoint of a report the head; see `fork_from`."""
        return await self._fork(await self._faces.native(), report)

    async def _fork(self, driver: Driver, report: RecoveryReport) -> RunnableConfig:
        to, known, sound = report.last_sound, report._head, report._sound
        if to is None or known is None or sound is None:
            raise UsageError(
                "fork_from needs what recover() said of a head with a sound checkpoint"
            )
        place = Place(keys.named(report.tenant, report.thread), report.namespace)
        if known != sound:
            await driver.flusher.end(place.thread)
            if not await driver.durable.move_head(place, known, Head(to, 0, sound)):
                raise await _moved(driver, place, report)
            await driver.copies.drop(place.thread, [place.ns])
            detail = {"namespace": place.ns, "from": report.asked, "to": to}
            await driver.chronicle.note(place.thread, "forked", detail)
        config: Any = config_of(place, to, None)
        del config["configurable"]["checkpoint_id"]
        return config  # type: ignore[no-any-return]


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
