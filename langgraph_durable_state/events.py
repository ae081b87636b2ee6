"""What operators want to hear of, as values. This file imports nothing of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "tier_down",
    "tier_up",
    "tier_refuses",
    "state_lost",
    "branch_kept",
    "queued",
    "hot_discarded",
    "flush_failed",
    "lease_lost",
    "unknown_class",
    "secret_seen",
    "damaged",
    "fell_back",
    "repaired",
]

_WORDS: dict[Kind, str] = {
    "tier_down": "{tier} failed and is used again once it answers: {detail}",
    "tier_up": "{tier} is in use again",
    "tier_refuses": "{tier} refuses what is sent to it: {detail}",
    "state_lost": "{where}acknowledged state is lost, the last durable checkpoint is {checkpoint}:"
    " {detail}",
    "branch_kept": "{where}checkpoint {checkpoint} is kept beside the head {head}: {detail}",
    "queued": "{where}checkpoint {checkpoint} waits in Redis until Postgres is back: {detail}",
    "hot_discarded": "{where}a hot state that was not current was removed: {detail}",
    "flush_failed": "{where}what waits in Redis could not be flushed to Postgres: {detail}",
    "lease_lost": "{where}the lease was lost: {detail}",
    "unknown_class": "{where}of checkpoint {checkpoint} {detail}",
    "secret_seen": "{where}a secret is stored, it seems: {detail}",
    "damaged": "{where}what is stored is not what was written: {detail}",
    "fell_back": "{where}checkpoint {checkpoint} is damaged and {head} is served instead: {detail}",
    "repaired": "{where}what was not as it was written was restored: {detail}",
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a tier, a thread or a checkpoint. `str` gives it as one line.

    Attributes:
        kind: what happened: ``"tier_down"`` (it failed), ``"tier_up"`` (it is in use again),
            ``"tier_refuses"`` (it answers, but takes nothing: it is full, say), ``"state_lost"``
            (Redis lost what Postgres did not have yet), ``"branch_kept"`` (a checkpoint is kept
            beside the head), ``"queued"`` (a checkpoint was acknowledged by Redis alone, since
            Postgres was down), ``"hot_discarded"`` (a hot state that was not current was removed),
            ``"flush_failed"``, ``"lease_lost"``, ``"unknown_class"`` (a stored object was read as
            raw data, by ``on_unknown_class="raw"``), ``"secret_seen"`` (what is stored looks like a
            credential), ``"damaged"`` (what is stored is not what was written; it was served from
            the other tier, or refused, or left out, or neither tier has it), ``"fell_back"`` (so
            that an earlier state was served), ``"repaired"`` (it was put right).
        at: when, in seconds since the epoch.
        detail: what is known beside that; the tier's own words, for one.
        tier: ``"postgres"`` or ``"redis"``, if it concerns one.
        tenant, thread, namespace: where, if it concerns a thread.
        checkpoint: the id of the checkpoint concerned; of a ``"state_lost"`` the last durable one.
        head: of a ``"branch_kept"``, the id of the actual head; of a ``"fell_back"`` of what was
            served.
    """

    kind: Kind
    at: float
    detail: str = ""
    tier: str | None = None
    tenant: str = ""
    thread: str | None = None
    namespace: str | None = None
    checkpoint: str | None = None
    head: str | None = None

    def __str__(self) -> str:
        line = _WORDS[self.kind].format(
            tier=(self.tier or "a tier").capitalize(),
            where=self._where(),
            checkpoint=self.checkpoint,
            head=self.head,
            detail=" ".join(self.detail.split()),
        )
        return line.rstrip(": ")

    def _where(self) -> str:
        if self.thread is None:
            return ""
        of = f" of tenant {self.tenant!r}" if self.tenant else ""
        return f"thread {self.thread!r}{of}, namespace {self.namespace!r}: "


Observer = Callable[[Event], None]
"""Called with each event, on the thread or in the loop that noticed it: it should be quick."""
