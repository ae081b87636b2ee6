"""Signed heads and their witnesses in the tiers, on every driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from langgraph_durable_state.words import Claim, Head, Place, Put, Witnessed
from tests.contract.rows import HERE, InCompany, Ports, at, mark, put, row, thread


def counted(n: int, name: str = "") -> bytes:
    """A witness that counts `n` moves."""
    return f"{n:016d}{name}".encode()


def signed(one: Put, seal: bytes = b"signed") -> Put:
    return replace(one, seal=seal)


async def head(ports: Ports, place: Place = HERE) -> Head:
    found = await ports.durable.read(place, None, b"", None)
    assert found is not None
    return found.head


@pytest.mark.parametrize("company", [False, True], ids=["alone", "in company"])
async def test_a_put_that_wins_signs_the_head(ports: Ports, company: bool) -> None:
    """However it becomes the head; one that loses leaves the signature."""
    durable = InCompany(ports.durable) if company else ports.durable
    await durable.commit([signed(put("a", Claim.EMPTY), b"a's")])
    assert await head(ports) == Head("a", 1, mark("a"), b"a's")
    await durable.commit([signed(put("b", Claim.HEAD, "a"), b"b's")])
    assert (await head(ports)).seal == b"b's"
    await durable.commit([signed(put("c", Claim.HEAD, "a"), b"c's")])
    assert (await head(ports)).seal == b"b's"
    await durable.commit([signed(put("d", Claim.ANY), b"d's")])
    assert await ports.durable.heads(HERE.thread) == {"": await head(ports)}
    assert (await head(ports)).seal == b"d's"
    await durable.commit([put("e", Claim.ANY)])
    assert (await head(ports)).seal == b""


async def test_a_head_is_signed_if_it_is_still_that_one(ports: Ports) -> None:
    await ports.won(put("a"), put("b"))
    assert not await ports.durable.sign_head(HERE, mark("a"), b"a's")
    assert (await head(ports)).seal == b""
    assert await ports.durable.sign_head(HERE, mark("b"), b"b's")
    assert (await head(ports)).seal == b"b's"
    assert not await ports.durable.sign_head(at("other"), mark("b"), b"b's")


async def test_a_head_that_is_moved_back_is_signed_with_what_was_given(ports: Ports) -> None:
    """By its digest; one that nothing was given for is not signed."""
    await ports.won(*(signed(put(name, place=at(ns))) for ns in ("", "x") for name in "abc"))
    assert await ports.durable.remove(HERE.thread, [("", "c"), ("x", "c")], {mark("b"): b"b's"})
    assert (await head(ports)).seal == b"b's"
    assert (await head(ports, at("x"))).seal == b"b's"
    assert await ports.durable.remove(HERE.thread, [("", "b")], {mark("c"): b"c's"})
    assert await head(ports) == replace(await head(ports), id="a", digest=mark("a"), seal=b"")


async def test_the_heads_of_a_copy_are_signed(ports: Ports) -> None:
    """With what is given, in the order of the heads."""
    for ns in ("", "x"):
        await ports.won(signed(put("a", place=at(ns))))
    target = thread("copy")
    rows = [row(put("a", place=at(ns)), 1) for ns in ("", "x")]
    last = [("", "a"), ("x", "a")]
    await ports.durable.copy(HERE.thread, target, rows, [], [])
    await ports.durable.copy(HERE.thread, target, [], [], last, [b"root's", b"x's"])
    assert (await head(ports, at(id="copy"))).seal == b"root's"
    assert (await head(ports, at("x", id="copy"))).seal == b"x's"


async def test_the_newest_signed_head_is_witnessed(ports: Ports) -> None:
    """An older one, told late, changes nothing, unless it is to be kept by force."""
    hot = ports.hot
    assert await hot.witness(HERE) == Witnessed(b"", b"")
    for told, force, kept in (
        (counted(9, "a"), False, counted(9, "a")),
        (counted(8, "b"), False, counted(9, "a")),
        (counted(9, "c"), False, counted(9, "c")),
        (counted(10, "d"), False, counted(10, "d")),
        (counted(2, "e"), True, counted(2, "e")),
        (counted(3, "\x00\xff"), False, counted(3, "\x00\xff")),
    ):
        assert await hot.raise_witness(HERE, told, force, b"")
        assert await hot.witness(HERE) == Witnessed(kept, b"")
    assert await hot.witness(at("x")) == Witnessed(b"", b"")


@pytest.mark.parametrize("force", [False, True])
async def test_a_head_that_was_seen_before_it_was_forgotten_is_not_witnessed(
    ports: Ports, force: bool
) -> None:
    """However often that was; whoever has looked at it since may tell."""
    hot, drops = ports.hot, b""
    await hot.raise_witness(HERE, counted(1), False, b"")
    for before in (True, False, False):
        await hot.drop_witnesses(HERE.thread, [HERE.ns], before)
        assert not await hot.raise_witness(HERE, counted(9), force, drops)
        seen = await hot.witness(HERE)
        assert (seen.head, seen.pending) == (b"", before)
        assert seen.drops != drops
        drops = seen.drops
    assert await hot.raise_witness(HERE, counted(2), force, drops)
    assert await hot.witness(HERE) == Witnessed(counted(2), drops)
    assert await hot.raise_witness(at("x"), counted(1), force, b"")


async def test_witnesses_are_forgotten_by_namespace_thread_or_all(ports: Ports) -> None:
    hot = ports.hot
    places = [at(ns, id) for id in ("t", "u") for ns in ("", "x", "y")]

    async def known() -> list[Place]:
        return [place for place in places if (await hot.witness(place)).head]

    for place in places:
        await hot.raise_witness(place, counted(1), False, b"")
    await hot.drop_witnesses(thread("t"), ["x", "z"], False)
    assert await known() == [p for p in places if p != at("x")]
    await hot.drop_witnesses(thread("t"), None, False)
    assert await known() == places[3:]
    await hot.drop_witnesses(None, None, False)
    assert await known() == []
    await hot.drop_witnesses(thread("t"), [], False)
