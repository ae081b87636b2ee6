"""One saver seen through either face, so that a test body is written once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_durable_state import DurableSaver


class OnBlockingFace(BaseCheckpointSaver[str]):
    """The native interface over a saver's blocking methods."""

    def __init__(self, saver: DurableSaver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return self.saver.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.saver.list(config, **options):
            yield found

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self.saver.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str, **options: Any) -> None:
        self.saver.delete_thread(thread_id, **options)

    async def adelete_for_runs(self, run_ids: Sequence[str], **options: Any) -> None:
        self.saver.delete_for_runs(run_ids, **options)

    async def acopy_thread(
        self, source_thread_id: str, target_thread_id: str, **options: Any
    ) -> None:
        self.saver.copy_thread(source_thread_id, target_thread_id, **options)

    async def aprune(self, thread_ids: Sequence[str], **options: Any) -> None:
        self.saver.prune(thread_ids, **options)

    async def aget_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        return self.saver.get_next_version(current, channel)

    async def averify(self, *args: Any, **options: Any) -> Any:
        return self.saver.verify(*args, **options)

    async def arekey(self, *args: Any, **options: Any) -> Any:
        return self.saver.rekey(*args, **options)

    async def amigrate(self, *args: Any, **options: Any) -> Any:
        return self.saver.migrate(*args, **options)

    async def aflush(self) -> None:
        self.saver.flush()

    async def aexport_head(self, thread_id: str) -> str:
        return self.saver.export_head(thread_id)

    async def acheck_head(self, anchor: str) -> int:
        return self.saver.check_head(anchor)
