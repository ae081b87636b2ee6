"""`Scripts`, written once over the two verbs that differ between the faces."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from redis import exceptions

from ..errors import UnavailableError
from ..tiers.statements import script
from .breaker import Breaker
from .probing import Aside, probe_aside

T = TypeVar("T")


class ScriptClient(Protocol):
    """A Redis client of one face."""

    async def evalsha(
        self,
        sha: str,
        keys: Sequence[str],
        args: Sequence[bytes | str | int],
        wait_aof: tuple[int, int] | None = None,
    ) -> Any:
        """What the loaded script returns, once so many servers and replicas have it on disk."""

    async def load(self, text: str) -> str:
        """The SHA under which a script can be called now."""

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
        breaker: this tier's.
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
        self._shas: dict[str, str] = {}

    async def call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        self._check()
        return await self._told(name, self._call(name, keys, args))

    async def find(self, pattern: str) -> list[str]:
        self._check()
        names = await self._told("scan", self._client.scan(pattern))
        return [name.decode("ascii", "replace") for name in names]

    def _check(self) -> None:
        """Raises UnavailableError if Redis failed a moment ago."""
        if not self._breaker.admits():
            raise UnavailableError("redis", self._breaker.refusal())

    async def _probe(self) -> None:
        try:
            await self._told("ping", self._call("ping", (), ()))
        except UnavailableError:
            pass  # the breaker knows

    async def _told(self, name: str, asked: Coroutine[Any, Any, T]) -> T:
        """What Redis answers; the breaker is told how it went."""
        try:
            answer = await asked
        except Exception as error:
            # Whatever a client raises: what fails here must fail nothing else.
            if isinstance(error, (exceptions.ResponseError, NotOnDiskError)):
                self._breaker.refused(error, name)
            elif self._breaker.failed(error):
                probe_aside(self._breaker, self._aside, self._probe)
            raise UnavailableError("redis", str(error) or type(error).__name__) from error
        self._breaker.succeeded(name)
        return answer

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        wait = self._wait_aof if name in _APPENDING else None
        sha = self._shas.get(name)
        if sha is not None:
            try:
                return await self._client.evalsha(sha, keys, args, wait)
            except exceptions.NoScriptError:
                pass  # the server was restarted or its scripts were flushed
        self._shas[name] = sha = await self._client.load(script(name))
        return await self._client.evalsha(sha, keys, args, wait)
