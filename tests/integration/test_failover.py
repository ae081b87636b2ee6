"""A Postgres with a standby: it dies and the standby is promoted, or the standby lags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_durable_state import UnavailableError
from tests.calls import CALLS, STEPS, Open, done_right, three_steps
from tests.cases import (
    Face,
    at,
    cp,
    id_of,
    ids_of,
    put,
    until,
    until_served,
    values_of,
)
from tests.conftest import MakePgBouncer, MakePostgres
from tests.servers import PostgresServer, Proxy, Standby, several

MakeProxy = Callable[[str], Proxy]


@dataclass
class Pair:
    """A primary and its standby."""

    primary: PostgresServer
    standby: Standby

    @property
    def url(self) -> str:
        return several(self.primary.url, self.standby.url)

    def replicate_synchronously(self) -> None:
        """From now on nothing is acknowledged that the standby does not show."""
        self.primary.set(synchronous_standby_names="*", synchronous_commit="remote_apply")

    def fail_over(self) -> None:
        """The primary loses its power, and the standby takes over."""
        self.primary.kill()
        self.standby.promote()


@pytest.fixture
def pair(make_postgres: MakePostgres, make_standby: Callable[[PostgresServer], Standby]) -> Pair:
    """A primary and its standby that only this test uses."""
    primary = make_postgres(fsync="off")
    return Pair(primary, make_standby(primary))


# -- the primary dies -------------------------------------------------------------------------


async def test_every_call_goes_on_after_a_fail_over(
    pair: Pair, redis_url: str, open_saver: Open
) -> None:
    """By the same saver, with all that it had stored, as soon as there is a primary again."""
    options = {name: {"schema": f"s{n}", "prefix": f"p{n}"} for n, name in enumerate(CALLS)}
    savers = {name: open_saver(pair.url, redis_url, **options[name]) for name in CALLS}
    configs = {name: await three_steps(saver) for name, saver in savers.items()}
    pair.standby.catch_up()
    pair.primary.kill()
    for name, saver in savers.items():
        with pytest.raises(UnavailableError):
            await CALLS[name](saver, configs[name])
    await asyncio.to_thread(pair.standby.promote)
    for name, saver in savers.items():
        call = CALLS[name]
        result = await until_served(lambda c=call, s=saver, n=name: c(s, configs[n]))
        reader = open_saver(pair.url, redis_url, **options[name])
        assert await done_right(name, result, reader, configs[name]), name


async def test_what_was_acknowledged_under_synchronous_replication_survives_a_fail_over(
    pair: Pair, redis_url: str, open_saver: Open
) -> None:
    """Runs that advance threads all the while: each ends at the last put that was acknowledged."""
    saver = open_saver(pair.url, redis_url)
    await saver.setup()
    pair.replicate_synchronously()
    done = asyncio.Event()
    kept: dict[str, list[str]] = {f"t{n}": [] for n in range(4)}
    writers = [asyncio.create_task(advance(saver, t, kept[t], done)) for t in kept]
    await until(lambda: all_grew(kept, 5))
    await asyncio.to_thread(pair.fail_over)
    before = {thread: len(ids) for thread, ids in kept.items()}
    await until(lambda: all_grew(kept, 5, before))
    done.set()
    await asyncio.gather(*writers)
    reader = open_saver(pair.standby.url)
    for thread, ids in kept.items():
        stored = ids_of(await reader.list(at(thread)))[::-1]
        assert ids == [id for id in stored if id in set(ids)]
        assert ids[-1] == id_of((await reader.get_tuple(at(thread))).config)


async def advance(saver: Any, thread: str, kept: list[str], done: asyncio.Event) -> None:
    """Puts one checkpoint after the other; notes those acknowledged. After an error it starts
    from the head that is there."""
    found = None
    while not done.is_set():
        config = found.config if found else at(thread)
        known = found.checkpoint["channel_versions"]["c"] if found else None
        version = saver.target.get_next_version(known, None)
        made = cp({"c": len(kept)}, versions={"c": version})
        try:
            config = await put(saver, config, made)
            kept.append(id_of(config))
            found = await saver.get_tuple(at(thread))
        except UnavailableError:
            found = await until_served(lambda: saver.get_tuple(at(thread)))


async def all_grew(
    kept: dict[str, list[str]], by: int, before: dict[str, int] | None = None
) -> bool:
    return all(len(ids) >= (before or {}).get(t, 0) + by for t, ids in kept.items())


async def test_a_run_in_flight_goes_on_after_a_fail_over(
    pair: Pair, redis_url: str, open_saver: Open, face: Face
) -> None:
    """The primary is replaced while a node runs; the run ends as if nothing had happened."""
    saver = open_saver(pair.url, redis_url)
    builder = StateGraph(dict)
    builder.add_node("first", lambda state: {"seen": ["first"]})
    builder.add_node("second", lambda state: lose_primary(state))
    builder.add_node("third", lambda state: {"seen": [*state["seen"], "third"]})
    for start, end in (START, "first"), ("first", "second"), ("second", "third"), ("third", END):
        builder.add_edge(start, end)

    def lose_primary(state: dict[str, Any]) -> dict[str, Any]:
        pair.fail_over()
        return {"seen": [*state["seen"], "second"]}

    await saver.setup()
    pair.replicate_synchronously()
    graph = face(builder.compile(checkpointer=saver.target))
    ended = await graph.invoke({"seen": []}, at(), durability="sync")
    assert ended == {"seen": ["first", "second", "third"]}
    read = face(builder.compile(checkpointer=open_saver(pair.url).target))
    history = await read.get_state_history(at())
    assert [state.next for state in history] == [(), ("third",), ("second",), ("first",), (START,)]


async def test_a_primary_that_falls_silent_is_given_up_after_one_call(
    pair: Pair, open_saver: Open, make_proxy: MakeProxy
) -> None:
    """However many sessions it leaves open that will never answer."""
    proxy = make_proxy(pair.primary.url)
    saver = open_saver(several(proxy.url, pair.standby.url))
    configs = await three_steps(saver)
    await asyncio.gather(*(saver.get_tuple(config) for config in configs * 3))
    pair.standby.catch_up()
    proxy.blackhole()
    await asyncio.to_thread(pair.standby.promote)
    with pytest.raises(UnavailableError):
        await saver.get_tuple(at())
    assert STEPS[2] == values_of(await until_served(lambda: saver.get_tuple(at())))


async def test_a_first_host_that_is_silent_leaves_time_for_the_next(
    pair: Pair, open_saver: Open, make_proxy: MakeProxy
) -> None:
    """The first call of a process is answered."""
    proxy = make_proxy(pair.standby.url)
    proxy.blackhole()
    saver = open_saver(several(proxy.url, pair.primary.url))
    await three_steps(saver)
    assert STEPS[2] == values_of(await saver.get_tuple(at()))


# -- the standby lags -------------------------------------------------------------------------


@pytest.fixture
async def lagging(pair: Pair, redis_url: str, open_saver: Open) -> tuple[Pair, list[Any]]:
    """A standby that still shows the thread as `three_steps` left it, while its primary has gone
    on; and the configs of those steps."""
    saver = open_saver(pair.url, redis_url)
    configs = await three_steps(saver)
    pair.standby.catch_up()
    pair.standby.pause()
    await put(saver, configs[2], cp({"c": "newer"}, versions={"c": "4"}))
    return pair, configs


THROUGH = ["its URL", "a URL of several", "a URL that says any", "a pool", "a pooler"]


@pytest.mark.parametrize("through", THROUGH)
async def test_a_lagging_standby_answers_no_call(
    lagging: tuple[Pair, list[Any]],
    redis_url: str,
    open_saver: Open,
    face: Face,
    make_pgbouncer: MakePgBouncer,
    ends_in_loop: AsyncExitStack,
    through: str,
) -> None:
    """Alone, it is an error that says so; promoted, it is the primary."""
    pair, configs = lagging
    source: Any = pair.standby.url
    if through == "a URL of several":
        source = pair.url
    elif through == "a URL that says any":
        source = f"{pair.url}?target_session_attrs=any"
    elif through == "a pool":
        source = await opened_pool(face, source, ends_in_loop)
    elif through == "a pooler":
        source = make_pgbouncer(pair.standby.url).url
    pair.primary.kill()
    savers = {name: open_saver(source, redis_url, auto_setup=name == "setup") for name in CALLS}
    for name, saver in savers.items():
        with pytest.raises(UnavailableError, match=r"standby|read-only"):
            await CALLS[name](saver, configs)
    await asyncio.to_thread(pair.standby.promote)
    for saver in savers.values():
        found = await until_served(lambda s=saver: s.get_tuple(at()))
        assert values_of(found) == {"c": "newer"}


async def opened_pool(face: Face, url: str, ends: AsyncExitStack) -> Any:
    """A pool of the user's."""
    if face.native:
        return await ends.enter_async_context(AsyncConnectionPool(url, open=False))
    return ends.enter_context(ConnectionPool(url, open=False))


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_standby_behind_the_same_address_is_never_taken_for_the_primary(
    lagging: tuple[Pair, list[Any]],
    redis_url: str,
    open_saver: Open,
    make_proxy: MakeProxy,
    make_pgbouncer: MakePgBouncer,
    pooled: bool,
) -> None:
    """Not even by a session that went on through the pooler."""
    pair, configs = lagging
    proxy = make_proxy(pair.primary.url)
    url = make_pgbouncer(proxy.url).url if pooled else proxy.url
    savers = {name: open_saver(url, redis_url) for name in CALLS}
    for saver in savers.values():
        assert values_of(await saver.get_tuple(at())) == {"c": "newer"}
    proxy.lead_to(pair.standby.url)
    for name, saver in savers.items():
        with pytest.raises(UnavailableError, match=r"standby|read-only"):
            await CALLS[name](saver, configs)
    proxy.lead_to(pair.primary.url)
    for saver in savers.values():
        found = await until_served(lambda s=saver: s.get_tuple(at()))
        assert values_of(found) == {"c": "newer"}


@pytest.mark.parametrize("first", ["primary", "standby"])
async def test_of_several_hosts_the_primary_is_used(
    lagging: tuple[Pair, list[Any]], redis_url: str, open_saver: Open, first: str
) -> None:
    """Whichever is named first."""
    pair, _ = lagging
    urls = [pair.primary.url, pair.standby.url]
    saver = open_saver(several(*(urls if first == "primary" else urls[::-1])), redis_url)
    found = await saver.get_tuple(at())
    assert values_of(found) == {"c": "newer"}
    await put(saver, found.config, cp({"c": "newest"}, versions={"c": "5"}))
    assert values_of(await saver.get_tuple(at())) == {"c": "newest"}
