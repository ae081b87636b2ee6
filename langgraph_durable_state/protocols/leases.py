"""The leases that one saver holds, by thread: all its drivers and both faces put under them."""

from __future__ import annotations

from dataclasses import dataclass

from ..words import Thread


@dataclass(slots=True)
class Held:
    """A lease from when it was taken until its block ends; ``lost`` once it is known to be."""

    fence: int
    holder: str
    ttl: float
    lost: bool = False


class Leases:
    """At most one per thread: one that was lost stands here until its block has ended, so that
    what is put there is not put under the next."""

    def __init__(self) -> None:
        self._held: dict[Thread, Held] = {}

    def add(self, thread: Thread, fence: int, holder: str, ttl: float) -> None:
        """A lease was taken for `ttl` seconds at a time."""
        self._held[thread] = Held(fence, holder, ttl)

    def drop(self, thread: Thread) -> None:
        """Its block has ended."""
        self._held.pop(thread, None)

    def held(self, thread: Thread) -> Held | None:
        """The lease, lost or not; None if there is none."""
        return self._held.get(thread)

    def fence(self, thread: Thread) -> int | None:
        """The fence of the lease held, lost or not; None if there is none."""
        held = self._held.get(thread)
        return held.fence if held is not None else None

    def is_lost(self, thread: Thread, fence: int) -> bool:
        """Whether the lease with this fence is held and known to be lost."""
        held = self._held.get(thread)
        return held is not None and held.fence == fence and held.lost

    def holds(self, thread: Thread, fence: int) -> bool:
        """Whether the lease with this fence is held, and not known to be lost."""
        held = self._held.get(thread)
        return held is not None and held.fence == fence and not held.lost

    def lose(self, thread: Thread, fence: int) -> bool:
        """Notes that the lease with this fence is lost; whether that is news."""
        held = self._held.get(thread)
        if held is None or held.fence != fence or held.lost:
            return False
        held.lost = True
        return True
