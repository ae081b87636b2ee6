"""What fresh readers find at the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_durable_state import DurableSaver, StateLostError
from tests.chaos.checker import Checkpoint, Stored
from tests.chaos.journal import Journal
from tests.chaos.state import PLACES, TRAIL, config_at, thread_of, tokens_of
from tests.chaos.worker import flaw_of, id_of


def settle(postgres: str, redis: str, journal: Path) -> None:
    """Brings to Postgres what is acknowledged and may be in Redis alone, and accepts what is lost,
    as an operator does; what is told of it is noted."""
    note = Journal(journal, {})
    with DurableSaver(
        postgres, redis, write_policy="write_behind", wait_aof=(1, 0), observer=note.observe
    ) as saver:
        try:
            saver.flush(everyone=True)
        except StateLostError:
            pass  # told once all others are flushed; the places are looked at one by one
        for place in PLACES:
            try:
                saver.get_tuple(config_at(place))
            except StateLostError:
                saver.accept_loss(thread_of(place)[0])
    note.close()


class Readers:
    """Fresh savers, by where they read heads from."""

    def __init__(self, postgres: str, redis: str) -> None:
        kinds: dict[str, Any] = {"a reader of Redis": "always", "a reader of Postgres": "never"}
        self.savers = {
            who: DurableSaver(postgres, redis, hot_reads=hot_reads, on_corrupt="raise")
            for who, hot_reads in kinds.items()
        }

    def close(self) -> None:
        for saver in self.savers.values():
            saver.close()

    def read(self, place: str, refused: Iterable[str]) -> Stored:
        """All that is stored at a place, and whether the refused ones are found by their ids."""
        where = config_at(place)
        heads = {who: saver.get_tuple(where) for who, saver in self.savers.items()}
        saver = next(iter(self.savers.values()))
        told = saver.get_delta_channel_history(config=where, channels=[TRAIL])
        return Stored(
            [_checkpoint(place, found) for found in saver.list(where)][::-1],
            {who: _checkpoint(place, head) if head else None for who, head in heads.items()},
            [value for _, _, value in told[TRAIL]["writes"]],
            {id: saver.get_tuple(config_at(place, id)) is not None for id in refused},
        )


def _checkpoint(place: str, found: CheckpointTuple) -> Checkpoint:
    before = found.parent_config
    return Checkpoint(
        id_of(found),
        before["configurable"]["checkpoint_id"] if before else None,
        tokens_of(found.pending_writes or []),
        TRAIL in found.checkpoint["channel_values"],
        flaw_of(place, found),
    )
