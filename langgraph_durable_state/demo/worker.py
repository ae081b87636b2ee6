"""One process of `durable-state demo`: runs the agent for one task and reports on its output.

It is started as ``python -m langgraph_durable_state.demo.worker TASK`` with a `Task` as JSON. Each
line of its output is an event as JSON; where it waits, it waits for a line of input, so it ends
when whoever started it is gone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command

from ..errors import ConflictError
from ..saver import DurableSaver
from .agent import Journal, trip_agent


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is to do.

    Attributes:
        name: what the journal calls it.
        journal: path of the journal.
        ask: the user's message; None to go on with what is unfinished.
        answer: the human's answer to a pending interrupt; None if there is none.
        stall_in: the piece of work in whose middle to stop for ever.
        hold: wait for a line of input once the head was read.
    """

    name: str
    postgres: str
    redis: str
    thread: str
    journal: str
    ask: str | None = None
    answer: str | None = None
    stall_in: str | None = None
    hold: bool = False

    def argument(self) -> str:
        """The task as a command-line argument."""
        return json.dumps(asdict(self))


class WatchedSaver(DurableSaver):
    """A `DurableSaver` that tells what it has read and what is safely stored."""

    hold: Callable[[], None] | None = None

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = super().get_tuple(config)
        report("read", checkpoint=found.checkpoint["id"] if found else None)
        hold, self.hold = self.hold, None
        if hold is not None:
            hold()
        return found

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        super().put_writes(config, writes, task_id, task_path)
        for work in tools_in(writes):
            report("stored", work=work)


def tools_in(writes: Sequence[tuple[str, Any]]) -> list[str]:
    """The tools whose answers are among these writes."""
    values = [value for channel, value in writes if channel == "messages"]
    lists = [value for value in values if isinstance(value, list)]
    return [str(m.name) for messages in lists for m in messages if isinstance(m, ToolMessage)]


def report(event: str, **facts: Any) -> None:
    """Tells whoever started this process; several threads may."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def _wait_for_a_line() -> None:
    if not sys.stdin.readline():
        os._exit(1)  # whoever started this process is gone; an exception would end one thread


def _stall(task: Task) -> Callable[[str], None]:
    def meanwhile(work: str) -> None:
        if work == task.stall_in:
            report("stalled", work=work)
            _wait_for_a_line()

    return meanwhile


def _input(task: Task) -> Any:
    if task.answer is not None:
        return Command(resume=task.answer)
    return {"messages": [("user", task.ask)]} if task.ask is not None else None


def work(task: Task, saver: WatchedSaver) -> None:
    """Runs the agent until it is finished, needs a human, or has lost the thread to another."""
    agent = trip_agent(saver, Journal(Path(task.journal), task.name), _stall(task))
    config: RunnableConfig = {"configurable": {"thread_id": task.thread}}
    try:
        # "sync": a step is stored before the next begins, so a kill costs no finished step.
        result = agent.invoke(_input(task), config, durability="sync")
    except ConflictError as lost:
        report("conflict", refused=lost.refused, expected=lost.expected, actual=lost.actual)
        return
    if "__interrupt__" in result:
        report("interrupt", value=result["__interrupt__"][0].value)
    else:
        report("finished", reply=result["messages"][-1].content)


def main() -> None:
    """Reads the task and does it."""
    task = Task(**json.loads(sys.argv[1]))
    # A short conversation is below the size from which Redis serves by default; here it shall.
    with WatchedSaver(task.postgres, task.redis, hot_reads="always") as saver:
        if task.hold:
            saver.hold = _wait_for_a_line
        work(task, saver)


if __name__ == "__main__":
    main()
