"""Events: a line of the log each, and an observer that can do no harm."""

from __future__ import annotations

import logging
from typing import Any, get_args

import pytest

from langgraph_durable_state import DurableSaver, Event, UsageError
from langgraph_durable_state.decisions.keys import place_of
from langgraph_durable_state.drivers.events import EventLog
from langgraph_durable_state.events import Kind

HERE = place_of({"configurable": {"thread_id": "t", "checkpoint_ns": "s", "tenant_id": "acme"}})


def test_an_event_says_what_happened_where_and_when() -> None:
    """All that was told is in its fields."""
    told: list[Event] = []
    log = EventLog(told.append, clock=lambda: 12.5)
    log.emit("branch_kept", "a flush met it", place=HERE, checkpoint="c", head="h")
    log.emit("tier_down", "refused", tier="redis", at=7.0)
    assert told == [
        Event("branch_kept", 12.5, "a flush met it", None, "acme", "t", "s", "c", "h"),
        Event("tier_down", 7.0, "refused", "redis"),
    ]


def test_every_kind_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a server says; and it names the thread and the checkpoint."""
    log = EventLog(None)
    with caplog.at_level(logging.DEBUG, logger="langgraph_durable_state"):
        for kind in get_args(Kind):
            log.emit(kind, "it said:\n\tno", tier="postgres", place=HERE, checkpoint="c", head="h")
            log.emit(kind)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 * len(get_args(Kind))
    assert [line for line in lines if "\n" in line or line.endswith((":", " "))] == []
    assert all(
        "'t' of tenant 'acme', namespace 's'" in lines[2 * i] for i in range(3, len(lines) // 2)
    )


def test_what_ends_is_as_loud_as_what_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Lost state is an error; what comes with every put of an outage is for debugging."""
    log = EventLog(None)
    with caplog.at_level(logging.DEBUG, logger="langgraph_durable_state"):
        for kind in get_args(Kind):
            log.emit(kind)
    levels = dict(zip(get_args(Kind), (r.levelno for r in caplog.records), strict=True))
    assert levels["tier_down"] == levels["tier_up"] == logging.WARNING
    assert levels["state_lost"] == logging.ERROR
    assert levels["queued"] == logging.DEBUG


def test_an_observer_that_raises_fails_nothing_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is called again all the same."""
    told: list[Event] = []

    def observer(event: Event) -> None:
        told.append(event)
        raise RuntimeError("no route to the pager")

    log = EventLog(observer)
    for _ in range(3):
        log.emit("tier_up", tier="redis")
    failures = [r for r in caplog.records if r.exc_info]
    assert len(told) == 3
    assert len(failures) == 1
    assert "no route to the pager" in caplog.text


async def awaited(event: Event) -> None:
    """Nobody would await it."""


@pytest.mark.parametrize("observer", [awaited, "print", 5])
def test_what_cannot_observe_is_refused(observer: Any) -> None:
    """At once, not at the first outage."""
    with pytest.raises(UsageError, match="observer must be"):
        DurableSaver("", observer=observer)
