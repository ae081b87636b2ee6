"""Damage to what Redis holds before Postgres does."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from langgraph_durable_state import StateLostError, UnavailableError
from langgraph_durable_state.decisions import keys
from tests.cases import at, id_of, ids_of, query, until, values_of
from tests.integration.outages import BEHINDS, QUEUE, Pair, Turn, each, in_spell, step, unmarked
from tests.integration.test_recovery import Heard


def hot_key(what: str = "") -> str:
    return keys.hot_key("durable_state", keys.place_of(at()), what)


def spoil_copy(pair: Pair) -> None:
    """A byte of the hot head's record."""
    with redis.Redis.from_url(pair.redis.url) as client:
        record: Any = client.hget(hot_key(), "record")
        client.hset(hot_key(), "record", record[:-5] + bytes((record[-5] ^ 90,)) + record[-4:])


def spoil_entry(pair: Pair, index: int, instead: Any = None) -> Any:
    """An entry of the outbox, behind what its script wrote; the entry before."""
    name = pair._key("t", "")
    with redis.Redis.from_url(pair.redis.url) as client:
        entry: Any = client.lindex(name, index)
        client.lset(name, index, instead or entry[:70] + b"\xc1" + entry[71:])
        return entry


@each(BEHINDS)
async def test_a_damaged_hot_head_is_read_as_it_waits_to_be_flushed(
    pair: Pair, policy: dict[str, Any]
) -> None:
    saver = pair.saver(policy)
    _, second = await in_spell(pair, saver)
    spoil_copy(pair)
    heard = Heard()
    reader = pair.saver(policy, **heard.options)
    report = await reader.recover(at())
    assert (report.decision, report.asked, report.tier) == ("repair", id_of(second), "postgres")
    assert pair.waiting() == 1
    found = await reader.get_tuple(at())
    assert (id_of(found.config), values_of(found)) == (id_of(second), {"c": 2})
    assert heard.kinds == ["damaged"]
    third = await Turn(reader, found).step(3)
    await reader.flush()
    assert pair.stored()[-1] == id_of(third)


@each(BEHINDS)
async def test_a_sound_hot_head_is_served_though_its_outbox_is_damaged(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """Which is told by the report."""
    saver = pair.saver(policy)
    _, second = await in_spell(pair, saver)
    sound = spoil_entry(pair, 0)
    reader = pair.saver(policy)
    assert id_of((await reader.get_tuple(at())).config) == id_of(second)
    report = await reader.recover(at())
    assert (report.decision, report.tier) == ("resume", "redis")
    assert [one.what for one in report.damage] == ["outbox"]
    spoil_entry(pair, 0, sound)  # or nobody could close


@each(BEHINDS)
async def test_what_redis_alone_held_and_is_damaged_there_is_lost(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """It is reported until that is accepted; then the thread goes on from the durable head."""
    saver = pair.saver(policy)
    first, second = await in_spell(pair, saver)
    spoil_copy(pair)
    spoil_entry(pair, 0)
    reader = pair.saver(policy)
    report = await reader.recover(at())
    assert (report.decision, report.checkpoint) == ("refuse", None)
    for _ in range(2):
        with pytest.raises(StateLostError) as error:
            await reader.get_tuple(at())
        assert error.value.last_durable == id_of(first)
    heard = Heard()
    other = pair.saver(policy, **heard.options)
    assert await other.accept_loss("t") == [""]
    assert heard.kinds == ["state_lost"]
    found = await other.get_tuple(at())
    assert id_of(found.config) == id_of(first)
    pair.release()
    third = await Turn(other, found).step(3)
    await other.flush()
    assert pair.stored() == [id_of(first), id_of(third)]
    assert ids_of(await reader.list(at())) == [id_of(third), id_of(first)]
    assert await other.accept_loss("t") == []
    assert id_of(second) not in pair.stored()


@each(BEHINDS)
async def test_what_can_be_read_before_the_damage_is_flushed(
    pair: Pair, policy: dict[str, Any]
) -> None:
    saver = pair.saver(policy)
    configs = await in_spell(pair, saver, held=3)
    spoil_copy(pair)
    spoil_entry(pair, 2)
    heard = Heard()
    reader = pair.saver(policy, on_hot_lost="accept", **heard.options)
    report = await reader.recover(at())
    assert report.decision == "resume"
    found = await reader.get_tuple(at())
    assert id_of(found.config) == id_of(configs[2])
    assert "state_lost" in heard.kinds
    pair.release()
    last = await Turn(reader, found).step(9)
    assert (await reader.get_tuple(at())).metadata["durable_state_degraded"] == "hot_lost"
    await reader.flush()
    assert pair.stored() == [*map(id_of, configs[:3]), id_of(last)]


async def test_a_damaged_copy_is_not_served_while_postgres_is_down(pair: Pair) -> None:
    """Nor anything else."""
    saver = pair.saver(QUEUE)
    await step(saver, at(), 1)
    pair.postgres.kill()
    spoil_copy(pair)
    reader = pair.saver(QUEUE, auto_setup=False)
    with pytest.raises(UnavailableError) as error:
        await reader.get_tuple(at())
    assert error.value.tier == "postgres"
    report = await reader.recover(at())
    assert (report.decision, report.checkpoint) == ("refuse", None)


async def test_what_is_not_verified_is_stale(pair: Pair) -> None:
    """A hot head while Postgres cannot be asked: the report and the hook say so."""
    saver = pair.saver(QUEUE)
    first = await step(saver, at(), 1)
    pair.postgres.kill()
    heard = Heard()
    reader = pair.saver(QUEUE, auto_setup=False, **heard.options)
    found = await reader.get_tuple(at())
    assert found.metadata["durable_state_unverified"] is True
    assert [(one.decision, one.checkpoint) for one in heard.reports] == [
        ("resume_stale", id_of(first))
    ]
    assert (await reader.recover(at())).decision == "resume_stale"


@each(BEHINDS)
async def test_a_fork_ends_the_spell_first(pair: Pair, policy: dict[str, Any]) -> None:
    saver = pair.saver(policy)
    first, second = await in_spell(pair, saver)
    pair.release()
    report = await saver.recover(at())
    assert report.last_sound == id_of(second)
    assert await saver.fork_from(report) == at()
    await until(lambda: unmarked(pair))
    assert pair.stored() == [id_of(first), id_of(second)]


# -- pending writes --------------------------------------------------------------------------


def spoil_hot_writes(pair: Pair, task: str) -> None:
    """What Redis has of a task's writes."""
    with redis.Redis.from_url(pair.redis.url) as client:
        held: Any = client.hgetall(hot_key(":writes"))
        for name, data in held.items():
            if task.encode() in name:
                client.hset(hot_key(":writes"), name, data[:-3])


@each(BEHINDS)
async def test_a_damaged_hot_write_is_left_out(pair: Pair, policy: dict[str, Any]) -> None:
    """As one in Postgres is; the others, and the hot head, are served."""
    saver = pair.saver(policy)
    _, second = await in_spell(pair, saver)
    await saver.put_writes(second, [("c", 5)], "good")
    await saver.put_writes(second, [("c", 6)], "bad")
    spoil_hot_writes(pair, "bad")
    reader = pair.saver(policy)
    report = await reader.recover(at())
    assert (report.decision, report.checkpoint, report.tier) == (
        "fall_back",
        id_of(second),
        "redis",
    )
    assert [(one.what, one.task) for one in report.damage] == [("write", "bad")]
    found = await reader.get_tuple(at())
    assert found.pending_writes == [("good", "c", 5)]
    assert found.metadata["durable_state_fell_back"] == id_of(second)
    third = await Turn(reader, found).step(3)
    pair.release()
    await reader.flush()
    assert pair.stored()[-1] == id_of(third)


@each(BEHINDS)
async def test_a_damaged_hot_write_is_taken_from_postgres_once_it_is_flushed(
    pair: Pair, policy: dict[str, Any]
) -> None:
    saver = pair.saver(policy)
    first = await step(saver, at(), 1)
    await saver.put_writes(first, [("c", 6)], "bad")
    await saver.flush()
    spoil_hot_writes(pair, "bad")
    found = await pair.saver(policy).get_tuple(at())
    assert found.pending_writes == [("bad", "c", 6)]
    assert "durable_state_fell_back" not in found.metadata


async def test_what_is_put_on_a_write_that_redis_alone_has_right_is_stored(pair: Pair) -> None:
    """It was made from that write, which Postgres has not got under its digest."""
    saver = pair.saver(QUEUE)
    first = await step(saver, at(), 1)
    await saver.put_writes(first, [("c", 6)], "bad")
    spoil = "UPDATE durable_state.write SET digest = decode(repeat('00', 16), 'hex')"
    query(pair.postgres.url, spoil)
    reader = pair.saver(QUEUE)
    found = await reader.get_tuple(at())
    assert found.pending_writes == [("bad", "c", 6)]
    second = await Turn(reader, found).step(2)
    assert pair.stored() == [id_of(first), id_of(second)]
