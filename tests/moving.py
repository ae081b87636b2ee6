"""A thread of LangGraph's own saver, moved to the names of a newer graph by the pure core alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_durable_state.decisions.evolution.evolving import (
    evolved,
    moved_interrupts,
    moved_namespace,
)
from langgraph_durable_state.decisions.evolution.snapshot import Snapshot, Write
from langgraph_durable_state.evolution import StateSchema

THREAD = "t"


def config(ns: str = "", checkpoint: str | None = None) -> dict[str, Any]:
    inner: dict[str, Any] = {"thread_id": THREAD, "checkpoint_ns": ns}
    if checkpoint is not None:
        inner["checkpoint_id"] = checkpoint
    return {"configurable": inner}


def snapshots(saver: InMemorySaver, ns: str = "", version: int = 0) -> Iterator[Snapshot]:
    """All checkpoints of a namespace, oldest first, with their writes and the writes' paths."""
    for id in sorted(saver.storage[THREAD][ns]):
        found = saver.get_tuple(config(ns, id))
        assert found is not None
        held = saver.writes.get((THREAD, ns, id), {})
        writes = tuple(
            Write(task, path, channel, saver.serde.loads_typed(value), version)
            for task, channel, value, path in held.values()
        )
        yield Snapshot(ns, version, found.checkpoint, dict(found.metadata), writes)


def head(saver: InMemorySaver, ns: str = "", version: int = 0) -> Snapshot:
    return [*snapshots(saver, ns, version)][-1]


def place(saver: InMemorySaver, snapshot: Snapshot, parent: str | None = None) -> None:
    """Puts a snapshot as LangGraph would have."""
    checkpoint = dict(snapshot.checkpoint)
    at = config(snapshot.ns, checkpoint["id"])
    saver.put(
        config(snapshot.ns, parent),
        checkpoint,  # type: ignore[arg-type]
        dict(snapshot.metadata),  # type: ignore[arg-type]
        checkpoint["channel_versions"],
    )
    batches: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for write in snapshot.writes:
        batches.setdefault((write.task, write.path), []).append((write.channel, write.value))
    for (task, path), writes in batches.items():
        special = [each for each in writes if each[0] in ("__interrupt__", "__resume__")]
        for some in (special, [each for each in writes if each not in special]):
            if some:
                saver.put_writes(at, some, task, path)  # type: ignore[arg-type]


def moved(old: InMemorySaver, schema: StateSchema) -> InMemorySaver:
    """A new saver with the same thread in the newest shape, all namespaces and checkpoints."""
    names = namespaces(old, schema)
    interrupts: dict[str, str] = {}
    for ns, now in names.items():
        for each in snapshots(old, ns):
            interrupts |= moved_interrupts(each, schema, schema.version, now)
    new = InMemorySaver()
    for ns, now in names.items():
        parent = None
        for each in snapshots(old, ns):
            place(new, evolved(each, schema, schema.version, now, interrupts), parent)
            parent = each.checkpoint["id"]
    return new


def namespaces(old: InMemorySaver, schema: StateSchema) -> dict[str, str]:
    """What each namespace is called in the newest shape."""
    names = {"": ""}
    for ns in sorted(old.storage[THREAD], key=lambda each: each.count("|")):
        if ns == "":
            continue
        parents = head(old, ns).metadata["parents"]
        above = max((each for each in parents if ns.startswith(each)), key=len)
        around = next(s for s in snapshots(old, above) if s.checkpoint["id"] == parents[above])
        names[ns] = moved_namespace(around, schema, schema.version, ns, names[above])
    return names
