"""A rolling deploy under load: three workers with the older code and three with the newer one share
threads, and then the older ones are gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

import langgraph_durable_state
from langgraph_durable_state import DurableSaver
from tests.cases import FACES, at
from tests.integration.rolling_worker import Orders, schema
from tests.integration.test_dual_write import NEW, OLD
from tests.servers import wait_until

ROOT = Path(langgraph_durable_state.__file__).parent.parent
THREADS = 8
END_SECONDS = 60.0
"""Within which each worker's last call ends; it takes a fraction of a second on an idle machine."""

POLICIES = ["write_through", "write_behind"]

CODES = ["old", "old", "old", "new", "new", "new"]


@contextmanager
def crew(orders: list[Orders], directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The workers' processes, which have ended by the end."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for each in orders:
            with (directory / f"{each.name}.said").open("wb") as said:
                running.append(
                    subprocess.Popen(
                        [
                            *(sys.executable, "-m", "tests.integration.rolling_worker"),
                            json.dumps(asdict(each)),
                        ],
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        cwd=ROOT,
                        env=os.environ | {"PYTHONPATH": str(ROOT)},
                    )
                )
        yield running
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()


def finish(each: Orders, process: subprocess.Popen[bytes], directory: Path) -> None:
    """Lets a worker end; it must have met no error."""
    Path(each.stop).touch()
    code = process.wait(timeout=END_SECONDS)
    said = (directory / f"{each.name}.said").read_text(errors="replace")
    assert code == 0, f"{each.name} ended with {code}:\n{said[-4000:]}"


def has_begun(each: Orders) -> bool:
    """Whether a worker has taken a turn."""
    return Path(each.journal).exists() and bool(told(each))


def told(each: Orders) -> list[tuple[str, str | None]]:
    """The threads that a worker took a turn in, and the tokens that it was told are there."""
    whole, _, _ = Path(each.journal).read_text().rpartition("\n")
    return [(thread, token) for thread, token in map(json.loads, whole.splitlines())]


def deploy(postgres: str, redis: str, directory: Path, seconds: float, policies: list[str]) -> None:
    """Old and new code under load for some seconds, then the new one alone, and what is left."""
    options = {"redis_timeout": 20.0, "timeout": 40.0}
    orders = [
        Orders(
            name=f"{code}{n}",
            code=code,
            postgres=postgres,
            redis=redis,
            face=FACES[n % 2],
            threads=THREADS,
            options=options | {"write_policy": policies[n // 2 % len(policies)]},
            journal=str(directory / f"{code}{n}.jsonl"),
            stop=str(directory / f"stop-{code}"),
            life=seconds + 2 * END_SECONDS,
        )
        for n, code in enumerate(CODES)
    ]
    with crew(orders, directory) as running:
        wait_until(lambda: all(map(has_begun, orders)), "a turn of each", seconds=END_SECONDS)
        time.sleep(seconds * 0.8)  # the load's length, not something that is waited for
        pairs = list(zip(orders, running, strict=True))
        for each, process in pairs:
            if each.code == "old":
                finish(each, process, directory)
        time.sleep(seconds * 0.2)
        for each, process in pairs:
            if each.code == "new":
                finish(each, process, directory)
    turns = {each.name: told(each) for each in orders}
    kept = {(thread, token) for each in turns.values() for thread, token in each if token}
    assert kept
    saver = DurableSaver(postgres, redis, **options)
    after = DurableSaver(postgres, redis, state_schema=schema(), **options)
    with saver, after:
        assert saver.verify()
        seen = {str(n): logs_of(saver, after, str(n)) for n in range(THREADS)}
        missing = [
            (thread, token)
            for thread, token in kept
            if not any(token in each for each in seen[thread])
        ]
        assert not missing
        for thread, before in seen.items():
            goes_on(after, thread, before)


def logs_of(saver: DurableSaver, after: DurableSaver, thread: str) -> list[str]:
    """What a thread holds: the same to either code."""
    old = OLD(saver, Counter()).get_state(at(thread))
    new = NEW(after, Counter()).get_state(at(thread))
    assert old.values.get("log") == new.values.get("journal")
    assert len(old.tasks) == len(new.tasks)
    return list(new.values.get("journal") or ())


def goes_on(after: DurableSaver, thread: str, before: list[str]) -> None:
    """What waits is answered, and the thread takes another turn, with dual-write turned off."""
    graph: Any = NEW(after, Counter())
    for _ in range(2):
        state = graph.get_state(at(thread))
        waiting = [each.id for task in state.tasks for each in task.interrupts]
        given = Command(resume=dict.fromkeys(waiting, "end")) if waiting else {"journal": ["more"]}
        graph.invoke(given, at(thread))
    assert set(graph.get_state(at(thread)).values["journal"]) >= set(before)


def test_no_update_is_lost_while_both_versions_are_at_work(
    postgres_url: str, redis_url: str, tmp_path: Path
) -> None:
    """Some workers write through, the others behind."""
    deploy(postgres_url, redis_url, tmp_path, 5, POLICIES)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("policies", [POLICIES, POLICIES[:1], POLICIES[1:]])
def test_nor_in_a_minute(
    postgres_url: str, redis_url: str, tmp_path: Path, policies: list[str]
) -> None:
    deploy(postgres_url, redis_url, tmp_path, 60, policies)
