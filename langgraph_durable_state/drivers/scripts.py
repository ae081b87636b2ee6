"""`Scripts`, written once over the verbs that differ between the faces."""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from redis import exceptions, sentinel
from redis.asyncio import sentinel as async_sentinel

from ..errors import UnavailableError
from ..tiers.statements import script
from .breaker import Breaker
from .probing import Aside, probe_aside

T = TypeVar("T")

_NO_MASTER = (sentinel.MasterNotFoundError, async_sentinel.MasterNotFoundError)


class ScriptClient(Protocol):
    """A Redis client of one face."""

    def node(self, key: str) -> str | None:
        """The node of a cluster that has this key, if it is a cluster and that is known."""

    async def evalsha(
        self,
        sha: str,
        keys: Sequence[str],
        args: Sequence[bytes | str | int],
        wait_aof: tuple[int, int] | None = None,
    ) -> Any:
        """What the script with this SHA returns, if the server has it, once so many servers and
        replicas have what it did on disk."""

    async def eval(
        self,
        text: str,
        keys: Sequence[str],
        args: Sequence[bytes | str | int],
        wait_aof: tuple[int, int] | None = None,
    ) -> Any:
        """What this script returns; its server has it from then on."""

    async def scan(self, pattern: str) -> list[bytes]:
        """The names of the keys that match a glob pattern, on whichever server they are."""


_APPENDING = {"append", "append_writes", "fence"}

WAIT_SHARE = 0.8
"""Of the time-out of a call: the server must answer before the client gives up."""


class NotOnDiskError(exceptions.RedisError):
    """Too few servers had it on disk in time."""


def on_disk(answers: Sequence[Any], wanted: tuple[int, int]) -> Any:
    """A script's answer, if it was not an error and enough servers have what it did on disk."""
    answer, reached = answers
    for found in answers:
        if isinstance(found, Exception):
            raise found
    if any(have < want for have, want in zip(reached, wanted, strict=True)):
        raise NotOnDiskError(f"only {reached} of {wanted} servers had it on disk in time")
    return answer


class GuardedScripts:
    """Implements `Scripts`.

    Args:
        client: one face's, with its own time-outs.
        breaker: this tier's. A node of a cluster has a part of it, so that one that is dead is
            left alone while the others are used.
        aside: what the face does beside calls.
        wait_aof: how many servers, this one and replicas, must have what is appended on disk
            before it counts; None for not to wait.
    """

    def __init__(
        self,
        client: ScriptClient,
        breaker: Breaker,
        aside: Aside,
        wait_aof: tuple[int, int] | None = None,
    ) -> None:
        self._client = client
        self._breaker = breaker
        self._aside = aside
        self._wait_aof = wait_aof

    async def call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        breakers = self._concerned(keys)
        _check(breakers)
        return await self._heard(name, breakers, self._call(name, keys, args))

    async def find(self, pattern: str) -> list[str]:
        _check([self._breaker])
        names = await self._heard("scan", [self._breaker], self._client.scan(pattern))
        return [name.decode("ascii", "replace") for name in names]

    async def _probe(self) -> None:
        try:
            await self._heard("ping", [self._breaker], self._call("ping", (), ()))
        except UnavailableError:
            pass  # the breaker knows

    async def _heard(
        self, name: str, breakers: Sequence[Breaker], asked: Coroutine[Any, Any, T]
    ) -> T:
        """What Redis answers; the breakers are told how it went."""
        try:
            answer = await asked
        except Exception as error:
            # Whatever a client raises: what fails here must fail nothing else.
            told = _told(error)
            self._blame(name, breakers, told)
            raise UnavailableError("redis", str(told) or type(told).__name__) from error
        for breaker in breakers:
            breaker.succeeded(name)
        return answer

    def _blame(self, name: str, breakers: Sequence[Breaker], error: Exception) -> None:
        """Tells the breaker whose failure it is: the tier's if no node of a cluster is found."""
        whole, concerned = breakers[0], breakers[-1]
        if isinstance(error, exceptions.RedisClusterException):
            concerned = whole
        if _refuses(error):
            concerned.refused(error, name)
        elif concerned.failed(error):
            if concerned is whole:
                probe_aside(whole, self._aside, self._probe)
            else:
                concerned.left()  # a call on its keys is the probe: no other reaches this node

    def _concerned(self, keys: Sequence[str]) -> list[Breaker]:
        """The breaker of the tier, and that of the node that has the keys, if there are several:
        all keys of a script are a thread's, which are in one slot."""
        node = self._client.node(keys[0]) if keys else None
        return [self._breaker] if node is None else [self._breaker, self._breaker.part(node)]

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        wait = self._wait_aof if name in _APPENDING else None
        try:
            return await self._client.evalsha(_sha(name), keys, args, wait)
        except exceptions.NoScriptError:
            # The server is new, was restarted, or its scripts were flushed. `SCRIPT LOAD` would go
            # to all nodes of a cluster, and fail if one of them does.
            return await self._client.eval(script(name), keys, args, wait)


@cache
def _sha(name: str) -> str:
    return hashlib.sha1(script(name).encode(), usedforsecurity=False).hexdigest()


def _check(breakers: Sequence[Breaker]) -> None:
    """Raises UnavailableError if one of them failed a moment ago."""
    for breaker in breakers:
        if not breaker.admits():
            raise UnavailableError("redis", breaker.refusal(), sent=False)


def _told(error: Exception) -> Exception:
    """An error in words that help, and that hold no password."""
    if isinstance(error, exceptions.MovedError) or str(error).startswith("MOVED "):
        return exceptions.ClusterError("it is a cluster: use redis+cluster:// or a RedisCluster")
    if isinstance(error, _NO_MASTER):
        # The rest is how each Sentinel was to be reached, in which redis-py 5 has its password.
        return exceptions.ConnectionError(str(error).partition(" : ")[0])
    return error


def _refuses(error: Exception) -> bool:
    """Whether the server answered that it will not."""
    answered = isinstance(error, (exceptions.ResponseError, NotOnDiskError))
    return answered and not isinstance(error, exceptions.ClusterError)
