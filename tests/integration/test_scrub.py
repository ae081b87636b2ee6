"""Damage of every kind in each tier: found, restored from the other, and nothing else touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import redis

from langgraph_durable_state import DurableSaver, UnavailableError, UsageError
from langgraph_durable_state.decisions import outgoing
from langgraph_durable_state.decisions.keys import hot_key, named, outbox_key
from langgraph_durable_state.verification import VerifyProgress, VerifyReport
from langgraph_durable_state.words import Place, Put, PutWrites
from tests.cases import Store, at, close_anyway, cp, put, values_of
from tests.contract.superstep import superstep
from tests.integration.damage import (
    flip,
    flipped,
    harm,
    harm_field,
    key_of,
    keys,
    rows,
)
from tests.servers import ValkeyCluster

QUEUE = {"when_durable_down": "queue"}
"""Redis has the head and its pending writes, so that it can serve them while Postgres is down."""

HEAD = "(SELECT id FROM @head)"
OWN_CHUNK = (
    "no = (SELECT max(n) FROM @checkpoint c, unnest(durable_state.numbers(c.chunks)) n"
    f" WHERE c.id = {HEAD})"
)

PENDING = f"id = {HEAD}"

IN_POSTGRES: dict[str, tuple[str, str]] = {
    "a byte of a chunk": ("chunk", f"UPDATE @chunk SET {flipped('data')} WHERE {OWN_CHUNK}"),
    "how many items a chunk has": (
        "chunk",
        f"UPDATE @chunk SET data = set_byte(data, 2, 7) WHERE {OWN_CHUNK}",
    ),
    "the digest of a chunk": ("chunk", f"UPDATE @chunk SET {flipped('digest')} WHERE {OWN_CHUNK}"),
    "a chunk": ("chunk", f"DELETE FROM @chunk WHERE {OWN_CHUNK}"),
    "a byte of a record": (
        "checkpoint",
        f"UPDATE @checkpoint SET {flipped('record')} WHERE id = {HEAD}",
    ),
    "the digest of a record": (
        "checkpoint",
        f"UPDATE @checkpoint SET {flipped('digest')} WHERE id = {HEAD}",
    ),
    "the parent of a record": (
        "checkpoint",
        f"UPDATE @checkpoint SET parent = '1' WHERE id = {HEAD}",
    ),
    "the chunks that a record names": (
        "checkpoint",
        f"UPDATE @checkpoint SET {flipped('chunks')} WHERE id = {HEAD}",
    ),
    "how a record names its chunks": (
        "checkpoint",
        f"UPDATE @checkpoint SET chunks = set_byte(chunks, 0, 200) WHERE id = {HEAD}",
    ),
    "a record": ("checkpoint", f"DELETE FROM @checkpoint WHERE id = {HEAD}"),
    "a record and its digest": (
        "checkpoint",
        f"UPDATE @checkpoint SET {flipped('record')}, {flipped('digest')} WHERE id = {HEAD}",
    ),
    "a record by an older one": (
        "checkpoint",
        "UPDATE @checkpoint c SET record = o.record, digest = o.digest, chunks = o.chunks,"
        f" parent = o.parent FROM @checkpoint o WHERE c.id = {HEAD} AND o.id = '1'",
    ),
    "a byte of a write": ("write", f"UPDATE @write SET {flipped('data')} WHERE {PENDING}"),
    "the digest of a write": ("write", f"UPDATE @write SET {flipped('digest')} WHERE {PENDING}"),
    "the path of a write": ("write", f"UPDATE @write SET path = 'elsewhere' WHERE {PENDING}"),
    "a write": ("write", f"DELETE FROM @write WHERE {PENDING}"),
    "the chunk of a write": (
        "chunk",
        "DELETE FROM @chunk WHERE no ="
        f" (SELECT (durable_state.numbers(chunks))[1] FROM @write WHERE {PENDING})",
    ),
    "the digest of a head": ("head", f"UPDATE @head SET {flipped('digest')}"),
    "what a head names": ("head", "UPDATE @head SET id = 'nothing'"),
    "a head": ("head", "DELETE FROM @head"),
}
"""What is damaged, and the kind of it; another row has it in Redis."""

PROVEN_ALONE: dict[str, tuple[str, str]] = {
    "the digest of a chunk": IN_POSTGRES["the digest of a chunk"],
    "the digest of a record": IN_POSTGRES["the digest of a record"],
    "the digest of an older record": (
        "checkpoint",
        f"UPDATE @checkpoint SET {flipped('digest')} WHERE id = '2'",
    ),
    "what a head names": IN_POSTGRES["what a head names"],
    "the metadata that filters look at": (
        "metadata",
        """UPDATE @checkpoint SET meta = '{"step": 7}' WHERE id = '2'""",
    ),
    "a key of that": ("metadata", "UPDATE @checkpoint SET meta = meta - 'step' WHERE id = '2'"),
}
"""What the rest of Postgres proves without Redis."""

LOST: dict[str, tuple[str, str]] = {
    name: what for name, what in IN_POSTGRES.items() if name not in {*PROVEN_ALONE, "a write"}
} | {
    "how many items a chunk has": (
        "checkpoint",  # whose digest covers it
        IN_POSTGRES["how many items a chunk has"][1],
    ),
    "a write that was consumed": ("write", "DELETE FROM @write WHERE id = '2'"),
}
"""What nothing proves without Redis. That a pending write was there cannot even be known."""


def each(damage: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("damage", damage.values(), ids=damage)


def text(word: str) -> str:
    """A value that is a chunk of its own."""
    return f"{word} " * 300


async def step(saver: Any, id: str, **values: Any) -> Any:
    """One superstep on the thread `t`; its head."""
    before = await saver.get_tuple(at())
    await saver.put(*superstep(saver.target, before, id, values))
    return await saver.get_tuple(at())


async def story(saver: Any) -> None:
    """Three checkpoints, the last made from a write, and what waits for the next."""
    for id in "123":
        found = await step(
            saver, id, log=[text(word) for word in "123" if word <= id], own=text(id)
        )
        if id > "1":
            await saver.put_writes(found.config, [("log", [text(f"written {id}")])], "task")


async def told(store: Store) -> Any:
    """What a fresh reader of Postgres sees."""
    store.tier = "durable"
    found = await store.reader().get_tuple(at())
    return values_of(found), found.pending_writes


def outcomes(report: VerifyReport) -> set[tuple[str, str, str]]:
    return {(found.tier, found.kind, found.outcome) for found in report.findings}


@each(IN_POSTGRES)
async def test_what_is_damaged_in_postgres_is_restored_from_redis(
    hot_store: Store, damage: tuple[str, str]
) -> None:
    """Every row is as it was before, and what was found in its place is in quarantine."""
    kind, statement = damage
    hot_store.options = QUEUE
    saver = hot_store.saver()
    await story(saver)
    seen, before, there = await told(hot_store), rows(hot_store), keys(hot_store)
    assert await saver.verify()
    harm(hot_store, statement)
    harmed = rows(hot_store)
    found = await saver.verify()
    assert outcomes(found) == {("postgres", kind, "repairable")}
    assert rows(hot_store) == harmed
    mended = await saver.verify(repair=True)
    assert outcomes(mended) == {("postgres", kind, "repaired")}
    assert rows(hot_store) == before
    assert keys(hot_store) == there
    assert await saver.verify()
    assert await told(hot_store) == seen
    assert len(kept(hot_store)) == (0 if statement.startswith("DELETE") else 1)


def kept(store: Store) -> list[tuple[Any, ...]]:
    return store.query("SELECT tier, kind, ns, id, found FROM durable_state.quarantine")


@each(PROVEN_ALONE)
async def test_what_the_rest_of_postgres_proves_needs_no_redis(
    store: Store, damage: tuple[str, str]
) -> None:
    """A row's digest stands in what was made from it, and the metadata in the record."""
    kind, statement = damage
    saver = store.saver()
    await story(saver)
    store.flush_redis()
    before = rows(store)
    harm(store, statement)
    assert outcomes(await saver.verify()) == {("postgres", kind, "repairable")}
    assert outcomes(await saver.verify(repair=True)) == {("postgres", kind, "repaired")}
    assert rows(store) == before
    assert await saver.verify()


@each(LOST)
async def test_what_neither_tier_has_is_lost_and_nothing_is_touched(
    hot_store: Store, damage: tuple[str, str]
) -> None:
    """It is said each time, and stays for whoever wants to look at it."""
    kind, statement = damage
    saver = hot_store.saver()
    await story(saver)
    hot_store.flush_redis()
    harm(hot_store, statement)
    harmed = rows(hot_store)
    found = await saver.verify(repair=True)
    assert ("postgres", kind, "lost") in outcomes(found)
    assert {outcome for *_, outcome in outcomes(found)} == {"lost"}
    assert rows(hot_store) == harmed
    assert kept(hot_store) == []
    assert outcomes(await saver.verify()) == outcomes(found)


# -- Redis -----------------------------------------------------------------------------------


def own_chunk(store: Store) -> bytes:
    """The field of the newest chunk of the copy."""
    return max(name for name in keys(store)[key_of(store, "")] if len(name) == 9)


def pending(store: Store) -> bytes:
    """The field of the head's pending write."""
    (name,) = keys(store)[key_of(store, "writes")]
    return bytes(name)


IN_REDIS: dict[str, tuple[str, str, Any, bytes | None]] = {
    "the record of a copy": ("copy", "", b"record", None),
    "the chunks that a copy names": ("copy", "", b"numbers", None),
    "the digest of a copy": ("copy", "", b"digest", None),
    "the parent of a copy": ("copy", "", b"parent", b"1"),
    "the place of a copy in the order": ("copy", "", b"seq", b"x"),
    "a field of a copy": ("copy", "", b"record", b""),
    "a byte of a chunk": ("copy", "", own_chunk, None),
    "a chunk cut off": ("copy", "", own_chunk, b"x"),
    "a chunk": ("copy", "", own_chunk, b""),
    "a pending write": ("write", "writes", pending, None),
    "a pending write cut off": ("write", "writes", pending, b"x"),
}
"""The kind of what is damaged, and its field in the key that ends like this."""


@each(IN_REDIS)
async def test_what_is_damaged_in_redis_is_restored_from_postgres(
    hot_store: Store, damage: tuple[str, str, Any, bytes | None]
) -> None:
    """Every field is as it was before, and what was found in its place is in quarantine."""
    kind, ending, field, value = damage
    saver = hot_store.saver(**QUEUE)
    await story(saver)
    before, stored = keys(hot_store), rows(hot_store)
    name = field if isinstance(field, bytes) else field(hot_store)
    harm_field(hot_store, ending, name, value)
    harmed = keys(hot_store)
    assert outcomes(await saver.verify()) == {("redis", kind, "repairable")}
    assert keys(hot_store) == harmed
    assert outcomes(await saver.verify(repair=True)) == {("redis", kind, "repaired")}
    assert keys(hot_store) == before
    assert rows(hot_store) == stored
    assert await saver.verify()
    assert [row[:2] for row in kept(hot_store)] == [("redis", kind)]


@pytest.mark.parametrize("tiers", ["copy", "write"])
async def test_what_is_damaged_in_both_tiers_is_lost_and_nothing_else_is_touched(
    hot_store: Store, tiers: str
) -> None:
    """Though all else of the thread could be restored."""
    saver = hot_store.saver(**QUEUE)
    await story(saver)
    if tiers == "copy":
        harm(hot_store, f"UPDATE @checkpoint SET {flipped('record')} WHERE id = {HEAD}")
        harm_field(hot_store, "", b"record")
        expected = {("postgres", "checkpoint", "lost"), ("redis", "copy", "repairable")}
    else:
        harm(hot_store, f"UPDATE @write SET {flipped('data')} WHERE {PENDING}")
        harm_field(hot_store, "writes", pending(hot_store))
        expected = {("postgres", "write", "lost"), ("redis", "write", "lost")}
    harmed = rows(hot_store)
    assert outcomes(await saver.verify()) == expected
    await saver.verify(repair=True)
    assert rows(hot_store) == harmed


# -- outboxes --------------------------------------------------------------------------------


def chunk_of_put(put: Put) -> Put:
    bad = replace(put.chunks[-1], blob=flip(put.chunks[-1].blob))
    return replace(put, chunks=(*put.chunks[:-1], bad))


def row_of_writes(item: PutWrites) -> PutWrites:
    return replace(item, rows=(replace(item.rows[0], blob=flip(item.rows[0].blob)),))


def elsewhere(put: Put) -> Put:
    return replace(put, place=Place(named("", "other"), put.place.ns))


IN_OUTBOX: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "a chunk of the first put": (0, chunk_of_put),
    "a chunk of the head": (3, chunk_of_put),
    "the record of the head": (3, lambda put: replace(put, record=flip(put.record))),
    "the digest of the head": (3, lambda put: replace(put, digest=flip(put.digest))),
    "what filters look at": (1, lambda put: replace(put, metadata='{"step":7}')),
    "whose put it is": (1, elsewhere),
    "a pending write": (4, row_of_writes),
}
"""What is damaged, in which of five entries; the copy of the head and its writes are sound."""


def hold(store: Store) -> None:
    """Nobody flushes the thread: another has the lease, and is stuck."""
    with redis.Redis.from_url(store.redis_url) as client:
        client.set(outbox_key("durable_state", named("", "t").key, ":lease"), "another")


def release(store: Store) -> None:
    with redis.Redis.from_url(store.redis_url) as client:
        client.delete(outbox_key("durable_state", named("", "t").key, ":lease"))


def harm_entry(store: Store, at: int, change: Callable[[Any], Any]) -> None:
    """Changes one entry of the outbox behind the saver's back."""
    have = keys(store)[key_of(store, "outbox")][at]
    bad = outgoing.repacked(have, change(outgoing.read_entry(have).item))
    assert bad != have
    set_entry(store, at, bad)


def set_entry(store: Store, at: int, entry: bytes) -> None:
    with redis.Redis.from_url(store.redis_url) as client:
        client.lset(key_of(store, "outbox"), at, entry)  # type: ignore[arg-type]


async def behind(store: Store) -> Any:
    """A saver that has written the story to Redis alone."""
    hold(store)
    store.options = {"write_policy": "write_behind"}
    saver = store.saver()
    await story(saver)
    assert len(keys(store)[key_of(store, "outbox")]) == 5
    return saver


@each(IN_OUTBOX)
async def test_what_is_damaged_in_an_outbox_is_restored_from_the_copy(
    hot_store: Store, damage: tuple[int, Callable[[Any], Any]]
) -> None:
    """Before it is flushed, and all of it is as it was; then it is flushed."""
    saver = await behind(hot_store)
    before = keys(hot_store)
    assert await saver.verify()
    harm_entry(hot_store, *damage)
    harmed = keys(hot_store)
    assert outcomes(await saver.verify()) == {("redis", "entry", "repairable")}
    assert keys(hot_store) == harmed
    assert outcomes(await saver.verify(repair=True)) == {("redis", "entry", "repaired")}
    assert keys(hot_store) == before
    assert [row[:2] for row in kept(hot_store)] == [("redis", "entry")]
    release(hot_store)
    await saver.flush()
    assert await saver.verify()
    assert [found.checkpoint["id"] for found in await saver.list(at())] == ["3", "2", "1"]


async def test_an_entry_that_nothing_else_has_is_lost_and_not_touched(hot_store: Store) -> None:
    """An older put has its record nowhere else; bytes that cannot be read are nobody's."""
    saver = await behind(hot_store)
    whole = keys(hot_store)[key_of(hot_store, "outbox")]
    harm_entry(hot_store, 0, lambda put: replace(put, record=flip(put.record)))
    set_entry(hot_store, 1, b"h" + b"?" * 80)
    harmed = keys(hot_store)
    found = await saver.verify(repair=True)
    assert [(f.kind, f.outcome) for f in found.findings] == [("entry", "lost")] * 2
    assert keys(hot_store) == harmed
    for i, entry in enumerate(whole[:2]):
        set_entry(hot_store, i, entry)
    assert await saver.verify()
    release(hot_store)


async def test_an_outbox_that_cannot_be_read_at_all_is_told(hot_store: Store) -> None:
    """Though nobody knows whose it is: Postgres has nothing of that thread yet."""
    hold(hot_store)
    saver = hot_store.saver(write_policy="write_behind")
    await step(saver, "1", own=text("1"))
    whole = keys(hot_store)[key_of(hot_store, "outbox")]
    set_entry(hot_store, 0, whole[0][:70])
    assert hot_store.query("SELECT * FROM durable_state.thread") == []
    (finding,) = (await saver.verify(repair=True)).findings
    assert (finding.kind, finding.outcome, finding.thread) == ("entry", "lost", None)
    assert finding.key == named("", "t").key.hex
    set_entry(hot_store, 0, whole[0])
    assert (await saver.verify()).entries == 1
    release(hot_store)


@pytest.mark.parametrize("damage", ["record", "chunk"])
async def test_a_copy_that_is_ahead_is_restored_from_the_outbox(
    hot_store: Store, damage: str
) -> None:
    """Postgres does not have it yet."""
    saver = await behind(hot_store)
    before = keys(hot_store)
    harm_field(hot_store, "", b"record" if damage == "record" else own_chunk(hot_store))
    assert outcomes(await saver.verify(repair=True)) == {("redis", "copy", "repaired")}
    assert keys(hot_store) == before
    release(hot_store)


# -- threads ---------------------------------------------------------------------------------


THREAD = {
    "it is missing": "DELETE FROM @thread",
    "its names are others": "UPDATE @thread SET id = 'x'",
}


@each(THREAD)
async def test_the_entry_of_a_thread_is_restored_for_who_knows_its_name(
    hot_store: Store, damage: str
) -> None:
    """Its key is made from that. Without it, nothing can be proven."""
    saver = hot_store.saver()
    await story(saver)
    before = rows(hot_store)
    harm(hot_store, damage)
    for repair in (False, True):
        unknown = await saver.verify(repair=repair)
        assert outcomes(unknown) == {("postgres", "thread", "lost")}
        assert (unknown.findings[0].thread, unknown.checkpoints) == (None, 0)
    assert outcomes(await saver.verify(["t"])) == {("postgres", "thread", "repairable")}
    assert outcomes(await saver.verify(["t"], repair=True)) == {("postgres", "thread", "repaired")}
    assert rows(hot_store) == before
    assert await saver.verify()


async def test_the_outbox_knows_what_its_thread_is_called(hot_store: Store) -> None:
    saver = await behind(hot_store)
    await saver.flush()
    hold(hot_store)
    await step(saver, "4", own=text("4"))
    before = rows(hot_store)["thread"]
    harm(hot_store, "DELETE FROM @thread")
    assert outcomes(await saver.verify(repair=True)) == {("postgres", "thread", "repaired")}
    assert rows(hot_store)["thread"] == before
    release(hot_store)


async def test_what_is_lost_is_closed_by_going_on_without_it(hot_store: Store) -> None:
    """A head by a fork, what is older by a prune."""
    saver = hot_store.saver()
    await story(saver)
    hot_store.flush_redis()
    harm(hot_store, f"UPDATE @checkpoint SET {flipped('record')} WHERE id = '2'")
    harm(hot_store, "DELETE FROM @head")
    lost = {("postgres", "head", "lost"), ("postgres", "checkpoint", "lost")}
    assert outcomes(await saver.verify(repair=True)) == lost
    await saver.fork_from(await saver.recover(at()))
    lost.remove(("postgres", "head", "lost"))
    assert outcomes(await saver.verify(repair=True)) == lost
    await saver.prune(["t"])
    assert await saver.verify()


async def test_a_thread_that_only_redis_has_is_not_unknown(hot_store: Store) -> None:
    """Postgres has nothing of it yet."""
    hold(hot_store)
    saver = hot_store.saver(write_policy="write_behind")
    await step(saver, "1", own=text("1"))
    report = await saver.verify(["t", "u"])
    assert (report.threads, report.unknown, report.entries) == (1, ("u",), 1)
    assert not report
    release(hot_store)


async def test_only_the_threads_that_are_named_are_checked(hot_store: Store) -> None:
    """Of everybody, of a tenant, or some; of an unknown one it is said that there is nothing."""
    saver = hot_store.saver()
    await story(saver)
    for config in (at("u"), {"configurable": {**at("u")["configurable"], "tenant_id": "acme"}}):
        await put(saver, config, cp({"x": 1}, id="a"))
    assert await report_of(saver) == (3, 5)
    assert await report_of(saver, tenant_id="acme") == (1, 1)
    assert await report_of(saver, tenant_id="") == (2, 4)
    assert await report_of(saver, ["t"]) == (1, 3)
    assert await report_of(saver, ["u"], tenant_id="acme") == (1, 1)
    none = await saver.verify(["none"])
    assert (none.threads, none.unknown, bool(none)) == (0, ("none",), False)
    assert await report_of(saver, []) == (0, 0)
    with pytest.raises(UsageError, match="list of str"):
        await saver.verify("t")


async def report_of(saver: Any, *args: Any, **options: Any) -> tuple[int, int]:
    found = await saver.verify(*args, **options)
    assert found
    return found.threads, found.checkpoints


async def test_it_goes_on_behind_the_last_that_was_done(hot_store: Store) -> None:
    """Whoever is interrupted knows from the progress where that was."""
    saver = hot_store.saver()
    for id in "abcdef":
        await put(saver, at(id), cp({"x": id}, id="1"))
    hot_store.flush_redis()
    harm(hot_store, f"UPDATE @checkpoint SET {flipped('record')} WHERE tk = {KEY_OF.format('a')}")
    seen: list[VerifyProgress] = []

    def stop(now: VerifyProgress) -> None:
        seen.append(now)
        if now.threads == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await saver.target.averify(progress=stop)
    first = await saver.verify(after=seen[0].token)
    rest = await saver.verify(after=seen[1].token)
    whole = await saver.verify(progress=seen.append)
    assert (first.threads, rest.threads, whole.threads) == (5, 4, 6)
    assert len(whole.lost) == 1
    assert seen[-1].threads == 6
    assert seen[-1].findings == 1
    assert whole.token == rest.token == seen[-1].token
    shares = [now.share for now in seen[2:]]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1
    done = await saver.verify(after=whole.token)
    assert (done.threads, done.token) == (0, whole.token)
    some = await saver.verify(list("abc"), progress=seen.append)
    assert [now.share for now in seen[-3:]] == [1 / 3, 2 / 3, 1]
    assert (await saver.verify(list("abc"), after=some.token)).threads == 0
    with pytest.raises(UsageError, match="token"):
        await saver.verify(after="x")


KEY_OF = "(SELECT tk FROM @thread WHERE id = '{}')"


async def test_subgraphs_are_checked_as_well(hot_store: Store) -> None:
    """Each namespace has a head and a copy of its own."""
    hot_store.options = QUEUE
    saver = hot_store.saver()
    await story(saver)
    for ns in ("sub:1", "sub:2"):
        before = await put(saver, at(ns=ns), cp({"x": text(ns)}, id="a"))
        await put(saver, before, cp({"x": text(f"more {ns}")}, id="b"))
    found = await saver.verify()
    assert (found.threads, found.checkpoints, found.copies) == (1, 7, 3)
    stored = rows(hot_store)
    bad = f"UPDATE @checkpoint SET {flipped('record')} WHERE (ns, id) = ('sub:2', 'b')"
    harm(hot_store, bad)
    (finding,) = (await saver.verify(repair=True)).findings
    assert (finding.namespace, finding.checkpoint, finding.outcome) == ("sub:2", "b", "repaired")
    assert rows(hot_store) == stored


async def test_a_missing_ancestor_of_a_delta_channel_is_found(hot_store: Store) -> None:
    """What the head is made from was removed behind the saver's back."""
    saver = hot_store.saver()
    found = None
    for id in "123":
        meta = {"source": "loop", "step": 1, "counters_since_delta_snapshot": {"log": [1, 1]}}
        values = {"log": ["first"]} if id == "1" else {}
        dropped = () if id == "1" else ("log",)
        args = superstep(saver.target, found, id, values, dropped=dropped, metadata=meta)
        await saver.put(*args)
        found = await saver.get_tuple(at())
    assert await saver.verify()
    harm(hot_store, "DELETE FROM @checkpoint WHERE id = '2'")
    (finding,) = (await saver.verify()).findings
    assert (finding.kind, finding.checkpoint, finding.outcome) == ("checkpoint", "3", "lost")
    assert "ancestor 2" in finding.reason


async def test_what_is_in_quarantine_is_read_by_nobody_and_goes_with_the_thread(
    hot_store: Store,
) -> None:
    """Reads, listings, copies and prunes see what was restored, and leave what is kept."""
    hot_store.options = QUEUE
    saver = hot_store.saver()
    await story(saver)
    await put(saver, at("u"), cp({"x": text("u")}, id="a"))
    one = f"no = (SELECT min(no) FROM @chunk WHERE tk = {KEY_OF.format('t')})"
    harm(hot_store, f"UPDATE @chunk SET {flipped('data')} WHERE {one}")
    bad = hot_store.query("SELECT data FROM durable_state.chunk ORDER BY no LIMIT 1")
    assert outcomes(await saver.verify(repair=True)) == {("postgres", "chunk", "repaired")}
    ((tier, kind, ns, id, found),) = kept(hot_store)
    assert (tier, kind, ns, id) == ("postgres", "chunk", "", "")
    assert bytes.fromhex(found["blob"]) == bytes(bad[0][0])
    assert len(await saver.list(at())) == 3
    await saver.copy_thread("t", "copy")
    await saver.prune(["t"])
    assert await saver.verify()
    assert len(kept(hot_store)) == 1
    await saver.delete_thread("u")
    assert len(kept(hot_store)) == 1
    await saver.delete_thread("t")
    assert kept(hot_store) == []


async def test_a_copy_that_postgres_no_longer_has_becomes_that_of_the_head(
    hot_store: Store,
) -> None:
    """Nobody would be served an older one; without a head that is sound it is removed."""
    saver = hot_store.saver()
    await story(saver)
    stale = keys(hot_store)[key_of(hot_store, "")]
    await step(saver, "4", own=text("4"))
    await saver.prune(["t"])
    fresh = keys(hot_store)
    bad = {**stale, b"record": flip(stale[b"record"])}
    set_copy(hot_store, bad)
    assert outcomes(await saver.verify(repair=True)) == {("redis", "copy", "repaired")}
    assert keys(hot_store) == fresh
    set_copy(hot_store, bad)
    harm(hot_store, f"UPDATE @checkpoint SET {flipped('record')}")
    expected = {("redis", "copy", "repaired"), ("postgres", "checkpoint", "lost")}
    assert outcomes(await saver.verify(repair=True)) == expected
    assert keys(hot_store) == {}


OLDER_COPY = {
    "its row": "DELETE FROM @head",
    "what it names": "UPDATE @head SET id = 'nothing', digest = decode(md5('x'), 'hex')",
    "its checkpoint": "DELETE FROM @checkpoint WHERE id = '5'",
}
"""How a head is lost of which Redis has an older copy only."""


@pytest.mark.parametrize("statement", OLDER_COPY.values(), ids=OLDER_COPY)
async def test_a_copy_that_is_older_than_what_is_there_proves_no_head(
    hot_store: Store, statement: str
) -> None:
    """The head stays as it is, and the newest sound state is served."""
    saver = hot_store.saver()
    await story(saver)
    stale = keys(hot_store)[key_of(hot_store, "")]
    for id in "45":
        await step(saver, id, own=text(id))
    set_copy(hot_store, stale)
    harm(hot_store, statement)
    harmed = rows(hot_store)
    for found in (await saver.verify(), await saver.verify(repair=True)):
        assert {outcome for *_, outcome in outcomes(found)} == {"lost"}
    assert rows(hot_store) == harmed
    served = await hot_store.saver(hot_reads="never").get_tuple(at())
    newest = "4" if "checkpoint" in statement else "5"
    assert values_of(served)["own"] == text(newest)


def set_copy(store: Store, fields: dict[bytes, bytes]) -> None:
    with redis.Redis.from_url(store.redis_url) as client:
        client.delete(copy_key())
        client.hset(copy_key(), mapping=fields)  # type: ignore[arg-type]


def copy_key() -> str:
    return hot_key("durable_state", Place(named("", "t"), ""))


EVENTS: dict[str, tuple[str, list[int]]] = {
    "changed": ("UPDATE @event SET kind = 'forked' WHERE n = 2", [2]),
    "a digest": (f"UPDATE @event SET {flipped('digest')} WHERE n = 2", [2, 3]),
    "deleted": ("DELETE FROM @event WHERE n = 2", [3]),
    "the first deleted": ("DELETE FROM @event WHERE n = 1", [2]),
    "inserted behind": (
        "INSERT INTO @event SELECT tk, 4, at, kind, detail, digest FROM @event WHERE n = 3",
        [4],
    ),
    "inserted before": (
        "INSERT INTO @event SELECT tk, 0, at, kind, detail, digest FROM @event WHERE n = 3",
        [0, 1],
    ),
}


@each(EVENTS)
async def test_an_event_that_is_not_what_was_written_is_found(
    hot_store: Store, damage: tuple[str, list[int]]
) -> None:
    """Where the chain is broken is said, whether all threads are checked or one."""
    statement, expected = damage
    saver = hot_store.saver()
    config = await put(saver, at(), cp({"n": text("n")}, id="0"))
    for n in "123":  # each is served from the hot copy, and noted
        harm(hot_store, f"UPDATE @checkpoint SET {flipped('record')} WHERE id = '{int(n) - 1}'")
        await hot_store.saver(hot_reads="never").get_tuple(at())
        config = await put(saver, config, cp({"n": text(n)}, id=n))
    numbers = hot_store.query("SELECT n FROM durable_state.event ORDER BY n")
    assert numbers == [(1,), (2,), (3,)]
    assert not any(f.kind == "event" for f in (await saver.verify()).findings)
    harm(hot_store, statement)
    for threads in (None, ["t"]):
        found = [f for f in (await saver.verify(threads)).findings if f.kind == "event"]
        assert [(f.event, f.outcome, f.thread) for f in found] == [
            (n, "lost", "t") for n in expected
        ]
        assert all(f"event {f.event}" in str(f) for f in found)


async def test_a_dead_tier_is_an_outage_and_no_finding(hot_store: Store) -> None:
    """What cannot be seen is not damaged."""
    await story(hot_store.saver())
    for urls in (
        (hot_store.postgres_url, "redis://127.0.0.1:1"),
        ("postgresql://127.0.0.1:1/none", hot_store.redis_url),
    ):
        saver = DurableSaver(*urls, timeout=1.0)
        with pytest.raises(UnavailableError):
            await hot_store.face(saver).verify()
        await close_anyway(saver)


async def test_a_cluster_is_checked_and_restored_from(
    postgres_url: str, cluster: ValkeyCluster
) -> None:
    """All keys of a thread are in one slot; what waits in outboxes is found on every node."""
    options = {"write_policy": "write_behind", "redis_timeout": 10.0}
    async with DurableSaver(postgres_url, cluster.url, **options) as saver:
        for id in "abcdef":
            await saver.aput(*superstep(saver, None, "1", {"own": text(id)}, thread=id))
        await saver.aflush()
        found = await saver.averify()
        assert (found.clean, found.threads, found.copies) == (True, 6, 6), str(found)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            bad = f"UPDATE durable_state.checkpoint SET {flipped('record')}"
            assert connection.execute(bad.encode()).rowcount == 6
        mended = await saver.averify(repair=True)
        assert [found.outcome for found in mended.findings] == ["repaired"] * 6
        assert await saver.averify()
