"""`rekey`: what is stored is under the current keys afterwards, and is what it was."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from typing import Any

import pytest

from langgraph_durable_state import (
    ConflictError,
    DurableSaver,
    KeyMissingError,
    UsageError,
)
from tests.cases import Store, at, chain, cp, put, query, values_of
from tests.integration.test_branches import graph_of_runs, three_runs
from tests.integration.test_encryption import OPTIONS, asked, graph, of, places_of
from tests.integration.test_heads import numbers
from tests.integration.test_tampering import flipped

OLD, NEW = b"o" * 32, b"n" * 32

SIGN, SEAL = "integrity_key", "encryption_key"
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "another key": ({SIGN: OLD}, {SIGN: [NEW, OLD]}, {SIGN: NEW}),
    "a first key": ({}, {SIGN: NEW, "accept_plain": True}, {SIGN: NEW}),
    "encrypted": ({}, {SEAL: NEW, "accept_plain": True}, {SEAL: NEW}),
    "signed, encrypted": (
        {SIGN: OLD},
        {SEAL: NEW, SIGN: OLD, "accept_plain": True},
        {SEAL: NEW},
    ),
    "another master key": ({SEAL: OLD}, {SEAL: [NEW, OLD]}, {SEAL: NEW}),
}
"""Options before, of the saver that rekeys, and of those that need to know no more."""


async def everything(saver: Any) -> list[Any]:
    """All that can be read of all threads, but for what a copy of it may differ in."""
    return [
        (found.config, found.checkpoint, found.metadata, found.parent_config, found.pending_writes)
        for found in await saver.list(None)
    ]


@pytest.mark.parametrize("change", CHANGES)
async def test_what_is_stored_is_what_it_was(policy_store: Store, change: str) -> None:
    """Runs with a DeltaChannel, a subgraph, an interrupt, forks and pending writes."""
    before, between, after = CHANGES[change]
    saver = policy_store.open(**before)
    face = policy_store.face
    await three_runs(policy_store, saver)
    await asked(face, policy_store.open(**before), "told")
    configs = await chain(
        face(saver), [{"c": n, "long": ["x" * 90] * 20 * n} for n in (1, 2, 3)], "f"
    )
    fork = await put(face(saver), configs[0], cp({"c": "fork"}, versions={"c": "9"}))
    await face(saver).put_writes(fork, [("c", "y" * 400), ("c", 1)], "task")
    await face(saver).put_writes(fork, [("__interrupt__", "?")], "task")
    await face(saver).flush()
    known = await everything(face(saver))
    state = await face(graph_of_runs(saver)).get_state(at())
    rekeying = policy_store.saver(**between)
    told: list[str] = []
    done = await rekeying.rekey(progress=told.append)
    assert (done.threads, done.busy) == (len(told), ())
    encrypted = before.get(SEAL) is not None
    # Runs that began at once may have made a data key each: the newest is the one.
    assert encrypted or done.rewritten == done.threads
    assert bool(done.keys) == encrypted
    for fresh in (policy_store.saver(**after), policy_store.reader(**after)):
        assert await everything(fresh) == known
    reader = policy_store.open(**after)
    assert (await face(graph_of_runs(reader)).get_state(at())).values == state.values
    found = await policy_store.saver(**after).get_tuple(at("f"))
    assert values_of(found) == {"c": "fork"}
    assert sorted(found.pending_writes, key=repr) == [
        ("task", "__interrupt__", "?"),
        ("task", "c", "y" * 400),
        ("task", "c", 1),
    ]
    await numbers(policy_store.saver(**after), found.config, 20, 22)
    again = await policy_store.saver(**between).rekey()
    assert (again.rewritten, again.keys) == (0, 0)


async def test_nothing_in_clear_is_left(hot_store: Store) -> None:
    """In a thread that was begun without encryption: values, metadata and their projection."""
    marker = "marker" + secrets.token_hex(16)
    hot_store.options = dict(OPTIONS)
    await asked(hot_store.face, hot_store.open(), marker)
    assert places_of(marker, hot_store) == {"postgres", "redis"}
    saver = hot_store.open(encryption_key=NEW, accept_plain=True)
    await hot_store.face(saver).rekey()
    assert places_of(marker, hot_store) == set()
    reader = graph(hot_store.open(encryption_key=NEW), marker)
    told = await hot_store.face(reader).get_state(at(), subgraphs=True)
    assert told.tasks[0].interrupts[0].value == {"question": marker}


async def test_users_get_new_data_keys(store: Store) -> None:
    """Each one; what is stored needs the old ones no longer."""
    options = {"encryption_key": NEW}
    saver = store.saver(**options)
    for user, thread in (("anne", "a"), ("anne", "b"), ("bob", "c")):
        await put(saver, of(user, thread), cp({"c": thread * 500}))
    old = store.query("SELECT id FROM durable_state.data_key")
    done = await saver.rekey(renew=True)
    assert (done.threads, done.rewritten) == (3, 3)
    assert store.query("SELECT count(*) FROM durable_state.data_key") == [(4,)]
    for (id,) in old:
        store.query(f"DELETE FROM durable_state.data_key WHERE id = '\\x{id.hex()}'")
    for thread in "abc":
        found = await store.reader(**options).get_tuple(at(thread))
        assert values_of(found) == {"c": thread * 500}
    with pytest.raises(UsageError, match="encryption_key"):
        await store.saver(integrity_key=NEW, accept_plain=True).rekey(renew=True)


async def test_some_threads_are_rekeyed(store: Store) -> None:
    """Those that are named, of the tenant that is named."""
    saver = store.saver(integrity_key=OLD)
    for tenant in (None, "acme"):
        for thread in ("a", "b"):
            await put(saver, of(None, thread, tenant), cp({"c": 1}))
    both = store.saver(integrity_key=[NEW, OLD])
    assert (await both.rekey(["a", "none"])).rewritten == 1
    assert (await both.rekey(tenant_id="acme")).rewritten == 2
    new = store.saver(integrity_key=NEW)
    assert values_of(await new.get_tuple(at("a"))) == {"c": 1}
    assert values_of(await new.get_tuple(of(None, "b", "acme"))) == {"c": 1}
    with pytest.raises(KeyMissingError):
        await new.get_tuple(at("b"))


async def test_a_run_under_way_is_told(store: Store) -> None:
    """What it stands on is no longer what is stored; nothing of it is mixed in."""
    saver = store.saver(integrity_key=OLD)
    await chain(saver, [{"c": 1}])
    both = store.saver(integrity_key=[NEW, OLD])
    found = await both.get_tuple(at())
    await store.saver(integrity_key=[NEW, OLD]).rekey()
    version = {"d": found.checkpoint["channel_versions"]["c"]}
    with pytest.raises(ConflictError):
        await put(both, found.config, cp({"d": 2}, versions=version))
    found = await both.get_tuple(at())
    assert values_of(found) == {"c": 1}
    await put(both, found.config, cp({"c": 2}, versions={"c": "2"}))
    assert values_of(await store.saver(integrity_key=NEW).get_tuple(at())) == {"c": 2}


async def test_it_is_safe_beside_writers(policy_store: Store) -> None:
    """Forks and writes go on meanwhile; afterwards all that was acknowledged is there and sound."""
    savers = [policy_store.saver(integrity_key=[OLD, NEW]) for _ in range(2)]
    base = (await chain(savers[0], [{"c": 0, "long": ["x" * 99] * 9}]))[0]
    rekeying = policy_store.saver(integrity_key=[NEW, OLD])
    done = asyncio.Event()
    stored: list[str] = []

    async def forks(saver: Any, name: str) -> None:
        for n in range(12):
            try:
                found = await saver.get_tuple(base)
                made = cp({"c": f"{name}{n}", "long": ["x" * 99] * 9}, versions={"c": f"{n}"})
                config = await put(saver, found.config, made)
                await saver.put_writes(config, [("c", n)], "task")
            except ConflictError:
                continue
            stored.append(f"{name}{n}")

    async def rekeys() -> None:
        while not done.is_set():
            await rekeying.rekey(["t"])

    beside = asyncio.create_task(rekeys())
    await asyncio.gather(*(forks(saver, name) for saver, name in zip(savers, "ab", strict=True)))
    done.set()
    await beside
    await savers[0].flush()
    await rekeying.rekey(["t"])
    found = await policy_store.saver(integrity_key=NEW).list(at())
    assert stored
    assert set(stored) <= {values_of(each)["c"] for each in found}


@pytest.mark.parametrize("tier", ["durable"])
async def test_a_fork_that_is_overtaken_again_and_again_follows_no_former_content(
    store: Store,
) -> None:
    """Others move the head at its first two tries, and its parent is rewritten before the third."""
    forking, other = (store.open(integrity_key=[OLD, NEW]) for _ in range(2))
    parts = ["x" * 99] * 9
    first = moved(forking, at(), {"c": "first", "long": parts})
    moved(forking, first, {"c": "second", "long": parts})
    anchors: Any = (await forking._faces.blocking()).writer._anchors
    current, tries = anchors.current, iter(("third", "fourth", "rekey", *[""] * 99))

    async def overtaken(*args: Any) -> Any:
        turn = next(tries)
        if turn == "rekey":
            store.open(integrity_key=[NEW, OLD]).rekey(["t"])
        head = await current(*args)
        if turn in ("third", "fourth"):
            moved(other, at(), {"c": turn})
        return head

    anchors.current = overtaken
    with pytest.raises(ConflictError):
        moved(forking, first, {"c": "fork", "long": parts})
    reader = store.open(integrity_key=NEW)
    found = {values_of(each)["c"] for each in reader.list(at())}
    assert found >= {"first", "second", "third", "fourth"}
    assert reader.verify().findings == ()


def moved(saver: DurableSaver, config: Any, values: dict[str, Any]) -> Any:
    """A checkpoint that goes on from another."""
    seen = saver.get_tuple(config)
    parent = seen.config if seen is not None else config
    checkpoint = cp(values, versions={"c": values["c"]})
    return saver.put(parent, checkpoint, {"source": "loop", "step": 0}, {"c": values["c"]})


async def test_what_is_damaged_is_left_as_it_is(store: Store) -> None:
    """A digest under a new key must not make it look right."""
    await chain(store.saver(integrity_key=OLD), [{"c": "x" * 999}, {"c": 2}])
    store.query(f"UPDATE durable_state.chunk SET {flipped('data')}")
    stored = store.query("SELECT digest, record FROM durable_state.checkpoint ORDER BY seq")
    saver = store.saver(integrity_key=[NEW, OLD])
    done = await saver.rekey()
    assert (done.threads, done.rewritten, [one.thread for one in done.damaged]) == (1, 0, ["t"])
    there = store.query("SELECT digest, record FROM durable_state.checkpoint ORDER BY seq")
    assert there == stored
    await put(store.saver(), at("plain"), cp({"c": 1}))
    (left,) = (await saver.rekey(["plain"])).damaged
    assert (left.thread, "without a key" in left.reason) == ("plain", True)
    with pytest.raises(UsageError, match="integrity_key"):
        await store.saver().rekey()


async def test_one_thread_that_cannot_be_rekeyed_stops_no_other(store: Store) -> None:
    """Damaged, under a key that nobody has, of a user whose keys were deleted: each is named."""
    saver = store.saver(encryption_key=OLD)
    for user in ("anne", "bob", "shredded", "gone"):
        await put(saver, of(user, user), cp({"c": user * 500}))
    bad = "tk = (SELECT tk FROM durable_state.thread WHERE id = 'bob')"
    store.query(f"UPDATE durable_state.chunk SET {flipped('data')} WHERE {bad}")
    await saver.shred("shredded")
    store.query(
        r"UPDATE durable_state.data_key SET master = '\x0000000000000000' WHERE user_id = 'gone'"
    )
    done = await store.saver(encryption_key=[NEW, OLD]).rekey()
    assert (done.threads, done.rewritten, done.busy, done.keys) == (4, 0, (), 2)
    left = {one.thread: one.reason for one in done.damaged}
    assert left.keys() == {"", "bob", "shredded", "gone"}
    assert "data key" in left[""]
    assert "deleted" in left["shredded"]
    found = await store.saver(encryption_key=NEW).get_tuple(at("anne"))
    assert values_of(found) == {"c": "anne" * 500}
    done = await store.saver(encryption_key=NEW).rekey(renew=True)
    assert done.rewritten == 1
    assert {one.thread for one in done.damaged} == {"", "bob", "shredded", "gone"}


def test_the_command_rekeys(postgres_url: str) -> None:
    """With keys from the environment, the current one first."""
    with DurableSaver(postgres_url) as saver:
        saver.put(at(), cp({"c": 1}), {}, {"c": "1"})  # type: ignore[arg-type]
    env = {
        **os.environ,
        "DURABLE_STATE_POSTGRES": postgres_url,
        "DURABLE_STATE_ENCRYPTION_KEY": f"{NEW.hex()} {OLD.hex()}",
    }
    command = [sys.executable, "-m", "langgraph_durable_state.cli", "rekey", "--json"]
    done = subprocess.run(
        [*command, "--accept-plain"], env=env, capture_output=True, text=True, timeout=60
    )
    assert json.loads(done.stdout) == {
        "threads": 1,
        "rewritten": 1,
        "busy": [],
        "keys": 0,
        "damaged": [],
    }
    with DurableSaver(postgres_url, encryption_key=NEW) as saver:
        assert values_of(saver.get_tuple(at())) == {"c": 1}  # type: ignore[arg-type]
        saver.put(of("anne", "u"), cp({"c": 1}), {}, {"c": "1"})
        saver.shred("anne")
    assert query(postgres_url, "SELECT count(*) FROM durable_state.data_key") == [(1,)]
    done = subprocess.run(command[:-1], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "0 of 2 threads" in done.stdout) == (4, True)
    assert "left as it is: 'u': " in done.stderr
