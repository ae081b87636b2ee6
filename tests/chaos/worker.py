"""One worker: a process with a saver that runs, forks and reads until it is told to end.

    python -m tests.chaos.worker '{"face": "native", ...}'

It makes the calls that LangGraph makes (see `tests/contract/superstep.py`), in several lanes at
once, on one face.
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_durable_state import DurableSaver, StateLostError, UnavailableError
from tests.cases import Face
from tests.chaos.journal import DONE, LOST, UNKNOWN, Journal
from tests.chaos.state import (
    PLACES,
    TRAIL,
    batch,
    config_at,
    flaw,
    successor,
    thread_of,
    tokens_of,
)
from tests.contract.superstep import superstep, with_id

LANES = 3
"""Runs that a worker has under way at once: they share its caches, and its commits are grouped."""

TRIES = 12
"""How often a caller that does not give up makes a call again whose answer was lost: for longer
than most faults last."""


@dataclass(frozen=True)
class Orders:
    """What a worker is told.

    Attributes:
        name: unique; every id it makes begins with it.
        postgres, redis: the URLs of its own proxies.
        face: ``native`` or ``blocking``.
        options: of its saver.
        seed: of what it draws.
        journal: file to write.
        stop: once this file is there, end.
        life: seconds after which to end in any case.
    """

    name: str
    postgres: str
    redis: str
    face: str
    options: Mapping[str, Any]
    seed: str
    journal: str
    stop: str
    life: float


class Worker:
    """Everything that the lanes share."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.journal = Journal(Path(orders.journal), orders.options)
        options: dict[str, Any] = {"observer": self.journal.observe, "on_corrupt": "raise"}
        options |= dict(orders.options)
        self.saver = DurableSaver(orders.postgres, orders.redis, **options)
        self.face = Face(orders.face)(self.saver)
        self.dice = random.Random(f"{orders.seed} {orders.name}")
        self._numbers = itertools.count()
        self._until = time.monotonic() + orders.life
        self._parent = os.getppid()

    def new_id(self) -> str:
        return f"{self.orders.name}.{next(self._numbers)}"

    def is_over(self) -> bool:
        """Whether to end; so is a worker whose test is gone."""
        orphan = os.getppid() != self._parent
        return orphan or time.monotonic() > self._until or Path(self.orders.stop).exists()

    async def live(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self.tell)
        async with asyncio.TaskGroup() as lanes:
            for _ in range(LANES):
                lanes.create_task(Lane(self).live())
        try:
            try:
                await self.saver.aclose()
            except StateLostError:
                pass  # it is closed, and its observer was told
        except UnavailableError:
            pass  # what is left is flushed by others
        self.journal.close()

    def tell(self) -> None:
        """Says where each lane stands."""
        for task in asyncio.all_tasks():
            task.print_stack()


class Lane:
    """One after the other."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.face = worker.face
        self.journal = worker.journal
        self.dice = worker.dice
        self.place = PLACES[0]

    async def live(self) -> None:
        while not self.worker.is_over():
            await self.turn()
        # All is healed by now, so whoever waits is served again; the test's deadline says when.
        while (await self.head())[0] != DONE:
            await self.rest()

    async def turn(self) -> None:
        # Some places are busier than others: they grow long, and runs meet there.
        self.place = PLACES[int(len(PLACES) * self.dice.random() ** 2)]
        kind = self.dice.choices([self.go_on, self.fork, self.look], [6, 1, 3])[0]
        await kind()

    async def after(self, outcome: str) -> None:
        """What a caller does who was not served: goes on with what is left, or waits a moment."""
        if outcome == LOST:
            thread, _ = thread_of(self.place)
            await self.journal.call("accept", self.place, partial(self.face.accept_loss, thread))
        else:
            await self.rest()

    async def rest(self) -> None:
        """A caller that was told of an outage waits a moment."""
        await asyncio.sleep(self.dice.uniform(0.05, 0.6))

    # -- reading -----------------------------------------------------------------------------

    async def look(self) -> None:
        """Looks at the head, at the newest of the history, and at one of those by its id."""
        await self.head()
        if ids := await self.listed():
            await self.one(self.dice.choice(ids))

    async def head(self) -> tuple[str, Any]:
        work = partial(self.face.get_tuple, config_at(self.place))
        return await self.read("head", work, lambda found: [found] if found else [])

    async def one(self, id: str) -> Any:
        work = partial(self.face.get_tuple, config_at(self.place, id))
        told = await self.read("one", work, lambda found: [found] if found else [], id=id)
        return told[1]

    async def listed(self) -> list[str]:
        work = partial(self.face.list, config_at(self.place), limit=self.dice.randint(1, 12))
        _, found = await self.read("list", work, lambda found: found)
        return [id_of(each) for each in found or []]

    async def read(
        self,
        kind: str,
        work: Callable[[], Awaitable[Any]],
        found: Callable[[Any], Sequence[CheckpointTuple]],
        **facts: Any,
    ) -> tuple[str, Any]:
        """Reads, and notes the ids of what was found, newest first."""
        outcome, result = await self.journal.call(
            kind,
            self.place,
            work,
            lambda result: noted(found(result)),
            **facts,
        )
        if outcome in (UNKNOWN, LOST):
            await self.after(outcome)
            return outcome, None
        for each in found(result):
            self.look_at(each)
        return outcome, result

    def look_at(self, found: CheckpointTuple) -> None:
        wrong = flaw_of(self.place, found)
        if wrong is not None:
            self.journal.finding(f"place {self.place}: checkpoint {id_of(found)}: {wrong}")

    # -- running -----------------------------------------------------------------------------

    async def go_on(self) -> None:
        """Loads the head and runs a few supersteps from it."""
        outcome, found = await self.head()
        if outcome == DONE:
            await self.run(found, guarded=True)

    async def fork(self) -> None:
        """Runs from a checkpoint that is given by its id: time travel."""
        ids = await self.listed()
        if ids and (found := await self.one(self.dice.choice(ids))) is not None:
            await self.run(found, guarded=False)

    async def run(self, before: CheckpointTuple | None, guarded: bool) -> None:
        """Puts checkpoint after checkpoint, with the tasks' writes in between."""
        ids = [self.worker.new_id() for _ in range(self.dice.randint(2, 5))]
        consumed: dict[str, Any] = tokens_of(before.pending_writes or []) if before else {}
        if before is not None:
            made = await self.writes(before.config, ids[0], known=consumed)
            if made is None:
                return
            consumed = consumed | made
        for id, following in pairwise(ids):
            args = self.superstep(before, id)
            # A subgraph legitimately starts again.
            claims = guarded and (before is not None or not thread_of(self.place)[1])
            stored, made = await self.in_some_order(
                partial(self.put, args, claims, consumed),
                partial(self.writes, with_id(args[0], id), following),
            )
            if not stored or made is None:
                return
            before = CheckpointTuple(with_id(args[0], id), args[1], args[2])
            consumed = made

    def superstep(self, before: CheckpointTuple | None, id: str) -> Any:
        old = before.checkpoint["channel_values"] if before is not None else None
        new = successor(self.place, old, id)
        changed = {name: v for name, v in new.items() if old is None or old.get(name) != v}
        # A delta channel has a new version at every superstep, and seldom a value.
        dropped: tuple[str, ...] = () if TRAIL in new else (TRAIL,)
        thread, ns = thread_of(self.place)
        return superstep(
            self.worker.saver,
            before,
            id,
            changed,
            thread=thread,
            ns=ns,
            dropped=dropped,
            metadata={
                "source": "loop",
                "step": new["count"],
                "id": id,
                "counters_since_delta_snapshot": {TRAIL: [1, 1]},
            },
        )

    async def in_some_order(
        self, put: Callable[[], Awaitable[bool]], writes: Callable[[], Awaitable[Any]]
    ) -> tuple[bool, Any]:
        """Writes may come before, after or beside the put of their checkpoint."""
        order = self.dice.randrange(3)
        if order == 0:
            made = await writes()
            return await put(), made
        if order == 1:
            stored = await put()
            return stored, await writes() if stored else None
        stored, made = await asyncio.gather(put(), writes())
        return stored, made

    async def put(self, args: Any, guarded: bool, consumed: Mapping[str, Any]) -> bool:
        parent = args[0]["configurable"].get("checkpoint_id")
        facts = {"id": args[1]["id"], "parent": parent, "guarded": guarded, "consumed": consumed}
        return await self.persist("put", partial(self.face.put, *args), facts)

    async def writes(
        self, where: Any, following: str, known: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Makes the writes of the tasks of a checkpoint, but of those `known` already.

        Returns:
            The token of each ordinary one; None if an answer was lost for good.
        """
        id = where["configurable"]["checkpoint_id"]
        made = {}
        for k in range(self.dice.randint(0, 2)):
            task, token = f"{id}/{k}", f"{following}/{k}"
            if task in (known or {}):
                continue
            if not await self.write(where, id, batch(token), task, token):
                return None
            made[task] = token
        if self.dice.random() < 0.1:
            task = token = f"{following}/i"
            if not await self.write(where, id, [(INTERRUPT, token)], task, token):
                return None
        return made

    async def write(self, where: Any, id: str, writes: Any, task: str, token: str) -> bool:
        work = partial(self.face.put_writes, where, writes, task, task)
        return await self.persist("writes", work, {"id": id, "task": task, "token": token})

    async def persist(
        self, kind: str, work: Callable[[], Awaitable[Any]], facts: Mapping[str, Any]
    ) -> bool:
        """Makes a call, again while its answer is lost; whether it was acknowledged."""
        for _ in range(self.dice.choice([1, TRIES])):
            outcome, _ = await self.journal.call(kind, self.place, work, **facts)
            if outcome not in (UNKNOWN, LOST):
                return outcome == DONE
            await self.after(outcome)
        return False


def noted(found: Sequence[CheckpointTuple]) -> dict[str, Any]:
    """Of what was read, the ids, newest first, and whether it was said to be uncertain."""
    doubts = ("durable_state_unverified", "durable_state_stale")
    unsure = any(name in each.metadata for each in found for name in doubts)
    return {"seen": [id_of(each) for each in found]} | ({"unsure": True} if unsure else {})


def id_of(found: CheckpointTuple) -> str:
    return found.checkpoint["id"]


def flaw_of(place: str, found: CheckpointTuple) -> str | None:
    """What is not whole about a checkpoint that was read; None if all is."""
    id = id_of(found)
    parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
    if found.metadata.get("id") != id:
        return f"it has the metadata {found.metadata}"
    torn = [t for t, token in tokens_of(found.pending_writes or []).items() if token is None]
    if torn:
        return f"the writes of {', '.join(torn)} are not whole"
    return flaw(place, id, parent, found.checkpoint["channel_values"])


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # a test that waits in vain asks where the threads are
    asyncio.run(Worker(Orders(**json.loads(sys.argv[1]))).live())


if __name__ == "__main__":
    main()
