"""The workers of one run of chaos: started, killed, frozen, and ended in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import langgraph_durable_state
from tests.cases import FACES
from tests.chaos.journal import History, read_journals
from tests.chaos.worker import Orders
from tests.servers import Proxy

ROOT = Path(langgraph_durable_state.__file__).parent.parent


class Crew:
    """Workers on both faces, half of them on each, and each behind two proxies of its own.

    Args:
        directory: for journals and what the workers say.
        links: each worker's proxies, of Postgres and of Redis.
        policies: options of savers; every two workers share the next of them.
        threads: how many threads there are.
        life: seconds after which a worker ends in any case.
    """

    def __init__(
        self,
        directory: Path,
        links: Sequence[tuple[Proxy, Proxy]],
        policies: Sequence[Mapping[str, Any]],
        seed: int,
        life: float,
    ) -> None:
        self._directory = directory
        self._links = links
        self._policies = policies
        self._seed = seed
        self._life = life
        self._stop = directory / "stop"
        self._generation = 0
        self._running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._findings: list[str] = []
        self._deaths: dict[str, float] = {}

    @property
    def size(self) -> int:
        return len(self._links)

    def start(self, slot: int) -> None:
        """Starts a new worker in this place."""
        self._generation += 1
        name = f"w{self._generation}"
        orders = Orders(
            name=name,
            postgres=self._links[slot][0].url,
            redis=self._links[slot][1].url,
            face=FACES[slot % len(FACES)],
            options=self._policies[slot // len(FACES) % len(self._policies)],
            seed=str(self._seed),
            journal=str(self._directory / f"{name}.jsonl"),
            stop=str(self._stop),
            life=self._life,
        )
        with (self._directory / f"{name}.said").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.worker", json.dumps(asdict(orders))],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        self._running[slot] = name, process

    def kill(self, slot: int) -> None:
        """SIGKILL."""
        name, process = self._running.pop(slot)
        if process.poll() is not None:
            self._note(name, f"had ended with {process.returncode}")
        process.kill()
        process.wait()
        self._deaths[name] = time.monotonic()

    def freeze(self, slot: int) -> None:
        """SIGSTOP."""
        self._running[slot][1].send_signal(signal.SIGSTOP)

    def thaw(self, slot: int) -> None:
        """SIGCONT."""
        self._running[slot][1].send_signal(signal.SIGCONT)

    def finish(self, seconds: float) -> None:
        """Lets all workers end; one that does not within so many seconds is a finding."""
        self._stop.touch()
        until = time.monotonic() + seconds
        for slot, (name, process) in list(self._running.items()):
            try:
                process.wait(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                for question in (signal.SIGUSR1, signal.SIGUSR2):  # where it stands
                    process.send_signal(question)
                    time.sleep(0.5)
                process.kill()
                process.wait()
                self._note(name, "did not end")
            else:
                if process.returncode != 0:
                    self._note(name, f"ended with {process.returncode}")
            del self._running[slot]

    def close(self) -> None:
        """Kills whoever is left."""
        for slot in list(self._running):
            self.kill(slot)

    def history(self) -> History:
        """What all workers noted and what was noted of them."""
        history = read_journals(sorted(self._directory.glob("*.jsonl")))
        history.findings += self._findings
        history.deaths |= self._deaths
        return history

    def _note(self, name: str, what: str) -> None:
        said = (self._directory / f"{name}.said").read_text(errors="replace")
        self._findings.append(f"worker {name} {what}:\n{said[-4_000:]}")
