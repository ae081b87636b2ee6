"""A run that waits, or died, under a graph's old names goes on under the new ones.

With LangGraph's own saver: what is tested is the core, without anything of ours that stores. Each
run is compared with the same run of a graph that was never renamed: the same end state, and the
same nodes run, each as often.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state.decisions.evolution.evolving import evolved
from langgraph_durable_state.decisions.evolution.snapshot import Snapshot, Write
from langgraph_durable_state.evolution import (
    StateSchema,
    rename_channel,
    rename_node,
)
from tests.moving import THREAD, moved

CONFIG: Any = {"configurable": {"thread_id": THREAD}}


class Boom(Exception):
    """A node died."""


class Told(InMemorySaver):
    """Tells how many times a task's writes were stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored, self.news = 0, threading.Condition()

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        with self.news:
            self.stored += 1
            self.news.notify_all()

    def wait(self, times: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: self.stored >= times, timeout=30)


@dataclass
class World:
    """A graph's names, what its nodes did, and what is to go wrong."""

    names: dict[str, str]
    ran: list[str] = field(default_factory=list)
    broken: set[Any] = field(default_factory=set)
    wait: Callable[[], None] = lambda: None

    def name(self, role: str) -> str:
        return self.names.get(role, role)

    def may_die(self, role: Any) -> None:
        if role in self.broken:
            self.wait()
            self.broken.discard(role)
            raise Boom

    def state(self) -> type:
        log = self.name("log")
        return TypedDict("State", {log: Annotated[list, operator.add], "input": str})  # type: ignore[misc]

    def node(self, role: str, *, ask: int = 0, says: Any = None) -> Callable[[Any], Any]:
        def run(state: Any) -> Any:
            self.may_die(role)
            answers = [interrupt(f"{role}{n}?") for n in range(ask)]
            self.ran.append(role)
            return {self.name("log"): [says or role, *answers]}

        return run

    def build(self, *roles: str, **made: Any) -> StateGraph:
        graph = StateGraph(self.state())
        for role in roles:
            graph.add_node(self.name(role), made.get(role) or self.node(role))
        return graph


Build = Callable[[World], StateGraph]
Act = Callable[[Any, World], Any]


def straight(world: World) -> StateGraph:
    graph = world.build("first", "ask", "last", ask=world.node("ask", ask=2))
    graph.add_edge(START, world.name("first"))
    graph.add_edge(world.name("first"), world.name("ask"))
    graph.add_edge(world.name("ask"), world.name("last"))
    graph.add_edge(world.name("last"), END)
    return graph


def branches(world: World) -> StateGraph:
    asking = {role: world.node(role, ask=1) for role in ("a", "b", "c")}
    graph = world.build("a", "b", "c", "last", **asking)
    for role in ("a", "b", "c"):
        graph.add_edge(START, world.name(role))
    graph.add_edge([world.name(role) for role in ("a", "b", "c")], world.name("last"))
    return graph


def siblings(world: World) -> StateGraph:
    roles = ("a", "b", "c", "d", "e")
    graph = world.build(*roles, "last")
    for role in roles:
        graph.add_edge(START, world.name(role))
        graph.add_edge(world.name(role), world.name("last"))
    return graph


def lopsided(world: World) -> StateGraph:
    """One source of the join is there a step before the other."""
    graph = world.build("a", "b", "ask", "last", ask=world.node("ask", ask=1))
    graph.add_edge(START, world.name("a"))
    graph.add_edge(START, world.name("b"))
    graph.add_edge(world.name("b"), world.name("ask"))
    graph.add_edge([world.name("a"), world.name("ask")], world.name("last"))
    return graph


def plus(world: World) -> StateGraph:
    """A join of nodes whose names hold what LangGraph puts between names."""
    roles = ("ask", "x+y", "y+x", "y++")
    graph = world.build(*roles, "last", ask=world.node("ask", ask=1))
    for role in roles:
        graph.add_edge(START, world.name(role))
    graph.add_edge([world.name(role) for role in roles], world.name("last"))
    return graph


def sends(world: World) -> StateGraph:
    log = world.name("log")

    def work(task: Any) -> Any:
        world.may_die(task["n"])
        world.ran.append(f"work{task['n']}")
        return {log: [task["n"]]}

    def fan(state: Any) -> Any:
        return [Send(world.name("work"), {"n": n}) for n in range(5)]

    graph = world.build("first", "work", "last", work=work)
    graph.add_edge(START, world.name("first"))
    graph.add_conditional_edges(world.name("first"), fan, [world.name("work")])
    graph.add_edge(world.name("work"), world.name("last"))
    return graph


def asked_sends(world: World) -> StateGraph:
    log = world.name("log")

    def work(task: Any) -> Any:
        answer = interrupt(f"{task['n']}?")
        world.ran.append(f"work{task['n']}")
        return {log: [answer]}

    def fan(state: Any) -> Any:
        return Command(goto=[Send(world.name("work"), {"n": n}) for n in range(3)])

    graph = world.build("first", "work", first=fan, work=work)
    graph.add_edge(START, world.name("first"))
    return graph


def nested(world: World) -> StateGraph:
    inner = world.build("dig", "ask", ask=world.node("ask", ask=2))
    inner.add_edge(START, world.name("dig"))
    inner.add_edge(world.name("dig"), world.name("ask"))
    middle = world.build("inner", inner=inner.compile())
    middle.add_edge(START, world.name("inner"))
    graph = world.build("first", "research", "last", research=middle.compile())
    graph.add_edge(START, world.name("first"))
    graph.add_edge(world.name("first"), world.name("research"))
    graph.add_edge(world.name("research"), world.name("last"))
    return graph


def go(graph: Any, world: World) -> Any:
    try:
        return graph.invoke({world.name("log"): ["in"], "input": "x"}, CONFIG)
    except Boom:
        return None


def again(graph: Any, world: World) -> Any:
    return graph.invoke(None, CONFIG)


def resume(graph: Any, world: World) -> Any:
    return graph.invoke(Command(resume="yes"), CONFIG)


def resume_twice(graph: Any, world: World) -> Any:
    resume(graph, world)
    return resume(graph, world)


def resume_by_id(graph: Any, world: World) -> Any:
    while waits := graph.get_state(CONFIG).interrupts:
        graph.invoke(Command(resume={each.id: f"{each.value}!" for each in waits}), CONFIG)
    return None


def answer_one(graph: Any, world: World) -> Any:
    go(graph, world)
    first = graph.get_state(CONFIG).interrupts[0]
    return graph.invoke(Command(resume={first.id: f"{first.value}!"}), CONFIG)


def answer_first_of_two(graph: Any, world: World) -> Any:
    go(graph, world)
    return resume(graph, world)


def greet_again(graph: Any, world: World) -> Any:
    return graph.invoke({world.name("log"): ["more"]}, CONFIG)


def die(*roles: Any, after: int = 0) -> Act:
    """Nodes die once the writes of so many tasks are stored, those of the start among them."""

    def act(graph: Any, world: World) -> Any:
        world.broken.update(roles)
        world.wait = lambda: graph.checkpointer.wait(after)
        return go(graph, world)

    return act


def die_before_first(graph: Any, world: World) -> Any:
    """The process died when the input was stored and no node had run."""
    saver: InMemorySaver = graph.checkpointer
    go(graph, world)
    first = min(saver.storage[THREAD][""])
    for id in [each for each in saver.storage[THREAD][""] if each != first]:
        del saver.storage[THREAD][""][id]
    saver.writes.clear()
    world.ran.clear()
    return None


@dataclass(frozen=True)
class Case:
    build: Build
    before: Act
    after: Act
    breakpoint: str | None = None


CASES = {
    "finished, then more input": Case(
        straight, lambda g, w: (go(g, w), resume_twice(g, w)), greet_again
    ),
    "waits at its first question": Case(straight, go, resume_twice),
    "waits at its first question, answered by id": Case(straight, go, resume_by_id),
    "waits at its second question": Case(straight, answer_first_of_two, resume),
    "waits at its second question, answered by id": Case(
        straight, answer_first_of_two, resume_by_id
    ),
    "waits before a node": Case(
        straight, go, lambda g, w: (again(g, w), resume_twice(g, w)), "ask"
    ),
    "three branches wait": Case(branches, go, resume_by_id),
    "three branches, one answered": Case(branches, answer_one, resume_by_id),
    "died between siblings": Case(siblings, die("c", after=5), again),
    "died between siblings, two left": Case(siblings, die("a", "e", after=4), again),
    "half of a join is there": Case(lopsided, go, resume_by_id),
    "a join of names with a plus": Case(plus, go, resume_by_id),
    "five sends half done": Case(sends, die(2, 4, after=5), again),
    "three sends wait": Case(asked_sends, go, resume_by_id),
    "three sends, one answered": Case(asked_sends, answer_one, resume_by_id),
    "died before its first step": Case(
        straight, die_before_first, lambda g, w: (again(g, w), resume_twice(g, w))
    ),
    "waits in a subgraph of a subgraph": Case(nested, go, resume_twice),
    "waits in a subgraph, answered by id": Case(nested, go, resume_by_id),
    "waits in a subgraph at its second question": Case(nested, answer_first_of_two, resume_by_id),
    "a subgraph's node died": Case(
        nested, die("dig"), lambda g, w: (again(g, w), resume_twice(g, w))
    ),
}
NODES = ("first", "ask", "last", "a", "b", "c", "work", "research", "inner", "dig")


def schema_of(names: dict[str, str]) -> StateSchema:
    schema = StateSchema(version=1, graph="test")
    schema.step(0)
    for role, new in names.items():
        if role == "log":
            schema.step(0, rename_channel(role, new, at="*"))
        else:
            schema.step(0, rename_node(role, new, at="*"))
    return schema


def compiled(case: Case, world: World, saver: InMemorySaver) -> Any:
    stops = [world.name(case.breakpoint)] if case.breakpoint else None
    return case.build(world).compile(checkpointer=saver, interrupt_before=stops)


def ended(graph: Any, world: World) -> Any:
    state = graph.get_state(CONFIG)
    values = {("log" if key == world.name("log") else key): v for key, v in state.values.items()}
    roles = {new: old for old, new in world.names.items()}
    return values, [roles.get(each, each) for each in state.next], len(state.interrupts)


RENAMES = {
    "all": {**{role: f"{role}_now" for role in NODES}, "log": "story"},
    "nothing": {},
    "log": {"log": "story"},
    **{role: {role: f"z_{role}"} for role in NODES},
}


@pytest.mark.parametrize("renamed", RENAMES)
@pytest.mark.parametrize("name", CASES)
def test_a_run_goes_on_under_the_new_names(name: str, renamed: str) -> None:
    """It ends as if nothing had been renamed, and no node runs twice or not at all."""
    case, names = CASES[name], RENAMES[renamed]
    control = World({})
    graph = compiled(case, control, Told())
    case.before(graph, control)
    case.after(graph, control)
    expected = ended(graph, control)

    old = World({})
    saver = Told()
    case.before(compiled(case, old, saver), old)
    new = World(names, ran=old.ran)
    graph = compiled(case, new, moved(saver, schema_of(names)))
    case.after(graph, new)

    assert sorted(new.ran) == sorted(control.ran)
    if renamed in ("all", "nothing", "log"):
        assert ended(graph, new) == expected
    else:  # parallel tasks are taken up in the order of their names
        values, *rest = ended(graph, new)
        assert sorted(map(str, values["log"])) == sorted(map(str, expected[0]["log"]))
        assert rest == list(expected[1:])


def test_a_checkpoint_that_langgraph_did_not_name_has_no_tasks() -> None:
    """Its id is no UUID; what waits on it stays as it is."""
    schema = StateSchema(version=1)
    schema.step(0, rename_channel("a", "b"))
    checkpoint = {"v": 4, "id": "mine", "channel_values": {"a": 1}, "channel_versions": {"a": 1}}
    write = Write("task", "", "a", 2, 0)
    snapshot = Snapshot("", 0, {**checkpoint, "versions_seen": {}}, {"step": 0}, (write,))
    made = evolved(snapshot, schema, 1)
    assert made.writes == (Write("task", "", "b", 2, 1),)
