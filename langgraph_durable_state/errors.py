"""Every error this library raises, in one tree.

The first line of a class's docstring is its default message; facts are attributes.
The branches say whose fault it is and whether trying again can help.
"""

from __future__ import annotations

from typing import ClassVar


class DurableStateError(Exception):
    """The state layer could not do what was asked."""

    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without any change."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])


class UsageError(DurableStateError, ValueError):
    """The call or the configuration is not usable as given."""


class ClosedError(UsageError):
    """This saver was closed; create a new one."""


class ValueRefusedError(UsageError):
    """A value would not come back as it was, so nothing of the call was written.

    Attributes:
        where: channel and path of the value, such as ``channel 'messages', item 3, .artifact``.
        reason: what is wrong with it.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}; nothing of this call was written")
        self.where = where
        self.reason = reason


class ConflictError(DurableStateError):
    """Another run advanced this thread first.

    Attributes:
        thread: the thread's id.
        namespace: the checkpoint namespace.
        expected: id of the checkpoint this run started from, None if it claimed an empty thread.
        actual: id of the checkpoint that is the head now, None if the thread is gone.
        refused: id of the checkpoint that was refused; it is kept and can be read by this id.
            None if the thread is gone, with which it goes, or if writes are gone that the
            checkpoint was made from: Postgres was set back.
    """

    def __init__(
        self,
        *,
        thread: str,
        namespace: str,
        expected: str | None,
        actual: str | None,
        refused: str | None,
        what: str | None = None,
        message: str | None = None,
    ) -> None:
        if what is not None:
            what = f"{what} thread {thread!r}: "
        elif refused is None and actual is not None:
            what = f"Writes to thread {thread!r} are gone that this run had made or read: "
        else:
            what = f"Another run advanced thread {thread!r} first: "
        super().__init__(
            message
            or f"{what}this run started from checkpoint {expected}, the head is now {actual}. "
            + (f"The refused checkpoint {refused} is kept." if refused else "Nothing was kept.")
        )
        self.thread = thread
        self.namespace = namespace
        self.expected = expected
        self.actual = actual
        self.refused = refused


class LeaseHeldError(DurableStateError):
    """Somebody else holds the lease of this thread.

    Attributes:
        thread: the thread's id.
        holder: who holds it: host name, process id and a random part; empty if it was taken at
            the same moment.
        left: seconds until it runs out, unless it is renewed.
    """

    retryable = True

    def __init__(self, *, thread: str, holder: str, left: float) -> None:
        super().__init__(
            f"The lease of thread {thread!r} is held by {holder or 'somebody else'}, "
            f"for {left:.1f} s unless it is renewed."
        )
        self.thread = thread
        self.holder = holder
        self.left = left


class LeaseLostError(DurableStateError):
    """The lease of this thread was lost; what was to be stored under it was not stored.

    Attributes:
        thread: the thread's id.
        fence: the fencing token of the lease that was lost.
    """

    def __init__(self, *, thread: str, fence: int) -> None:
        super().__init__(
            f"The lease of thread {thread!r} with fence {fence} was lost: another holder may be at "
            "work. Nothing of this call was stored."
        )
        self.thread = thread
        self.fence = fence


class UnavailableError(DurableStateError):
    """A tier that is needed could not be reached in time.

    Attributes:
        tier: ``"postgres"`` or ``"redis"``.
        sent: whether what was asked may have been done all the same. Not if the tier had failed
            a moment ago and was not asked.
    """

    retryable = True

    def __init__(self, tier: str, detail: str, *, sent: bool = True) -> None:
        super().__init__(f"{tier} could not be reached: {detail}")
        self.tier = tier
        self.sent = sent


class StateLostError(DurableStateError):
    """What Redis alone held of a thread is gone, or may be.

    It was written behind, and Redis lost it, or was restarted, before it was flushed. Nothing
    is served until that is accepted: with `DurableSaver.accept_loss`, or ``on_hot_lost="accept"``.

    Attributes:
        thread, namespace, tenant: where.
        last_durable: id of the newest checkpoint in Postgres; None if there is none.
        left: id of the newest checkpoint that Redis still has, where it may be the last one.
    """

    def __init__(
        self,
        *,
        thread: str,
        namespace: str,
        last_durable: str | None,
        left: str | None,
        tenant: str = "",
    ) -> None:
        of = f" of tenant {tenant!r}" if tenant else ""
        rest = f"Redis still has checkpoint {left}, which may be older than the last"
        super().__init__(
            f"Thread {thread!r}{of}, namespace {namespace!r}: Redis lost what it alone held, if it "
            f"held anything since the last durable checkpoint, {last_durable}."
            + (f" {rest}." if left else "")
            + " To go on from what is left, call accept_loss()."
        )
        self.thread = thread
        self.namespace = namespace
        self.tenant = tenant
        self.last_durable = last_durable
        self.left = left


class CorruptionError(DurableStateError):
    """Stored bytes are not the bytes that were written.

    Attributes:
        thread, namespace, checkpoint: where.
        channel: the channel concerned, None if the record itself is.
        detail: what was found.
    """

    def __init__(
        self, *, thread: str, namespace: str, checkpoint: str, channel: str | None, detail: str
    ) -> None:
        what = f"channel {channel!r}" if channel is not None else "the record"
        super().__init__(
            f"Thread {thread!r}, namespace {namespace!r}, checkpoint {checkpoint}: "
            f"{what} cannot be trusted: {detail}"
        )
        self.thread = thread
        self.namespace = namespace
        self.checkpoint = checkpoint
        self.channel = channel
        self.detail = detail


class HeadMovedError(DurableStateError):
    """The head of this thread is not the one that was put last.

    Somebody without the key moved it, or the tier that holds it was set back to an older state, by
    a restored backup for one. If that was on purpose, `DurableSaver.accept_rollback` says so.

    Attributes:
        thread, namespace, tenant: where.
        found: id of the checkpoint that the head is at; None if there is none.
        known: id of the newest one that was seen as head; None if nobody knows.
    """

    def __init__(
        self,
        *,
        thread: str,
        namespace: str,
        found: str | None,
        known: str | None,
        detail: str,
        tenant: str = "",
        remedy: str = "If that is on purpose, call accept_rollback().",
    ) -> None:
        of = f" of tenant {tenant!r}" if tenant else ""
        there = f"its head, checkpoint {found}, is not the one that was put last"
        if found is None:
            there = "it has no head any more"
        super().__init__(
            f"Thread {thread!r}{of}, namespace {namespace!r}: {there}: {detail}. {remedy}"
        )
        self.thread = thread
        self.namespace = namespace
        self.tenant = tenant
        self.found = found
        self.known = known


class NumberTakenError(DurableStateError):
    """A chunk number is taken by other content; new ones are drawn and the put is sent again."""


class EvolutionError(DurableStateError):
    """Stored state is as it was written, but this code does not know how to read it.

    Attributes:
        thread, namespace, checkpoint: where, if it was told.
        channel: the channel concerned; None if it is the checkpoint itself, or was not told.
        classes: the stored classes, as ``module.name``, that are gone, not allowed, or do not take
            what was stored.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        thread: str | None = None,
        namespace: str | None = None,
        checkpoint: str | None = None,
        channel: str | None = None,
        classes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.thread = thread
        self.namespace = namespace
        self.checkpoint = checkpoint
        self.channel = channel
        self.classes = classes


class KeyMissingError(EvolutionError):
    """Stored state is under a key that this saver was not given.

    Attributes:
        key: the key's id, in hex; it tells nothing of the key.
    """

    def __init__(self, *, key: str, what: str = "Stored state", remedy: str = "") -> None:
        super().__init__(
            f"{what} is under the key {key}, which this saver was not given, or which was "
            f"deleted.{remedy}"
        )
        self.key = key
