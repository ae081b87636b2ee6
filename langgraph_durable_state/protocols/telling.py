"""Tells of what was found where a state should be: as a report, to the log, to the hook, and in the
thread's chain of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from ..decisions import findings
from ..decisions.keyring import KeyNeeded
from ..decisions.recovery import Age, Decision, Elsewhere, Evidence, Rule, State, Tiers
from ..decisions.serializing import Serializer
from ..decisions.suiting import Suit
from ..errors import CorruptionError, DurableStateError, EvolutionError, UnavailableError
from ..events import Kind
from ..recovery import Damage, Decided, RecoveryReport
from ..words import NULL_TASK_ID, Digest, Place, RecordRow, WriteRow
from .chronicle import Chronicle
from .finding import Candidate
from .recovering import Examined, Recovery
from .shared import Shared

_TOLD: dict[Decision, Kind] = {
    Decision.FALL_BACK: "fell_back",
    Decision.REPAIR: "damaged",
    Decision.REFUSE: "damaged",
}


_STATES = {
    State.NOTHING: "there is nothing",
    State.SOUND: "it is sound",
    State.SPOILT: "a pending write is damaged",
    State.DAMAGED: "it is damaged",
    State.FOREIGN: "it is as it was written, but this code cannot read it",
}
_ELSEWHERE = {
    Elsewhere.GOOD: "it was found sound elsewhere",
    Elsewhere.BAD: "no other tier has it sound",
    Elsewhere.DOWN: "the other tier cannot be asked",
}


class Teller:
    """Over one driver's tiers.

    Args:
        shared: the saver's.
        recovery: looks.
        chronicle: writes down.
    """

    def __init__(self, shared: Shared, recovery: Recovery, chronicle: Chronicle) -> None:
        self._shared = shared
        self._recovery = recovery
        self._chronicle = chronicle

    async def report(
        self, serializer: Serializer, place: Place, id: str | None, suit: Suit | None = None
    ) -> RecoveryReport:
        """What a read is given, and why, and which of it does not suit; nothing is changed, and
        nobody else is told."""
        found = await self._recovery.examine(serializer, place, id)
        unplayable = await self._unplayable(serializer, place, found.served)
        if isinstance(unplayable, CorruptionError):
            found = await self._recovery.without_replay(serializer, place, found, unplayable)
        report = self.of(place, found, unplayable)
        if suit is not None:
            report = await self._suited(serializer, place, found, report, suit)
        if not isinstance(found.error, EvolutionError) or found.target is None:
            return report
        readable = await self._recovery.readable(serializer, place, found.target)
        if readable is None:
            return report
        return replace(report, last_readable=readable.id, _readable=readable.digest)

    async def _suited(
        self,
        serializer: Serializer,
        place: Place,
        found: Examined,
        report: RecoveryReport,
        suit: Suit,
    ) -> RecoveryReport:
        served = found.served
        misfits = suit.misfits(served.seen.checkpoint) if served is not None else ()
        if served is not None and not misfits:
            return replace(report, last_valid=served.record.id)
        report = replace(report, misfits=misfits)
        if found.target is None:
            return report
        valid = await self._recovery.readable(serializer, place, found.target, suit)
        return report if valid is None else replace(report, last_valid=valid.id)

    async def unkeyed(
        self, place: Place, id: str | None, error: DurableStateError
    ) -> RecoveryReport:
        """The report where a key that a read needs is not there, or is damaged itself."""
        return self.of(place, await self._recovery.unkeyed(place, id, error))

    def outage(self, place: Place, down: UnavailableError) -> RecoveryReport:
        """The report where a tier went away while it was looked into."""
        return self.of(place, Examined(Evidence(Tiers.UNASKED), error=down))

    async def _unplayable(
        self, serializer: Serializer, place: Place, served: Candidate | None
    ) -> CorruptionError | EvolutionError | None:
        """Why the DeltaChannels of what is served cannot be replayed, if they cannot."""
        if served is None:
            return None
        try:
            await self._recovery.replayable(serializer, place, served)
        except KeyNeeded:
            raise
        except (CorruptionError, EvolutionError) as error:
            return error
        return None

    def of(
        self,
        place: Place,
        found: Examined,
        unplayable: CorruptionError | EvolutionError | None = None,
    ) -> RecoveryReport:
        """The report of what was found."""
        report = RecoveryReport(
            place.thread.id,
            place.ns,
            _decided(found.rule),
            _why(found, unplayable),
            place.thread.tenant,
            error=f"{type(found.error).__name__}: {found.error}" if found.error else None,
            asked=found.target.id or None if found.target is not None else None,
            skipped=found.skipped,
            code_version=self._shared.shape.version,
            damage=found.damage,
            _head=_head(found),
        )
        if found.last is not None:
            report = replace(report, last_sound=found.last.id, _sound=found.last.digest)
        return self._with_served(report, found.served) if found.served is not None else report

    def _with_served(self, report: RecoveryReport, served: Candidate) -> RecoveryReport:
        seen = served.seen
        made = findings.made_at(seen.checkpoint)
        writes = seen.pending_writes or []
        shape, place = self._shared.shape, served.record.place
        written = (batch for batch in served.batches if batch.task != NULL_TASK_ID)
        paths = {shape.task_path(place, batch) for batch in written}
        return replace(
            report,
            checkpoint=served.record.id,
            tier=served.tier,
            age=self._shared.clock() - made if made is not None else None,
            version=served.record.known_to(shape.version).schema_version,
            interrupts=findings.interrupts(writes),
            unrecorded=findings.unrecorded(seen.checkpoint, paths),
            dangling=findings.dangling(seen.checkpoint["channel_values"], writes),
        )

    # -- a read that is not given just what was left -----------------------------------------

    async def tell(self, place: Place, found: Examined) -> None:
        """Tells of damage that a read met, each once per process, and the hook each time.

        Raises:
            Exception: what the hook raises.
        """
        kind = _TOLD.get(found.rule.decision)
        target = found.target
        if kind is None or target is None or not found.damage:
            return
        served = found.served.record.id if found.served is not None else None
        detail = _detail(place, found.rule.decision.value, target.id, served, found.damage)
        await self._once(place, target.digest, kind, detail, found.damage)
        if found.served is not None:
            self.hook(place, found)

    async def left_out(
        self, place: Place, row: RecordRow, bad: Sequence[tuple[WriteRow | None, str]]
    ) -> None:
        """Tells of a checkpoint, or of writes against it, that a list goes without."""
        damage = tuple(
            Damage("postgres", row.id, "write", why, write.task)
            if write is not None
            else Damage("postgres", row.id, "checkpoint", why)
            for write, why in bad
        )
        if damage:
            detail = _detail(place, "left_out", row.id, None, damage)
            await self._once(place, row.digest, "damaged", detail, damage)

    async def _once(
        self,
        place: Place,
        digest: Digest,
        kind: Kind,
        detail: dict[str, Any],
        damage: Sequence[Damage],
    ) -> None:
        """Tells of something the first time that this process meets it."""
        served = detail["served"]
        mark = digest + kind.encode() + (served or "").encode()
        if self._shared.told.get((place, mark)) is not None:
            return
        self._shared.told.put((place, mark), True)
        text = "; ".join(map(str, damage))
        id = detail["checkpoint"]
        self._shared.events.emit(kind, text, place=place, checkpoint=id, head=served)
        await self._chronicle.note(place.thread, kind, detail)

    def hook(self, place: Place, found: Examined) -> None:
        """Calls whoever wants to know what is served instead of what was left."""
        if self._shared.on_recovery is not None:
            self._shared.on_recovery(self.of(place, found))


def _detail(
    place: Place, decision: str, checkpoint: str, served: str | None, damage: Sequence[Damage]
) -> dict[str, Any]:
    """What an event's row tells."""
    return {
        "namespace": place.ns,
        "decision": decision,
        "checkpoint": checkpoint or None,
        "served": served,
        "damage": [str(one) for one in damage],
    }


def _decided(rule: Rule) -> Decided:
    value = rule.decision.value
    assert value in get_args(Decided)
    return value  # type: ignore[return-value]


def _head(found: Examined) -> bytes | None:
    """The digest that the head has now; empty if it is gone."""
    if found.target is not None and found.target.tier == "redis":
        return found.target.digest  # so it will be once it is flushed
    if found.view is None or found.view.found is None:
        return None
    return b"" if found.view.found.lost else found.view.found.head.digest


def _why(found: Examined, unplayable: CorruptionError | EvolutionError | None) -> str:
    words = found.evidence
    known = words.tiers in (Tiers.COMPARED, Tiers.PARTLY)
    why = _STATES[words.state] if known else words.tiers.value
    if words.tiers is Tiers.PARTLY:
        why = f"not verified; {why}"
    if words.state in (State.SPOILT, State.DAMAGED):
        why += f"; {_ELSEWHERE[words.elsewhere]}"
    if words.age is Age.OLD:
        why += "; it is older than stale_after allows"
    why += ": " + found.rule.means.replace("`", "").removeprefix("nothing: ")
    if unplayable is not None:
        how = "is damaged" if isinstance(unplayable, CorruptionError) else "cannot be read"
        why += f"; but what its DeltaChannels replay {how}: {unplayable}"
    return why
