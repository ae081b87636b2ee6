"""What the hot tier keeps and serves, on every driver: by digest, and never half of a copy."""

from __future__ import annotations

import pytest

from langgraph_durable_state.words import Put
from tests.contract.rows import HERE, Ports, at, chunk, mark, put, row

FIRST = put("a", parent=None, chunks=(chunk(1, "one"), chunk(2, "two")))
NEXT = put("b", parent="a", also=(2,), chunks=(chunk(3, "three"),))


async def serves(ports: Ports, one: Put, seq: int, *texts: tuple[int, str]) -> bool:
    """Whether the copy of `one` is there, exactly."""
    found = await ports.hot.fetch(one.place, one.digest)
    return found == (row(one, seq), {no: chunk(no, text) for no, text in texts})


async def test_a_copy_begins_with_a_first_put(ports: Ports) -> None:
    assert await ports.hot.fetch(HERE, mark("a")) is None
    assert await ports.hot.raise_to(FIRST, 1, b"", [])
    assert await serves(ports, FIRST, 1, (1, "one"), (2, "two"))


async def test_a_copy_is_raised_from_the_one_before(ports: Ports) -> None:
    """New chunks come, dropped ones go, the others stay."""
    await ports.hot.raise_to(FIRST, 1, b"", [])
    assert await ports.hot.raise_to(NEXT, 2, mark("a"), [1])
    assert await serves(ports, NEXT, 2, (2, "two"), (3, "three"))
    assert await ports.hot.fetch(HERE, mark("a")) is None


async def test_raising_again_changes_nothing(ports: Ports) -> None:
    await ports.hot.raise_to(FIRST, 1, b"", [])
    for _ in range(2):
        assert await ports.hot.raise_to(NEXT, 2, mark("a"), [1])
    assert await serves(ports, NEXT, 2, (2, "two"), (3, "three"))


async def test_nothing_is_built_on_another_copy(ports: Ports) -> None:
    """An older one goes, since the head is past it; a newer one stays."""
    await ports.hot.raise_to(FIRST, 5, b"", [])
    assert not await ports.hot.raise_to(NEXT, 4, mark("elsewhere"), [1])
    assert await serves(ports, FIRST, 5, (1, "one"), (2, "two"))
    assert not await ports.hot.raise_to(NEXT, 6, mark("elsewhere"), [1])
    assert await ports.hot.fetch(HERE, mark("a")) is None
    assert await ports.hot.fetch(HERE, mark("b")) is None


async def test_a_first_put_does_not_build_on_what_is_there(ports: Ports) -> None:
    await ports.hot.raise_to(FIRST, 1, b"", [])
    assert not await ports.hot.raise_to(put("c", chunks=(chunk(9, "nine"),)), 2, b"", [])
    assert await ports.hot.fetch(HERE, mark("c")) is None


async def test_nothing_is_built_on_nothing(ports: Ports) -> None:
    """A put that needs the one before it makes no copy of its own."""
    assert not await ports.hot.raise_to(NEXT, 2, mark("a"), [1])
    assert await ports.hot.fetch(HERE, mark("b")) is None


@pytest.mark.parametrize(("seq", "replaced"), [(1, True), (2, True), (3, False)])
async def test_a_whole_copy_is_filled_unless_a_newer_is_there(
    ports: Ports, seq: int, replaced: bool
) -> None:
    """Nothing of the one before it is left."""
    await ports.hot.raise_to(FIRST, seq, b"", [])
    whole = put("c", parent="b", also=(9,))
    await ports.hot.fill(HERE, row(whole, 2), [chunk(9, "nine")])
    assert await serves(ports, whole, 2, (9, "nine")) is replaced
    assert (await ports.hot.fetch(HERE, mark("a")) is None) is replaced


async def test_copies_are_a_namespaces_own(ports: Ports) -> None:
    """Dropping some leaves the others."""
    places = [at(), at("s1"), at("s2"), at(id="u"), at(tenant="x")]
    for place in places:
        await ports.hot.raise_to(put("a", place=place), 1, b"", [])
    await ports.hot.drop(HERE.thread, ["", "s1", "none"])
    await ports.hot.drop(HERE.thread, [])
    left = [p for p in places if await ports.hot.fetch(p, mark("a")) is not None]
    assert left == places[2:]


async def test_bytes_of_every_kind_come_back(ports: Ports) -> None:
    """Record, chunks and numbers are bytes and 63-bit numbers, whatever is in them."""
    odd = put("ü", content="\x00\r\n", chunks=(chunk(2**63 - 1, "\x00\r\nü"), chunk(0, "")))
    await ports.hot.raise_to(odd, 2**40, b"", [])
    assert await serves(ports, odd, 2**40, (2**63 - 1, "\x00\r\nü"), (0, ""))
