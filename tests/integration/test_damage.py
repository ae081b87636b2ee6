"""Damage of what no digest covers by itself: told as damage, and by Redis alone not seen at all."""

from __future__ import annotations

import re

import pytest
import redis

from langgraph_durable_state import CorruptionError, StateLostError
from tests.cases import Store, at, chain, cp, id_of, put, values_of

BIG = {"c": "x" * 5_000}


@pytest.mark.parametrize("spoilt", [r"'\x01'", r"'\xff00'", r"chunks || '\x00'", "''"])
@pytest.mark.parametrize("table", ["checkpoint", "write"])
async def test_spoilt_chunk_numbers_are_damage(hot_store: Store, table: str, spoilt: str) -> None:
    """Of a checkpoint, and of a pending write."""
    saver = hot_store.saver(on_corrupt="raise")
    config = await put(saver, at(), cp(BIG))
    await saver.put_writes(config, [("c", "y" * 5_000)], "task")
    hot_store.query(f"UPDATE durable_state.{table} SET chunks = {spoilt}")
    hot_store.flush_redis()  # which would have it right
    reader = hot_store.saver(hot_reads="never", on_corrupt="raise")
    for reading in (reader.get_tuple(at()), reader.get_tuple(config), reader.list(at())):
        with pytest.raises(CorruptionError):
            await reading


async def test_a_checkpoint_that_lost_its_digest_is_damage(hot_store: Store) -> None:
    """By its id it is not taken for one that is not there."""
    config = (await chain(hot_store.saver(on_corrupt="raise"), [BIG, {"c": "y"}]))[0]
    hot_store.query("UPDATE durable_state.checkpoint SET digest = ''")
    with pytest.raises(CorruptionError, match="digest"):
        await hot_store.saver(on_corrupt="raise").get_tuple(config)


async def test_a_history_of_a_checkpoint_that_is_gone_is_not_empty(hot_store: Store) -> None:
    """Who asks has read the checkpoint, and would go on with an empty channel. Of a thread that is
    gone with all there is of it, it is."""
    saver = hot_store.saver(on_corrupt="raise")
    config = (await chain(saver, [BIG, {"c": "y"}]))[1]
    asked = {"config": config, "channels": ["c"]}
    hot_store.query(f"DELETE FROM durable_state.checkpoint WHERE id = '{id_of(config)}'")
    with pytest.raises(CorruptionError, match="not there"):
        await saver.get_delta_channel_history(**asked)
    await saver.delete_thread("t")
    assert await saver.get_delta_channel_history(**asked) == {"c": {"writes": []}}


@pytest.mark.parametrize("change", ["id = 'u'", r"id = '\xff'", "tenant = 'x'", r"tenant = '\xc3'"])
async def test_a_thread_whose_names_are_not_its_own_is_damage(
    hot_store: Store, change: str
) -> None:
    """Where it is read by its row; by its name it is found as before."""
    await put(hot_store.saver(on_corrupt="raise"), at(), cp(BIG))
    hot_store.query(f"UPDATE durable_state.thread SET {change}")
    reader = hot_store.saver(on_corrupt="raise")
    assert values_of(await reader.get_tuple(at())) == BIG
    if "tenant = 'x'" not in change and "tenant = '\\xc3'" not in change:
        with pytest.raises(CorruptionError, match="names"):
            await reader.list(None)


@pytest.mark.parametrize("field", ["id", "parent", "seq", "numbers", "record", "digest"])
@pytest.mark.parametrize("how", ["gone", "spoilt"])
async def test_a_hot_copy_with_a_damaged_field_is_not_used(
    hot_store: Store, field: str, how: str
) -> None:
    """Postgres is asked instead, and nobody sees a difference."""
    await chain(hot_store.saver(on_corrupt="raise"), [BIG, {"c": "z" * 5_000}])
    with redis.Redis.from_url(hot_store.redis_url) as client:
        (key,) = client.keys()  # type: ignore[misc]
        if how == "gone":
            client.hdel(key, field)
        else:
            client.hset(key, field, b"\xff\xfe")
    for _ in range(2):
        assert values_of(await hot_store.reader().get_tuple(at())) == {"c": "z" * 5_000}


@pytest.mark.parametrize("ends", [":writes", ":spell"])
async def test_damage_of_what_redis_alone_holds_is_damage(hot_store: Store, ends: str) -> None:
    """Each of its keys, with a byte that is nothing: an error of this library, and Postgres's
    older head is not taken for the current one."""
    await put(hot_store.saver(on_corrupt="raise"), at(), cp({"c": "durable"}))
    late = hot_store.open(write_policy="write_behind", on_corrupt="raise")
    late._faces.background.start = lambda: None  # type: ignore[method-assign]
    saver = hot_store.face(late)
    found = await saver.get_tuple(at())
    config = await put(saver, found.config, cp(BIG))
    await saver.put_writes(config, [("c", "y" * 5_000)], "task")
    with redis.Redis.from_url(hot_store.redis_url) as client:
        (key,) = (key for key in client.scan_iter() if key.decode().endswith(ends))  # type: ignore[union-attr]
        kept = client.dump(key)
        if ends == ":writes":
            client.hset(key, client.hkeys(key)[0], b"\xff" * 90)  # type: ignore[index]
        else:
            client.hset(key, "phase", b"\xff")
        with pytest.raises(CorruptionError, match=re.escape("'t'")):
            await saver.get_tuple(at())
        client.restore(key, 0, kept, replace=True)  # type: ignore[arg-type]
    assert values_of(await saver.get_tuple(at())) == BIG


async def test_an_entry_that_nobody_can_read_is_a_loss_until_it_is_accepted(
    hot_store: Store,
) -> None:
    """It does not even say what it was: it is set aside, and Postgres's older head is not taken for
    the current one before somebody says so."""
    await put(hot_store.saver(), at(), cp({"c": "durable"}))
    late = hot_store.open(write_policy="write_behind")
    late._faces.background.start = lambda: None  # type: ignore[method-assign]
    saver = hot_store.face(late)
    await put(saver, (await saver.get_tuple(at())).config, cp(BIG))
    with redis.Redis.from_url(hot_store.redis_url) as client:
        (key,) = (key for key in client.scan_iter() if key.endswith(b":outbox"))
        client.lset(key, 0, b"\xff" * 90)
    for call in (saver.flush(), saver.get_tuple(at())):
        with pytest.raises(StateLostError, match=re.escape("'t'")):
            await call
    kept = hot_store.query("SELECT kind, found FROM durable_state.quarantine")
    assert [kind for kind, _ in kept] == ["entry"]
    assert kept[0][1] == {"entry": "ff" * 90}
    await saver.accept_loss("t")
    assert values_of(await saver.get_tuple(at())) == {"c": "durable"}
