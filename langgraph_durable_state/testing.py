"""A saver over memory, for tests of code that uses one and for explorers of this library.

Everything above the tiers is the real thing. Both faces work, in any loop and without one: their
coroutines never suspend but where `World.step` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .drivers.driver import Driver
from .drivers.faces import Faces
from .drivers.memory import MemoryCommits, MemoryDurable
from .drivers.memory_hot import MemoryHot
from .drivers.memory_world import World
from .saver import DurableSaver

__all__ = ["World", "memory_saver"]


def memory_saver(
    world: World | None = None,
    *,
    hot: bool = True,
    durable: Callable[[World], MemoryDurable] = MemoryDurable,
    **options: Any,
) -> DurableSaver:
    """A saver whose tiers are in memory.

    Args:
        world: what the tiers hold; savers over one world are like processes over one Postgres
            and one Redis. None for a world of its own.
        hot: whether there is a hot tier.
        durable: makes the durable tier; another one than `MemoryDurable` to plant a fault.
        options: as for `DurableSaver`.
    """
    saver = DurableSaver("", **options)
    world = World() if world is None else world
    saver._faces = MemoryFaces(saver._faces, durable(world), MemoryHot(world) if hot else None)
    return saver


class MemoryFaces(Faces):
    """One driver over memory, which serves as the blocking one and as every loop's native one."""

    def __init__(self, of: Faces, durable: MemoryDurable, hot: MemoryHot | None) -> None:
        super().__init__(of._postgres, of._redis, of._settings, of._shared, of._caches)
        commits = MemoryCommits(durable)
        self._driver = Driver(of._shared, durable, commits, hot, self._breakers, _nothing)

    async def blocking(self, install: bool = True) -> Driver:
        self.check_open()
        return await self._install(self._driver) if install else self._driver

    async def native(self, install: bool = True) -> Driver:
        return await self.blocking(install)

    async def close_native(self) -> None:
        await self.close_blocking()


async def _nothing() -> None:
    pass
