"""How a saver's tiers are, as values. This file imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

State = Literal["up", "down", "refusing", "unknown", "absent"]


@dataclass(frozen=True, slots=True)
class TierHealth:
    """How one tier is, as this process knows it.

    Attributes:
        state: ``"up"``; ``"down"`` if it could not be reached; ``"refusing"`` if it answers but
            does not take what is sent (it is full, or does not let us in); ``"unknown"`` if it
            could not be asked, say because all connections are in use; ``"absent"`` if the saver
            was given none.
        since: since when this process knows it in this state, if it does; in UTC.
        why: what it said, unless it is up.
        breaker: ``"open"`` while calls are refused without trying.
    """

    state: State
    since: datetime | None = None
    why: str | None = None
    breaker: Literal["closed", "open"] = "closed"

    def __str__(self) -> str:
        since = f" since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        why = f": {self.why}" if self.why else ""
        return f"{self.state}{since}{why}"


@dataclass(frozen=True, slots=True)
class HeadCacheHealth:
    """What the head cache of this process holds and did.

    Attributes:
        entries: heads held.
        bytes, max_bytes: what they take, decoded values estimated, and may take at most.
        hits, misses: reads of a head that found it current in here, and those that did not.
    """

    entries: int
    bytes: int
    max_bytes: int
    hits: int
    misses: int

    def __str__(self) -> str:
        size, most = (f"{n / 2**20:.1f}" for n in (self.bytes, self.max_bytes))
        return f"{self.entries} heads, {size} of {most} MiB, {self.hits} hits, {self.misses} misses"


@dataclass(frozen=True, slots=True)
class Waits:
    """What waits in the hot tier for the durable one.

    Attributes:
        depth: checkpoints and task writes.
        oldest: seconds since the oldest of them was acknowledged; None if there is none.
    """

    depth: int
    oldest: float | None


@dataclass(frozen=True, slots=True)
class Health:
    """How a saver is. `str` gives it as text of a few lines.

    Attributes:
        postgres, redis: the tiers.
        outbox_depth: checkpoints and task writes that wait in Redis for Postgres; None if this
            saver does not write that way, or if Redis could not be asked.
        oldest_unflushed: seconds since the oldest of them was acknowledged; None if there is none.
        head_cache: of this process.
    """

    postgres: TierHealth
    redis: TierHealth
    outbox_depth: int | None
    oldest_unflushed: float | None
    head_cache: HeadCacheHealth

    @property
    def ok(self) -> bool:
        """Whether every tier that the saver was given is up."""
        return all(tier.state in ("up", "absent") for tier in (self.postgres, self.redis))

    def rows(self) -> Iterator[tuple[str, str]]:
        """Each line of the text: a name, and what there is to say."""
        yield "Postgres", str(self.postgres)
        yield "Redis", str(self.redis)
        if self.outbox_depth is not None:
            oldest = self.oldest_unflushed
            since = f", the oldest for {oldest:.1f} s" if oldest is not None else ""
            yield "Outbox", f"{self.outbox_depth} wait for Postgres{since}"
        yield "Head cache", str(self.head_cache)

    def __str__(self) -> str:
        return "\n".join(f"{name:<11} {said}" for name, said in self.rows())

    def as_dict(self) -> dict[str, Any]:
        """All of it, and ``"ok"``, as JSON has it: times are ISO 8601 texts."""
        out: dict[str, Any] = {"ok": self.ok, **asdict(self)}
        for tier in (out["postgres"], out["redis"]):
            tier["since"] = tier["since"].isoformat() if tier["since"] else None
        return out
