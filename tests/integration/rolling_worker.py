"""One worker of a rolling deploy: a process that asks and answers on threads that all share.

python -m tests.integration.rolling_worker '{"code": "old", ...}'
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.types import Command

from langgraph_durable_state import DurableSaver, arerun_on_conflict
from langgraph_durable_state.decisions.evolution.steps import StateSchema
from tests.cases import Face, at
from tests.integration.test_dual_write import NEW, OLD, RENAMES

LOGS = {"old": "log", "new": "journal"}


@dataclass(frozen=True)
class Orders:
    """What a worker is told.

    Attributes:
        name: unique; every token it makes begins with it.
        code: ``old`` or ``new``.
        face: ``native`` or ``blocking``.
        threads: how many there are.
        options: of its saver.
        journal: file to write a line to for each token that was acknowledged.
        stop: once this file is there, end.
        life: seconds after which to end in any case.
    """

    name: str
    code: str
    postgres: str
    redis: str
    face: str
    threads: int
    options: Mapping[str, Any]
    journal: str
    stop: str
    life: float


def schema() -> StateSchema:
    """Of the newer code."""
    made = StateSchema(1)
    made.step(0, *RENAMES)
    return made


def opened(orders: Orders) -> DurableSaver:
    newer = {"state_schema": schema(), "dual_write": (0, 1)} if orders.code == "new" else {}
    return DurableSaver(orders.postgres, orders.redis, **(dict(orders.options) | newer))


async def turn(graph: Any, log: str, thread: str, token: str) -> bool:
    """Asks, or answers what waits; whether the token is in the thread's state for good."""
    state = await graph.get_state(at(thread))
    waiting = [each.id for task in state.tasks for each in task.interrupts]
    given = Command(resume=dict.fromkeys(waiting, token)) if waiting else {log: [token]}
    done = await graph.invoke(given, at(thread))
    kept = "__interrupt__" not in done or not waiting
    return kept and any(token in each for each in done[log])


async def live(orders: Orders) -> None:
    saver = opened(orders)
    graph = Face(orders.face)((OLD if orders.code == "old" else NEW)(saver, Counter()))
    dice, count, parent = random.Random(orders.name), 0, os.getppid()
    until, stop = time.monotonic() + orders.life, Path(orders.stop)

    def is_over() -> bool:
        """So it is if the test is gone."""
        return stop.exists() or time.monotonic() > until or os.getppid() != parent

    with Path(orders.journal).open("w", buffering=1) as journal:
        while not is_over():
            count += 1
            thread, token = str(dice.randrange(orders.threads)), f"<{orders.name}.{count}>"
            call = (graph, LOGS[orders.code], thread, token)
            kept = await arerun_on_conflict(lambda call=call: turn(*call), tries=30)
            journal.write(json.dumps([thread, token if kept else None]) + "\n")
    await saver.aclose()


if __name__ == "__main__":
    asyncio.run(live(Orders(**json.loads(sys.argv[1]))))
