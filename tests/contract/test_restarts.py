"""What a restart of Redis does to a thread that it may be ahead of: nothing that was acknowledged
is lost in silence, and nothing is reported that was not lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from langgraph_durable_state import ConflictError, DurableSaver, StateLostError
from langgraph_durable_state.decisions import keys
from langgraph_durable_state.drivers.blocking import run
from langgraph_durable_state.drivers.memory_world import World
from langgraph_durable_state.protocols.settling import Settler
from langgraph_durable_state.testing import memory_saver
from langgraph_durable_state.words import Claim, Cold, Place, Step
from tests.conftest import MakeValkey
from tests.contract import rows
from tests.contract.superstep import config, superstep
from tests.faces import OnBlockingFace

BEHIND: dict[str, Any] = {"write_policy": "write_behind"}
SECURED: dict[str, Any] = {**BEHIND, "wait_aof": (1, 0)}


THREAD = keys.named("", "t")

HELD = ("copies", "spells", "hot_writes", "outboxes")


@dataclass
class Hot:
    """Savers over one pair of stores, flushed by nobody in the background."""

    new_saver: Callable[..., Any]
    restart: Callable[[], Any]
    snapshot: Callable[[], Any]
    restore: Callable[[Any], Any]


@pytest.fixture(params=["memory", "blocking", "native"])
async def hot(request: pytest.FixtureRequest) -> AsyncIterator[Hot]:
    made: list[DurableSaver] = []
    if request.param == "memory":
        world = World()

        def restart() -> None:
            world.server += 1

        def snapshot() -> Any:
            return {name: deepcopy(getattr(world, name)) for name in HELD}

        def restore(kept: Any) -> None:
            restart()
            vars(world).update(kept)

    else:
        make_valkey: MakeValkey = request.getfixturevalue("make_valkey")
        server = make_valkey(appendonly="yes", appendfsync="always")
        urls = request.getfixturevalue("postgres_url"), server.url

        def restart() -> None:
            server.kill()
            server.start()

        snapshot, restore = server.snapshot, server.restore

    def new_saver(**options: Any) -> Any:
        if request.param == "memory":
            saver = memory_saver(world, **options)
        else:
            saver = DurableSaver(*urls, redis_timeout=5.0, **options)
            saver._faces.background.start = lambda: None  # type: ignore[method-assign]
        made.append(saver)
        return OnBlockingFace(saver) if request.param == "blocking" else saver

    yield Hot(new_saver, restart, snapshot, restore)
    for saver in made:
        with suppress(StateLostError):  # which the test has seen
            await saver.aclose()


async def put(saver: Any, id: str) -> None:
    await saver.aput(*superstep(saver, await saver.aget_tuple(config()), id, {"x": id}))


async def flush(saver: Any) -> None:
    getattr(saver, "saver", saver).flush()


async def head(saver: Any) -> str:
    return str((await saver.aget_tuple(config())).checkpoint["id"])


async def test_one_who_does_not_wait_for_the_disk_trusts_those_who_do(hot: Hot) -> None:
    """It depends on who acknowledged, not on who reads: all of it is there."""
    await put(hot.new_saver(**SECURED), "1")
    hot.restart()
    for options in ({}, BEHIND, SECURED):
        assert await head(hot.new_saver(**options)) == "1"


async def test_one_who_waits_for_the_disk_does_not_trust_those_who_do_not(hot: Hot) -> None:
    """Of what they were told the last may be gone."""
    await put(hot.new_saver(**SECURED), "1")
    await put(hot.new_saver(**BEHIND), "2")
    hot.restart()
    for options in (BEHIND, SECURED):
        with pytest.raises(StateLostError) as told:
            await head(hot.new_saver(**options))
        assert told.value.left == "2"


async def test_a_spell_that_a_restored_redis_knows_as_empty_is_not_ended(hot: Hot) -> None:
    """What was acknowledged in it since then is lost, and that is told."""
    saver = hot.new_saver(**BEHIND)
    await put(saver, "1")
    flusher = flusher_of(saver)
    run(flusher.drain(THREAD))
    kept = hot.snapshot()
    await put(saver, "2")
    hot.restore(kept)
    run(flusher.end_quiet(THREAD, 0.0))
    with pytest.raises(StateLostError) as told:
        await head(hot.new_saver(**BEHIND))
    assert told.value.last_durable == "1"


async def test_a_spell_that_a_restored_redis_knows_as_being_opened_is_not_ended(hot: Hot) -> None:
    """The same before anything was put in it."""
    saver = hot.new_saver(**BEHIND)
    driver = run(getattr(saver, "saver", saver)._faces.blocking())
    first = rows.put("1", Claim.EMPTY, place=Place(THREAD, ""))
    cold = run(driver.outbox.append(first, Step(b"", ()), keys.token(), None, False))
    assert isinstance(cold, Cold)
    kept = hot.snapshot()
    await put(saver, "2")
    hot.restore(kept)
    run(driver.flusher.end_quiet(THREAD, 0.0))
    with pytest.raises(StateLostError) as told:
        await head(hot.new_saver(**BEHIND))
    assert told.value.last_durable is None


@pytest.mark.parametrize("met", [False, True])
async def test_a_restart_before_the_first_put_of_a_spell_loses_nothing_for_those_who_wait(
    hot: Hot, met: bool
) -> None:
    """For the disk; but somebody who does not may have put something in it."""
    saver = hot.new_saver(**SECURED)
    await put(saver, "1")
    await flush(saver)
    await begin_spell(saver)
    if met:
        await begin_spell(hot.new_saver(**BEHIND))
    hot.restart()
    reader = hot.new_saver(**SECURED)
    if met:
        with pytest.raises(StateLostError):
            await head(reader)
    else:
        await put(reader, "2")
        assert await head(reader) == "2"


async def begin_spell(saver: Any) -> None:
    """Marks the durable head, and comes no further."""
    driver = run(getattr(saver, "saver", saver)._faces.blocking())
    one = rows.put("x", place=Place(THREAD, ""))
    cold = run(driver.outbox.append(one, Step(b"", ()), keys.token(), None, False))
    assert isinstance(cold, Cold)
    run(driver.durable.mark_ahead(one.place, cold.token, [cold.token, cold.previous]))


def flusher_of(saver: Any) -> Settler:
    return run(getattr(saver, "saver", saver)._faces.blocking()).flusher


async def test_writes_count_as_well(hot: Hot) -> None:
    """They were acknowledged, too."""
    await put(hot.new_saver(**SECURED), "1")
    other = hot.new_saver(**BEHIND)
    found = await other.aget_tuple(config())
    await other.aput_writes(found.config, [("x", "?")], "task")
    hot.restart()
    with pytest.raises(StateLostError):
        await head(hot.new_saver(**SECURED))


async def test_what_comes_after_an_old_snapshot_is_flushed(hot: Hot) -> None:
    """The spell goes on with numbers that Postgres has seen already, for other entries."""
    saver = hot.new_saver(**BEHIND, on_hot_lost="accept")
    await put(saver, "1")
    await flush(saver)
    kept = hot.snapshot()
    for task in ("a", "b"):
        found = await saver.aget_tuple(config())
        await saver.aput_writes(found.config, [("x", task)], task)
    await flush(saver)
    hot.restore(kept)
    await put(saver, "2")
    await flush(saver)
    assert [found.checkpoint["id"] async for found in saver.alist(config())] == ["2", "1"]


async def test_no_head_is_made_from_writes_that_redis_lost(hot: Hot) -> None:
    """The run had made them, and Redis lost them: nobody could replay its delta channels."""
    saver = hot.new_saver(**BEHIND, on_hot_lost="accept")
    await put(saver, "1")
    await flush(saver)
    kept = hot.snapshot()
    found = await saver.aget_tuple(config())
    await saver.aput_writes(found.config, [("delta", "a")], "task")
    hot.restore(kept)
    await saver.aget_tuple(config())  # accepts the loss
    args = superstep(saver, found, "2", {"x": "2"})
    with suppress(ConflictError):
        await saver.aput(*args)
    await flush(saver)
    assert await head(hot.new_saver()) == "1"
    told = await saver.aget_delta_channel_history(config=config(), channels=["delta"])
    assert told["delta"]["writes"] == []
