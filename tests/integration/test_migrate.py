"""`migrate`: what is stored has the new shape afterwards, and runs go on as they would have."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, interrupt
from typing_extensions import TypedDict

from langgraph_durable_state import ConflictError, EvolutionError, MigrateProgress, UsageError
from langgraph_durable_state.decisions.keys import thread_key
from langgraph_durable_state.evolution import (
    StateSchema,
    convert_channel,
    drop_node,
    move_class,
    rename_channel,
    rename_node,
)
from tests.cases import TIERS, Plain, Store, at, chain, cp, grown, id_of, put, replayed, values_of
from tests.integration.test_branches import PlainState, row_of
from tests.integration.test_encryption import of
from tests.integration.test_tampering import flipped
from tests.servers import wait_until

KEY = b"k" * 32

LOCKED_OUT = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
"""Sessions that wait for another's lock."""


def schema(version: int = 1) -> StateSchema:
    """`msgs` is called `messages`, node `ask` `ask_human`, and subgraph `sub` `research`."""
    made = StateSchema(version=version, graph="test")
    made.step(
        0,
        rename_channel("msgs", "messages"),
        rename_channel("msgs", "messages", at="sub"),
        rename_node("ask", "ask_human"),
        rename_node("ask", "ask_human", at="sub"),
        rename_node("sub", "research"),
    )
    return made


class Old:
    """The names of the graph of version 0."""

    msgs, ask, sub = "msgs", "ask", "sub"


class New:
    """Those of version 1."""

    msgs, ask, sub = "messages", "ask_human", "research"


def graph(names: Any, saver: Any, ran: list[str] | None = None) -> Any:
    """Asks in a node, and then in a node of a subgraph; `ran` tells which nodes did."""
    log = ran if ran is not None else []
    state: Any = TypedDict("State", {names.msgs: Annotated[list, grown]})  # type: ignore[misc]

    def says(what: str) -> Any:
        def node(now: Any) -> Any:
            log.append(what)
            return {names.msgs: [f"{what} after {len(now.get(names.msgs) or [])}"]}

        return node

    def asks(what: str) -> Any:
        def node(now: Any) -> Any:
            answer = interrupt(f"{what}?")
            log.append(what)
            return {names.msgs: [f"{what}: {answer}"]}

        return node

    inner = StateGraph(state)
    inner.add_node("begin", says("begin"))
    inner.add_node(names.ask, asks("inner"))
    inner.add_edge(START, "begin")
    inner.add_edge("begin", names.ask)
    outer = StateGraph(state)
    outer.add_node("first", says("first"))
    outer.add_node(names.ask, asks("outer"))
    outer.add_node(names.sub, inner.compile())
    outer.add_edge(START, "first")
    outer.add_edge("first", names.ask)
    outer.add_edge(names.ask, names.sub)
    return outer.compile(checkpointer=saver)


async def paused(store: Store, saver: Any, thread: str, answers: int) -> Any:
    """A run of the old graph that waits, after so many answers; what it waits for."""
    old = store.face(graph(Old, saver))
    found = await old.invoke({"msgs": ["hello " * 90]}, at(thread))
    for n in range(answers):
        found = await old.invoke(Command(resume=f"answer {n}"), at(thread))
    return found["__interrupt__"][0]


async def ends(store: Store, saver: Any, thread: str, answers: int) -> tuple[list[str], Any]:
    """What a run under new names does from there on: the nodes it runs, and its end state."""
    ran: list[str] = []
    new = store.face(graph(New, saver, ran))
    found: Any = None
    for n in range(answers, 2):
        found = await new.invoke(Command(resume=f"answer {n}"), at(thread))
    return ran, found["messages"]


WRITTEN = ["hello " * 90, "first after 1", "outer: answer 0"]


def told(answers: int) -> tuple[list[str], list[str]]:
    """What `ends` should give."""
    ran = [["outer", "begin", "inner"], ["inner"]][answers]
    inner = [*WRITTEN, "begin after 3", "inner: answer 1"]
    return ran, [*WRITTEN, *inner]


@pytest.mark.parametrize("answers", [0, 1])
@pytest.mark.parametrize("way", ["plain", "signed", "encrypted"])
async def test_a_run_goes_on_where_it_waits(policy_store: Store, way: str, answers: int) -> None:
    """In a renamed node, and in a renamed node of a renamed subgraph: no node runs twice."""
    keys: dict[str, Any] = {
        "plain": {},
        "signed": {"integrity_key": KEY},
        "encrypted": {"encryption_key": KEY},
    }[way]
    store = policy_store
    waits = await paused(store, store.open(**keys), "t", answers)
    done = await store.saver(**keys, state_schema=schema()).migrate()
    assert (done.migrated, done.busy, done.failed) == (("t",), (), ())
    assert bool(done)
    fresh = store.open(**keys, state_schema=schema())
    state = await store.face(graph(New, fresh)).get_state(at(), subgraphs=True)
    assert [i.value for i in state.interrupts] == [waits.value]
    again = await store.saver(**keys, state_schema=schema()).migrate()
    assert (again.threads, again.told) == (1, ())
    assert await ends(store, fresh, "t", answers) == told(answers)
    assert bool(await store.saver(**keys, state_schema=schema()).verify())


@pytest.mark.parametrize("answers", [0, 1])
async def test_it_is_what_a_lazy_read_gives(store: Store, answers: int) -> None:
    """All checkpoints of all namespaces, their metadata and what waits on them."""
    await paused(store, store.open(), "t", answers)
    lazy = store.open(state_schema=schema())
    new = store.face(graph(New, lazy))
    before = [state async for state in _states(new)]
    await store.saver(state_schema=schema()).migrate()
    after = [
        state
        async for state in _states(store.face(graph(New, store.open_reader(state_schema=schema()))))
    ]
    assert after == before
    names = {ns for (ns,) in store.query("SELECT DISTINCT ns FROM durable_state.checkpoint")}
    assert {ns.partition(":")[0] for ns in names} == {"", *(["research"] if answers else [])}


async def _states(graph: Any) -> Any:
    for state in await graph.get_state_history(at()):
        for task in state.tasks:
            if isinstance(task.state, dict):
                yield await graph.get_state(task.state)
        yield state


# -- DeltaChannels, branches, writes of several versions ---------------------------------------


def renames(version: int = 1) -> StateSchema:
    """`items` is called `log`, and node `ask` `decide`."""
    made = StateSchema(version=version)
    return _declared(made, rename_channel("items", "log"), rename_node("ask", "decide"))


def _declared(schema: StateSchema, *operations: Any) -> StateSchema:
    schema.step(0, *operations)
    return schema


def delta_graph(saver: Any, items: str, ask: str) -> Any:
    state: Any = TypedDict("State", {items: Annotated[list, DeltaChannel(replayed)]})  # type: ignore[misc]

    def note(now: Any) -> Any:
        return {items: [f"note {len(now.get(items) or [])}" + "x" * 300]}

    def decide(_: Any) -> Any:
        return {items: [interrupt("who?") + "y" * 300]}

    return row_of(saver, state, note=note, **{ask: decide})


async def test_a_delta_channel_is_replayed_under_its_new_name(policy_store: Store) -> None:
    """On both branches of a thread that two answers split, and by the run that goes on."""
    store = policy_store
    old = store.face(delta_graph(store.open(), "items", "ask"))
    await old.invoke({"items": ["in"]}, at())
    waits = (await old.get_state(at())).config
    values = {}
    for who in "ab":
        await old.invoke(Command(resume=who), waits)
        found = await old.get_state(at())
        values[id_of(found.config)] = found.values["items"]
    await old.invoke({"items": ["again"]}, at())
    done = await store.saver(state_schema=renames()).migrate()
    assert (done.migrated, done.told[0].left) == (("t",), ())
    for store.tier in TIERS:
        new = store.face(delta_graph(store.open_reader(state_schema=renames()), "log", "decide"))
        for id, items in values.items():
            assert (await new.get_state(at(id=id))).values["log"] == items
    found = await new.invoke(Command(resume="c"), at())
    assert found["log"][-1] == "c" + "y" * 300
    assert found["log"][-4:-2] == [*values[max(values)][-1:], "again"]


async def test_what_a_task_wrote_twice_is_what_it_wrote_last(store: Store) -> None:
    """Under its former id and under its new one, by old code and by new code that then died."""
    await paused(store, store.open(), "t", 1)
    old, new = store.saver(), store.saver(state_schema=schema())
    found = await old.get_tuple(at())
    (task,) = {each[0] for each in found.pending_writes}
    await old.put_writes(found.config, [("msgs", ["early"])], task, "~__pregel_pull, sub")
    state = await store.face(graph(New, new.target)).get_state(at())
    config, (now,) = found.config, [each.id for each in state.tasks]
    asked = [("__interrupt__", [Interrupt("again?", id="i")])]
    for writes in ([("messages", ["late"])], asked):
        await new.put_writes(config, writes, now, "~__pregel_pull, research")
    await new.put_writes(config, [("messages", ["other"])], uuid4().hex)
    seen = (await store.saver(state_schema=schema()).get_tuple(at())).pending_writes
    assert [each[1:] for each in seen if each[0] == now] == [*asked, ("messages", ["late"])]
    assert (await store.saver(state_schema=schema()).migrate()).migrated == ("t",)
    after = (await store.reader(state_schema=schema()).get_tuple(at())).pending_writes
    assert after == seen
    assert store.query("SELECT 1 FROM durable_state.write WHERE slot > 0") == [(1,)]
    assert bool(await store.saver(state_schema=schema()).verify())


async def test_a_thread_of_several_versions_is_of_one(store: Store) -> None:
    """New code went on lazily, in a subgraph that is stored under its former name."""
    await paused(store, store.open(), "t", 0)
    lazy = store.open(state_schema=schema())
    new = store.face(graph(New, lazy))
    await new.invoke(Command(resume="answer 0"), at())
    await paused(store, store.open(), "u", 1)
    other = store.open(state_schema=schema())
    before = [state async for state in _states(new)]
    done = await store.saver(state_schema=schema()).migrate()
    assert set(done.migrated) == {"t", "u"}
    reader = store.open_reader(state_schema=schema())
    assert [state async for state in _states(store.face(graph(New, reader)))] == before
    assert await ends(store, store.open(state_schema=schema()), "t", 1) == told(1)
    assert await ends(store, other, "u", 1) == told(1)
    assert (await store.saver(state_schema=schema()).migrate()).told == ()


@pytest.mark.parametrize("began", ["old", "new"])
async def test_what_was_stored_for_older_code_too_is_so_no_longer(store: Store, began: str) -> None:
    """Its subgraphs are stored under the names that the older code gave them until then."""
    both = store.open(state_schema=schema(), dual_write=(0, 1))
    if began == "old":
        await paused(store, store.open(), "t", 0)
    new = store.face(graph(New, both))
    if began == "new":
        await new.invoke({"messages": ["hello " * 90]}, at())
    await new.invoke(Command(resume="answer 0"), at())
    with pytest.raises(UsageError, match="dual_write"):
        await store.face(both).migrate()
    reader = store.open(state_schema=schema())
    before = [state async for state in _states(store.face(graph(New, reader)))]
    done = await store.saver(state_schema=schema()).migrate()
    assert done.migrated == ("t",)
    (names,) = [each.namespaces for each in done.told]
    assert {(old.split(":")[0], now.split(":")[0]) for old, now in names.items()} == {
        ("sub", "research")
    }
    fresh = store.open_reader(state_schema=schema())
    assert [state async for state in _states(store.face(graph(New, fresh)))] == before
    assert (await store.saver(state_schema=schema()).migrate()).told == ()
    assert await ends(store, store.open(state_schema=schema()), "t", 1) == told(1)
    assert bool(await store.saver(state_schema=schema()).verify())


# -- what cannot be brought there --------------------------------------------------------------


def refuses(value: Any) -> Any:
    if value == "bad":
        raise ValueError(value)
    return [value]


def converts() -> StateSchema:
    made = StateSchema(version=1)
    return _declared(made, convert_channel("c", refuses, lambda value: value[0]))


async def test_what_a_step_refuses_stays_as_it_was(hot_store: Store) -> None:
    """The other threads are migrated; a checkpoint of the history does not keep its thread back."""
    store = hot_store
    for thread, values in {"a": ["x"], "b": ["x", "bad"], "c": ["bad", "y"]}.items():
        await chain(store.saver(), [{"c": value} for value in values], thread)
    before = store.query("SELECT * FROM durable_state.checkpoint ORDER BY tk, ns, id")
    dry = await store.saver(state_schema=converts()).migrate(dry_run=True)
    assert store.query("SELECT * FROM durable_state.checkpoint ORDER BY tk, ns, id") == before
    seen: list[MigrateProgress] = []
    done = await store.saver(state_schema=converts()).migrate(progress=seen.append)
    assert done.told == dry.told
    assert (dry.dry_run, done.dry_run) == (True, False)
    assert [each.threads for each in seen] == [1, 2, 3]
    assert all(0 < each.share <= 1 for each in seen)
    by_id = {each.thread: each for each in done.told}
    assert {id: each.outcome for id, each in by_id.items()} == {
        "a": "migrated",
        "b": "failed",
        "c": "migrated",
    }
    assert not done
    assert "'c' failed (ValueError)" in (by_id["b"].reason or "")
    assert len(by_id["c"].left) == 1
    assert [by_id[id].checkpoints for id in "abc"] == [1, 0, 1]
    reader = store.saver(state_schema=converts())
    assert values_of(await reader.get_tuple(at("c"))) == {"c": ["y"]}
    with pytest.raises(EvolutionError):
        await reader.get_tuple(at("b"))
    assert values_of(await store.saver().get_tuple(at("b"))) == {"c": "bad"}
    again = await store.saver(state_schema=converts()).migrate()
    assert {each.thread: each.outcome for each in again.told} == {"b": "failed", "c": "current"}


async def test_a_node_that_is_no_more_keeps_no_thread_back(store: Store) -> None:
    """Of whose history it is a part; one that waits in it fails."""
    old = store.face(row_of(store.open(), PlainState, gone=_items, stays=_items))
    await old.invoke({"items": []}, at("done"))
    waiting = row_of(store.open(), PlainState, gone=lambda _: interrupt("?"), stays=_items)
    await store.face(waiting).invoke({"items": []}, at("waits"))
    made = _declared(StateSchema(version=1), drop_node("gone"))
    done = await store.saver(state_schema=made).migrate()
    assert (done.migrated, done.failed) == (("done",), ("waits",))
    by_id = {each.thread: each for each in done.told}
    assert "waits for node 'gone'" in (by_id["waits"].reason or "")
    assert ["waits for node 'gone'" in each for each in by_id["done"].left] == [True, True]
    new = store.face(row_of(store.open_reader(state_schema=made), PlainState, stays=_items))
    assert (await new.get_state(at("done"))).values == {"items": ["item", "item"]}
    assert (await new.invoke({"items": []}, at("done")))["items"] == ["item"] * 3
    again = await store.saver(state_schema=made).migrate(["done"])
    assert [each.outcome for each in again.told] == ["current"]


def _items(_: Any) -> Any:
    return {"items": ["item"]}


async def test_it_goes_back_where_that_is_declared(store: Store) -> None:
    """And else says that it cannot."""
    await chain(store.saver(), [{"c": "x"}, {"c": "y"}])
    saver = store.saver(state_schema=converts())
    assert (await saver.migrate()).migrated == ("t",)
    done = await store.saver(state_schema=converts()).migrate(to=0)
    assert (done.to, done.migrated) == (0, ("t",))
    found = [each async for each in _listed(store.reader())]
    assert [values_of(each) for each in found] == [{"c": "y"}, {"c": "x"}]
    one_way = _declared(StateSchema(version=1), convert_channel("c", refuses))
    assert (await store.saver(state_schema=one_way).migrate()).migrated == ("t",)
    done = await store.saver(state_schema=one_way).migrate(to=0)
    assert done.failed == ("t",)
    assert "No way back" in str(done)


async def _listed(saver: Any) -> Any:
    for each in await saver.list(at()):
        yield each


async def test_it_stops_on_the_way(store: Store) -> None:
    """At a version below that of the code, which reads it lazily from there on."""
    made = StateSchema(version=2)
    made.step(0, rename_channel("a", "b"))
    made.step(1, rename_channel("b", "c"))
    await chain(store.saver(), [{"a": "x" * 300}])
    assert (await store.saver(state_schema=made).migrate(to=1)).migrated == ("t",)
    assert values_of(await store.reader(state_schema=made).get_tuple(at())) == {"c": "x" * 300}
    assert (await store.saver(state_schema=made).migrate(to=1)).told == ()
    one = _declared(StateSchema(version=1), rename_channel("a", "b"))
    assert values_of(await store.reader(state_schema=one).get_tuple(at())) == {"b": "x" * 300}


async def test_an_object_whose_class_is_not_known_is_left(store: Store) -> None:
    """What `on_unknown_class="raw"` gives instead must not be stored in its place."""
    await put(store.saver(allow=[Plain]), at(), cp({"c": Plain("n", 1), "msgs": [1]}))
    made = _declared(StateSchema(version=1), rename_channel("c", "d"))
    done = await store.saver(on_unknown_class="raw", state_schema=made).migrate()
    assert done.failed == ("t",)
    assert (await store.saver(allow=[Plain], state_schema=made).migrate()).migrated == ("t",)
    found = await store.reader(allow=[Plain], state_schema=made).get_tuple(at())
    assert values_of(found) == {"d": Plain("n", 1), "msgs": [1]}


async def test_what_is_damaged_is_left_as_it_is(store: Store) -> None:
    """A new digest must not make it look right; nor a new signature a head that was moved."""
    options: dict[str, Any] = {"integrity_key": KEY}
    for thread in ("damaged", "moved", "sound"):
        await chain(store.saver(**options), [{"c": "x" * 999}, {"c": "y" * 999}], thread)
    key = f"'{place_key('damaged')}'"
    store.query(f"UPDATE durable_state.chunk SET {flipped('data')} WHERE tk = {key}")
    store.query(
        "UPDATE durable_state.head h SET (id, digest) = (SELECT id, digest FROM"
        " durable_state.checkpoint c WHERE c.tk = h.tk ORDER BY seq LIMIT 1)"
        f" WHERE tk = '{place_key('moved')}'"
    )
    done = await store.saver(**options, state_schema=converts()).migrate()
    assert (set(done.failed), done.migrated) == ({"damaged", "moved"}, ("sound",))
    reasons = {each.thread: (each.reason or "").split(":")[0] for each in done.told}
    assert reasons == {"damaged": "CorruptionError", "moved": "HeadMovedError", "sound": ""}


def place_key(thread: str) -> Any:
    return thread_key("", thread)


# -- beside others -----------------------------------------------------------------------------


async def test_it_is_safe_beside_writers(policy_store: Store) -> None:
    """New code forks and writes meanwhile; all that was acknowledged is there, in the new shape."""
    store = policy_store
    made = _declared(StateSchema(version=1), rename_channel("old", "c"))
    base = (await chain(store.saver(), [{"old": 0, "long": ["x" * 99] * 9}]))[0]
    savers = [store.saver(state_schema=made) for _ in range(2)]
    migrating = store.saver(state_schema=made)
    done = asyncio.Event()
    stored: list[str] = []

    async def forks(saver: Any, name: str) -> None:
        for n in range(8):
            try:
                found = await saver.get_tuple(base)
                made = cp({"c": f"{name}{n}", "long": ["x" * 99] * 9}, versions={"c": f"{n}"})
                config = await put(saver, found.config, made)
                await saver.put_writes(config, [("c", n)], "task")
            except ConflictError:
                continue
            stored.append(f"{name}{n}")

    async def migrates() -> None:
        while not done.is_set():
            await migrating.migrate(["t"])

    beside = asyncio.create_task(migrates())
    await asyncio.gather(*(forks(saver, name) for saver, name in zip(savers, "ab", strict=True)))
    done.set()
    await beside
    await savers[0].flush()
    last = await migrating.migrate(["t"])
    assert bool(last)
    found = await store.saver(state_schema=made).list(at())
    assert stored
    assert set(stored) <= {values_of(each)["c"] for each in found}
    assert store.query("SELECT count(*) FROM durable_state.write")[0][0] >= len(stored)


async def test_a_fork_that_waits_for_it_refers_to_nothing_that_it_removes(store: Store) -> None:
    """It has looked for its parent's chunks when it waits for the head, and would move that after
    the chunks were replaced: it is refused."""
    changed = StateSchema(version=1)
    changed.step(0, convert_channel("long", lambda parts: [part.upper() for part in parts]))
    old, parts = store.open(), ["x" * 99] * 9
    base = old.put(at(), cp({"c": 1, "long": parts}), {"source": "loop", "step": 0}, {"c": "1"})
    seen = old.get_tuple(base)
    assert seen is not None
    fork = cp({"c": 2, "long": parts}, versions={"c": "2"})
    refused: list[ConflictError] = []

    def put_it() -> None:
        try:
            old.put(seen.config, fork, dict(seen.metadata), {"c": "2"})
        except ConflictError as error:
            refused.append(error)

    putting = Thread(target=put_it)
    migrating = store.open(state_schema=changed)
    sql: Any = (await migrating._faces.blocking()).durable._sql  # type: ignore[attr-defined]
    ask = sql._connections.ask

    async def asked(connection: Any, said: str, *rest: Any) -> Any:
        found = await ask(connection, said, *rest)
        if said == sql._queries["lock_heads"] and putting.ident is None:
            putting.start()
            wait_until(lambda: bool(store.query(LOCKED_OUT)), "the fork to wait for the head")
        return found

    sql._connections.ask = asked
    done = migrating.migrate(["t"])
    putting.join()
    assert (done.migrated, len(refused)) == (("t",), 1)
    fresh = store.open(state_schema=changed)
    assert values_of(fresh.get_tuple(at())) == {"c": 1, "long": ["X" * 99] * 9}
    assert fresh.verify().findings == ()


async def test_a_thread_that_moves_on_each_time_is_busy(store: Store) -> None:
    """The others are migrated; called again, so is that one."""
    made = _declared(StateSchema(version=1), rename_channel("a", "b"))
    configs = await chain(store.saver(), [{"a": 1}])
    await chain(store.saver(), [{"a": 1}], "u")
    migrating = store.open(state_schema=made)
    driver: Any = await (
        migrating._faces.native() if store.face.native else migrating._faces.blocking()
    )
    durable, other = driver.durable, store.open()
    rewrite = durable.rewrite

    async def late(thread: Any, heads: Any, rows: Any) -> bool:
        if thread.id == "t":
            told = configs[0], [("a", 2)], uuid4().hex
            if store.face.native:
                await other.aput_writes(*told)
            else:
                other.put_writes(*told)
        return bool(await rewrite(thread, heads, rows))

    durable.rewrite = late
    done = await store.face(migrating).migrate()
    assert (done.busy, done.migrated) == (("t",), ("u",))
    assert str(done.told[[each.thread for each in done.told].index("t")]) == "busy: thread 't'"
    assert values_of(await store.reader().get_tuple(at())) == {"a": 1}
    assert (await store.saver(state_schema=made).migrate()).migrated == ("t",)


async def test_a_full_outbox_is_flushed_first(hot_store: Store) -> None:
    """Threads that Postgres does not know of yet are migrated with the others."""
    store = hot_store
    store.options = {"write_policy": "write_behind", "redis_timeout": 10.0}
    saver = store.saver()
    for thread in ("a", "b"):
        await chain(saver, [{"msgs": n} for n in range(20)], thread)
        await saver.put_writes((await saver.get_tuple(at(thread))).config, [("msgs", 1)], "task")
    made = _declared(StateSchema(version=1), rename_channel("msgs", "messages"))
    done = await store.saver(state_schema=made).migrate()
    assert set(done.migrated) == {"a", "b"}
    assert {each.checkpoints for each in done.told} == {20}
    found = await store.saver(state_schema=made).get_tuple(at("a"))
    assert (values_of(found), found.pending_writes) == ({"messages": 19}, [("task", "messages", 1)])


# -- what is asked for -------------------------------------------------------------------------


async def test_some_threads_are_migrated(store: Store) -> None:
    """Those that are named, of the tenant that is named."""
    saver = store.saver()
    for tenant in (None, "acme"):
        for thread in ("a", "b"):
            await put(saver, of(None, thread, tenant), cp({"old": 1}))
    made = _declared(StateSchema(version=1), rename_channel("old", "new"))
    new = store.saver(state_schema=made)
    assert (await new.migrate(["a", "none"])).migrated == ("a",)
    assert set((await new.migrate(tenant_id="acme")).migrated) == {"a", "b"}
    assert (await new.migrate()).migrated == ("b",)


async def test_what_cannot_be_asked_for_is_refused(store: Store) -> None:
    """Before anything is looked at."""
    with pytest.raises(UsageError, match="state_schema"):
        await store.saver().migrate()
    with pytest.raises(UsageError, match="nothing was declared of step 0"):
        store.open(state_schema=StateSchema(version=1))
    saver = store.saver(state_schema=converts())
    for bad in (2, -1, True, "1"):
        with pytest.raises(UsageError, match="to="):
            await saver.migrate(to=bad)
    with pytest.raises(UsageError, match="list of str"):
        await saver.migrate("t")
    moved = _declared(StateSchema(version=1), move_class("a:B", "c:D"))
    with pytest.raises(UsageError, match="classes were moved"):
        await store.saver(state_schema=moved).migrate(to=0)
