"""Marks of heads that the hot tier may be ahead of, and what is flushed under them, on every
driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from langgraph_durable_state.decisions import keys
from langgraph_durable_state.decisions.outgoing import NEVER
from langgraph_durable_state.words import (
    Advance,
    Ahead,
    Claim,
    Found,
    Head,
    Kept,
    Lost,
    Outcome,
    Place,
    Progress,
    Put,
    PutWrites,
    Stored,
    Won,
)
from tests.contract.rows import HERE, Ports, at, chunk, mark, put, row, write, writes

T = b"T" * 16
U = b"U" * 16
V = b"V" * 16
NONE = Head("", 0, b"")


async def marked(ports: Ports, place: Place = HERE, token: bytes = T) -> Head:
    """Marks a head; what it is."""
    found = await ports.durable.mark_ahead(place, token, [token])
    assert found is not None
    assert found[1] == token
    return found[0]


async def flush(
    ports: Ports, *items: Put | PutWrites, old: int = 0, new: int = 1, token: bytes = T
) -> list[Outcome] | None:
    """Flushes items of one place, the last of which has the number `new`."""
    advance = Advance(items[0].place, token, old, new)
    return await ports.durable.flush([advance], [replace(item, spell=token) for item in items])


async def progress(ports: Ports, *places: Place) -> dict[Place, tuple[bytes, int]]:
    found = await ports.durable.progress(places or [HERE])
    return {place: (how.token, how.flushed) for place, how in found.items()}


# -- marks -----------------------------------------------------------------------------------


async def test_what_is_flushed_is_told_with_the_chunk_numbers_of_the_head(ports: Ports) -> None:
    """By them a flusher sees that a parent is stored under other numbers than it was put with."""
    one = put("a", chunks=(chunk(7, "x"),), also=(9,))
    await ports.won(one)
    await marked(ports)
    assert await ports.durable.progress([HERE]) == {
        HERE: Progress(T, 0, mark("a"), keys.mark((7, 9)))
    }
    assert await flush(ports, put("b", Claim.HEAD, "a"), new=4) == [Won(2)]
    assert await ports.durable.progress([HERE]) == {HERE: Progress(T, 4, mark("b"), keys.mark(()))}
    other = at("new")
    await marked(ports, other)
    assert await ports.durable.progress([other]) == {other: Progress(T, 0, b"", b"")}


async def test_writes_of_a_marked_head_come_from_its_spell(ports: Ports) -> None:
    """The hot tier may have taken that task's writes already, and the first ones count."""
    await ports.won(put("a"))
    one = writes(write("a", "t", "w"))
    await marked(ports)
    assert await ports.durable.commit([one]) == [Ahead(T)]
    assert await ports.durable.commit([one, put("x", place=at("s"))]) == [Ahead(T), Won(1)]
    assert await ports.durable.commit([replace(one, spell=U)]) == [Ahead(T)]
    found = await ports.durable.read(HERE, "a", b"", None)
    assert found is not None
    assert found.writes == ()
    assert await ports.durable.commit([replace(one, spell=T)]) == [Stored()]
    assert await ports.durable.clear_ahead(HERE, T)
    assert await ports.durable.commit([replace(one, spell=T)]) == [Ahead(b"")]
    assert await ports.durable.commit([one]) == [Stored(repeated=True)]


async def test_a_head_is_marked_for_one_spell(ports: Ports) -> None:
    """Another has to know whose place it takes."""
    await ports.won(put("a"))
    durable, head = ports.durable, Head("a", 1, mark("a"))
    assert await progress(ports) == {}
    assert await durable.mark_ahead(HERE, T, [T]) == (head, T)
    assert await durable.mark_ahead(HERE, T, []) == (head, T)
    assert await durable.mark_ahead(HERE, U, [U]) == (head, T)
    assert await progress(ports) == {HERE: (T, 0)}
    assert await durable.mark_ahead(HERE, U, [U, T]) == (head, U)
    assert await progress(ports) == {HERE: (U, 0)}


async def test_a_mark_is_cleared_by_whoever_knows_it(ports: Ports) -> None:
    await ports.won(put("a"))
    await marked(ports)
    assert not await ports.durable.clear_ahead(HERE, U)
    assert await ports.durable.clear_ahead(HERE, T)
    assert not await ports.durable.clear_ahead(HERE, T)
    assert await progress(ports) == {}
    assert await ports.head(HERE) == "a"


async def test_where_there_is_no_head_the_mark_is_no_thread(ports: Ports) -> None:
    """Nobody sees one, but who asks for the head is told of the mark."""
    assert await marked(ports) == NONE
    assert await ports.durable.read(HERE, None, b"", None) == Found(NONE, None, (), {}, (), T)
    assert await ports.durable.read(HERE, "a", b"", None) is None
    assert await ports.durable.heads(HERE.thread) == {}
    assert await ports.ids() == []
    assert await ports.ids(thread=None) == []
    assert await ports.durable.clear_ahead(HERE, T)
    assert await ports.durable.read(HERE, None, b"", None) is None


@pytest.mark.parametrize("claim", [Claim.ANY, Claim.EMPTY, Claim.ASIDE])
async def test_a_marked_place_is_opened_by_its_spell(ports: Ports, claim: Claim) -> None:
    """The order begins there."""
    await marked(ports)
    assert await flush(ports, put("n", claim)) == [Won(1)]
    assert await ports.durable.heads(HERE.thread) == {"": Head("n", 1, mark("n"))}
    assert await ports.ids() == ["n"]
    assert await ports.ids(thread=None) == ["n"]


async def test_a_claim_on_a_head_that_is_not_there_is_lost(ports: Ports) -> None:
    await marked(ports)
    (lost,) = await flush(ports, put("n", Claim.HEAD, "a")) or []
    assert isinstance(lost, Lost)
    assert lost.actual is None
    assert await ports.durable.heads(HERE.thread) == {}


async def test_what_is_not_of_the_spell_is_sent_to_the_hot_tier(ports: Ports) -> None:
    """Whatever it claims; and what is of one, where its mark is gone, is told so."""
    await ports.won(put("a"))
    await marked(ports)
    for one in (put("b"), put("b", Claim.HEAD, "a"), put("b", Claim.ASIDE)):
        assert await ports.durable.commit([one]) == [Ahead(T)]
        assert await ports.durable.commit([replace(one, spell=U)]) == [Ahead(T)]
    assert await ports.ids() == ["a"]
    spelled = replace(put("b", Claim.HEAD, "a"), spell=T)
    assert await ports.durable.commit([spelled]) == [Won(2)]
    await ports.durable.clear_ahead(HERE, T)
    late = replace(put("c", Claim.HEAD, "b"), spell=T)
    assert await ports.durable.commit([late]) == [Ahead(b"")]
    assert await ports.durable.commit([put("c", Claim.HEAD, "b")]) == [Won(3)]


async def test_a_mark_is_told_with_every_read(ports: Ports) -> None:
    await ports.won(put("a"), put("b"))
    for expected in (None, T):
        for id in (None, "a", "b"):
            found = await ports.durable.read(HERE, id, b"", None)
            assert found is not None
            assert found.ahead == expected
        await marked(ports)


async def test_marked_heads_are_found(ports: Ports) -> None:
    """Oldest first, of a thread or of all, up to a limit; by their threads' keys."""
    places = [HERE, at("s"), at(id="u")]
    await ports.won(put("a"))
    for place in places:
        await marked(ports, place)
    await ports.won(put("z", place=at(id="v")))
    found = await ports.durable.ahead(None, 100)
    assert {(w.place.thread.key, w.place.ns, w.token) for w in found} == {
        (place.thread.key, place.ns, T) for place in places
    }
    assert [w.since for w in found] == sorted(w.since for w in found)
    assert len(await ports.durable.ahead(None, 2)) == 2
    mine = await ports.durable.ahead(HERE.thread.key, 100)
    assert {(w.place.ns, w.id) for w in mine} == {("", "a"), ("s", "")}
    assert await progress(ports, *places, at("none")) == dict.fromkeys(places, (T, 0))


# -- flushes ---------------------------------------------------------------------------------


async def test_entries_are_flushed_once(ports: Ports) -> None:
    """Whoever comes second with the same ones stores nothing, and is told."""
    await marked(ports)
    batch = put("a", Claim.EMPTY), writes(write("a", "T", "w", slot=-3))
    assert await flush(ports, *batch, new=2) == [Won(1), Stored()]
    assert await progress(ports) == {HERE: (T, 2)}
    newer = writes(write("a", "T", "newer", slot=-3))
    assert await flush(ports, put("b", Claim.HEAD, "a"), newer, old=2, new=4) is not None
    assert await flush(ports, *batch, new=2) is None
    assert await ports.head(HERE) == "b"
    found = await ports.durable.read(HERE, "a", b"", None)
    assert found is not None
    assert [w.blob for w in found.writes] == [b"newer"]


@pytest.mark.parametrize(("token", "old"), [(U, 0), (T, 1)], ids=["another spell", "not so far"])
async def test_nothing_is_flushed_if_one_head_is_not_where_it_was(
    ports: Ports, token: bytes, old: int
) -> None:
    """Nor what stands in the same batch for others."""
    other = at(id="u")
    for place in (HERE, other):
        await marked(ports, place)
    advances = [Advance(HERE, T, 0, 5), Advance(other, token, old, 5)]
    batch = [
        replace(put("a", Claim.EMPTY, chunks=(chunk(1, "one"),)), spell=T),
        replace(put("a", Claim.EMPTY, place=other), spell=token),
        writes(write("a", "T", "w"), place=other),
    ]
    assert await ports.durable.flush(advances, batch) is None
    assert await progress(ports, HERE, other) == {HERE: (T, 0), other: (T, 0)}
    assert await ports.ids(thread=None) == []
    good = [Advance(HERE, T, 0, 5), Advance(other, T, 0, 6)]
    told = await ports.durable.flush(good, [replace(item, spell=T) for item in batch])
    assert told == [Won(1), Won(1), Stored()]
    assert await progress(ports, HERE, other) == {HERE: (T, 5), other: (T, 6)}


async def test_nothing_is_flushed_where_there_is_no_mark(ports: Ports) -> None:
    await ports.won(put("a"))
    assert await flush(ports, put("b", Claim.HEAD, "a")) is None
    assert await flush(ports, put("b", place=at("none"))) is None
    assert await ports.ids() == ["a"]


async def test_each_spell_counts_from_the_beginning(ports: Ports) -> None:
    """Whether the one before it was ended or replaced."""
    await marked(ports)
    await flush(ports, put("a", Claim.EMPTY), new=9)
    await ports.durable.mark_ahead(HERE, U, [T])
    assert await progress(ports) == {HERE: (U, 0)}
    assert await flush(ports, put("b", Claim.HEAD, "a"), token=U, new=3) == [Won(2)]
    await ports.durable.clear_ahead(HERE, U)
    await marked(ports, token=V)
    assert await progress(ports) == {HERE: (V, 0)}


async def test_marking_again_forgets_nothing_that_was_flushed(ports: Ports) -> None:
    await marked(ports)
    await flush(ports, put("a", Claim.EMPTY), new=9)
    await marked(ports)
    assert await progress(ports) == {HERE: (T, 9)}


async def test_what_lost_is_kept_with_the_flush(ports: Ports) -> None:
    """A spell's put that finds the head moved, one that was refused, one beside the head."""
    await ports.won(put("a"), put("b"))
    await marked(ports)
    moved = put("m", Claim.HEAD, "a", chunks=(chunk(1, "one"),))
    refused = put("r", Claim.HEAD)
    refused = replace(refused, expected=NEVER)
    assert await flush(ports, moved, new=1) == [Lost("b")]
    assert await flush(ports, refused, old=1, new=2) == [Lost("b")]
    assert await flush(ports, put("k", Claim.ASIDE), old=2, new=3) == [Kept(5)]
    assert await ports.ids() == ["k", "r", "m", "b", "a"]
    found = await ports.durable.read(HERE, "m", b"", None)
    assert found is not None
    assert found.row == row(moved, 3, refused=True)
    assert found.chunks == {1: chunk(1, "one")}
    assert await ports.head(HERE) == "b"


async def test_batches_that_differ_are_kept_with_the_flush(ports: Ports) -> None:
    """Beside a task's first; one that is there is not stored again."""
    await marked(ports)
    sent = [
        writes(write("a", "T", text, numbers=(no,)), chunks=(chunk(no, text),))
        for no, text in ((1, "one"), (2, "two"), (3, "two"), (4, "one"))
    ]
    for i, item in enumerate(sent):
        (told,) = await flush(ports, item, old=i, new=i + 1) or []
        assert isinstance(told, Stored)
    page = await ports.durable.rest(HERE, ["a"], range(9), ())
    assert sorted(w.blob for w in page.writes["", "a"]) == [b"one", b"two"]
    assert page.chunks.keys() == {1, 2}


async def test_a_put_and_its_parents_writes_are_flushed_together(ports: Ports) -> None:
    """It may be made from writes of the same batch."""
    await marked(ports)
    await flush(ports, put("a", Claim.EMPTY))
    item = writes(write("a", "T", "w"))
    child = replace(put("b", Claim.HEAD, "a", parent="a"), consumed=(mark("w"),))
    assert await flush(ports, item, child, old=1, new=3) == [Stored(), Won(2)]


async def test_a_checkpoint_of_the_same_id_is_replaced_in_a_spell(ports: Ports) -> None:
    """A put was stored, its answer lost, and the hot tier took it again in other words."""
    await ports.won(put("a"), put("b", content="first"))
    await marked(ports)
    assert await flush(ports, put("b", Claim.HEAD, "a", content="again")) == [Won(3)]
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert found.head == Head("b", 3, mark("again"))
    assert await ports.ids() == ["b", "a"]


# -- removing --------------------------------------------------------------------------------


async def test_nothing_is_removed_from_a_thread_that_is_marked(ports: Ports) -> None:
    """In whichever namespace."""
    await ports.won(put("a"), put("b"))
    await marked(ports, at("s"))
    assert not await ports.durable.remove(HERE.thread, [("", "a")])
    assert await ports.ids() == ["b", "a"]
    await ports.durable.clear_ahead(at("s"), T)
    assert await ports.durable.remove(HERE.thread, [("", "a")])
    assert await ports.ids() == ["b"]


async def test_deleting_a_thread_tells_what_was_marked(ports: Ports) -> None:
    """A namespace with nothing but a mark as well; nothing of it is left."""
    await ports.won(put("a"), put("b", place=at("s")))
    await marked(ports, at("s"))
    await marked(ports, at("new"))
    told = await ports.durable.delete_thread(HERE.thread)
    assert told == {"": False, "s": True, "new": True}
    assert await progress(ports, at("s"), at("new")) == {}
    assert await ports.durable.ahead(None, 9) == []
    assert await ports.durable.delete_thread(HERE.thread) == {}
    assert await flush(ports, put("c", place=at("s"))) is None


async def test_a_prune_leaves_the_mark(ports: Ports) -> None:
    """And looks past a namespace that only has one."""
    await ports.won(put("a"), put("b"))
    for place in (HERE, at("new")):
        await marked(ports, place)
    heads: dict[str, Head] = await ports.durable.heads(HERE.thread)
    kept: Sequence[tuple[str, str]] = [("", "b")]
    assert await ports.durable.keep(HERE.thread, kept, heads)
    assert await ports.ids() == ["b"]
    assert await progress(ports, HERE, at("new")) == {HERE: (T, 0), at("new"): (T, 0)}
