"""What migrating the stores did, as values. This file imports nothing of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["migrated", "current", "busy", "failed"]


@dataclass(frozen=True, slots=True)
class ThreadMigration:
    """What was done to one thread. `str` gives it as one line.

    Attributes:
        thread: its id.
        outcome: ``"migrated"``; ``"current"``, if there was nothing to do; ``"busy"``, if it moved
            on whenever it was about to be rewritten; ``"failed"``, as `reason` tells: then it is as
            it was.
        checkpoints, writes: how many were rewritten: of writes, the batches of one task each.
        namespaces: the new names of those that have another now.
        left: why checkpoints of its history stay as they are: a run does not go on from them
            unless it is told to, and whoever reads them is told the same.
    """

    thread: str
    outcome: Outcome
    reason: str | None = None
    checkpoints: int = 0
    writes: int = 0
    namespaces: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.outcome}: thread {self.thread!r}"]
        if self.checkpoints or self.writes:
            parts.append(f"{self.checkpoints} checkpoints and {self.writes} batches of writes")
        parts += [f"namespace {old!r} is now {new!r}" for old, new in self.namespaces.items()]
        parts += [f"left as it is: {reason}" for reason in self.left]
        return ", ".join(parts) + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class MigrateProgress:
    """How far migrating has come.

    Attributes:
        threads: how many are done.
        share: of all that is to be looked at, from 0 to 1; estimated where all threads are.
        last: what was done to the last one.
    """

    threads: int
    share: float
    last: ThreadMigration


Progress = Callable[[MigrateProgress], None]


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """What migrating did. True if every thread is in the shape that was asked for.

    Attributes:
        to: the version.
        dry_run: whether nothing was written: the rest tells what would have been.
        threads: how many were looked at.
        told: what was done to each that was not in that shape as a whole already.
    """

    to: int
    dry_run: bool
    threads: int
    told: tuple[ThreadMigration, ...]

    @property
    def migrated(self) -> tuple[str, ...]:
        """The ids of the threads that were rewritten."""
        return self._of("migrated")

    @property
    def busy(self) -> tuple[str, ...]:
        """The ids of the threads that moved on meanwhile: call it again for those."""
        return self._of("busy")

    @property
    def failed(self) -> tuple[str, ...]:
        """The ids of the threads that could not be brought there."""
        return self._of("failed")

    def _of(self, outcome: Outcome) -> tuple[str, ...]:
        return tuple(each.thread for each in self.told if each.outcome == outcome)

    def __bool__(self) -> bool:
        return not self.busy and not self.failed

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        counts = {
            "checkpoints": sum(each.checkpoints for each in self.told),
            "writes": sum(each.writes for each in self.told),
        }
        lists = {"migrated": len(self.migrated), "busy": self.busy, "failed": self.failed}
        return asdict(self) | counts | lists

    def __str__(self) -> str:
        counts = Counter(each.outcome for each in self.told)
        current = self.threads - len(self.told) + counts["current"]
        checkpoints = sum(each.checkpoints for each in self.told)
        would = "would be " if self.dry_run else ""
        verdict = (
            f"{self.threads} threads: {counts['migrated']} {would}migrated to version {self.to}"
            f" ({checkpoints} checkpoints), {current} in its shape already, {counts['busy']} busy,"
            f" {counts['failed']} failed"
        )
        shown = [each for each in self.told if each.outcome in ("busy", "failed") or each.left]
        return "\n".join((*map(str, shown), verdict))
