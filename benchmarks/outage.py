"""What a tier costs that is dead or hung, and how soon it is used again once it is back.

The servers are this measurement's own: they are killed (connections are refused) or stopped by a
signal (connections are taken, nothing is answered).
"""

from __future__ import annotations

import logging
import signal
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import psutil

from langgraph_durable_state import DurableSaver, Event, UnavailableError
from langgraph_durable_state._servers import Postgres, Valkey, end

from .figures import Outage, percentile
from .rounds import interleaved
from .subjects import Kind, Site, Subject
from .workloads import SIZES, GetWarm, PutAppended, Workload

NONE = "no Redis"
_SIZE = SIZES[0]
_WAYS = ("dead", "hung")
Tick = Callable[[], None]


def _row(what: str, tier: str, taken: Sequence[float], none: Sequence[float] = ()) -> Outage:
    taken = [1000 * each for each in taken]
    median = statistics.median(taken)
    added = median - 1000 * statistics.median(none) if none else None
    return Outage(what, tier, median, percentile(taken, 95), max(taken), len(taken), added)


@dataclass(frozen=True)
class Server:
    """A server that is taken away and brought back."""

    server: Postgres | Valkey

    def fail(self, way: str) -> None:
        """Kills or stops it, and all its children."""
        if way == "dead":
            end(self.server.process(), signal.SIGKILL)
        else:
            self._signal(signal.SIGSTOP)

    def come_back(self, way: str) -> None:
        """Returns once it answers."""
        if way == "dead":
            self.server.start()
        else:
            self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends it in whatever state it is."""
        if self.server.process() is not None:
            self._signal(signal.SIGCONT)
        self.server.stop()

    def _signal(self, number: signal.Signals) -> None:
        parent = self.server.process()
        assert parent is not None
        for process in (parent, *parent.children(recursive=True)):
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                pass  # it ended by itself


class Stage:
    """The servers, and savers that remember when a tier was back."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._sockets = directory / "run"
        self._sockets.mkdir(mode=0o700, parents=True)
        self.postgres = self._started(Postgres(directory / "postgres", self._sockets))

    def valkey(self, name: str) -> Server:
        """A Valkey of its own."""
        sockets = self._directory / name
        sockets.mkdir(mode=0o700)
        return self._started(Valkey(sockets / "data", sockets))

    def _started(self, server: Postgres | Valkey) -> Server:
        server.start()
        handle = Server(server)
        self._stack.callback(handle.close)
        return handle

    def subject(self, name: str, redis: Server | None, back: Callable[[], None]) -> Subject:
        """A saver that would have Redis serve every head, however small, each time anew."""

        def observer(event: Event) -> None:
            if event.kind == "tier_up":
                back()

        def opened(_: Subject, site: Site, stack: ExitStack) -> Any:
            saver = DurableSaver(
                site.postgres,
                site.redis or None,
                hot_reads="always",
                head_cache_bytes=0,
                observer=observer,
            )
            return stack.enter_context(saver)

        url = redis.server.url if redis else ""
        site = Site(self.postgres.server.url, url, name, self._directory / "none")
        return Subject(Kind(name, NONE, opened), site, self._stack)


@contextmanager
def stage(directory: Path) -> Iterator[Stage]:
    """Servers in a directory that must not be there yet."""
    # The outages are made on purpose; the log would break up the progress bar.
    logging.getLogger("langgraph_durable_state").addHandler(logging.NullHandler())
    with ExitStack() as stack:
        yield Stage(directory, stack)


def of_redis(on: Stage, rounds: int, seconds: float, tick: Tick) -> Iterator[Outage]:
    """Calls with Redis dead or hung beside the same without Redis, interleaved; then its return.

    Args:
        on: fresh servers.
        rounds: calls of each kind.
        seconds: that Redis is away before it is brought back.
        tick: called after each sample.
    """
    back = {way: threading.Event() for way in _WAYS}
    servers = {way: on.valkey(way) for way in _WAYS}
    subjects = {NONE: on.subject(NONE, None, lambda: None)}
    for way in _WAYS:
        subjects[f"Redis {way}"] = on.subject(way, servers[way], back[way].set)
    kinds: list[tuple[str, type[Workload]]] = [("put", PutAppended), ("get", GetWarm)]
    work = {
        what: {name: kind(subject, _SIZE).once for name, subject in subjects.items()}
        for what, kind in kinds
    }
    for way in _WAYS:
        servers[way].fail(way)
        assert subjects[f"Redis {way}"].saver.health().redis.breaker == "open"
    begin = perf_counter()
    for what, cases in work.items():
        samples = interleaved(cases, rounds, 2, tick)
        for name, taken in samples.items():
            none = samples[NONE] if name != NONE else ()
            yield _row(f"{what}, {_SIZE.name}", name, taken, none)
    sleep(max(0.0, seconds - (perf_counter() - begin)))
    for way in _WAYS:
        yield _row("in use again", f"Redis {way}", [_return(servers[way], way, back[way])])


def of_postgres(on: Stage, rounds: int, seconds: float, tick: Tick) -> Iterator[Outage]:
    """Calls with Postgres dead or hung, until their error; then its return. See `of_redis`."""
    back = threading.Event()
    subject = on.subject("postgres", None, back.set)
    call = GetWarm(subject, _SIZE).once
    call()
    for way in _WAYS:
        back.clear()
        on.postgres.fail(way)
        begin = perf_counter()
        yield _row("first call, until its error", f"Postgres {way}", [_until_error(call)])
        taken = []
        for _ in range(rounds):
            sleep(0.003)  # so that there are probes among them
            taken.append(_until_error(call))
            tick()
        yield _row("later calls, until their errors", f"Postgres {way}", taken)
        sleep(max(0.0, seconds - (perf_counter() - begin)))
        yield _row("in use again", f"Postgres {way}", [_return(on.postgres, way, back)])
        call()


def _until_error(call: Callable[[], float]) -> float:
    begin = perf_counter()
    try:
        call()
    except UnavailableError:
        return perf_counter() - begin
    raise AssertionError("Postgres answered")


def _return(server: Server, way: str, back: threading.Event) -> float:
    """Seconds from when a server answers until it is in use; nobody calls meanwhile."""
    server.come_back(way)
    begin = perf_counter()
    assert back.wait(60), f"a server that was {way} is not used again"
    return perf_counter() - begin
