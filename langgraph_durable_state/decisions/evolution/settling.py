"""The ids that LangGraph will look for: of tasks under their new names, and of the interrupts that
they wait at.

An id is a hash of, among others, the channels that can start the node, which nothing stored tells
outright. So the old id is made again from what the checkpoint knows of them: if it is the stored
one, then they are right, and the new id is made from the same channels under their new names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import EvolutionError
from . import tasks
from .shaping import Shape
from .snapshot import Write
from .tasks import Call, Frame, Task
from .waiting import Batch

_INTERRUPT, _RESUME = "__interrupt__", "__resume__"
_QUESTIONS = 64
"""Of one task, beyond those whose answers stand beside it: they may be in another batch."""

_SPECIAL = frozenset(("__error__", "__scheduled__", _INTERRUPT, _RESUME))
"""Channels of which a task has one write, the latest."""


@dataclass(frozen=True, slots=True)
class Settled:
    """One task's writes of one version, with the id and path that it has now.

    Attributes:
        was: the id of the task as stored.
        interrupts: new ids by old ones.
    """

    version: int
    was: str
    task: str
    path: str
    interrupts: Mapping[str, str]
    writes: tuple[tuple[str, Any], ...]

    def all(self, below: Mapping[str, str]) -> Iterable[Write]:
        """The writes; `below` are new ids of interrupts that subgraphs raised."""
        ids = {**below, **self.interrupts}
        for channel, value in self.writes:
            new = _answered(value, ids) if channel == _INTERRUPT else value
            yield Write(self.task, self.path, channel, new, self.version)


def batches(
    writes: Sequence[Write], version: int, shape: Shape, at: Frame | None
) -> tuple[Batch, ...]:
    """The writes of one version by task, each with the node that it is of.

    Args:
        shape: the checkpoint as that version's code saw it.
        at: what the ids of that version's tasks are made of; None if it is not known.
    """
    grouped: dict[tuple[str, str], list[Write]] = {}
    for write in writes:
        if write.version == version:
            grouped.setdefault((write.task, write.path), []).append(write)
    return tuple(_batch(at, shape, *each) for each in grouped.items())


def _batch(at: Frame | None, shape: Shape, key: tuple[str, str], writes: list[Write]) -> Batch:
    task, path = key
    who = tasks.told(path, shape.checkpoint)
    found = None
    if who is None and not path and at is not None and task != tasks.NULL:
        who = found = tasks.searched(at, shape.checkpoint, task)
    elif isinstance(who, Task):
        likeliest = next(tasks.guesses(shape.checkpoint, who))
        found = tasks.found(at, shape.checkpoint, who, task) if at is not None else likeliest
        who = found or likeliest
        if at is not None and found is None and tasks.taken_up(at, shape.checkpoint, who, task):
            who = None
    elif isinstance(who, Call):  # its id holds its caller's
        who = Call(next(tasks.guesses(shape.checkpoint, who.caller)))
    pairs = tuple((write.channel, write.value) for write in writes)
    return Batch(task, path, who, found is not None, pairs)


def settled(
    before: Batch, after: Batch, at: Frame | None, then: Frame, version: int, renamed: bool
) -> Settled:
    """A batch with its new id.

    Args:
        before, after: the batch at its own version, and at the one asked for.
        at, then: what the ids of their tasks are made of.
        version: the batch's own.
        renamed: whether any node of the graph has another name: it may be one that the checkpoint
            does not know to come before the batch's.

    Raises:
        EvolutionError: if the id has to be another, and its old one cannot be made again.
    """
    kept = Settled(version, before.task, before.task, before.path, {}, after.writes)
    who, was = after.who, before.who
    pulled = isinstance(was, Task) and was.index is None
    sure = before.found or not (renamed and pulled)
    if who is None or (who == was and at == then and sure):
        return kept
    if not isinstance(who, Task) or not isinstance(was, Task) or not before.found:
        raise EvolutionError(untold(before), checkpoint=then.checkpoint)
    task = tasks.task_id(then, who)
    ids = _interrupts(before, at, was, tasks.task_ns(then, who, task))
    return replace(kept, task=task, path=tasks.task_path(who), interrupts=ids)


def untold(batch: Batch) -> str:
    of = f"a call made by {_node(batch.who)}" if isinstance(batch.who, Call) else _node(batch.who)
    return (
        f"Task {batch.task} of {of} has another id under its new name, and which one cannot be "
        "told: let it finish with the code that started it"
    )


def _node(who: Task | Call | None) -> str:
    task = who.caller if isinstance(who, Call) else who
    return f"node {task.node!r}" if task is not None else "no node"


def _interrupts(before: Batch, at: Frame | None, was: Task, new: str) -> dict[str, str]:
    """The new id of each interrupt that the task itself raised: how many answers it then had is
    told by its old one."""
    answers = sum(_count(value) for channel, value in before.writes if channel == _RESUME)
    waits = [
        each.id
        for channel, value in before.writes
        if channel == _INTERRUPT
        for each in _listed(value)
        if hasattr(each, "id")
    ]
    if at is None:
        return {each: tasks.interrupt_id(new, answers) for each in waits}
    old = tasks.task_ns(at, was, before.task)
    asked = range(answers + _QUESTIONS)
    known = {tasks.interrupt_id(old, n): tasks.interrupt_id(new, n) for n in asked}
    return {each: known[each] for each in waits if each in known}


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _answered(value: Any, ids: Mapping[str, str]) -> Any:
    """An interrupt, or several, with their new ids."""
    if isinstance(value, (list, tuple)):
        return type(value)(_answered(each, ids) for each in value)
    new = ids.get(getattr(value, "id", ""))
    if new is None:
        return value
    value = copy.copy(value)
    value.id = new
    return value


def merged(writes: Iterable[Write], version: int) -> tuple[Write, ...]:
    """All writes as of one version: of what a task wrote twice, the newer version's.

    A task's ordinary writes are one whole, and so is each of its special channels.
    """
    held = list(writes)
    newest: dict[tuple[str, str], int] = {}
    for write in held:
        key = _whole(write)
        newest[key] = max(newest.get(key, 0), write.version)
    kept = (replace(w, version=version) for w in held if newest[_whole(w)] == w.version)
    return tuple(sorted(kept, key=lambda write: (write.path, write.task)))


def _whole(write: Write) -> tuple[str, str]:
    return write.task, write.channel if write.channel in _SPECIAL else ""
