"""Damage under graphs: what their runs find, and which nodes run again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langgraph_durable_state import CorruptionError, DurableSaver
from tests.cases import Store, at, chain, id_of, query, values_of
from tests.integration.test_branches import LONG, DeltaState, PlainState, row_of
from tests.integration.test_recovery import DAMAGE, FLIP, TABLE, Heard, damages, losses

BREAK = f"UPDATE {TABLE}.checkpoint SET record = {FLIP.format('record')} WHERE id = '{{}}'"

STATES: dict[str, Any] = {"plain": PlainState, "delta": DeltaState}


class Counted:
    """A graph of three nodes that counts what runs."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.ran: Counter[str] = Counter()

    def graph(self, saver: Any) -> Any:
        nodes = {name: self._node(name) for name in ("a", "b", "c")}
        return row_of(saver, self.state, **nodes)

    def _node(self, name: str) -> Any:
        def node(_: Any) -> Any:
            self.ran[name] += 1
            return {"items": [name + LONG], "who": name}

        return node


DONE = {"items": ["start", *(name + LONG for name in "abc")], "who": "c"}


@losses
@pytest.mark.parametrize("state", STATES)
async def test_a_run_whose_last_checkpoint_is_damaged_ends_as_it_did(
    hot_store: Store, state: str, damage: str
) -> None:
    """Its last step's results are pending writes of the checkpoint before: no node runs twice."""
    counted = Counted(STATES[state])
    shown = hot_store.face(counted.graph(hot_store.open()))
    assert await shown.invoke({"items": ["start"]}, at()) == DONE
    query(hot_store.postgres_url, DAMAGE[damage])
    hot_store.flush_redis()
    saver = hot_store.open()
    shown = hot_store.face(counted.graph(saver))
    assert (await shown.get_state(at())).values == DONE
    assert await shown.invoke(None, at()) == DONE
    assert counted.ran == {"a": 1, "b": 1, "c": 1}
    strict = counted.graph(hot_store.open(on_corrupt="raise"))
    assert (await hot_store.face(strict).get_state(at())).values == DONE


@damages
async def test_a_run_whose_last_checkpoint_redis_has_ends_as_it_did(
    hot_store: Store, damage: str
) -> None:
    """And the next turn of it as well, with Redis gone."""
    counted = Counted(PlainState)
    shown = hot_store.face(counted.graph(hot_store.open()))
    await shown.invoke({"items": ["start"]}, at())
    query(hot_store.postgres_url, DAMAGE[damage])
    again = hot_store.face(counted.graph(hot_store.open(hot_reads="auto")))
    assert (await again.get_state(at())).values == DONE
    more = await again.invoke({"items": ["more"]}, at())
    assert more["items"] == [*DONE["items"], "more", *(name + LONG for name in "abc")]
    assert counted.ran == {"a": 2, "b": 2, "c": 2}
    hot_store.flush_redis()
    strict = counted.graph(hot_store.open(on_corrupt="raise"))
    assert (await hot_store.face(strict).get_state(at())).values == more


def asking(saver: Any) -> Any:
    def ask(_: Any) -> Any:
        return {"items": [interrupt("go on?") + LONG]}

    return row_of(saver, PlainState, first=lambda _: {"items": ["first" + LONG]}, ask=ask)


async def test_a_question_is_no_damage_and_is_asked_again_after_some(hot_store: Store) -> None:
    """The answer lands."""
    shown = hot_store.face(asking(hot_store.open()))
    await shown.invoke({"items": ["start"]}, at())
    saver = hot_store.saver()
    report = await saver.recover(at())
    assert report.decision == "resume"
    assert [one.question for one in report.interrupts] == ["'go on?'"]
    assert report.unrecorded == ()
    query(hot_store.postgres_url, DAMAGE["a byte of the record"])
    hot_store.flush_redis()
    shown = hot_store.face(asking(hot_store.open()))
    waiting = await shown.invoke(None, at())
    assert [one.value for one in waiting["__interrupt__"]] == ["go on?"]
    done = await shown.invoke(Command(resume="yes"), at())
    assert done["items"] == ["start", "first" + LONG, "yes" + LONG]


async def test_a_node_that_was_killed_may_have_run(hot_store: Store) -> None:
    """Nothing of it is stored; the others' results are."""

    class Killed(BaseException):
        pass

    def build(saver: Any, crash: bool) -> Any:
        def dies(_: Any) -> Any:
            if crash:
                raise Killed
            return {"items": ["dies"]}

        builder = StateGraph(PlainState)
        builder.add_node("dies", dies)
        builder.add_node("start", lambda _: {"items": ["start"]})
        builder.add_edge(START, "start")
        builder.add_edge("start", "dies")
        return builder.compile(checkpointer=saver)

    saver = hot_store.open()
    with pytest.raises(Killed):
        build(saver, crash=True).invoke({"items": []}, at(), durability="sync")
    report = await hot_store.saver().recover(at())
    assert (report.decision, report.unrecorded) == ("resume", ("dies",))
    build(hot_store.open(), crash=False).invoke(None, at())
    assert (await hot_store.saver().recover(at())).unrecorded == ()


async def test_a_tool_call_without_an_answer_is_told(hot_store: Store) -> None:
    """Also where a DeltaChannel or a list holds the messages."""

    def model(_: Any) -> Any:
        call = {"id": "call-1", "name": "search", "args": {}}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    graph = builder.compile(checkpointer=hot_store.open())
    await hot_store.face(graph).invoke({"messages": [HumanMessage("find it")]}, at())
    report = await hot_store.saver().recover(at())
    assert [(one.id, one.name, one.channel) for one in report.dangling] == [
        ("call-1", "search", "messages")
    ]


# -- DeltaChannels ---------------------------------------------------------------------------


async def test_an_ancestor_whose_history_is_damaged_is_passed_over(hot_store: Store) -> None:
    """What a DeltaChannel is made from has to be there as well."""
    counted = Counted(DeltaState)
    shown = hot_store.face(counted.graph(hot_store.open()))
    await shown.invoke({"items": ["start"]}, at())
    history = [id_of(found.config) for found in await hot_store.saver().list(at())]
    for id in (history[0], history[2]):
        query(hot_store.postgres_url, BREAK.format(id))
    hot_store.flush_redis()
    heard = Heard()
    saver = hot_store.open(**heard.options)
    report = await hot_store.face(saver).recover(at())
    assert [id for id, _ in report.skipped] == history[:3]
    assert report.checkpoint == history[3]
    shown = hot_store.face(counted.graph(saver))
    assert await shown.invoke(None, at()) == DONE
    assert heard.kinds == ["fell_back"]


async def test_damage_behind_a_sound_head_is_reported_and_met_by_its_replay(
    hot_store: Store,
) -> None:
    """A read of the head does not look there; whoever wants to can go on before it."""
    counted = Counted(DeltaState)
    shown = hot_store.face(counted.graph(hot_store.open()))
    await shown.invoke({"items": ["start"]}, at())
    history = [id_of(found.config) for found in await hot_store.saver().list(at())]
    query(hot_store.postgres_url, BREAK.format(history[2]))
    saver = hot_store.open()
    shown = hot_store.face(counted.graph(saver))
    with pytest.raises(CorruptionError):
        await shown.get_state(at())
    report = await hot_store.face(saver).recover(at())
    assert (report.decision, report.checkpoint) == ("resume", history[0])
    assert "DeltaChannels" in report.why
    assert report.last_sound == history[3]
    await hot_store.face(saver).fork_from(report)
    assert await shown.invoke(None, at()) == DONE


# -- subgraphs -------------------------------------------------------------------------------


async def test_a_subgraphs_namespace_falls_back_alone(hot_store: Store) -> None:
    saver = hot_store.open()
    shown = hot_store.face(saver)
    roots = await chain(shown, [{"n": n} for n in range(3)])
    inner = at(ns="sub:1")
    config: Any = inner
    configs = []
    for n in range(3):
        config = await put_in(shown, config, n)
        configs.append(config)
    query(hot_store.postgres_url, BREAK.format(id_of(configs[2])))
    hot_store.flush_redis()
    reader = hot_store.saver()
    assert values_of(await reader.get_tuple(at())) == {"n": 2}
    assert id_of((await reader.get_tuple(at())).config) == id_of(roots[2])
    found = await reader.get_tuple(inner)
    assert values_of(found) == {"m": 1}
    report = await reader.recover(inner)
    assert (report.namespace, report.decision) == ("sub:1", "fall_back")
    assert (await reader.recover(at())).decision == "resume"
    await reader.fork_from(report)
    assert (await reader.recover(inner)).decision == "resume"


async def put_in(saver: Any, config: Any, n: int) -> Any:
    from tests.cases import cp, put

    return await put(saver, config, cp({"m": n}, versions={"m": str(n)}))


def nested(saver: DurableSaver, ran: Counter[str]) -> Any:
    """A graph whose subgraph asks between its two nodes."""

    def before(_: Any) -> Any:
        ran["before"] += 1
        return {"items": ["before" + LONG]}

    def ask(_: Any) -> Any:
        ran["ask"] += 1
        return {"items": [interrupt("go on?") + LONG]}

    inner = StateGraph(PlainState)
    inner.add_node("before", before)
    inner.add_node("ask", ask)
    inner.add_edge(START, "before")
    inner.add_edge("before", "ask")
    outer = StateGraph(PlainState)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    return outer.compile(checkpointer=saver)


async def test_a_subgraph_that_waits_goes_on_though_its_head_is_damaged(hot_store: Store) -> None:
    """The answer lands; its node before the question does not run again."""
    ran: Counter[str] = Counter()
    shown = hot_store.face(nested(hot_store.open(), ran))
    await shown.invoke({"items": ["start"]}, at())
    inner_head = f"SELECT id FROM {TABLE}.head WHERE ns <> ''"
    ((id,),) = query(hot_store.postgres_url, inner_head)
    query(hot_store.postgres_url, BREAK.format(id))
    hot_store.flush_redis()
    heard = Heard()
    shown = hot_store.face(nested(hot_store.open(**heard.options), ran))
    await shown.invoke(None, at())
    done = await shown.invoke(Command(resume="yes"), at())
    assert done["items"][-2:] == ["before" + LONG, "yes" + LONG]
    assert heard.kinds == ["fell_back"]
    assert ran["before"] == 1
