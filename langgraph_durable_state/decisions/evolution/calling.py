"""What LangGraph tells a subgraph of the task that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.types import Send

from .snapshot import Snapshot
from .tasks import PUSH, TASKS

_HASHED_AS_TODAY = 2
"""Of checkpoints of LangGraph's format 1, which it makes no more, ids are made otherwise."""


def caller_of(told: Mapping[str, Any], id: str, ns: str, version: int) -> Snapshot | None:
    """As much of a checkpoint, which may not be stored yet, as the id of the task is made of that
    runs a subgraph.

    Args:
        told: the metadata of the subgraph's config; perhaps of another task, whose id is another.
        id: the checkpoint's.
        ns: its namespace.
        version: of the code that runs.
    """
    node, path, step = (told.get(f"langgraph_{what}") for what in ("node", "path", "step"))
    if not isinstance(node, str) or not isinstance(step, int) or not path:
        return None
    triggers = tuple(told.get("langgraph_triggers") or ())
    sent = [Send(node, None)] * (path[1] + 1) if path[0] == PUSH and len(path) == 3 else []
    checkpoint = {
        "v": _HASHED_AS_TODAY,
        "id": id,
        "channel_values": {TASKS: sent} if sent else {},
        "channel_versions": dict.fromkeys(triggers, "1"),
        "versions_seen": {node: dict.fromkeys(triggers, "")},
    }
    return Snapshot(ns, version, checkpoint, {"step": step - 1})
