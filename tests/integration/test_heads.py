"""With a key: a head that was moved, and a tier that was set back, are told by the other tier or by
an anchor that is kept outside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from langgraph_durable_state import (
    DurableSaver,
    HeadMovedError,
    KeyMissingError,
    UnavailableError,
    UsageError,
)
from tests.cases import TABLES, Store, at, chain, cp, id_of, ids_of, put, query, values_of
from tests.conftest import MakeValkey
from tests.servers import wait_until

KEYS: dict[str, dict[str, Any]] = {
    "signed": {"integrity_key": b"k" * 32},
    "encrypted": {"encryption_key": b"k" * 32},
}


@pytest.fixture(params=KEYS)
def keyed(request: pytest.FixtureRequest, policy_store: Store) -> Store:
    """Both tiers under both write policies, whose savers sign, or encrypt."""
    policy_store.options |= KEYS[request.param]
    return policy_store


@pytest.fixture(params=KEYS)
def through(request: pytest.FixtureRequest, hot_store: Store) -> Store:
    """Likewise, but Postgres has all that is acknowledged."""
    hot_store.options |= KEYS[request.param]
    return hot_store


class Snapshot:
    """All rows of our tables, to be put back."""

    def __init__(self, url: str) -> None:
        self._url = url
        for table in TABLES:
            query(url, f"CREATE TABLE kept_{table} AS SELECT * FROM durable_state.{table}")

    def restore(self) -> None:
        for table in TABLES:
            query(self._url, f"TRUNCATE durable_state.{table}")
            query(self._url, f"INSERT INTO durable_state.{table} SELECT * FROM kept_{table}")


async def numbers(saver: Any, config: Any, start: int, stop: int) -> Any:
    """Puts checkpoints that hold these numbers, one after the other; the last one's config."""
    for n in range(start, stop):
        config = await put(saver, config, cp({"c": n}, versions={"c": f"{n:03}"}))
    return config


async def flushed(store: Store, saver: Any) -> None:
    """Postgres has everything, and Redis is ahead of nothing."""
    await saver.flush()
    marked = "SELECT 1 FROM durable_state.head WHERE ahead IS NOT NULL"
    await asyncio.to_thread(wait_until, lambda: not store.query(marked), "the end of the spells")


# -- what somebody does to the tables ----------------------------------------------------------


async def test_a_head_that_is_pointed_at_an_older_checkpoint_is_refused(keyed: Store) -> None:
    """With all that stands in a head's row but what needs the key; no other tier is asked."""
    saver = keyed.saver()
    await chain(saver, [{"c": n} for n in range(4)])
    await flushed(keyed, saver)
    keyed.query(
        "UPDATE durable_state.head h SET (id, digest, seq) = (SELECT id, digest, seq"
        " FROM durable_state.checkpoint c WHERE c.tk = h.tk ORDER BY seq OFFSET 1 LIMIT 1)"
    )
    keyed.flush_redis()
    with pytest.raises(HeadMovedError, match="not signed"):
        await keyed.saver().list(at())
    with pytest.raises(HeadMovedError, match="not signed") as error:
        await keyed.saver().get_tuple(at())
    older = keyed.query("SELECT id FROM durable_state.checkpoint ORDER BY seq OFFSET 1 LIMIT 1")
    assert (error.value.thread, error.value.found) == ("t", older[0][0])


async def test_newest_rows_that_are_cut_off_are_missed(keyed: Store) -> None:
    """With the head pointed at what is left."""
    saver = keyed.saver()
    await chain(saver, [{"c": n} for n in range(4)])
    await flushed(keyed, saver)
    keyed.query("DELETE FROM durable_state.checkpoint WHERE seq > 2")
    keyed.query(
        "UPDATE durable_state.head SET (id, digest, seq) = (SELECT id, digest, seq"
        " FROM durable_state.checkpoint ORDER BY seq DESC LIMIT 1)"
    )
    for redis_too in (False, True):
        if redis_too:
            keyed.flush_redis()
        with pytest.raises(HeadMovedError):
            await keyed.saver().get_tuple(at())
        with pytest.raises(HeadMovedError):
            await keyed.saver().list(at())


async def test_a_heads_row_that_is_put_back_is_told_by_its_witness(keyed: Store) -> None:
    """A row that was once right, signature included, while all newer checkpoints are there."""
    saver = keyed.saver()
    first = await chain(saver, [{"c": 1}, {"c": 2}])
    await flushed(keyed, saver)
    keyed.query("CREATE TABLE kept AS SELECT * FROM durable_state.head")
    last = await numbers(saver, first[-1], 3, 5)
    await flushed(keyed, saver)
    keyed.query(
        "UPDATE durable_state.head h SET (id, digest, seq, seal) ="
        " (SELECT id, digest, seq, seal FROM kept k WHERE k.tk = h.tk)"
    )
    for each in (saver, keyed.saver()):
        with pytest.raises(HeadMovedError, match="seen as head") as error:
            await each.get_tuple(at())
        assert (error.value.found, error.value.known) == (id_of(first[-1]), id_of(last))


async def test_postgres_that_is_set_back_as_a_whole_is_told_by_redis(keyed: Store) -> None:
    """Nothing older is served, and nothing of it is built on unseen; until that is accepted."""
    saver = keyed.saver()
    first = await chain(saver, [{"c": 1}, {"c": 2}])
    await flushed(keyed, saver)
    backup = Snapshot(keyed.postgres_url)
    await numbers(saver, first[-1], 3, 5)
    await flushed(keyed, saver)
    backup.restore()
    for each in (saver, keyed.saver()):
        with pytest.raises(HeadMovedError):
            await each.get_tuple(at())
        with pytest.raises(HeadMovedError):
            await each.list(at())
    assert await keyed.saver().accept_rollback("t") == [""]
    found = await keyed.saver().get_tuple(at())
    assert values_of(found) == {"c": 2}
    await numbers(saver, found.config, 6, 8)
    assert values_of(await keyed.saver().get_tuple(at())) == {"c": 7}


async def test_a_thread_that_is_wiped_is_not_taken_for_a_new_one(keyed: Store) -> None:
    """Redis has seen a head of it."""
    saver = keyed.saver()
    await chain(saver, [{"c": 1}])
    await flushed(keyed, saver)
    for table in TABLES:
        keyed.query(f"DELETE FROM durable_state.{table}")
    with pytest.raises(HeadMovedError):
        await keyed.saver().list(at())
    with pytest.raises(HeadMovedError) as error:
        await keyed.saver().get_tuple(at())
    assert error.value.found is None
    assert await keyed.saver().accept_rollback("t") == []
    assert await keyed.saver().get_tuple(at()) is None


async def test_a_restore_of_all_threads_is_accepted_at_once(keyed: Store) -> None:
    saver = keyed.saver()
    for thread in ("a", "b"):
        await chain(saver, [{"c": 1}], thread)
    await flushed(keyed, saver)
    backup = Snapshot(keyed.postgres_url)
    for thread in ("a", "b", "c"):
        await numbers(saver, at(thread), 2, 4)
    await flushed(keyed, saver)
    backup.restore()
    reader = keyed.saver()
    for thread in ("a", "b", "c"):
        with pytest.raises(HeadMovedError):
            await reader.get_tuple(at(thread))
    assert await reader.accept_rollback() == []
    assert values_of(await reader.get_tuple(at("a"))) == {"c": 1}
    assert await reader.get_tuple(at("c")) is None


async def test_redis_that_is_set_back_as_a_whole_is_told_by_postgres(through: Store) -> None:
    """Its copies and what it had seen are old ones; the state that is served is the right one."""
    saver = through.saver()
    first = await chain(saver, [{"c": 1}, {"c": 2}])
    with redis.Redis.from_url(through.redis_url) as client:
        kept = {key: client.dump(key) for key in client.scan_iter()}
        await numbers(saver, first[-1], 3, 5)
        client.flushdb()
        for key, value in kept.items():
            client.restore(key, 0, value)  # type: ignore[arg-type]
    for each in (saver, through.saver()):
        assert values_of(await each.get_tuple(at())) == {"c": 4}
    await numbers(saver, (await saver.get_tuple(at())).config, 5, 6)
    assert values_of(await through.saver().get_tuple(at())) == {"c": 5}


async def test_a_witness_that_was_lost_is_there_again_after_a_read(through: Store) -> None:
    """So that what happens after that is told."""
    saver = through.saver()
    first = await chain(saver, [{"c": 1}])
    backup = Snapshot(through.postgres_url)
    await numbers(saver, first[-1], 2, 4)
    through.flush_redis()
    await saver.get_tuple(at())
    backup.restore()
    with pytest.raises(HeadMovedError):
        await saver.get_tuple(at())


async def test_a_witness_that_is_not_sound_is_no_evidence(
    through: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops nobody, and the log says so."""
    saver = through.saver()
    await chain(saver, [{"c": 1}])
    with redis.Redis.from_url(through.redis_url) as client:
        (name,) = client.scan_iter("*:witness")
        value = client.get(name)
        assert isinstance(value, bytes)
        client.set(name, b"%016d" % 9 + value[16:])
    assert values_of(await through.saver().get_tuple(at())) == {"c": 1}
    assert "is not what was written" in caplog.text


# -- no false alarms ---------------------------------------------------------------------------


async def test_ordinary_life_is_no_rollback(keyed: Store) -> None:
    """Runs, forks, removals, copies, deletion and a new beginning, read after each."""
    saver, other = keyed.saver(), keyed.saver()

    async def holds(value: Any, thread: str = "t") -> Any:
        found = [await each.get_tuple(at(thread)) for each in (saver, other, keyed.saver())]
        assert [values_of(each)["c"] for each in found] == [value] * 3
        return found[0]

    configs = await chain(saver, [{"c": n} for n in range(4)])
    await holds(3)
    await put(other, configs[0], cp({"c": "fork"}, versions={"c": "5"}))
    found = await holds("fork")
    version = {"c": found.checkpoint["channel_versions"]["c"]}
    assert version["c"] == "5"
    await put(saver, found.config, cp({"c": "on"}, versions={"c": "6"}))
    await holds("on")
    run = {"source": "loop", "step": 9, "run_id": "r"}
    found = await saver.get_tuple(at())
    await put(saver, found.config, cp({"c": "undone"}, versions={"c": "7"}), run)
    await holds("undone")
    await saver.delete_for_runs(["r"])
    await holds("on")
    await numbers(saver, (await saver.get_tuple(at())).config, 10, 12)
    await holds(11)
    await saver.copy_thread("t", "copy")
    await holds(11, "copy")
    await saver.prune(["t"])
    await numbers(other, (await holds(11)).config, 12, 14)
    await holds(13)
    await saver.delete_thread("t")
    assert await other.get_tuple(at()) is None
    await numbers(other, at(), 20, 21)
    await holds(20)


async def test_forks_that_race_all_count(keyed: Store) -> None:
    """Each becomes the head once; whoever is last stays it, for every reader."""
    savers = [keyed.saver() for _ in range(4)]
    base = (await chain(savers[0], [{"c": 0}]))[0]
    made = [put(savers[n % 4], base, cp({"c": n}, versions={"c": f"1.{n}"})) for n in range(1, 13)]
    done = await asyncio.gather(*made)
    found = await keyed.saver().get_tuple(at())
    assert values_of(found)["c"] in range(1, 13)
    assert {id_of(c) for c in done} < set(ids_of(await keyed.saver().list(at())))
    await numbers(savers[0], found.config, 20, 23)
    for each in (*savers, keyed.saver()):
        assert values_of(await each.get_tuple(at())) == {"c": 22}


async def test_readers_beside_writers_see_no_rollback(keyed: Store) -> None:
    """A head may move between the answers of the two tiers."""
    writer, readers = keyed.saver(), [keyed.saver() for _ in range(3)]
    config = await put(writer, at(), cp({"c": 0}, versions={"c": "000"}))
    done = asyncio.Event()
    seen: list[int] = []

    async def read(reader: Any) -> None:
        while not done.is_set():
            seen.append(values_of(await reader.get_tuple(at()))["c"])

    reading = [asyncio.create_task(read(reader)) for reader in readers]
    await numbers(writer, config, 1, 40)
    done.set()
    await asyncio.gather(*reading)
    assert set(seen) <= set(range(40))


async def test_without_redis_only_what_is_signed_counts(postgres_url: str) -> None:
    """A row that was once right is served: nobody has seen a newer one. (See the documentation.)"""
    saver = DurableSaver(postgres_url, integrity_key=b"k" * 32)
    config = saver.put(at(), cp({"c": 1}), {}, {"c": "1"})  # type: ignore[arg-type]
    backup = Snapshot(postgres_url)
    saver.put(config, cp({"c": 2}, versions={"c": "2"}), {}, {"c": "2"})
    backup.restore()
    assert values_of(saver.get_tuple(at())) == {"c": 1}  # type: ignore[arg-type]


async def test_a_witness_that_cannot_be_told_keeps_the_thread(
    postgres_url: str, make_valkey: MakeValkey
) -> None:
    """What is deleted must not be contradicted later."""
    valkey = make_valkey()
    saver = DurableSaver(postgres_url, valkey.url, integrity_key=b"k" * 32)
    saver.put(at(), cp({"c": 1}), {}, {"c": "1"})  # type: ignore[arg-type]
    valkey.kill()
    with pytest.raises(UnavailableError):
        saver.delete_thread("t")
    assert values_of(saver.get_tuple(at())) == {"c": 1}  # type: ignore[arg-type]


# -- anchors -----------------------------------------------------------------------------------


async def test_both_tiers_set_back_together_are_told_by_an_anchor(keyed: Store) -> None:
    """Which was kept outside; also once the thread has gone on beyond it."""
    saver = keyed.saver()
    first = await chain(saver, [{"c": 1}, {"c": 2}])
    await flushed(keyed, saver)
    backup = Snapshot(keyed.postgres_url)
    early = await saver.export_head("t")
    await numbers(saver, first[-1], 3, 5)
    late = await saver.export_head("t")
    assert [await keyed.saver().check_head(anchor) for anchor in (early, late)] == [2, 0]
    await flushed(keyed, saver)
    backup.restore()
    keyed.flush_redis()
    fresh = keyed.saver()
    assert values_of(await fresh.get_tuple(at())) == {"c": 2}
    assert await fresh.check_head(early) == 0
    with pytest.raises(HeadMovedError):
        await fresh.check_head(late)
    await numbers(fresh, (await fresh.get_tuple(at())).config, 7, 12)
    assert await fresh.check_head(early) == 5
    with pytest.raises(HeadMovedError):
        await keyed.saver().check_head(late)


async def test_an_anchor_holds_over_forks_and_prunes(keyed: Store) -> None:
    """What was seen is there, beside the head or before it, or was pruned."""
    saver = keyed.saver()
    configs = await chain(saver, [{"c": n} for n in range(4)])
    anchor = await saver.export_head("t")
    await put(saver, configs[0], cp({"c": "fork"}, versions={"c": "9"}))
    assert await saver.check_head(anchor) == 1
    await saver.prune(["t"])
    assert await keyed.saver().check_head(anchor) == 1
    await saver.delete_thread("t")
    with pytest.raises(HeadMovedError, match="it has no head") as error:
        await keyed.saver().check_head(anchor)
    assert "deleted" in str(error.value)
    assert "accept_rollback" not in str(error.value)


async def test_an_anchor_of_before_a_rekey_says_so(through: Store) -> None:
    """By both keys, and by one who was given the new one only; another does for it."""
    old, new = b"o" * 32, b"n" * 32
    (option,) = through.options.keys() & {"integrity_key", "encryption_key"}
    saver = through.saver(**{option: old})
    await chain(saver, [{"c": 1}, {"c": 2}])
    anchor = await saver.export_head("t")
    both = through.saver(**{option: [new, old]})
    await both.rekey(**({"renew": True} if option == "encryption_key" else {}))
    with pytest.raises(HeadMovedError, match=r"another key since .*: export it again") as error:
        await both.check_head(anchor)
    assert "accept_rollback" not in str(error.value)
    assert await both.check_head(await both.export_head("t")) == 0
    if option == "integrity_key":
        with pytest.raises(KeyMissingError, match=r"exported head .*export it again"):
            await through.saver(integrity_key=new).check_head(anchor)


async def test_an_anchor_of_a_subgraph_or_a_tenant_is_its_own(through: Store) -> None:
    saver = through.saver()
    config = {"configurable": {"thread_id": "t", "tenant_id": "acme", "checkpoint_ns": "sub:1"}}
    await put(saver, config, cp({"c": 1}))
    anchor = await saver.export_head("t", tenant_id="acme", checkpoint_ns="sub:1")
    said = json.loads(anchor)
    assert (said["tenant"], said["thread"], said["namespace"]) == ("acme", "t", "sub:1")
    assert await through.saver().check_head(anchor) == 0
    with pytest.raises(UsageError, match="no head"):
        await saver.export_head("t")


@pytest.mark.parametrize("change", ["count", "checkpoint", "digest", "thread", "seal", "version"])
async def test_an_anchor_that_was_changed_is_refused(through: Store, change: str) -> None:
    saver = through.saver()
    await chain(saver, [{"c": 1}])
    said = json.loads(await saver.export_head("t"))
    if change == "version":
        with pytest.raises(UsageError):
            await saver.check_head("{}")
        return
    said[change] = 7 if change == "count" else "00" * 20
    if change == "count":  # it stands in what is signed as well
        said["seal"] = (b"%016d" % 7).hex() + said["seal"][32:]
    with pytest.raises(UsageError, match="was changed"):
        await saver.check_head(json.dumps(said))


async def test_without_a_key_there_is_nothing_to_export(hot_store: Store) -> None:
    saver = hot_store.saver()
    await chain(saver, [{"c": 1}])
    with pytest.raises(UsageError, match="integrity_key"):
        await saver.export_head("t")


def test_the_commands_export_check_and_accept(
    postgres_url: str, redis_url: str, tmp_path: Path
) -> None:
    """Exit code 4 tells that a head was moved."""
    key = b"k" * 32
    saver = DurableSaver(postgres_url, redis_url, integrity_key=key)
    config = saver.put(at(), cp({"c": 1}), {}, {"c": "1"})  # type: ignore[arg-type]
    backup = Snapshot(postgres_url)
    saver.put(config, cp({"c": 2}, versions={"c": "2"}), {}, {"c": "2"})
    env = {
        **os.environ,
        "DURABLE_STATE_POSTGRES": postgres_url,
        "DURABLE_STATE_REDIS": redis_url,
        "DURABLE_STATE_INTEGRITY_KEY": key.hex(),
    }

    def told(*asked: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "langgraph_durable_state.cli", *asked]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    code, anchor = told("export-head", "t")
    assert code == 0
    (tmp_path / "anchor").write_text(anchor)
    assert told("check-head", str(tmp_path / "anchor")) == (0, "t: 0 moves since\n")
    backup.restore()
    code, said = told("check-head", str(tmp_path / "anchor"))
    assert (code, "was seen as head" in said) == (4, True)
    with pytest.raises(HeadMovedError):
        saver.get_tuple(at())  # type: ignore[arg-type]
    assert told("accept-rollback", "t") == (0, "accepted for 1 namespaces\n")
    assert values_of(saver.get_tuple(at())) == {"c": 1}  # type: ignore[arg-type]
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM durable_state.head").fetchall() == [(1,)]
