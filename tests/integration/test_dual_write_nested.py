"""`dual_write=` where graphs stand in renamed nodes of graphs in renamed nodes."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.evolution import convert_channel, rename_channel, rename_node
from tests.cases import at
from tests.integration.test_dual_write import Build, Deploy, counter, questions
from tests.integration.test_dual_write import deploy as deploy


def nested(log: str, team: str, desk: str, *, sent: bool, kept: bool) -> Build:
    """A question two graphs down; the outer one's node is started by an edge or by a `Send`."""
    State: Any = TypedDict("State", {log: Annotated[list, operator.add]}, total=False)  # type: ignore[misc]

    def build(saver: Any, ran: Counter[str]) -> Any:
        def says(what: str, question: str = "") -> Any:
            def node(_: Any) -> Any:
                answer = interrupt(question) if question else ""
                ran[what] += 1
                return {log: [f"{what}{answer}"]}

            return node

        inner = StateGraph(State)
        inner.add_node("read", says("read"))
        inner.add_node("sign", says("sign", "sign?"))
        inner.add_edge(START, "read")
        inner.add_edge("read", "sign")
        middle = StateGraph(State)
        middle.add_node("meet", says("meet"))
        middle.add_node(desk, inner.compile(checkpointer=True if kept else None))
        middle.add_edge(START, "meet")
        middle.add_edge("meet", desk)
        graph = StateGraph(State)
        graph.add_node("plan", says("plan"))
        graph.add_node(team, middle.compile(checkpointer=True if kept else None))
        graph.add_edge(START, "plan")
        if sent:
            graph.add_conditional_edges("plan", lambda s: [Send(team, s)], [team])
        else:
            graph.add_edge("plan", team)
        return graph.compile(checkpointer=saver)

    return build


@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize(
    ("sent", "kept", "durability"),
    [
        (False, False, "async"),
        (False, False, "exit"),
        (True, False, "sync"),
        (True, False, "exit"),
        (False, True, "sync"),
        (False, True, "exit"),
    ],
)
async def test_a_question_two_graphs_down_is_answered_by_the_other(
    deploy: Deploy, first: str, sent: bool, kept: bool, durability: Any
) -> None:
    how: dict[str, Any] = {"sent": sent, "kept": kept}
    deploy.between(
        nested("log", "team", "desk", **how),
        nested("journal", "crew", "bureau", **how),
        rename_channel("log", "journal", at="*"),
        rename_node("team", "crew"),
        rename_node("desk", "bureau", at="team"),
    )
    logs = {"old": "log", "new": "journal", "after": "journal"}
    for one, other in ((first, "new" if first == "old" else "old"), (first, first)):
        deploy.ran.clear()
        await getattr(deploy, one).invoke({logs[one]: []}, at(), durability=durability)
        assert deploy.ran == {"plan": 1, "meet": 1, "read": 1}
        waiting = questions(await getattr(deploy, other).get_state(at()))
        assert waiting.keys() == {"sign?"}
        resume = Command(resume={waiting["sign?"]: "!"})
        done = await getattr(deploy, other).invoke(resume, at(), durability=durability)
        assert deploy.ran == {"plan": 1, "meet": 1, "read": 1, "sign": 1}
        assert done[logs[other]][-1] == "sign!"
        for who in ("old", "new", "after"):
            state = await getattr(deploy, who).get_state(at())
            assert (state.next, state.values) == ((), {logs[who]: done[logs[other]]})


async def test_a_value_that_cannot_go_back_is_refused_before_anything_is_stored(
    deploy: Deploy,
) -> None:
    """The put says so, and the thread stands where it stood."""
    old = counter("count", lambda n: n + 1, 0)
    new = counter("count", lambda n: "many", "0")
    deploy.between(old, new, convert_channel("count", str, int))
    await deploy.old.invoke({"asked": ""}, at())
    with pytest.raises(EvolutionError, match="channel 'count' failed"):
        await deploy.new.invoke(Command(resume="yes"), at())
    state = await deploy.old.get_state(at())
    assert state.values["count"] == 1
    assert await deploy.old.invoke(Command(resume="yes"), at()) == {"asked": "yes", "count": 2}


def joined(one: str) -> Build:
    """A subgraph with a question, behind an edge that waits for two nodes."""
    State: Any = TypedDict("State", {"log": Annotated[list, operator.add]}, total=False)

    def build(saver: Any, ran: Counter[str]) -> Any:
        def look(_: Any) -> Any:
            ran["look"] += 1
            return {"log": ["look"]}

        inner = StateGraph(State)
        inner.add_node("look", look)
        inner.add_node("pick", lambda _: {"log": [interrupt("which?")]})
        inner.add_edge(START, "look")
        inner.add_edge("look", "pick")
        graph = StateGraph(State)
        for node in (one, "other"):
            graph.add_node(node, lambda _: {"log": []})
            graph.add_edge(START, node)
        graph.add_node("research", inner.compile())
        graph.add_edge([one, "other"], "research")
        return graph.compile(checkpointer=saver)

    return build


@pytest.mark.parametrize("turns", ["old new old", "new old new", "old new new", "new old old"])
@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_subgraph_is_found_whose_starter_was_renamed(
    deploy: Deploy, turns: str, durability: Any
) -> None:
    """Its node's name stays, its task's id does not; a turn in the middle answers nothing."""
    deploy.between(joined("one"), joined("first"), rename_node("one", "first"))
    one, other, last = (who for who in turns.split())
    await getattr(deploy, one).invoke({"log": []}, at(), durability=durability)
    await getattr(deploy, other).invoke(None, at(), durability=durability)
    waiting = questions(await getattr(deploy, last).get_state(at()))
    resume = Command(resume={waiting["which?"]: "this"})
    done = await getattr(deploy, last).invoke(resume, at(), durability=durability)
    assert done == {"log": ["look", "this"]}
    assert deploy.ran == {"look": 1}
