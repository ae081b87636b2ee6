"""The new names of nodes, and of what LangGraph names after them, in one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langgraph.types import Send

from . import tasks
from .tasks import Task


class Gone(Exception):
    """Something waits for a node that is no more."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


@dataclass(frozen=True, slots=True)
class Names:
    """Nodes that have another name, or none (None)."""

    nodes: Mapping[str, str | None]

    def node(self, name: str) -> str | None:
        if name in self.nodes:
            return self.nodes[name]
        if name.startswith(tasks.HANDLER):  # LangGraph names a node's handler after it
            failed = name[len(tasks.HANDLER) :]
            new = self.nodes.get(failed, failed)
            return None if new is None else tasks.HANDLER + new
        return name

    def sure(self, name: str) -> str:
        """The new name of a node that something waits for.

        Raises:
            Gone: if it is no more.
        """
        new = self.node(name)
        if new is None:
            raise Gone(name)
        return new

    def channel(self, name: str) -> str | None:
        """The new name of a channel of LangGraph's own; None if its node is no more."""
        node = tasks.started(name)
        if node is not None:
            new = self.node(node)
            return None if new is None else tasks.branch(new)
        parts = tasks.joined(name)
        if parts is None:
            return name
        sources, end = self.sources(parts[0]), self.node(parts[1])
        return tasks.join(sources, end) if sources and end is not None else None

    def sources(self, joined: str) -> str:
        """What a channel waits for, in the new names: a name may hold a ``+`` itself."""
        for old, new in self.nodes.items():
            joined = f"+{joined}+".replace(f"+{old}+", f"+\0{new or ''}+")[1:-1]
        renamed: dict[str, bool] = {}
        parts: list[str] = []
        for each in joined.split("+"):
            part, is_new = each.removeprefix("\0"), each.startswith("\0")
            if each == "\0" or (part in renamed and (is_new or renamed[part])):
                continue  # two that have become one; of a name with a + the parts may be alike
            renamed[part] = is_new
            parts.append(part)
        return "+".join(parts)

    def gone(self, joined: str, end: str) -> str | None:
        """A node that is no more, of those that wait and are waited for; None if all are."""
        dropped = (node for node, new in self.nodes.items() if new is None)
        return next((each for each in dropped if each == end or f"+{each}+" in f"+{joined}+"), None)

    def arrived(self, value: Any) -> Any:
        """Which of those that a channel waits for are there."""
        if isinstance(value, tuple):
            return (self.arrived(value[0]), *value[1:])
        return {new for each in value if (new := self.node(each)) is not None}

    def send(self, value: Any) -> Any:
        """A `Send` to the node's new name.

        Raises:
            Gone: if the node is no more.
        """
        if not isinstance(value, Send) or self.node(value.node) == value.node:
            return value
        return resent(value, self.sure(value.node))

    def task(self, task: Task) -> Task:
        """The task of the same node.

        Raises:
            Gone: if the node is no more.
        """
        failed = None if task.failed is None else self.task(task.failed)
        triggers = frozenset(self.channels(task.triggers))
        return replace(task, node=self.sure(task.node), triggers=triggers, failed=failed)

    def channels(self, names: Iterable[str]) -> Iterable[str]:
        return (new for each in names if (new := self.channel(each)) is not None)


def resent(send: Send, node: str) -> Send:
    timeout = getattr(send, "timeout", None)  # a `Send` of LangGraph before 1.2 has none
    return Send(node, send.arg) if timeout is None else Send(node, send.arg, timeout=timeout)
