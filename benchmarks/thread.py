"""One thread, driven as LangGraph drives a saver: load the head, then a put per superstep."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.base.id import uuid6

from .subjects import Subject

_NUMBERS = itertools.count(1)
_TRIGGER = "branch:to:agent"


class Thread:
    """A run on a thread.

    Args:
        subject: its saver.
        id: which thread; a new one if it is left out.
    """

    def __init__(self, subject: Subject, id: str | None = None) -> None:
        self._subject = subject
        self.id = id or f"thread-{next(_NUMBERS)}"
        self.asked: Any = {"configurable": {"thread_id": self.id, "checkpoint_ns": ""}}
        self._config: Any = self.asked
        self._versions: dict[str, Any] = {}
        self._seen: dict[str, dict[str, Any]] = {"__input__": {}}
        self.values: dict[str, Any] = {}
        self._step = -1
        self.load()

    def load(self) -> None:
        """Starts from the head, as each run of a graph does."""
        saved = self._subject.get(self.asked)
        if saved is not None:
            self._config = saved.config
            self._versions = dict(saved.checkpoint["channel_versions"])
            self.values = dict(saved.checkpoint["channel_values"])
            self._step = saved.metadata["step"] + 1

    def put(self, **changed: Any) -> float:
        """A superstep that changed these channels. Returns what its put took, in seconds."""
        new = {}
        for name in (*changed, _TRIGGER):
            before = self._versions.get(name)
            new[name] = self._subject.saver.get_next_version(before, None)
        self._versions |= new
        self._seen = self._seen | {"agent": {_TRIGGER: new[_TRIGGER]}}
        self.values |= changed
        checkpoint = {
            "v": 4,
            "id": str(uuid6(clock_seq=self._step)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": dict(self.values),
            "channel_versions": dict(self._versions),
            "versions_seen": dict(self._seen),
            "updated_channels": sorted(new),
        }
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self._subject.put(self._config, checkpoint, metadata, new)
        self._step += 1
        return self._subject.took

    def put_writes(self, *writes: tuple[str, Any]) -> float:
        """A task's writes against the checkpoint put last. Returns what it took, in seconds."""
        path = ("__pregel_pull", "agent")
        self._subject.put_writes(self._config, list(writes), str(uuid4()), "~".join(path))
        return self._subject.took
