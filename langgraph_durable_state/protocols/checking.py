"""What the checks of one thread have in common: where, and what was found so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..asfound import Tier
from ..decisions.codec import Blobs, Record
from ..decisions.evidence import Described, Flaw, described
from ..decisions.serializing import Serializer
from ..events import Kind
from ..ports import Durable, Outbox
from ..verification import Finding, Outcome, VerifyReport
from ..words import Place, Thread
from .shared import Shared

LOOKS = 5
"""Looks at what changes between them; a put takes milliseconds."""


@dataclass
class Tally:
    """What was checked so far, and what was found."""

    threads: int = 0
    checkpoints: int = 0
    chunks: int = 0
    writes: int = 0
    copies: int = 0
    entries: int = 0
    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def report(self, token: str | None) -> VerifyReport:
        counts = (self.threads, self.checkpoints, self.chunks, self.writes, self.copies)
        found = tuple(self.findings), token, tuple(self.unknown)
        return VerifyReport(*counts, self.entries, *found)


@dataclass
class Check:
    """The check of one thread.

    Attributes:
        shared: the saver's.
        durable, outbox: one driver's tiers; the latter None if there is no hot one.
        serializer: reads metadata.
        repair: whether to put right what can be.
        tally: of the whole.
        thread: which; without names until they are known.
        told: what was found of it already.
    """

    shared: Shared
    durable: Durable
    outbox: Outbox | None
    serializer: Serializer
    repair: bool
    tally: Tally
    thread: Thread
    told: set[tuple[object, ...]] = field(default_factory=set)

    @property
    def blobs(self) -> Blobs:
        return self.shared.blobs

    @property
    def named(self) -> bool:
        """Whether the names are known, without which no digest of a record can be proven."""
        return bool(self.thread.id)

    def place(self, ns: str) -> Place:
        return Place(self.thread, ns)

    def describe(self, record: Record) -> Described:
        return described(record, self.serializer, self.blobs.keys.clear)

    def tell(self, tier: Tier, flaw: Flaw, repaired: bool = False) -> None:
        """Reports a flaw, once."""
        outcome = _outcome(flaw, repaired)
        if (tier, outcome, *flaw.name) in self.told:
            return
        self.told.add((tier, outcome, *flaw.name))
        found = Finding(
            tier,
            flaw.kind,
            outcome,
            flaw.reason,
            self.thread.tenant,
            self.thread.id or None,
            flaw.ns,
            flaw.id,
            self.thread.key.hex,
            flaw.task,
            **{"event" if flaw.kind == "event" else "chunk": flaw.no},
        )
        self.tally.findings.append(found)
        if outcome in ("repaired", "lost"):
            kind: Kind = "repaired" if repaired else "damaged"
            detail = f"{flaw.kind}, {tier}: {flaw.reason}"
            thread = self.thread if self.named else replace(self.thread, id=self.thread.key.hex)
            place = Place(thread, flaw.ns)
            self.shared.events.emit(kind, detail, tier=tier, place=place, checkpoint=flaw.id)


def _outcome(flaw: Flaw, repaired: bool) -> Outcome:
    if repaired:
        return "repaired"
    if flaw.repair is not None:
        return "repairable"
    return "unread" if flaw.unread else "lost"
