"""Redis as a Cluster, and behind Sentinels: on both faces, by URL and by redis-py's clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any

import pytest
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.cluster import RedisCluster
from redis.sentinel import Sentinel

from langgraph_durable_state import CorruptionError, DurableSaver, UnavailableError, UsageError
from langgraph_durable_state.decisions.keys import hot_key, place_of
from tests.cases import FACES, Face, at, cp, id_of, put, query, until, values_of
from tests.conftest import MakeCluster
from tests.contract.test_conformance import conforms
from tests.faces import OnBlockingFace
from tests.servers import (
    LOGIN,
    LOOPBACK,
    SENTINEL_PASSWORD,
    Proxy,
    ValkeyCluster,
    ValkeySentinels,
    ValkeyServer,
    told,
    wait_until,
)

SOURCES = ["URL", "blocking client", "native client"]

LONG = "x" * 5000
"""What is stored as a chunk of its own."""


class Users:
    """One saver without a head cache, seen through both faces."""

    def __init__(self, saver: DurableSaver) -> None:
        self.faces = [Face(name)(saver) for name in FACES]

    async def read(self, threads: list[str]) -> list[Any]:
        """The values of their heads, which are the same on both faces."""
        jobs = [face.get_tuple(at(thread)) for face in self.faces for thread in threads]
        found = [values_of(head) for head in await asyncio.gather(*jobs)]
        assert found[: len(threads)] == found[len(threads) :]
        return found[: len(threads)]

    async def read_again(self, threads: list[str], text: str) -> None:
        """Returns once Redis alone has answered for all of them."""

        async def answered() -> bool:
            try:
                return values(threads, text) == await self.read(threads)
            except (CorruptionError, UnavailableError):
                return False

        await until(answered)

    async def write(self, threads: list[str], text: str) -> list[str]:
        """The ids of a next checkpoint of each thread, put through one face or the other."""

        async def step(number: int, thread: str) -> str:
            face = self.faces[number % 2]
            head = await face.get_tuple(at(thread))
            last = int(head.checkpoint["channel_versions"]["c"]) if head else 0
            config = head.config if head else at(thread)
            made = cp({"c": text + LONG}, versions={"c": f"{last + 1}"})
            return id_of(await put(face, config, made))

        return await asyncio.gather(*(step(*each) for each in enumerate(threads)))


@pytest.fixture
async def users(postgres_url: str, ends_in_loop: AsyncExitStack) -> Callable[..., Users]:
    """Opens a saver that keeps every head in Redis, closed after the test. It waits for a busy
    machine: here a server that does not answer in time is a failure."""

    def opened(source: Any, redis_timeout: float = 5.0) -> Users:
        options: dict[str, Any] = {"hot_reads": "always", "redis_timeout": redis_timeout}
        saver = DurableSaver(postgres_url, source, head_cache_bytes=0, **options)
        ends_in_loop.push_async_callback(saver.aclose)
        return Users(saver)

    return opened


@contextmanager
def redis_alone(postgres_url: str) -> Iterator[None]:
    """While Postgres has no chunks, a head that it is asked for is damaged."""
    query(postgres_url, "CREATE TABLE kept AS SELECT * FROM durable_state.chunk")
    query(postgres_url, "DELETE FROM durable_state.chunk")
    yield
    query(postgres_url, "INSERT INTO durable_state.chunk SELECT * FROM kept")
    query(postgres_url, "DROP TABLE kept")


def key_of(thread: str) -> str:
    return hot_key("durable_state", place_of(at(thread)))


def threads_on(cluster: ValkeyCluster, server: ValkeyServer, count: int) -> list[str]:
    """Threads whose keys this master has."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        if cluster.holder(key_of(f"t{number}")) is server:
            found.append(f"t{number}")
        number += 1
    return found


def threads_everywhere(cluster: ValkeyCluster, each: int = 4) -> list[str]:
    """As many threads on each master."""
    return [t for server in cluster.masters for t in threads_on(cluster, server, each)]


def values(threads: list[str], text: str) -> list[Any]:
    return [{"c": text + LONG} for _ in threads]


# -- Cluster ----------------------------------------------------------------------------------


async def cluster_source(kind: str, cluster: ValkeyCluster, ends: AsyncExitStack) -> Any:
    """What a user gives for `redis`."""
    place: dict[str, Any] = {"host": LOOPBACK, "port": cluster.masters[0].port, **cluster.login}
    if kind == "blocking client":
        return ends.enter_context(RedisCluster(**place))
    if kind == "native client":
        client = AsyncRedisCluster(**place)
        ends.push_async_callback(client.aclose)
        return client
    return cluster.url


@pytest.mark.parametrize("kind", SOURCES)
async def test_all_nodes_of_a_cluster_serve_heads(
    postgres_url: str,
    cluster: ValkeyCluster,
    users: Callable[..., Users],
    ends_in_loop: AsyncExitStack,
    kind: str,
) -> None:
    """Whatever is given for it, many at once, and again after the scripts were forgotten."""
    threads = threads_everywhere(cluster, each=20)
    saver = users(await cluster_source(kind, cluster, ends_in_loop))
    for text in ("first", "second"):
        await saver.write(threads, text)
    assert [told(node, "DBSIZE") for node in cluster.masters] == [20, 20, 20]
    with redis_alone(postgres_url):
        assert values(threads, "second") == await saver.read(threads)
        for node in cluster.masters:
            told(node, "SCRIPT", "FLUSH")
        assert values(threads, "second") == await saver.read(threads)
    await saver.faces[0].delete_thread(threads[0])
    await saver.faces[1].delete_thread(threads[1])
    assert told(cluster.masters[0], "DBSIZE") == 18


@pytest.mark.parametrize("kind", ["URL", "native client"])
def test_a_cluster_serves_several_loops(
    postgres_url: str, cluster: ValkeyCluster, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client belongs to the loop it is first used in; in the next, we connect where it does. What
    is ours goes with its loop, whether or not the saver is closed."""
    client = AsyncRedisCluster(LOOPBACK, cluster.masters[0].port, **cluster.login)
    source = client if kind == "native client" else cluster.url
    saver = DurableSaver(postgres_url, source, hot_reads="always", head_cache_bytes=0)
    threads = threads_everywhere(cluster)

    async def used(text: str, end: Callable[[], Any]) -> None:
        for thread in threads:
            await put(Face("native")(saver), at(thread), cp({"c": text + LONG}))
        with redis_alone(postgres_url):
            heads = [await saver.aget_tuple(at(thread)) for thread in threads]
        assert values(threads, text) == [values_of(head) for head in heads]
        await end()

    asyncio.run(used("first", client.aclose))
    asyncio.run(used("second", saver.aclose))
    assert [r.getMessage() for r in caplog.records] == []


@pytest.mark.parametrize("hot_reads", ["auto", "always"])
@pytest.mark.parametrize("face", FACES)
async def test_a_saver_on_a_cluster_conforms(
    postgres_url: str, cluster: ValkeyCluster, face: str, hot_reads: Any
) -> None:
    """LangGraph's own suite."""
    wrap: Any = OnBlockingFace if face == "blocking" else lambda saver: saver
    await conforms(lambda: DurableSaver(postgres_url, cluster.url, hot_reads=hot_reads), wrap)


@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_a_cluster_that_is_not_there_keeps_nobody_from_working(
    postgres_url: str, make_cluster: MakeCluster, users: Callable[..., Users], when: str
) -> None:
    """Not even the first node answers; once they do they are used, by themselves."""
    cluster = make_cluster()
    threads = threads_everywhere(cluster)
    saver = users(cluster.url)
    if when == "later":
        await saver.write(threads, "before")
        assert values(threads, "before") == await saver.read(threads)
    for node in cluster.nodes:
        node.kill()
    for text in ("first", "second"):
        await saver.write(threads, text)
        assert values(threads, text) == await saver.read(threads)
    for node in cluster.nodes:
        node.start()
    cluster.wait_until_whole()

    async def is_hot() -> bool:
        assert values(threads, "second") == await saver.read(threads)
        return all(told(node, "DBSIZE") == 4 for node in cluster.masters)

    await until(is_hot)
    with redis_alone(postgres_url):
        await saver.read_again(threads, "second")


async def test_a_cluster_that_lost_a_master_changes_no_answer(
    postgres_url: str, make_cluster: MakeCluster, users: Callable[..., Users]
) -> None:
    """It is down as a whole then. Puts succeed, reads are right; once it is back it is used."""
    cluster = make_cluster()
    threads = threads_everywhere(cluster)
    saver = users(cluster.url)
    await saver.write(threads, "first")
    lost = cluster.masters[1]
    lost.kill()
    assert values(threads, "first") == await saver.read(threads)
    await saver.write(threads, "second")
    down = b"cluster_state:fail"
    wait_until(lambda: down in told(cluster.masters[0], "CLUSTER", "INFO"), "it is down")
    assert values(threads, "second") == await saver.read(threads)
    await saver.write(threads, "third")
    assert values(threads, "third") == await saver.read(threads)
    lost.start()
    cluster.wait_until_whole()
    for reader in (users(cluster.url), saver):
        assert values(threads, "third") == await reader.read(threads)

    async def is_hot() -> bool:
        assert values(threads, "third") == await saver.read(threads)
        return told(lost, "DBSIZE") == 4

    await until(is_hot)
    with redis_alone(postgres_url):
        await saver.read_again(threads, "third")


async def test_a_dead_master_does_not_keep_the_others_from_serving(
    postgres_url: str,
    make_cluster: MakeCluster,
    users: Callable[..., Users],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where the cluster allows it. It is said once per face. What it may have right is awaited."""
    cluster = make_cluster(cluster_require_full_coverage="no")
    dead = cluster.masters[2]
    served = [t for node in cluster.masters[:2] for t in threads_on(cluster, node, 4)]
    lost = threads_on(cluster, dead, 1)
    saver = users(cluster.url)
    await saver.write(served + lost, "first")
    dead.kill()
    with redis_alone(postgres_url):
        for _ in range(10):
            for face in saver.faces:
                with pytest.raises(UnavailableError):
                    await face.get_tuple(at(lost[0]))
            assert values(served, "first") == await saver.read(served)
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    failed = f"Redis node {LOOPBACK}:{dead.port} failed"
    assert [failed in each for each in said if lost[0] not in each] == [True]


async def test_a_node_that_never_answers_costs_a_few_calls_only(
    make_cluster: MakeCluster, users: Callable[..., Users], ends: ExitStack
) -> None:
    """Puts succeed, reads are right, few connections are tried; later it is used again."""
    cluster = make_cluster()
    node = cluster.masters[2]
    proxy = ends.enter_context(Proxy(node.url))
    told(node, "CONFIG", "SET", "cluster-announce-port", proxy.port)
    port = str(proxy.port).encode()
    others = cluster.masters[:2]
    wait_until(lambda: all(port in told(n, "CLUSTER", "NODES") for n in others), "its new port")
    threads = threads_on(cluster, node, 2)
    saver = users(cluster.url, redis_timeout=0.3)
    await saver.write(threads, "first")
    assert proxy.accepted
    proxy.blackhole()
    before = proxy.accepted
    for n in range(10):
        await saver.write(threads, str(n))
        assert values(threads, str(n)) == await saver.read(threads)
    assert proxy.accepted - before <= 8
    proxy.restore()

    async def is_hot() -> bool:
        ids = [id_of((await saver.faces[0].get_tuple(at(t))).config).encode() for t in threads]
        return ids == [told(node, "HGET", key_of(thread), "id") for thread in threads]

    await until(is_hot)


async def test_a_replica_that_took_over_is_used(
    postgres_url: str, make_cluster: MakeCluster, users: Callable[..., Users]
) -> None:
    """The saver goes on meanwhile, and serves no head that the replica has missed."""
    cluster = make_cluster(replicas=1)
    master, replica = cluster.masters[0], cluster.replicas[0]
    threads = threads_on(cluster, master, 4)
    saver = users(cluster.url)
    await saver.write(threads, "first")
    master.kill()
    await saver.write(threads, "second")
    for reader in (saver, users(cluster.url)):
        assert values(threads, "second") == await reader.read(threads)
    wait_until(lambda: told(replica, "ROLE")[0] == b"master", "the replica's promotion")

    async def is_hot() -> bool:
        assert values(threads, "second") == await saver.read(threads)
        ids = [id_of((await saver.faces[0].get_tuple(at(t))).config).encode() for t in threads]
        return ids == [told(replica, "HGET", key_of(thread), "id") for thread in threads]

    await until(is_hot)
    with redis_alone(postgres_url):
        await saver.read_again(threads, "second")


async def test_copies_move_with_their_slots(
    postgres_url: str, make_cluster: MakeCluster, users: Callable[..., Users]
) -> None:
    """Nothing fails while a master hands over all that it has, and its copies are found again."""
    cluster = make_cluster(cluster_allow_replica_migration="no")
    giver, taker = cluster.masters[:2]
    threads = threads_on(cluster, giver, 8)
    saver = users(cluster.url)
    await saver.write(threads, "first")
    target = told(taker, "CLUSTER", "MYID")
    told(giver, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", 0, 16384 // 3, "NODE", target)
    turns = 0
    while told(giver, "DBSIZE"):
        turns += 1
        await saver.write(threads, str(turns))
        assert values(threads, str(turns)) == await saver.read(threads)
    await saver.write(threads, "last")
    with redis_alone(postgres_url):
        await saver.read_again(threads, "last")
    assert told(taker, "DBSIZE") == 8


# -- Sentinel ---------------------------------------------------------------------------------


async def sentinel_source(kind: str, servers: ValkeySentinels, ends: AsyncExitStack) -> Any:
    """What a user gives for `redis`."""
    options: dict[str, Any] = LOGIN | {
        "socket_timeout": 5,
        "sentinel_kwargs": {"password": SENTINEL_PASSWORD, "socket_timeout": 5},
    }
    if kind == "blocking client":
        blocking = Sentinel(servers.addresses, **options)
        for each in blocking.sentinels:
            ends.callback(each.close)
        return ends.enter_context(blocking.master_for(servers.service))
    if kind == "native client":
        native = AsyncSentinel(servers.addresses, **options)
        client = native.master_for(servers.service)
        for each in (*native.sentinels, client):
            ends.push_async_callback(each.aclose)
        return client
    return servers.url


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_fail_over_by_sentinels_shows_in_no_read(
    postgres_url: str,
    make_sentinels: Callable[[], ValkeySentinels],
    users: Callable[..., Users],
    ends_in_loop: AsyncExitStack,
    kind: str,
) -> None:
    """To a replica that missed the last turns, then back to a master that was away; in between the
    new master's copies are used."""
    servers = make_sentinels()
    threads = [f"t{n}" for n in range(8)]
    saver = users(await sentinel_source(kind, servers, ends_in_loop))
    await saver.write(threads, "first")
    with redis_alone(postgres_url):
        assert values(threads, "first") == await saver.read(threads)
    servers.cut_off_replica()
    await saver.write(threads, "second")
    servers.fail_over()
    assert [told(servers.master, "HEXISTS", key_of(t), "id") for t in threads] == [1] * 8
    for reader in (saver, users(servers.url)):
        assert values(threads, "second") == await reader.read(threads)
    for n in range(3):
        await saver.write(threads, str(n))
        assert values(threads, str(n)) == await saver.read(threads)

    async def is_hot() -> bool:
        assert values(threads, "2") == await saver.read(threads)
        ids = [id_of((await saver.faces[0].get_tuple(at(t))).config).encode() for t in threads]
        return ids == [told(servers.master, "HGET", key_of(t), "id") for t in threads]

    await until(is_hot)
    with redis_alone(postgres_url):
        await saver.read_again(threads, "2")


async def test_sentinels_that_are_gone_change_no_answer(
    make_sentinels: Callable[[], ValkeySentinels],
    users: Callable[..., Users],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who needs them does without Redis, and says so without saying how they are reached."""
    servers = make_sentinels()
    await users(servers.url).write(["t"], "first")
    for sentinel in servers.sentinels:
        sentinel.kill()
    saver = users(servers.url)
    assert values(["t"], "first") == await saver.read(["t"])
    await saver.write(["t"], "second")
    assert values(["t"], "second") == await saver.read(["t"])
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert said == ["Redis failed and is used again once it answers: No master found for 'agents'"]


# -- what cannot be used ----------------------------------------------------------------------


def test_a_cluster_client_that_decodes_is_refused(cluster: ValkeyCluster) -> None:
    """As any other."""
    place: dict[str, Any] = {"host": LOOPBACK, "port": cluster.masters[0].port}
    with (
        RedisCluster(**place, decode_responses=True) as client,
        pytest.raises(UsageError, match="must not decode"),
    ):
        DurableSaver("postgresql://x", client)


async def test_a_url_of_one_server_that_is_a_clusters_node_is_explained(
    postgres_url: str,
    cluster: ValkeyCluster,
    users: Callable[..., Users],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The saver works as without Redis."""
    threads = threads_on(cluster, cluster.masters[1], 2)
    saver = users(cluster.url.replace("+cluster", "").partition(",")[0])
    await saver.write(threads, "first")
    assert values(threads, "first") == await saver.read(threads)
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert ["redis+cluster://" in each for each in said] == [True]
