"""Encryption: blobs under the data key of their owner, data keys under a master key.

AES-256-GCM with a random nonce. What is encrypted is bound to where it stands: a blob to its head
(with the data key's id), its digest and its tenant; a data key to its id and its owner.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import ormsgpack

from ..errors import KeyMissingError, UsageError
from ..words import DataKey, Digest, Owner
from .digest import ID, Seal, derived, derived_key
from .keys import encoded

_NONCE = 12
SIZE = 32
"""Bytes of a data key."""

NOBODY = Owner("", None)


def _gcm(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise UsageError(
            "encryption_key needs: pip install 'langgraph_durable_state[encryption]'"
        ) from error
    return AESGCM(key)


def _sealed(cipher: Any, data: bytes, bound: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + cipher.encrypt(nonce, data, bound)  # type: ignore[no-any-return]


def _unsealed(cipher: Any, data: bytes, bound: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(data[:_NONCE], data[_NONCE:], bound)  # type: ignore[no-any-return]
    except (InvalidTag, ValueError):  # ValueError: too short for a nonce
        raise ValueError("it is not what was encrypted") from None


@dataclass(frozen=True, slots=True)
class Sealed(Seal):
    """The seal under an owner's data key: it hides what it identifies."""

    hides: ClassVar[bool] = True

    owner: Owner = NOBODY
    _cipher: Any = field(default=None, repr=False, compare=False)

    def serves(self, tenant: str) -> bool:
        return tenant == self.owner.tenant

    def close(self, data: bytes, head: bytes, digest: Digest) -> bytes:
        return _sealed(self._cipher, data, self._bound(head, digest))

    def open(self, data: bytes, head: bytes, digest: Digest) -> bytes:
        return _unsealed(self._cipher, data, self._bound(head, digest))

    def _bound(self, head: bytes, digest: Digest) -> bytes:
        return head + digest + encoded(self.owner.tenant)


def sealed(secret: bytes, owner: Owner) -> Sealed:
    """The seal under a data key."""
    return Sealed(*derived(secret), owner, _gcm(derived_key(secret, b"cipher")))


class Masters:
    """The master keys, the current one first; the others unwrap what they have wrapped.

    Raises:
        UsageError: if what encrypts is not installed.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._ciphers = {
            derived_key(secret, b"master id")[:ID]: _gcm(derived_key(secret, b"wrap"))
            for secret in secrets
        }
        self.current = next(iter(self._ciphers))

    def made(self, owner: Owner) -> DataKey:
        """A new data key for an owner."""
        return self._wrapped(os.urandom(SIZE), owner)

    def rewrapped(self, key: DataKey) -> DataKey:
        """A data key under the current master key; see `unwrapped`."""
        return self._wrapped(self._secret(key), key.owner)

    def unwrapped(self, key: DataKey) -> Sealed:
        """The seal under a data key.

        Raises:
            KeyMissingError: if it is under a master key that is not known.
            ValueError: if it is not what was wrapped for this owner.
        """
        return sealed(self._secret(key), key.owner)

    def _wrapped(self, secret: bytes, owner: Owner) -> DataKey:
        id = derived(secret)[0]
        wrapped = _sealed(self._ciphers[self.current], secret, _whose(id, owner))
        return DataKey(id, owner, self.current, wrapped)

    def _secret(self, key: DataKey) -> bytes:
        cipher = self._ciphers.get(key.master)
        if cipher is None:
            raise KeyMissingError(key=key.master.hex())
        return _unsealed(cipher, key.wrapped, _whose(key.id, key.owner))


def _whose(id: bytes, owner: Owner) -> bytes:
    user = None if owner.user is None else encoded(owner.user)
    return ormsgpack.packb(("data key", id, encoded(owner.tenant), user))
