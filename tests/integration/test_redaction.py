"""Redaction through both tiers, on both faces, under both policies: what goes out is nowhere."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import psycopg
import pytest
import redis
import zstandard
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import DurableSaver, Redact
from langgraph_durable_state.decisions import dictionary
from tests.cases import Store, at, query

MARK = "marker-3f9d2c"
RULES = [Redact(MARK), Redact(path="$..pin", by=None)]


def everything(store: Store) -> bytes:
    """All that is stored, of every column and key, and what is compressed in it opened."""
    tables = store.query(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'durable_state'"
    )
    found = []
    with psycopg.connect(store.postgres_url, autocommit=True) as connection:
        for (table,) in tables:
            rows = connection.execute(f'SELECT * FROM durable_state."{table}"'.encode()).fetchall()
            found += [value for row in rows for value in row]
    with redis.Redis.from_url(store.redis_url) as client:
        for key in client.scan_iter():
            kind = client.type(key)
            if kind == b"hash":
                found += [part for pair in client.hgetall(key).items() for part in pair]  # type: ignore[union-attr]
            elif kind == b"list":
                found += client.lrange(key, 0, -1)  # type: ignore[misc]
            elif kind == b"string":
                found.append(client.get(key))
            else:
                found += [repr(client.dump(key))]
    return b"\n".join(opened(value) for value in found)


def opened(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return repr(value).encode()
    data = bytes(value)
    contents = zstandard.ZstdCompressionDict(
        dictionary.VERSION_1, dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )
    out, at = [data], data.find(b"\x28\xb5\x2f\xfd")
    while at >= 0:
        try:
            reader = zstandard.ZstdDecompressor(dict_data=contents).decompressobj()
            out.append(reader.decompress(data[at:]))
        except zstandard.ZstdError:
            pass
        at = data.find(b"\x28\xb5\x2f\xfd", at + 1)
    return b"\n".join(out)


@dataclasses.dataclass
class Profile:
    """An object in the state."""

    name: str
    pin: int | None = None


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    profile: Profile
    notes: dict[str, str]
    seen: str


def agent(saver: DurableSaver) -> Any:
    def reply(state: State) -> Any:
        n = len(state["messages"])
        return {
            "messages": [AIMessage(f"reply {n} to {MARK}", id=f"a{n}")],
            "profile": Profile(f"is {MARK}", 1234),
            "notes": {"a": f"{MARK} " + "x" * 300, "b": "fine"},
        }

    def worker(state: Any) -> Any:
        return {"seen": f"{state['text']} {MARK}"}

    def ask(state: State) -> Any:
        answer = interrupt({"question": f"about {MARK}"})
        return {"messages": [AIMessage(f"so {answer}", id="last")]}

    def sends(state: State) -> list[Send]:
        return [Send("worker", {"text": MARK, "pin": 1234})]

    builder = StateGraph(State)
    builder.add_node("reply", reply)
    builder.add_node("worker", worker)
    builder.add_node("ask", ask)
    builder.add_edge(START, "reply")
    builder.add_conditional_edges("reply", sends, ["worker"])
    builder.add_edge("worker", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_what_is_redacted_is_nowhere_in_either_tier(
    policy_store: Store, durability: Any
) -> None:
    """Input, messages, objects, maps, sends, interrupts, answers, writes, metadata; and the run
    itself goes on with what it has."""
    store = policy_store
    store.options |= {"allow": [State], "redact": RULES}
    graph = store.face(agent(store.open()))
    config = at() | {"metadata": {"note": f"of {MARK}", "colour": "red"}}
    question = {"messages": [HumanMessage(f"I am {MARK}", id="q")]}
    before = await graph.invoke(question, config, durability=durability)
    assert before["messages"][-1].content == f"reply 1 to {MARK}"
    assert MARK.encode() not in everything(store)
    graph = store.face(agent(store.open()))
    waiting = await graph.get_state(at())
    assert [each.value for each in waiting.interrupts] == [{"question": "about [redacted]"}]
    done = await graph.invoke(Command(resume=f"{MARK}!"), config, durability=durability)
    assert [m.content for m in done["messages"]] == [
        "I am [redacted]",
        "reply 1 to [redacted]",
        f"so {MARK}!",
    ]
    assert done["profile"] == Profile("is [redacted]")
    assert done["notes"] == {"a": "[redacted] " + "x" * 300, "b": "fine"}
    assert MARK.encode() not in everything(store)
    for found in await graph.get_state_history(at()):
        assert found.metadata["note"] == "of [redacted]"
        assert MARK not in repr(found)
        assert "1234" not in repr(found)
    assert await graph.get_state_history(at(), filter={"colour": "red"})


async def test_the_check_of_these_tests_finds_what_is_stored(policy_store: Store) -> None:
    """Without a rule the same graph leaves the marker in every place that is looked at."""
    store = policy_store
    store.options |= {"allow": [State]}
    graph = store.face(agent(store.open()))
    await graph.invoke({"messages": [HumanMessage(f"I am {MARK}", id="q")]}, at())
    assert MARK.encode() in everything(store)
    store.flush_redis()
    assert MARK.encode() in everything(store)


async def test_a_refused_run_is_kept_redacted(hot_store: Store) -> None:
    """Whoever loses a race keeps its checkpoint, and that was screened as well."""
    store = hot_store
    store.options |= {"allow": [State], "redact": RULES, "on_conflict": "fork"}
    graph = store.face(agent(store.open()))
    await graph.invoke({"messages": [HumanMessage("a", id="q")]}, at())
    old = (await graph.get_state_history(at()))[1].config
    await graph.update_state(old, {"messages": [HumanMessage(MARK, id="r")]}, as_node="reply")
    assert MARK.encode() not in everything(store)
    assert query(store.postgres_url, "SELECT count(*) FROM durable_state.checkpoint")[0][0] > 3
