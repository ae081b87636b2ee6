"""What is found where a state should be, in both tiers; `decisions.recovery` says what is done.

Nothing is changed here: a read that meets damage looks again this way, and so does who wants to
know what a read would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langgraph.checkpoint.base import CheckpointTuple

from ..decisions import findings, recovery
from ..decisions.ahead import Verdict
from ..decisions.codec import Record, Unsound
from ..decisions.heads import Signed
from ..decisions.keyring import KeyNeeded
from ..decisions.recovery import (
    Age,
    Ancestor,
    Asked,
    Decision,
    Elsewhere,
    Evidence,
    Rule,
    State,
    Tiers,
)
from ..decisions.serializing import Serializer
from ..decisions.suiting import Suit
from ..errors import (
    CorruptionError,
    DurableStateError,
    EvolutionError,
    UnavailableError,
)
from ..ports import Durable, Outbox
from ..recovery import Damage
from ..words import Found, Head, Place, Spell
from .anchoring import Anchors
from .arbiter import Arbiter, View
from .copies import Copies
from .disputes import Dispute, dispute
from .finding import SERVES_HOT, Candidate, Finder, Target, Writes, detail_of
from .naming import Naming
from .reading import corrupt
from .shaping import newer
from .shared import Shared


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found, and what is decided.

    Attributes:
        evidence: that, in a few words.
        target: what was asked for; None if there is nothing, or nobody knows.
        served: what the decision lets be served.
        ancestor: the newest earlier one that is sound, if somebody looked for it.
        barrier: why this code cannot read that one; nothing older is put in its place.
        last: the newest one that is sound by its digests, with all that it needs, whether or not
            this code can read it; None if it is what is served.
        view: what the tiers said of the head; None if a checkpoint was asked for by its id.
        error: what a refusal raises.
        given_up: the spell that has to be given up first, since what Redis alone held in it cannot
            be read any more.
        damage, skipped: as of a `RecoveryReport`.
    """

    evidence: Evidence
    target: Target | None = None
    served: Candidate | None = None
    ancestor: Candidate | None = None
    barrier: EvolutionError | None = None
    last: Head | None = None
    view: View | None = None
    error: DurableStateError | None = None
    given_up: Spell | None = None
    damage: tuple[Damage, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def rule(self) -> Rule:
        """The decision."""
        return recovery.decide(self.evidence)


class Recovery:
    """Looks through one driver's tiers.

    Args:
        shared, durable, copies, arbiter: as of an engine.
        outbox: the hot tier's; None if there is none.
        anchors: tell heads that were moved.
        naming: finds namespaces under their former names.
    """

    def __init__(
        self,
        shared: Shared,
        durable: Durable,
        copies: Copies,
        arbiter: Arbiter,
        outbox: Outbox | None,
        anchors: Anchors,
        naming: Naming,
    ) -> None:
        self._shared = shared
        self._policy = shared.policy
        self._durable = durable
        self._arbiter = arbiter
        self._anchors = anchors
        self._finder = Finder(shared, durable, copies, outbox, naming)

    async def examine(
        self, serializer: Serializer, place: Place, id: str | None, thorough: bool = True
    ) -> Examined:
        """What a read of `id`, or of the head if that is None, is given, and why.

        Args:
            serializer: decodes.
            place: where.
            id: which checkpoint.
            thorough: look for the last sound one even if it is not going to be served.
        """
        try:
            if id is None:
                return await self._head(serializer, place, thorough)
            found = await self._durable.read(place, id, b"", None)
            return await self._decided(serializer, place, found, None, thorough)
        except UnavailableError as down:
            return Examined(Evidence(Tiers.UNASKED), error=down)

    async def unkeyed(self, place: Place, id: str | None, error: DurableStateError) -> Examined:
        """What a read is given, where a key that it needs is not there, or is damaged itself."""
        view = await self._arbiter.look(place) if id is None else None
        found = view.found if view is not None else await self._durable.read(place, id, b"", -1)
        tiers = self._tiers(view) if view is not None else Tiers.COMPARED
        state = State.FOREIGN if isinstance(error, EvolutionError) else State.DAMAGED
        evidence = Evidence(tiers, state, asked=Asked.RAISE if id is None else Asked.BY_ID)
        return Examined(evidence, self._finder.bare(found, view), view=view, error=error)

    async def _head(self, serializer: Serializer, place: Place, thorough: bool) -> Examined:
        made = await self._found_head(serializer, place, thorough)
        against = await self._dispute(place, made, None)
        if against is None:
            return made
        # The witness may have been told of a put since the head was looked at.
        made = await self._found_head(serializer, place, thorough)
        against = await self._dispute(place, made, against.known)
        if against is None:
            return made
        known, last = against.known, None
        found = await self._durable.read(place, known.id, b"", None) if known else None
        if found is not None and known is not None and found.head.digest == known.digest:
            there = self._finder.durable_target(place, found)
            last = await self._proven(serializer, place, there)
        moved = replace(made, evidence=Evidence(Tiers.MOVED), served=None, error=against.error)
        return replace(moved, ancestor=None, skipped=(), last=last)

    async def _dispute(self, place: Place, made: Examined, floor: Signed | None) -> Dispute | None:
        """What speaks against a head that was found, if it is what a read looks at."""
        if not self._anchors.signs or made.given_up is not None:
            return None
        target, served, record = made.target, made.served, None
        if target is not None:
            record = target.record
            if record is None and served is not None and served.digest == target.digest:
                record = served.record
            if record is None or target.found.lost or (served and served.tier == "process"):
                return None
        elif made.rule.decision is not Decision.START_FRESH:
            return None
        return await dispute(self._anchors, place, target, record, floor)

    async def _found_head(self, serializer: Serializer, place: Place, thorough: bool) -> Examined:
        view = await self._arbiter.look(place)
        tiers = self._tiers(view)
        if tiers in (Tiers.UNASKED, Tiers.LOST):
            error = self._arbiter.refusal(place, view)
            return Examined(Evidence(tiers), view=view, error=error)
        seen = self._shared.heads.last(place) if view.verdict is Verdict.NOBODY else None
        if seen is not None:
            record, batches, digest = seen
            writes = Writes(())
            last = await self._finder.candidate(
                serializer, record, digest, writes, "process", batches
            )
            return self.as_served(place, view, self.sound(tiers, record, last.seen), last)
        made = await self._decided(serializer, place, view.found, view, thorough)
        if thorough and view.spell is not None:
            _, bad = await self._finder.outbox(place)
            damage = (Damage("redis", "", "outbox", bad),) if bad else ()
            made = replace(made, damage=(*made.damage, *damage))
        return made

    def _tiers(self, view: View) -> Tiers:
        if view.adopts:
            return Tiers.COMPARED
        p = self._policy
        return recovery.tiers_of(view.verdict, p.accepts_loss, p.queues, p.stale_reads)

    # -- what was asked for ------------------------------------------------------------------

    async def _decided(
        self,
        serializer: Serializer,
        place: Place,
        found: Found | None,
        view: View | None,
        thorough: bool,
    ) -> Examined:
        tiers = self._tiers(view) if view is not None else Tiers.COMPARED
        target = self._finder.target(place, found, view)
        if target is None:
            down = view.down if view is not None else None
            return Examined(Evidence(tiers, asked=self._asked(view)), view=view, error=down)
        evidence = Evidence(tiers, asked=self._asked(view))
        try:
            return await self._weighed(serializer, place, target, view, evidence, thorough)
        except KeyNeeded:
            raise
        except EvolutionError as error:
            evidence = replace(evidence, state=State.FOREIGN)
            made = Examined(evidence, target, view=view, error=error)
            last = await self._proven(serializer, place, target) if thorough else None
            return replace(made, last=last)

    async def _proven(self, serializer: Serializer, place: Place, target: Target) -> Head | None:
        """A checkpoint, if it is sound by its digests, with all that it needs."""
        try:
            await self._finder.proven(serializer, place, target)
        except KeyNeeded:
            raise
        except (CorruptionError, EvolutionError):
            return None
        return _head(target)

    def _asked(self, view: View | None) -> Asked:
        if view is None:
            return Asked.BY_ID
        return Asked.FALL_BACK if self._policy.falls_back else Asked.RAISE

    # -- what is done about it ---------------------------------------------------------------

    async def _weighed(
        self,
        serializer: Serializer,
        place: Place,
        target: Target,
        view: View | None,
        evidence: Evidence,
        thorough: bool,
    ) -> Examined:
        if target.foreign is not None:
            raise target.foreign
        record, tier, damage = target.record, target.tier, []
        if record is None:
            elsewhere, record, tier = await self._finder.elsewhere(place, target, view)
            damage.append(replace(target.damage, repairable=elsewhere is Elsewhere.GOOD))
            evidence = replace(evidence, state=State.DAMAGED, elsewhere=elsewhere)
        if record is None:
            made = Examined(evidence, target, view=view, damage=tuple(damage))
            if view is not None and view.spell is not None and evidence.elsewhere is Elsewhere.BAD:
                return await self._given_up(serializer, place, made, view, view.spell, thorough)
            return await self._without_it(serializer, place, made, thorough)
        target = await self._finder.named_right(place, target, record.id)
        writes = await self._finder.writes(place, target, view)
        damage += writes.damage
        repaired = evidence.state is State.DAMAGED and writes.elsewhere is Elsewhere.GOOD
        if writes.spoilt and not repaired:
            evidence = replace(evidence, state=State.SPOILT, elsewhere=writes.elsewhere)
        elif evidence.state is State.NOTHING:
            evidence = self.sound(evidence.tiers, record, None)
        if recovery.decide(evidence).decision is Decision.REFUSE:
            error = self._refusal(place, target, evidence, tuple(damage))
            last = _head(target)
            return Examined(
                evidence, target, last=last, view=view, error=error, damage=tuple(damage)
            )
        served = await self._finder.candidate(serializer, record, target.digest, writes, tier)
        if evidence.state is State.SOUND:
            evidence = self.sound(evidence.tiers, record, served.seen)
        last = _head(target)
        return Examined(evidence, target, served, last=last, view=view, damage=tuple(damage))

    async def _given_up(
        self,
        serializer: Serializer,
        place: Place,
        made: Examined,
        view: View,
        spell: Spell,
        thorough: bool,
    ) -> Examined:
        """What is done about a head that Redis alone held and that is damaged there: it is lost."""
        if not self._policy.accepts_loss:
            lost = self._arbiter.lost(place, view)
            evidence = replace(made.evidence, tiers=Tiers.LOST)
            return replace(made, evidence=evidence, error=lost, given_up=spell)
        without = replace(view, verdict=Verdict.DURABLE, hot=None)
        left = await self._decided(serializer, place, view.found, without, thorough)
        return replace(left, given_up=spell, damage=(*made.damage, *left.damage))

    def sound(self, tiers: Tiers, record: Record, seen: CheckpointTuple | None) -> Evidence:
        """The evidence of a sound checkpoint that was asked for."""
        age = Age.YOUNG
        if self._policy.stale_after is not None and seen is not None:
            made = findings.made_at(seen.checkpoint)
            old = made is not None and self._shared.clock() - made > self._policy.stale_after
            age = Age.OLD if old else Age.YOUNG
        version = self._shared.shape.version_of(record)
        return Evidence(tiers, State.SOUND, version=version, age=age)

    def as_served(
        self, place: Place, view: View, evidence: Evidence, served: Candidate
    ) -> Examined:
        """A sound head that was served."""
        tier = served.tier or ("redis" if view.verdict in SERVES_HOT else "postgres")
        bare = Found(Head(served.record.id, 0, served.digest), None, (), {}, ())
        target = Target(served.record.id, served.digest, tier, served.record, bare, (None, 0))
        return Examined(evidence, target, replace(served, tier=tier), last=_head(target), view=view)

    async def _without_it(
        self,
        serializer: Serializer,
        place: Place,
        made: Examined,
        thorough: bool,
    ) -> Examined:
        """What is done if neither tier has what was asked for."""
        evidence, target = made.evidence, made.target
        assert target is not None
        wanted = evidence.asked is Asked.FALL_BACK and evidence.elsewhere is Elsewhere.BAD
        if wanted or thorough:
            made = await self._with_ancestor(serializer, place, made)
        if made.barrier is not None:
            evidence = replace(evidence, ancestor=Ancestor.FOREIGN)
        elif made.ancestor is not None:
            evidence = replace(evidence, ancestor=Ancestor.SOUND)
        made = replace(made, evidence=evidence)
        if made.rule.decision is Decision.FALL_BACK:
            return replace(made, served=made.ancestor)
        if wanted and made.barrier is not None:
            return replace(made, error=made.barrier)
        return replace(made, error=self._refusal(place, target, evidence, made.damage))

    def _refusal(
        self, place: Place, target: Target, evidence: Evidence, damage: Sequence[Damage]
    ) -> DurableStateError:
        if evidence.state is State.SOUND:
            version = target.record.schema_version if target.record is not None else 0
            return newer(place, target.id, version, self._shared.shape.version)
        if evidence.elsewhere is Elsewhere.DOWN:
            other = "redis" if target.tier == "postgres" else "postgres"
            return UnavailableError(other, f"it may have what is damaged: {damage[0]}")
        if evidence.state is State.SPOILT:
            lost = next(one for one in damage if not one.repairable)
            return corrupt(place, target.id, Unsound(None, str(lost)))
        return corrupt(place, target.id, Unsound(target.channel, target.why))

    # -- ancestors ---------------------------------------------------------------------------

    async def _with_ancestor(
        self, serializer: Serializer, place: Place, made: Examined
    ) -> Examined:
        """The newest earlier checkpoint that is sound, with all that it needs, and why those that
        are newer are not. What this code cannot read is not damaged, and ends the search."""
        assert made.target is not None
        reason = made.target.why or "this code cannot read it"
        skipped = [] if made.target.found.lost else [(made.target.id, reason)]
        damage = list(made.damage)
        async for target in self._finder.before(place, made.target):
            last: Head | None = None
            try:
                record, writes = await self._finder.proven(serializer, place, target)
                last, damage = _head(target), [*damage, *writes.damage]
                candidate = await self._finder.candidate(
                    serializer, record, target.digest, writes, target.tier
                )
            except KeyNeeded:
                raise
            except EvolutionError as error:
                made = replace(made, barrier=error, last=last)
                break
            except CorruptionError as error:
                skipped.append((target.id, detail_of(error)))
                if target.record is None:
                    damage.append(target.damage)
                continue
            made = replace(made, ancestor=candidate, last=last)
            break
        return replace(made, skipped=tuple(skipped), damage=tuple(damage))

    async def readable(
        self, serializer: Serializer, place: Place, target: Target, suit: Suit | None = None
    ) -> Head | None:
        """The newest earlier checkpoint that this code can read, and that suits."""
        async for earlier in self._finder.before(place, target):
            try:
                record, writes = await self._finder.proven(serializer, place, earlier)
                of = earlier.digest, writes, earlier.tier
                made = await self._finder.candidate(serializer, record, *of)
            except KeyNeeded:
                raise
            except (CorruptionError, EvolutionError):
                continue
            if suit is None or not suit.misfits(made.seen.checkpoint):
                return _head(earlier)
        return None

    async def without_replay(
        self, serializer: Serializer, place: Place, made: Examined, error: DurableStateError
    ) -> Examined:
        """With the newest checkpoint before a sound one whose DeltaChannels cannot be replayed."""
        if made.target is None or made.served is None:
            return made
        target = replace(
            made.target, why=f"its DeltaChannels cannot be replayed: {detail_of(error)}"
        )
        without = replace(made, target=target, last=None)
        found = await self._with_ancestor(serializer, place, without)
        return replace(found, target=made.target)

    async def replayable(self, serializer: Serializer, place: Place, made: Candidate) -> None:
        """Reads what the DeltaChannels of a checkpoint are made from.

        Raises:
            CorruptionError, EvolutionError: if that cannot be read.
        """
        await self._finder.replayable(serializer, place, made.record)


def _head(target: Target) -> Head:
    return Head(target.id, 0, target.digest)
