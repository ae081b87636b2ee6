"""The writes of one task that wait on a checkpoint, through one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import tasks, updates
from .naming import Gone, Names
from .operations import Free
from .steps import Stage
from .tasks import Call, Task
from .updates import Update

NO_WRITES = "__no_writes__"
_ERROR_SOURCE = "__error_source_node__"
CONTROL = frozenset(("__error__", _ERROR_SOURCE, "__interrupt__", "__resume__"))
"""Channels that tell what became of a task, not what it made."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one task wrote, under one version.

    Attributes:
        task: its id, and `path` its path, as stored.
        who: the task, in the names of the version reached; None for nobody's.
        found: whether the triggers of `who` are known to be right.
        writes: by channel.
    """

    task: str
    path: str
    who: Task | Call | None
    found: bool
    writes: tuple[Update, ...]


def staged(
    batch: Batch,
    stage: Stage,
    kept: Mapping[Free, frozenset[str]],
    checkpoint: Mapping[str, Any],
) -> Batch:
    """The batch after a step.

    Args:
        kept: the channels that each function of the user's left as they were.
        checkpoint: that it waits on, after the step.

    Raises:
        EvolutionError: if an update cannot be brought there.
        Gone: if it is of or for a node that is no more.
    """
    writes: Sequence[Update] = batch.writes
    for each in stage.shapes:
        writes = updates.reshaped(writes, each)
    if stage.nodes:
        names = Names(stage.nodes)
        writes = [(_channel(channel, names), _value(channel, v, names)) for channel, v in writes]
        batch = replace(batch, who=_who(batch.who, names, stage, checkpoint))
    for free in stage.frees:
        writes = updates.freed(writes, free, kept.get(free, frozenset()))
    if _made(batch.writes) and not _made(writes):  # it has run, whatever is left of what it wrote
        writes = [*writes, (NO_WRITES, None)]
    return replace(batch, writes=tuple(writes))


def _made(writes: Sequence[Update]) -> bool:
    return any(channel not in CONTROL for channel, _ in writes)


def _who(
    who: Task | Call | None, names: Names, stage: Stage, checkpoint: Mapping[str, Any]
) -> Task | Call | None:
    if isinstance(who, Call):
        return Call(names.task(who.caller))
    new = None if who is None else names.task(who)
    if new is None or new.node not in stage.heirs or new.index is not None:
        return new
    return replace(new, triggers=new.triggers | tasks.triggers(checkpoint, new.node))


def _channel(channel: str, names: Names) -> str:
    new = names.channel(channel)
    if new is None:
        join = tasks.joined(channel)
        raise Gone(tasks.started(channel) or (join[1] if join else channel))
    return new


def _value(channel: str, value: Any, names: Names) -> Any:
    if channel == tasks.TASKS:
        return names.send(value)
    if channel == _ERROR_SOURCE or tasks.joined(channel) is not None:
        return names.sure(value) if isinstance(value, str) else value
    return value
