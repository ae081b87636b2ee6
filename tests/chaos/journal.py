"""What the workers note of each operation: before it begins and as soon as it was answered.

A line is in the file once `write` returned, so a SIGKILL loses at most the answer of operations
that were under way: of those nobody can tell what became of them. Times are those of the clock
that all processes of a machine share.
"""

from __future__ import annotations

import itertools
import json
import math
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from langgraph_durable_state import ConflictError, StateLostError, UnavailableError
from langgraph_durable_state import Event as Told
from tests.chaos.state import place_named

DONE, CONFLICT, UNKNOWN = "done", "conflict", "unknown"
"""Acknowledged; refused with a conflict; or nobody was told what became of it."""

LOST = "lost"
"""Nothing was done, since the saver says that state was lost."""


@dataclass(frozen=True)
class Op:
    """One call of the saver.

    Attributes:
        worker: who made it: the name of its journal.
        kind: ``put``, ``writes`` (of a task), ``head``, ``one`` (by id) or ``list``.
        place: where; see `state`.
        start, end: seconds; `end` is infinite if it was never answered.
        outcome: `DONE`, `CONFLICT`, `UNKNOWN` or `LOST`.
        policy: the worker's options.
        facts: what the kind needs; see `checker`.
    """

    worker: str
    kind: str
    place: str
    start: float
    end: float = math.inf
    outcome: str = UNKNOWN
    policy: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.facts.get(name)


@dataclass(frozen=True)
class Event:
    """What a saver's observer was told.

    Attributes:
        worker: whose.
        kind: as the saver's event has it.
        place: where; empty if it concerns a tier.
        time: seconds, of the clock of all ops.
        id: of the checkpoint concerned; of a ``state_lost`` the last durable one.
        detail: in words.
    """

    worker: str
    kind: str
    place: str
    time: float
    id: str | None = None
    detail: str = ""


@dataclass
class History:
    """What all workers noted.

    Attributes:
        ops, events: in no order.
        findings: what a worker itself saw that must not be.
        wipes: when Redis was made to forget.
        deaths: when each worker was killed, by its name.
    """

    ops: list[Op] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    wipes: list[float] = field(default_factory=list)
    deaths: dict[str, float] = field(default_factory=dict)

    def at(self, place: str) -> History:
        """The part of one place."""
        ops = [op for op in self.ops if op.place == place]
        events = [event for event in self.events if event.place == place]
        return replace(self, ops=ops, events=events)


class Journal:
    """One worker's.

    Args:
        path: of the file; must not be there yet.
        policy: the worker's options, noted first.
    """

    def __init__(self, path: Path, policy: Mapping[str, Any]) -> None:
        self._file = path.open("x", encoding="utf-8", buffering=1)  # a line is written at once
        self._numbers = itertools.count()
        self._write(policy=dict(policy))

    async def call(
        self,
        kind: str,
        place: str,
        work: Callable[[], Awaitable[Any]],
        read: Callable[[Any], Mapping[str, Any]] = lambda result: {},
        **facts: Any,
    ) -> tuple[str, Any]:
        """Makes a call of the saver; its outcome, and what it returned.

        Args:
            kind, place, facts: see `Op`.
            work: makes the call.
            read: more facts, from what it returned.
        """
        n = next(self._numbers)
        self._write(n=n, kind=kind, place=place, start=time.monotonic(), **facts)
        try:
            result = await work()
            end = time.monotonic()
            self._write(n=n, outcome=DONE, end=end, **read(result))
            return DONE, result
        except ConflictError as error:
            told = {"expected": error.expected, "actual": error.actual, "refused": error.refused}
            self._write(n=n, outcome=CONFLICT, end=time.monotonic(), **told)
            return CONFLICT, None
        except StateLostError as error:
            self._write(n=n, outcome=LOST, end=time.monotonic(), said=str(error))
            return LOST, None
        except UnavailableError as error:
            self._write(n=n, outcome=UNKNOWN, tier=error.tier, said=str(error)[:200])
            return UNKNOWN, None
        except Exception:
            self.finding(f"place {place}: {kind} failed: {facts}\n{traceback.format_exc()}")
            return UNKNOWN, None

    def finding(self, text: str) -> None:
        """Notes what must not be."""
        self._write(finding=text)

    def observe(self, event: Told) -> None:
        """Notes what the saver's observer was told."""
        place = "" if event.thread is None else place_named(event.thread, event.namespace or "")
        told = {
            "kind": event.kind,
            "place": place,
            "id": event.checkpoint,
            "detail": event.detail[:200],
        }
        self._write(event=told, time=time.monotonic())
        if event.kind == "flush_failed":
            self.finding(f"place {place}: {event}")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")


def read_journals(paths: Iterable[Path]) -> History:
    """What the workers that wrote these files have seen, whether they ended or were killed."""
    history = History()
    for path in paths:
        _read(path, history)
    return history


def _read(path: Path, history: History) -> None:
    begun: dict[int, dict[str, Any]] = {}
    policy: Mapping[str, Any] = {}
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not text.endswith("\n"):
            break  # it was killed in the middle of a line
        line = json.loads(text)
        if "n" in line:
            begun.setdefault(line["n"], {}).update(line)
        elif "event" in line:
            told = line["event"]
            history.events.append(Event(path.stem, time=line["time"], **told))
        elif "finding" in line:
            history.findings.append(f"{path.stem}: {line['finding']}")
        else:
            policy = line["policy"]
    history.ops += [_op(path.stem, policy, line) for line in begun.values()]


def _op(worker: str, policy: Mapping[str, Any], line: dict[str, Any]) -> Op:
    names = ("kind", "place", "start", "end", "outcome")
    known = {name: line.pop(name) for name in names if name in line}
    return Op(worker, policy=policy, facts=line, **known)
