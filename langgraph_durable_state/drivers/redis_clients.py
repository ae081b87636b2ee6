"""Redis clients for either face: of one server, of a Cluster, or of the master that Sentinels name.

A URL, or the client that a user handed over for the other face, becomes a `Target`: where and as
whom to connect. Nothing here connects, but for the blocking face's cluster client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any
from urllib.parse import unquote

import redis
import redis.asyncio.cluster
import redis.asyncio.sentinel
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, RedisError

from ..errors import UsageError

RedisSource = str | redis.Redis | redis.asyncio.Redis | RedisCluster | AsyncRedisCluster

BLOCKING = (redis.Redis, RedisCluster)
NATIVE = (redis.asyncio.Redis, AsyncRedisCluster)
_CLUSTER = (RedisCluster, AsyncRedisCluster)
_SENTINEL = (redis.sentinel.SentinelConnectionPool, redis.asyncio.sentinel.SentinelConnectionPool)

TURNS = 32
"""Calls at once. The others wait for their turn, since redis-py's pools fail when they are full."""

_WHERE = ("host", "port", "path")
_WHO = ("db", "username", "password", "credential_provider")

_NEW = int(redis.__version__.partition(".")[0]) >= 6
"""Whether a cluster client's retries are set by its `retry`, as they are since redis-py 6."""

_STALE = (RedisConnectionError,)
"""What is tried again, once and at once: the connection was from before a restart. A time-out is
not, or a call would take several."""

_URL = re.compile(
    r"(?P<scheme>rediss?)\+(?P<set>cluster|sentinel)://(?:(?P<who>[^/?#]*)@)?(?P<members>[^/?#@]*)"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?"
)


@dataclass(frozen=True)
class Target:
    """Where and as whom to connect.

    Attributes:
        options: of the connections, as redis-py calls them.
        kind: name of redis-py's class of such connections.
        turns: how many calls may be under way.
        more: further options of the client.
    """

    options: Mapping[str, Any]
    kind: str = "Connection"
    turns: int = TURNS
    more: Mapping[str, Any] = field(default_factory=dict)

    def client(self, module: Any, timeout: float) -> Any:
        """A client.

        Args:
            module: `redis` or `redis.asyncio`.
            timeout: seconds to wait for a connection, and for an answer.
        """
        raise NotImplementedError

    def _options(self, module: Any, timeout: float, retries: int) -> dict[str, Any]:
        """Options of connections, those about TLS as far as this face knows them."""
        known = signature(getattr(module.connection, self.kind)).parameters
        return {
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "retry": module.retry.Retry(NoBackoff(), retries, _STALE),
            **{n: v for n, v in self.options.items() if n in known or not n.startswith("ssl_")},
        }


@dataclass(frozen=True)
class Server(Target):
    """One server."""

    def client(self, module: Any, timeout: float, retries: int = 1) -> Any:
        pool = module.ConnectionPool(
            connection_class=getattr(module.connection, self.kind),
            max_connections=self.turns,
            retry_on_error=[RedisConnectionError],
            **self._options(module, timeout, retries),
        )
        return module.Redis.from_pool(pool)


@dataclass(frozen=True)
class Cluster(Target):
    """A Cluster. While none of its nodes can be reached, a call tries each that the client knows.

    Attributes:
        nodes: hosts and ports of some, which know the others.
    """

    nodes: tuple[tuple[str, int], ...] = ()

    def client(self, module: Any, timeout: float) -> Any:
        options = self._options(module, timeout, 1 if _NEW else 0)
        if not _NEW:
            options["cluster_error_retry_attempts"] = 1
        return module.cluster.RedisCluster(
            startup_nodes=[module.cluster.ClusterNode(*node) for node in self.nodes],
            ssl=self.kind == "SSLConnection",
            # A connection that it gives up counts until it is closed.
            max_connections=2 * self.turns,
            **options,
            **self.more,
        )


@dataclass(frozen=True)
class Master(Target):
    """The server that Sentinels say is the master.

    Attributes:
        service: its name among Sentinels.
        sentinels: whom to ask, one after the other: they share one time-out.
    """

    service: str = ""
    sentinels: tuple[Server, ...] = ()

    def client(self, module: Any, timeout: float) -> Any:
        manager = module.sentinel.Sentinel([], **self.more)
        each = timeout / len(self.sentinels)
        manager.sentinels = [one.client(module, each, retries=0) for one in self.sentinels]
        return manager.master_for(
            self.service,
            ssl=self.kind == "SSLConnection",
            max_connections=self.turns,
            retry_on_error=[RedisConnectionError],
            **self._options(module, timeout, 1),
        )


def node_of(client: Any, key: str) -> str | None:
    """The node of a cluster that has a key, as far as the client knows."""
    if not isinstance(client, _CLUSTER):
        return None
    try:
        name: str = client.get_node_from_key(key).name  # type: ignore[union-attr]
        return name
    except RedisClusterException:
        return None


def all_of(client: Any) -> list[Any]:
    """A client, and those that it asks for the master: what is to be closed."""
    pool = getattr(client, "connection_pool", None)
    return [client, *(pool.sentinel_manager.sentinels if isinstance(pool, _SENTINEL) else ())]


def check(source: object) -> None:
    """Refuses what no client can be made from, without connecting.

    Raises:
        UsageError: if it is neither a URL nor a client that can be used.
    """
    if isinstance(source, str):
        _check_url(source)
    elif not isinstance(source, (*BLOCKING, *NATIVE)):
        raise UsageError(f"redis must be a URL or a redis client, not {type(source).__name__}")
    elif _options_of(source).get("decode_responses"):
        raise UsageError("the redis client must not decode responses: state is bytes")
    elif not getattr(getattr(source, "connection_pool", None), "is_master", True):
        raise UsageError("the redis client must be that of the master: use Sentinel.master_for")


@lru_cache(maxsize=8)  # three milliseconds, most of which redis-py spends on its own version
def _check_url(url: str) -> None:
    try:
        target = target_of(url)
        # Neither of these connects; both know the names of their options.
        getattr(redis.connection, target.kind)(**target.options)
        client = target.client(redis.asyncio, 1.0)
        if not isinstance(target, Cluster):
            client.connection_pool.make_connection()
    except UsageError:
        raise
    except (TypeError, RedisError, RedisClusterException) as error:
        raise UsageError(f"redis URL: {error}") from error
    except ValueError:
        # It quotes what it takes for a port, which may be a part of the password.
        raise UsageError(
            "redis URL: use redis://user:password@host:6379/0, rediss://…, unix://…, "
            "redis+cluster://host:6379,host:6379 or redis+sentinel://host:26379,host:26379/service,"
            " with %40 for @ in a password, and so on"
        ) from None
    if target.options.get("decode_responses"):
        raise UsageError("redis URL: decode_responses cannot be used: state is bytes")


def is_cluster(source: object) -> bool:
    """Whether a source that was checked is a cluster's."""
    return isinstance(source, (str, *BLOCKING, *NATIVE)) and isinstance(target_of(source), Cluster)


def target_of(source: RedisSource) -> Target:
    """Where and as whom a URL says to connect, or a client does."""
    if isinstance(source, str):
        return _of_set(source) if "+" in source.partition("://")[0] else _of_one(source)
    known = _options_of(source)
    if isinstance(source, _CLUSTER):
        manager: Any = source.nodes_manager
        nodes = tuple((n.host, int(n.port)) for n in list(manager.startup_nodes.values()))
        more = {"address_remap": manager.address_remap} if manager.address_remap else {}
        options = _copied(known, _WHO[1:])
        taken = signature(AsyncRedisCluster).parameters  # the blocking one takes what it knows
        options = {name: value for name, value in options.items() if name in taken}
        return Cluster(options, _kind_of(known), more=more, nodes=nodes)
    pool = source.connection_pool
    kind = _kind_of({"connection_class": pool.connection_class})
    if isinstance(pool, _SENTINEL):
        return _of_master(pool, kind)
    return Server(_copied(known, _WHERE + _WHO), kind)


def _of_master(pool: Any, kind: str) -> Master:
    manager = pool.sentinel_manager
    more = {"min_other_sentinels": manager.min_other_sentinels}
    if (forced := getattr(manager, "_force_master_ip", None)) is not None:
        more["force_master_ip"] = forced
    sentinels = []
    for one in manager.sentinels:
        sentinel = target_of(one)
        assert isinstance(sentinel, Server)
        sentinels.append(sentinel)
    options = _copied(pool.connection_kwargs, _WHO)
    return Master(options, kind, more=more, service=pool.service_name, sentinels=tuple(sentinels))


def _options_of(client: Any) -> Mapping[str, Any]:
    """Of a client's connections."""
    found: Mapping[str, Any]
    if isinstance(client, _CLUSTER):
        found = client.get_connection_kwargs()
    else:
        found = client.connection_pool.connection_kwargs
    return found


def _copied(known: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: value
        for name, value in known.items()
        if value is not None and (name in names or name.startswith("ssl_"))
    }


def _kind_of(options: Mapping[str, Any]) -> str:
    """The name of redis-py's class, on either face, that a client's connections are of."""
    found = options.get("connection_class", redis.Connection)
    for name in ("SSLConnection", "UnixDomainSocketConnection"):
        theirs = (getattr(redis.connection, name), getattr(redis.asyncio.connection, name))
        if issubclass(found, theirs):
            return name
    return "SSLConnection" if options.get("ssl") else "Connection"


def _of_one(url: str) -> Server:
    options = _parsed(url)
    return Server(options, *_limits(options))


def _parsed(url: str) -> dict[str, Any]:
    """What redis-py reads in a URL of one server."""
    found: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return found


def _limits(options: dict[str, Any]) -> tuple[str, int]:
    """Takes out what are no options of a connection: its class, and how many there may be."""
    kind = _kind_of(options)
    options.pop("connection_class", None)
    turns = options.pop("max_connections", TURNS)
    if turns < 1:
        raise UsageError("redis URL: max_connections must be at least 1")
    return kind, turns


def _of_set(url: str) -> Cluster | Master:
    """redis+cluster://user:password@host:port,host:port?options, and redis+sentinel://, which
    also has /service/db.

    redis-py reads the rest, which is the same for all members.
    """
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError
    before = f"{parts['scheme']}://" + (f"{parts['who']}@" if parts["who"] else "")
    after = parts["query"] or ""
    members = [_parsed(f"{before}{member}{after}") for member in parts["members"].split(",")]
    if not all(member.get("host") for member in members):
        raise UsageError("redis URL: a host is missing")
    path = [unquote(part) for part in (parts["path"] or "").strip("/").split("/") if part]
    return (_of_nodes if parts["set"] == "cluster" else _of_sentinels)(members, path)


def _of_nodes(members: list[dict[str, Any]], path: list[str]) -> Cluster:
    options = members[0]
    if path not in ([], ["0"]) or options.pop("db", 0):
        raise UsageError("redis URL: a cluster has database 0 only")
    nodes = tuple((m["host"], m.get("port", 6379)) for m in members)
    kind, turns = _limits(options)
    return Cluster(_without_place(options), kind, turns, nodes=nodes)


def _of_sentinels(members: list[dict[str, Any]], path: list[str]) -> Master:
    options = members[0]
    if not 1 <= len(path) <= 2:
        raise UsageError("redis URL: after the Sentinels comes /service or /service/database")
    if len(path) == 2:
        options["db"] = int(path[1])
    kind, turns = _limits(options)
    shared = _copied(options, ())
    for name in ("username", "password"):
        if (value := options.pop(f"sentinel_{name}", None)) is not None:
            shared[name] = value
    sentinels = tuple(
        Server({"host": m["host"], "port": m.get("port", 26379), **shared}, kind) for m in members
    )
    place = _without_place(options)
    return Master(place, kind, turns, service=path[0], sentinels=sentinels)


def _without_place(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _WHERE}
