"""When a statement is tried again: at once where that is the remedy, else after a drawn pause."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import errors

from langgraph_durable_state import DurableStateError, UnavailableError, UsageError
from langgraph_durable_state.drivers.blocking import run
from langgraph_durable_state.drivers.breaker import Breaker
from langgraph_durable_state.drivers.events import EventLog
from langgraph_durable_state.drivers.sql import RETRIES_ON_RACE, PooledSql

MOST = 3
Answer = Callable[[Any], Any]


class Pool:
    """Implements `Connections`: each statement meets the next of the `answers`, the last one for
    ever after."""

    own = True
    most = MOST

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.out = 0
        self.asked = 0

    async def borrow(self, timeout: float) -> Any:
        self.out += 1
        return SimpleNamespace(closed=False, durable_state_prepares=True)

    async def give_back(self, connection: Any) -> None:
        self.out -= 1

    async def close_one(self, connection: Any) -> None:
        connection.closed = True

    async def ask(self, connection: Any, *statement: Any) -> list[tuple[Any, ...]]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        answer(connection)
        return [(True,)]


class Pauses:
    """Implements `Aside`: keeps pauses, and waits for none."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.held: list[int] = []
        self.pool: Pool | None = None

    async def pause(self, seconds: float) -> bool:
        assert self.pool is not None
        self.pauses.append(seconds)
        self.held.append(self.pool.out)
        return True

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()


def fine(connection: Any) -> None:
    pass


def races(connection: Any) -> None:
    raise errors.DeadlockDetected("somebody else goes first")


def is_dead(connection: Any) -> None:
    connection.closed = True
    raise psycopg.OperationalError("server closed the connection unexpectedly")


def lacks_tables(connection: Any) -> None:
    raise errors.UndefinedTable("relation does not exist")


def asked_of(
    *answers: Answer, timeout: float = 5.0, installed: bool = True
) -> tuple[Pool, Pauses, PooledSql]:
    pool, pauses = Pool(*answers), Pauses()
    pauses.pool = pool
    breaker = Breaker("postgres", EventLog(None))
    told = breaker, pauses, lambda: installed
    return pool, pauses, PooledSql(pool, "durable_state", timeout, *told)


@pytest.mark.parametrize(("installed", "error"), [(True, UsageError), (False, UnavailableError)])
def test_tables_that_are_still_to_be_installed_are_an_outage(
    installed: bool, error: type[Exception]
) -> None:
    """Postgres was down when they were to be; otherwise somebody has to install them."""
    _, _, sql = asked_of(lacks_tables, installed=installed)
    with pytest.raises(error):
        run(sql.ping())


def test_races_are_tried_again_after_growing_pauses() -> None:
    """Each at random, so that those who met do not meet again; no connection is held meanwhile."""
    pool, pauses, sql = asked_of(races, races, races, fine)
    run(sql.ping())
    assert (pool.asked, len(pauses.pauses)) == (4, 3)
    assert all(0 < p < 0.01 * 2**n for n, p in enumerate(pauses.pauses))
    assert pauses.held == [0, 0, 0]


def test_races_without_end_are_given_up() -> None:
    """After five more tries."""
    pool, _, sql = asked_of(races)
    with pytest.raises(DurableStateError):
        run(sql.ping())
    assert (pool.asked, pool.out) == (1 + RETRIES_ON_RACE, 0)


def test_dead_connections_are_replaced_at_once() -> None:
    """As many as a pool can have held."""
    pool, pauses, sql = asked_of(*[is_dead] * MOST, fine)
    run(sql.ping())
    assert (pool.asked, pauses.pauses) == (MOST + 1, [])


def test_a_server_that_ends_every_session_is_not_stormed() -> None:
    """From then on there is a pause before each."""
    _, pauses, sql = asked_of(*[is_dead] * (MOST + 4), fine)
    run(sql.ping())
    assert len(pauses.pauses) == 4
    assert all(0 < pause < 0.1 for pause in pauses.pauses)
    assert pauses.held == [0] * 4
