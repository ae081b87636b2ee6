"""Where and as whom Redis clients of either face connect, from a URL or from another client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel

from langgraph_durable_state import DurableSaver, UsageError
from langgraph_durable_state.drivers.redis_clients import target_of

MODULES = [redis, redis.asyncio]

TLS = {"ssl": True, "ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}


def told(client: Any) -> dict[str, Any]:
    """How a client's next connection is made."""
    made = client.connection_pool.make_connection()
    options = client.connection_pool.connection_kwargs
    kinds = [c.__name__ for c in type(made).mro()]
    known = {n: options.get(n) for n in ("host", "port", "db", "username", "password", "path")}
    known |= {n: options.get(n) for n in ("socket_timeout", "ssl_ca_certs", "ssl_check_hostname")}
    found = {name: value for name, value in known.items() if value is not None}
    return found | {"tls": "SSLConnection" in kinds}


def sentinels(client: Any) -> list[dict[str, Any]]:
    """How the Sentinels behind a client are asked."""
    return [told(one) for one in client.connection_pool.sentinel_manager.sentinels]


@pytest.mark.parametrize("module", MODULES)
def test_one_server(module: Any) -> None:
    """As redis-py reads its URL; what the URL says of time-outs counts."""
    client = target_of("redis://u:p%40@h:1/2?socket_timeout=3").client(module, 0.5)
    who = {"username": "u", "password": "p@"}
    assert {"host": "h", "port": 1, "db": 2, **who, "socket_timeout": 3, "tls": False} == told(
        client
    )


def test_a_cluster() -> None:
    """Its nodes share the login; a port may be left out."""
    url = "rediss+cluster://u:p%40@h,[::1]:1/0?ssl_ca_certs=/ca.pem"
    client = target_of(url).client(redis.asyncio, 0.5)
    assert [(n.host, n.port) for n in client.nodes_manager.startup_nodes.values()] == [
        ("h", 6379),
        ("::1", 1),
    ]
    found = client.get_connection_kwargs()
    assert (found["username"], found["password"], found["socket_timeout"]) == ("u", "p@", 0.5)
    assert found["connection_class"] is redis.asyncio.SSLConnection
    assert found["ssl_ca_certs"] == "/ca.pem"


@pytest.mark.parametrize("module", MODULES)
def test_a_master_by_sentinels(module: Any) -> None:
    """The Sentinels have a login of their own, the same certificates, and share the time-out."""
    url = (
        "rediss+sentinel://u:p%40@h1,h2:1/my%20service/3"
        "?sentinel_username=s&sentinel_password=%2F&ssl_ca_certs=/ca.pem"
    )
    client = target_of(url).client(module, 0.5)
    tls = {"ssl_ca_certs": "/ca.pem", "tls": True}
    assert client.connection_pool.service_name == "my service"
    master = {"db": 3, "username": "u", "password": "p@", "socket_timeout": 0.5}
    assert master | tls == told(client)
    theirs = {"username": "s", "password": "/", "socket_timeout": 0.25}
    assert sentinels(client) == [
        {"host": "h1", "port": 26379} | theirs | tls,
        {"host": "h2", "port": 1} | theirs | tls,
    ]


def test_a_login_of_the_servers_is_not_told_to_sentinels() -> None:
    """Who has none would refuse it."""
    client = target_of("redis+sentinel://u:p@h/s").client(redis, 0.5)
    assert [set(one) for one in sentinels(client)] == [{"host", "port", "socket_timeout", "tls"}]


@pytest.mark.parametrize("theirs", MODULES)
@pytest.mark.parametrize("ours", MODULES)
def test_a_servers_client_is_copied(theirs: Any, ours: Any) -> None:
    """For the other face, or for another loop: over TLS or a Unix socket too."""
    who = {"db": 2, "username": "u", "password": "p"}
    secure = theirs.Redis(host="h", port=1, **who, **TLS)
    plain = theirs.Redis(unix_socket_path="/s", **who)
    timeout = {"socket_timeout": 0.5}
    tls = {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False, "tls": True}
    expected = {"host": "h", "port": 1} | who | tls | timeout
    assert expected == told(target_of(secure).client(ours, 0.5))
    expected = {"path": "/s"} | who | {"tls": False} | timeout
    assert expected == told(target_of(plain).client(ours, 0.5))


def test_a_credential_provider_is_copied() -> None:
    """It serves both faces."""
    provider = redis.UsernamePasswordCredentialProvider("u", "p")
    copied = target_of(redis.Redis(credential_provider=provider)).client(redis.asyncio, 0.5)
    assert copied.connection_pool.connection_kwargs["credential_provider"] is provider


def test_a_clusters_client_is_copied() -> None:
    """With what it thinks of the nodes' addresses."""

    def remap(address: Any) -> Any:
        return address

    client = AsyncRedisCluster("h", 1, username="u", password="p", address_remap=remap, **TLS)  # type: ignore[arg-type]
    copied = target_of(client).client(redis.asyncio, 0.5)
    assert [n.name for n in copied.nodes_manager.startup_nodes.values()] == ["h:1"]
    assert copied.nodes_manager.address_remap is remap
    found, before = copied.get_connection_kwargs(), client.get_connection_kwargs()
    for name in ("username", "password", "connection_class", "ssl_ca_certs", "ssl_check_hostname"):
        assert found[name] == before[name]


@pytest.mark.parametrize("theirs", [Sentinel, AsyncSentinel])
@pytest.mark.parametrize("ours", MODULES)
def test_a_masters_client_is_copied(theirs: Any, ours: Any) -> None:
    """With its Sentinels, how they are asked, and how many of them it wants."""
    manager = theirs(
        [("h1", 1), ("h2", 2)], min_other_sentinels=1, sentinel_kwargs={"password": "s", **TLS}
    )
    client = manager.master_for("service", db=3, username="u", password="p")
    copied = target_of(client).client(ours, 0.5)
    who = {"db": 3, "username": "u", "password": "p"}
    assert who | {"socket_timeout": 0.5, "tls": False} == told(copied)
    tls = {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False, "tls": True}
    assert [(o["host"], o["port"]) for o in sentinels(copied)] == [("h1", 1), ("h2", 2)]
    for one in sentinels(copied):
        assert one.items() >= ({"password": "s", "socket_timeout": 0.25} | tls).items()
    assert copied.connection_pool.sentinel_manager.min_other_sentinels == 1


def test_the_constructor_asks_nobody() -> None:
    """Nothing listens there, and nothing is said until the first call."""
    for url in ("redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1,127.0.0.1:2/agents"):
        DurableSaver("postgresql://127.0.0.1:1/none", url).close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+socket://h", "redis URL: use"),
        ("unix+cluster:///s", "redis URL: use"),
        ("redis+cluster://h:port", "redis URL: use"),
        ("redis+cluster://h:1,", "a host is missing"),
        ("redis+cluster://u:p@", "a host is missing"),
        ("redis+cluster://h/1", "database 0 only"),
        ("redis+cluster://h?db=1", "database 0 only"),
        ("redis+sentinel://h", "comes /service"),
        ("redis+sentinel://h/service/1/2", "comes /service"),
        ("redis+sentinel://h/service/first", "redis URL: use"),
        ("redis://h?colour=blue", "colour"),
        ("redis+cluster://h?colour=blue", "colour"),
        ("redis+sentinel://h/service?colour=blue", "colour"),
        ("redis+cluster://h?max_connections=0", "at least 1"),
        ("rediss+cluster://h?ssl_colour=blue", "ssl_colour"),
        ("redis://h?decode_responses=yes", "state is bytes"),
        ("redis+cluster://h?decode_responses=yes", "state is bytes"),
    ],
)
def test_urls_that_cannot_be_used_are_refused(url: str, message: str) -> None:
    """At once, with what is wrong."""
    with pytest.raises(UsageError, match=message):
        DurableSaver("postgresql://x", url)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
def test_a_refusal_tells_no_part_of_a_password(scheme: str) -> None:
    """A slash in it that is not written %2F makes it look like a port."""
    with pytest.raises(UsageError) as error:
        DurableSaver("postgresql://x", f"{scheme}://:hunter/two@h:1/service")
    assert error.value.__cause__ is None
    assert not any(part in str(error.value) for part in ("hunter", "two"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AsyncRedisCluster("h", decode_responses=True), "must not decode"),
        (lambda: Sentinel([("h", 1)]).master_for("s", decode_responses=True), "must not decode"),
        (lambda: AsyncSentinel([("h", 1)], decode_responses=True).master_for("s"), "must not"),
        (lambda: Sentinel([("h", 1)]).slave_for("s"), "use Sentinel.master_for"),
        (lambda: AsyncSentinel([("h", 1)]).slave_for("s"), "use Sentinel.master_for"),
    ],
)
def test_clients_that_cannot_be_used_are_refused(make: Callable[[], Any], message: str) -> None:
    """At once: those that decode, and those of replicas."""
    with pytest.raises(UsageError, match=message):
        DurableSaver("postgresql://x", make())
