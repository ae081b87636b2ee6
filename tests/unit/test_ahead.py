"""Which tier's head is current: the table, and what leads into it."""

from __future__ import annotations

import itertools

import pytest

from langgraph_durable_state.decisions.ahead import (
    DRASTIC,
    TABLE,
    Durable,
    Hot,
    Verdict,
    decide,
    of_durable,
    of_hot,
)
from langgraph_durable_state.words import Found, Head, HotFound, Phase, Spell

T, U, V = b"T" * 16, b"U" * 16, b"V" * 16
ONE, TWO, THREE, FOUR = (bytes([i]) * 16 for i in range(1, 5))


def test_every_pair_is_decided() -> None:
    decided = {(durable, hot) for durable, row in TABLE.items() for hot in row}
    assert decided == set(itertools.product(Durable, Hot))
    assert {verdict for row in TABLE.values() for verdict in row.values()} == set(Verdict)


# -- the rules that the table holds ----------------------------------------------------------

PAIRS = list(itertools.product(Durable, Hot))
ANSWERED = [pair for pair in PAIRS if Hot.DOWN not in pair and Durable.DOWN not in pair]


@pytest.mark.parametrize("hot", [hot for hot in Hot if hot is not Hot.DOWN])
def test_without_postgres_a_hot_head_is_served_unverified_or_none_is(hot: Hot) -> None:
    expected = Verdict.NO_DURABLE if hot is Hot.NOTHING else Verdict.UNVERIFIED
    assert decide(Durable.DOWN, hot) is expected


def test_without_either_tier_only_what_was_seen_can_be_served() -> None:
    assert decide(Durable.DOWN, Hot.DOWN) is Verdict.NOBODY


@pytest.mark.parametrize("durable", [Durable.MARKED, Durable.STRAY])
def test_where_redis_may_be_ahead_and_cannot_be_asked_nobody_is_served(durable: Durable) -> None:
    assert decide(durable, Hot.DOWN) is Verdict.NO_HOT


def test_where_redis_is_not_ahead_it_need_not_be_asked() -> None:
    assert decide(Durable.CLEAR, Hot.DOWN) is Verdict.DURABLE


@pytest.mark.parametrize("hot", [hot for hot in Hot if hot is not Hot.DOWN])
def test_a_mark_of_a_spell_that_redis_has_not_is_a_loss(hot: Hot) -> None:
    assert decide(Durable.STRAY, hot) is Verdict.GONE


@pytest.mark.parametrize(
    ("hot", "expected"),
    [
        (Hot.NOTHING, Verdict.GONE),
        (Hot.COPY, Verdict.GONE),
        (Hot.APART, Verdict.GONE),
        (Hot.AHEAD, Verdict.HOT),
        (Hot.SAME, Verdict.DURABLE),
        (Hot.IDLE, Verdict.DURABLE),
        (Hot.RESTARTED, Verdict.SUSPECT),
        (Hot.REVIVED, Verdict.SUSPECT),
    ],
)
def test_a_marked_head(hot: Hot, expected: Verdict) -> None:
    assert decide(Durable.MARKED, hot) is expected


@pytest.mark.parametrize(
    ("hot", "expected"),
    [
        (Hot.NOTHING, Verdict.DURABLE),
        (Hot.COPY, Verdict.DURABLE),
        (Hot.SAME, Verdict.DURABLE),
        (Hot.IDLE, Verdict.DURABLE),
        (Hot.AHEAD, Verdict.HOT),
        (Hot.APART, Verdict.DISCARD),
        (Hot.RESTARTED, Verdict.SUSPECT),
        (Hot.REVIVED, Verdict.DISCARD),
    ],
)
def test_a_head_without_a_mark(hot: Hot, expected: Verdict) -> None:
    """A burst while Postgres was down is the one thing that Redis can hold of it."""
    assert decide(Durable.CLEAR, hot) is expected


@pytest.mark.parametrize("pair", PAIRS)
def test_a_hot_head_is_believed_only_if_it_builds_on_the_durable_one(
    pair: tuple[Durable, Hot],
) -> None:
    if decide(*pair) is Verdict.HOT:
        assert pair[1] is Hot.AHEAD
        assert pair[0] in (Durable.CLEAR, Durable.MARKED)


@pytest.mark.parametrize("pair", PAIRS)
def test_nothing_is_given_up_unless_both_tiers_answered(pair: tuple[Durable, Hot]) -> None:
    if decide(*pair) in DRASTIC:
        assert pair in ANSWERED


# -- what the tiers said ---------------------------------------------------------------------


def found(mark: bytes | None) -> Found:
    return Found(Head("a", 1, ONE), None, (), {}, (), mark)


def spell(
    phase: Phase = Phase.OPEN,
    base: bytes | None = ONE,
    chain: tuple[bytes, ...] = (TWO, THREE),
    *,
    token: bytes = T,
    previous: bytes = U,
    marked: bool = True,
    restarted: bool = False,
    secured: bool = False,
) -> Spell:
    digest = chain[-1] if chain else base or b""
    head = Head("h", 9, digest)
    return Spell(token, phase, previous, head, base, chain, marked, secured, restarted)


def hot(told: Spell | None, digest: bytes = b"") -> HotFound:
    return HotFound(told, digest, None, {}, (), {})


def test_a_head_that_is_not_marked_is_clear() -> None:
    """Whatever Redis says, and if there is no head at all."""
    for told in (None, spell()):
        assert of_durable(None, told) is Durable.CLEAR
        assert of_durable(found(None), told) is Durable.CLEAR


@pytest.mark.parametrize("phase", [Phase.OPENING, Phase.OPEN, Phase.CLOSING])
def test_a_mark_is_its_spells(phase: Phase) -> None:
    assert of_durable(found(T), spell(phase)) is Durable.MARKED
    assert of_durable(found(V), spell(phase)) is Durable.STRAY


@pytest.mark.parametrize("phase", [Phase.OPENING, Phase.CLOSING])
def test_the_mark_of_the_spell_before_may_still_be_there(phase: Phase) -> None:
    """All of that one was flushed; but not once something was taken in the next."""
    assert of_durable(found(U), spell(phase)) is Durable.MARKED
    assert of_durable(found(U), spell(Phase.OPEN)) is Durable.STRAY


def test_a_mark_without_a_spell_is_stray() -> None:
    assert of_durable(found(T), None) is Durable.STRAY


def test_without_a_spell_there_is_a_copy_or_nothing() -> None:
    assert of_hot(hot(None, ONE), ONE) is Hot.COPY
    assert of_hot(hot(None), ONE) is Hot.NOTHING
    assert of_hot(hot(None), None) is Hot.NOTHING


@pytest.mark.parametrize(
    ("phase", "restarted", "secured", "expected"),
    [
        (Phase.OPENING, False, False, Hot.IDLE),
        (Phase.CLOSING, False, False, Hot.IDLE),
        (Phase.CLOSING, True, False, Hot.IDLE),
        # It may have been open, when its server was lost.
        (Phase.OPENING, True, False, Hot.NOTHING),
        # Then the disk would have told.
        (Phase.OPENING, True, True, Hot.IDLE),
    ],
)
def test_a_spell_that_is_not_open_holds_nothing_back(
    phase: Phase, restarted: bool, secured: bool, expected: Hot
) -> None:
    found = spell(phase, restarted=restarted, secured=secured)
    assert of_hot(hot(found), FOUR) is expected


@pytest.mark.parametrize(
    ("durable", "expected"),
    [(ONE, Hot.AHEAD), (TWO, Hot.AHEAD), (THREE, Hot.SAME), (FOUR, Hot.APART), (b"", Hot.APART)],
)
def test_a_hot_head_builds_on_its_base_and_on_what_is_not_flushed(
    durable: bytes, expected: Hot
) -> None:
    assert of_hot(hot(spell()), durable) is expected


def test_a_spell_may_begin_where_there_is_no_head() -> None:
    assert of_hot(hot(spell(base=b"")), b"") is Hot.AHEAD
    assert of_hot(hot(spell(base=b"", chain=())), b"") is Hot.SAME
    assert of_hot(hot(spell(base=b"")), FOUR) is Hot.APART


def test_while_postgres_is_down_a_hot_head_may_be_ahead() -> None:
    assert of_hot(hot(spell()), None) is Hot.AHEAD


def test_a_base_that_nobody_knew_fits_every_head() -> None:
    """Whether it does is found when it is flushed."""
    assert of_hot(hot(spell(base=None)), FOUR) is Hot.AHEAD


def test_after_a_restart_a_spell_may_have_lost_its_end() -> None:
    """If it fits; one that does not has lost already."""
    assert of_hot(hot(spell(restarted=True, marked=False)), ONE) is Hot.RESTARTED
    assert of_hot(hot(spell(restarted=True)), ONE) is Hot.REVIVED
    assert of_hot(hot(spell(restarted=True)), FOUR) is Hot.APART
