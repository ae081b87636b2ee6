"""What a reader is given, whatever was found where its state should be.

This file decides and never acts. What was found is brought to a few words, and the decision is
looked up in rules that between them cover every combination of those words exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import product
from typing import Any

from .ahead import Verdict


class Tiers(Enum):
    """Whether it is known whose head is current."""

    COMPARED = "known"
    PARTLY = "not verified, as the policy allows"
    UNASKED = "unknown: a tier cannot be asked"
    LOST = "lost: Redis alone had it"
    MOVED = "under a key: not the one that was put last"


class State(Enum):
    """What was found where the state should be."""

    NOTHING = "nothing"
    SOUND = "it, sound"
    SPOILT = "it, with a damaged pending write"
    DAMAGED = "it, damaged"
    FOREIGN = "it, as written, but not for this code"


class Elsewhere(Enum):
    """What the other tier has instead of what is damaged."""

    GOOD = "it, sound"
    BAD = "nothing sound"
    DOWN = "it cannot be asked"


class Ancestor(Enum):
    """Whether an earlier checkpoint is sound, with all that it needs."""

    SOUND = "yes"
    FOREIGN = "yes, but not for this code"
    NONE = "no"


class Asked(Enum):
    """What the reader asked for."""

    FALL_BACK = 'the head, `"fall_back"`'
    RAISE = 'the head, `"raise"`'
    BY_ID = "one by its id"


class Version(Enum):
    """The version of the state's shape, against the one that this code has."""

    OLDER = "older"
    SAME = "the same"
    NEWER = "newer"


class Age(Enum):
    """How old it is, against `stale_after`."""

    YOUNG = "within it"
    OLD = "beyond it"


class Decision(Enum):
    """What the reader is given."""

    RESUME = "resume"
    RESUME_STALE = "resume_stale"
    MIGRATE = "migrate"
    REPAIR = "repair"
    FALL_BACK = "fall_back"
    START_FRESH = "start_fresh"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found, in a word of each kind. What nobody had to look for has its first word."""

    tiers: Tiers = Tiers.COMPARED
    state: State = State.NOTHING
    elsewhere: Elsewhere = Elsewhere.BAD
    ancestor: Ancestor = Ancestor.NONE
    asked: Asked = Asked.FALL_BACK
    version: Version = Version.SAME
    age: Age = Age.YOUNG


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table: the decision, what it means, and for which evidence.

    ``when`` holds the words it is for, by kind; a kind that it does not name may have any.
    """

    decision: Decision
    means: str
    when: Mapping[type[Enum], frozenset[Enum]]

    def fits(self, evidence: Evidence) -> bool:
        return all(
            kind not in self.when or word in self.when[kind]
            for kind, word in zip(KINDS, words_of(evidence), strict=True)
        )


KINDS: tuple[type[Enum], ...] = (Tiers, State, Elsewhere, Ancestor, Asked, Version, Age)


def _rule(decision: Decision, means: str, *words: Enum) -> Rule:
    when: dict[type[Enum], set[Enum]] = {}
    for word in words:
        when.setdefault(type(word), set()).add(word)
    return Rule(decision, means, {kind: frozenset(found) for kind, found in when.items()})


_KNOWN = (Tiers.COMPARED, Tiers.PARTLY)
_HURT = (State.SPOILT, State.DAMAGED)
_D = Decision

RULES: tuple[Rule, ...] = (
    _rule(_D.RESUME, "it is served", Tiers.COMPARED, State.SOUND, Version.SAME, Age.YOUNG),
    _rule(
        _D.RESUME_STALE,
        "it is served, marked in its metadata",
        Tiers.COMPARED,
        State.SOUND,
        Version.SAME,
        Age.OLD,
    ),
    _rule(
        _D.RESUME_STALE,
        "it is served, marked in its metadata",
        Tiers.PARTLY,
        State.SOUND,
        Version.SAME,
    ),
    _rule(_D.MIGRATE, "it is served in today's shape", *_KNOWN, State.SOUND, Version.OLDER),
    _rule(_D.REFUSE, "`EvolutionError`", *_KNOWN, State.SOUND, Version.NEWER),
    _rule(_D.REFUSE, "`EvolutionError`", *_KNOWN, State.FOREIGN),
    _rule(_D.REPAIR, "what is sound is served", *_KNOWN, *_HURT, Elsewhere.GOOD),
    _rule(
        _D.REFUSE,
        "`UnavailableError`: the other tier may have it",
        *_KNOWN,
        *_HURT,
        Elsewhere.DOWN,
    ),
    _rule(
        _D.FALL_BACK,
        "it is served without that write, whose task runs again",
        *_KNOWN,
        State.SPOILT,
        Elsewhere.BAD,
        Asked.FALL_BACK,
    ),
    _rule(
        _D.FALL_BACK,
        "the newest sound ancestor is served",
        *_KNOWN,
        State.DAMAGED,
        Elsewhere.BAD,
        Asked.FALL_BACK,
        Ancestor.SOUND,
    ),
    _rule(
        _D.REFUSE,
        "`EvolutionError`: what can be read is older still",
        *_KNOWN,
        State.DAMAGED,
        Elsewhere.BAD,
        Asked.FALL_BACK,
        Ancestor.FOREIGN,
    ),
    _rule(
        _D.REFUSE,
        "`CorruptionError`: never an empty thread",
        *_KNOWN,
        State.DAMAGED,
        Elsewhere.BAD,
        Asked.FALL_BACK,
        Ancestor.NONE,
    ),
    _rule(
        _D.REFUSE,
        "`CorruptionError`",
        *_KNOWN,
        *_HURT,
        Elsewhere.BAD,
        Asked.RAISE,
        Asked.BY_ID,
    ),
    _rule(
        _D.START_FRESH,
        "nothing: a new thread",
        Tiers.COMPARED,
        State.NOTHING,
        Asked.FALL_BACK,
        Asked.RAISE,
    ),
    _rule(
        _D.START_FRESH,
        "nothing: there is no such checkpoint",
        Tiers.COMPARED,
        State.NOTHING,
        Asked.BY_ID,
    ),
    _rule(
        _D.REFUSE,
        "`UnavailableError`: an outage is never an empty thread",
        Tiers.PARTLY,
        State.NOTHING,
    ),
    _rule(_D.REFUSE, "`UnavailableError`", Tiers.UNASKED),
    _rule(_D.REFUSE, "`StateLostError`", Tiers.LOST),
    _rule(_D.REFUSE, "`HeadMovedError`", Tiers.MOVED),
)


def words_of(evidence: Evidence) -> tuple[Enum, ...]:
    """Its words, in the order of `KINDS`."""
    e = evidence
    return e.tiers, e.state, e.elsewhere, e.ancestor, e.asked, e.version, e.age


def everything() -> Iterator[Evidence]:
    """Every combination of words."""
    words: Iterator[tuple[Any, ...]] = product(*KINDS)
    return (Evidence(*each) for each in words)


@cache
def decide(evidence: Evidence) -> Rule:
    """The rule for what was found."""
    (rule,) = (rule for rule in RULES if rule.fits(evidence))
    return rule


def tiers_of(verdict: Verdict, accepts_loss: bool, queues: bool, stale_reads: bool) -> Tiers:
    """How what `decisions.ahead` said is to be taken under a policy."""
    if verdict in (Verdict.DURABLE, Verdict.HOT, Verdict.DISCARD):
        return Tiers.COMPARED
    if verdict in (Verdict.GONE, Verdict.SUSPECT):
        return Tiers.COMPARED if accepts_loss else Tiers.LOST
    if verdict is Verdict.NO_HOT:
        return Tiers.COMPARED if accepts_loss else Tiers.UNASKED
    allowed = {Verdict.UNVERIFIED: queues, Verdict.NOBODY: stale_reads}
    return Tiers.PARTLY if allowed.get(verdict) else Tiers.UNASKED


def version_of(stored: int, ours: int) -> Version:
    """How a stored version is to be taken by code that has `ours`."""
    if stored == ours:
        return Version.SAME
    return Version.OLDER if stored < ours else Version.NEWER
