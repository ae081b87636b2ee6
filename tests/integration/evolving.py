"""Small graphs in two shapes.

A `World` is one version of a graph: what its channels and nodes are called, and what its nodes did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
from langchain_core.runnables import RunnableLambda
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state.evolution import (
    Operation,
    StateSchema,
    add_channel,
    convert_channel,
    drop_channel,
    move_class,
    rename_channel,
    rename_node,
)
from tests.cases import at, grown, replayed

ALLOWED = [(__name__, name) for name in ("Person", "Author", "State")]


class Boom(Exception):
    """A node, or the process, died."""


@dataclass(frozen=True)
class Person:
    """As the class was called."""

    name: str


@dataclass(frozen=True)
class Author:
    """As it is called now."""

    name: str


# -- what changes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """From version 0 to 1.

    Attributes:
        steps: as declared.
        names: of channels and nodes that have another; None for none.
        added: keys that there were not, with the value that is declared for them.
        text: whether the count is its text now.
        person: the class that names are kept as.
        model: whether the state is a pydantic model, of which a new key is required.
        within: whether it is in a subgraph, and so the graph of each situation is made one.
    """

    steps: tuple[Operation, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)
    text: bool = False
    person: type = Person
    model: bool = False
    within: bool = False

    def schema(self) -> StateSchema:
        made = StateSchema(1, "test")
        made.step(0, *self.steps)
        return made

    def today(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the old graph as the new one has them, worked out by hand."""
        new = {self.names.get(k, k): v for k, v in values.items()} | self.added
        new.pop(None, None)
        if self.text and "count" in new:
            new["count"] = str(new["count"] or "")
        if "who" in new:
            new["who"] = [self.person(each.name) for each in new["who"]]
        return new  # type: ignore[return-value]


NODES = ("first", "ask", "last", "a", "b", "c", "d", "e", "work", "research", "dig")
_NOW: dict[str, str | None] = {role: f"{role}_now" for role in NODES}


def _nodes(at: str) -> tuple[Operation, ...]:
    return tuple(rename_node(role, f"{role}_now", at=at) for role in NODES)


_STEPS: dict[str, Change] = {
    "rename channel": Change((rename_channel("log", "story", at="*"),), {"log": "story"}),
    "rename node": Change(_nodes("*"), _NOW),
    "drop channel": Change((drop_channel("junk", at="*"),), {"junk": None}),
    "add required field": Change(
        (add_channel("owner", default="nobody", at="*"),), added={"owner": "nobody"}, model=True
    ),
    "convert type": Change((convert_channel("count", str, int, at="*"),), text=True),
    "move class": Change((move_class(f"{__name__}:Person", f"{__name__}:Author"),), person=Author),
    "rename DeltaChannel": Change(
        (rename_channel("notes", "remarks", at="*"),), {"notes": "remarks"}
    ),
}


def _everything() -> Change:
    each = _STEPS.values()
    return Change(
        tuple(step for change in each for step in change.steps),
        {old: new for change in each for old, new in change.names.items()},
        {"owner": "nobody"},
        True,
        Author,
    )


CHANGES: dict[str, Change] = {
    **_STEPS,
    "rename node in a subgraph": Change(_nodes("outer*"), _NOW, within=True),
    "everything": _everything(),
    "everything in a subgraph": Change(
        (*_everything().steps, rename_node("outer", "outer_now")),
        {**_everything().names, "outer": "outer_now"},
        {"owner": "nobody"},
        True,
        Author,
        True,
    ),
}
MORE_CHANGES = {
    "rename a source of a join": Change((rename_node("a", "a_now"),), {"a": "a_now"}),
}
"""The tasks of the node that the join starts have other ids, though that keeps its name."""

ALL_CHANGES = CHANGES | MORE_CHANGES


# -- graphs -----------------------------------------------------------------------------------


def added(one: Any, more: Any) -> Any:
    """A reducer of a count, which is a number or its text."""
    return type(more)(int(one or 0) + int(more))


@dataclass
class World:
    """One version of a graph: of the old shape, or of the new one.

    Attributes:
        change: from the old shape; None for the old one itself.
        model: whether the state is a pydantic model.
        ran: the nodes that ran, under their old names.
        thread: that is run, with this `durability`.
        says: what a node makes of some channels instead.
        broken: what will die, once.
        wait: waits for what is to happen before that.
    """

    change: Change | None = None
    model: bool = False
    ran: list[str] = field(default_factory=list)
    thread: str = "t"
    durability: Any = "sync"
    says: dict[str, Any] = field(default_factory=dict)
    broken: set[Any] = field(default_factory=set)
    wait: Callable[[], None] = lambda: None

    def name(self, role: str) -> Any:
        return self.change.names.get(role, role) if self.change is not None else role

    @property
    def person(self) -> Any:
        return self.change.person if self.change is not None else Person

    @property
    def state(self) -> Any:
        count = str if self.change is not None and self.change.text else int
        kinds: dict[str, Any] = {
            "log": Annotated[list[str], grown],
            "notes": Annotated[list[str], DeltaChannel(replayed, snapshot_frequency=3)],
            "junk": Annotated[list[str], grown],
            "count": Annotated[count, added],
            "who": Annotated[list[self.person], grown],  # type: ignore[name-defined]
        }
        kinds = {self.name(key): kind for key, kind in kinds.items() if self.name(key)}
        more = dict.fromkeys(self.change.added if self.change is not None else (), str)
        if not self.model:
            return TypedDict("State", kinds | more, total=False)  # type: ignore[operator]
        fields = {name: (kind, None) for name, kind in kinds.items()}
        required = {name: (kind, ...) for name, kind in more.items()}
        made = pydantic.create_model("State", __module__=__name__, **fields, **required)
        globals()["State"] = made  # where what is stored of it is read as
        return made

    def update(self, *said: str) -> dict[str, Any]:
        """What a node makes, or a run is given, of each channel."""
        text = self.change is not None and self.change.text
        made = {
            "log": [*said],
            "notes": [*said],
            "junk": [*said],
            "count": "1" if text else 1,
            "who": [self.person(each) for each in said],
        }
        return {self.name(key): value for key, value in made.items() if self.name(key)}

    def given(self) -> dict[str, Any]:
        """A run's input."""
        return self.update("in") | (dict(self.change.added) if self.change is not None else {})

    @property
    def at(self) -> Any:
        return at(self.thread)

    async def run(self, graph: Any, given: Any, config: Any = None) -> None:
        await graph.invoke(given, config or self.at, durability=self.durability)

    def may_die(self, what: Any) -> None:
        if what in self.broken:
            self.wait()
            self.broken.discard(what)
            raise Boom

    def node(self, role: str, asks: int = 0) -> Callable[[Any], Any]:
        def run(_: Any) -> Any:
            self.may_die(role)
            answers = [interrupt(f"{role}{n}?") for n in range(asks)]
            self.ran.append(role)
            return self.update(role, *answers) | self.says.get(role, {})

        return run

    def graph(self, *roles: str, **made: Any) -> StateGraph[Any]:
        graph = StateGraph(self.state)
        for role in roles:
            graph.add_node(self.name(role), made.get(role) or self.node(role))
        return graph


def in_a_row(world: World, *roles: str, **made: Any) -> StateGraph[Any]:
    graph = world.graph(*roles, **made)
    for one, two in zip((START, *roles), (*roles, END), strict=True):
        graph.add_edge(*(each if each in (START, END) else world.name(each) for each in (one, two)))
    return graph


def straight(world: World) -> StateGraph[Any]:
    return in_a_row(world, "first", "ask", "last")


def asking(world: World) -> StateGraph[Any]:
    return in_a_row(world, "first", "ask", "last", ask=world.node("ask", 2))


def joining(world: World, asks: int, *roles: str) -> StateGraph[Any]:
    """Branches beside each other; the last node waits for them all."""
    graph = world.graph(*roles, "last", **{role: world.node(role, asks) for role in roles})
    for role in roles:
        graph.add_edge(START, world.name(role))
    graph.add_edge([world.name(role) for role in roles], world.name("last"))
    return graph


def branches(world: World) -> StateGraph[Any]:
    return joining(world, 1, "a", "b", "c")


def siblings(world: World) -> StateGraph[Any]:
    return joining(world, 0, "a", "b", "c", "d", "e")


def sends(world: World) -> StateGraph[Any]:
    def work(task: Any) -> Any:
        world.may_die(task["n"])
        world.ran.append(f"work{task['n']}")
        return world.update(f"work{task['n']}")

    def fan(_: Any) -> Any:
        return [Send(world.name("work"), {"n": n}) for n in range(5)]

    graph = world.graph("first", "work", "last", work=work)
    graph.add_edge(START, world.name("first"))
    graph.add_conditional_edges(world.name("first"), fan, [world.name("work")])
    graph.add_edge(world.name("work"), world.name("last"))
    return graph


def nested(world: World, own: Any = None) -> StateGraph[Any]:
    inner = in_a_row(world, "dig", "ask", ask=world.node("ask", 2)).compile(checkpointer=own)
    return in_a_row(world, "first", "research", "last", research=inner)


def lopsided(world: World) -> StateGraph[Any]:
    """One source of the join is there a step before the other."""
    graph = world.graph("a", "b", "ask", "last", ask=world.node("ask", 1))
    for one, two in ((START, "a"), (START, "b"), ("b", "ask")):
        graph.add_edge(world.name(one), world.name(two))
    graph.add_edge([world.name("a"), world.name("ask")], world.name("last"))
    return graph


def joined(world: World) -> StateGraph[Any]:
    """What the join starts is a subgraph."""
    inner = in_a_row(world, "dig", "ask", ask=world.node("ask", 1)).compile()
    graph = world.graph("a", "b", "research", research=inner)
    for role in ("a", "b"):
        graph.add_edge(START, world.name(role))
    graph.add_edge([world.name("a"), world.name("b")], world.name("research"))
    return graph


def twice(world: World) -> StateGraph[Any]:
    """One node calls two graphs, one after the other."""
    one = in_a_row(world, "dig").compile()
    two = in_a_row(world, "ask", ask=world.node("ask", 2)).compile()

    def call(_: Any) -> Any:
        one.invoke(world.given())
        return two.invoke(world.given())

    async def acall(_: Any) -> Any:
        await one.ainvoke(world.given())
        return await two.ainvoke(world.given())

    return in_a_row(world, "first", "research", research=RunnableLambda(call, acall))


def sent(world: World) -> StateGraph[Any]:
    """Two `Send`s to one subgraph."""
    inner = in_a_row(world, "dig", "ask", ask=world.node("ask", 1)).compile()
    graph = world.graph("research", "last", research=inner)
    sends = [Send(world.name("research"), world.given()) for _ in range(2)]
    graph.add_conditional_edges(START, lambda _: sends, [world.name("research")])
    graph.add_edge(world.name("research"), world.name("last"))
    return graph


def keeping(world: World) -> StateGraph[Any]:
    return nested(world, True)


# -- what is seen -----------------------------------------------------------------------------


class Seen:
    """States of one world's graph as the old graph would have them named.

    Args:
        change: that it went through; None for the old graph itself, which is compared with.
        as_of: the change that is compared for.
    """

    def __init__(self, world: World, change: Change) -> None:
        self._new = world.change is not None
        self._change = change
        self._roles = {world.name(role): role for role in (*NODES, "outer")}

    def values(self, values: Any, step: int | None) -> Any:
        if self._new or not isinstance(values, Mapping):
            return values
        made = self._change.today(values)
        if step == -2:  # before a first input: there is no state yet, which nothing is added to
            return {key: value for key, value in made.items() if key not in self._change.added}
        return made

    def state(self, state: Any) -> Any:
        """Of a graph and of all below it: all but ids."""
        if state is None or not hasattr(state, "tasks"):
            return None  # a config of a subgraph's that was not asked for
        tasks = [
            (
                self._roles.get(each.name, each.name),
                sorted(one.value for one in each.interrupts),
                type(each.error),
                self.state(each.state),
            )
            for each in state.tasks
        ]
        told = state.metadata or {}
        step = told.get("step"), told.get("source")
        return (
            step,
            self.values(state.values, step[0]),
            [self._roles.get(n, n) for n in state.next],
            tasks,
        )


def counted(world: World) -> Counter[str]:
    return Counter(world.ran)
