"""What is measured at each size of state. A workload is made once per subject; `once` is one
sample. Every subject is given the same values in the same order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from langchain_core.messages import AnyMessage

from . import texts
from .subjects import Subject
from .thread import Thread


@dataclass(frozen=True)
class Size:
    """A size of state, and how often it is measured at it."""

    name: str
    bytes: int
    rounds: int
    quick: int


SIZES = (
    Size("2 KB", 2 * 1024, 150, 25),
    Size("50 KB", 50 * 1024, 80, 12),
    Size("1 MB", 1024 * 1024, 20, 3),
)


class Workload:
    """One measurement of one subject at one size.

    Attributes:
        name: the row's heading.
        share: of the size's rounds.
        only: names of the sizes it is measured at; None for all.
    """

    name: ClassVar[str]
    share: ClassVar[float] = 1.0
    only: ClassVar[Sequence[str] | None] = None

    def __init__(self, subject: Subject, size: Size) -> None:
        self.subject = subject
        self.size = size
        self.rng = random.Random(size.bytes)
        self.prepare()

    def prepare(self) -> None:
        """What must be stored first."""

    def once(self) -> float:
        """One sample, in seconds."""
        raise NotImplementedError

    def history(self) -> list[AnyMessage]:
        return texts.history(self.rng, self.size.bytes)

    def message(self, turn: int) -> AnyMessage:
        return texts.message(self.rng, 600, turn)


class PutAppended(Workload):
    """A superstep that appends one message to a history of this size."""

    name = "put, one message more"

    def prepare(self) -> None:
        self.messages = self.history()
        self.most = max(len(self.messages), int(len(self.messages) * 1.2))
        self.begin()

    def begin(self) -> None:
        """A new thread, once the old one has outgrown its size."""
        self.thread = Thread(self.subject)
        self.thread.put(messages=self.messages[:-1])

    def once(self) -> float:
        now = self.thread.values["messages"]
        if len(now) >= self.most:
            self.begin()
            now = self.thread.values["messages"]
        return self.thread.put(messages=[*now, self.message(len(now))])


class PutReplaced(Workload):
    """A superstep that replaces the whole of this size."""

    name = "put, all of it new"

    def prepare(self) -> None:
        self.thread = Thread(self.subject)
        self.thread.put(messages=self.history())

    def once(self) -> float:
        return self.thread.put(messages=self.history())


class PutCounter(Workload):
    """A superstep that leaves this size alone and changes a counter."""

    name = "put, a counter changed"
    only = ("1 MB",)

    def prepare(self) -> None:
        self.thread = Thread(self.subject)
        self.thread.put(messages=self.history(), count=0)

    def once(self) -> float:
        return self.thread.put(count=self.thread.values["count"] + 1)


class PutWrites(Workload):
    """One task's writes of this size, against a small checkpoint."""

    name = "put_writes"

    def prepare(self) -> None:
        self.thread = Thread(self.subject)

    def once(self) -> float:
        self.thread.put(count=1)
        return self.thread.put_writes(("messages", self.history()), ("branch:to:agent", None))


class GetWarm(Workload):
    """The head again, in a process that has seen it."""

    name = "get of the head, warm"

    def prepare(self) -> None:
        self.thread = Thread(self.subject)
        self.thread.put(messages=self.history())

    def once(self) -> float:
        self.subject.get(self.thread.asked)
        return self.subject.took


class GetCold(GetWarm):
    """The head, through a saver with empty caches; its connection has been used before."""

    name = "get of the head, cold"

    def prepare(self) -> None:
        super().prepare()
        self.small = Thread(self.subject)
        self.small.put(count=1)

    def once(self) -> float:
        return cold_get(self.subject, self.thread, self.small)


def cold_get(subject: Subject, thread: Thread, small: Thread) -> float:
    """What the head takes a new saver that has only read `small`."""
    with subject.fresh() as fresh:
        fresh.get(small.asked)
        fresh.get(thread.asked)
        return fresh.took


class List(Workload):
    """The newest 20 checkpoints of a thread: of one that grew by a message each, or, at a size of
    less than 20 messages, that counted."""

    name = "list(20)"
    share = 0.25

    def prepare(self) -> None:
        self.thread = Thread(self.subject)
        messages = self.history()
        grown = 20 if len(messages) > 20 else 0
        self.thread.put(messages=messages[: len(messages) - grown])
        for i in range(1, 21):
            more = {"messages": messages[: len(messages) - grown + i]} if grown else {}
            self.thread.put(count=i, **more)

    def once(self) -> float:
        found = self.subject.list(self.thread.asked, 20)
        assert len(found) == 20
        return self.subject.took


ALL: tuple[type[Workload], ...] = (
    PutAppended,
    PutReplaced,
    PutCounter,
    PutWrites,
    GetWarm,
    GetCold,
    List,
)
