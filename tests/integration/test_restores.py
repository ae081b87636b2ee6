"""A tier that comes back older than it was: what was acknowledged in between is gone, and the
same positions come again with other contents, while processes, runs and the other tier live on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from langgraph_durable_state import ConflictError
from tests.calls import Open
from tests.cases import (
    Face,
    at,
    cp,
    grown,
    id_of,
    ids_of,
    put,
    query,
    replayed,
    until,
    until_served,
    values_of,
)
from tests.conftest import MakePostgres, MakeValkey
from tests.servers import PostgresServer, Standby, several


class Losing:
    """A Postgres that goes back to where it was at `mark`."""

    url: str
    """For savers, before and after."""

    server: PostgresServer
    """The one in use."""

    def mark(self) -> None:
        """What comes now will be lost."""

    def lose(self) -> None:
        """Goes back."""


class Restored(Losing):
    """It is restored from a backup."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.url
        self._kept: Path | None = None

    def mark(self) -> None:
        self._kept = self.server.snapshot()

    def lose(self) -> None:
        assert self._kept is not None
        self.server.restore(self._kept)


class FailedOver(Losing):
    """It fails over to a standby that did not have all."""

    def __init__(self, primary: PostgresServer, standby: Standby) -> None:
        self.server: PostgresServer = primary
        self._standby = standby
        self.url = several(primary.url, standby.url)

    def mark(self) -> None:
        self._standby.catch_up()
        self._standby.kill()

    def lose(self) -> None:
        self.server.kill()
        self._standby.start()
        self._standby.promote()
        self.server = self._standby


@pytest.fixture(params=["a restore", pytest.param("a fail-over", marks=pytest.mark.long)])
def losing(
    request: pytest.FixtureRequest,
    make_postgres: MakePostgres,
    make_standby: Callable[[PostgresServer], Standby],
) -> Losing:
    """A Postgres that will lose what comes after a mark, by either way."""
    server = make_postgres(fsync="off")
    if request.param == "a restore":
        return Restored(server)
    return FailedOver(server, make_standby(server))


def texts(word: str, count: int) -> list[str]:
    """Items that are too long for a record."""
    return [f"{word} {n} " + "x" * 400 for n in range(count)]


KEPT = {"items": texts("kept", 3)}


async def advance(saver: Any, found: Any, thread: str = "t", **values: Any) -> Any:
    """What a run that loaded `found` puts; the config."""
    known = dict(found.checkpoint["channel_versions"]) if found else {}
    held = found.checkpoint["channel_values"] if found else {}
    new = {name: saver.target.get_next_version(known.get(name), None) for name in values}
    made = cp({**held, **values}, versions={**known, **new})
    return await put(saver, found.config if found else at(thread), made, None, new)


async def head_of(saver: Any, thread: str = "t") -> Any:
    """The head, once Postgres is back."""
    return await until_served(lambda: saver.get_tuple(at(thread)))


async def go_on(saver: Any, thread: str = "t", **values: Any) -> Any:
    """What a run that begins now puts; the config."""
    return await advance(saver, await head_of(saver, thread), thread, **values)


async def keep_three(saver: Any, thread: str = "t") -> list[Any]:
    """Three checkpoints, the last with the values `KEPT`; their configs."""
    return [await go_on(saver, thread, items=texts("kept", n + 1)) for n in range(3)]


def positions(server: PostgresServer) -> list[Any]:
    return query(server.url, "SELECT ns, seq FROM durable_state.checkpoint ORDER BY ns, seq")


# -- Postgres goes back -----------------------------------------------------------------------


async def test_what_was_lost_is_seen_by_nobody_while_its_positions_come_again(
    losing: Losing, redis_url: str, open_saver: Open
) -> None:
    """Neither by the process that put it and holds it, nor through Redis, which has it."""
    living = open_saver(losing.url, redis_url)
    kept = await keep_three(living)
    await asyncio.to_thread(losing.mark)
    lost = [await go_on(living, items=[*KEPT["items"], *texts("lost", n + 1)]) for n in range(4)]
    assert await living.get_tuple(lost[3]) is not None
    before = positions(losing.server)
    await asyncio.to_thread(losing.lose)

    async def seen_everywhere(values: Any, configs: list[Any]) -> None:
        fresh = [open_saver(losing.url, redis_url, head_cache_bytes=n) for n in (0, 2**20)]
        for reader in (living, *fresh, *fresh):
            assert values_of(await head_of(reader)) == values
            assert ids_of(await reader.list(at()))[::-1] == [id_of(c) for c in configs]
            for config in lost:
                assert await reader.get_tuple(config) is None

    await seen_everywhere(KEPT, kept)
    for n in range(4):
        values = {"items": [*KEPT["items"], *texts("again", n + 1)]}
        kept.append(await go_on(living, **values))
        await seen_everywhere(values, kept)
    assert positions(losing.server) == before


STANDS_ON = ["what was kept", "what was lost", "what was lost, whose position was taken"]


@pytest.mark.parametrize("stands_on", STANDS_ON)
async def test_a_run_from_before_builds_on_what_is_there_or_meets_a_conflict(
    losing: Losing, redis_url: str, open_saver: Open, stands_on: str
) -> None:
    """What it put is not mixed into what is there, and can be read."""
    living = open_saver(losing.url, redis_url)
    kept = await keep_three(living)
    await asyncio.to_thread(losing.mark)
    run = await head_of(living)
    if stands_on != "what was kept":
        lost = await go_on(living, items=[*KEPT["items"], *texts("lost", 1)])
        run = await head_of(living)
        assert id_of(run.config) == id_of(lost)
    await asyncio.to_thread(losing.lose)
    expected = values_of(await head_of(living))
    assert expected == KEPT
    if stands_on == STANDS_ON[2]:
        expected = {"items": [*KEPT["items"], *texts("other", 1)]}
        await go_on(open_saver(losing.url, redis_url), **expected)
    mine = {"items": [*values_of(run)["items"], *texts("mine", 1)]}
    if stands_on == "what was kept":
        await advance(living, run, **mine)
        expected = mine
    else:
        with pytest.raises(ConflictError) as conflict:
            await advance(living, run, **mine)
        assert conflict.value.expected == id_of(run.config)
        assert conflict.value.actual == id_of((await head_of(living)).config)
        refused = at(id=conflict.value.refused)
    for reader in (living, open_saver(losing.url, redis_url), open_saver(losing.url)):
        assert values_of(await reader.get_tuple(at())) == expected
        assert values_of(await reader.get_tuple(kept[1])) == {"items": texts("kept", 2)}
        if stands_on != "what was kept":
            assert values_of(await reader.get_tuple(refused)) == mine


async def test_a_run_whose_thread_is_gone_meets_a_conflict(
    losing: Losing, redis_url: str, open_saver: Open
) -> None:
    """The thread is empty, and may be begun anew."""
    living = open_saver(losing.url, redis_url)
    await living.setup()
    await asyncio.to_thread(losing.mark)
    await keep_three(living)
    run = await head_of(living)
    await asyncio.to_thread(losing.lose)
    assert await head_of(living) is None
    with pytest.raises(ConflictError) as conflict:
        await advance(living, run, items=texts("mine", 1))
    assert (conflict.value.actual, conflict.value.refused) == (None, None)
    await go_on(living, items=texts("anew", 1))
    for reader in (living, open_saver(losing.url, redis_url)):
        assert values_of(await reader.get_tuple(at())) == {"items": texts("anew", 1)}
        assert len(await reader.list(at())) == 1


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("moved", [False, True])
async def test_a_put_that_stands_on_writes_that_were_lost_meets_a_conflict(
    losing: Losing, redis_url: str, open_saver: Open, at_once: int, moved: bool
) -> None:
    """Its values are in chunks that came with those writes: a head without them is no head."""
    living = open_saver(losing.url, redis_url)
    threads = [f"t{n}" for n in range(at_once)]
    for thread in threads:
        await keep_three(living, thread)
    await asyncio.to_thread(losing.mark)
    runs = [await head_of(living, thread) for thread in threads]
    mine = "mine " + "x" * 4_000
    for run in runs:
        await living.put_writes(run.config, [("big", mine)], "task")
    await asyncio.to_thread(losing.lose)
    other = open_saver(losing.url, redis_url)
    expected = dict(KEPT)
    for thread in threads:
        assert values_of(await head_of(living, thread)) == expected
        if moved:
            await go_on(other, thread, items=texts("other", 1))
    expected = {"items": texts("other", 1)} if moved else KEPT
    told = await asyncio.gather(
        *(advance(living, run, big=mine) for run in runs), return_exceptions=True
    )
    assert [ConflictError] * at_once == [type(each) for each in told]
    for thread, conflict in zip(threads, told, strict=True):
        for reader in (living, open_saver(losing.url, redis_url), open_saver(losing.url)):
            assert values_of(await reader.get_tuple(at(thread))) == expected
            for found in await reader.list(at(thread)):
                assert found.checkpoint["channel_values"]
            if conflict.refused is not None:
                refused = await reader.get_tuple(at(thread, id=conflict.refused))
                assert values_of(refused) == {**KEPT, "big": mine}
        await go_on(living, thread, big="again")
        head = await open_saver(losing.url, redis_url).get_tuple(at(thread))
        assert values_of(head) == {**expected, "big": "again"}


async def test_writes_that_were_lost_are_pending_for_nobody(
    losing: Losing, redis_url: str, open_saver: Open
) -> None:
    """Other ones of the same task come in their place, and a checkpoint may consume them."""
    living = open_saver(losing.url, redis_url)
    await keep_three(living)
    await asyncio.to_thread(losing.mark)
    run = await head_of(living)
    await living.put_writes(run.config, [("items", texts("lost", 1))], "task")
    await asyncio.to_thread(losing.lose)
    run = await head_of(living)
    assert run.pending_writes == []
    await living.put_writes(run.config, [("items", texts("mine", 1))], "task")
    for reader in (living, open_saver(losing.url, redis_url)):
        pending = (await reader.get_tuple(at())).pending_writes
        assert pending == [("task", "items", texts("mine", 1))]
    await advance(living, run, items=texts("mine", 1))
    for reader in (living, open_saver(losing.url, redis_url)):
        assert values_of(await reader.get_tuple(at())) == {"items": texts("mine", 1)}


class PlainState(TypedDict, total=False):
    items: Annotated[list[str], grown]


class DeltaState(TypedDict, total=False):
    items: Annotated[list[str], DeltaChannel(replayed)]


STATES: dict[str, Any] = {"plain": PlainState, "delta": DeltaState}


@pytest.mark.parametrize("channel", STATES)
@pytest.mark.parametrize("size", [1, 4_000])
async def test_a_superstep_half_of_which_was_lost_is_done_again(
    losing: Losing, redis_url: str, open_saver: Open, face: Face, channel: str, size: int
) -> None:
    """Of two nodes at once one was through, and that is lost while the other is at work: the run
    meets a conflict, and the next one gives what a run without an accident gives."""
    marked, through = threading.Event(), threading.Event()
    ran: list[str] = []

    def early(_: Any) -> Any:
        ran.append("early")
        marked.wait()
        return {"items": ["early" * size]}

    def late(_: Any) -> Any:
        ran.append("late")
        if not marked.is_set():
            losing.mark()
            marked.set()
            through.wait()
            losing.lose()
        return {"items": ["late" * size]}

    def graph(saver: Any) -> Any:
        builder = StateGraph(STATES[channel])
        for node in (early, late):
            builder.add_node(node.__name__, node)
            builder.add_edge(START, node.__name__)
        return face(builder.compile(checkpointer=saver.target))

    living = open_saver(losing.url, redis_url)
    await living.setup()
    run = asyncio.create_task(graph(living).invoke({"items": ["start"]}, at(), durability="sync"))
    await asyncio.to_thread(marked.wait)
    await until(lambda: is_written(living))
    through.set()
    with pytest.raises(ConflictError):
        await run
    expected = {"items": ["start", "early" * size, "late" * size]}
    assert await until_served(lambda: graph(living).invoke(None, at())) == expected
    assert sorted(ran) == ["early", "early", "late"]
    for reader in (living, open_saver(losing.url, redis_url), open_saver(losing.url)):
        history = await graph(reader).get_state_history(at())
        assert [state.values for state in history][:2] == [expected, {"items": ["start"]}]


async def is_written(saver: Any) -> bool:
    """Whether the head has a pending write."""
    head = await head_of(saver)
    return bool(head and head.pending_writes)


# -- Redis goes back --------------------------------------------------------------------------


@pytest.mark.parametrize("meanwhile", ["went on", "was begun anew", "was set back, too"])
async def test_a_redis_from_a_backup_is_not_believed_about_positions(
    losing: Losing, open_saver: Open, make_valkey: MakeValkey, meanwhile: str
) -> None:
    """It holds another content for a position that was reached again."""
    server = make_valkey()
    living = open_saver(losing.url, server.url)
    await keep_three(living)
    if meanwhile == "was set back, too":
        await asyncio.to_thread(losing.mark)
    await go_on(living, items=[*KEPT["items"], *texts("lost", 1)])
    snapshot = server.snapshot()
    if meanwhile == "was begun anew":
        await living.delete_thread("t")
    elif meanwhile == "was set back, too":
        await asyncio.to_thread(losing.lose)
    for n in range(4):
        values = {"items": [*KEPT["items"], *texts("mine", n + 1)]}
        await go_on(living, **values)
        await asyncio.to_thread(server.restore, snapshot)
        fresh = [open_saver(losing.url, server.url, head_cache_bytes=m) for m in (0, 2**20)]
        for reader in (living, *fresh, *fresh):
            assert values_of(await reader.get_tuple(at())) == values
