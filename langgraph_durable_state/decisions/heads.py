"""What says under a key that a checkpoint is a head, and how often the head had moved by then.

A head's row carries it, and the other tier keeps the newest it has seen: the witness. A head that
is not signed was moved by somebody without the key; one that counts less than the witness was set
back. Both are made from one signature, so that who has no key can bring it along.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..words import Digest, Place, Put
from .digest import ID, SIZE, Seal
from .keyring import Keys, Unkeyed
from .keys import encoded

_COUNT = 16
"""Digits of the count, which a Redis script compares."""

_SIGNED = _COUNT + ID + SIZE


def signature(seal: Seal, place: Place, id: str, digest: Digest, count: int) -> bytes:
    """Signs a checkpoint as the head of its place; empty without a key, or without a count."""
    if not seal.id or not count:
        return b""
    return f"{count:0{_COUNT}d}".encode() + seal.id + _mac(seal, place, id, digest, count)


def _mac(seal: Seal, place: Place, id: str, digest: Digest, count: int) -> Digest:
    names = encoded(place.thread.tenant), encoded(place.thread.id), place.ns
    return seal.of_parts(("h1", *names, id, digest, count))


@dataclass(frozen=True, slots=True)
class Signed:
    """A checkpoint that was signed as a head, and the id of the key."""

    id: str
    digest: Digest
    count: int
    key: bytes = field(default=b"", compare=False)


def signed(place: Place, id: str, digest: Digest, found: bytes, keys: Keys) -> Signed | None:
    """What a signature says of a checkpoint; None if it is none.

    Raises:
        KeyMissingError: if it is under a key that is not known.
    """
    try:
        count, seal = int(found[:_COUNT]), keys.under(found[_COUNT : _COUNT + ID])
    except (ValueError, Unkeyed):
        return None
    right = seal.id and found[_COUNT + ID :] == _mac(seal, place, id, digest, count)
    return Signed(id, digest, count, seal.id) if right else None


def witness(id: str, digest: Digest, seal: bytes) -> bytes:
    """What the other tier keeps of a signed head; empty if it is not signed."""
    return seal + digest + encoded(id) if seal else b""


def witness_of(put: Put) -> bytes:
    """The witness of a put that became the head."""
    return witness(put.id, put.digest, put.seal)


def read_witness(place: Place, found: bytes, keys: Keys) -> Signed | None:
    """The head that a witness tells of; None if there is none, or it is not what was written.

    Raises:
        KeyMissingError: if it is under a key that is not known.
    """
    digest = found[_SIGNED : _SIGNED + SIZE]
    try:
        id = found[_SIGNED + SIZE :].decode()
    except UnicodeDecodeError:
        return None
    return signed(place, id, digest, found[:_SIGNED], keys)
