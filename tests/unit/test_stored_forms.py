"""Stored forms: names, numbers, versions, projections, blobs."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_durable_state import EvolutionError, UsageError
from langgraph_durable_state.decisions import codec, keys, projection
from langgraph_durable_state.decisions.codec import Blobs, Unsound
from langgraph_durable_state.decisions.digest import PLAIN
from langgraph_durable_state.decisions.versions import Tagged, following, run_of
from langgraph_durable_state.settings import Settings
from langgraph_durable_state.words import RecordRow


@given(st.lists(st.integers(0, 2**63 - 1), max_size=400))
def test_packed_numbers_come_back(numbers: list[int]) -> None:
    """Any chunk numbers, from few blocks or many."""
    assert keys.unpacked(keys.packed(numbers)) == tuple(numbers)


def test_numbers_of_one_process_take_four_bytes_each() -> None:
    """One block costs six bytes, each number four."""
    numbers = keys.Numbers()
    assert len(keys.packed([next(numbers) for _ in range(100)])) == 6 + 4 * 100


@pytest.mark.parametrize("data", [b"\x01", b"\x01aaaaa123", b"\x01aaaaa\x01abc", b"\x00abc"])
def test_damaged_numbers_are_noticed(data: bytes) -> None:
    """What was cut off or names an unknown block is no list of numbers."""
    with pytest.raises(ValueError):
        keys.unpacked(data)


def test_number_blocks_are_drawn_anew_when_one_is_used_up() -> None:
    """After 2**23 numbers the next ones are from another block, and none is given twice."""
    numbers = keys.Numbers()
    first = next(numbers)
    drawn, _ = numbers._block
    numbers._block = drawn, iter([2**23 - 1, 2**23])  # type: ignore[assignment]
    assert next(numbers) == drawn | (2**23 - 1)
    assert next(numbers) >> 23 != first >> 23


def test_thread_keys_keep_names_apart() -> None:
    """No two names share a key, whatever characters stand where."""
    names = ["a", "ab", "a:b", "a*", "a%", "a_", "{a}", "é", "\ud800", "x" * 3_000, "\x00"]
    made = {keys.thread_key(tenant, name) for tenant in names for name in names}
    assert len(made) == len(names) ** 2
    assert keys.thread_key("a", "bc") != keys.thread_key("ab", "c")


@pytest.mark.parametrize(
    ("configurable", "message"),
    [
        ({}, "thread_id"),
        ({"thread_id": ""}, "thread_id"),
        ({"thread_id": 1}, "must be a str, not int 1"),
        ({"thread_id": "a", "tenant_id": 1}, "tenant_id must be a str"),
        ({"thread_id": "a", "checkpoint_ns": "a\x00"}, "NUL"),
        ({"thread_id": "a", "checkpoint_ns": "\ud800"}, "lone surrogate"),
        ({"thread_id": "a", "checkpoint_ns": "x" * 1_801}, "at most 1800"),
    ],
)
def test_unusable_names_are_refused(configurable: dict[str, Any], message: str) -> None:
    """With the name of the key and what is wrong with it."""
    with pytest.raises(UsageError, match=message):
        keys.place_of({"configurable": configurable})


def test_versions_are_short_monotonic_and_unique_across_forks() -> None:
    """Children of one parent never share a version, and each is greater than it."""
    version: Any = None
    for _ in range(300):
        children = {following(version) for _ in range(50)}
        assert len(children) == 50
        assert all(version is None or child > version for child in children)
        version = max(children)
        assert len(version) == 19


@pytest.mark.parametrize("current", ["00000000000000000000000000000009.0.5", 9, 9.0])
def test_versions_of_another_saver_keep_their_order(current: Any) -> None:
    """An imported thread goes on in its own form."""
    assert following(current) > current


def test_a_tagged_version_is_a_plain_string_to_all_others() -> None:
    """Equal, hashed, ordered, copied by reference, pickled as a str; `type(v)()` is its null."""
    run = object()
    version = Tagged("00000002.ab", run)
    assert version == "00000002.ab"
    assert hash(version) == hash("00000002.ab")
    assert type(version)() == ""
    assert copy.copy(version) is version
    assert copy.deepcopy(version) is version
    assert type(pickle.loads(pickle.dumps(version))) is str
    assert run_of(version) is run
    assert run_of("00000002.ab") is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (True, 1),
        (None, False),
        ("1", 1),
        ("a\x00", "a"),
        ("\ud800", "?"),
        ("x" * 2_000, "x" * 1_999 + "y"),
        (float("nan"), None),
        (float("inf"), "inf"),
        ([1], {"0": 1}),
        ("\U0010ffff000000", "\x00"),
    ],
)
def test_filters_keep_json_types_and_texts_apart(a: Any, b: Any) -> None:
    """Values that are not the same JSON never have the same projection; each has one."""
    stored = json.loads(projection.of_metadata({"k": a}))
    assert stored["k"] == json.loads(projection.of_filter({"k": a})["k"])
    shown = projection.of_filter({"k": a})["k"], projection.of_filter({"k": b})["k"]
    assert shown[0] != shown[1]


def test_a_filter_that_json_cannot_express_is_a_usage_error() -> None:
    """Not an empty list."""
    with pytest.raises(UsageError, match="bytes cannot be compared"):
        projection.of_filter({"k": b"x"})


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
@given(data=st.binary(max_size=2_000), count=st.integers(1, 64))
def test_blobs_come_back_under_any_compression(compression: Any, data: bytes, count: int) -> None:
    """Each says how it was stored, so any reader can read any."""
    blob = Blobs(compression).pack(data, count)
    assert Blobs("zstd").unpack(blob) == (data, count, PLAIN)


@pytest.mark.parametrize("blob", [b"", b"\x01", b"\x09\x00\x01abc", b"\x01\x00\x01not a frame"])
def test_a_blob_that_cannot_be_read_is_unsound(blob: bytes) -> None:
    """Never another error."""
    with pytest.raises(Unsound):
        Blobs().unpack(blob)


@pytest.mark.parametrize("entries", [5, [5], [[]], [[b"c", "t", "a", b"", "many", 1]], {"a": 1}])
def test_a_manifest_that_nobody_wrote_is_unsound(entries: Any) -> None:
    """Also where it is looked at before the digest is: to find a channel's last value."""
    blobs = Blobs()
    parts = (codec.RECORD_FORMAT, 0, b"", ("msgpack", b""), ("msgpack", b""), entries, [], None)
    row = RecordRow("", "1", None, 1, b"d" * 16, blobs.pack(ormsgpack.packb(parts)), ())
    with pytest.raises(Unsound):
        codec.record_parts(row, blobs).present(row.numbers)


def test_a_record_of_a_newer_format_says_so() -> None:
    """It is not taken for damage."""
    import ormsgpack

    newer = Blobs().pack(ormsgpack.packb((codec.RECORD_FORMAT + 1, 0, b"", (), (), [], [], None)))
    with pytest.raises(EvolutionError, match="newer version"):
        codec.record_parts(RecordRow("", "1", None, 1, b"", newer, ()), Blobs())


GOOD: dict[str, Any] = {
    "schema": "s",
    "prefix": "p",
    "auto_setup": True,
    "on_conflict": "raise",
    "hot_reads": "auto",
    "hot_ttl": 1,
    "touch_on_read": False,
    "head_cache_bytes": 0,
    "compression": "zstd",
    "compression_level": 1,
    "verify_round_trip": "raise",
    "max_value_bytes": None,
    "timeout": 1.0,
    "redis_timeout": 1.0,
    "pool_size": 1,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema", "Robert'; DROP"),
        ("prefix", "{a}"),
        ("on_conflict", "ignore"),
        ("hot_reads", True),
        ("compression", "gzip"),
        ("verify_round_trip", "maybe"),
        ("timeout", 0),
        ("pool_size", -1),
        ("head_cache_bytes", -1),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(name: str, value: Any) -> None:
    """When the saver is made, before anything else."""
    Settings(**GOOD)
    with pytest.raises(UsageError, match=name):
        Settings(**GOOD | {name: value})
