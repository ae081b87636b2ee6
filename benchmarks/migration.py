"""What `migrate` costs: many small threads one of whose channels was renamed.

Run it alone, as ``python -m benchmarks.migration``: it starts a Postgres of its own, fills it, and
prints how long it took and how much memory this process then had needed more than before.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from langgraph_durable_state import DurableSaver, embedded
from langgraph_durable_state.evolution import StateSchema, rename_channel

THREADS = 10_000
_EVERY = 0.02
"""Seconds between two looks at this process's memory."""


class State(TypedDict):
    msgs: list[str]


def schema() -> StateSchema:
    made = StateSchema(version=1)
    made.step(0, rename_channel("msgs", "messages"))
    return made


def fill(saver: DurableSaver, threads: int) -> None:
    """Runs a graph of one node on so many threads: three checkpoints each."""
    builder = StateGraph(State)
    builder.add_node("say", lambda state: {"msgs": [*state["msgs"], "answer " * 20]})
    builder.add_edge(START, "say")
    graph: Any = builder.compile(checkpointer=saver)

    def run(n: int) -> None:
        graph.invoke({"msgs": ["question " * 20]}, {"configurable": {"thread_id": f"t{n}"}})

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(run, range(threads)):
            pass


@contextmanager
def peak() -> Iterator[Callable[[], int]]:
    """Tells the most bytes that this process held above what it held at first."""
    process, done = psutil.Process(), threading.Event()
    first = most = process.memory_info().rss

    def look() -> None:
        nonlocal most
        while not done.wait(_EVERY):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield lambda: most - first
    finally:
        done.set()
        watcher.join()


def main() -> int:
    """Measures once; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.migration", description=__doc__)
    parser.add_argument("--threads", type=int, default=THREADS)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        embedded.start(Path(directory) / "servers") as servers,
    ):
        with DurableSaver(servers.postgres) as old:
            fill(old, asked.threads)
        with DurableSaver(servers.postgres, state_schema=schema()) as saver:
            saver.migrate(["t0"])  # what is made once
            for what in ("migrated", "again, nothing to do"):
                with peak() as told:
                    began = perf_counter()
                    report = saver.migrate()
                    taken = perf_counter() - began
                each = 1000 * taken / report.threads
                print(
                    f"{what}: {report.threads:,} threads in {taken:.1f} s, {each:.2f} ms each,"
                    f" {told() / 2**20:.0f} MiB more at most"
                )
                assert report
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
