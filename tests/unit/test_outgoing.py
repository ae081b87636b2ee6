"""The stored form of outbox entries: what comes back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_durable_state.decisions import keys, outgoing
from langgraph_durable_state.decisions.codec import Unsound
from langgraph_durable_state.decisions.outgoing import (
    ADVANCED,
    ASIDE,
    NEVER,
    OPENED,
    REFUSED,
    UNKNOWN,
    WRITES,
    pack_item,
    pack_write,
    read_entry,
    read_write,
    write_field,
)
from langgraph_durable_state.errors import EvolutionError
from langgraph_durable_state.words import ChunkRow, Claim, Entry, Place, Put, PutWrites, WriteRow

GOLDEN = Path(__file__).parent.parent / "golden" / "outbox-1.json"

TOKEN = b"\x00token\xff".ljust(16, b".")

anything = st.text(st.characters(codec=None, exclude_categories=()))
"""Names as callers give them, lone surrogates and NUL included."""
stored = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"))
"""Text that goes to Postgres as text, which refuses NUL."""
digests = st.binary(min_size=16, max_size=16)
numbers = st.integers(0, 2**63 - 1)
chunks = st.lists(st.builds(ChunkRow, numbers, digests, st.binary()), max_size=3).map(tuple)
many = st.lists(numbers, max_size=4).map(tuple)
places = st.builds(
    lambda tenant, id, user, session, ns: Place(keys.named(tenant, id, user, session), ns),
    anything,
    anything,
    st.none() | anything,
    st.none() | anything,
    stored,
)
puts = st.builds(
    Put,
    place=places,
    id=stored,
    parent=st.none() | stored,
    claim=st.just(Claim.ANY),
    expected=st.just(b""),
    digest=digests,
    record=st.binary(),
    metadata=stored,
    numbers=many,
    chunks=chunks,
    size=st.integers(0, 2**40),
    refers=st.none() | stored,
    base=digests,
    covered=st.just(False),
    base_numbers=st.none() | many,
    consumed=st.lists(digests, max_size=3).map(tuple),
    seal=st.just(b"") | st.binary(min_size=1, max_size=40),
)
rows = st.builds(
    WriteRow, st.just("id"), stored, st.integers(-9, 2**31 - 1), stored, st.integers(0, 9), digests,
    st.binary(), many,
)  # fmt: skip
batches = st.builds(PutWrites, places, st.just("id"), st.lists(rows, max_size=3).map(tuple), chunks)


def entry(
    item: Put | PutWrites, how: bytes, before: bytes = b"", number: int = 7, time: int = 8
) -> bytes:
    """The bytes of an entry, as the script makes them."""
    middle = b"%016d%016d" % (number, time)
    return how + TOKEN + before.ljust(16, b"\x00") + middle + pack_item(item)


def same(one: Put | PutWrites, other: Put | PutWrites) -> None:
    """Equal in every field, those that `==` of threads leaves out as well."""
    assert one == other
    mine, theirs = one.place.thread, other.place.thread
    assert (mine.user, mine.session) == (theirs.user, theirs.session)


@given(puts, st.integers(0, 10**16 - 1))
def test_a_put_comes_back(put: Put, number: int) -> None:
    found = read_entry(entry(put, UNKNOWN, number=number))
    assert (found.token, found.number, found.advances, found.refused) == (
        TOKEN, number, True, False,
    )  # fmt: skip
    same(found.item, replace(put, spell=TOKEN))


@given(batches)
def test_writes_come_back(item: PutWrites) -> None:
    found = read_entry(entry(item, WRITES))
    same(found.item, replace(item, spell=TOKEN))
    assert found == Entry(found.item, TOKEN, 7)


@pytest.mark.parametrize(
    ("how", "claim", "expected", "advances"),
    [
        (ADVANCED, Claim.HEAD, b"b" * 16, True),
        (OPENED, Claim.EMPTY, b"", True),
        (UNKNOWN, Claim.ANY, b"", True),
        (ASIDE, Claim.ASIDE, b"", False),
        (REFUSED, Claim.HEAD, NEVER, False),
    ],
)
def test_how_it_fared_in_redis_is_its_claim_in_postgres(
    how: bytes, claim: Claim, expected: bytes, advances: bool
) -> None:
    found = read_entry(entry(PUT, how, b"b" * 16))
    assert isinstance(found.item, Put)
    assert (found.item.claim, found.item.expected) == (claim, expected)
    assert (found.advances, found.refused) == (advances, how == REFUSED)


def test_chunks_are_covered_by_the_head_they_are_of() -> None:
    """Only then need the row that they are referred to from not be looked at again."""
    for before, covered in ((PUT.base, True), (b"b" * 16, False)):
        found = read_entry(entry(PUT, ADVANCED, before))
        assert isinstance(found.item, Put)
        assert found.item.covered is covered


@given(st.one_of(puts, batches), st.data())
def test_what_is_cut_off_is_unsound(item: Put | PutWrites, data: st.DataObject) -> None:
    whole = entry(item, ADVANCED if isinstance(item, Put) else WRITES)
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Unsound):
        read_entry(whole[:at])


@pytest.mark.parametrize("item", ["put", "writes"])
def test_a_field_of_another_type_is_unsound(item: str) -> None:
    """The bytes can be taken apart, and yet nobody wrote this."""
    written = PUT if item == "put" else BATCH
    fields = ormsgpack.unpackb(pack_item(written))
    prefix = entry(written, ADVANCED if item == "put" else WRITES)[: -len(pack_item(written))]
    for i in range(1, len(fields)):
        for wrong in ({"a": 1}, [[1, 2, 3]], 1.5):
            spoilt = ormsgpack.packb([*fields[:i], wrong, *fields[i + 1 :]])
            with pytest.raises(Unsound):
                read_entry(prefix + spoilt)


def test_a_put_refers_to_its_parents_chunks_under_their_numbers_of_today() -> None:
    """In their order, those that come with it left alone."""
    put = replace(
        PUT, numbers=(9, 11, 5, 11), chunks=(ChunkRow(9, b"c" * 16, b""),), base_numbers=(11, 5, 9)
    )
    now = outgoing.renumbered(put, (21, 25, 29))
    assert now == replace(put, numbers=(9, 21, 25, 21), base_numbers=(21, 25, 29))
    assert outgoing.renumbered(put, (11, 5, 9)) == put
    assert outgoing.renumbered(put, (21, 25)) == put


def test_an_unknown_kind_is_unsound() -> None:
    with pytest.raises(Unsound):
        read_entry(entry(PUT, b"?"))


def test_every_cut_is_unsound() -> None:
    for item, how in ((PUT, ADVANCED), (BATCH, WRITES)):
        whole = entry(item, how)
        for at in range(len(whole)):
            with pytest.raises(Unsound):
                read_entry(whole[:at])


@given(st.binary(max_size=200))
def test_other_bytes_are_unsound(data: bytes) -> None:
    with pytest.raises(Unsound):
        read_entry(data)
    with pytest.raises((Unsound, EvolutionError)):
        read_entry(entry(PUT, ADVANCED)[: -len(pack_item(PUT))] + data)


@settings(max_examples=1_000)
@given(st.binary(max_size=40), st.integers(0, 400), st.integers(0, 40))
def test_damage_is_unsound_or_read(patch: bytes, at: int, cut: int) -> None:
    """Never another exception; what is read is proven by its digest later."""
    whole = entry(PUT, ADVANCED)
    try:
        read_entry(whole[:at] + patch + whole[at + cut :])
    except (Unsound, EvolutionError):
        pass  # told


def test_a_newer_format_is_not_taken_for_damage() -> None:
    """Whatever else is in it."""
    _, *rest = ormsgpack.unpackb(pack_item(PUT))
    for fields in (rest, [*rest, "more"], [None, 1]):
        packed = ormsgpack.packb((outgoing.FORMAT + 1, *fields))
        with pytest.raises(EvolutionError, match="newer"):
            read_entry(entry(PUT, ADVANCED)[: -len(pack_item(PUT))] + packed)


@given(rows, chunks)
def test_a_hot_write_comes_back(row: WriteRow, sent: tuple[ChunkRow, ...]) -> None:
    row = replace(row, task=row.task.replace("\x00", ""))  # refused by `storable_id`
    own = tuple(c for c in sent if c.no in row.numbers)
    packed = pack_write(row, sent)
    assert packed[:16] == row.digest
    assert read_write(write_field(row.id, row.task, row.slot), packed) == (row, own)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_other_hot_writes_are_unsound(name: bytes, data: bytes) -> None:
    with pytest.raises(Unsound):
        read_write(name, data)


# -- golden ----------------------------------------------------------------------------------

PLACE = Place(keys.named("tenant\udfff", "t\ud800\x00", "user\ud800", ""), "nöde:task")
PUT = Put(
    PLACE, "id", "parent", Claim.ANY, b"", b"d" * 16, b"\x00record\xff", '{"a": 1}',
    (2**63 - 1, 0), (ChunkRow(0, b"c" * 16, b"\x00\xff"),), 2**40, "parent", b"p" * 16, False,
    (5, 2**63 - 1, 5), consumed=(b"w" * 16, b"x" * 16),
)  # fmt: skip
BATCH = PutWrites(
    PLACE,
    "id",
    (
        WriteRow("id", "task", 0, "path", 2, b"w" * 16, b"\x00blob", (5,)),
        WriteRow("id", "task", -3, "", 1, b"x" * 16, b"", ()),
    ),
    (ChunkRow(5, b"5" * 16, b"five"),),
)
SEAL = b"s" * 40
KINDS = {
    "advanced": (PUT, ADVANCED, b"p" * 16),
    "opened": (PUT, OPENED, b""),
    "unknown": (PUT, UNKNOWN, b""),
    "aside": (PUT, ASIDE, b""),
    "refused": (PUT, REFUSED, b""),
    "writes": (BATCH, WRITES, b""),
}
CLAIMS = {
    "advanced": {"claim": Claim.HEAD, "expected": b"p" * 16, "covered": True},
    "opened": {"claim": Claim.EMPTY},
    "unknown": {"claim": Claim.ANY},
    "aside": {"claim": Claim.ASIDE},
    "refused": {"claim": Claim.HEAD, "expected": NEVER},
}


@pytest.mark.parametrize("kind", KINDS)
def test_entries_of_format_1_are_read(kind: str) -> None:
    """As version 0.1 left them in Redis, to be flushed by a later one."""
    data = bytes.fromhex(json.loads(GOLDEN.read_text())[kind])
    found = read_entry(data)
    if kind == "writes":
        same(found.item, replace(BATCH, spell=TOKEN))
    else:
        same(found.item, replace(PUT, spell=TOKEN, **CLAIMS[kind]))  # type: ignore[arg-type]
    assert (found.token, found.number) == (TOKEN, 7)
    assert found.advances is (kind in ("advanced", "opened", "unknown"))
    assert found.refused is (kind == "refused")


def test_the_hot_write_of_format_1_is_read() -> None:
    golden = json.loads(GOLDEN.read_text())
    for row, name in zip(BATCH.rows, ("write", "special write"), strict=True):
        field, data = (bytes.fromhex(part) for part in golden[name])
        assert read_write(field, data) == (row, BATCH.chunks if row.numbers else ())


def test_the_golden_entries_are_of_todays_format() -> None:
    """A format that changes needs a number, and golden entries, of its own."""
    assert outgoing.FORMAT == 2
    golden = json.loads(GOLDEN.read_text())
    for kind, (item, how, before) in KINDS.items():
        assert golden[kind] == entry(item, how, before).hex()
    signed = json.loads(GOLDEN.with_name("outbox-2.json").read_text())
    assert signed == {"advanced": entry(replace(PUT, seal=SEAL), ADVANCED, b"p" * 16).hex()}


def test_an_entry_of_format_2_is_read() -> None:
    """What is signed as a head."""
    data = bytes.fromhex(json.loads(GOLDEN.with_name("outbox-2.json").read_text())["advanced"])
    wanted = replace(PUT, seal=SEAL, spell=TOKEN, **CLAIMS["advanced"])  # type: ignore[arg-type]
    same(read_entry(data).item, wanted)
