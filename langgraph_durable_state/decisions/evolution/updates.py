"""Updates that no channel has taken up yet, through one step: a run's input, what a task wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import EvolutionError
from . import asking
from .operations import Free, Reshape

Update = tuple[str, Any]
"""A channel, and what is for it."""


def reshaped(updates: Sequence[Update], each: Reshape) -> list[Update]:
    """The updates for what the operation's channels have become.

    Raises:
        EvolutionError: if some of the channels that become one have an update and some have not.
    """
    if len(each.sources) > 1:
        return _merged(updates, each)
    new: list[Update] = []
    for channel, value in updates:
        if channel not in each.sources:
            new.append((channel, value))
            continue
        inner, wrap = asking.bare(value)
        made = asking.reshaped(each, [inner])
        new += ((name, wrap(one)) for name, one in zip(each.targets, made, strict=True))
    return new


def _merged(updates: Sequence[Update], each: Reshape) -> list[Update]:
    """Each first update of the channels that become one together, each second one, and so on."""
    held: dict[str, list[Any]] = {name: [] for name in each.sources}
    for channel, value in updates:
        if channel in held:
            held[channel].append(value)
    if len({len(values) for values in held.values()}) > 1:
        found = [name for name, values in held.items() if values]
        raise EvolutionError(
            f"An update of {', '.join(found)} waits to be taken up, and {', '.join(each.sources)} "
            f"have become {', '.join(each.targets)}",
            channel=found[0],
        )
    together = zip(*held.values(), strict=True)
    new: list[Update] = []
    for channel, value in updates:
        if channel == each.sources[0]:
            bare = [asking.bare(one) for one in next(together)]
            made = asking.reshaped(each, [inner for inner, _ in bare])
            wrap = bare[0][1]
            new += ((name, wrap(one)) for name, one in zip(each.targets, made, strict=True))
        elif channel not in held:
            new.append((channel, value))
    return new


def freed(updates: Sequence[Update], free: Free, kept: frozenset[str]) -> list[Update]:
    """The updates for what a user's function has made of the channels.

    Args:
        kept: the channels that it left as they were.

    Raises:
        EvolutionError: if it changed a channel that one is for, and it was not declared how an
            update changes.
    """
    mine = [(channel, value) for channel, value in updates if asking.sees(free, channel)]
    if free.updates is None:
        return _untouched(updates, mine, kept)
    if not mine:
        return list(updates)
    bare = {channel: asking.bare(value) for channel, value in mine}
    if len(bare) < len(mine):
        raise EvolutionError("One task wrote to a channel more than once", channel=mine[0][0])
    made = asking.called(free.updates, free, {name: value for name, (value, _) in bare.items()})
    rest = [update for update in updates if not asking.sees(free, update[0])]
    back = {name: wrap for name, (_, wrap) in bare.items()}
    return [*rest, *((name, back[name](v) if name in back else v) for name, v in made.items())]


def _untouched(
    updates: Sequence[Update], mine: Sequence[Update], kept: frozenset[str]
) -> list[Update]:
    changed = [channel for channel, _ in mine if channel not in kept]
    if changed:
        raise EvolutionError(
            f"An update of channel {changed[0]!r} waits to be taken up, and a step's function "
            "changes that channel; give the step updates=…",
            channel=changed[0],
        )
    return list(updates)
