"""The breaker: a dead tier costs one failure, then one probe per pause, and says so once."""

from __future__ import annotations

import logging

import pytest

from langgraph_durable_state.drivers.breaker import Breaker


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker("Postgres", clock)


DOWN = ConnectionError("refused")


def test_it_admits_all_until_something_fails(breaker: Breaker) -> None:
    """And nothing after that."""
    assert [breaker.admits() for _ in range(3)] == [True] * 3
    breaker.failed(DOWN)
    assert [breaker.admits() for _ in range(3)] == [False] * 3


def test_one_probe_is_let_through_per_pause_and_pauses_grow(breaker: Breaker, clock: Clock) -> None:
    """0.25 s, then 0.5, 1, 2, and 2 again."""
    breaker.failed(DOWN)
    for pause in (0.25, 0.5, 1.0, 2.0, 2.0):
        clock.now += pause - 0.01
        assert not breaker.admits()
        clock.now += 0.01
        assert breaker.admits()
        assert not breaker.admits()
        breaker.failed(DOWN)


def test_calls_that_fail_together_count_once(breaker: Breaker, clock: Clock) -> None:
    """Six calls under way when the tier dies do not lengthen the pause."""
    for _ in range(6):
        breaker.failed(DOWN)
    clock.now = 0.25
    assert breaker.admits()


def test_an_answer_closes_it(breaker: Breaker, clock: Clock) -> None:
    """And the next failure starts with the first pause again."""
    breaker.failed(DOWN)
    clock.now = 1.0
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.admits()
    breaker.failed(DOWN)
    clock.now = 1.25
    assert breaker.admits()


def test_each_change_is_logged_once(breaker: Breaker, caplog: pytest.LogCaptureFixture) -> None:
    """Failed, refusing, in use again: however many calls meet it."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            breaker.failed(DOWN)
        for _ in range(3):
            breaker.succeeded()
        for _ in range(3):
            breaker.refused(MemoryError("maxmemory"))
        for _ in range(3):
            breaker.succeeded()
    assert [record.getMessage() for record in caplog.records] == [
        "Postgres failed and is used again once it answers: refused",
        "Postgres is in use again",
        "Postgres refuses what is sent to it: maxmemory",
        "Postgres is in use again",
    ]


def test_a_node_fails_alone(breaker: Breaker, caplog: pytest.LogCaptureFixture) -> None:
    """The tier and its other nodes go on; it is said of which node."""
    breaker.part("h:1").failed(DOWN)
    assert [breaker.part("h:1").admits(), breaker.part("h:2").admits(), breaker.admits()] == [
        False,
        True,
        True,
    ]
    assert ["Postgres node h:1 failed" in r.getMessage() for r in caplog.records] == [True]
