"""Events to the log."""

from __future__ import annotations

import logging

logger = logging.getLogger("langgraph_durable_state")


class LoggedEvents:
    """Implements `Events`."""

    def emit(
        self,
        kind: str,
        *,
        thread: str | None = None,
        namespace: str | None = None,
        checkpoint: str | None = None,
        detail: str = "",
    ) -> None:
        logger.warning("%s: thread %r %r %s: %s", kind, thread, namespace, checkpoint, detail)
