"""The benchmarks' command: starts servers of its own, measures, reports, and stops them.

Run it as ``python -m benchmarks`` or ``python benchmarks/bench.py``.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the packages are found from the directory above
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import psycopg

from benchmarks import chat, floors, outage, report
from benchmarks.figures import Figure, Outage, Results, figures
from benchmarks.rounds import Samples, interleaved
from benchmarks.subjects import BLOCKING, NATIVE, Kind, Subject, site
from benchmarks.workloads import ALL, SIZES, Size, Workload
from langgraph_durable_state import embedded

_PACKAGES = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-postgres", "psycopg")
_TURNS, _QUICK_TURNS = 500, 60
_AWAY, _QUICK_AWAY = 10.0, 1.0
"""Seconds of an outage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments ask for; the exit code."""
    asked = _parser().parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        servers = stack.enter_context(embedded.start(directory / "servers"))
        results = Bench(asked, servers.servers, directory).run()
    if asked.json:
        Path(asked.json).write_text(report.as_json(results) + "\n")
    report.show(results, shutil.get_terminal_size((170, 40)).columns)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer samples")
    parser.add_argument("--native", action="store_true", help="the native (async) savers, too")
    parser.add_argument("--turns", type=int, help="turns of the chat (500; 60 with --quick)")
    parser.add_argument("--rounds", type=int, help="samples of everything but the chat")
    parser.add_argument(
        "--only", metavar="PATTERN", help="only rows that match this regular expression"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file as well")
    return parser


@dataclass(frozen=True)
class Job:
    """Some rows to be measured.

    Attributes:
        label: tells what is measured.
        rounds, cases: how many samples that will be.
        run: measures, and calls its argument after each sample.
    """

    label: str
    rounds: int
    cases: int
    run: Callable[[Callable[[], None]], None]


class Bench:
    """One run of the benchmarks.

    Args:
        asked: the command's arguments.
        servers: running, with nothing in them.
        directory: for SQLite's files.
    """

    def __init__(self, asked: Any, servers: embedded.Servers, directory: Path) -> None:
        self._asked = asked
        self._servers = servers
        self._directory = directory
        self._kinds: tuple[Kind, ...] = BLOCKING + (NATIVE if asked.native else ())
        self._peers = {kind.name: kind.peer for kind in self._kinds}
        self._turns: int = asked.turns or (_QUICK_TURNS if asked.quick else _TURNS)
        self._rows: list[Figure] = []
        self._floors: list[Figure] = []
        self._stored: list[chat.Stored] = []
        self._away: list[Outage] = []

    def run(self) -> Results:
        with self._subjects("sizes") as subjects:
            self._work_through([*self._sized(subjects)])
        with self._subjects("chat") as subjects:
            self._work_through([*self._chatty(subjects)])
        self._work_through([*self._outages()])
        return Results(self._about(), self._rows, self._floors, self._stored, self._away)

    def _work_through(self, jobs: Sequence[Job]) -> None:
        asked = re.compile(self._asked.only or "")
        jobs = [job for job in jobs if asked.search(job.label)]
        with report.progress(sum(job.rounds * job.cases for job in jobs)) as step:
            for job in jobs:
                step(job.label, 0)
                job.run(partial(step, job.label, 1))

    @contextmanager
    def _subjects(self, purpose: str) -> Iterator[list[Subject]]:
        """All subjects, each with an empty database of its own."""
        with ExitStack() as stack:
            yield [
                Subject(kind, site(self._servers, self._directory, f"{purpose}_{i}"), stack)
                for i, kind in enumerate(self._kinds)
            ]

    # -- at each size ------------------------------------------------------------------------

    def _sized(self, subjects: Sequence[Subject]) -> Iterator[Job]:
        for kind in ALL:
            for size in SIZES:
                if kind.only is None or size.name in kind.only:
                    rounds = self._rounds(size, kind.share)
                    run = partial(self._workload, kind, size, rounds, subjects)
                    yield Job(f"{kind.name}, {size.name}", rounds, len(subjects), run)
        for size in SIZES:
            rounds = self._rounds(size)
            yield Job(f"floor, {size.name}", rounds, 5, partial(self._floor, size, rounds))

    def _rounds(self, size: Size, share: float = 1.0) -> int:
        if self._asked.rounds:
            return int(self._asked.rounds)
        return max(2, round((size.quick if self._asked.quick else size.rounds) * share))

    def _workload(
        self,
        kind: type[Workload],
        size: Size,
        rounds: int,
        subjects: Sequence[Subject],
        tick: Callable[[], None],
    ) -> None:
        cases = {subject.name: kind(subject, size).once for subject in subjects}
        samples = interleaved(cases, rounds, min(2, rounds), tick)
        self._rows += figures(kind.name, size.name, samples, self._peers)

    def _floor(self, size: Size, rounds: int, tick: Callable[[], None]) -> None:
        with ExitStack() as stack:
            place = site(self._servers, self._directory, f"floor_{size.bytes}")
            cases = floors.cases(place, size, stack)
            samples = interleaved(cases, rounds, min(2, rounds), tick)
        self._floors += figures("floor", size.name, samples, {})

    # -- along a chat ------------------------------------------------------------------------

    def _chatty(self, subjects: Sequence[Subject]) -> Iterator[Job]:
        label = f"chat, {self._turns} turns"
        yield Job(label, self._turns, len(subjects), partial(self._chat, subjects))

    def _chat(self, subjects: Sequence[Subject], tick: Callable[[], None]) -> None:
        chats = {subject.name: chat.Chat(subject, self._turns) for subject in subjects}
        turns = interleaved({n: c.turn for n, c in chats.items()}, self._turns, 0, tick)
        edge = min(chat.EDGE, self._turns)
        first = {name: taken[:edge] for name, taken in turns.items()}
        last = {name: taken[-edge:] for name, taken in turns.items()}
        self._add("chat turn", f"1 to {edge}", first)
        self._add("chat turn", f"{self._turns - edge + 1} to {self._turns}", last)
        self._after(chats)
        self._stored += [found for c in chats.values() for found in c.stored()]

    def _after(self, chats: Mapping[str, chat.Chat]) -> None:
        after = {name: c.after() for name, c in chats.items()}
        rounds = self._asked.rounds or (5 if self._asked.quick else 20)
        for label, verb in (
            ("get of the head, warm", chat.After.get_warm),
            ("get of the head, cold", chat.After.get_cold),
            ("list(20)", chat.After.list),
            ("put, one message more", chat.After.put),
        ):
            cases = {name: partial(verb, a) for name, a in after.items()}
            samples = interleaved(cases, rounds, 1, lambda: None)
            self._add(label, f"after {self._turns} turns", samples)

    def _add(self, workload: str, size: str, samples: Samples) -> None:
        self._rows += figures(workload, size, samples, self._peers)

    # -- with a tier away --------------------------------------------------------------------

    def _outages(self) -> Iterator[Job]:
        rounds = self._asked.rounds or (25 if self._asked.quick else 1000)
        for tier, measure, cases in (
            ("Redis", outage.of_redis, 6),
            ("Postgres", outage.of_postgres, 2),
        ):
            run = partial(self._outage, tier, measure, rounds)
            yield Job(f"outage of {tier}", rounds, cases, run)

    def _outage(
        self,
        tier: str,
        measure: Callable[..., Iterator[Outage]],
        rounds: int,
        tick: Callable[[], None],
    ) -> None:
        seconds = _QUICK_AWAY if self._asked.quick else _AWAY
        with outage.stage(self._directory / tier) as stage:
            self._away += measure(stage, rounds, seconds, tick)

    def _about(self) -> dict[str, str | int]:
        with psycopg.connect(self._servers.postgres) as connection:
            postgres = connection.info.parameter_status("server_version") or "?"
        versions = {name: _version(name) for name in _PACKAGES}
        python = platform.python_version()
        return {"turns": self._turns, "Python": python, "Postgres": postgres, **versions}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


if __name__ == "__main__":
    raise SystemExit(main())
