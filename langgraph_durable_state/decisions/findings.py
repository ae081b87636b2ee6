"""What a checkpoint tells beside its values: questions that wait, nodes that are due and of which
nothing is stored, tool calls without an answer.

This file reads LangGraph's names for things, and decides and never acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.serde.types import INTERRUPT, RESUME, TASKS

from ..recovery import PendingInterrupt, ToolCall

_BRANCH = "branch:to:"
_JOIN = "join:"
_START = "__start__"
_PULL, _PUSH = "~__pregel_pull, ", "~__pregel_push, "
_SHOWN = 200

Write = tuple[str, str, Any]
"""A task, a channel, and what was written."""


def made_at(checkpoint: Mapping[str, Any]) -> float | None:
    """When a checkpoint was made, in seconds of the epoch; None if it does not tell."""
    try:
        made = datetime.fromisoformat(checkpoint["ts"])
        return (made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


# -- questions -------------------------------------------------------------------------------


def interrupts(writes: Iterable[Write]) -> tuple[PendingInterrupt, ...]:
    """The questions among pending writes that their task has no answer to."""
    found = list(writes)
    answered = {task for task, channel, _ in found if channel == RESUME}
    return tuple(
        PendingInterrupt(getattr(one, "id", None), task, _shown(getattr(one, "value", one)))
        for task, channel, value in found
        if channel == INTERRUPT and task not in answered
        for one in (value if isinstance(value, (list, tuple)) else [value])
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# -- nodes -----------------------------------------------------------------------------------


def unrecorded(checkpoint: Mapping[str, Any], paths: Iterable[str]) -> tuple[str, ...]:
    """The nodes that are due at a checkpoint and of which no write is stored: they may have run.

    Args:
        checkpoint: as LangGraph has it.
        paths: the task paths of the writes stored against it.
    """
    stored = set(paths)
    pulled = {path.removeprefix(_PULL) for path in stored if path.startswith(_PULL)}
    pushed = {_index(path) for path in stored if path.startswith(_PUSH)}
    sends = checkpoint["channel_values"].get(TASKS) or ()
    due = [name for name in _due(checkpoint) if name not in pulled]
    sent = [getattr(send, "node", "?") for i, send in enumerate(sends) if i not in pushed]
    return (*dict.fromkeys(due), *sent)


def _index(path: str) -> int:
    """Which of the sends a pushed task's path is of."""
    digits = path.removeprefix(_PUSH).partition(",")[0]
    return int(digits) if digits.isdigit() else -1


def _due(checkpoint: Mapping[str, Any]) -> Iterator[str]:
    versions = checkpoint.get("channel_versions") or {}
    seen = checkpoint.get("versions_seen") or {}
    for channel, value in checkpoint["channel_values"].items():
        node = _node_of(channel, value)
        if node is not None and _newer(versions.get(channel), (seen.get(node) or {}).get(channel)):
            yield node


def _node_of(channel: str, value: object) -> str | None:
    """The node that a channel starts, if its value does."""
    if channel == _START:
        return _START
    if channel.startswith(_BRANCH):
        return channel.removeprefix(_BRANCH)
    if channel.startswith(_JOIN):
        names, _, node = channel.removeprefix(_JOIN).rpartition(":")
        whole = isinstance(value, (set, frozenset, list)) and set(value) >= set(names.split("+"))
        return node if whole else None
    return None


def _newer(version: Any, seen: Any) -> bool:
    if version is None or seen is None:
        return version is not None
    try:
        return bool(version > seen)
    except TypeError:
        return bool(version != seen)


# -- tool calls ------------------------------------------------------------------------------


def dangling(values: Mapping[str, Any], writes: Iterable[Write]) -> tuple[ToolCall, ...]:
    """The tool calls in a checkpoint's lists of messages that no message answers, be it one among
    the pending writes."""
    written = [item for _, _, value in writes for item in _items(value)]
    answered = {_get(item, "tool_call_id") for item in written}
    asked: dict[str, ToolCall] = {}
    for channel, value in values.items():
        for item in _items(value):
            answered.add(_get(item, "tool_call_id"))
            for call in _calls(item):
                name = call.get("name") or (call.get("function") or {}).get("name") or "?"
                asked[str(call.get("id"))] = ToolCall(str(call.get("id")), str(name), channel)
    return tuple(call for id, call in asked.items() if id not in answered)


def _calls(item: object) -> Iterator[Mapping[str, Any]]:
    calls = _get(item, "tool_calls")
    if isinstance(calls, (list, tuple)):
        yield from (call for call in calls if isinstance(call, Mapping))


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _get(item: object, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
