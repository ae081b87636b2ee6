"""Verify and repair where digests are MACs, rows are encrypted and heads are signed."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.cases import Store, at, cp, put, values_of
from tests.integration.damage import harm, key_of, keys, rows
from tests.integration.test_scrub import (
    IN_POSTGRES,
    QUEUE,
    each,
    hold,
    kept,
    outcomes,
    release,
    set_copy,
    step,
    story,
    text,
)

KEYS: dict[str, Any] = {
    "signed": {"integrity_key": b"k" * 32},
    "encrypted": {"encryption_key": b"m" * 32},
}

both = pytest.mark.parametrize("secret", KEYS.values(), ids=KEYS)

BEHIND = {"write_policy": "write_behind"}


async def told(store: Store, secret: dict[str, Any]) -> Any:
    """What a fresh reader of Postgres sees."""
    found = await store.saver(hot_reads="never", on_corrupt="raise", **secret).get_tuple(at())
    return values_of(found), found.pending_writes


@both
@pytest.mark.parametrize("policy", [QUEUE, BEHIND], ids=["queue", "behind"])
async def test_what_is_sound_is_clean(
    hot_store: Store, secret: dict[str, Any], policy: dict[str, Any]
) -> None:
    """Also for a process that has read nothing yet, and knows no data key."""
    saver = hot_store.saver(**policy, **secret)
    await story(saver)
    assert await saver.verify()
    fresh = hot_store.saver(**secret)
    assert await fresh.verify()
    assert await fresh.verify(["t"])


@pytest.mark.long
@both
@each(IN_POSTGRES)
async def test_what_is_damaged_in_postgres_is_restored_from_redis(
    hot_store: Store, damage: tuple[str, str], secret: dict[str, Any]
) -> None:
    """Every row is as it was before, heads with their signatures."""
    kind, statement = damage
    saver = hot_store.saver(**QUEUE, **secret)
    await story(saver)
    seen, before, there = await told(hot_store, secret), rows(hot_store), keys(hot_store)
    harm(hot_store, statement)
    fresh = hot_store.saver(**QUEUE, **secret)
    assert outcomes(await fresh.verify()) == {("postgres", kind, "repairable")}
    mended = await fresh.verify(repair=True)
    assert outcomes(mended) == {("postgres", kind, "repaired")}
    if "integrity_key" in secret:  # sealed anew, the same bytes are others
        assert rows(hot_store) == before
    assert keys(hot_store) == there
    assert await fresh.verify()
    assert await told(hot_store, secret) == seen


async def test_what_filters_must_not_see_stays_out_of_their_sight(hot_store: Store) -> None:
    """Metadata that is encrypted is not taken for missing there, and not put there by a repair."""
    secret = {"encryption_key": b"m" * 32, "clear_metadata": ["team"]}
    saver = hot_store.saver(**secret)
    await put(saver, at(), cp({"c": 1}), {"source": "loop", "step": 1, "told": "x", "team": "a"})
    shown = [({"source": "loop", "step": 1, "team": "a"},)]
    assert await saver.verify()
    harm(hot_store, "UPDATE @checkpoint SET meta = meta - 'team'")
    assert outcomes(await saver.verify(repair=True)) == {("postgres", "metadata", "repaired")}
    assert hot_store.query("SELECT meta FROM durable_state.checkpoint") == shown


@both
async def test_a_head_that_was_moved_is_found(hot_store: Store, secret: dict[str, Any]) -> None:
    """It is a checkpoint as it was written, and not the one that was put last."""
    await story(hot_store.saver(**secret))
    harm(
        hot_store,
        "UPDATE @head SET (id, digest) = (SELECT id, digest FROM @checkpoint WHERE id = '2')",
    )
    found = await hot_store.saver(**secret).verify(repair=True)
    assert outcomes(found) == {("postgres", "head", "lost")}


@both
@pytest.mark.parametrize("seen", [True, False], ids=["seen by Redis", "forgotten"])
async def test_a_head_that_is_gone_is_put_back_signed(
    hot_store: Store, secret: dict[str, Any], seen: bool
) -> None:
    """So that it can be read, and the thread go on; whether Redis still tells which it was."""
    saver = hot_store.saver(**secret)
    await story(saver)
    harm(hot_store, "DELETE FROM @head")
    if not seen:
        forget(hot_store)
    fresh = hot_store.saver(**secret)
    assert outcomes(await fresh.verify()) == {("postgres", "head", "repairable")}
    assert outcomes(await fresh.verify(repair=True)) == {("postgres", "head", "repaired")}
    assert await fresh.verify()
    assert (await told(hot_store, secret))[0]["own"] == text("3")
    assert values_of(await step(fresh, "4", own=text("4")))["own"] == text("4")


@both
async def test_a_head_is_not_put_back_before_what_redis_has_seen(
    hot_store: Store, secret: dict[str, Any]
) -> None:
    """All newer rows were removed with it, and the copy is put back: it would be signed anew."""
    saver = hot_store.saver(**secret)
    await story(saver)
    stale = keys(hot_store)[key_of(hot_store, "")]
    await step(saver, "4", own=text("4"))
    set_copy(hot_store, stale)
    harm(hot_store, "DELETE FROM @checkpoint WHERE id = '4'")
    harm(hot_store, "DELETE FROM @head")
    for found in (await saver.verify(), await saver.verify(repair=True)):
        assert {outcome for *_, outcome in outcomes(found)} == {"lost"}
    assert hot_store.query("SELECT 1 FROM durable_state.head") == []


def forget(store: Store) -> None:
    """Redis knows no signed head any more."""
    with redis.Redis.from_url(store.redis_url) as client:
        names = list(client.scan_iter("*:witness"))
        assert names
        client.delete(*names)


@both
async def test_a_tier_that_was_set_back_is_found(hot_store: Store, secret: dict[str, Any]) -> None:
    """Head, signature, rows: all is as it was once; Redis has seen more."""
    saver = hot_store.saver(**secret)
    await story(saver)
    head = "(SELECT id, digest, seal FROM kept)"
    hot_store.query("CREATE TABLE kept AS SELECT * FROM durable_state.head")
    await step(saver, "4", own=text("4"))
    harm(hot_store, f"UPDATE @head SET (id, digest, seal) = {head}")
    hot_store.query("DELETE FROM durable_state.checkpoint WHERE id = '4'")
    found = await hot_store.saver(**secret).verify()
    assert outcomes(found) == {("postgres", "head", "lost")}


ANOTHER: dict[str, Any] = {
    "signed": {"integrity_key": b"o" * 32},
    "encrypted": {"encryption_key": b"o" * 32},
}


@pytest.mark.parametrize("how", KEYS)
@pytest.mark.parametrize("key", ["none", "another"])
@pytest.mark.parametrize("waits", [False, True], ids=["flushed", "waits"])
async def test_what_is_under_a_key_that_is_not_there_is_unread(
    hot_store: Store, how: str, key: str, waits: bool
) -> None:
    """Lost is what is gone. Nothing is touched in either tier, whatever was asked for."""
    saver = hot_store.saver(**(BEHIND if waits else QUEUE), **KEYS[how])
    if waits:
        hold(hot_store)
    await story(saver)
    before, there = rows(hot_store), keys(hot_store)
    reader = hot_store.saver(**(ANOTHER[how] if key == "another" else {}))
    for repair in (False, True):
        report = await reader.verify(repair=repair)
        assert {found.outcome for found in report.findings} == {"unread"}
        assert any("under the key" in found.reason for found in report.findings)
    found = {(tier, kind) for tier, kind, _ in outcomes(report)}
    everywhere = {("redis", "copy"), ("redis", "write")}
    durable = {("postgres", kind) for kind in ("checkpoint", "chunk", "write")}
    assert found == everywhere | ({("redis", "entry")} if waits else durable)
    assert (rows(hot_store), keys(hot_store), kept(hot_store)) == (before, there, [])
    if waits:
        release(hot_store)
    assert await saver.verify()


async def test_what_was_shredded_is_unread(hot_store: Store) -> None:
    """It was given up on purpose: nothing is lost."""
    saver = hot_store.saver(**QUEUE, **KEYS["encrypted"])
    of_user = {"configurable": at()["configurable"] | {"user_id": "u"}}
    config = await put(saver, of_user, cp({"c": text("c")}))
    await saver.put_writes(config, [("c", text("d"))], "task")
    await saver.shred("u")
    fresh = hot_store.saver(**KEYS["encrypted"])
    report = await fresh.verify(repair=True)
    assert {found.outcome for found in report.findings} == {"unread"}
    assert kept(hot_store) == []


async def test_a_chunk_that_says_by_accident_that_it_is_under_a_key_is_restored(
    hot_store: Store,
) -> None:
    """The other tier has it right, and its digest tells."""
    saver = hot_store.saver(**QUEUE, **KEYS["signed"])
    await story(saver)
    before = rows(hot_store)
    bad = "set_byte(data, 4, get_byte(data, 4) # 1)"
    one = "no = (SELECT max(no) FROM @chunk)"
    harm(hot_store, f"UPDATE @chunk SET data = {bad} WHERE {one}")
    assert outcomes(await saver.verify(repair=True)) == {("postgres", "chunk", "repaired")}
    assert rows(hot_store) == before
