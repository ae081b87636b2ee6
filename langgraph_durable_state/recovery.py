"""What was found of a thread's state, and what is done about it, as values. This file imports
nothing of ours."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Decided = Literal[
    "resume", "resume_stale", "migrate", "repair", "fall_back", "start_fresh", "refuse"
]


@dataclass(frozen=True, slots=True)
class Damage:
    """Something stored that is not what was written, or is missing.

    Attributes:
        tier: where: ``"postgres"`` or ``"redis"``.
        checkpoint: the id of the checkpoint concerned; of an entry of the outbox ``""``.
        what: ``"checkpoint"``, ``"head"``, ``"write"`` or ``"outbox"``.
        detail: what was found.
        task: whose write it is.
        repairable: whether the other tier has the same, proven by its digest.
    """

    tier: str
    checkpoint: str
    what: Literal["checkpoint", "head", "write", "outbox"]
    detail: str
    task: str | None = None
    repairable: bool = False

    def __str__(self) -> str:
        of = f" of task {self.task}" if self.task else ""
        right = "; the other tier has it right" if self.repairable else ""
        at = f" {self.checkpoint}" if self.checkpoint else ""
        return f"{self.what}{at}{of} in {self.tier}: {self.detail}{right}"


@dataclass(frozen=True, slots=True)
class PendingInterrupt:
    """A question that waits for its answer: its id, the task that asks, and the question, shown.

    ``question`` is cut after 200 characters.
    """

    id: str | None
    task: str
    question: str

    def __str__(self) -> str:
        return f"{self.question} (interrupt {self.id}, task {self.task})"


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that the class of the state does not take: where it is, as in ``orders[0].item``,
    which may name keys of the user's, ``""`` for the state as a whole; and what is wrong with it,
    without the value."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path or 'the whole'}: {self.why}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a model that no message answers: its id, the tool's name, and the channel."""

    id: str
    name: str
    channel: str

    def __str__(self) -> str:
        return f"{self.name} ({self.id}, channel {self.channel})"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What `get_tuple` decides for a config, and why. `str` gives it as text of a few lines.

    Attributes:
        thread, tenant, namespace: where.
        decision: ``"resume"``; ``"resume_stale"`` (old, or not compared with the other tier);
            ``"migrate"`` (served in today's shape); ``"repair"`` (the other tier's copy is served);
            ``"fall_back"`` (an earlier state is served); ``"start_fresh"`` (there is nothing, and
            that is known); ``"refuse"`` (an error is raised).
        why: in words.
        error: the error's class and text, of a ``"refuse"``.
        asked: the id of the checkpoint that was asked for: the head's, unless the config names one;
            None if there is none.
        checkpoint: the id of the one that is served; None if none is.
        tier: ``"postgres"`` or ``"redis"``: where that comes from.
        skipped: checkpoints that were not served, newest first, each with the reason.
        last_sound: the id of the newest checkpoint that is sound, with all that it needs.
        last_readable: where the one asked for cannot be read by this code though it is sound, the
            id of the newest earlier one that can; see `fork_from`.
        age: seconds since what is served was made, by its own account; None if it does not tell.
        version, code_version: of the state's shape: that of what is served, and this code's.
        interrupts: questions that wait for their answer.
        unrecorded: nodes that are due at what is served and of which nothing is stored: they may
            have run without a record.
        dangling: tool calls that no message answers.
        damage: what was found damaged; what is ``repairable`` the other tier has.
        misfits: what the class of the state does not take of what is served, if `recover` was given
            one.
        last_valid: the id of the newest checkpoint that it takes; None if it was given none, or
            takes none. A run that names it as its ``checkpoint_id`` runs the nodes after it anew.
    """

    thread: str
    namespace: str
    decision: Decided
    why: str
    tenant: str = ""
    error: str | None = None
    asked: str | None = None
    checkpoint: str | None = None
    tier: str | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    last_sound: str | None = None
    last_readable: str | None = None
    age: float | None = None
    version: int | None = None
    code_version: int = 0
    interrupts: tuple[PendingInterrupt, ...] = ()
    unrecorded: tuple[str, ...] = ()
    dangling: tuple[ToolCall, ...] = ()
    damage: tuple[Damage, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    last_valid: str | None = None
    _head: bytes | None = field(default=None, repr=False)
    _sound: bytes | None = field(default=None, repr=False)
    _readable: bytes | None = field(default=None, repr=False)

    @property
    def repairs(self) -> tuple[Damage, ...]:
        """What a repair would restore from the other tier."""
        return tuple(one for one in self.damage if one.repairable)

    @property
    def forks(self) -> tuple[str | None, str] | None:
        """From which checkpoint to which `fork_from` moves the head, from None if it is gone; None
        if it moves nothing."""
        if self.last_sound is None or self._head in (None, self._sound):
            return None
        return self.asked if self._head else None, self.last_sound

    def rows(self) -> Iterator[tuple[str, str]]:
        """Each line of the text: a name, and what there is to say."""
        of = f" of tenant {self.tenant!r}" if self.tenant else ""
        ns = f", namespace {self.namespace!r}" if self.namespace else ""
        yield "Thread", f"{self.thread!r}{of}{ns}"
        yield "Decision", f"{self.decision}: {self.why}"
        if self.error:
            yield "Error", self.error
        if self.asked:
            yield "Asked for", self.asked
        if self.checkpoint:
            yield "Served", f"{self.checkpoint}, from {self.tier}{self._aged()}"
        for id, reason in self.skipped:
            yield "Skipped", f"{id}: {reason}"
        if self.last_sound and self.last_sound != self.checkpoint:
            yield "Last sound", self.last_sound
        if self.last_readable:
            yield "Readable", self.last_readable
        if self.last_valid and self.misfits:
            yield "Last valid", self.last_valid
        if self.version is not None:
            yield "Version", f"{self.version}, this code has {self.code_version}"
        for name, found in self._found():
            yield from ((name, str(each)) for each in found)

    def _aged(self) -> str:
        return f", {self.age:,.0f} s old" if self.age is not None else ""

    def _found(self) -> Iterator[tuple[str, tuple[object, ...]]]:
        yield "Waits for", self.interrupts
        yield "May have run", self.unrecorded
        yield "Unanswered", self.dangling
        yield "Damage", self.damage
        yield "Unsuited", self.misfits

    def __str__(self) -> str:
        return "\n".join(f"{name:<13}{said}" for name, said in self.rows())

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(said)}</td></tr>"
            for name, said in self.rows()
        )
        return f"<table>{''.join(cells)}</table>"

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        shown = {name: value for name, value in asdict(self).items() if not name.startswith("_")}
        shown["repairs"] = [asdict(one) for one in self.repairs]
        found: dict[str, Any] = json.loads(json.dumps(shown))
        return found


OnRecovery = Callable[[RecoveryReport], None]
"""Called by a read of a head that is not served just as it was left, with what is decided. What it
raises is raised by the read."""
