"""What the core believes of LangGraph. If one of these fails, LangGraph has changed, and
decisions/evolution/tasks.py has to follow.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state.decisions.evolution import tasks
from langgraph_durable_state.decisions.evolution.snapshot import Snapshot
from langgraph_durable_state.decisions.evolution.tasks import Call, Task
from tests.moving import THREAD, head, snapshots

CONFIG: Any = {"configurable": {"thread_id": THREAD}}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def ask(state: Any) -> Any:
    return {"log": [interrupt("one?"), interrupt("two?")]}


def graph() -> tuple[Any, InMemorySaver]:
    """A question in a node that edges and a join start, in two `Send`s, and in a subgraph."""
    inner = StateGraph(State)
    inner.add_node("deep", ask)
    inner.add_edge(START, "deep")
    outer = StateGraph(State)
    outer.add_node("a", lambda state: {"log": ["a"]})
    outer.add_node("b", lambda state: Command(goto=[Send("sent", {"log": [n]}) for n in "01"]))
    outer.add_node("sent", ask)
    outer.add_node("asked", ask)
    outer.add_node("under", inner.compile())
    outer.add_edge(START, "a")
    outer.add_edge(START, "b")
    outer.add_edge(["a", "b"], "asked")
    outer.add_edge("a", "under")
    saver = InMemorySaver()
    made = outer.compile(checkpointer=saver)
    made.invoke({"log": []}, CONFIG)
    return made, saver


def named(snapshot: Snapshot) -> dict[str, Task | Call | None]:
    return {w.task: tasks.told(w.path, snapshot.checkpoint) for w in snapshot.writes}


def frame(snapshot: Snapshot) -> tasks.Frame:
    return tasks.frame(snapshot.ns, snapshot.checkpoint, snapshot.metadata)


def test_the_ids_of_tasks() -> None:
    """Of an edge's and a join's, of a `Send`'s, of a subgraph's: as LangGraph made them."""
    made, saver = graph()
    ours, theirs = set(), set()
    for ns in saver.storage[THREAD]:
        at = head(saver, ns)
        for task_id, who in named(at).items():
            assert isinstance(who, Task)
            found = tasks.found(frame(at), at.checkpoint, who, task_id)
            assert found is not None
            ours.add((found.node, task_id))
    for each in made.get_state(CONFIG, subgraphs=True).tasks:
        theirs.add((each.name, each.id))
        theirs |= {(below.name, below.id) for below in (each.state.tasks if each.state else ())}
    assert ours == theirs
    assert sorted(node for node, _ in ours) == ["asked", "deep", "sent", "sent", "under"]


def test_the_paths_of_tasks() -> None:
    """They are spelled as LangGraph spelled them."""
    _, saver = graph()
    for ns in saver.storage[THREAD]:
        for at in snapshots(saver, ns):
            for write in at.writes:
                who = tasks.told(write.path, at.checkpoint)
                assert isinstance(who, Task)
                assert tasks.task_path(who) == write.path


def test_the_ids_of_interrupts() -> None:
    """The first and the second of one task."""
    made, saver = graph()
    for answers in range(2):
        at = head(saver)
        for write in at.writes:
            who = tasks.told(write.path, at.checkpoint)
            if write.channel != "__interrupt__" or not isinstance(who, Task) or who.node == "under":
                continue
            ns = tasks.task_ns(frame(at), who, write.task)
            assert [each.id for each in write.value] == [tasks.interrupt_id(ns, answers)]
        waits = made.get_state(CONFIG).interrupts
        made.invoke(Command(resume={each.id: "yes" for each in waits}), CONFIG)
    assert made.get_state(CONFIG).next == ()


def test_the_one_id_of_all_interrupts_of_a_task() -> None:
    """As LangGraph before 1.2 gave it, and as it still gives the first."""
    assert (
        Interrupt.from_ns("?", "a:b").id == tasks._one_id("a:b", 3) == tasks.interrupt_id("a:b", 0)
    )


def test_the_namespaces_of_subgraphs() -> None:
    """A node's name and its task's id, and above them their parents' checkpoints."""
    _, saver = graph()
    at = head(saver)
    under = next(
        id for id, who in named(at).items() if isinstance(who, Task) and who.node == "under"
    )
    ns = tasks.task_ns(frame(at), Task("under"), under)
    assert {*saver.storage[THREAD]} == {"", ns}
    assert head(saver, ns).metadata["parents"] == {"": at.checkpoint["id"]}
    assert tasks.path_of(ns) == "under"


def test_the_channels_of_nodes() -> None:
    """Edges, joins and what is sent."""
    made, _ = graph()
    assert {"branch:to:a", "join:a+b:asked", "__pregel_tasks", "__start__"} <= set(made.channels)
    assert made.nodes["asked"].triggers == [tasks.branch("asked"), tasks.join("a+b", "asked")]


def test_the_one_node_of_an_entrypoint() -> None:
    """It is started by the input alone; and what it calls is told by a path of its own."""

    @task
    def fetch(n: int) -> int:
        return n

    saver = InMemorySaver()

    @entrypoint(checkpointer=saver)
    def flow(n: int) -> Any:
        return fetch(n).result(), interrupt("go on?")

    flow.invoke(1, CONFIG)
    at = head(saver)
    whos = named(at)
    calls = {id for id, who in whos.items() if isinstance(who, Call)}
    own = {id: who for id, who in whos.items() if isinstance(who, Task)}
    assert len(calls) == 1
    ((id, who),) = own.items()
    found = tasks.found(frame(at), at.checkpoint, who, id)
    assert found == Task("flow", triggers=frozenset({"__start__"}))
    assert Call(who) in whos.values()


def test_the_handler_of_a_node_that_failed() -> None:
    """Its own, named after the node; and the graph's, for all."""

    def fail(state: Any) -> Any:
        raise ValueError

    def handler(state: Any) -> Any:
        return {"log": [interrupt("what now?")]}

    outer = StateGraph(State)
    outer.add_node("bad", fail, error_handler=handler)
    outer.add_edge(START, "bad")
    saver = InMemorySaver()
    outer.compile(checkpointer=saver).invoke({"log": []}, CONFIG)
    at = head(saver)
    handlers = {
        id: who for id, who in named(at).items() if isinstance(who, Task) and who.failed is not None
    }
    ((id, who),) = handlers.items()
    found = tasks.found(frame(at), at.checkpoint, who, id)
    assert found is not None
    assert (found.node, found.failed.node if found.failed else "") == (
        "__error_handler__bad",
        "bad",
    )
    waits = [w.value[0].id for w in at.writes if w.task == id and w.channel == "__interrupt__"]
    assert waits == [tasks.interrupt_id(tasks.task_ns(frame(at), found, id), 0)]
