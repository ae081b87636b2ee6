"""Which tier's head is current, while the hot one may be ahead of the durable one.

This file decides and never acts. What either tier said is brought to a few words, and the decision
is looked up in a table that covers every pair of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ..words import Digest, Found, HotFound, Phase, Spell
from . import keys


class Durable(Enum):
    """What Postgres said of a head."""

    DOWN = "it cannot be asked"
    CLEAR = "Redis is not ahead"
    MARKED = "Redis may be ahead, in the spell that it has"
    STRAY = "Redis may be ahead, in a spell that it has not"


class Hot(Enum):
    """What Redis said of the same head."""

    DOWN = "it cannot be asked"
    NOTHING = "it has nothing"
    COPY = "it has a copy, which may be old"
    IDLE = "its spell holds nothing back"
    SAME = "its head is the durable one"
    AHEAD = "its head builds on the durable one"
    APART = "its head does not build on the durable one"
    RESTARTED = "it was restarted since"
    REVIVED = "it was restarted since, in a spell that Postgres was marked for"


class Verdict(Enum):
    """Whose head is served, or why none is."""

    DURABLE = "the durable head"
    HOT = "the hot head"
    UNVERIFIED = "the hot head, marked unverified, if the policy allows"
    DISCARD = "the durable head, after the hot one was discarded"
    GONE = "a reported loss: what Redis held alone is gone"
    SUSPECT = "a reported loss: Redis may have lost the last of what it held"
    NO_HOT = "none: Redis, which may be ahead, cannot be asked"
    NO_DURABLE = "none: Postgres cannot be asked, and Redis does not know"
    NOBODY = "the head last seen, marked stale, if the policy allows"


_V = Verdict

TABLE: Mapping[Durable, Mapping[Hot, Verdict]] = {
    Durable.DOWN: {
        Hot.DOWN: _V.NOBODY,
        Hot.NOTHING: _V.NO_DURABLE,
        Hot.COPY: _V.UNVERIFIED,
        Hot.IDLE: _V.UNVERIFIED,
        Hot.SAME: _V.UNVERIFIED,
        Hot.AHEAD: _V.UNVERIFIED,
        Hot.APART: _V.UNVERIFIED,
        Hot.RESTARTED: _V.UNVERIFIED,
        Hot.REVIVED: _V.UNVERIFIED,
    },
    Durable.CLEAR: {
        Hot.DOWN: _V.DURABLE,
        Hot.NOTHING: _V.DURABLE,
        Hot.COPY: _V.DURABLE,
        Hot.IDLE: _V.DURABLE,
        Hot.SAME: _V.DURABLE,
        Hot.AHEAD: _V.HOT,
        Hot.APART: _V.DISCARD,
        Hot.RESTARTED: _V.SUSPECT,
        Hot.REVIVED: _V.DISCARD,  # the mark is off, so that all of it was flushed
    },
    Durable.MARKED: {
        Hot.DOWN: _V.NO_HOT,
        Hot.NOTHING: _V.GONE,
        Hot.COPY: _V.GONE,
        Hot.IDLE: _V.DURABLE,
        Hot.SAME: _V.DURABLE,
        Hot.AHEAD: _V.HOT,
        Hot.APART: _V.GONE,
        Hot.RESTARTED: _V.SUSPECT,
        Hot.REVIVED: _V.SUSPECT,
    },
    Durable.STRAY: {
        Hot.DOWN: _V.NO_HOT,
        Hot.NOTHING: _V.GONE,
        Hot.COPY: _V.GONE,
        Hot.IDLE: _V.GONE,
        Hot.SAME: _V.GONE,
        Hot.AHEAD: _V.GONE,
        Hot.APART: _V.GONE,
        Hot.RESTARTED: _V.GONE,
        Hot.REVIVED: _V.GONE,
    },
}

DRASTIC = {Verdict.DISCARD, Verdict.GONE, Verdict.SUSPECT}
"""Verdicts that are acted on only when a second look finds the same: the tiers are asked one after
the other, and a flush or the end of a spell may have come in between."""


def decide(durable: Durable, hot: Hot) -> Verdict:
    """Whose head is current."""
    return TABLE[durable][hot]


def of_durable(found: Found | None, spell: Spell | None) -> Durable:
    """What a durable head, found or not, says about a hot tier that has `spell`."""
    mark = found.ahead if found is not None else None
    if mark is None:
        return Durable.CLEAR
    if spell is None:
        return Durable.STRAY
    idle = spell.phase is not Phase.OPEN
    known = (spell.token, *keys.tokens(spell.previous)) if idle else (spell.token,)
    return Durable.MARKED if mark in known else Durable.STRAY


def of_hot(found: HotFound, durable: Digest | None) -> Hot:
    """What the hot tier says, `durable` being the durable head's digest (empty if there is none),
    or None if it is not known."""
    spell = found.spell
    if spell is None:
        return Hot.COPY if found.digest else Hot.NOTHING
    if spell.phase is not Phase.OPEN:
        # One that was opening may have been open when its server was lost, unless all who have
        # seen it wait until the disk has what they were told.
        gone = spell.phase is Phase.OPENING and spell.restarted and not spell.secured
        return Hot.NOTHING if gone else Hot.IDLE
    if durable is None:
        return Hot.AHEAD
    fits = spell.base is None or durable in (spell.base, *spell.chain)
    if not fits:
        return Hot.APART
    if spell.restarted:
        return Hot.REVIVED if spell.marked else Hot.RESTARTED
    return Hot.SAME if durable == spell.head.digest else Hot.AHEAD
