"""`Scripts`, written once over the two verbs that differ between the faces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from redis import exceptions

from ..errors import UnavailableError
from ..tiers.statements import script
from .breaker import Breaker
from .probing import Aside, probe_aside


class ScriptClient(Protocol):
    """A Redis client of one face."""

    async def evalsha(
        self, sha: str, keys: Sequence[str], args: Sequence[bytes | str | int]
    ) -> Any:
        """What the loaded script returns."""

    async def load(self, text: str) -> str:
        """The SHA under which a script can be called now."""


class GuardedScripts:
    """Implements `Scripts`.

    Args:
        client: one face's, with its own time-outs.
        breaker: this tier's.
        aside: what the face does beside calls.
    """

    def __init__(self, client: ScriptClient, breaker: Breaker, aside: Aside) -> None:
        self._client = client
        self._breaker = breaker
        self._aside = aside
        self._shas: dict[str, str] = {}

    async def call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        if not self._breaker.admits():
            raise UnavailableError("redis", self._breaker.refusal())
        return await self._told(name, keys, args)

    async def _probe(self) -> None:
        try:
            await self._told("ping", (), ())
        except UnavailableError:
            pass  # the breaker knows

    async def _told(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        """What a script returns; the breaker is told how it went."""
        try:
            answer = await self._call(name, keys, args)
        except Exception as error:
            # Whatever a client raises: what fails here must fail nothing else.
            if isinstance(error, exceptions.ResponseError):
                self._breaker.refused(error, name)
            elif self._breaker.failed(error):
                probe_aside(self._breaker, self._aside, self._probe)
            raise UnavailableError("redis", str(error) or type(error).__name__) from error
        self._breaker.succeeded(name)
        return answer

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[bytes | str | int]) -> Any:
        sha = self._shas.get(name)
        if sha is not None:
            try:
                return await self._client.evalsha(sha, keys, args)
            except exceptions.NoScriptError:
                pass  # the server was restarted or its scripts were flushed
        self._shas[name] = sha = await self._client.load(script(name))
        return await self._client.evalsha(sha, keys, args)
