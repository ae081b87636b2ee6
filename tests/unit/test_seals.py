"""Digests under a key: what they are, and what they keep apart."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import ormsgpack
import pytest

from langgraph_durable_state import KeyMissingError
from langgraph_durable_state.decisions import codec
from langgraph_durable_state.decisions.chunking import Channel
from langgraph_durable_state.decisions.codec import Batch, Blobs, Record, Unsound
from langgraph_durable_state.decisions.digest import PLAIN, Seal, keyed
from langgraph_durable_state.decisions.keyring import keyring
from langgraph_durable_state.decisions.keys import named
from langgraph_durable_state.decisions.matching import Chunk, Piece
from langgraph_durable_state.words import ChunkRow, Place, RecordRow, Typed

SECRET, OTHER = b"s" * 32, b"o" * 32


def mac(secret: bytes, use: bytes, data: bytes) -> bytes:
    """HMAC-SHA-256 under a key that is made by it."""
    derived = hmac.new(secret, b"langgraph_durable_state 1 " + use, hashlib.sha256).digest()
    return hmac.new(derived, data, hashlib.sha256).digest()[:16]


def test_a_chunk_has_the_mac_of_its_bytes() -> None:
    """HMAC-SHA-256, cut to 16 bytes, under a key for chunks."""
    assert keyed(SECRET).of_bytes(b"data") == mac(SECRET, b"bytes", b"data")
    assert PLAIN.of_bytes(b"data") == hashlib.sha256(b"data").digest()[:16]


def test_a_chunk_never_has_the_mac_of_a_record() -> None:
    """Users choose the bytes of chunks: a value that spells a record gets no MAC of one."""
    parts = ("r1", "of a record")
    packed = ormsgpack.packb(parts)
    assert keyed(SECRET).of_parts(parts) == mac(SECRET, b"parts", packed)
    assert keyed(SECRET).of_parts(parts) != keyed(SECRET).of_bytes(packed)


def test_a_blob_names_the_key_of_its_row() -> None:
    """One byte says that there is one, eight name it; without a key nothing is added."""
    seal, blobs = keyed(SECRET), Blobs("none")
    assert blobs.pack(b"data", 3) == b"\x00\x00\x03data"
    assert blobs.pack(b"data", 3, seal) == b"\x80\x00\x03" + seal.id + b"data"
    assert len(seal.id) == 8


@pytest.mark.parametrize("secrets", [[SECRET], [SECRET, OTHER], [OTHER, SECRET]])
def test_any_key_that_was_given_verifies(secrets: list[bytes]) -> None:
    """Whichever is the one that makes."""
    blobs = Blobs(keys=keyring(secrets, accepts_plain=False))
    row = codec.chunk_row(Chunk(1, b"data" * 40, 1, seal=keyed(SECRET)), blobs)
    assert codec.chunk_of(row, blobs).plain == b"data" * 40


def test_a_key_that_was_not_given_is_named() -> None:
    row = codec.chunk_row(Chunk(1, b"data", 1, seal=keyed(OTHER)), Blobs())
    for blobs in (Blobs(), Blobs(keys=keyring([SECRET], accepts_plain=True))):
        with pytest.raises(KeyMissingError) as error:
            codec.chunk_of(row, blobs)
        assert error.value.key == keyed(OTHER).id.hex()


def test_what_has_no_key_is_believed_only_where_that_is_said() -> None:
    row = codec.chunk_row(Chunk(1, b"data", 1), Blobs())
    assert codec.chunk_of(row, Blobs(keys=keyring([SECRET], accepts_plain=True))).seal is PLAIN
    with pytest.raises(Unsound, match="without a key"):
        codec.chunk_of(row, Blobs(keys=keyring([SECRET], accepts_plain=False)))


def a_record(seal: Seal) -> Record:
    place = Place(named("tenant", "thread"), "ns")
    chunk = Chunk(1, b"data" * 10, 2, seal=seal)
    channel = Channel("c", "1", "msgpack", "array", b"", (Piece(chunk, 0, 2),))
    return Record(
        place,
        "id",
        "parent",
        b"p" * 16,
        0,
        Typed("msgpack", b"body"),
        Typed("msgpack", b"metadata"),
        (channel,),
        (b"w" * 16,),
        seal,
    )


CHUNK = Chunk(1, b"data" * 10, 2, seal=keyed(SECRET))
CHANGES: dict[str, dict[str, object]] = {
    "tenant": {"place": Place(named("other", "thread"), "ns")},
    "thread": {"place": Place(named("tenant", "other"), "ns")},
    "namespace": {"place": Place(named("tenant", "thread"), "other")},
    "id": {"id": "other"},
    "parent": {"parent": "other"},
    "parent's digest": {"parent_digest": b"q" * 16},
    "schema version": {"schema_version": 1},
    "body": {"body": Typed("msgpack", b"other")},
    "body's tag": {"body": Typed("json", b"body")},
    "metadata": {"metadata": Typed("msgpack", b"other")},
    "metadata's tag": {"metadata": Typed("json", b"metadata")},
    "consumed writes": {"consumed": ()},
    "unknown consumed writes": {"consumed": None},
    "channel's name": {"channels": (Channel("d", "1", "msgpack", "array", b"", ()),)},
    "channel's tag": {
        "channels": (Channel("c", "1", "json", "array", b"", (Piece(CHUNK, 0, 2),)),)
    },
    "channel's version": {
        "channels": (Channel("c", "2", "msgpack", "array", b"", (Piece(CHUNK, 0, 2),)),)
    },
    "part of a chunk": {
        "channels": (Channel("c", "1", "msgpack", "array", b"", (Piece(CHUNK, 0, 1),)),)
    },
    "key": {"seal": keyed(OTHER)},
    "no key": {"seal": PLAIN},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_records_mac_covers(what: str) -> None:
    """Nothing of a record can be another while its MAC stays the same."""
    seal = keyed(SECRET)
    assert a_record(seal).digest() == a_record(seal).digest()
    assert replace(a_record(seal), **CHANGES[what]).digest() != a_record(seal).digest()  # type: ignore[arg-type]


def test_a_record_comes_back_under_its_key() -> None:
    """And is not taken for one of another key whose id it is given."""
    seal, blobs = keyed(SECRET), Blobs(keys=keyring([SECRET, OTHER], accepts_plain=False))
    made = a_record(seal)
    row = RecordRow(
        "ns", "id", "parent", 1, made.digest(), codec.pack_record(made, blobs, made.digest()), (1,)
    )
    chunks = {1: made.channels[0].pieces[0].chunk}
    assert codec.read_record(made.place, row, chunks, blobs).digest() == made.digest()
    other = row.record.replace(seal.id, keyed(OTHER).id)
    with pytest.raises(Unsound):
        codec.read_record(made.place, replace(row, record=other), chunks, blobs)


def test_a_blob_that_ends_within_its_keys_name_is_unsound() -> None:
    for size in range(3, 11):
        with pytest.raises((Unsound, KeyMissingError)):
            codec.chunk_of(ChunkRow(1, b"d" * 16, b"\x80\x00\x01" + b"i" * (size - 3)), Blobs())


def test_a_batch_comes_back_under_its_key() -> None:
    """Its MAC covers where it belongs."""
    seal, blobs = keyed(SECRET), Blobs(keys=keyring([SECRET], accepts_plain=False))
    batch = Batch("id", "task", "path", 0, (Channel("c", None, "msgpack", "inline", b"\x01", ()),))
    place = Place(named("tenant", "thread"), "ns")
    row = codec.pack_batch(place, batch, blobs, seal)
    assert codec.read_batch(place, row, {}, blobs) == batch
    moved: list[tuple[Place, dict[str, object]]] = [
        (Place(named("tenant", "other"), "ns"), {}),
        (Place(named("other", "thread"), "ns"), {}),
        (place, {"id": "x"}),
        (place, {"task": "x"}),
        (place, {"path": "x"}),
        (place, {"slot": -1}),
    ]
    for where, changes in moved:
        with pytest.raises(Unsound):
            codec.read_batch(where, replace(row, **changes), {}, blobs)  # type: ignore[arg-type]
