"""What LangGraph derives from a node's name: its channels, its tasks' ids and paths, the ids of
the interrupts that they raise, the namespaces of its subgraphs.

LangGraph's own functions where it has them; the rest is spelled as its 1.2 does, and pinned by
tests against it.
"""

from __future__ import annotations

import binascii
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import xxhash
from langgraph.pregel._algo import _uuid5_str, _xxhash_str, task_path_str

START = "__start__"
TASKS = "__pregel_tasks"
NULL = "00000000-0000-0000-0000-000000000000"
PULL, PUSH = "__pregel_pull", "__pregel_push"
NS_SEP, NS_END = "|", ":"
HANDLER = "__error_handler__"
DEFAULT_HANDLER = "__default_error_handler__"

_BRANCH, _JOIN = "branch:to:", "join:"
_HANDLED = "node_error_handler"
_PULLED = f"~{PULL}, "
_PUSHED = re.compile(rf"~{PUSH}, (\d{{10}})(, 0{{10}})?")
_HANDLING = re.compile(rf"(.*), {_HANDLED}, 0{{10}}")
_CALLED = re.compile(rf"~{PUSH}, (~.*), \d{{10}}, 0{{9}}1")
_MAX_GUESSED = 10
"""Of how many channels all combinations are tried as what triggers a node: 1,024 hashes."""


def _one_id(ns: str, answered: int) -> str:
    return xxhash.xxh3_128_hexdigest(ns.encode())


def _interrupt_ids() -> Callable[[str, int], str]:
    try:
        from langgraph.types import _interrupt_id
    except ImportError:  # an older LangGraph gives all interrupts of a task one id
        return _one_id
    return _interrupt_id


interrupt_id = _interrupt_ids()
"""The id of the interrupt that a task raises once it has had so many answers."""


# -- namespaces ------------------------------------------------------------------------------


def path_of(ns: str) -> str:
    """The names of the nodes that a namespace goes through, as ``outer/inner``."""
    parts = ns.split(NS_SEP) if ns else []
    return "/".join(part.split(NS_END)[0] for part in parts if not part.isdigit())


def below(ns: str, node: str) -> str:
    return f"{ns}{NS_SEP}{node}" if ns else node


# -- channels --------------------------------------------------------------------------------


def branch(node: str) -> str:
    """The channel that starts a node."""
    return _BRANCH + node


def started(channel: str) -> str | None:
    """The node that a channel starts, if it is such a channel."""
    return channel[len(_BRANCH) :] if channel.startswith(_BRANCH) else None


def joined(channel: str) -> tuple[str, str] | None:
    """What a channel waits for, joined by ``+``, and the node that it then starts."""
    if not channel.startswith(_JOIN):
        return None
    sources, _, end = channel[len(_JOIN) :].rpartition(":")
    return sources, end


def join(sources: str, end: str) -> str:
    return f"{_JOIN}{sources}:{end}"


def is_users(channel: str) -> bool:
    """Whether a channel is a key of the state."""
    if channel.startswith((_BRANCH, _JOIN)):
        return False
    return not channel.startswith("__") or channel == "__root__"


# -- tasks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """What the ids of all tasks of one step have in common."""

    ns: str
    checkpoint: str
    v: int
    step: int


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a node.

    Attributes:
        index: its place among the `Send`s of its step; None if an edge started it.
        triggers: the channels that can start the node.
        failed: the task that it handles the error of.
    """

    node: str
    index: int | None = None
    triggers: frozenset[str] = frozenset()
    failed: Task | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, made by a task of node `caller`; which function is not told."""

    caller: Task


def frame(ns: str, checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]) -> Frame:
    step = metadata.get("step", -1) + 1
    return Frame(ns, checkpoint["id"], checkpoint.get("v", 1), step)


def task_id(at: Frame, task: Task) -> str:
    """The id that LangGraph gives the task."""
    ns, end = at.ns, _end(task)
    if task.failed is not None:
        failed = task_id(at, task.failed)
        ns, end = task_ns(at, task.failed), (PUSH, _HANDLED, failed)
    made = _xxhash_str if at.v > 1 else _uuid5_str
    told = binascii.unhexlify(at.checkpoint.replace("-", ""))
    return str(made(told, below(ns, task.node), str(at.step), task.node, *end))


def _end(task: Task) -> tuple[str, ...]:
    if task.index is not None:
        return (PUSH, str(task.index))
    return (PULL, *sorted(task.triggers))


def task_ns(at: Frame, task: Task, known: str | None = None) -> str:
    """The namespace of what runs in a task."""
    ns = at.ns if task.failed is None else task_ns(at, task.failed)
    return f"{below(ns, task.node)}{NS_END}{known or task_id(at, task)}"


def task_path(task: Task) -> str:
    """Where the task is in its step, as LangGraph spells it."""
    return str(task_path_str(_path(task)))


def _path(task: Task) -> tuple[Any, ...]:
    if task.failed is not None:
        return (*_path(task.failed)[:3], _HANDLED, False)
    return (PULL, task.node) if task.index is None else (PUSH, task.index, False)


def told(path: str, checkpoint: Mapping[str, Any]) -> Task | Call | None:
    """Whose writes have this path; None for nobody's, as an update from outside."""
    called = _CALLED.fullmatch(path)
    if called is not None:
        caller = told(called[1], checkpoint)
        return Call(caller) if isinstance(caller, Task) else caller
    handling = _HANDLING.fullmatch(path)
    if handling is not None:
        failed = told(handling[1], checkpoint)
        return Task(HANDLER + failed.node, failed=failed) if isinstance(failed, Task) else None
    if path.startswith(_PULLED):
        return Task(path[len(_PULLED) :])
    pushed = _PUSHED.fullmatch(path)
    return None if pushed is None else _sent(int(pushed[1]), checkpoint)


def _sent(index: int, checkpoint: Mapping[str, Any]) -> Task | None:
    sends = sent(checkpoint)
    return Task(sends[index].node, index) if index < len(sends) else None


def sent(checkpoint: Mapping[str, Any]) -> Sequence[Any]:
    """The `Send`s that the next step runs."""
    held = checkpoint["channel_values"].get(TASKS) or ()
    sends: Sequence[Any] = held[-1] if isinstance(held, tuple) and held else held
    return sends


def triggers(checkpoint: Mapping[str, Any], node: str) -> frozenset[str]:
    """The channels that can start a node, as far as the checkpoint knows them."""
    versions = checkpoint["channel_versions"]
    joins = {each for each in versions if (joined(each) or ("", ""))[1] == node}
    return frozenset({branch(node), *joins, *checkpoint["versions_seen"].get(node, ())})


def guesses(checkpoint: Mapping[str, Any], task: Task) -> Iterator[Task]:
    """The task with what may start its node, the likeliest first."""
    if task.failed is not None:
        for failed in guesses(checkpoint, task.failed):
            yield Task(task.node, failed=failed)
            yield Task(DEFAULT_HANDLER, failed=failed)
        return
    if task.index is not None:
        yield task
        return
    if task.node == START:
        yield Task(START, triggers=frozenset({START}))
    known = triggers(checkpoint, task.node)
    for sure in ({branch(task.node)}, set[str]()):  # not in a graph that was not built with edges
        more = sorted(known - sure)[:_MAX_GUESSED]
        for size in reversed(range(len(more) + 1)):
            for some in combinations(more, size):
                yield Task(task.node, triggers=frozenset(sure.union(some)))
    yield Task(task.node, triggers=frozenset({START}))


def found(at: Frame, checkpoint: Mapping[str, Any], task: Task, known: str) -> Task | None:
    """The task with the triggers that make its id the one that is stored; None if none do."""
    try:
        uuid.UUID(at.checkpoint)
    except ValueError:  # none of LangGraph's: it has no tasks
        return None
    return next((each for each in guesses(checkpoint, task) if task_id(at, each) == known), None)


def taken_up(at: Frame, checkpoint: Mapping[str, Any], task: Task, known: str) -> bool:
    """Whether a stored id is the one under which LangGraph keeps, for DeltaChannels alone, what a
    task wrote that a run with ``durability="exit"`` has taken up: no task has that id, it is the
    task's own with the step in front. Before the first step there is nobody to go on."""
    ids = (task_id(at, each) for each in guesses(checkpoint, task))
    return at.step < 0 or any(f"{at.step:08d}{id[8:]}" == known for id in ids)


def searched(at: Frame, checkpoint: Mapping[str, Any], known: str) -> Task | None:
    """The task with this id, among those that the next step can have; None for none of them."""
    nodes = {node for name in checkpoint["channel_versions"] if (node := started(name))}
    nodes |= {START, *(send.node for send in sent(checkpoint))}
    tried = (
        found(at, checkpoint, task, known)
        for node in sorted(nodes)
        for task in running(checkpoint, node)
    )
    return next((each for each in tried if each is not None), None)


def running(checkpoint: Mapping[str, Any], node: str) -> Iterator[Task]:
    """The tasks that a node may have in the checkpoint's next step."""
    yield Task(node)
    for index, send in enumerate(sent(checkpoint)):
        if send.node == node:
            yield Task(node, index)
