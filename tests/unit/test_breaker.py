"""The breaker: a dead tier costs one failure, then one probe per pause, and says so once."""

from __future__ import annotations

import threading

import pytest

from langgraph_durable_state.drivers.blocking import Threads, run
from langgraph_durable_state.drivers.breaker import Breaker, Condition
from langgraph_durable_state.drivers.events import EventLog
from langgraph_durable_state.drivers.probing import probe_aside
from langgraph_durable_state.events import Event


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[Event]:
    """The events so far."""
    return []


@pytest.fixture
def breaker(clock: Clock, told: list[Event]) -> Breaker:
    """One whose pauses are as long as they can be."""
    return Breaker("redis", EventLog(told.append), clock, lambda: clock.now + 1e9, lambda: 1.0)


DOWN = ConnectionError("refused")
FULL = MemoryError("maxmemory")


def open_unattended(breaker: Breaker) -> None:
    """Fails it where nobody probes aside."""
    breaker.failed(DOWN)
    breaker.left()


def test_it_admits_all_until_something_fails(breaker: Breaker) -> None:
    """And nothing after that."""
    assert [breaker.admits() for _ in range(3)] == [True] * 3
    breaker.failed(DOWN)
    assert [breaker.admits() for _ in range(3)] == [False] * 3


def test_one_probe_is_let_through_per_pause_and_pauses_grow(breaker: Breaker, clock: Clock) -> None:
    """0.25 s, then 0.5, 1, 2, and 2 again."""
    open_unattended(breaker)
    for pause in (0.25, 0.5, 1.0, 2.0, 2.0):
        clock.now += pause - 0.01
        assert not breaker.admits()
        clock.now += 0.01
        assert breaker.admits()
        assert not breaker.admits()
        open_unattended(breaker)


def test_pauses_are_drawn_from_half_their_length_up(clock: Clock) -> None:
    """So that processes that lost a tier together do not come back to it together."""
    waits = []
    for drawn in (0.0, 0.5, 1.0):
        breaker = Breaker("redis", EventLog(None), clock, draw=lambda drawn=drawn: drawn)
        breaker.failed(DOWN)
        waits.append(breaker.wait())
    assert waits == [0.125, 0.1875, 0.25]


def test_calls_that_fail_together_count_once(breaker: Breaker, clock: Clock) -> None:
    """Six calls under way when the tier dies do not lengthen the pause, and one of them is to
    see to the probes."""
    assert [breaker.failed(DOWN) for _ in range(6)] == [True, *[False] * 5]
    breaker.left()
    clock.now = 0.25
    assert breaker.admits()


def test_no_call_is_a_probe_while_somebody_probes_aside(breaker: Breaker, clock: Clock) -> None:
    """Unless that is a second late: its loop stands still, say."""
    breaker.failed(DOWN)
    clock.now = 0.25
    assert not breaker.admits()
    assert breaker.claims(2.0)
    clock.now = 2.25 + 0.99
    assert not breaker.admits()
    clock.now = 2.25 + 1.0
    assert breaker.admits()
    assert not breaker.failed(DOWN)


def test_a_call_that_was_the_probe_sees_to_the_next_ones(breaker: Breaker, clock: Clock) -> None:
    """Where the loop that probed has ended."""
    open_unattended(breaker)
    clock.now = 0.25
    assert breaker.admits()
    assert breaker.failed(DOWN)


def test_an_answer_closes_it(breaker: Breaker, clock: Clock) -> None:
    """And the next failure starts with the first pause again."""
    open_unattended(breaker)
    clock.now = 1.0
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.admits()
    open_unattended(breaker)
    clock.now = 1.25
    assert breaker.admits()


def test_a_refusal_is_an_answer_too(breaker: Breaker) -> None:
    """A tier that is full after it was down is tried by each call."""
    breaker.failed(DOWN)
    breaker.refused(FULL)
    assert [breaker.admits() for _ in range(3)] == [True] * 3


def test_each_change_is_told_once(
    breaker: Breaker, clock: Clock, told: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    """Failed, in use again, refusing, in use again: however many calls meet it."""
    for _ in range(3):
        breaker.succeeded("put")
    for _ in range(3):
        breaker.failed(DOWN)
    for _ in range(3):
        breaker.succeeded("put")
    for _ in range(3):
        breaker.refused(FULL, "put")
    clock.now += 2.0
    for _ in range(3):
        breaker.succeeded("put")
    lines = [
        "Redis failed and is used again once it answers: refused",
        "Redis is in use again",
        "Redis refuses what is sent to it: maxmemory",
        "Redis is in use again",
    ]
    assert lines == [record.getMessage() for record in caplog.records]
    assert lines == [str(event) for event in told]
    assert [event.kind for event in told] == ["tier_down", "tier_up", "tier_refuses", "tier_up"]


def test_a_tier_that_takes_some_and_refuses_some_is_told_once(
    breaker: Breaker, clock: Clock, told: list[Event]
) -> None:
    """A full Redis serves reads, and takes small writes between large ones."""
    for _ in range(10):
        breaker.refused(FULL, "put")
        breaker.succeeded("get")
        clock.now += 0.5
        breaker.succeeded("put")
    clock.now += 10.0
    breaker.succeeded("get")
    assert [event.kind for event in told] == ["tier_refuses"]
    breaker.succeeded("put")
    assert [event.kind for event in told] == ["tier_refuses", "tier_up"]


def test_it_remembers_how_the_tier_is_and_since_when(breaker: Breaker, clock: Clock) -> None:
    """What events say is when that began."""
    assert breaker.condition() == Condition("unknown", None, None, False)
    breaker.succeeded()
    clock.now = 5.0
    breaker.succeeded()
    assert breaker.condition() == Condition("up", 1e9, None, False)
    breaker.failed(DOWN)
    clock.now = 6.0
    breaker.failed(DOWN)
    assert breaker.condition() == Condition("down", 1e9 + 5, "refused", True)
    breaker.refused(FULL)
    assert breaker.condition() == Condition("refusing", 1e9 + 6, "maxmemory", False)


class Tier:
    """Fails a few times, then answers."""

    def __init__(self, breaker: Breaker, failures: int) -> None:
        self.breaker = breaker
        self.failures = failures
        self.asked = 0
        self.answered = threading.Event()

    async def ask(self) -> None:
        self.asked += 1
        if self.asked <= self.failures:
            self.breaker.failed(DOWN)
        else:
            self.breaker.succeeded()
            self.answered.set()


def test_a_tier_is_asked_aside_until_it_answers() -> None:
    """No call is needed for it."""
    breaker = Breaker("redis", EventLog(None))
    tier = Tier(breaker, failures=2)
    assert breaker.failed(DOWN)
    probe_aside(breaker, Threads(), tier.ask)
    assert tier.answered.wait(60)
    assert (tier.asked, breaker.is_open) == (3, False)


def test_nobody_asks_for_a_driver_that_is_gone(breaker: Breaker, clock: Clock) -> None:
    """Closed, or dropped without being closed: the next call is the probe."""
    for gone in ("closed", "dropped"):
        aside = InTurn()
        tier: Tier | None = Tier(breaker, failures=9)
        assert tier is not None
        breaker.failed(DOWN)
        probe_aside(breaker, aside, tier.ask)
        if gone == "closed":
            aside.close()
        else:
            tier = None
        clock.now += 2.0
        aside.run()
        assert breaker.admits()
        breaker.succeeded()


class InTurn(Threads):
    """Runs what was started when told to, and pauses for no time."""

    async def pause(self, seconds: float) -> bool:
        return not self._closed.is_set()

    def start(self, work: object) -> None:
        self._work = work

    def run(self) -> None:
        run(self._work)  # type: ignore[arg-type]


def test_a_node_fails_alone(breaker: Breaker, told: list[Event]) -> None:
    """The tier and its other nodes go on; it is said of which node."""
    breaker.part("h:1").failed(DOWN)
    assert [breaker.part("h:1").admits(), breaker.part("h:2").admits(), breaker.admits()] == [
        False,
        True,
        True,
    ]
    assert [(event.kind, event.tier) for event in told] == [("tier_down", "redis node h:1")]
