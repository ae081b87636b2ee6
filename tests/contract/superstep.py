"""What LangGraph asks of a saver at one superstep, without a graph around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

PutArgs = tuple[Any, Any, Any, Any]


def config(thread: str = "t", id: str | None = None, ns: str = "") -> Any:
    named = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": named if id is None else {**named, "checkpoint_id": id}}


def superstep(
    saver: Any,
    before: CheckpointTuple | None,
    id: str,
    values: Mapping[str, Any],
    *,
    thread: str = "t",
    ns: str = "",
    dropped: tuple[str, ...] = (),
    metadata: Mapping[str, Any] | None = None,
) -> PutArgs:
    """The arguments of the `put` that follows `before` (None: of a thread's first).

    Channels in `values` get a new version and this value; those in `dropped` get a new version
    and have no value any more. The others stay as they are.
    """
    old = before.checkpoint if before is not None else {}
    versions = dict(old.get("channel_versions", {}))
    new = {name: saver.get_next_version(versions.get(name), None) for name in (*values, *dropped)}
    kept = {k: v for k, v in old.get("channel_values", {}).items() if k not in dropped}
    checkpoint = {
        "v": 4,
        "id": id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {**kept, **values},
        "channel_versions": versions | new,
        "versions_seen": {"node": dict(versions)},
        "updated_channels": sorted(new),
    }
    where = before.config if before is not None else config(thread, ns=ns)
    return where, checkpoint, dict(metadata or {"source": "loop", "step": 1}), new


def with_id(before: Any, id: str) -> Any:
    """The config of the checkpoint that is put after `before`, as LangGraph makes it."""
    return {"configurable": {**before["configurable"], "checkpoint_id": id}}
