"""What both faces' group commit shares: which items go together, and how they fail alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ..errors import DurableStateError, UnavailableError
from ..ports import Durable
from ..words import Outcome, Place, Put, PutWrites

LARGEST_BATCH = 128
"""Items in one statement; beyond this the time per item no longer falls."""

LARGEST_BATCH_BYTES = 4 * 1024 * 1024


class Ticket:
    """One item's turn. ``event`` wakes whoever waits for it; None if nobody does."""

    __slots__ = ("done", "error", "event", "item", "outcome")

    def __init__(self, item: Put | PutWrites, event: Any) -> None:
        self.item = item
        self.event = event
        self.done = False
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None

    def settle(self, outcome: Outcome | None, error: BaseException | None) -> None:
        self.outcome, self.error, self.done = outcome, error, True

    def result(self) -> Outcome:
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome


def take(waiting: deque[Ticket]) -> list[Ticket]:
    """The next batch, taken off the front: at most one put per head, first come first."""
    batch: list[Ticket] = []
    later: list[Ticket] = []
    heads: set[Place] = set()
    size = 0
    while waiting and len(batch) < LARGEST_BATCH and size < LARGEST_BATCH_BYTES:
        ticket = waiting.popleft()
        item = ticket.item
        if isinstance(item, Put):
            if item.place in heads:
                later.append(ticket)
                continue
            heads.add(item.place)
        size += sum(len(chunk.blob) for chunk in item.chunks)
        batch.append(ticket)
    waiting.extendleft(reversed(later))
    return batch


async def commit_each(durable: Durable, batch: Sequence[Ticket]) -> None:
    """Commits a batch; one that errors is tried again item by item, so that each fails alone.

    Every ticket is settled, whatever happens.
    """
    try:
        outcomes = await durable.commit([ticket.item for ticket in batch])
    except DurableStateError as error:
        if len(batch) == 1 or error.retryable:
            for ticket in batch:
                ticket.settle(None, error)
            return
    except Exception as error:
        if len(batch) == 1:
            batch[0].settle(None, error)
            return
    except BaseException:  # this caller is interrupted; the others are not
        for ticket in batch:
            ticket.settle(None, UnavailableError("postgres", "the commit was interrupted"))
        raise
    else:
        for ticket, outcome in zip(batch, outcomes, strict=True):
            ticket.settle(outcome, None)
        return
    for ticket in batch:
        await commit_each(durable, [ticket])
