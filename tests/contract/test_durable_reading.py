"""What the durable tier reads and lists, on every driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from langgraph_durable_state.decisions import projection
from langgraph_durable_state.words import Claim, Head
from tests.contract.rows import (
    HERE,
    Ports,
    at,
    chunk,
    listing,
    mark,
    put,
    row,
    thread,
    write,
    writes,
)

# -- read ------------------------------------------------------------------------------------


async def test_what_is_not_there_reads_as_none(ports: Ports) -> None:
    assert await ports.durable.read(HERE, None, b"", None) is None
    await ports.won(put("a"))
    assert await ports.durable.read(HERE, "b", b"", None) is None
    assert await ports.durable.read(at("sub"), "a", b"", None) is None


async def test_a_checkpoint_by_id_is_its_own_head(ports: Ports) -> None:
    """What is found is named by its own place in the order and its own digest."""
    await ports.won(put("a", chunks=(chunk(7, "x"),)), put("b"))
    found = await ports.durable.read(HERE, "a", b"", None)
    assert found is not None
    assert found.head == Head("a", 1, mark("a"))
    assert found.row is not None
    assert dict(found.chunks) == {7: chunk(7, "x")}


@pytest.mark.parametrize("id", [None, "a"])
@pytest.mark.parametrize(
    ("held", "most", "comes"),
    [
        (b"", None, True),
        (mark("a"), None, False),
        (mark("b"), None, True),
        (b"", 9, False),
        (b"", 10, True),
        (b"", -1, False),
    ],
)
async def test_a_record_that_is_held_or_large_is_left_out(
    ports: Ports, id: str | None, held: bytes, most: int | None, comes: bool
) -> None:
    """Its pending writes come all the same, with their chunks, and without the record's."""
    await ports.won(put("a", chunks=(chunk(7, "x"),), size=10))
    batch = writes(write("a", "T", "w", numbers=(8,)), chunks=(chunk(8, "y"),))
    await ports.durable.commit([batch])
    found = await ports.durable.read(HERE, id, held, most)
    assert found is not None
    assert found.head == Head("a", 1, mark("a"))
    assert (found.row is not None) is comes
    assert set(found.chunks) == ({7, 8} if comes else {8})
    assert found.writes == batch.rows


# -- list ------------------------------------------------------------------------------------


async def test_a_list_is_newest_first_within_each_namespace(ports: Ports) -> None:
    """By the order in which they were put, not by id; namespaces by code point."""
    names = ["", "Z", "a", "é", "\U0001d518"]
    for ns in reversed(names):
        for id in ["2", "3", "1"]:
            await ports.won(put(id, place=at(ns)))
    page = await ports.durable.page(listing())
    assert [(r.ns, r.id) for _, r in page.rows] == [(ns, id) for ns in names for id in "132"]


async def test_a_list_by_namespace_and_by_id(ports: Ports) -> None:
    for ns in ["", "sub"]:
        await ports.won(put("a", place=at(ns)), put("b", place=at(ns)))
    assert await ports.ids(ns="") == ["b", "a"]
    assert await ports.ids(ns="sub", id="a") == ["a"]
    assert await ports.ids(id="a") == ["a", "a"]
    assert await ports.ids(ns="none") == []
    assert await ports.ids(thread=thread("other")) == []


async def test_before_goes_by_position_where_it_is_known(ports: Ports) -> None:
    """What was put before it, whatever the ids say."""
    await ports.won(put("9"), put("1"), put("5"))
    assert await ports.ids(before="5") == ["1", "9"]
    assert await ports.ids(before="9") == []


async def test_before_goes_by_id_elsewhere(ports: Ports) -> None:
    """LangGraph passes a root checkpoint's id into a subgraph's namespace."""
    await ports.won(put("5"), *(put(id, place=at("sub")) for id in ["7", "3", "4"]))
    assert await ports.ids(ns="sub", before="5") == ["4", "3"]
    assert await ports.ids(before="5") == ["4", "3"]
    assert await ports.ids(ns="", before="6") == ["5"]


@pytest.mark.parametrize(
    ("metadata", "wanted", "matches"),
    [
        ({"n": 1}, {"n": 1}, True),
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 1}, {"n": True}, False),
        ({"n": True}, {"n": 1}, False),
        ({"n": False}, {"n": 0}, False),
        ({"n": "1"}, {"n": 1}, False),
        ({"n": None}, {"n": None}, True),
        ({}, {"n": None}, False),
        ({"n": 0}, {"n": None}, False),
        ({"n": 2**53 + 1}, {"n": float(2**53)}, False),
        ({"n": 10**22}, {"n": 1e22}, True),
        ({"n": -0.0}, {"n": 0}, True),
        ({"n": float("nan")}, {"n": float("nan")}, True),
        ({"n": float("inf")}, {"n": float("-inf")}, False),
        ({"n": "a\x00b"}, {"n": "a\x00b"}, True),
        ({"n": "a\x00b"}, {"n": "ab"}, False),
        ({"n": "\ud800"}, {"n": "\ud800"}, True),
        ({"n": "\ud800"}, {"n": "?"}, False),
        ({"n": "x" * 5000}, {"n": "x" * 5000}, True),
        ({"n": "x" * 5000}, {"n": "x" * 4999}, False),
        ({"n": {"a": 1, "b": [2]}}, {"n": {"b": [2], "a": 1}}, True),
        ({"n": {"a": 1, "b": 2}}, {"n": {"a": 1}}, False),
        ({"n": [1, 2]}, {"n": [2, 1]}, False),
        ({"n": (1, 2)}, {"n": [1, 2]}, True),
        ({"n": {"a": [True]}}, {"n": {"a": [1]}}, False),
        ({"n": 1, "m": 2}, {"n": 1, "m": 2}, True),
        ({"n": 1, "m": 2}, {"n": 1, "m": 3}, False),
        ({"n\x00": 1}, {"n\x00": 1}, True),
        ({"n": NotImplemented}, {"n": "anything"}, False),
    ],
    ids=repr,
)
async def test_a_filter_compares_json_with_its_types(
    ports: Ports, metadata: dict[str, Any], wanted: dict[str, Any], matches: bool
) -> None:
    await ports.won(put("a", meta=projection.of_metadata(metadata)))
    found = await ports.ids(filter=projection.of_filter(wanted))
    assert found == (["a"] if matches else [])


async def test_pages_join_to_the_whole(ports: Ports) -> None:
    """Whatever their size, and with puts between them."""
    for ns in ["", "s"]:
        await ports.won(*(put(f"{i}", place=at(ns)) for i in range(5)))
    found: list[tuple[str, str]] = []
    wanted = listing(limit=3)
    while (page := await ports.durable.page(wanted)).rows:
        found += [(r.ns, r.id) for _, r in page.rows]
        last = page.rows[-1][1]
        wanted = replace(wanted, after=(HERE.thread.key, last.ns, last.seq))
        await ports.won(put(f"new {len(found)}"))
    assert found == [(ns, f"{i}") for ns in ["", "s"] for i in reversed(range(5))]


async def test_a_list_of_all_threads_is_the_tenants(ports: Ports) -> None:
    """Each once, in the keys' order, with what was filtered out left out."""
    for id in ["t1", "t2", "t3"]:
        await ports.won(put("a", place=at(id=id)), put("b", place=at(id=id), meta='{"k":1}'))
    await ports.won(put("a", place=at(id="t1", tenant="x")))
    order = sorted(["t1", "t2", "t3"], key=lambda id: thread(id).key.bytes)

    async def all_of(**wanted: Any) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        ask = listing(thread=None, limit=1, **wanted)
        while (page := await ports.durable.page(ask)).rows:
            (of, last) = page.rows[-1]
            found += [(t.id, r.id) for t, r in page.rows]
            ask = replace(ask, after=(of.key, last.ns, last.seq))
        return found

    assert await all_of() == [(id, row) for id in order for row in "ba"]
    assert await all_of(filter={"k": "1"}) == [(id, "b") for id in order]
    assert await all_of(tenant="x") == [("t1", "a")]
    assert await all_of(tenant="y") == []


async def test_a_page_brings_writes_and_chunks(ports: Ports) -> None:
    """All that its rows need and nothing else; `light` cuts the chunks to their header."""
    await ports.won(put("a", chunks=(chunk(1, "x"), chunk(2, "y"))))
    await ports.won(put("b", refers="a", also=(2,)))
    batch = writes(write("b", "T", "w", numbers=(3,)), chunks=(chunk(3, "z"),))
    await ports.durable.commit([batch])
    page = await ports.durable.page(listing(id="b"))
    assert dict(page.writes) == {("", "b"): batch.rows}
    assert dict(page.chunks) == {2: chunk(2, "y"), 3: chunk(3, "z")}
    light = await ports.durable.page(listing(id="b", light=True))
    assert {c.no: c.blob for c in light.chunks.values()} == dict.fromkeys((2, 3), b"\x00\x00\x01")


async def test_a_refused_checkpoint_is_listed_as_such(ports: Ports) -> None:
    await ports.won(put("a"), put("b", Claim.HEAD, "x"))
    page = await ports.durable.page(listing())
    assert [(r.id, r.refused) for _, r in page.rows] == [("b", True), ("a", False)]


# -- chain and rest --------------------------------------------------------------------------


async def test_a_chain_goes_up_through_parents(ports: Ports) -> None:
    """Other branches are not on it; it ends at the limit or where a parent is missing."""
    puts = [
        put("1", parent="gone"),
        put("2", parent="1"),
        put("other", parent="1"),
        put("3", parent="2"),
    ]
    await ports.won(*puts)
    rows = [row(puts[3], 4), row(puts[1], 2), row(puts[0], 1)]
    assert await ports.durable.chain(HERE, "3", 10) == rows
    assert await ports.durable.chain(HERE, "3", 2) == rows[:2]
    assert await ports.durable.chain(HERE, "gone", 10) == []
    assert await ports.durable.chain(at("sub"), "3", 10) == []


async def test_the_rest_of_some_checkpoints(ports: Ports) -> None:
    """Their writes, with those writes' chunks whole, and chunks by number, whole or light."""
    await ports.won(put("a", chunks=(chunk(1, "x"), chunk(2, "y"), chunk(3, "z"))))
    one = writes(write("a", "T", "w", numbers=(4,)), chunks=(chunk(4, "v"),))
    await ports.durable.commit([one])
    await ports.durable.commit([writes(write("b", "T", "w"))])
    page = await ports.durable.rest(HERE, ["a", "none"], [1], [1, 2, 4, 99])
    assert page.rows == ()
    assert dict(page.writes) == {("", "a"): one.rows}
    light = replace(chunk(2, "y"), blob=b"\x00\x00\x01")
    assert dict(page.chunks) == {1: chunk(1, "x"), 2: light, 4: chunk(4, "v")}


async def test_chunk_numbers_of_every_size(ports: Ports) -> None:
    """The packed form that Postgres takes apart holds all 63 bits, and any number of them."""
    numbers = [0, 1, 2**23 - 1, 2**23, 2**63 - 1, *(i << 23 for i in range(2, 300))]
    chunks = tuple(chunk(no, str(no)) for no in numbers)
    await ports.won(put("a", chunks=chunks), put("b", chunks=chunks[:5]), put("c"))
    for id, many in [("a", len(numbers)), ("b", 5), ("c", 0)]:
        found = await ports.durable.read(HERE, id, b"", None)
        assert found is not None
        assert found.row is not None
        assert dict(found.chunks) == {c.no: c for c in chunks[:many]}
        assert found.row.numbers == tuple(numbers[:many])
