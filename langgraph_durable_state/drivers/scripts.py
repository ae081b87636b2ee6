"""`Scripts`, written once over the verbs that differ between the faces."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from redis import exceptions, sentinel
from redis.asyncio import sentinel as async_sentinel

from ..errors import UnavailableError
from ..tiers.statements import script
from .breaker import Breaker

_NO_MASTER = (sentinel.MasterNotFoundError, async_sentinel.MasterNotFoundError)


class ScriptClient(Protocol):
    """A Redis client of one face."""

    def node(self, key: str) -> str | None:
        """The node of a cluster that has this key, if it is a cluster and that is known."""

    async def evalsha(
        self, sha: str, keys: Sequence[str], args: Sequence[bytes | str | int]
    ) -> Any:
        """What the script with this SHA returns, if the server has it."""

    async def eval(self, text: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        """What this script returns; its server has it from then on."""


class GuardedScripts:
    """Implements `Scripts`.

    Args:
        client: one face's, with its own time-outs.
        breaker: this tier's. A node of a cluster has a part of it, so that one that is dead is
            left alone while the others are used.
    """

    def __init__(self, client: ScriptClient, breaker: Breaker) -> None:
        self._client = client
        self._breaker = breaker

    async def call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        breakers = self._concerned(keys)
        for breaker in breakers:
            if not breaker.admits():
                raise UnavailableError("redis", breaker.refusal())
        try:
            answer = await self._call(name, keys, args)
        except Exception as error:
            # Whatever a client raises: what fails here must fail nothing else.
            told = _told(error)
            _blame(breakers, told)
            raise UnavailableError("redis", str(told) or type(told).__name__) from error
        for breaker in breakers:
            breaker.succeeded()
        return answer

    def _concerned(self, keys: Sequence[str]) -> list[Breaker]:
        """The breaker of the tier, and that of the node that has the keys, if there are several:
        all keys of a script are a thread's, which are in one slot."""
        node = self._client.node(keys[0]) if keys else None
        return [self._breaker] if node is None else [self._breaker, self._breaker.part(node)]

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        try:
            return await self._client.evalsha(_sha(name), keys, args)
        except exceptions.NoScriptError:
            # The server is new, was restarted, or its scripts were flushed. `SCRIPT LOAD` would go
            # to all nodes of a cluster, and fail if one of them does.
            return await self._client.eval(script(name), keys, args)


@cache
def _sha(name: str) -> str:
    return hashlib.sha1(script(name).encode(), usedforsecurity=False).hexdigest()


def _told(error: Exception) -> Exception:
    """An error in words that help, and that hold no password."""
    if isinstance(error, exceptions.MovedError) or str(error).startswith("MOVED "):
        return exceptions.ClusterError("it is a cluster: use redis+cluster:// or a RedisCluster")
    if isinstance(error, _NO_MASTER):
        # The rest is how each Sentinel was to be reached, in which redis-py 5 has its password.
        return exceptions.ConnectionError(str(error).partition(" : ")[0])
    return error


def _blame(breakers: Sequence[Breaker], error: Exception) -> None:
    """Tells the breaker whose failure it is: the tier's if no node of a cluster is to be found."""
    if isinstance(error, exceptions.RedisClusterException):
        breakers[0].failed(error)
    elif isinstance(error, exceptions.ResponseError) and not isinstance(
        error, exceptions.ClusterError
    ):
        breakers[-1].refused(error)
    else:
        breakers[-1].failed(error)
