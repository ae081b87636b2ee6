"""What waits for a node that the code does not have.

LangGraph prepares no task for such a node and says nothing: `next` is empty, and an answer to its
interrupt is taken and forgotten. A saver is never told which nodes a graph has; a fingerprint does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from langgraph.types import Send

from . import tasks
from .snapshot import Snapshot, Write
from .tasks import Call, Task


def unknown_tasks(snapshot: Snapshot, nodes: Collection[str]) -> tuple[str, ...]:
    """The nodes that a checkpoint's next step should run, or that its writes are of or for, and
    that are not among these.

    It is for a checkpoint that a run goes on from. What lies behind a head was done by nodes that
    may well be gone, and its writes are taken up.

    Args:
        snapshot: in the names of the version that `nodes` are of.
        nodes: of the graph whose checkpoint it is, not of those around it or in it:
            `Fingerprint.nodes_at`.
    """
    named = {*_started(snapshot), *_sent(snapshot)}
    for write in snapshot.writes:
        named.update(_written(write, snapshot))
    # LangGraph's own nodes are not told in a fingerprint.
    return tuple(sorted(each for each in named - {*nodes} if not each.startswith("__")))


def _started(snapshot: Snapshot) -> Iterator[str]:
    """The nodes that an edge has started: its channel has a value that they have not seen."""
    checkpoint = snapshot.checkpoint
    for channel, value in checkpoint["channel_values"].items():
        node, joined = tasks.started(channel), tasks.joined(channel)
        if joined is not None and _arrived(joined[0], value):
            node = joined[1]
        if node is not None and _unseen(snapshot, node, channel):
            yield node


def _arrived(starts: str, value: object) -> bool:
    """Whether all are there that an edge waits for. One that still waits holds up nobody: it may
    for ever."""
    seen = value[0] if isinstance(value, tuple) else value
    return isinstance(seen, Collection) and (
        sorted("+".join(seen).split("+")) == sorted(starts.split("+"))
    )


def _unseen(snapshot: Snapshot, node: str, channel: str) -> bool:
    version = snapshot.checkpoint["channel_versions"].get(channel)
    seen = snapshot.checkpoint["versions_seen"].get(node, {}).get(channel)
    return version is not None and (seen is None or version > seen)


def _sent(snapshot: Snapshot) -> Iterator[str]:
    return (each.node for each in tasks.sent(snapshot.checkpoint) if isinstance(each, Send))


def _written(write: Write, snapshot: Snapshot) -> Iterator[str]:
    """Whose write it is, and whom it starts."""
    who = tasks.told(write.path, snapshot.checkpoint)
    if isinstance(who, Call):
        who = who.caller
    if isinstance(who, Task):
        yield (who.failed or who).node
    if write.channel == tasks.TASKS and isinstance(write.value, Send):
        yield write.value.node
    if (node := tasks.started(write.channel)) is not None:
        yield node
