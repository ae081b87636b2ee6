"""What of older state can be used under a newer shape without a whole checkpoint to look at: bytes
that are stored already, and the history of one channel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...errors import EvolutionError
from . import asking, tasks
from .operations import Reclass
from .steps import Stage, StateSchema


def touched(schema: StateSchema, from_: int, to: int, path: str) -> frozenset[str] | None:
    """Channels of the shape of `to` whose stored bytes of version `from_` must not be reused;
    None for all of them.

    Args:
        schema: the graph's.
        from_, to: the versions of what is stored, and of what is to be stored.
        path: the graph's, in the names of `to`; see `evolving.path_of`.
    """
    if from_ == to:
        return frozenset()
    stages = schema.stages(from_, to, schema.path(path, to, from_))
    low, high = sorted((from_, to))
    declared = [each for version in range(low, high) for each in schema.operations(version)]
    if any(isinstance(each, Reclass) for each in declared):
        return None  # the bytes name the class
    if any(free.channels is None for stage in stages for free in stage.frees):
        return None
    if _returns(stages):
        return None
    return frozenset(name for stage in stages for name in _touched(stage))


def _returns(stages: Sequence[Stage]) -> bool:
    """Whether a node's name is given to another one: its channels may be stored of both."""
    left: set[str] = set()
    for stage in stages:
        if left & {new for new in stage.nodes.values() if new is not None}:
            return True
        left |= stage.nodes.keys()
    return any(set(stage.nodes) & set(stage.nodes.values()) for stage in stages)


def _touched(stage: Stage) -> set[str]:
    names = {name for each in stage.shapes for name in (*each.sources, *each.targets)}
    names |= {name for free in stage.frees for name in free.channels or ()}
    if names:
        names.add(tasks.START)
    if stage.nodes:
        names |= {tasks.branch(new) for new in stage.nodes.values() if new is not None}
        names.add(tasks.TASKS)
    return names


def stored_name(schema: StateSchema, channel: str, from_: int, to: int, path: str) -> str | None:
    """What a channel of version `from_` was called at the older version `to`; None if it was not
    there.

    Args:
        schema: the graph's.
        channel: its name at version `from_`.
        from_, to: the versions.
        path: the graph's, in the names of version `from_`.

    Raises:
        EvolutionError: if it came from several channels, or by a function: what was written to it
            then cannot be told.
    """
    name: str | None = channel
    for stage in reversed(schema.stages(to, from_, schema.path(path, from_, to))):
        name = None if name is None else _before(stage, name)
    return name


def current_name(schema: StateSchema, channel: str, from_: int, to: int, path: str) -> str | None:
    """What a channel of version `from_` is called at the newer version `to`; None if there is none
    any more.

    Args:
        schema: the graph's.
        channel: its name at version `from_`.
        from_, to: the versions.
        path: the graph's, in the names of version `from_`.

    Raises:
        EvolutionError: if several channels were made from it.
    """
    for stage in schema.stages(from_, to, path):
        of = [each for each in stage.shapes if channel in each.sources]
        if of and len(of[0].targets) > 1:
            raise _untold(channel, stage)
        if of and not of[0].targets:
            return None
        channel = of[0].targets[0] if of else channel
    return channel


def _before(stage: Stage, name: str) -> str | None:
    for each in stage.shapes:
        if name in each.targets:
            if len(each.sources) > 1:
                raise _untold(name, stage)
            return each.sources[0] if each.sources else None
        if name in each.sources:
            return None
    if any(asking.sees(free, name) and free.updates is None for free in stage.frees):
        raise _untold(name, stage)
    return name


def _untold(name: str, stage: Stage) -> EvolutionError:
    return EvolutionError(
        f"What was written to channel {name!r} before version {stage.version} cannot be told: it "
        "came from several channels, or by a function that was not given other channels=…",
        channel=name,
    )


def value_up(schema: StateSchema, channel: str, value: Any, from_: int, to: int, path: str) -> Any:
    """One value that was stored of a channel, or written to it, in the shape of version `to`.

    Args:
        schema: the graph's.
        channel: its name at version `to`.
        value: as stored at version `from_`, under its name then; see `stored_name`.
        from_, to: the versions, the older first.
        path: the graph's, in the names of version `to`.

    Raises:
        EvolutionError: as `stored_name`, or if a function of the user's fails.
    """
    stages = schema.stages(from_, to, schema.path(path, to, from_))
    names: list[str | None] = [channel]
    for stage in reversed(stages):
        names.append(None if names[-1] is None else _before(stage, names[-1]))
    names.reverse()
    for stage, (old, new) in zip(stages, pairwise(names), strict=True):
        if old is not None and new is not None:
            value = _raised(stage, old, new, value)
    return value


def _raised(stage: Stage, old: str, new: str, value: Any) -> Any:
    inner, wrap = asking.bare(value)
    for each in stage.shapes:
        if old in each.sources:
            return wrap(asking.reshaped(each, (inner,))[each.targets.index(new)])
    for free in stage.frees:
        if asking.sees(free, old) and free.updates is not None:
            made = asking.called(free.updates, free, {old: inner})
            if new not in made:
                raise _untold(new, stage)
            return wrap(made[new])
    return value


def path_up(schema: StateSchema, told: str, from_: int, to: int, path: str) -> str:
    """The path of a task of version `from_`, as the tasks of version `to` are ordered by theirs.

    Args:
        schema: the graph's.
        told: as stored.
        from_, to: the versions.
        path: the graph's, in the names of version `to`.
    """
    task = tasks.told(told, {"channel_values": {}})
    if not isinstance(task, tasks.Task) or task.failed is not None:
        return told  # a `Send` is ordered by its place alone
    before = schema.path(path, to, from_)
    now = schema.path(f"{before}/{task.node}" if before else task.node, from_, to)
    return tasks.task_path(tasks.Task(now.rpartition("/")[2]))
