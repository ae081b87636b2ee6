"""What a thread of a small graph can be in, how it comes there, and how it goes on."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from langgraph_durable_state import DurableSaver
from tests.cases import Face
from tests.integration.evolving import (
    ALL_CHANGES,
    Boom,
    Change,
    Seen,
    World,
    asking,
    branches,
    counted,
    in_a_row,
    joined,
    keeping,
    lopsided,
    nested,
    sends,
    sent,
    siblings,
    straight,
    twice,
)


class Told:
    """A saver that tells whose writes are stored, and that a process can die in.

    Attributes:
        dies: told the namespace and the step of a checkpoint that is to be put.
        loses: whether what a task wrote is lost, too.
    """

    dies: Callable[[str, int], bool] | None = None
    loses = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tasks: set[str] = set()
        self._news = threading.Condition()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new: Any) -> Any:
        self._may_die(config, metadata)
        return super().put(config, checkpoint, metadata, new)  # type: ignore[misc]

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new: Any) -> Any:
        self._may_die(config, metadata)
        return await super().aput(config, checkpoint, metadata, new)  # type: ignore[misc]

    def _may_die(self, config: Any, metadata: Any) -> None:
        ns = config["configurable"].get("checkpoint_ns", "")
        if self.dies is not None and self.dies(ns, metadata["step"]):
            raise Boom

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if not self.loses:
            super().put_writes(config, writes, task_id, task_path)  # type: ignore[misc]
            self._tell(task_id, task_path)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        if not self.loses:
            await super().aput_writes(config, writes, task_id, task_path)  # type: ignore[misc]
            self._tell(task_id, task_path)

    def _tell(self, task: str, path: str) -> None:
        if START not in path:
            with self._news:
                self._tasks.add(task)
                self._news.notify_all()

    def wait(self, tasks: int) -> None:
        """Until so many tasks' writes are stored."""
        with self._news:
            assert self._news.wait_for(lambda: len(self._tasks) >= tasks, 30)


class ToldMemory(Told, InMemorySaver):
    """LangGraph's own."""


class ToldSaver(Told, DurableSaver):
    """Ours."""


Act = Callable[[Any, Any, World], Awaitable[Any]]
"""Something that is done with a graph, its saver and its world."""


async def go(graph: Any, saver: Any, world: World) -> Any:
    try:
        await world.run(graph, world.given())
    except Boom:
        saver.dies, saver.loses = None, False


async def again(graph: Any, saver: Any, world: World) -> Any:
    await world.run(graph, None)


async def answer(graph: Any, saver: Any, world: World) -> Any:
    """All that it asks at once, by their ids; and so on."""
    while waits := (await graph.get_state(world.at)).interrupts:
        said = {each.id: f"{each.value}!" for each in waits}
        await world.run(graph, Command(resume=said))


async def answer_one(graph: Any, saver: Any, world: World) -> Any:
    first = min((await graph.get_state(world.at)).interrupts, key=lambda each: each.value)
    said = {first.id: f"{first.value}!"}
    await world.run(graph, Command(resume=said))


async def go_back(graph: Any, saver: Any, world: World) -> Any:
    """On from the oldest state that waits for what is now the middle of the graph."""
    waits = {(world.name("ask"),), (world.name("outer"),)}
    old = [each for each in await graph.get_state_history(world.at) if each.next in waits]
    await world.run(graph, None, old[-1].config)


def update(role: str, old: bool = False) -> Act:
    """As if a node had said so, now or where it first had."""

    async def act(graph: Any, saver: Any, world: World) -> Any:
        config = world.at
        if old:
            history = await graph.get_state_history(world.at)
            config = min((s for s in history if s.metadata["step"] == 1), key=str).config
        await graph.update_state(config, world.update("told"), as_node=world.name(role))

    return act


def die(*what: Any, tasks: int) -> Act:
    """Nodes die once so many tasks' writes are stored."""

    async def act(graph: Any, saver: Any, world: World) -> Any:
        world.broken.update(what)
        world.wait = lambda: saver.wait(tasks)
        await go(graph, saver, world)

    return act


def die_early(loses: bool) -> Act:
    """The process dies when the input is stored and the first step is not begun."""

    async def act(graph: Any, saver: Any, world: World) -> Any:
        deep = "outer" in graph.target.nodes
        saver.dies = lambda ns, step: bool(ns) == deep and step >= 0
        saver.loses = loses
        await go(graph, saver, world)
        assert world.ran == []

    return act


def acts(*several: Act) -> Act:
    async def act(graph: Any, saver: Any, world: World) -> Any:
        for each in several:
            await each(graph, saver, world)

    return act


@dataclass(frozen=True)
class Situation:
    """A graph, how a thread of it comes there, and how it goes on."""

    build: Callable[[World], StateGraph[Any]]
    before: Act
    after: Act
    stop: str | None = None

    def compiled(self, world: World, saver: Any, within: bool) -> Any:
        graph = self.build(world)
        stops = [world.name(self.stop)] if self.stop else None
        if not within:
            return graph.compile(checkpointer=saver, interrupt_before=stops)
        inner = graph.compile(interrupt_before=stops)
        return in_a_row(world, "outer", outer=inner).compile(checkpointer=saver)


SITUATIONS = {
    "finished": Situation(straight, go, go),
    "interrupted": Situation(asking, go, answer),
    "interrupted, one question answered": Situation(asking, acts(go, answer_one), answer),
    "three branches, one answered": Situation(branches, acts(go, answer_one), answer),
    "crashed between siblings": Situation(siblings, die("c", tasks=4), again),
    "five sends half done": Situation(sends, die(2, 4, tasks=4), again),
    "died before the first step": Situation(straight, die_early(loses=True), again),
    "died at the first step": Situation(straight, die_early(loses=False), again),
    "in a subgraph": Situation(nested, go, answer),
    "in a subgraph that keeps its state": Situation(keeping, acts(go, answer, go), answer),
    "forked": Situation(straight, go, go_back),
}

MORE_SITUATIONS = {
    "waits at a breakpoint": Situation(straight, go, again, stop="ask"),
    "its state is updated": Situation(asking, go, acts(update("ask"), again)),
    "an old state is updated": Situation(straight, go, acts(update("first", old=True), again)),
    "half of a join is there": Situation(lopsided, go, answer),
    "in a subgraph after a join": Situation(joined, go, answer),
    "in a subgraph that is called twice": Situation(twice, acts(go, answer_one), answer),
    "in a subgraph of a sent task": Situation(sent, acts(go, answer_one), answer),
    "died in a subgraph": Situation(nested, die("ask", tasks=2), acts(again, answer)),
}
"""Their graphs are as tiny, but one change at a time would show no more than all at once."""


# -- what a run that was never migrated comes to ----------------------------------------------

_NATIVE = Face("native")
_known: dict[Any, Any] = {}


async def looked_at(graph: Any, world: World, change: Change) -> Any:
    """All that a graph tells of a thread, but ids."""
    seen = Seen(world, change)
    state = seen.state(await graph.get_state(world.at, subgraphs=True))
    return state, [seen.state(each) for each in await graph.get_state_history(world.at)]


async def reference(how: Situation, change: str, durability: Any = "sync") -> Any:
    """What the old graph alone, with LangGraph's own saver, is seen to be in: in the situation, and
    after it went on; and what ran."""
    key = (how, change, durability)
    if key not in _known:
        what = ALL_CHANGES[change]
        world, saver = World(model=what.model, durability=durability), ToldMemory()
        graph = _NATIVE(how.compiled(world, saver, what.within))
        await how.before(graph, saver, world)
        before = await looked_at(graph, world, what)
        await how.after(graph, saver, world)
        _known[key] = before, await looked_at(graph, world, what), counted(world)
    return _known[key]
