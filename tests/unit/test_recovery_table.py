"""What a reader is given: the table, and what leads into it."""

from __future__ import annotations

import itertools

import pytest

from langgraph_durable_state.decisions.ahead import Verdict
from langgraph_durable_state.decisions.recovery import (
    KINDS,
    RULES,
    Age,
    Ancestor,
    Asked,
    Decision,
    Elsewhere,
    Evidence,
    State,
    Tiers,
    Version,
    decide,
    everything,
    tiers_of,
    version_of,
    words_of,
)

EVERYTHING = list(everything())
DAMAGED = (State.DAMAGED, State.SPOILT)
KNOWN = (Tiers.COMPARED, Tiers.PARTLY)


def test_every_combination_has_exactly_one_rule() -> None:
    sizes = (5, 5, 3, 3, 3, 3, 2)
    assert tuple(len(kind) for kind in KINDS) == sizes
    assert len(EVERYTHING) == len({words_of(e) for e in EVERYTHING}) == 4_050
    assert {len([rule for rule in RULES if rule.fits(e)]) for e in EVERYTHING} == {1}


def test_no_rule_and_no_decision_is_idle() -> None:
    assert {id(decide(e)) for e in EVERYTHING} == {id(rule) for rule in RULES}
    assert {rule.decision for rule in RULES} == set(Decision)


# -- the rules that the table holds ----------------------------------------------------------


def found(**words: object) -> list[Decision]:
    """The decisions wherever the evidence has these words."""
    return [
        decide(e).decision
        for e in EVERYTHING
        if all(getattr(e, kind) in _several(word) for kind, word in words.items())
    ]


def _several(word: object) -> tuple[object, ...]:
    return word if isinstance(word, tuple) else (word,)


def test_an_outage_or_a_loss_is_never_an_empty_thread() -> None:
    assert set(found(tiers=(Tiers.UNASKED, Tiers.LOST, Tiers.MOVED))) == {Decision.REFUSE}
    assert set(found(tiers=Tiers.PARTLY, state=State.NOTHING)) == {Decision.REFUSE}


def test_only_nothing_where_all_were_asked_is_a_fresh_start() -> None:
    fresh = [e for e in EVERYTHING if decide(e).decision is Decision.START_FRESH]
    assert {(e.tiers, e.state) for e in fresh} == {(Tiers.COMPARED, State.NOTHING)}
    assert set(found(tiers=Tiers.COMPARED, state=State.NOTHING)) == {Decision.START_FRESH}


def test_damage_is_never_served_or_taken_for_nothing() -> None:
    allowed = {Decision.REPAIR, Decision.FALL_BACK, Decision.REFUSE}
    assert set(found(state=DAMAGED)) == allowed


def test_what_the_other_tier_has_right_is_served_whatever_the_policy() -> None:
    assert set(found(tiers=KNOWN, state=DAMAGED, elsewhere=Elsewhere.GOOD)) == {Decision.REPAIR}


def test_nothing_older_is_served_while_the_other_tier_may_have_it_right() -> None:
    assert set(found(state=DAMAGED, elsewhere=Elsewhere.DOWN)) == {Decision.REFUSE}


@pytest.mark.parametrize("asked", [Asked.RAISE, Asked.BY_ID])
def test_only_a_head_falls_back_and_only_if_the_policy_says_so(asked: Asked) -> None:
    assert Decision.FALL_BACK not in found(asked=asked)


def test_a_head_falls_back_if_there_is_a_sound_ancestor() -> None:
    words = {"tiers": KNOWN, "elsewhere": Elsewhere.BAD, "asked": Asked.FALL_BACK}
    for ancestor, expected in (
        (Ancestor.SOUND, Decision.FALL_BACK),
        (Ancestor.FOREIGN, Decision.REFUSE),
        (Ancestor.NONE, Decision.REFUSE),
    ):
        assert set(found(state=State.DAMAGED, ancestor=ancestor, **words)) == {expected}
    assert set(found(state=State.SPOILT, **words)) == {Decision.FALL_BACK}


def test_what_this_code_cannot_read_is_refused_and_never_replaced() -> None:
    assert set(found(state=State.FOREIGN)) == {Decision.REFUSE}
    assert set(found(state=State.SOUND, version=Version.NEWER)) == {Decision.REFUSE}


def test_an_older_shape_is_migrated() -> None:
    words = {"tiers": KNOWN, "state": State.SOUND, "version": Version.OLDER}
    assert set(found(**words)) == {Decision.MIGRATE}


def test_what_is_sound_is_resumed_and_marked_if_it_is_old_or_was_not_compared() -> None:
    words = {"state": State.SOUND, "version": Version.SAME}
    resumed, stale = {Decision.RESUME}, {Decision.RESUME_STALE}
    assert set(found(tiers=Tiers.COMPARED, age=Age.YOUNG, **words)) == resumed
    assert set(found(tiers=Tiers.COMPARED, age=Age.OLD, **words)) == stale
    assert set(found(tiers=Tiers.PARTLY, **words)) == stale


def test_each_refusal_names_its_error() -> None:
    named = {rule.means.split("`")[1] for rule in RULES if rule.decision is Decision.REFUSE}
    assert named == {
        "CorruptionError",
        "EvolutionError",
        "HeadMovedError",
        "StateLostError",
        "UnavailableError",
    }


# -- what leads into it ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "strict", "lenient"),
    [
        (Verdict.DURABLE, Tiers.COMPARED, Tiers.COMPARED),
        (Verdict.HOT, Tiers.COMPARED, Tiers.COMPARED),
        (Verdict.DISCARD, Tiers.COMPARED, Tiers.COMPARED),
        (Verdict.UNVERIFIED, Tiers.UNASKED, Tiers.PARTLY),
        (Verdict.NOBODY, Tiers.UNASKED, Tiers.PARTLY),
        (Verdict.NO_DURABLE, Tiers.UNASKED, Tiers.UNASKED),
        (Verdict.NO_HOT, Tiers.UNASKED, Tiers.COMPARED),
        (Verdict.GONE, Tiers.LOST, Tiers.COMPARED),
        (Verdict.SUSPECT, Tiers.LOST, Tiers.COMPARED),
    ],
)
def test_what_the_tiers_said_is_taken_by_the_policy(
    verdict: Verdict, strict: Tiers, lenient: Tiers
) -> None:
    assert tiers_of(verdict, False, False, False) is strict
    assert tiers_of(verdict, True, True, True) is lenient


def test_every_verdict_is_taken() -> None:
    for verdict, *policy in itertools.product(Verdict, *[(False, True)] * 3):
        assert tiers_of(verdict, *policy) in Tiers


def test_versions_are_compared() -> None:
    assert [version_of(n, 2) for n in (1, 2, 3)] == [Version.OLDER, Version.SAME, Version.NEWER]


def test_evidence_of_which_nothing_is_known_is_a_new_thread() -> None:
    assert decide(Evidence()).decision is Decision.START_FRESH
