"""With `encryption_key`: nothing at rest can be read without it, and all is read with it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel, SecretStr

from langgraph_durable_state import (
    CorruptionError,
    DurableSaver,
    KeyMissingError,
    UsageError,
)
from langgraph_durable_state.drivers.background import Background
from langgraph_durable_state.protocols import vault
from tests.calls import CALLS, Open, done_right, three_steps
from tests.cases import Face, Store, at, chain, cp, grown, put, query, values_of
from tests.integration.outages import BEHIND, Pair
from tests.integration.test_tampering import flipped, forms

KEY = b"k" * 32
OLD_KEY = b"o" * 32


@pytest.fixture
def open_saver(open_saver: Open) -> Open:
    """Opens savers that serve nothing else in the place of what is damaged."""

    def opened(postgres: Any, redis: str | None = None, **options: Any) -> Any:
        return open_saver(postgres, redis, **({"on_corrupt": "raise"} | options))

    return opened


def of(user: str | None = None, thread_id: str = "t", tenant: str | None = None) -> dict[str, Any]:
    """A config that names owners."""
    named = {"thread_id": thread_id, "user_id": user, "tenant_id": tenant, "checkpoint_ns": ""}
    return {"configurable": {name: value for name, value in named.items() if value is not None}}


class Inner(TypedDict, total=False):
    shared: str
    inner: str


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    items: Annotated[list[Any], grown]
    shared: str
    number: int
    data: bytes
    files: dict[str, Any]
    answer: str


def graph(saver: Any, marker: str) -> Any:
    """A graph whose state, writes, question and subgraph hold a marker, at an interrupt."""
    inner = StateGraph(Inner)
    inner.add_node("deep", lambda s: {"inner": marker + " inner", "shared": s["shared"] + "!"})
    inner.add_edge(START, "deep")
    inner.add_edge("deep", END)
    builder = StateGraph(State)
    builder.add_node(
        "says",
        lambda _: {
            "messages": [AIMessage(f"I say {marker}", additional_kwargs={"x": marker})],
            "items": [marker, {marker: [marker]}],
            "data": marker.encode(),
            "files": {f"/{marker}": "x" * 300},
            "shared": marker,
            "number": 7,
        },
    )
    builder.add_node("below", inner.compile(checkpointer=True))
    builder.add_node("asks", lambda _: {"answer": interrupt({"question": marker})})
    builder.add_edge(START, "says")
    builder.add_edge("says", "below")
    builder.add_edge("below", "asks")
    builder.add_edge("asks", END)
    return builder.compile(checkpointer=saver)


async def asked(face: Face, saver: Any, marker: str) -> None:
    """Runs the graph up to its question."""
    config = at() | {"metadata": {"told": marker}}
    question = {"messages": [HumanMessage(f"Do you know {marker}?")]}
    await face(graph(saver, marker)).invoke(question, config, durability="sync")


def everything_in_postgres(url: str) -> Iterator[bytes]:
    """Every value of every column of our tables."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'durable_state'"
        ).fetchall()
        assert len(names) > 5
        for (name,) in names:
            for row in connection.execute(f"SELECT * FROM durable_state.{name}".encode()):
                yield from (v if isinstance(v, bytes) else str(v).encode() for v in row)


def everything_in_redis(url: str) -> Iterator[bytes]:
    """Every key, field and value."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter():
            yield key
            kind = client.type(key)
            if kind == b"hash":
                for pair in client.hgetall(key).items():  # type: ignore[union-attr]
                    yield from pair
            elif kind == b"list":
                yield from client.lrange(key, 0, -1)  # type: ignore[misc]
            else:
                yield client.get(key) or b""  # type: ignore[misc]


def places_of(marker: str, store: Store) -> set[str]:
    """In which tiers the marker, or a plain digest of it, can be found."""
    wanted = [marker.encode()]
    wanted += [w.hex().encode() for w in wanted]
    for name in ("sha256", "sha1", "md5", "blake2b"):
        digest = hashlib.new(name, marker.encode()).digest()
        wanted += [digest[:16], digest.hex()[:32].encode()]
    tiers = {
        "postgres": everything_in_postgres(store.postgres_url),
        "redis": everything_in_redis(store.redis_url),
    }
    return {name for name, found in tiers.items() for one in found if any(w in one for w in wanted)}


OPTIONS: dict[str, Any] = {"compression": "none"}
"""What is compressed could not be found by looking for it."""


@pytest.mark.parametrize("policy", ["write_through", "write_behind"])
@pytest.mark.parametrize("flushed", [True, False])
async def test_a_marker_is_nowhere(
    hot_store: Store, monkeypatch: pytest.MonkeyPatch, policy: str, flushed: bool
) -> None:
    """In state, writes, metadata, a question and a subgraph; neither its text nor a plain hash."""
    if not flushed:
        monkeypatch.setattr(Background, "start", lambda self: None)
    marker = "marker" + secrets.token_hex(16)
    hot_store.options = OPTIONS | {"write_policy": policy, "redis_timeout": 10.0}
    saver = hot_store.open(encryption_key=KEY)
    face = hot_store.face
    await asked(face, saver, marker)
    assert places_of(marker, hot_store) == set()
    in_redis = hot_store.keys()
    waits = any(key.endswith(b":outbox") for key in in_redis)
    assert waits or flushed or policy == "write_through"
    if flushed:
        await face(saver).flush()
        assert places_of(marker, hot_store) == set()
    told = await face(graph(saver, marker)).get_state(at(), subgraphs=True)
    assert told.tasks[0].interrupts[0].value == {"question": marker}
    await face(graph(saver, marker)).invoke(Command(resume=marker), at(), durability="sync")
    reader = graph(hot_store.open(encryption_key=KEY), marker)
    found = (await face(reader).get_state(at())).values
    assert found["messages"][-1].content == f"I say {marker}"
    assert found["items"] == [marker, {marker: [marker]}]
    assert (found["data"], found["answer"]) == (marker.encode(), marker)
    assert places_of(marker, hot_store) == set()


class Account(BaseModel):
    name: str
    password: SecretStr


@pytest.mark.parametrize("policy", ["write_through", "write_behind"])
async def test_a_secret_in_a_model_is_nowhere(hot_store: Store, policy: str) -> None:
    """In a channel and in a pending write, nor are the plain values beside it; all comes back."""
    secret = "marker" + secrets.token_hex(16)
    account = Account(name=secret + "n", password=SecretStr(secret))
    saver = hot_store.saver(
        encryption_key=KEY, write_policy=policy, allow=[Account], hot_reads="always", **OPTIONS
    )
    values = {"account": account, "text": secret + "t"}
    head = await put(saver, at(), cp(values), {"source": "loop", "step": 1, "told": secret})
    await saver.put_writes(head, [("account", account)], "task")
    assert places_of(secret, hot_store) == set()
    found = await hot_store.saver(encryption_key=KEY, allow=[Account]).get_tuple(at())
    assert values_of(found) == values
    assert found.pending_writes == [("task", "account", account)]
    await asyncio.to_thread(saver.target.flush)
    assert places_of(secret, hot_store) == set()


async def test_the_search_finds_what_is_there(hot_store: Store) -> None:
    """Without encryption the marker is found in both tiers, and so is a hash of it."""
    marker = "marker" + secrets.token_hex(16)
    hot_store.options = dict(OPTIONS)
    await asked(hot_store.face, hot_store.open(), marker)
    assert places_of(marker, hot_store) == {"postgres", "redis"}


async def test_a_large_value_has_no_plain_digest(hot_store: Store) -> None:
    """The digests beside the ciphertext are made under a key: they confirm no guess."""
    text = "a guess " * 100
    await put(hot_store.saver(encryption_key=KEY), at(), cp({"c": text}))
    packed = b"\xda" + len(text).to_bytes(2) + text.encode()  # msgpack's str 16
    guess = hashlib.sha256(packed).digest()[:16]
    stored = list(everything_in_postgres(hot_store.postgres_url))
    assert guess not in stored
    query(hot_store.postgres_url, "DROP SCHEMA durable_state CASCADE")
    await put(hot_store.saver(), at(), cp({"c": text}))
    assert guess in list(everything_in_postgres(hot_store.postgres_url))


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_does_what_it_should(store: Store, name: str) -> None:
    """From a saver that has met no key yet, on both faces, whichever tier answers."""
    configs = await three_steps(store.saver(encryption_key=KEY))
    reader = store.reader(encryption_key=KEY)
    result = await CALLS[name](reader, configs)
    assert await done_right(name, result, store.reader(encryption_key=KEY), configs)


async def test_a_history_is_shared_between_checkpoints(store: Store) -> None:
    """What an append leaves alone is stored once: the keys of one owner are few."""
    saver = store.saver(encryption_key=KEY)
    await chain(saver, [{"c": ["x" * 400] * n} for n in range(1, 8)])
    assert values_of(await store.reader(encryption_key=KEY).get_tuple(at())) == {
        "c": ["x" * 400] * 7
    }
    assert store.counts()["chunk"] <= 8
    assert store.query("SELECT count(*) FROM durable_state.data_key") == [(1,)]


async def test_what_is_put_while_a_key_is_made_cannot_be_changed(
    postgres_url: str, ends_in_loop: Any
) -> None:
    """A value is stored as it was when it was handed over."""
    saver = DurableSaver(postgres_url, encryption_key=KEY)
    ends_in_loop.push_async_callback(saver.aclose)
    await saver.asetup()
    items, written = [1], [1]
    checkpoint = cp({"c": items})
    putting = asyncio.create_task(saver.aput(at(), checkpoint, {}, {"c": "1"}))  # type: ignore[arg-type]
    writing = asyncio.create_task(
        saver.aput_writes(at(id=checkpoint["id"]), [("c", written)], "task")  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    items.append(2)
    written.append(2)
    await asyncio.gather(putting, writing)
    found = await saver.aget_tuple(at())  # type: ignore[arg-type]
    assert values_of(found) == {"c": [1]}
    assert found is not None
    assert found.pending_writes == [("task", "c", [1])]


# -- what is refused -------------------------------------------------------------------------------


async def test_plain_rows_are_refused(store: Store) -> None:
    """Also those with an integrity key's MAC, unless `accept_plain` says otherwise."""
    for options in ({}, {"integrity_key": OLD_KEY}):
        await put(store.saver(**options), at("plain"), cp({"c": 1}))
        both = options | {"encryption_key": KEY}
        with pytest.raises(CorruptionError, match="without encryption"):
            await store.reader(**both).get_tuple(at("plain"))
        found = await store.reader(**both, accept_plain=True).get_tuple(at("plain"))
        assert values_of(found) == {"c": 1}
        await store.saver().delete_thread("plain")


async def test_an_encrypted_thread_needs_the_key(store: Store) -> None:
    """It is neither damaged nor empty; the master key that is missing, or any, is named."""
    await put(store.saver(encryption_key=KEY), at(), cp({"c": 1}))
    for options in ({}, {"integrity_key": KEY}, {"encryption_key": OLD_KEY}):
        with pytest.raises(KeyMissingError):
            await store.reader(**options).get_tuple(at())


async def test_a_byte_that_is_flipped_is_noticed(postgres_url: str, open_saver: Open) -> None:
    """In a record, a chunk, a pending write; nothing of it is decoded."""
    for table, column in (("checkpoint", "record"), ("chunk", "data"), ("write", "data")):
        saver = open_saver(postgres_url, encryption_key=KEY)
        config = await put(saver, at(table), cp({"c": "x" * 1_000}))
        await saver.put_writes(config, [("c", 1)], "task")
        query(postgres_url, f"UPDATE durable_state.{table} SET {flipped(column)}")
        with pytest.raises(CorruptionError):
            await open_saver(postgres_url, encryption_key=KEY).get_tuple(at(table))


async def test_rows_of_another_tenant_or_user_are_refused(
    postgres_url: str, open_saver: Open
) -> None:
    """Whoever copies all of somebody else's checkpoint into a thread has nothing from it."""
    saver = open_saver(postgres_url, encryption_key=KEY)
    for user, tenant in (("anne", "a"), ("bob", "a"), ("anne", "b")):
        await put(saver, of(user, f"{user} {tenant}", tenant), cp({"c": "x" * 999}, id="1"))
    thread = "(SELECT tk FROM durable_state.thread WHERE id = '{}')"
    for source in ("bob a", "anne b"):
        for table, columns in (
            ("checkpoint", "digest, record, chunks"),
            ("chunk", "no, digest, data"),
            ("head", "digest"),
        ):
            query(
                postgres_url,
                f"UPDATE durable_state.{table} SET ({columns}) = (SELECT {columns} FROM"
                f" durable_state.{table} WHERE tk = {thread.format(source)})"
                f" WHERE tk = {thread.format('anne a')}",
            )
        reader = open_saver(postgres_url, encryption_key=KEY)
        with pytest.raises(CorruptionError):
            await reader.get_tuple(of("anne", "anne a", "a"))


async def test_a_data_key_of_somebody_else_unwraps_nothing(
    postgres_url: str, open_saver: Open
) -> None:
    """A wrapped key is bound to its id and its owner."""
    saver = open_saver(postgres_url, encryption_key=KEY)
    for user in ("anne", "bob"):
        await put(saver, of(user, user), cp({"c": user}))
    query(
        postgres_url,
        "UPDATE durable_state.data_key SET wrapped ="
        " (SELECT wrapped FROM durable_state.data_key WHERE user_id = 'bob')",
    )
    with pytest.raises(CorruptionError, match="data key"):
        await open_saver(postgres_url, encryption_key=KEY).get_tuple(of("anne", "anne"))
    query(postgres_url, "UPDATE durable_state.data_key SET user_id = 'anne'")
    with pytest.raises(CorruptionError, match="data key"):
        await open_saver(postgres_url, encryption_key=KEY).get_tuple(of("bob", "bob"))


@pytest.mark.parametrize("column", ["tenant", "user_id"])
async def test_a_data_key_whose_owner_is_no_text_unwraps_nothing(
    postgres_url: str, open_saver: Open, column: str
) -> None:
    """It is damaged, as one of somebody else is."""
    await put(open_saver(postgres_url, encryption_key=KEY), at(), cp({"c": 1}))
    query(postgres_url, f"UPDATE durable_state.data_key SET {column} = '\\xff'")
    with pytest.raises(CorruptionError, match="data key"):
        await open_saver(postgres_url, encryption_key=KEY).get_tuple(at())


@pytest.mark.parametrize("what", ["the hot copy", "the witness"])
async def test_what_redis_has_under_a_key_that_there_is_not_is_done_without(
    hot_store: Store, what: str
) -> None:
    """A byte of the key's id was flipped in it; Postgres has all that is needed."""
    await put(hot_store.saver(encryption_key=KEY), at(), cp({"c": 1}))
    flip = lambda data, at: data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]  # noqa: E731
    with redis.Redis.from_url(hot_store.redis_url) as client:
        if what == "the witness":
            [name] = client.keys("*:witness")
            client.set(name, flip(client.get(name), 16))
        else:
            [name] = client.scan_iter(_type="hash")
            client.hset(name, "record", flip(client.hget(name, "record"), 3))
    found = await hot_store.saver(encryption_key=KEY, on_corrupt="raise").get_tuple(at())
    assert values_of(found) == {"c": 1}


async def test_a_filter_on_what_is_encrypted_is_an_error(store: Store) -> None:
    """Not an empty list; LangGraph's own keys and those that are listed can be searched."""
    options: dict[str, Any] = {"encryption_key": KEY, "clear_metadata": ["kind"]}
    saver = store.saver(**options)
    metadata = {"source": "loop", "step": 1, "run_id": "r", "kind": "chat", "told": "secret"}
    await put(saver, at(), cp({"c": 1}), metadata)
    reader = store.reader(**options)
    for wanted in ({"source": "loop"}, {"step": 1, "run_id": "r"}, {"kind": "chat"}):
        found = await reader.list(at(), filter=wanted)
        assert [each.metadata for each in found] == [metadata]
        assert await reader.list(at(), filter=wanted | {"step": 2}) == []
    with pytest.raises(UsageError, match=r"'told'.*encrypted"):
        await reader.list(at(), filter={"told": "secret"})
    with pytest.raises(UsageError, match="'kind'"):
        await store.reader(encryption_key=KEY).list(at(), filter={"kind": "chat"})
    assert store.query("SELECT meta ? 'told', meta ? 'kind' FROM durable_state.checkpoint") == [
        (False, True)
    ]


async def test_the_owner_of_a_thread_stays(policy_store: Store) -> None:
    """Its first put says who it is; another user can neither put nor write there, nobody's can."""
    saver = policy_store.saver(encryption_key=KEY)
    first = await put(saver, of("anne"), cp({"c": 1}))
    second = await put(saver, at(id=first["configurable"]["checkpoint_id"]), cp({"c": 2}))
    await saver.flush()
    for each in (saver, policy_store.saver(encryption_key=KEY)):
        stolen = {"configurable": second["configurable"] | {"user_id": "bob"}}
        with pytest.raises(UsageError, match="does not belong to user_id 'bob'"):
            await put(each, stolen, cp({"c": 3}))
        with pytest.raises(UsageError, match="does not belong to user_id 'bob'"):
            await each.put_writes(stolen, [("c", 3)], "task")
        with pytest.raises(UsageError, match="does not belong to user_id 'bob'"):
            await put(each, of("bob"), cp({"c": 3}))
    assert values_of(await policy_store.reader(encryption_key=KEY).get_tuple(at())) == {"c": 2}
    owners = policy_store.query("SELECT user_id FROM durable_state.data_key")
    assert owners == [(b"anne",)]
    await saver.delete_thread("t")
    await put(saver, of("bob"), cp({"c": 4}))
    assert values_of(await policy_store.reader(encryption_key=KEY).get_tuple(at())) == {"c": 4}


@pytest.mark.parametrize("warm", [True, False])
async def test_nobody_goes_on_with_a_thread_of_another_user(
    policy_store: Store, face: Face, warm: bool
) -> None:
    """Whether the saver that is asked has put it, or has read it for its owner, and whether or not
    Postgres has it yet; the owner goes on, also with a config that names nobody."""
    options = {"encryption_key": KEY}
    saver = policy_store.saver(**options)
    await face(graph(saver.target, "hers")).invoke({"number": 1}, of("anne"), durability="sync")
    other = saver if warm else policy_store.saver(**options)
    if warm:
        assert await other.get_tuple(of("anne")) is not None
    later = {"configurable": of("bob")["configurable"] | {"checkpoint_id": "later"}}
    for attempt in (
        face(graph(other.target, "his")).invoke({"number": 2}, of("bob")),
        face(graph(other.target, "his")).invoke({"number": 2}, of("bob"), durability="sync"),
        face(graph(other.target, "his")).invoke({"number": 2}, of("bob"), durability="exit"),
        face(graph(other.target, "his")).invoke(Command(resume="x"), of("bob")),
        put(other, of("bob"), cp({"number": 3})),
        other.put_writes(later, [("c", 3)], "task"),
    ):
        with pytest.raises(UsageError, match="does not belong to user_id 'bob'"):
            await attempt
    assert (await other.get_tuple(of("bob"))).config["configurable"]["user_id"] == "bob"
    found = await other.get_tuple(at())
    assert "user_id" not in found.config["configurable"]
    await put(other, found.config, cp({"number": 4}))
    await other.flush()
    await saver.flush()
    assert policy_store.query("SELECT DISTINCT user_id FROM durable_state.data_key") == [(b"anne",)]
    assert policy_store.query("SELECT user_id FROM durable_state.thread") == [(b"anne",)]


async def test_a_copy_is_its_sources_owners(store: Store) -> None:
    """Its keys go with those of whom it is about."""
    saver = store.saver(encryption_key=KEY)
    await put(saver, of("anne"), cp({"c": "x" * 1_000}))
    await saver.copy_thread("t", "copy")
    copied = await store.reader(encryption_key=KEY).get_tuple(at("copy"))
    assert values_of(copied) == {"c": "x" * 1_000}
    assert await saver.shred("anne") == 1
    for thread in ("t", "copy"):
        with pytest.raises(KeyMissingError):
            await store.reader(encryption_key=KEY).get_tuple(at(thread))


# -- keys ------------------------------------------------------------------------------------------


async def test_deleting_a_users_keys_shreds_what_is_stored(store: Store) -> None:
    """In both tiers and for the saver that had it all in memory; others' threads are as before."""
    saver = store.saver(encryption_key=KEY)
    last = await put(saver, of("anne", "anne"), cp({"c": "anne"}))
    await put(saver, of("bob", "bob"), cp({"c": "bob"}))
    assert values_of(await saver.get_tuple(of("anne", "anne"))) == {"c": "anne"}
    assert await saver.shred("anne") == 1
    for each in (saver, store.reader(encryption_key=KEY)):
        for config in (of("anne", "anne"), last):
            with pytest.raises(KeyMissingError):
                await each.get_tuple(config)
        with pytest.raises(KeyMissingError):
            await each.list(of("anne", "anne"))
        with pytest.raises(KeyMissingError):
            await put(each, last, cp({"c": "more"}))
        assert values_of(await each.get_tuple(of("bob", "bob"))) == {"c": "bob"}
    await saver.delete_thread("anne")
    await put(saver, of("anne", "anne"), cp({"c": "again"}))
    assert values_of(await saver.get_tuple(of("anne", "anne"))) == {"c": "again"}


async def test_other_processes_forget_a_deleted_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute, whatever they hold in memory."""
    saver = store.open(encryption_key=KEY)
    last = await put(store.face(saver), of("anne"), cp({"c": 1}))
    await store.face(saver).get_tuple(at())
    await store.saver(encryption_key=KEY).shred("anne")
    assert values_of(await store.face(saver).get_tuple(at())) == {"c": 1}
    keys = saver._faces._shared.blobs.keys
    assert isinstance(keys, vault.DataKeys)
    now = keys._clock()
    monkeypatch.setattr(keys, "_clock", lambda: now + vault.SECONDS + 1)
    with pytest.raises(KeyMissingError):
        await store.face(saver).get_tuple(at())
    with pytest.raises(KeyMissingError):
        await put(store.face(saver), last, cp({"c": 2}))


async def test_master_keys_rotate(store: Store) -> None:
    """The first wraps, the others unwrap; rows are as they were."""
    await put(store.saver(encryption_key=OLD_KEY), of("anne", "a"), cp({"c": 1}))
    both = store.saver(encryption_key=[KEY, OLD_KEY])
    assert values_of(await both.get_tuple(at("a"))) == {"c": 1}
    await put(both, of("bob", "b"), cp({"c": 2}))
    new = store.reader(encryption_key=KEY)
    assert values_of(await new.get_tuple(at("b"))) == {"c": 2}
    with pytest.raises(KeyMissingError):
        await new.get_tuple(at("a"))


async def test_a_known_key_serves_while_postgres_is_down(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long: what Redis takes meanwhile is encrypted as well."""
    face = pair.saver(BEHIND, encryption_key=KEY)
    config = await put(face, of("anne"), cp({"c": 1}))
    await face.flush()
    keys = face.target._faces._shared.blobs.keys
    now = keys._clock()
    pair.postgres.kill()
    monkeypatch.setattr(keys, "_clock", lambda: now + 10 * vault.SECONDS)
    await put(face, config, cp({"c": 2}))
    assert values_of(await face.get_tuple(at())) == {"c": 2}


# -- manners ---------------------------------------------------------------------------------------


async def test_no_key_is_shown(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a master key nor a data key nor what is made from them, in errors, logs, reprs."""
    made: list[bytes] = []
    random = os.urandom

    def noted(size: int) -> bytes:
        made.append(random(size))
        return made[-1]

    monkeypatch.setattr("langgraph_durable_state.decisions.cipher.os.urandom", noted)
    master = random(32)
    saver = store.open(encryption_key=master)
    await put(store.face(saver), of("anne"), cp({"c": 1}))
    shared = saver._faces._shared
    shown = " ".join(
        map(repr, (saver, shared, shared.blobs.keys, *vars(shared.blobs.keys).values()))
    )
    query(store.postgres_url, f"UPDATE durable_state.checkpoint SET {flipped('record')}")
    attempts: list[tuple[dict[str, Any], str]] = [
        ({"encryption_key": master}, "SELECT 1"),
        ({"encryption_key": KEY}, "SELECT 1"),
        ({}, "SELECT 1"),
        (
            {"encryption_key": master},
            f"UPDATE durable_state.data_key SET {flipped('wrapped')}",
        ),
    ]
    for options, statement in attempts:
        query(store.postgres_url, statement)
        store.flush_redis()
        with pytest.raises((CorruptionError, KeyMissingError)) as error:
            await store.reader(**options).get_tuple(at())
        found = traceback.TracebackException.from_exception(error.value)
        shown += "".join(found.format()) + repr(error.value)
    keys = [master, *(key for key in made if len(key) == 32)]
    assert len(keys) == 2
    shown += caplog.text
    assert [form for key in keys for form in forms(key) if form in shown] == []


def test_without_what_encrypts_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(UsageError, match=r"langgraph_durable_state\[encryption\]"):
        DurableSaver("", encryption_key=KEY)


UNUSABLE: dict[str, Any] = {
    "encryption_key": {"encryption_key": "not env: nor file:"},
    "clear_metadata": {"clear_metadata": ["x"]},
    "accept_plain": {"accept_plain": 1},
    "clear_metadata=": {"clear_metadata": "x", "encryption_key": KEY},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_settings_that_cannot_be_used_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name.rstrip("=")):
        DurableSaver("", **UNUSABLE[name])


async def test_what_is_shredded_is_told(store: Store) -> None:
    """Nobody is left to believe that something is gone which is not encrypted."""
    await put(store.saver(), of("anne"), cp({"c": 1}))
    assert await store.saver().shred("anne") == 0
    with pytest.raises(UsageError, match="user_id"):
        await store.saver(encryption_key=KEY).shred("")


def test_the_command_shreds(postgres_url: str) -> None:
    """Without any key; and other commands take keys from the environment."""
    saver = DurableSaver(postgres_url, encryption_key=KEY)
    saver.put(of("anne"), cp({"c": 1}), {}, {"c": "1"})  # type: ignore[arg-type]
    command = [sys.executable, "-m", "langgraph_durable_state.cli", "shred", "anne"]
    done = subprocess.run(
        [*command, "--json"],
        env={**os.environ, "DURABLE_STATE_POSTGRES": postgres_url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ('{"keys": 1}\n', "")
    with pytest.raises(KeyMissingError), DurableSaver(postgres_url, encryption_key=KEY) as fresh:
        fresh.get_tuple(at())  # type: ignore[arg-type]
