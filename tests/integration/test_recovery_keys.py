"""A thread that goes on after damage, where its heads are signed and witnessed."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from langgraph_durable_state import HeadMovedError, UsageError
from tests.cases import Store, at, id_of, values_of
from tests.integration.test_recovery import (
    BEFORE,
    DAMAGE,
    HEAD,
    TABLE,
    advance,
    stored,
)

KEYS: dict[str, Any] = {
    "signed": {"integrity_key": b"k" * 32},
    "encrypted": {"encryption_key": b"m" * 32},
}

both = pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)


@both
async def test_a_run_goes_on_from_where_it_fell_back_to(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Its put is the next move of the head, which Redis has seen further on."""
    await stored(hot_store, hot_reads="never", **keys)
    hot_store.query(DAMAGE["a byte of the record"])
    saver = hot_store.saver(**keys)
    found = await saver.get_tuple(at())
    assert values_of(found) == BEFORE
    config = await advance(saver, found, {"n": 7})
    again = await hot_store.saver(**keys).get_tuple(at())
    assert (id_of(again.config), values_of(again)) == (id_of(config), {**BEFORE, "n": 7})


@both
async def test_the_last_sound_checkpoint_is_signed_as_head(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Who has the key has moved it back, and Redis no longer says otherwise."""
    configs = await stored(hot_store, hot_reads="never", **keys)
    saver = hot_store.saver(on_corrupt="raise", **keys)
    hot_store.query(DAMAGE["a byte of the record"])
    await saver.fork_from(await saver.recover(at()))
    found = await hot_store.saver(**keys).get_tuple(at())
    assert id_of(found.config) == id_of(configs[2])
    config = await advance(saver, await saver.get_tuple(at()), {"n": 7})
    assert id_of((await hot_store.saver(**keys).get_tuple(at())).config) == id_of(config)


@both
async def test_a_head_that_was_moved_is_no_damage_to_fall_back_from(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Somebody without the key set it back to what is sound: that is refused, not served."""
    configs = await stored(hot_store, hot_reads="never", **keys)
    hot_store.query(
        f"UPDATE {TABLE}.head SET (id, digest) = (SELECT id, digest FROM {TABLE}.checkpoint c"
        f" WHERE c.id = '{id_of(configs[1])}')"
    )
    with pytest.raises(HeadMovedError):
        await hot_store.saver(**keys).get_tuple(at())


# -- heads that were moved, or set back ------------------------------------------------------

TO_SECOND = (
    f"UPDATE {TABLE}.head SET (id, digest) = (SELECT id, digest FROM {TABLE}.checkpoint c"
    " ORDER BY c.seq OFFSET 1 LIMIT 1)"
)
"""By somebody without the key: it is not signed."""


async def set_back(store: Store, keys: dict[str, Any], newer: int = 2) -> list[Any]:
    """A thread whose head's row, signature included, is what it was some checkpoints ago; the
    configs of all."""
    saver = store.saver(hot_reads="never", **keys)
    configs = await stored(store, hot_reads="never", **keys)
    store.query(f"CREATE TABLE kept AS SELECT * FROM {TABLE}.head")
    for n in range(newer):
        configs.append(await advance(saver, await saver.get_tuple(at()), {"n": 10 + n}))
    store.query(
        f"UPDATE {TABLE}.head h SET (id, digest, seal) = (SELECT id, digest, seal FROM kept)"
    )
    return configs


async def refused(store: Store, keys: dict[str, Any]) -> Any:
    """The report of a saver whose reads raise; it changes nothing."""
    saver = store.saver(hot_reads="never", **keys)
    with pytest.raises(HeadMovedError) as met:
        await saver.get_tuple(at())
    before = everything_of(store)
    report = await store.saver(hot_reads="never", **keys).recover(at())
    assert everything_of(store) == before
    assert (report.decision, report.checkpoint) == ("refuse", None)
    assert report.error == f"HeadMovedError: {met.value}"
    return report


def everything_of(store: Store) -> Any:
    rows = [store.query(f"SELECT * FROM {TABLE}.{name}") for name in ("head", "event")]
    with redis.Redis.from_url(store.redis_url) as client:
        names: Any = client.keys()
        return rows, {name: client.dump(name) for name in names}


@both
async def test_a_head_that_was_set_back_is_refused_and_a_fork_brings_back_the_last(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Redis has seen it, and it is there still: the report says which it is."""
    configs = await set_back(hot_store, keys)
    report = await refused(hot_store, keys)
    assert (report.asked, report.last_sound) == (id_of(configs[3]), id_of(configs[5]))
    saver = hot_store.saver(**keys)
    await saver.fork_from(report)
    found = await hot_store.saver(**keys).get_tuple(at())
    assert values_of(found) == HEAD | {"n": 11}
    assert (await saver.recover(at())).decision == "resume"


@both
async def test_a_head_that_was_moved_is_refused_and_a_fork_brings_back_the_last(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    configs = await stored(hot_store, hot_reads="never", **keys)
    hot_store.query(TO_SECOND)
    report = await refused(hot_store, keys)
    assert (report.asked, report.last_sound) == (id_of(configs[1]), id_of(configs[3]))
    await hot_store.saver(**keys).fork_from(report)
    assert values_of(await hot_store.saver(**keys).get_tuple(at())) == HEAD


@both
async def test_without_what_was_last_a_fork_says_what_to_do(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Postgres was restored from a backup: that is accepted, or not, by its own name."""
    configs = await set_back(hot_store, keys, newer=1)
    hot_store.query(f"DELETE FROM {TABLE}.checkpoint WHERE id = '{id_of(configs[4])}'")
    report = await refused(hot_store, keys)
    assert (report.asked, report.last_sound) == (id_of(configs[3]), None)
    saver = hot_store.saver(**keys)
    with pytest.raises(UsageError, match="accept_rollback"):
        await saver.fork_from(report)
    await saver.accept_rollback("t")
    assert (await saver.recover(at())).decision == "resume"


@both
async def test_a_thread_that_was_removed_is_no_fresh_start(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    await stored(hot_store, hot_reads="never", **keys)
    for table in ("head", "checkpoint", "chunk", "thread"):
        hot_store.query(f"DELETE FROM {TABLE}.{table}")
    report = await refused(hot_store, keys)
    assert (report.asked, report.last_sound) == (None, None)


@both
async def test_damage_hides_no_head_that_was_set_back(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """What is right in the other tier is not the head that was put last either."""
    await set_back(hot_store, keys)
    hot_store.query(f"DELETE FROM {TABLE}.head")
    hot_store.query(f"INSERT INTO {TABLE}.head SELECT * FROM kept")
    hot_store.query(DAMAGE["its digest"])
    await refused(hot_store, keys)


@both
async def test_a_head_that_was_set_back_is_not_exported(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    await set_back(hot_store, keys)
    with pytest.raises(HeadMovedError):
        await hot_store.saver(**keys).export_head("t")


@both
async def test_a_head_that_redis_has_right_is_restored_signature_and_all(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """By a process that has read nothing yet; the signed head is as it was."""
    configs = await stored(hot_store, **keys)
    heads = hot_store.query(f"SELECT * FROM {TABLE}.head")
    hot_store.query(DAMAGE["a byte of the record"])
    saver = hot_store.saver(hot_reads="never", **keys)
    assert values_of(await saver.get_tuple(at())) == HEAD
    assert hot_store.query(f"SELECT * FROM {TABLE}.head") == heads
    hot_store.flush_redis()
    found = await hot_store.saver(on_corrupt="raise", **keys).get_tuple(at())
    assert (id_of(found.config), values_of(found)) == (id_of(configs[3]), HEAD)
