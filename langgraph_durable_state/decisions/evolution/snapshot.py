"""One checkpoint with the writes that wait on it, in the shape of one version of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Write:
    """One pending write.

    Attributes:
        task: id of the task that wrote it.
        path: where that task is in its step, as LangGraph spells it; empty for none.
        channel: what it is for; one of LangGraph's own for an interrupt, an answer, an error.
        value: what was written.
        version: of the graph whose code wrote it, which may not be the checkpoint's.
    """

    task: str
    path: str
    channel: str
    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is stored of one checkpoint, with LangGraph's own dicts inside.

    Attributes:
        ns: its namespace, in the names that nodes had at `version`.
        version: of the graph whose code put it; 0 if none was told.
        checkpoint: ``v``, ``id``, ``ts``, ``channel_values``, ``channel_versions``,
            ``versions_seen`` and ``updated_channels``.
        metadata: its step, the checkpoints of the graphs around it, and what else was put with it.
        writes: what waits on it.
        former: its namespace in the names that older code knows, if that is at work; None if it is
            the same, or nobody told.
    """

    ns: str
    version: int
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    writes: tuple[Write, ...] = ()
    former: str | None = None
