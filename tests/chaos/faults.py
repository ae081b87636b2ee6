"""What is done to the workers, the servers and the network, and how often.

Four hands work at once, each on one kind of victim, so that faults of different kinds fall
together and those of one kind do not undo each other. Each goes round after round through all it
can do, in an order drawn from the seed; whatever it broke it mends before it goes on.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import redis

from tests.chaos.crew import Crew
from tests.servers import PostgresServer, Proxy, ValkeyServer

FILLER_BYTES = 256 * 1024
ROOM_BYTES = 2 * 1024 * 1024
"""Left to Redis when its memory is filled, a filler at a time."""

LONGEST = 3.0
"""Seconds that a fault lasts at most: longer than the workers' calls wait."""

BREAK = (0.3, 3.5)
"""Seconds between two faults of one hand, from and to."""


class Hand:
    """One after the other, faults of one kind.

    Attributes:
        counts: how often each was done.
    """

    def __init__(self, seed: str, over: threading.Event) -> None:
        self.dice = random.Random(seed)
        self.counts = dict.fromkeys(self.faults(), 0)
        self._over = over

    def faults(self) -> Mapping[str, Callable[[], None]]:
        """All that this hand can do, by what it is counted as."""
        raise NotImplementedError

    def work(self) -> None:
        """Round after round until the end."""
        while not self._over.is_set():
            for name, fault in self._in_some_order():
                self.pause(*BREAK)
                if self._over.is_set():
                    return
                fault()
                self.counts[name] += 1

    def _in_some_order(self) -> list[tuple[str, Callable[[], None]]]:
        faults = list(self.faults().items())
        self.dice.shuffle(faults)
        return faults

    def pause(self, least: float, most: float) -> None:
        """Waits, but not beyond the end."""
        self._over.wait(self.dice.uniform(least, most))


class OnPostgres(Hand):
    def __init__(self, server: PostgresServer, seed: str, over: threading.Event) -> None:
        super().__init__(seed, over)
        self._server = server

    def faults(self) -> Mapping[str, Callable[[], None]]:
        return {"SIGKILL Postgres": self.kill, "SIGSTOP Postgres": self.freeze}

    def kill(self) -> None:
        self._server.kill()
        self.pause(0.0, 1.5)
        self._server.start()

    def freeze(self) -> None:
        self._server.stop_process()
        self.pause(0.3, LONGEST)
        self._server.continue_process()


class OnRedis(Hand):
    """What is done to Redis.

    Args:
        forgets: whether it may be made to forget what it has acknowledged.

    Attributes:
        wipes: when it was.
    """

    def __init__(
        self, server: ValkeyServer, seed: str, over: threading.Event, *, forgets: bool
    ) -> None:
        self._forgets = forgets
        super().__init__(seed, over)
        self._server = server
        self._kept = server.snapshot()
        self.wipes: list[float] = []

    def faults(self) -> Mapping[str, Callable[[], None]]:
        forgetting = {"FLUSHALL": self.flush, "old snapshot of Redis": self.restore}
        return {
            "SIGKILL Redis": self.kill,
            "SIGSTOP Redis": self.freeze,
            **(forgetting if self._forgets else {}),
            "Redis full": self.fill,
        }

    def kill(self) -> None:
        self._server.kill()
        self.pause(0.0, 1.5)
        self._server.start()

    def freeze(self) -> None:
        self._server.stop_process()
        self.pause(0.3, LONGEST)
        self._server.continue_process()

    def flush(self) -> None:
        with redis.Redis.from_url(self._server.url) as client:
            client.flushall()
        self.wipes.append(time.monotonic())

    def restore(self) -> None:
        self._server.restore(self._kept)
        self.wipes.append(time.monotonic())
        shutil.rmtree(self._kept)
        self._kept = self._server.snapshot()

    def fill(self) -> None:
        with redis.Redis.from_url(self._server.url) as client:
            used = client.info("memory")["used_memory"]
            client.config_set("maxmemory", used + ROOM_BYTES)
            fillers: list[str] = []
            try:
                while True:
                    fillers.append(f"filler-{len(fillers)}")
                    client.set(fillers[-1], bytes(FILLER_BYTES))
            except redis.OutOfMemoryError:
                self.pause(0.3, LONGEST)
            client.config_set("maxmemory", 0)
            client.delete(*fillers)


class OnWorkers(Hand):
    def __init__(self, crew: Crew, seed: str, over: threading.Event) -> None:
        super().__init__(seed, over)
        self._crew = crew

    def faults(self) -> Mapping[str, Callable[[], None]]:
        return {"SIGKILL worker": self.kill, "SIGSTOP worker": self.freeze}

    def kill(self) -> None:
        slot = self.dice.randrange(self._crew.size)
        self._crew.kill(slot)
        self._crew.start(slot)

    def freeze(self) -> None:
        slot = self.dice.randrange(self._crew.size)
        self._crew.freeze(slot)
        self.pause(0.3, LONGEST)
        self._crew.thaw(slot)


class OnNetwork(Hand):
    def __init__(
        self, links: Sequence[tuple[Proxy, Proxy]], seed: str, over: threading.Event
    ) -> None:
        super().__init__(seed, over)
        self._links = links

    def faults(self) -> Mapping[str, Callable[[], None]]:
        return {
            "cut worker": self.cut_one,
            "cut tier": self.cut_all,
            "answers lost at tier": self.lose_answers,
            "black hole at worker": self.lose_one,
            "black hole at tier": self.lose_all,
        }

    def cut_one(self) -> None:
        for proxy in self.dice.choice(self._links):
            proxy.cut()

    def cut_all(self) -> None:
        for proxy in self._to_one_tier():
            proxy.cut()

    def lose_answers(self) -> None:
        # What is on its way back when the connection is cut was done, and nobody is told.
        proxies = self._to_one_tier()
        delay = self.dice.uniform(0.05, 0.3)
        for proxy in proxies:
            proxy.delay(delay)
        self.pause(1.5 * delay, 2 * delay)
        for proxy in proxies:
            proxy.cut()
            proxy.restore()

    def lose_one(self) -> None:
        self._lose(self.dice.choice(self._links))

    def lose_all(self) -> None:
        self._lose(self._to_one_tier())

    def _lose(self, proxies: Sequence[Proxy]) -> None:
        for proxy in proxies:
            proxy.blackhole()
        self.pause(0.3, LONGEST)
        for proxy in proxies:
            proxy.restore()

    def _to_one_tier(self) -> Sequence[Proxy]:
        return self.dice.choice(list(zip(*self._links, strict=True)))


def do_harm(hands: Sequence[Hand], over: threading.Event, seconds: float) -> None:
    """Lets all hands work for so long; an error of one ends all, and is raised."""

    def work(hand: Hand) -> None:
        try:
            hand.work()
        finally:
            over.set()

    with ThreadPoolExecutor(len(hands)) as pool:
        futures = [pool.submit(work, hand) for hand in hands]
        try:
            over.wait(seconds)
        finally:  # a test that is interrupted must not wait for hands that go on for ever
            over.set()
    for future in futures:
        future.result()


def counts_of(hands: Sequence[Hand]) -> dict[str, int]:
    """How often each fault was done."""
    return {name: count for hand in hands for name, count in hand.counts.items()}
