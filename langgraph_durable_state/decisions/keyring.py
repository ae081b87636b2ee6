"""The keys that a saver was given: what it makes digests under, and what it believes.

Blobs name their key, so keys rotate: the first key makes, the others verify what they made. With
a key nothing is believed that was stored without one, unless that is allowed for a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import KeyMissingError
from .digest import PLAIN, Seal, keyed


class Unkeyed(Exception):
    """Something was stored without a key, or not encrypted, where only what is is believed."""

    def __init__(self, how: str) -> None:
        super().__init__(
            f"it was stored {how}; accept_plain=True believes that while a key is introduced"
        )


class KeyNeeded(KeyMissingError):
    """A key has to be looked for before stored state can be read."""


class Keys(Protocol):
    """What a saver believes, and shows."""

    @property
    def signs(self) -> bool:
        """Whether there is a key at all."""

    @property
    def clear(self) -> frozenset[str] | None:
        """The metadata keys whose values may stand unencrypted, to be searched; None for all."""

    def under(self, id: bytes) -> Seal:
        """The seal of the key with this id, which is empty for none.

        Raises:
            Unkeyed: if what is under it is not believed.
            KeyMissingError: if the key is not known; `KeyNeeded` if it may be found.
        """


@dataclass(frozen=True, slots=True)
class Keyring:
    """Implements `Keys` with integrity keys.

    Attributes:
        current: what new rows are made under.
        known: all seals under a key, by its id.
        accepts_plain: whether rows without a key are believed.
    """

    current: Seal = PLAIN
    known: Mapping[bytes, Seal] = field(default_factory=dict)
    accepts_plain: bool = True

    @property
    def signs(self) -> bool:
        return bool(self.current.id)

    @property
    def clear(self) -> None:
        return None

    def under(self, id: bytes) -> Seal:
        if not id:
            if not self.accepts_plain:
                raise Unkeyed("without a key")
            return PLAIN
        found = self.known.get(id)
        if found is None:
            raise KeyMissingError(key=id.hex())
        return found


def keyring(secrets: Sequence[bytes], accepts_plain: bool) -> Keyring:
    """The keyring of some secret keys, the current one first; of none if there are none."""
    if not secrets:
        return Keyring()
    seals = [keyed(secret) for secret in secrets]
    return Keyring(seals[0], {seal.id: seal for seal in seals}, accepts_plain)
