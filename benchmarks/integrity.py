"""What verification, keys and encryption cost: ``python -m benchmarks.integrity [--rounds N]``.

Everything is interleaved in one run. Savers keep no heads, so that each read fetches, verifies and
decodes all of its state; Redis is left out, and Postgres is on its defaults.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from benchmarks import texts
from benchmarks.rounds import interleaved
from benchmarks.subjects import site
from langgraph_durable_state import DurableSaver, embedded
from langgraph_durable_state.decisions.codec import Record
from langgraph_durable_state.decisions.keys import place_of

PLAIN = "no key"
KINDS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    "integrity_key": {"integrity_key": os.urandom(32)},
    "encryption_key": {"encryption_key": os.urandom(32)},
}
STATES = ("1,000 messages, 1 MB", "one text of 1 MB", "two messages, 2 KB")
CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def value(state: str) -> Any:
    """What the state consists of, and the next message of it."""
    rng = random.Random(1)
    if state.startswith("one"):
        return texts.text(rng, 1 << 20)
    return texts.history(rng, 1 << 20 if "MB" in state else 1 << 11)


@dataclass
class Subject:
    """A saver on a thread with one state.

    Attributes:
        saver: which.
        state: what is put; a list grows by a message at each put.
        config: of the head.
        turn: how often was put.
    """

    saver: DurableSaver
    state: Any
    config: Any
    turn: int = 0

    def put(self) -> float:
        self.turn += 1
        found = self.saver.get_tuple(CONFIG) if self.turn > 1 else None
        checkpoint = empty_checkpoint()
        before = found.checkpoint["channel_versions"] if found is not None else {}
        version = self.saver.get_next_version(before.get("c"), None)  # type: ignore[arg-type]
        checkpoint["channel_versions"] = {"c": version}
        state = found.checkpoint["channel_values"]["c"] if found is not None else self.state
        if isinstance(state, list):
            state = [*state, texts.message(random.Random(self.turn), 600, self.turn)]
        checkpoint["channel_values"] = {"c": state}
        config = found.config if found is not None else CONFIG
        begin = perf_counter()
        metadata: Any = {"source": "loop", "step": self.turn}
        self.saver.put(config, checkpoint, metadata, {"c": version})
        return perf_counter() - begin

    def get(self) -> float:
        begin = perf_counter()
        assert self.saver.get_tuple(CONFIG) is not None
        return perf_counter() - begin

    def verification(self) -> Callable[[], float]:
        """What a read does to verify: the digests of every chunk, unless decryption proves them,
        and of the record."""
        self.saver.get_tuple(CONFIG)
        record = self._record()
        chunks = [c for c in record.chunks().values() if not c.seal.hides]

        def once() -> float:
            begin = perf_counter()
            for chunk in chunks:
                assert chunk.seal.of_bytes(chunk.plain) == chunk.digest
            record.digest()
            return perf_counter() - begin

        return once

    def _record(self) -> Record:
        driver = self.saver._faces._blocking
        assert driver is not None
        reading = driver.durable.read(place_of(CONFIG), None, b"", None)
        try:
            reading.send(None)
        except StopIteration as done:
            found = done.value
        return self.saver._faces._shared.reader.record(place_of(CONFIG), found.row, found.chunks)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=40, help="samples of each")
    rounds = asked.parse_args().rounds
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="integrity-")))
        servers = stack.enter_context(embedded.start(directory / "servers"))
        for i, state in enumerate(STATES):
            subjects = {}
            for j, (name, options) in enumerate(KINDS.items()):
                place = site(servers, directory, f"site_{i}_{j}")
                saver = DurableSaver(place.postgres, head_cache_bytes=0, **options)
                subjects[name] = Subject(stack.enter_context(saver), value(state), CONFIG)
                subjects[name].put()
            report(state, subjects, rounds)
    return 0


def report(state: str, subjects: Mapping[str, Subject], rounds: int) -> None:
    """Measures one state and prints its table."""
    cases: dict[str, Callable[[], float]] = {}
    for name, subject in subjects.items():
        cases[f"get {name}"] = subject.get
        cases[f"verify {name}"] = subject.verification()
    samples = interleaved(cases, rounds, 3, lambda: None)
    puts = {f"put {name}": subject.put for name, subject in subjects.items()}
    samples |= interleaved(puts, rounds, 3, lambda: None)
    median = {name: 1000 * statistics.median(taken) for name, taken in samples.items()}
    print(f"\n{state}\n{'':16}{'get ms':>9}{'ratio':>7}{'verify ms':>11}{'of get':>8}", end="")
    print(f"{'put ms':>9}{'ratio':>7}")
    for name in subjects:
        get, verify, put = (median[f"{verb} {name}"] for verb in ("get", "verify", "put"))
        ratios = get / median[f"get {PLAIN}"], put / median[f"put {PLAIN}"]
        print(f"{name:16}{get:9.3f}{ratios[0]:7.2f}{verify:11.3f}{verify / get:8.1%}", end="")
        print(f"{put:9.3f}{ratios[1]:7.2f}")


if __name__ == "__main__":
    raise SystemExit(main())
