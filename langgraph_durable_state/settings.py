"""Everything about a saver that can be set, checked once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .decisions import arguments
from .decisions.codec import Compression
from .decisions.serializing import OnUnknownClass, Verify
from .errors import UsageError
from .protocols.shared import Policy

HotReads = Literal["auto", "always", "never"]
OnConflict = Literal["raise", "fork"]
WritePolicy = Literal["write_through", "write_behind"]
WhenDurableDown = Literal["raise", "queue"]
OnHotLost = Literal["raise", "accept"]
OnCorrupt = Literal["fall_back", "raise"]

HOT_FROM = 64 * 1024
"""Bytes from which reading a head from Redis beats reading it from Postgres: at 2 to 50 KB a hot
read after the check took 0.61 ms against 0.31."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Settings:
    """See `DurableSaver` for what each means.

    Raises:
        UsageError: if a value cannot be used.
    """

    schema: str
    prefix: str
    auto_setup: bool
    on_conflict: OnConflict
    hot_reads: HotReads
    hot_ttl: int
    touch_on_read: bool
    head_cache_bytes: int
    compression: Compression
    compression_level: int
    verify_round_trip: Verify
    max_value_bytes: int | None
    timeout: float
    redis_timeout: float
    pool_size: int
    write_policy: WritePolicy = "write_through"
    when_durable_down: WhenDurableDown | None = None
    on_hot_lost: OnHotLost = "raise"
    stale_reads: bool = False
    outbox_limit: int = 1_000
    wait_aof: tuple[int, int] | None = None
    allow_eviction: bool = False
    on_unknown_class: OnUnknownClass = "raise"
    detect_secrets: bool = False
    on_corrupt: OnCorrupt = "fall_back"
    stale_after: float | None = None

    def __post_init__(self) -> None:
        _one_of("on_conflict", self.on_conflict, OnConflict)
        _one_of("write_policy", self.write_policy, WritePolicy)
        _one_of("when_durable_down", self.when_durable_down or "raise", WhenDurableDown)
        _one_of("on_hot_lost", self.on_hot_lost, OnHotLost)
        _one_of("on_corrupt", self.on_corrupt, OnCorrupt)
        if self.stale_after is not None:
            _number("stale_after", self.stale_after, float, 0.0)
        _number("outbox_limit", self.outbox_limit, int, 1)
        for name in (
            "auto_setup",
            "touch_on_read",
            "stale_reads",
            "allow_eviction",
            "detect_secrets",
        ):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name}={getattr(self, name)!r}: use True or False")
        if self.wait_aof is not None:
            _check_wait_aof(self.wait_aof, self.policy.asks_hot)
        _one_of("hot_reads", self.hot_reads, HotReads)
        _one_of("compression", self.compression, Compression)
        _one_of("verify_round_trip", self.verify_round_trip, Verify)
        _one_of("on_unknown_class", self.on_unknown_class, OnUnknownClass)
        check_schema(self.schema)
        if not arguments.text("prefix", self.prefix) or {"{", "}"} & set(self.prefix):
            raise UsageError(f"prefix {self.prefix!r}: must not be empty or hold braces")
        _number("hot_ttl", self.hot_ttl, int, 1)
        _number("pool_size", self.pool_size, int, 1)
        _number("timeout", self.timeout, float, 0.001)
        _number("redis_timeout", self.redis_timeout, float, 0.001)
        _number("head_cache_bytes", self.head_cache_bytes, int, 0)
        _number("compression_level", self.compression_level, int, 1, 22)
        if self.max_value_bytes is not None:
            _number("max_value_bytes", self.max_value_bytes, int, 1)
        if self.compression == "lz4":
            _require_lz4()

    @property
    def policy(self) -> Policy:
        """What may be done while the tiers are not one."""
        behind = self.write_policy == "write_behind"
        queues = (self.when_durable_down or ("queue" if behind else "raise")) == "queue"
        return Policy(
            write_behind=behind,
            queues=queues,
            accepts_loss=self.on_hot_lost == "accept",
            stale_reads=self.stale_reads,
            secured=self._secured if behind or queues else 2,
            falls_back=self.on_corrupt == "fall_back",
            stale_after=self.stale_after,
        )

    @property
    def _secured(self) -> int:
        return 0 if self.wait_aof is None else 1 + (self.wait_aof[1] > 0)

    @property
    def hot_from(self) -> int | None:
        """Bytes from which a head is served by the hot tier; None for never."""
        if self.policy.queues and self.write_policy == "write_through":
            return 0  # a head that Redis has not got could not be served while Postgres is down
        return {"auto": HOT_FROM, "always": 0, "never": None}[self.hot_reads]


def check_schema(name: str) -> None:
    """Refuses a schema's name that would need quoting in SQL.

    Raises:
        UsageError: if it has other characters than lower-case letters, digits and _.
    """
    if not isinstance(name, str) or not _SCHEMA.fullmatch(name):
        raise UsageError(f"schema {name!r}: use lower-case letters, digits and _")


def _one_of(name: str, value: object, kind: object) -> None:
    choices = get_args(kind)
    if value not in choices:
        raise UsageError(f"{name}={value!r}: use one of {', '.join(map(repr, choices))}")


def _number(
    name: str, value: object, kind: type[int] | type[float], least: float, most: float = math.inf
) -> None:
    right = isinstance(value, (int, float) if kind is float else int)
    if not right or isinstance(value, bool) or not least <= value <= most:  # type: ignore[operator]
        bound = f"at least {least}" if most == math.inf else f"from {least} to {most}"
        raise UsageError(f"{name}={value!r}: use {kind.__name__} values {bound}")


def _check_wait_aof(value: Sequence[int], used: bool) -> None:
    right = (
        isinstance(value, (tuple, list))  # configuration files have lists
        and len(value) == 2
        and all(isinstance(part, int) and not isinstance(part, bool) for part in value)
    )
    if not right or tuple(value) not in {(1, n) for n in range(16)}:
        raise UsageError(
            f"wait_aof={value!r}: use (1, n), n being the replicas that must have it on disk, too"
        )
    if not used:
        raise UsageError("wait_aof is of no use without write_behind or queue")


def _require_lz4() -> None:
    try:
        import lz4.frame  # noqa: F401
    except ImportError as error:
        raise UsageError("compression='lz4' needs: pip install lz4") from error
