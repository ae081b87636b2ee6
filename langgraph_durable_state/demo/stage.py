"""What `durable-state demo` stands on: checks that are printed as they hold, and worker processes.

A check compares what was found with what was expected. The first that fails ends the demo.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any, TypeVar

import redis
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from .worker import Task

T = TypeVar("T")

WIDTH = 100
"""Columns at most: longer lines of text are hard to read."""

WORKER_SECONDS = 60
"""How long a worker may take to end by itself; it takes about one."""


class CheckFailedError(Exception):
    """Something the demo claims did not hold."""

    def __init__(self, fact: str, expected: object, found: object, said: str = "") -> None:
        super().__init__(
            f"{fact}\n  expected: {expected!r}\n  found:    {found!r}\n{said}".rstrip()
        )


class Stage:
    """Where the demo's steps are shown.

    Attributes:
        checks: how many facts were verified.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.checks = 0
        self.width = min(console.width, WIDTH)
        self._steps = 0
        # Where the output cannot hold such a sign, say in the C locale, words do.
        self._tick = "ok" if console.options.ascii_only else "✓"

    def step(self, title: str, story: str) -> None:
        """Opens a step."""
        self._steps += 1
        self.console.print()
        self.console.print(f"[bold cyan]{self._steps}. {escape(title)}[/]")
        self._paragraph("   ", "   ", Text(story, style="dim"))

    def equal(self, fact: str, found: T, expected: T) -> None:
        """Verifies that `found` is what was expected, and prints the fact."""
        if found != expected:
            raise CheckFailedError(fact, expected, found)
        self._passed(fact)

    def holds(self, fact: str, holds: bool, found: object, expected: str) -> None:
        """Verifies a condition, of which `found` is what was measured, and prints the fact."""
        if not holds:
            raise CheckFailedError(fact, expected, found)
        self._passed(fact)

    def _passed(self, fact: str) -> None:
        self.checks += 1
        indent = " " * len(self._tick)
        self._paragraph(f"   [green]{self._tick}[/] ", f"   {indent} ", Text.from_markup(fact))

    def _paragraph(self, first: str, rest: str, text: Text) -> None:
        # Wrapped here: rich's own padding fills lines with blanks, which copied text would hold.
        width = self.width - len(rest)
        for number, line in enumerate(text.wrap(self.console, width)):
            line.rstrip()
            self.console.print(Text.from_markup(rest if number else first) + line)

    def show(self, what: Any) -> None:
        """Prints a table or a tree."""
        self.console.print()
        self.console.print(Padding(what, (0, 0, 0, 3), expand=False), width=self.width)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Says what is going on, as long as it goes on, if somebody watches."""
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(f"[dim]{escape(what)}[/]"):
            yield


class Worker:
    """A worker process; at the end of the `with` it is gone, whatever happened."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._errors = TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "langgraph_durable_state.demo.worker", task.argument()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo alone, which then ends its workers
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def until(self, event: str, **facts: object) -> dict[str, Any]:
        """Waits for an event with these facts, and returns it."""
        for found in self._events():
            if found["event"] == event and facts.items() <= found.items():
                return found
        raise self._ended(f"{event} {facts or ''}".strip())

    def until_all(self, events: list[dict[str, Any]]) -> None:
        """Waits until all these events came, in whatever order."""
        missing = list(events)
        for found in self._events():
            if found in missing:
                missing.remove(found)
            if not missing:
                return
        raise self._ended(repr(missing))

    def _events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            yield json.loads(line)

    def _ended(self, expected: str) -> CheckFailedError:
        self._process.wait(WORKER_SECONDS)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        found = f"it ended with {self._process.returncode}"
        return CheckFailedError(f"{self.task.name} reports its progress", expected, found, said)

    def go_on(self) -> None:
        """Lets a worker go on that waits for a line of input."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> int:
        """Kills it with SIGKILL and returns its exit code."""
        self._process.kill()
        return self._process.wait(WORKER_SECONDS)

    def outcome(self) -> dict[str, Any]:
        """Its last event, after it has ended by itself."""
        events = list(self._events())
        if self._process.wait(WORKER_SECONDS) != 0 or not events:
            raise self._ended("an outcome, and exit code 0")
        return events[-1]

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with self._process:  # closes the pipes and collects the process
            self._errors.close()


def kill_redis(url: str) -> int:
    """Kills a Redis server of this machine with SIGKILL and returns what its process id was."""
    with redis.Redis.from_url(url) as client:
        pid = int(client.info("server")["process_id"])
        os.kill(pid, signal.SIGKILL)
    while redis_answers(url):  # the kernel may take a moment
        pass
    return pid


def redis_answers(url: str) -> bool:
    """Whether a Redis server is there."""
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


@contextmanager
def ended_politely() -> Iterator[None]:
    """Makes SIGTERM unwind the stack, so that nothing is left running."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
