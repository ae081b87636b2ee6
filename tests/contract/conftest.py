"""Every driver, for test bodies that are written once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.drivers.memory import MemoryCommits, MemoryDurable
from langgraph_durable_state.drivers.memory_hot import MemoryHot
from langgraph_durable_state.drivers.memory_outbox import MemoryOutbox
from langgraph_durable_state.drivers.memory_world import World
from langgraph_durable_state.testing import memory_saver
from tests.contract.rows import InCompany, Ports
from tests.faces import OnBlockingFace

DRIVERS = ["memory", "blocking", "native"]

BOUND = 5
"""Entries that an outbox of `ports` may hold."""


@pytest.fixture(params=DRIVERS)
async def ports(request: pytest.FixtureRequest) -> AsyncIterator[Ports]:
    """The ports of each driver, over empty stores; "in company" nothing is committed alone."""
    if request.param == "memory":
        world = World()
        in_memory = MemoryDurable(world)
        outbox = MemoryOutbox(world, secured=True, bound=BOUND)
        yield Ports(in_memory, MemoryHot(world), MemoryCommits(in_memory), outbox)
        return
    urls = request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url")
    async with DurableSaver(*urls, outbox_limit=BOUND) as saver:
        faces = saver._faces
        driver = await (faces.native() if request.param == "native" else faces.blocking())
        durable: Any = driver.durable
        hot, commits = driver.engine._copies._hot, driver.writer._commits
        assert hot is not None
        assert driver.outbox is not None
        if request.param == "in company":
            durable = InCompany(durable)
        yield Ports(durable, hot, commits, driver.outbox)


NewSaver = Callable[..., Any]


@pytest.fixture(params=DRIVERS)
async def new_saver(request: pytest.FixtureRequest) -> AsyncIterator[NewSaver]:
    """Savers over one pair of stores, each like another process; all with the native interface."""
    made: list[DurableSaver] = []
    if request.param == "memory":
        world = World()
        urls: tuple[str, ...] = ()
    else:
        urls = (request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url"))

    def make(**options: Any) -> Any:
        saver = DurableSaver(*urls, **options) if urls else memory_saver(world, **options)
        made.append(saver)
        return OnBlockingFace(saver) if request.param == "blocking" else saver

    yield make
    for saver in made:
        await saver.aclose()
