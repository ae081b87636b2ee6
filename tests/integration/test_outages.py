"""What a put and a read of the head come to while a tier is down, away, restarted or empty."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_durable_state import ConflictError, UnavailableError
from langgraph_durable_state.decisions import keys
from langgraph_durable_state.tiers.outbox import RedisOutbox
from langgraph_durable_state.words import Won
from tests.cases import at, cp, id_of, ids_of, put, query, until, until_served, values_of
from tests.integration.outages import (
    BEHIND,
    BEHIND_ONLY,
    BEHINDS,
    LOGGER,
    POLICIES,
    QUEUE,
    QUEUING,
    THROUGH,
    Pair,
    Turn,
    each,
    has_stored,
    head,
    in_spell,
    marks,
    refused,
    step,
    told,
    unmarked,
)

# -- both up ----------------------------------------------------------------------------------


@each({"through": THROUGH, "queue": QUEUE})
async def test_a_put_through_is_durable_when_it_is_acknowledged(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """And Redis is not ahead of it, so that nobody needs Redis."""
    config = await step(pair.saver(policy), at(), 1)
    found = await head(pair.alone())
    assert (id_of(found.config), marks(found)) == (id_of(config), {})
    assert (pair.waiting(), pair.marked()) == (0, False)


@each(BEHINDS)
async def test_a_put_behind_is_read_by_all_who_see_redis_and_refused_to_others(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """Before it is in Postgres; afterwards everybody reads it, once the spell has ended."""
    pair.hold()
    config = await step(pair.saver(policy), at(), 1)
    assert (pair.stored(), pair.waiting()) == ([], 1)
    for reader in (pair.saver(policy), pair.saver(THROUGH)):
        found = await head(reader)
        assert (id_of(found.config), marks(found)) == (id_of(config), {})
    await refused(pair.alone().get_tuple(at()), "redis")
    pair.release()
    await until(lambda: has_stored(pair, config))
    alone = pair.alone()
    found = await until_served(lambda: head(alone))
    assert (id_of(found.config), marks(found)) == (id_of(config), {})


async def test_flush_waits_for_all_that_was_acknowledged(pair: Pair) -> None:
    """Puts and writes, of several threads, whoever else holds the leases on flushing them."""
    saver = pair.saver(BEHIND)
    ids = []
    for name in ("a", "b", "c"):
        pair.hold(name)
        config = await step(saver, at(name), 1)
        await saver.put_writes(config, [("c", "w")], "task")
        ids.append(id_of(config))
    assert await saver.flush() == 3
    assert sorted(pair.stored()) == sorted(ids)
    rows = query(pair.postgres.url, "SELECT id FROM durable_state.write")
    assert sorted(id for (id,) in rows) == sorted(ids)
    assert await saver.flush() == 0


# -- Redis is down ----------------------------------------------------------------------------


@each(POLICIES)
async def test_without_redis_puts_are_durable_and_reads_right(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """From the start: Redis is not ahead of anything."""
    pair.redis.kill()
    saver = pair.saver(policy)
    config = await step(saver, await step(saver, at(), 1), 2)
    await saver.put_writes(config, [("c", "w")], "task")
    for reader in (saver, pair.saver(policy), pair.alone()):
        found = await head(reader)
        assert (id_of(found.config), marks(found)) == (id_of(config), {})
        assert found.pending_writes == [("task", "c", "w")]
        assert len(await reader.list(at())) == 2


@each({"through": THROUGH, "queue": QUEUE})
async def test_a_redis_that_dies_under_puts_through_changes_nothing(
    pair: Pair, policy: dict[str, Any]
) -> None:
    saver = pair.saver(policy)
    config = await step(saver, at(), 1)
    pair.redis.kill()
    config = await step(saver, config, 2)
    for reader in (saver, pair.saver(policy), pair.alone()):
        found = await head(reader)
        assert (id_of(found.config), marks(found)) == (id_of(config), {})


@each(BEHINDS)
async def test_a_thread_that_redis_is_ahead_in_is_refused_without_it(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """Every call that would show or build on an older state; other threads go on."""
    saver = pair.saver(policy)
    configs = await in_spell(pair, saver)
    pair.redis.kill()
    for one in (saver, pair.saver(policy)):
        await refused(one.get_tuple(at()), "redis")
        await refused(step(one, configs[0], 3), "redis")
        await refused(one.put_writes(configs[0], [("c", 1)], "task"), "redis")
        await refused(one.list(at()), "redis")
        await refused(one.copy_thread("t", "copy"), "redis")
        await refused(one.prune(["t"]), "redis")
    config = await step(saver, at("other"), 1)
    assert id_of((await head(pair.saver(policy), "other")).config) == id_of(config)
    assert pair.stored() == [id_of(configs[0]), id_of(config)]


async def test_a_worker_that_alone_cannot_see_redis_refuses_while_others_write_behind(
    pair: Pair, make_proxy: Any
) -> None:
    """Neither reads an older head nor goes on from it; it works again once the spell has ended."""
    other = pair.saver(BEHIND)
    proxy = make_proxy(pair.redis.url)
    cut_off = pair.opened(proxy.url, **BEHIND, redis_timeout=0.2)
    configs = await in_spell(pair, other)
    proxy.blackhole()
    await refused(cut_off.get_tuple(at()), "redis")
    await refused(step(cut_off, configs[0], 3), "redis")
    await refused(cut_off.put_writes(configs[0], [("c", 1)], "task"), "redis")
    assert values_of(await head(other)) == {"c": 2}
    pair.release()
    found = await until_served(lambda: head(cut_off))
    assert (values_of(found), marks(found)) == ({"c": 2}, {})
    config = await step(cut_off, found.config, 3)
    assert id_of((await head(other)).config) == id_of(config)


async def test_a_worker_that_accepts_it_goes_on_without_redis_and_nothing_is_lost(
    pair: Pair, make_proxy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What Redis held alone becomes a branch: kept, reported, reachable by its id."""
    other = pair.saver(BEHIND)
    proxy = make_proxy(pair.redis.url)
    accepting = pair.opened(proxy.url, **BEHIND, redis_timeout=0.2, on_hot_lost="accept")
    configs = await in_spell(pair, other, held=2)
    proxy.blackhole()
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        found = await head(accepting)
    assert values_of(found) == {"c": 1}
    assert ["'t'" in line and id_of(configs[0]) in line for line in told(caplog, "state_lost")]
    config = await step(accepting, found.config, 3)
    assert values_of(await head(pair.alone())) == {"c": 3}
    assert marks(await head(pair.alone())) == {"degraded": "hot_lost"}
    pair.release()
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        await other.flush()
    assert [id_of(c) in " ".join(told(caplog, "branch_kept")) for c in configs] == [
        False,
        True,
        True,
    ]
    for reader in (other, pair.saver(BEHIND), pair.alone()):
        assert id_of((await until_served(lambda r=reader: head(r))).config) == id_of(config)
        for n, kept in enumerate(configs):
            assert values_of(await reader.get_tuple(kept)) == {"c": n + 1}


async def test_a_graph_step_after_an_accepted_loss_is_marked(pair: Pair) -> None:
    """By a put as well, whose saver did not read the head first."""
    saver = pair.saver(BEHIND, on_hot_lost="accept")
    configs = await in_spell(pair, saver)
    pair.redis.kill()
    await step(saver, configs[0], 3)
    found = await head(pair.alone())
    assert (values_of(found), marks(found)) == ({"c": 3}, {"degraded": "hot_lost"})


# -- Postgres is down -------------------------------------------------------------------------


@each({"through": THROUGH, "behind only": BEHIND_ONLY})
async def test_without_postgres_a_new_burst_is_refused_if_it_may_not_be_queued(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """As is every read."""
    saver = pair.saver(policy)
    config = await step(saver, at(), 1)
    await saver.flush()
    await until(lambda: unmarked(pair))
    pair.postgres.kill()
    for one in (saver, pair.saver(policy)):
        await refused(step(one, config, 2), "postgres")
        await refused(one.put_writes(config, [("c", 1)], "task"), "postgres")
        await refused(one.get_tuple(at()), "postgres")


@each(QUEUING)
@pytest.mark.parametrize("fresh", [True, False], ids=["by a fresh process", "by the same process"])
async def test_without_postgres_a_known_thread_goes_on_in_redis_and_says_so(
    pair: Pair, policy: dict[str, Any], fresh: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Marked in metadata, read marked unverified; later it is all in Postgres, and found by it."""
    saver = pair.saver(policy)
    config = await step(saver, at(), 1)
    await saver.put_writes(config, [("c", "before")], "one")
    await saver.flush()
    await until(lambda: unmarked(pair))
    pair.postgres.kill()
    worker = pair.saver(policy) if fresh else saver
    found = await head(worker)
    assert (values_of(found), marks(found)) == ({"c": 1}, {"unverified": True})
    assert found.pending_writes == [("one", "c", "before")]
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        turn = Turn(worker, found)
        second, third = await turn.step(2), await turn.step(3)
    assert len(told(caplog, "queued")) == 1
    await worker.put_writes(third, [(INTERRUPT, "really?")], "two")
    for reader in (worker, pair.saver(policy)):
        found = await head(reader)
        assert id_of(found.config) == id_of(third)
        assert marks(found) == {"unverified": True, "degraded": "queued"}
        assert found.pending_writes == [("two", INTERRUPT, "really?")]
    pair.postgres.start()
    await until_served(worker.flush)
    assert pair.stored() == [id_of(c) for c in (config, second, third)]
    reader = pair.alone()
    found = await until_served(lambda: head(reader))
    assert (id_of(found.config), marks(found)) == (id_of(third), {"degraded": "queued"})
    assert found.pending_writes == [("two", INTERRUPT, "really?")]
    queued = await reader.list(at(), filter={"durable_state_degraded": "queued"})
    assert ids_of(queued) == [id_of(third), id_of(second)]


@each(BEHINDS)
async def test_without_postgres_a_spell_under_way_goes_on_unmarked(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """Postgres said already that Redis may be ahead: the put is as safe as any put behind."""
    saver = pair.saver(policy)
    configs = await in_spell(pair, saver)
    pair.postgres.kill()
    configs.append(await step(saver, configs[-1], 3))
    await saver.put_writes(configs[-1], [("c", "w")], "task")
    pair.postgres.start()
    await until_served(saver.flush)
    assert pair.stored() == [id_of(c) for c in configs]
    found = await head(pair.saver(policy))
    assert (values_of(found), marks(found)) == ({"c": 3}, {})
    assert found.pending_writes == [("task", "c", "w")]


REFUSED_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "head of a thread that Redis does not know": lambda s, c: s.get_tuple(at("unknown")),
    "by id": lambda s, c: s.get_tuple(c),
    "list": lambda s, c: s.list(at()),
    "list of all": lambda s, c: s.list(None),
    "list by metadata": lambda s, c: s.list(None, filter={"source": "loop"}),
    "history": lambda s, c: s.get_delta_channel_history(config=c, channels=["c"]),
    "delete_thread": lambda s, c: s.delete_thread("t"),
    "delete_for_runs": lambda s, c: s.delete_for_runs(["run"]),
    "copy_thread": lambda s, c: s.copy_thread("t", "copy"),
    "prune": lambda s, c: s.prune(["t"]),
    "setup": lambda s, c: s.setup(),
    "flush": lambda s, c: s.flush(everyone=True),
    "accept_loss": lambda s, c: s.accept_loss("t"),
}


@each(QUEUING)
async def test_without_postgres_everything_else_is_a_typed_error_and_does_nothing(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """Never a wrong or an empty answer, whether something is queued or not."""
    saver = pair.saver(policy)
    config = await step(saver, at(), 1)
    await saver.flush()
    await until(lambda: unmarked(pair))
    pair.postgres.kill()
    fresh = pair.saver(policy)
    for last in (1, 2):
        for call in REFUSED_CALLS.values():
            for one in (saver, fresh):
                await refused(call(one, config), "postgres")
        found = await head(fresh)
        assert values_of(found) == {"c": last}
        if last == 1:
            await step(saver, config, 2)
    pair.postgres.start()
    await until_served(saver.flush)
    assert len(await saver.list(None)) == 2


@each(QUEUING)
async def test_a_thread_that_begins_without_postgres_is_there_afterwards(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """A put does not have to read; what it began is read from Redis from then on."""
    saver = pair.saver(policy)
    await saver.setup()
    pair.postgres.kill()
    await refused(saver.get_tuple(at()), "postgres")
    config = await step(saver, at(), 1)
    for reader in (saver, pair.saver(policy)):
        found = await head(reader)
        assert values_of(found) == {"c": 1}
        assert marks(found) == {"unverified": True, "degraded": "queued"}
    pair.postgres.start()
    await until_served(saver.flush)
    assert pair.stored() == [id_of(config)]
    alone = pair.alone()
    assert ids_of(await until_served(lambda: alone.list(None))) == [id_of(config)]


@each(QUEUING)
async def test_of_two_runs_that_queue_on_one_head_one_advances_it(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """Redis decides while Postgres cannot; the other's checkpoint is kept all the same."""
    first = pair.saver(policy)
    await step(first, at(), 1)
    await first.flush()
    await until(lambda: unmarked(pair))
    pair.postgres.kill()
    second = pair.saver(policy)
    one, two = Turn(first, await head(first)), Turn(second, await head(second))
    won = await one.step(2)
    with pytest.raises(ConflictError) as error:
        await two.step(3)
    assert error.value.actual == id_of(won)
    lost = error.value.refused
    assert lost is not None
    pair.postgres.start()
    await until_served(first.flush)
    await until_served(second.flush)
    reader = pair.alone()
    found = await until_served(lambda: head(reader))
    assert values_of(found) == {"c": 2}
    assert values_of(await reader.get_tuple(at(id=lost))) == {"c": 3}


@each(QUEUING)
async def test_a_run_is_not_refused_for_a_hot_head_that_postgres_has_moved_on_from(
    pair: Pair, policy: dict[str, Any], make_proxy: Any
) -> None:
    """While Postgres is down nobody can tell which is the newer: the run waits, and has won."""
    saver = pair.saver(policy)
    config = await step(saver, at(), 1)
    await saver.flush()
    await until(lambda: unmarked(pair))
    turn = Turn(saver, await head(saver))
    pair.postgres.kill()
    pair.hold()
    await turn.step(2)
    pair.postgres.start()
    other = await until_served(lambda: step(pair.alone(), config, 3))
    proxy = make_proxy(pair.redis.url)
    blind = pair.opened(proxy.url, **policy, redis_timeout=0.2)
    proxy.blackhole()
    turn = Turn(blind, await until_served(lambda: head(blind)))
    pair.postgres.kill()
    proxy.restore()
    with pytest.raises(UnavailableError):
        await turn.step(4)
    pair.postgres.start()
    last = await until_served(lambda: turn.step(4))
    pair.release()
    await until_served(saver.flush)
    found = await until_served(lambda: head(pair.alone()))
    assert (id_of(found.config), values_of(found)) == (id_of(last), {"c": 4})
    assert found.parent_config is not None
    assert id_of(found.parent_config) == id_of(other)


async def test_a_fork_whose_answer_was_lost_never_takes_the_head_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis had taken it, and others have gone on from it; while Postgres, which has it, is down,
    nobody can tell that to whoever tries again."""
    other = pair.saver(BEHIND)
    first, *_ = await in_spell(pair, other, held=2)
    forker = pair.saver(BEHIND)
    assert await forker.get_tuple(first) is not None  # it knows what it forks
    lose_an_answer(monkeypatch)
    fork = cp({"c": 7}, versions={"c": "7"})
    with pytest.raises(UnavailableError):
        await put(forker, first, fork)
    assert id_of((await head(other)).config) == fork["id"]
    await Turn(other, await head(other)).step(8)
    await other.flush()
    pair.hold()
    last = await Turn(other, await head(other)).step(9)
    pair.postgres.kill()
    with pytest.raises(UnavailableError):
        await put(forker, first, fork)
    pair.postgres.start()
    await until_served(lambda: put(forker, first, fork))
    pair.release()
    for reader in (other, pair.saver(BEHIND)):
        found = await until_served(lambda r=reader: head(r))
        assert (id_of(found.config), values_of(found)) == (id_of(last), {"c": 9})


def lose_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis takes the next put, and its answer does not arrive."""
    append = RedisOutbox.append

    async def lost(self: RedisOutbox, *args: Any, **named: Any) -> Any:
        answer = await append(self, *args, **named)
        if isinstance(answer, Won):
            monkeypatch.undo()
            raise UnavailableError("redis", "its answer was lost")
        return answer

    monkeypatch.setattr(RedisOutbox, "append", lost)


async def test_a_first_put_beside_the_first_mark_of_another_has_lost_to_nobody(pair: Pair) -> None:
    """Another process begins to write behind at that moment: the put is for Redis to decide."""
    alone = pair.alone()
    await alone.setup()
    key = keys.thread_of(at()).key
    with psycopg.connect(pair.postgres.url) as other:
        other.execute(
            "INSERT INTO durable_state.head (tk, ns, seq, id, digest, ahead, ahead_at)"
            " VALUES (%s, '', 0, '', '', %s, now())",
            (key, b"T" * 16),
        )
        follower = threading.Thread(target=commit_when_waited_for, args=(pair, other))
        follower.start()
        await refused(step(alone, at(), 1), "redis")
        follower.join()


def commit_when_waited_for(pair: Pair, other: psycopg.Connection[Any]) -> None:
    while not query(
        pair.postgres.url, "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    ):
        pass
    other.commit()


@each(QUEUING)
async def test_a_queued_put_that_finds_the_head_moved_becomes_a_branch(
    pair: Pair, policy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Postgres could not be told that Redis was ahead, and somebody without Redis went on."""
    saver = pair.saver(policy)
    config = await step(saver, at(), 1)
    await saver.flush()
    await until(lambda: unmarked(pair))
    turn = Turn(saver, await head(saver))
    pair.postgres.kill()
    pair.hold()
    queued = [await turn.step(2), await turn.step(3)]
    pair.postgres.start()
    alone = pair.alone()
    other = await until_served(lambda: step(alone, config, 4))
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        await until_served(saver.flush)
    report = told(caplog, "branch_kept")
    assert [any(id_of(c) in line for line in report) for c in queued] == [True, True]
    for reader in (saver, pair.saver(policy), pair.alone()):
        found = await until_served(lambda r=reader: head(r))
        assert (id_of(found.config), values_of(found)) == (id_of(other), {"c": 4})
        for n, kept in enumerate(queued):
            by_id = await reader.get_tuple(kept)
            assert (values_of(by_id), marks(by_id)) == ({"c": n + 2}, {"degraded": "queued"})


# -- both down --------------------------------------------------------------------------------


@each(POLICIES)
async def test_without_both_all_is_a_typed_error(pair: Pair, policy: dict[str, Any]) -> None:
    """Whether the head was seen or not."""
    saver = pair.saver(policy)
    config = await step(saver, at(), 1)
    pair.redis.kill()
    pair.postgres.kill()
    for one in (saver, pair.saver(policy)):
        with pytest.raises(UnavailableError):
            await one.get_tuple(at())
        with pytest.raises(UnavailableError):
            await step(one, config, 2)
        with pytest.raises(UnavailableError):
            await one.put_writes(config, [(INTERRUPT, "q")], "task")
        with pytest.raises(UnavailableError):
            await one.list(at())


@each(POLICIES)
async def test_without_both_the_head_last_seen_is_served_stale_if_asked_for(
    pair: Pair, policy: dict[str, Any]
) -> None:
    """By a process that saw it; with the pending writes that it saw; and nothing else."""
    saver = pair.saver(policy, stale_reads=True)
    config = await step(saver, at(), 1)
    await head(saver)
    await saver.put_writes(config, [(INTERRUPT, "really?")], "task")
    await saver.flush()
    pair.redis.kill()
    pair.postgres.kill()
    found = await head(saver)
    assert (values_of(found), marks(found)) == ({"c": 1}, {"stale": True})
    assert found.pending_writes == [("task", INTERRUPT, "really?")]
    with pytest.raises(UnavailableError):
        await saver.get_tuple(at("unseen"))
    with pytest.raises(UnavailableError):
        await pair.saver(policy, stale_reads=True).get_tuple(at())
    with pytest.raises(UnavailableError):
        await step(saver, found.config, 2)


async def test_stale_reads_serve_nothing_stale_while_a_tier_answers(pair: Pair) -> None:
    """Postgres alone: the durable head. Redis alone, without queueing: an error."""
    saver = pair.saver(THROUGH, stale_reads=True)
    config = await step(saver, at(), 1)
    await step(pair.saver(), config, 2)
    pair.redis.kill()
    found = await head(saver)
    assert (values_of(found), marks(found)) == ({"c": 2}, {})
    pair.redis.start()
    pair.postgres.kill()
    await refused(until_redis_is_used(saver), "postgres")


async def until_redis_is_used(saver: Any) -> Any:
    """A read once Redis, which was restored, is tried again."""

    async def is_used() -> bool:
        return not saver.target._faces._breakers.redis.is_open or await tried()

    async def tried() -> bool:
        with suppress(UnavailableError):
            await saver.get_tuple(at())
        return False

    await until(is_used)
    return await saver.get_tuple(at())
