"""What is stored in two forms is as well kept as what is stored in one: secrets, keys, copies,
bytes and round trips."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import DurableSaver, Redact
from langgraph_durable_state.decisions.evolution.steps import StateSchema
from langgraph_durable_state.evolution import convert_channel, rename_channel, rename_node
from tests.cases import Store, at, chain, cp, put, values_of
from tests.integration.test_dual_write import NEW, OLD, RENAMES, answers
from tests.integration.test_encryption import OPTIONS, places_of
from tests.integration.test_redaction import everything

BOTH: dict[str, Any] = {"dual_write": (0, 1)}


def to_1(*operations: Any) -> dict[str, Any]:
    """The options of a saver that dual-writes after these."""
    schema = StateSchema(1)
    schema.step(0, *operations)
    return {"state_schema": schema, **BOTH}


# -- what must not be in it ------------------------------------------------------------------

MARK = "marker-77c1e0"


class Told(TypedDict, total=False):
    messages: list[Any]
    note: str
    answer: str


def teller(node: str, said: str, marker: str) -> Any:
    """A graph whose input, values, sends, question and answer hold a marker; the second form of
    `note` is made by a function."""
    State: Any = TypedDict("State", {said: list, "note": str, "answer": str}, total=False)  # type: ignore[misc]

    def build(saver: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node(
            "says",
            lambda s: {said: [*s[said], AIMessage(f"I say {marker}")], "note": f"{marker} " * 40},
        )
        graph.add_node(node, lambda s: {"answer": interrupt({"about": marker, **s})})
        graph.add_edge(START, "says")
        graph.add_conditional_edges("says", lambda _: [Send(node, {"text": marker})], [node])
        return graph.compile(checkpointer=saver)

    return build


CHANGES = (
    rename_channel("messages", "said"),
    rename_node("ask", "ask_human"),
    convert_channel("note", lambda text: text.upper(), lambda text: text.lower()),
)


async def told(store: Store, marker: str, durability: Any, **options: Any) -> Any:
    """Runs of the newer code and of the older one by turns."""
    new = store.face(teller("ask_human", "said", marker)(store.open(**options, **to_1(*CHANGES))))
    old = store.face(teller("ask", "messages", marker)(store.open(**options)))
    config = at() | {"metadata": {"about": f"of {marker}"}}
    run: dict[str, Any] = {"durability": durability}
    await new.invoke({"said": [HumanMessage(f"I am {marker}")]}, config, **run)
    assert (await old.get_state(at())).next == ("ask",)
    await old.invoke(Command(resume=f"{marker}!"), config, **run)
    await old.invoke({"messages": [HumanMessage(f"I am {marker}")]}, config, **run)
    await new.invoke(Command(resume=f"{marker}!"), config, **run)
    return await old.get_state(at())


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_what_is_redacted_is_in_neither_form(policy_store: Store, durability: Any) -> None:
    """But for the answer, which the older code keeps under LangGraph's own name in one process."""
    rules = [Redact(MARK), Redact(MARK.upper())]
    state = await told(policy_store, MARK, durability, redact=rules)
    assert MARK.encode() not in everything(policy_store)
    assert MARK.upper().encode() not in everything(policy_store)
    assert [m.content for m in state.values["messages"]] == [
        "I am [redacted]",
        "I say [redacted]",
    ]
    assert state.values["note"].startswith("[redacted] [redacted]")


async def test_the_check_of_that_test_finds_both_forms(policy_store: Store) -> None:
    await told(policy_store, MARK, "sync")
    assert MARK.encode() in everything(policy_store)
    assert MARK.upper().encode() in everything(policy_store)


async def test_encrypted_nothing_plain_is_anywhere(policy_store: Store) -> None:
    marker = "marker" + secrets.token_hex(16)
    policy_store.options |= OPTIONS
    keys = {"encryption_key": b"e" * 32, "integrity_key": b"i" * 32}
    await told(policy_store, marker, "sync", **keys)
    assert places_of(marker, policy_store) == set()
    assert places_of(marker.upper(), policy_store) == set()
    saver = policy_store.saver(**keys, on_corrupt="raise", **to_1(*CHANGES))
    assert await saver.verify()
    policy_store.flush_redis()
    assert values_of(await saver.get_tuple(at()))["said"][0].content == f"I am {marker}"


# -- upkeep ----------------------------------------------------------------------------------


async def in_the_middle(store: Store, **options: Any) -> tuple[Any, Any, Counter[str]]:
    """Older and newer code, in whose subgraph and beside it a question waits."""
    ran: Counter[str] = Counter()
    old = store.face(OLD(store.open(**options), ran))
    new = store.face(NEW(store.open(**options, **to_1(*RENAMES)), ran))
    await old.invoke({"log": ["a"]}, at())
    await new.invoke(Command(resume={**await answers(new)}), at())
    await new.invoke({"journal": ["b"]}, at())
    ran.clear()
    return old, new, ran


async def answered_by_both(store: Store, thread: str, **options: Any) -> None:
    """Both forms of the questions that wait are there."""
    ran: Counter[str] = Counter()
    old = store.face(OLD(store.open(**options), ran))
    new = store.face(NEW(store.open(**options, **to_1(*RENAMES)), ran))
    for graph in (old, new):
        waiting = {t.name for t in (await graph.get_state(at(thread))).tasks if t.interrupts}
        assert waiting == ({"ask", "sub"} if graph is old else {"ask_human", "research"})
    ids = {i.value: i.id for t in (await old.get_state(at(thread))).tasks for i in t.interrupts}
    await old.invoke(Command(resume={ids["may I?"]: "yes"}), at(thread))
    ids = {i.value: i.id for t in (await new.get_state(at(thread))).tasks for i in t.interrupts}
    done = await new.invoke(Command(resume={ids["which?"]: "this"}), at(thread))
    assert ran == {"ask": 1, "pick": 1, "end": 1}
    assert (await old.get_state(at(thread))).values == {"log": done["journal"]}


async def test_verify_finds_nothing(policy_store: Store) -> None:
    await in_the_middle(policy_store)
    saver = policy_store.saver(**to_1(*RENAMES))
    assert await saver.verify()
    assert await policy_store.saver().verify()


@pytest.mark.parametrize("who", ["old", "new"])
async def test_prune_keeps_both_forms(policy_store: Store, who: str) -> None:
    await in_the_middle(policy_store)
    await policy_store.saver(**({} if who == "old" else to_1(*RENAMES))).prune(["t"])
    assert await policy_store.saver().verify()
    await answered_by_both(policy_store, "t")


@pytest.mark.parametrize("who", ["old", "new"])
@pytest.mark.parametrize("latest_only", [False, True])
async def test_a_copy_has_both_forms(policy_store: Store, who: str, latest_only: bool) -> None:
    await in_the_middle(policy_store)
    saver = policy_store.saver(**({} if who == "old" else to_1(*RENAMES)))
    await saver.copy_thread("t", "copy", latest_only=latest_only)
    await answered_by_both(policy_store, "copy")
    await answered_by_both(policy_store, "t")


async def test_rekey_keeps_both_forms(policy_store: Store) -> None:
    before = {"encryption_key": b"o" * 32}
    between = {"encryption_key": [b"n" * 32, b"o" * 32]}
    await in_the_middle(policy_store, **before)
    await policy_store.saver(**between).rekey(renew=True)
    policy_store.flush_redis()
    after = {"encryption_key": b"n" * 32}
    assert await policy_store.saver(**after).verify()
    await answered_by_both(policy_store, "t", **after)


# -- what it costs ---------------------------------------------------------------------------


def rope(steps: int) -> list[dict[str, Any]]:
    return [{"c": n, "long": [f"{i} " + "x" * 80 for i in range(n * 40)]} for n in range(steps)]


async def test_a_renamed_channels_chunks_are_stored_once(policy_store: Store) -> None:
    """The second form refers to them."""
    one, other = policy_store.saver(), policy_store.saver(**to_1(rename_channel("long", "rope")))
    await chain(one, rope(5), "one")
    renamed = [{"c": v["c"], "rope": v["long"]} for v in rope(5)]
    await chain(other, renamed, "other")
    for saver in (one, other):
        await saver.close()  # which flushes
    counted = (
        "SELECT t.id, count(*), sum(length(data)) FROM durable_state.chunk"
        " JOIN durable_state.thread t USING (tk) GROUP BY 1 ORDER BY 1"
    )
    (_, *plain), (_, *twice) = policy_store.query(counted)
    assert plain == twice
    older = await policy_store.saver().get_tuple(at("other"))
    assert values_of(older) == rope(5)[-1]


async def statements(store: Store, saver: DurableSaver) -> list[str]:
    """What the saver will have asked Postgres."""
    faces = saver._faces
    driver: Any = await (faces.native() if store.face.native else faces.blocking())
    connections = driver.upkeep._durable._sql._connections
    ask, asked = connections.ask, []

    async def noted(connection: Any, said: str, *rest: Any) -> Any:
        asked.append(said)
        return await ask(connection, said, *rest)

    connections.ask = noted
    return asked


@pytest.mark.parametrize("ns", ["", "research:cad86a24-e4b3-14f0-e4c4-9a2de32be728"])
async def test_no_put_asks_postgres_more_often(hot_store: Store, ns: str) -> None:
    """Nor do writes; in a subgraph of a renamed node neither, once it is known where it is."""
    newer = to_1(rename_channel("long", "rope"), rename_node("sub", "research"))
    told = []
    for thread, options in (("one", {}), ("other", newer)):
        opened = hot_store.open(**options)
        saver = hot_store.face(opened)
        config = await put(saver, at(thread, ns), cp({"c": 0}))
        await saver.get_tuple(config)
        asked = await statements(hot_store, opened)
        for n in range(1, 4):
            values = {"c": n, "rope": [f"{i} " + "x" * 80 for i in range(n * 40)]}
            await saver.put_writes(config, [("c", n), ("rope", ["x" * 300])], f"task-{n}")
            versions = dict.fromkeys(values, str(n + 1))
            config = await put(saver, config, cp(values, versions=versions), {"step": n})
        told.append(asked)
    assert len(told[0]) == 6
    assert told[1] == told[0]
