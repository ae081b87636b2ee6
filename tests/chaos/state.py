"""The states that the chaos workers build: so redundant that any mixture of two would show.

A state follows from its place, from how many checkpoints lead to it, and from the ids of the last
of them; its channels hold all three several times over. So whoever reads one can tell by itself
whether it is whole, and which branch it stands on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph_durable_state.decisions import keys
from tests.contract.superstep import config

THREADS = 40

PLACES = [str(number) for number in range(THREADS + 10)]
"""Where states are kept: the threads, and a subgraph's namespace in each of the first ten."""

SUBGRAPH = "node:task"

KEPT = 100
"""Entries that a state keeps at least: some 15 KB, enough for a rope of several sizes of chunk."""

CUT = 50
"""Entries that are cut off at once, from the front of the rope."""

BULKY = 4
"""Every so manyth place has states beyond 64 KB, the others stay well below."""

BULK_STEPS = 3
"""Checkpoints that share one bulk: in between it is kept from the parent."""

SEED_STEPS = 16
"""Checkpoints from one stored value of the delta channel to the next."""

TRAIL = "trail"
"""The delta channel: its writes are replayed, and every sixteenth checkpoint holds a value."""


_BY_KEY = {keys.thread_of(config(str(n))).key.hex: str(n) for n in range(THREADS)}


def thread_of(place: str) -> tuple[str, str]:
    """A place's thread and namespace."""
    number = int(place)
    return (place, "") if number < THREADS else (str(number - THREADS), SUBGRAPH)


def place_of(thread: str, namespace: str) -> str:
    """The place of a thread and namespace."""
    return str(int(thread) + THREADS) if namespace else thread


def place_named(thread: str, namespace: str) -> str:
    """The place that an event is about: what another process left behind may be named by its key.

    Such a one is taken for the thread's root, since all of a thread is flushed together.
    """
    return place_of(_BY_KEY.get(thread, thread), namespace)


def config_at(place: str, id: str | None = None) -> Any:
    """The config of a place's head, or of one of its checkpoints."""
    thread, namespace = thread_of(place)
    return config(thread, id, namespace)


def state(place: str, count: int, ids: Sequence[str]) -> dict[str, Any]:
    """The channel values of the `count`th checkpoint of a branch.

    Args:
        place: whose number tells whether it is a bulky one.
        count: from 1.
        ids: of the branch's checkpoints up to this one; the oldest may be missing.
    """
    first = max(0, count - KEPT) // CUT * CUT
    if len(ids) < count - first:
        raise ValueError(f"{len(ids)} entries of {count - first}")
    kept = ids[first - count :]
    values: dict[str, Any] = {
        "count": count,
        "entries": [f"{id} {'entry ' * 20}{i}" for i, id in enumerate(kept, first)],
        "echo": echo(kept[-1]),
    }
    if int(place) % BULKY == 0:
        values["bulk"] = f"{ids[-1 - (count - 1) % BULK_STEPS]} " * 10_000
    if count % SEED_STEPS == 0:
        values[TRAIL] = count
    return values


def echo(id: str) -> str:
    """What a checkpoint holds of its own id: long enough for a chunk of its own."""
    return f"{id} " * 100


def ids_of(values: Mapping[str, Any]) -> list[str]:
    """The ids that a state holds, itself last."""
    return [entry.partition(" ")[0] for entry in values["entries"]]


def successor(place: str, values: Mapping[str, Any] | None, id: str) -> dict[str, Any]:
    """The state that follows on `values` (None: a place's first) under the new id."""
    if values is None:
        return state(place, 1, [id])
    return state(place, values["count"] + 1, [*ids_of(values), id])


def flaw(place: str, id: str, parent: str | None, values: Mapping[str, Any]) -> str | None:
    """Why this is not the whole state of the checkpoint `id` after `parent`; None if it is."""
    try:
        ids, count = ids_of(values), values["count"]
        before = ids[-2] if count > 1 else None
        if (ids[-1], before) != (id, parent):
            return f"it is the state of {ids[-1]} after {before}, not after {parent}"
        whole = state(place, count, ids)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return f"it cannot be read: {error!r}"
    wrong = [n for n in sorted({*whole, *values}) if whole.get(n) != values.get(n)]
    return f"channels {', '.join(wrong)} are not this state's" if wrong else None


def batch(token: str) -> list[tuple[str, Any]]:
    """The writes of one task. A token begins with the id of the checkpoint that the run makes
    next, whose echo is among them: the put may then refer to the chunk of the write."""
    return [(TRAIL, token), ("echo", echo(token.partition("/")[0]))]


def tokens_of(pending: Sequence[tuple[str, str, Any]]) -> dict[str, str | None]:
    """The token of each task's pending writes; None if they are not one whole batch."""
    found: dict[str, str | None] = {}
    for task, writes in itertools.groupby(pending, key=lambda write: write[0]):
        made = [(channel, value) for _, channel, value in writes]
        token = made[0][1]
        whole = made == batch(token) if made[0][0] == TRAIL else len(made) == 1
        found[task] = token if whole and task not in found else None
    return found
