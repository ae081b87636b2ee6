"""Code of up to three versions takes turns on one thread, with and without `dual_write=`, and the
thread is migrated on the way: no answer is lost, nothing is asked again, no node runs twice."""

from __future__ import annotations

import operator
import re
from collections import Counter
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.evolution import StateSchema, rename_node
from tests.cases import Store, at, replayed
from tests.integration.test_dual_write import questions

WORKERS: dict[str, tuple[int, bool]] = {
    "0": (0, False),
    "1": (1, False),
    "d": (1, True),
    "2": (2, False),
    "e": (2, True),
}
"""The version of the code, and whether it stores for the code of the version before, too."""

Within = tuple[tuple[str, bool | None], ...]
NESTED: dict[str, Within] = {
    "no subgraph": (),
    "a subgraph": (("sub", None),),
    "one that keeps its state, in another": (("keep", True), ("sub", None)),
}
QUESTIONS = 4
State: Any = TypedDict("State", {"said": Annotated[list, operator.add]}, total=False)

Replayed: Any = TypedDict(
    "Replayed", {"said": Annotated[list, DeltaChannel(replayed)]}, total=False
)


def schema(version: int) -> StateSchema:
    made = StateSchema(version)
    for v in range(version):
        names = ("ask", "sub", "keep")
        made.step(v, *(rename_node(f"{each}{v}", f"{each}{v + 1}", at="*") for each in names))
    return made


class Turns:
    """A thread, and code of several versions that goes on with it.

    Attributes:
        within: the subgraphs that the node which asks is in, innermost first, by the nodes that
            they are in, which are renamed, too; and `checkpointer=` of each.
        exits: whether only the end of each run is stored, and what a DeltaChannel is made from.
        ran: how often each node ran to its end.
    """

    def __init__(self, store: Store, *, within: Within = (), exits: bool = False) -> None:
        self.store, self.within = store, within
        self.state = Replayed if exits else State
        self.how: dict[str, Any] = {"durability": "exit"} if exits else {}
        self.ran: Counter[str] = Counter()

    def saver(self, who: str) -> Any:
        version, dual = WORKERS[who]
        options: dict[str, Any] = {"state_schema": schema(version)} if version else {}
        if dual:
            options["dual_write"] = (version - 1, version)
        return self.store.open(hot_reads="always", **options)

    def graph(self, who: str) -> Any:
        version, _ = WORKERS[who]
        built = self._asking(version)
        for around, keeps in self.within:
            outer = StateGraph(self.state)
            outer.add_node(f"{around}{version}", built.compile(checkpointer=keeps))
            outer.add_edge(START, f"{around}{version}")
            built = outer
        return self.store.face(built.compile(checkpointer=self.saver(who)))

    def _asking(self, version: int) -> Any:
        def ask(_: Any) -> Any:
            answers = [interrupt(f"question {n}") for n in range(QUESTIONS)]
            self.ran["ask"] += 1
            return {"said": answers}

        def side(_: Any) -> Any:
            self.ran["side"] += 1
            return {"said": ["side"]}

        graph = StateGraph(self.state)
        graph.add_node(f"ask{version}", ask)
        graph.add_node("side", side)
        graph.add_edge(START, f"ask{version}")
        graph.add_edge(START, "side")
        return graph

    async def migrate(self, who: str) -> Any:
        return await self.store.face(self.saver(who)).migrate()

    async def play(self, plan: str) -> None:
        """Each letter is a worker that answers the next question; ``m`` before one migrates with
        its code first, ``i`` answers by the question's id."""
        turns = re.findall(r"(m?)(i?)(\d|\w)", plan)
        for n, (migrates, by_id, who) in enumerate(turns):
            assert not migrates or await self.migrate(who), plan
            if n == 0:
                await self.graph(who).invoke({"said": []}, at(), **self.how)
                continue
            asked = questions(await self.graph(who).get_state(at()))
            assert asked.keys() == {f"question {n - 1}"}, (plan, who)
            answer: Any = f"answer {n - 1}"
            resume = Command(resume=dict.fromkeys(asked.values(), answer) if by_id else answer)
            await self.graph(who).invoke(resume, at(), **self.how)
        told = len(turns) - 1
        state = await self.graph(who).get_state(at())
        if told < QUESTIONS:
            assert questions(state).keys() == {f"question {told}"}
            assert self.ran == {"side": 1}
        else:
            assert sorted(state.values["said"]) == [*(f"answer {n}" for n in range(told)), "side"]
            assert (state.next, self.ran) == ((), {"side": 1, "ask": 1})


@pytest.fixture(params=NESTED)
def turns(request: pytest.FixtureRequest, store: Store) -> Turns:
    return Turns(store, within=NESTED[request.param])


@pytest.mark.parametrize("tier", ["hot"])
@pytest.mark.parametrize(
    "plan",
    [
        "dd11m1",
        "0d11m1",
        "0i0idi0id",  # a third question by older code, asked for by its id
        "01dd",  # some workers do not dual-write yet, or no more
        "d1d1d",
        "1d1m1",
        "ddm22",
        "d1m22",
    ],
)
async def test_no_answer_is_lost(turns: Turns, plan: str) -> None:
    await turns.play(plan)


@pytest.mark.parametrize("tier", ["hot"])
@pytest.mark.parametrize("plan", ["0011", "00m11", "ddm11", "0m1m2"])
@pytest.mark.parametrize("within", ["no subgraph", "a subgraph"])
async def test_of_runs_that_are_stored_at_their_end(store: Store, within: str, plan: str) -> None:
    """What LangGraph then keeps for a DeltaChannel is no task's, though it names a node."""
    await Turns(store, within=NESTED[within], exits=True).play(plan)


@pytest.mark.parametrize("tier", ["hot"])
@pytest.mark.parametrize("before", ["d", "d1", "dd"])
async def test_a_subgraph_of_another_version_than_its_name_is_refused(
    store: Store, before: str
) -> None:
    """It stands under the name that its node had two versions ago; nothing is asked again."""
    turns = Turns(store, within=NESTED["a subgraph"])
    await turns.play(before)
    with pytest.raises(EvolutionError, match=r"migrate\(\)"):
        await turns.graph("2").get_state(at())
    with pytest.raises(EvolutionError, match=r"migrate\(\)"):
        await turns.graph("2").invoke(Command(resume="?"), at())
    assert turns.ran == {"side": 1}
    assert await turns.migrate("2")
    asked = questions(await turns.graph("2").get_state(at()))
    assert asked.keys() == {f"question {len(before) - 1}"}
