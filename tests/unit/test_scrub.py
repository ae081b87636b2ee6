"""Every bit of what is stored counts: damaged anywhere, it is found, and restored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy
import ormsgpack
import pytest
from langchain_core.messages import HumanMessage

from langgraph_durable_state.asfound import RawThread
from langgraph_durable_state.decisions import anchors, codec, evidence, projection
from langgraph_durable_state.decisions.codec import Blobs, Record, Unsound
from langgraph_durable_state.decisions.evidence import described, filtered_wrong
from langgraph_durable_state.decisions.keys import named
from langgraph_durable_state.decisions.outgoing import write_field
from langgraph_durable_state.decisions.serializing import Serializer
from langgraph_durable_state.drivers.memory_world import Rows, World
from langgraph_durable_state.testing import memory_saver
from langgraph_durable_state.verification import Finding, VerifyReport
from langgraph_durable_state.words import Head, Place, RecordRow, Typed
from tests.contract.superstep import config, superstep

THREAD = named("", "t")
PLACE = Place(THREAD, "")


def story(world: World) -> Any:
    """A thread of two checkpoints with a pending write, which the hot tier has as well."""
    saver = memory_saver(world, when_durable_down="queue", compression="none")
    found = None
    for id in "12":
        values = {"log": [f"message {i} " * 30 for i in range(int(id))], "n": int(id)}
        saver.put(*superstep(saver, found, id, values))
        found = saver.get_tuple(config())
    saver.put_writes(found.config, [("log", ["written " * 40])], "task")
    return saver


def flips(data: bytes) -> Iterator[bytes]:
    """The bytes with one bit turned over: in each of the first, and in every third of the rest."""
    for i in [*range(min(24, len(data))), *range(24, len(data), 3)]:
        yield data[:i] + bytes((data[i] ^ (1 << i % 8),)) + data[i + 1 :]


Harm = Callable[[Rows, int], bool]
"""Damages something for the nth time, in another place each time; False if there is no other."""


def of_chunks(field: str, which: Callable[[Rows], int]) -> Harm:
    def harm(rows: Rows, n: int) -> bool:
        no = which(rows)
        found = list(flips(getattr(rows.chunks[no], field)))
        if n < len(found):
            rows.chunks[no] = replace(rows.chunks[no], **{field: found[n]})
        return n < len(found)

    return harm


def of_records(field: str) -> Harm:
    def harm(rows: Rows, n: int) -> bool:
        stored = rows.checkpoints["", "2"]
        found = list(flips(getattr(stored.row, field)))
        if n < len(found):
            row = replace(stored.row, **{field: found[n]})
            rows.checkpoints["", "2"] = replace(stored, row=row)
        return n < len(found)

    return harm


def of_writes(field: str) -> Harm:
    def harm(rows: Rows, n: int) -> bool:
        ((key, row),) = rows.writes.items()
        found = list(flips(getattr(row, field)))
        if n < len(found):
            rows.writes[key] = replace(row, **{field: found[n]})
        return n < len(found)

    return harm


def of_heads(rows: Rows, n: int) -> bool:
    found = list(flips(rows.heads[""].digest))
    if n < len(found):
        rows.heads[""] = Head("2", rows.heads[""].seq, found[n])
    return n < len(found)


def own(rows: Rows) -> int:
    return max(rows.checkpoints["", "2"].row.numbers)


def written(rows: Rows) -> int:
    ((_, row),) = rows.writes.items()
    return row.numbers[0]


HARMS: dict[str, Harm] = {
    "a chunk": of_chunks("blob", own),
    "a chunk's digest": of_chunks("digest", own),
    "a record": of_records("record"),
    "a record's digest": of_records("digest"),
    "a write": of_writes("blob"),
    "a write's digest": of_writes("digest"),
    "a write's chunk": of_chunks("blob", written),
    "a head's digest": of_heads,
}

UNSEEN = {"a write's chunk": {1, 2}}
"""How many items a chunk has is covered by the digest of a record, not by that of a write."""


@pytest.mark.parametrize("what", HARMS)
def test_a_flipped_bit_is_found_and_restored_wherever_it_is(what: str) -> None:
    """All is then exactly as it was."""
    world = World()
    saver = story(world)
    before = copy.deepcopy(world.threads[THREAD.key])
    assert saver.verify()
    n = 0
    while HARMS[what](world.threads[THREAD.key], n):
        if n not in UNSEEN.get(what, ()):
            assert not saver.verify(), n
            mended = saver.verify(repair=True)
            assert {found.outcome for found in mended.findings} == {"repaired"}, (n, str(mended))
            assert world.threads[THREAD.key] == before, n
        world.threads[THREAD.key] = copy.deepcopy(before)
        n += 1
    assert n >= 16
    assert saver.verify()


HOT = ["record", "digest", "chunk", "write"]


@pytest.mark.parametrize("what", HOT)
def test_a_flipped_bit_in_the_hot_tier_is_found_and_restored(what: str) -> None:
    world = World()
    saver = story(world)
    at = (THREAD.key, "")
    row, chunks = world.copies[at]
    ((key, (write, sent)),) = world.hot_writes[at].items()
    no = max(row.numbers)
    data = {
        "record": row.record,
        "digest": row.digest,
        "chunk": chunks[no].blob,
        "write": write.blob,
    }[what]
    for n, bad in enumerate(flips(data)):
        if what in ("record", "digest"):
            world.copies[at] = (replace(row, **{what: bad}), chunks)
        elif what == "chunk":
            world.copies[at] = (row, {**chunks, no: replace(chunks[no], blob=bad)})
        else:
            world.hot_writes[at] = {key: (replace(write, blob=bad), sent)}
        mended = saver.verify(repair=True)
        assert {(f.tier, f.outcome) for f in mended.findings} == {("redis", "repaired")}, n
        assert world.copies[at] == (row, chunks), n
        assert world.hot_writes[at] == {key: (write, sent)}, n


def test_what_a_newer_version_may_have_written_is_not_called_lost() -> None:
    """Nothing proves that it is damaged."""
    world = World()
    saver = story(world)
    world.lose_hot()
    stored = world.threads[THREAD.key].checkpoints["", "2"]
    newer = stored.row.record.replace(b"\x98\x01", b"\x98" + bytes([codec.RECORD_FORMAT + 1]), 1)
    assert newer != stored.row.record
    changed = replace(stored, row=replace(stored.row, record=newer))
    world.threads[THREAD.key].checkpoints["", "2"] = changed
    report = saver.verify(repair=True)
    assert [(f.kind, f.outcome) for f in report.findings] == [("checkpoint", "unread")]
    assert not report.lost
    assert not report.clean


def test_bytes_that_are_anything_are_unsound_and_no_other_error() -> None:
    """Whatever they unpack to."""
    row = RecordRow("", "1", None, 1, b"d" * 16, b"", ())
    for plain in ([1, 0, b"", [], [], [["x"]], [1], None], [1] * 8, [1, {}, 1, 1, 1, [{}], [1], 1]):
        blob = Blobs("none").pack(ormsgpack.packb(plain))
        with pytest.raises(Unsound):
            evidence.read_record(PLACE, replace(row, record=blob), {}, Blobs())
    with pytest.raises(Unsound):
        evidence.unpacked(b"\xff\x00")


def record(metadata: Any) -> Record:
    typed = Serializer(memory_saver().serde, "off").dumps(metadata, "metadata")
    return Record(PLACE, "1", None, b"", 0, Typed("null", b""), typed, (), None)


EXACT = {"a": 1, "b": [True, None, {"c": "é\x00"}], "d": 1.5, "source": "loop", "step": 3}


@pytest.mark.parametrize(
    "metadata",
    [
        EXACT,
        {"a": float("nan"), "b": "x" * 5_000, "c": "\ud800"},
        {"a": HumanMessage("hi"), "b": 1},
        {"a": {1, 2}},
        {"a": numpy.array([1, 2]), "b": b"bytes", (1, 2): 3, 4: 5},
    ],
)
def test_what_filters_look_at_fits_what_was_written(metadata: Any) -> None:
    """Though not all of it comes back as what it was, where nobody checked that."""
    made = described(record(metadata), Serializer(memory_saver().serde, "off"))
    assert not filtered_wrong(made, projection.of_metadata(metadata))


@pytest.mark.parametrize(
    "change",
    [
        {"a": 2},
        {"a": True},
        {"a": "1"},
        {"b": [True, None]},
        {"more": 1},
        {"source": None},
        {"step": None},
    ],
)
def test_what_filters_look_at_is_compared_by_type(change: dict[str, Any]) -> None:
    """And a key that is not there is not one that is null."""
    made = described(record(EXACT), Serializer(memory_saver().serde, "off"))
    assert filtered_wrong(made, projection.of_metadata(EXACT | change))
    assert filtered_wrong(made, projection.of_metadata(dict(list(EXACT.items())[1:])))
    assert filtered_wrong(made, "[]")
    assert not filtered_wrong(made, projection.of_metadata(EXACT))


def test_names_prove_themselves_by_the_key() -> None:
    """Whatever stands in their place."""
    assert anchors.is_key(THREAD.key, RawThread(b"", b"t"))
    assert not anchors.is_key(THREAD.key, RawThread(b"t", b""))
    assert not anchors.is_key(THREAD.key, RawThread(b"", b"\xff"))


def test_a_finding_is_one_line_that_says_where() -> None:
    found = Finding("redis", "chunk", "lost", "it is gone", "acme", "t", "sub", "c", "k", chunk=7)
    assert str(found) == (
        "lost: thread 't' of tenant 'acme', namespace 'sub', checkpoint c, chunk 7 in Redis:"
        " it is gone"
    )
    unknown = Finding("postgres", "thread", "lost", "it is missing", "", None, "", None, "ab")
    assert str(unknown) == ("lost: thread key ab, namespace '', thread in Postgres: it is missing")


def test_a_report_says_how_it_stands() -> None:
    """As text, as truth, and as JSON."""
    places = ("", "t", "", "c", "k")
    findings = tuple(
        Finding("postgres", "chunk", how, "r", *places) for how in ("repaired", "lost", "repaired")
    )
    report = VerifyReport(1, 2, 3, 4, 5, 6, findings, "token")
    assert not report
    assert str(report).splitlines()[-1] == "2 repaired, 1 lost"
    shown = report.as_dict()
    assert (shown["clean"], shown["lost"], len(shown["findings"])) == (False, 1, 3)
    assert VerifyReport(1, 2, 3, 4, 5, 6, (), None)


def test_a_write_s_name_in_redis_may_be_anything() -> None:
    """What is kept of it is text that Postgres takes."""
    name = write_field("1", "task", 0).decode()
    kept = evidence.hot_quarantined(THREAD.key, "write", "", "1\x00", {name: b"\x00"}, "\x00\ud800")
    assert "\x00" not in "".join((kept.id, kept.reason, *kept.found))
    kept.reason.encode()
