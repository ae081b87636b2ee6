"""Runs every interleaving of a few tasks, and in each at most one crash, anywhere.

A task is a coroutine over the memory driver. It runs until it comes to a switch point, and a
schedule says who goes on from there: ``1`` task 1 goes on; ``1x`` task 1 stops for ever where it
is; ``1f`` the step that task 1 stands before fails, or its answer is lost. The schedules are
enumerated depth first, each run from the beginning, so one that fails is a string to run again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from langgraph_durable_state.drivers.memory_hot import HOT
from langgraph_durable_state.drivers.memory_world import AFTER, World, go_on
from langgraph_durable_state.errors import UnavailableError

BEGIN = "begin"


@types.coroutine
def switch(name: str) -> Generator[str, None, None]:
    """The switch point of an explored world."""
    yield name


class Task:
    """One coroutine, and how far it has come.

    Attributes:
        at: the switch point it stands at; None once it has ended.
        result, error: how it ended.
        crashed: it was stopped for ever.
    """

    def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
        self._coro = coro
        self.at: str | None = BEGIN
        self.result: Any = None
        self.error: Exception | None = None
        self.crashed = False

    @property
    def live(self) -> bool:
        return self.at is not None and not self.crashed

    @property
    def done(self) -> bool:
        """It came to its end, without an error."""
        return self.at is None and self.error is None

    def go(self, failure: Exception | None = None) -> None:
        try:
            self.at = self._coro.throw(failure) if failure else self._coro.send(None)
        except StopIteration as end:
            self.at, self.result = None, end.value
        except Exception as error:
            self.at, self.error = None, error

    def close(self) -> None:
        self._coro.close()


class Scenario:
    """What to explore. One object is made for each schedule.

    Attributes:
        crashes: how many tasks may be stopped for ever.
        failures: how many steps may fail.
        apart: the tasks share nothing but the stores, as in different processes. Then whoever has
            its answer may as well go on to its next step: fewer schedules, none of them missed.
    """

    crashes = 1
    failures = 0
    apart = False

    def __init__(self) -> None:
        self.world = World()

    def begin(self) -> Sequence[Coroutine[Any, Any, Any]]:
        """Fills the stores, and makes the tasks."""
        raise NotImplementedError

    def may_fail(self, point: str) -> bool:
        """Whether the step at this switch point may fail."""
        return True

    def check(self, *tasks: Task) -> None:
        """What must hold at the end; reads the stores afresh."""
        raise NotImplementedError


class FoundError(AssertionError):
    """A schedule after which something does not hold."""

    def __init__(self, schedule: str, trace: Sequence[str], reason: BaseException) -> None:
        steps = "\n  ".join(trace)
        super().__init__(f'replay(..., "{schedule}"): {reason!r}\n  {steps}')
        self.schedule = schedule


class _Run:
    """One schedule under way."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._tasks = [Task(coro) for coro in scenario.begin()]
        self._crashes = scenario.crashes
        self._failures = scenario.failures
        self._last: int | None = None
        self.taken: list[str] = []
        self.trace: list[str] = []
        scenario.world.step = switch
        if scenario.apart:
            for task in self._tasks:
                task.go()

    def options(self) -> list[str]:
        """How the schedule may go on; none at its end."""
        last = self._last
        if self._scenario.apart and last is not None and self._answered(last):
            who = [last]
        else:
            who = [i for i, task in enumerate(self._tasks) if task.live]
        out = [str(i) for i in who]
        if self._crashes:
            # Where a task crashes is all that matters, not when: at once, or before anything.
            out += [f"{i}x" for i in who if i == last or last is None]
        if self._failures:
            out += [f"{i}f" for i in who if self._fails(i)]
        return out

    def _answered(self, i: int) -> bool:
        at = self._tasks[i].at
        return self._tasks[i].live and at is not None and at.endswith(AFTER)

    def _fails(self, i: int) -> bool:
        at = self._tasks[i].at
        return at is not None and at != BEGIN and self._scenario.may_fail(at)

    def take(self, token: str) -> None:
        i = int(token.rstrip("xf"))
        task = self._tasks[i]
        self.taken.append(token)
        self.trace.append(f"{token}: {task.at}")
        if token.endswith("x"):
            self._crashes -= 1
            task.crashed = True
        elif token.endswith("f"):
            self._failures -= 1
            hot = (task.at or "").startswith(HOT)
            task.go(UnavailableError("redis" if hot else "postgres", "the explorer says so"))
        else:
            task.go()
        self._last = i

    def finish(self) -> None:
        """Checks what must hold.

        Raises:
            FoundError: if it does not.
        """
        self._scenario.world.step = go_on
        try:
            self._scenario.check(*self._tasks)
        except Exception as reason:
            raise FoundError(",".join(self.taken), self.trace, reason) from reason

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *error: object) -> None:
        for task in self._tasks:
            task.close()


def explore(scenario: Callable[[], Scenario]) -> int:
    """Runs every schedule of a scenario; how many there were.

    Raises:
        FoundError: at the first schedule after which something does not hold.
    """
    path: list[int] = []
    count = 0
    while True:
        widths: list[int] = []
        with _Run(scenario()) as run:
            while options := run.options():
                if len(widths) == len(path):
                    path.append(0)
                run.take(options[path[len(widths)]])
                widths.append(len(options))
            run.finish()
        count += 1
        while path and path[-1] + 1 == widths[len(path) - 1]:
            path.pop()
        if not path:
            return count
        path[-1] += 1


def replay(scenario: Callable[[], Scenario], schedule: str) -> None:
    """Runs one schedule again; in one written by hand ``1*`` is task 1 to its end.

    Raises:
        FoundError: if something does not hold after it.
    """
    with _Run(scenario()) as run:
        for token in schedule.split(","):
            if token.endswith("*"):
                while token[:-1] in run.options():
                    run.take(token[:-1])
                continue
            if token not in run.options():
                raise ValueError(f"{token!r} cannot follow {run.taken}: {run.options()}")
            run.take(token)
        run.finish()
