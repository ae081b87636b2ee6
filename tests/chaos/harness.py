"""One run of chaos: servers, proxies, workers, faults, and the proof afterwards."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.chaos import checker, faults
from tests.chaos.checker import Finding
from tests.chaos.crew import Crew
from tests.chaos.journal import CONFLICT, DONE, LOST, UNKNOWN, History, Op
from tests.chaos.readback import Readers, settle
from tests.chaos.state import PLACES, THREADS
from tests.servers import PostgresServer, Proxy, ValkeyServer

SHORT = {"timeout": 2.0, "redis_timeout": 0.3}
"""Of every saver: shorter waits than by default, so that more happens."""

SECURED: Mapping[str, Any] = {"write_policy": "write_behind", "wait_aof": (1, 0)}
"""Writes behind, and what it acknowledges is on the disk of Redis."""


@dataclass(frozen=True)
class Mode:
    """What workers are told and what may happen to them.

    Attributes:
        name: for the report.
        policies: options for every two workers, one on each face.
        forgets: whether Redis is made to forget what it has acknowledged. If not, nothing may be
            lost, set back or put aside, whatever the policy.
    """

    name: str
    policies: Sequence[Mapping[str, Any]]
    forgets: bool


THROUGH = Mode(
    "write-through",
    (
        {},
        {"hot_reads": "always"},
        {"hot_reads": "always", "head_cache_bytes": 0},
        {"compression": "none", "touch_on_read": True},
    ),
    forgets=True,
)
"""Redis may forget what it likes: nothing is its alone."""

STRICT = Mode(
    "strict",
    (
        {"hot_reads": "always"},
        {**SECURED, "when_durable_down": "raise"},
        {"head_cache_bytes": 0, "compression": "none", "touch_on_read": True},
        {**SECURED, "when_durable_down": "raise", "head_cache_bytes": 0},
    ),
    forgets=False,
)

LOSSY = Mode(
    "lossy",
    (
        {"hot_reads": "always"},
        {"when_durable_down": "queue"},
        {"write_policy": "write_behind", "on_hot_lost": "accept"},
        SECURED,
    ),
    forgets=True,
)
"""What each policy may do then is for the checker to say."""

END_SECONDS = 60.0
"""For workers to end once all is healed: an answer that was lost takes a few seconds."""

MOST_FINDINGS = 20

MOST_LINES = 40
"""Of the journals, beside each finding."""


LOUD = ("state_lost", "branch_kept", "hot_discarded")


@dataclass(frozen=True)
class Plan:
    """What to do.

    Attributes:
        seconds: of faults.
        seed: of their order.
        mode: see `Mode`.
        workers: how many.
    """

    seconds: float
    seed: int
    mode: Mode
    workers: int = 8


@dataclass
class Report:
    """What was done and what was found."""

    plan: Plan
    faults: Mapping[str, int] = field(default_factory=dict)
    acknowledged: Mapping[str, int] = field(default_factory=dict)
    not_answered: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, int] = field(default_factory=dict)
    stored: int = 0
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        plan = self.plan
        rows = [
            f"{plan.seconds:g} s of {plan.mode.name} chaos, seed {plan.seed}: "
            f"{plan.workers} workers over "
            f"{THREADS} threads, {self.stored} checkpoints stored",
            _row("faults", self.faults),
            _row("acknowledged", self.acknowledged),
            _row("not answered", self.not_answered),
            _row("reported by savers", self.told),
            f"  findings: {len(self.findings)}",
            *self.findings[:MOST_FINDINGS],
        ]
        return "\n".join(rows)


def _row(what: str, counts: Mapping[str, int]) -> str:
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"  {what}: {sum(counts.values())} ({each})"


def run(plan: Plan, directory: Path, template: Path) -> Report:
    """Makes the chaos of a plan and proves what must hold.

    Args:
        plan: what to do.
        directory: for all files; everything that is started ends before this returns.
        template: a Postgres cluster to copy.
    """
    with ExitStack() as ends:
        settings = {"max_connections": "300", "max_wal_size": "128MB"}
        postgres = ends.enter_context(PostgresServer(directory / "postgres", template, settings))
        # It keeps what it has, so that after a kill it comes back with copies that are old by then.
        kept = {"appendonly": "yes", "appendfsync": "always"}
        valkey = ends.enter_context(ValkeyServer(directory / "valkey", kept))
        links = [
            (ends.enter_context(Proxy(postgres.url)), ends.enter_context(Proxy(valkey.url)))
            for _ in range(plan.workers)
        ]
        policies = [{**SHORT, **policy} for policy in plan.mode.policies]
        crew = Crew(directory, links, policies, plan.seed, plan.seconds + 2 * END_SECONDS)
        ends.callback(crew.close)
        report = Report(plan)
        wipes = _harm(report, postgres, valkey, links, crew)
        crew.finish(END_SECONDS)
        settle(postgres.url, valkey.url, directory / "end.jsonl")
        history = replace(crew.history(), wipes=wipes)
        with closing(Readers(postgres.url, valkey.url)) as readers:
            _prove(history, readers, report)
    return report


def _harm(
    report: Report,
    postgres: PostgresServer,
    valkey: ValkeyServer,
    links: Sequence[tuple[Proxy, Proxy]],
    crew: Crew,
) -> list[float]:
    """Starts the workers, and does harm for as long as planned; when Redis was made to forget."""
    plan, over = report.plan, threading.Event()
    for slot in range(plan.workers):
        crew.start(slot)
    on_redis = faults.OnRedis(valkey, f"{plan.seed} redis", over, forgets=plan.mode.forgets)
    hands = [
        faults.OnPostgres(postgres, f"{plan.seed} postgres", over),
        on_redis,
        faults.OnWorkers(crew, f"{plan.seed} workers", over),
        faults.OnNetwork(links, f"{plan.seed} network", over),
    ]
    faults.do_harm(hands, over, plan.seconds)
    report.faults = faults.counts_of(hands)
    return on_redis.wipes


def _count(history: History, report: Report) -> None:
    report.acknowledged = Counter(_kind(op) for op in history.ops if op.outcome == DONE)
    report.acknowledged += Counter("conflict" for op in history.ops if op.outcome == CONFLICT)
    report.not_answered = Counter(_kind(op) for op in history.ops if op.outcome == UNKNOWN)
    report.told = Counter(event.kind for event in history.events)
    report.told += Counter("StateLostError" for op in history.ops if op.outcome == LOST)


def _kind(op: Op) -> str:
    names = {"head": "head read", "one": "read by id", "list": "history read"}
    if op.kind == "put" and not op["guarded"]:
        return "put on a fork"
    return names.get(op.kind, op.kind)


def _prove(history: History, readers: Readers, report: Report) -> None:
    _count(history, report)
    rule = checker.rule_of if report.plan.mode.forgets else checker.strictly
    if not report.plan.mode.forgets:
        report.findings += _reported(history)
    report.findings += dict.fromkeys(history.findings)  # many read the same
    for place in PLACES:
        here = history.at(place)
        try:
            stored = readers.read(place, {op["refused"] for op in here.ops} - {None})
        except Exception:
            report.findings.append(f"place {place} cannot be read:\n{traceback.format_exc()}")
            continue
        report.stored += len(stored.line)
        for finding in checker.check(here, stored, rule):
            lines = _lines(here, finding)
            report.findings.append(f"place {place}: {finding.what}\n{lines}")


def _reported(history: History) -> list[str]:
    """Where a saver says that something was lost, set back or put aside, though nothing was."""
    wrong = ("state_lost", "branch_kept", "hot_discarded", "queued")
    told = [f"{event}" for event in history.events if event.kind in wrong]
    return told + [f"{op}" for op in history.ops if op.outcome == LOST]


def _lines(history: History, finding: Finding) -> str:
    """What the journals say of the ids of a finding."""
    ids = {id for id in finding.ids if id is not None}
    about = [
        op
        for op in history.ops
        if ids & {op["id"], op["parent"], op["actual"], *(op["seen"] or [])[:1]}
    ]
    about.sort(key=lambda op: op.start)
    rows = [f"    {event}" for event in history.events if event.kind in LOUD][-MOST_LINES:]
    rows += [
        f"    {op.start:.4f} to {op.end:.4f} {op.worker} {op.kind} {op.outcome} {dict(op.facts)}"
        for op in about[:MOST_LINES]
    ]
    return "\n".join(rows)
