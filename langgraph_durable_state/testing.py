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
from .drivers.memory_outbox import MemoryOutbox
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
    saver = DurableSaver("", "redis://" if hot else None, **options)
    world = World() if world is None else world
    secured = saver._faces._shared.policy.secured
    tiers = (MemoryHot(world), MemoryOutbox(world, secured)) if hot else (None, None)
    saver._faces = MemoryFaces(saver._faces, durable(world), *tiers)
    return saver


class MemoryFaces(Faces):
    """One driver over memory, which serves as the blocking one and as every loop's native one."""

    def __init__(
        self,
        of: Faces,
        durable: MemoryDurable,
        hot: MemoryHot | None,
        outbox: MemoryOutbox | None,
    ) -> None:
        background = of.background
        super().__init__(of._postgres, of._redis, of._settings, of._shared, of._caches, background)
        background.start = _nobody  # type: ignore[method-assign]
        commits, tiers = MemoryCommits(durable), (hot, outbox)
        self._driver = Driver(
            of._shared, durable, commits, *tiers, self._breakers, _nothing, _no_pause
        )

    async def _open_blocking(self) -> Driver:
        return self._driver

    async def native(self, install: bool = True) -> Driver:
        return await self.blocking(install)

    async def close_native(self) -> None:
        await self.close_blocking()


def _nobody() -> None:
    """Nothing is flushed in the background, so that a test says when."""


async def _nothing() -> None:
    pass


async def _no_pause(_: float) -> bool:
    return True
