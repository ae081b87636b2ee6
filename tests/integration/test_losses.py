"""What Redis held alone and may have lost, and who flushes what a process leaves behind."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from langgraph_durable_state.errors import ConflictError, StateLostError, UnavailableError
from tests.cases import at, cp, id_of, ids_of, put, until, until_served, values_of
from tests.integration.outages import (
    BEHIND,
    BEHINDS,
    LOGGER,
    QUEUE,
    QUEUING,
    Pair,
    Turn,
    each,
    head,
    in_spell,
    marks,
    step,
    told,
    unmarked,
)

ROOT = Path(__file__).parents[2]


async def lost(call: Any, last_durable: str | None, left: str | None = None) -> None:
    """The call reports a loss in the thread `t`."""
    with pytest.raises(StateLostError) as error:
        await call
    facts = error.value
    assert (facts.thread, facts.namespace) == ("t", "")
    assert (facts.last_durable, facts.left) == (last_durable, left)
    assert not facts.retryable


# -- a Redis that lost it ---------------------------------------------------------------------


@each(BEHINDS)
async def test_what_an_emptied_redis_held_alone_is_reported_until_that_is_accepted(
    pair: Pair, policy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """By every read of it and put on it; afterwards the thread goes on from the durable head."""
    saver = pair.saver(policy)
    first, second = await in_spell(pair, saver)
    pair.empty_redis()
    for one in (saver, pair.saver(policy)):
        await lost(one.get_tuple(at()), id_of(first))
        await lost(one.get_tuple(second), id_of(first))
        await lost(step(one, first, 3), id_of(first))
        await lost(one.put_writes(first, [("c", 1)], "task"), id_of(first))
        assert values_of(await one.get_tuple(first)) == {"c": 1}
    other = pair.saver(policy)
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        assert await other.accept_loss("t") == [""]
    # By each of those who met it, and by the one who accepted it.
    assert [id_of(first) in line for line in told(caplog, "state_lost")] == [True, True, True]
    for reader in (saver, other, pair.saver(policy), pair.alone()):
        found = await head(reader)
        assert (id_of(found.config), marks(found)) == (id_of(first), {})
    assert await other.accept_loss("t") == []
    third = await Turn(saver, await head(saver)).step(3)
    await saver.flush()
    assert pair.stored() == [id_of(first), id_of(third)]


async def test_a_loss_before_anything_was_durable_is_no_empty_thread(pair: Pair) -> None:
    """Not until somebody accepts that the thread begins anew."""
    pair.hold()
    saver = pair.saver(BEHIND)
    await step(saver, at(), 1)
    pair.empty_redis()
    for one in (saver, pair.saver(BEHIND)):
        await lost(one.get_tuple(at()), None)
        await lost(step(one, at(), 2), None)
    assert await saver.accept_loss("t") == [""]
    assert await saver.get_tuple(at()) is None
    config = await step(saver, at(), 3)
    assert id_of((await head(pair.saver(BEHIND))).config) == id_of(config)


async def test_a_loss_may_be_accepted_beforehand_and_is_reported_all_the_same(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, not at every read; the next step of the run says so in its metadata."""
    first, _ = await in_spell(pair, pair.saver(BEHIND))
    pair.empty_redis()
    saver = pair.saver(BEHIND, on_hot_lost="accept")
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        found = await head(saver)
        assert id_of((await head(saver)).config) == id_of(first)
    assert [id_of(first) in line for line in told(caplog, "state_lost")] == [True]
    turn = Turn(saver, found)
    await turn.step(3)
    assert marks(await head(saver)) == {"degraded": "hot_lost"}
    await turn.step(4)
    assert marks(await head(saver)) == {}


async def test_accepting_a_loss_that_there_is_not_changes_nothing(pair: Pair) -> None:
    """Neither in a thread that is not flushed yet nor in one that is not there."""
    saver = pair.saver(BEHIND)
    _, second = await in_spell(pair, saver)
    assert await saver.accept_loss("t") == []
    assert await saver.accept_loss("unknown") == []
    assert id_of((await head(pair.saver(BEHIND))).config) == id_of(second)
    assert pair.waiting() == 1


# -- a Redis that was restarted, or restored --------------------------------------------------


@each(BEHINDS)
async def test_a_restart_within_a_spell_is_reported(
    lasting: Pair, policy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It may have lost the last of it; what is left is gone on with once that is accepted."""
    pair = lasting
    saver = pair.saver(policy)
    first, second = await in_spell(pair, saver)
    pair.redis.kill()
    pair.redis.start()
    fresh = pair.saver(policy)
    await lost(fresh.get_tuple(at()), id_of(first), left=id_of(second))
    await lost(step(fresh, first, 3), id_of(first), left=id_of(second))
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        assert await fresh.accept_loss("t") == [""]
    assert len(told(caplog, "state_lost")) == 2  # when it was met, and when it was accepted
    for reader in (fresh, pair.saver(policy)):
        found = await head(reader)
        assert (id_of(found.config), marks(found)) == (id_of(second), {})
    third = await Turn(fresh, await head(fresh)).step(3)
    await fresh.flush()
    assert pair.stored() == [id_of(c) for c in (first, second, third)]


async def test_with_wait_aof_a_killed_redis_loses_nothing_and_nothing_is_reported(
    lasting: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """What was acknowledged is on its disk."""
    pair = lasting
    options = BEHIND | {"wait_aof": (1, 0)}
    saver = pair.saver(options)
    configs = await in_spell(pair, saver, held=5)
    await saver.put_writes(configs[-1], [("c", "w")], "task")
    pair.redis.kill()
    pair.redis.start()
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        for reader in (pair.saver(options), saver):
            found = await until_served(lambda r=reader: head(r))
            assert (values_of(found), marks(found)) == ({"c": 6}, {})
            assert found.pending_writes == [("task", "c", "w")]
        configs.append(await Turn(saver, await head(saver)).step(7))
        await saver.flush()
    assert told(caplog, "state_lost") == told(caplog, "branch_kept") == []
    assert pair.stored() == [id_of(c) for c in configs]


async def test_a_queued_burst_that_a_restart_may_have_cut_short_is_reported(
    lasting: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Though Postgres could not be told of it; the thread goes on once that is accepted."""
    pair = lasting
    saver = pair.saver(QUEUE)
    first = await step(saver, at(), 1)
    turn = Turn(saver, await head(saver))
    pair.postgres.kill()
    pair.hold()
    second = await turn.step(2)
    pair.redis.kill()
    pair.redis.start()
    pair.hold()
    pair.postgres.start()
    fresh = pair.saver(QUEUE)
    reads = lambda: until_served(lambda: fresh.get_tuple(at()))  # noqa: E731
    await lost(reads(), id_of(first), left=id_of(second))
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        assert await fresh.accept_loss("t") == [""]
    assert len(told(caplog, "state_lost")) == 2  # when it was met, and when it was accepted
    assert id_of((await head(fresh)).config) == id_of(second)
    pair.release()
    await fresh.flush(everyone=True)
    assert pair.stored() == [id_of(first), id_of(second)]


async def test_a_redis_restored_from_within_an_ended_spell_is_not_believed(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """What its outbox says is in Postgres already; nothing is older, doubled or reported."""
    saver = pair.saver(BEHIND)
    first, second = await in_spell(pair, saver)
    snapshot = pair.redis.snapshot()
    pair.release()
    await until(lambda: unmarked(pair))
    pair.redis.restore(snapshot)
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        for reader in (pair.saver(BEHIND), saver):
            found = await until_served(lambda r=reader: head(r))
            assert (id_of(found.config), marks(found)) == (id_of(second), {})
        third = await Turn(saver, await head(saver)).step(3)
        pair.release()
        await saver.flush(everyone=True)
    assert told(caplog, "state_lost") == told(caplog, "branch_kept") == []
    assert pair.stored() == [id_of(c) for c in (first, second, third)]
    assert id_of((await head(pair.saver(BEHIND))).config) == id_of(third)


async def test_a_redis_restored_to_before_the_last_puts_of_a_spell_is_a_reported_loss(
    pair: Pair,
) -> None:
    """What it alone held since the snapshot is gone."""
    saver = pair.saver(BEHIND)
    first, second = await in_spell(pair, saver)
    snapshot = pair.redis.snapshot()
    await step(saver, second, 3)
    pair.redis.restore(snapshot)
    fresh = pair.saver(BEHIND)
    await lost(fresh.get_tuple(at()), id_of(first), left=id_of(second))
    assert await fresh.accept_loss("t") == [""]
    assert id_of((await head(fresh)).config) == id_of(second)


async def test_a_redis_restored_to_before_a_spell_is_a_reported_loss(pair: Pair) -> None:
    """It knows nothing of the spell that Postgres is marked with."""
    snapshot = pair.redis.snapshot()
    saver = pair.saver(BEHIND)
    first, _ = await in_spell(pair, saver)
    pair.redis.restore(snapshot)
    fresh = pair.saver(BEHIND)
    await lost(fresh.get_tuple(at()), id_of(first))
    # Or closing the first saver might report it as well: nobody holds the lease any more, so that
    # depends on whether its flush in the background has met the empty outbox before.
    assert await fresh.accept_loss("t") == [""]
    assert id_of((await head(fresh)).config) == id_of(first)


# -- the end of a run and of a process --------------------------------------------------------


def counting() -> Any:
    """A graph of two nodes that counts."""
    builder = StateGraph(dict)
    for name in ("one", "two"):
        builder.add_node(name, lambda s: {"n": s["n"] + 1})
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    return builder


@pytest.mark.parametrize("before", [False, True], ids=["new thread", "within a spell"])
async def test_a_run_that_exits_durably_leaves_nothing_unflushed(pair: Pair, before: bool) -> None:
    """Whoever holds the lease on flushing; a process without Redis sees all of it."""
    pair.hold()
    saver = pair.saver(BEHIND)
    face = pair.face
    graph = face(counting().compile(checkpointer=saver.target))
    if before:
        await graph.invoke({"n": 10}, at(), durability="sync")
        assert pair.waiting() > 0
    await graph.invoke({"n": 20}, at(), durability="exit")
    assert pair.waiting() == 0
    pair.release()
    alone = pair.alone()
    found = await until_served(lambda: head(alone))
    assert values_of(found)["__root__"] == {"n": 22}


@each(BEHINDS)
async def test_closing_leaves_nothing_to_redis(pair: Pair, policy: dict[str, Any]) -> None:
    """Redis may be emptied at once, and others need it no more."""
    saver = pair.saver(policy)
    configs = await in_spell(pair, saver, held=3)
    await step(saver, at("flushed"), 1)
    await saver.flush()
    await step(saver, configs[-1], 5)
    await saver.close()
    for reader in (pair.alone(), pair.saver(policy)):
        assert values_of(await head(reader)) == {"c": 5}
        assert values_of(await head(reader, "flushed")) == {"c": 1}
    pair.empty_redis()
    for reader in (pair.alone(), pair.saver(policy)):
        assert values_of(await head(reader)) == {"c": 5}
        assert values_of(await head(reader, "flushed")) == {"c": 1}


async def test_closing_disturbs_no_other_process_that_goes_on_with_the_thread(pair: Pair) -> None:
    """What comes in meanwhile is in its spell or in another one."""
    one, other = pair.saver(BEHIND), pair.saver(BEHIND)
    _, second = await in_spell(pair, one)
    turn = Turn(other, await head(other))
    await one.close()
    third = await turn.step(3)
    fourth = await turn.step(4)
    assert id_of((await head(pair.saver(BEHIND))).config) == id_of(fourth)
    await other.flush()
    assert pair.stored()[1:] == [id_of(c) for c in (second, third, fourth)]


LEAVER = textwrap.dedent(
    """
    import asyncio, os, sys
    from langgraph_durable_state import DurableSaver
    from tests.cases import at, cp

    face, postgres, redis, policy, durable_down, end = sys.argv[1:]
    options = {"write_policy": policy, "when_durable_down": durable_down}
    saver = DurableSaver(postgres, redis, timeout=1.0, redis_timeout=5.0, **options)
    what = ({"source": "loop"}, {"c": "1"})
    made = [cp({"c": "acknowledged"}) for _ in "ab"]

    async def natively():
        for name, one in zip("ab", made):
            config = await saver.aput(at(name), one, *what)
            await saver.aput_writes(config, [("c", "w")], "task")

    if face == "native":
        asyncio.run(natively())
    else:
        for name, one in zip("ab", made):
            saver.put_writes(saver.put(at(name), one, *what), [("c", "w")], "task")
    print(*[one["id"] for one in made], flush=True)
    if end == "dies":
        os._exit(1)
    """
)


def leave(pair: Pair, policy: str, durable_down: str, end: str) -> list[str]:
    """A process puts a checkpoint in `a` and in `b`, and ends without closing; their ids."""
    name = "native" if pair.face.native else "blocking"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            LEAVER,
            name,
            pair.postgres.url,
            pair.redis.url,
            policy,
            durable_down,
            end,
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == (1 if end == "dies" else 0), done.stderr
    return done.stdout.split()


async def test_what_a_process_that_died_left_in_redis_is_flushed_by_others(pair: Pair) -> None:
    """Both checkpoints and both writes, though it held the leases."""
    for name in "ab":
        pair.hold(name)
    ids = leave(pair, "write_behind", "queue", "dies")
    assert pair.waiting("a") == pair.waiting("b") == 2
    saver = pair.saver(BEHIND)
    assert await saver.flush() == 0
    assert await saver.flush(everyone=True) == 2
    assert sorted(pair.stored()) == sorted(ids)
    alone = pair.alone()
    for name in "ab":
        pair.release(name)
        found = await until_served(lambda name=name: head(alone, name))
        assert values_of(found) == {"c": "acknowledged"}
        assert found.pending_writes == [("task", "c", "w")]


@pytest.mark.parametrize("policy", ["write_through", "write_behind"])
async def test_what_a_process_queued_before_it_died_is_flushed_by_others(
    pair: Pair, policy: str
) -> None:
    """Postgres knows nothing of it: Redis is searched."""
    await pair.saver().setup()
    pair.postgres.kill()
    ids = leave(pair, policy, "queue", "dies")
    pair.postgres.start()
    saver = pair.saver(QUEUE)
    await until_served(lambda: saver.flush(everyone=True))
    assert sorted(pair.stored()) == sorted(ids)
    alone = pair.alone()
    for name in "ab":
        found = await until_served(lambda name=name: head(alone, name))
        assert (values_of(found), marks(found)) == ({"c": "acknowledged"}, {"degraded": "queued"})


async def test_a_process_that_ends_in_order_flushes_without_being_told_to(pair: Pair) -> None:
    """Nobody else may be there to do it."""
    ids = leave(pair, "write_behind", "queue", "ends")
    pair.redis.kill()
    assert sorted(pair.stored()) == sorted(ids)


@each(QUEUING)
async def test_an_outbox_takes_more_than_its_limit_by_flushing_first(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """Under write-behind; while Postgres is down there is an end to it, which is told."""
    saver = pair.saver(policy, outbox_limit=3)
    pair.hold()
    config = at()
    ids = []
    for n in range(10):
        config = await step(saver, config, n)
        ids.append(id_of(config))
        assert pair.waiting() <= 3
    await saver.flush()
    assert pair.stored() == ids
    found = await pair.saver(policy).list(at())
    assert ids_of(found) == ids[::-1]


@pytest.mark.parametrize("needed", [True, False])
async def test_a_fork_of_what_is_lost_is_kept_only_if_it_can_be_read(
    pair: Pair, needed: bool
) -> None:
    """A DeltaChannel is made from the ancestors; without one, a checkpoint needs nobody."""
    saver = pair.saver(BEHIND, on_hot_lost="accept")
    first, second = await in_spell(pair, saver)
    pair.empty_redis()
    fork = cp({"c": 3}, versions={"c": "3", "trail": "1"})
    metadata = {"counters_since_delta_snapshot": {"trail": [1, 1]}} if needed else {}
    if needed:
        with pytest.raises(ConflictError) as error:
            await put(saver, second, fork, metadata)
        assert (error.value.actual, error.value.refused) == (id_of(first), None)
    else:
        await put(saver, second, fork, metadata)
    await head(saver)  # accepts the loss, if the put did not have to
    await saver.flush()
    assert pair.stored() == [id_of(first), *([] if needed else [fork["id"]])]
    assert values_of(await head(pair.saver(BEHIND))) == {"c": 1 if needed else 3}


async def test_what_was_queued_and_is_lost_is_reported_beside_another_loss(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two namespaces, only one was marked in Postgres: only this process knows of the other."""
    saver = pair.saver(BEHIND)
    pair.hold()
    await put(saver, at(ns="other"), cp({"c": 1}))
    pair.postgres.kill()
    queued = cp({"c": 2})
    await put(saver, at(), queued)
    pair.empty_redis()
    pair.hold()
    pair.postgres.start()
    with caplog.at_level(logging.WARNING, LOGGER), pytest.raises(StateLostError) as error:
        await until_served(saver.flush)
    assert error.value.namespace == "other"
    assert await saver.accept_loss("t") == ["other"]
    assert any(queued["id"] in line for line in told(caplog, "state_lost"))


async def test_what_another_gave_up_and_redis_lost_is_reported_by_who_put_it(
    pair: Pair, make_proxy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing in Postgres says any more that Redis was ahead, and it is down when the put is made:
    only this process can tell."""
    caplog.set_level(logging.WARNING, LOGGER)
    saver = pair.saver(BEHIND)
    await in_spell(pair, saver)
    turn = Turn(saver, await head(saver))
    proxy = make_proxy(pair.redis.url)
    accepting = pair.opened(proxy.url, **BEHIND, redis_timeout=0.2, on_hot_lost="accept")
    proxy.blackhole()
    await Turn(accepting, await head(accepting)).step(9)
    assert not pair.marked()
    pair.postgres.kill()
    pair.release()
    third = await turn.step(3)
    await until(lambda: is_said(caplog, "not flushed yet"))
    pair.empty_redis()
    pair.postgres.start()
    await until(lambda: is_said(caplog, f"Redis took {id_of(third)}"))
    assert any(id_of(third) in line for line in told(caplog, "state_lost"))


async def is_said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


@pytest.mark.parametrize("down", [False, True])
async def test_a_put_made_again_after_its_answer_was_lost_carries_the_next_one(
    pair: Pair, make_proxy: Any, caplog: pytest.LogCaptureFixture, down: bool
) -> None:
    """What Redis took the first time has other chunk numbers than what is made of it the second
    time, and the next checkpoint keeps most of it. Nothing of that is lost when it is flushed."""
    caplog.set_level(logging.WARNING, LOGGER)
    proxy = make_proxy(pair.redis.url)
    saver = pair.opened(proxy.url, **BEHIND, redis_timeout=0.3)
    before = await step(saver, at(), 1)
    await saver.flush()
    pair.hold()
    await step(saver, before, 2)  # the spell is open
    found = await head(saver)
    version = saver.target.get_next_version(found.checkpoint["channel_versions"]["c"], None)
    items = [f"{n} " * 200 for n in range(40)]
    one = cp({"c": items}, versions={"c": version})
    proxy.delay(0.5)
    with pytest.raises(UnavailableError):
        await put(saver, found.config, one)
    await until(lambda: has_waiting(pair, 2))
    proxy.restore()
    if down:
        pair.postgres.kill()
    config = await until_served(lambda: put(saver, found.config, one))
    version = saver.target.get_next_version(version, None)
    both = cp({"c": [*items, "next"]}, versions={"c": version})
    config = await put(saver, config, both)
    if down:
        pair.postgres.start()
    await until_served(saver.flush)
    assert pair.stored()[2:] == [one["id"], both["id"]]
    for reader in (pair.saver(BEHIND), pair.saver()):
        assert values_of(await until_served(lambda reader=reader: head(reader))) == {
            "c": [*items, "next"]
        }
    assert told(caplog, "state_lost") == []


async def has_waiting(pair: Pair, count: int) -> bool:
    return pair.waiting() == count
