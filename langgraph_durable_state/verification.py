"""What checking the stores found, as values. This file imports nothing of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Kind = Literal[
    "thread", "event", "head", "checkpoint", "metadata", "chunk", "write", "copy", "entry"
]
Outcome = Literal["repairable", "repaired", "lost", "unread"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not what was written. `str` gives it as one line.

    Attributes:
        tier: ``"postgres"`` or ``"redis"``: where it was found.
        kind: what it is: the ``"thread"``'s entry, an ``"event"`` of it, a ``"head"``, a
            ``"checkpoint"``, the ``"metadata"`` that filters look at, a ``"chunk"`` of a value, a
            task's ``"write"``, in Redis also the ``"copy"`` of a head and an ``"entry"`` of the
            outbox.
        outcome: ``"repaired"``; ``"repairable"`` (what is right was found, and nothing was asked
            to be changed); ``"lost"`` (what is right is in neither tier; it was left as it is);
            ``"unread"`` (it cannot be told here: it is under a key that this saver was not given,
            or that was deleted, or a newer version of this library may have written it).
        reason: what is wrong with it.
        tenant, thread, namespace, checkpoint: where; the thread is None if its name is not known,
            the checkpoint where it concerns none.
        task, chunk, event: which write, which chunk, and which event of the thread.
        key: the thread's key in Postgres.
    """

    tier: Literal["postgres", "redis"]
    kind: Kind
    outcome: Outcome
    reason: str
    tenant: str
    thread: str | None
    namespace: str
    checkpoint: str | None
    key: str
    task: str | None = None
    chunk: int | None = None
    event: int | None = None

    def __str__(self) -> str:
        thread = f"thread {self.thread!r}" if self.thread is not None else f"thread key {self.key}"
        of = f" of tenant {self.tenant!r}" if self.tenant else ""
        parts = [f"{self.outcome}: {thread}{of}, namespace {self.namespace!r}"]
        parts += [f"checkpoint {self.checkpoint}"] if self.checkpoint else []
        parts += [f"task {self.task}"] if self.task else []
        number = self.event if self.chunk is None else self.chunk
        what = f"{self.kind} {number}" if number is not None else self.kind
        return f"{', '.join(parts)}, {what} in {self.tier.capitalize()}: {self.reason}"


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far checking has come.

    Attributes:
        threads: how many are done.
        share: of all that is to be checked, from 0 to 1; estimated where all threads are.
        findings: how many there are so far.
        token: what to pass as `after` to go on behind the last one that is done.
    """

    threads: int
    share: float
    findings: int
    token: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked, and what was found. True if all is as it was written.

    Attributes:
        threads, checkpoints, chunks, writes: how many were checked in Postgres.
        copies, entries: how many heads and entries of outboxes in Redis.
        findings: all that is not as it was written.
        token: what to pass as `after` to go on behind the last thread; None if there was none.
        unknown: ids of threads that were named and of which there is nothing: mistyped, or gone.
    """

    threads: int
    checkpoints: int
    chunks: int
    writes: int
    copies: int
    entries: int
    findings: tuple[Finding, ...]
    token: str | None
    unknown: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing was found, and each thread that was named is there."""
        return not self.findings and not self.unknown

    @property
    def lost(self) -> tuple[Finding, ...]:
        """The findings that neither tier could put right."""
        return tuple(found for found in self.findings if found.outcome == "lost")

    def __bool__(self) -> bool:
        return self.clean

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return asdict(self) | {"clean": self.clean, "lost": len(self.lost)}

    def __str__(self) -> str:
        counts = (
            f"{self.threads} threads, {self.checkpoints} checkpoints, {self.chunks} chunks,"
            f" {self.writes} writes, {self.copies} hot copies, {self.entries} outbox entries"
        )
        missing = (f"unknown: there is nothing of a thread {id!r}" for id in self.unknown)
        findings = map(str, self.findings)
        return "\n".join((f"checked {counts}", *findings, *missing, self._verdict()))

    def _verdict(self) -> str:
        if self.clean:
            return "all of it is as it was written"
        counts = Counter[str](found.outcome for found in self.findings)
        counts["unknown"] = len(self.unknown)
        return ", ".join(f"{n} {how}" for how in _VERDICTS if (n := counts[how]))


_VERDICTS = (*get_args(Outcome), "unknown")


Progress = Callable[[VerifyProgress], None]
"""Called after each thread, on the caller's thread or in its loop: it should be quick."""
