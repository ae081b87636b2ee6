"""What a tier's own answer and its breaker tell of its health."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from ..errors import DurableStateError, UnavailableError
from ..health import TierHealth
from .breaker import Breaker


class Tier(Protocol):
    """Whatever can be asked."""

    async def ping(self) -> None:
        """Raises UnavailableError if the tier cannot be used."""


async def examined(tier: Tier, breaker: Breaker) -> TierHealth:
    """How a tier is: it is asked, unless its breaker is open. It never raises for an outage."""
    failure = None
    try:
        await tier.ping()
    except DurableStateError as error:
        failure = error
    told = breaker.condition()
    since = datetime.fromtimestamp(told.since, UTC) if told.since is not None else None
    if failure is None:
        # A tier in memory tells no breaker.
        return TierHealth("up" if told.state == "unknown" else told.state, since, told.why)
    if told.state in ("down", "refusing"):
        return TierHealth(told.state, since, told.why, "open" if told.is_open else "closed")
    if isinstance(failure, UnavailableError):
        return TierHealth("unknown", None, str(failure))  # all connections are in use, say
    return TierHealth("refusing", None, str(failure))  # it does not let us in
