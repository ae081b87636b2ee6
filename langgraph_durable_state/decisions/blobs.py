"""Blobs: stored bytes that say how they were stored, and what their row's digest was made under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import zstandard

from ..words import Digest
from . import dictionary
from .digest import ID, PLAIN, Seal
from .keyring import Keyring, Keys, Unkeyed

Compression = Literal["zstd", "lz4", "none"]

_NONE, _ZSTD_1, _LZ4 = 0, 1, 2
_KEYED = 0x80
"""Is added to a blob's method if the id of a key stands before its data."""
_METHODS: Mapping[Compression, int] = {"none": _NONE, "zstd": _ZSTD_1, "lz4": _LZ4}

COMPRESS_FROM = 64
"""Bytes; below this a frame eats what it saves."""

_DICTIONARY = zstandard.ZstdCompressionDict(
    dictionary.VERSION_1, dict_type=zstandard.DICT_TYPE_RAWCONTENT
)


class Unsound(Exception):
    """Stored bytes that are not what was written: the channel concerned, and what was found."""

    def __init__(self, channel: str | None, detail: str) -> None:
        super().__init__(detail)
        self.channel = channel
        self.detail = detail


def unreadable(channel: str | None, what: str, error: Exception) -> Unsound:
    """What is told of stored bytes that cannot be taken apart: of the error what speaks of them,
    not what speaks of the code that met them."""
    of_bytes = isinstance(error, ValueError) and not isinstance(error, UnicodeError)
    why = f"({error})" if of_bytes else "(it has another form than what is written)"
    return Unsound(channel, f"{what} cannot be read {why}")


class Unpacked(NamedTuple):
    """What a blob holds."""

    data: bytes
    items: int
    seal: Seal


class Blobs:
    """Compresses what is stored, and says in each blob how.

    Layout: one byte for the method, two for the number of items, the id of the key if there is one,
    then the data, which the key may hide. A compressor may serve one thread at a time, so idle ones
    wait in a list (its `pop` and `append` are atomic).

    Args:
        compression: the method for new blobs; all methods can be read.
        level: zstd's level, 1 to 3 in practice.
        keys: what digests are believed under.
    """

    def __init__(
        self,
        compression: Compression = "zstd",
        level: int = 1,
        keys: Keys = Keyring(),  # noqa: B008  (it is frozen)
    ) -> None:
        self.keys = keys
        self._method = _METHODS[compression]
        self._level = level
        self._compressors: list[zstandard.ZstdCompressor] = []
        self._decompressors: list[zstandard.ZstdDecompressor] = []

    def pack(self, data: bytes, count: int = 1, seal: Seal = PLAIN, digest: Digest = b"") -> bytes:
        """The stored form of `data`, which holds `count` items, of the row with a digest under a
        seal."""
        method, rest = _NONE, data
        if self._method != _NONE and len(data) >= COMPRESS_FROM:
            small = self._compress(data)
            if len(small) < len(data):
                method, rest = self._method, small
        flag = _KEYED if seal.id else 0
        head = bytes((method | flag,)) + count.to_bytes(2) + seal.id
        return head + seal.close(rest, head, digest)

    def unpack(self, blob: bytes, digest: Digest = b"") -> Unpacked:
        """The data of the row with a digest, its number of items, and the seal.

        Raises:
            Unsound: if the blob cannot be read, or is not to be believed.
            KeyMissingError: if it is under a key that is not known.
        """
        try:
            method, count, start = blob[0] & ~_KEYED, int.from_bytes(blob[1:3]), 3
            if blob[0] & _KEYED:
                start += ID
            seal = self._seal(blob[3:start])
            data = seal.open(blob[start:], blob[:start], digest)
            if method == _NONE:
                return Unpacked(bytes(data), count, seal)
            if method == _ZSTD_1:
                return Unpacked(self._unzstd(data), count, seal)
            if method == _LZ4:
                return Unpacked(_lz4().decompress(data), count, seal)
        except (zstandard.ZstdError, RuntimeError, IndexError, MemoryError, ValueError) as error:
            raise Unsound(None, f"the stored bytes cannot be unpacked ({error})") from error
        raise Unsound(None, f"unknown compression method {blob[0]}")

    def _seal(self, id: bytes) -> Seal:
        try:
            return self.keys.under(id)
        except Unkeyed as why:
            raise Unsound(None, str(why)) from None

    def _compress(self, data: bytes) -> bytes:
        if self._method == _LZ4:
            return _lz4().compress(data)  # type: ignore[no-any-return]
        make = self._compressors.pop() if self._compressors else None
        make = make or self._compressor()
        try:
            return make.compress(data)
        finally:
            self._compressors.append(make)

    def _compressor(self) -> zstandard.ZstdCompressor:
        # The frame need not name its dictionary nor check its content: the blob's method byte and
        # the chunk's digest do.
        return zstandard.ZstdCompressor(
            level=self._level, dict_data=_DICTIONARY, write_dict_id=False, write_checksum=False
        )

    def _unzstd(self, data: bytes) -> bytes:
        make = self._decompressors.pop() if self._decompressors else None
        make = make or zstandard.ZstdDecompressor(dict_data=_DICTIONARY)
        try:
            return make.decompress(data)
        finally:
            self._decompressors.append(make)


def _lz4() -> Any:
    import lz4.frame

    return lz4.frame
