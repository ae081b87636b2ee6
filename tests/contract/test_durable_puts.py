"""What the durable tier does with puts and writes, on every driver."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from langgraph_durable_state.errors import NumberTakenError
from langgraph_durable_state.words import (
    ChunkRow,
    Claim,
    Head,
    Kept,
    Lost,
    ParentGone,
    Put,
    Stored,
    Won,
)
from tests.contract.conftest import DRIVERS
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

pytestmark = pytest.mark.parametrize("ports", [*DRIVERS, "in company"], indirect=True)

# -- compare-and-set -------------------------------------------------------------------------


@pytest.mark.parametrize("claim", [Claim.ANY, Claim.EMPTY, Claim.ASIDE])
async def test_the_first_put_is_the_head(ports: Ports, claim: Claim) -> None:
    """It opens the namespace's order at 1 and is read back as it was sent."""
    first = put("a", claim, chunks=(chunk(7, "hello"),))
    assert await ports.durable.commit([first]) == [Won(1)]
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert found.head == Head("a", 1, mark("a"))
    assert found.row == row(first, 1)
    assert dict(found.chunks) == {7: chunk(7, "hello")}
    assert found.writes == ()


async def test_a_claim_on_the_head_compares_digests(ports: Ports) -> None:
    """The put that expects the digest which is there moves the head."""
    await ports.won(put("a"))
    assert await ports.durable.commit([put("b", Claim.HEAD, "a")]) == [Won(2)]
    assert await ports.durable.heads(HERE.thread) == {"": Head("b", 2, mark("b"))}


@pytest.mark.parametrize("claim", [Claim.HEAD, Claim.EMPTY])
async def test_a_put_whose_claim_is_wrong_is_refused_and_kept(ports: Ports, claim: Claim) -> None:
    """It takes the next place in the order, is read by its id, and the head stays."""
    await ports.won(put("a"), put("b", Claim.HEAD, "a"))
    late = put("c", claim, "a", chunks=(chunk(7, "of c"),))
    assert await ports.durable.commit([late]) == [Lost("b")]
    found = await ports.durable.read(HERE, "c", b"", None)
    assert found is not None
    assert found.row == row(late, 3, refused=True)
    assert dict(found.chunks) == {7: chunk(7, "of c")}
    assert await ports.head(HERE) == "b"
    assert await ports.durable.commit([put("d", Claim.HEAD, "b")]) == [Won(4)]


async def test_a_claim_on_a_thread_that_is_gone_is_lost(ports: Ports) -> None:
    """There is no head to keep the record beside: nothing is stored."""
    assert await ports.durable.commit([put("b", Claim.HEAD, "a", chunks=(chunk(7, "x"),))]) == [
        Lost(None, kept=False)
    ]
    assert await ports.ids() == []
    assert await ports.durable.heads(HERE.thread) == {}


async def test_any_claim_wins_over_any_head(ports: Ports) -> None:
    """A deliberate fork is the head, whatever the head was."""
    await ports.won(put("a"), put("b"))
    assert await ports.durable.commit([put("c", parent="a")]) == [Won(3)]
    assert await ports.head(HERE) == "c"


async def test_a_put_aside_is_kept_but_not_refused(ports: Ports) -> None:
    await ports.won(put("a"))
    stub = put("b", Claim.ASIDE)
    assert await ports.durable.commit([stub]) == [Kept(2)]
    found = await ports.durable.read(HERE, "b", b"", None)
    assert found is not None
    assert found.row == row(stub, 2)
    assert await ports.head(HERE) == "a"


async def test_the_same_id_with_other_content_takes_its_place(ports: Ports) -> None:
    await ports.won(put("a"), put("b"))
    again = put("a", content="other")
    assert await ports.durable.commit([again]) == [Won(3)]
    assert await ports.durable.heads(HERE.thread) == {"": Head("a", 3, mark("other"))}
    assert await ports.ids() == ["a", "b"]


async def test_namespaces_and_threads_and_tenants_have_heads_of_their_own(ports: Ports) -> None:
    places = [at(), at("sub:1"), at(id="u"), at(tenant="x")]
    for place in places:
        assert await ports.durable.commit([put("a", Claim.EMPTY, place=place)]) == [Won(1)]
    assert await ports.durable.commit([put("b", Claim.HEAD, "a", place=at("sub:1"))]) == [Won(2)]
    assert [await ports.head(place) for place in places] == ["a", "b", "a", "a"]


# -- acknowledgements that were lost ---------------------------------------------------------


async def won_at(ports: Ports, one: Put) -> int:
    (outcome,) = await ports.durable.commit([one])
    assert isinstance(outcome, Won)
    return outcome.seq


@pytest.mark.parametrize("claim", [Claim.ANY, Claim.HEAD])
async def test_a_repeated_put_that_is_the_head_has_won(ports: Ports, claim: Claim) -> None:
    await ports.won(put("a"), put("b", claim, "a"))
    assert await won_at(ports, put("b", claim, "a")) == 2
    assert await ports.durable.heads(HERE.thread) == {"": Head("b", 2, mark("b"))}


@pytest.mark.parametrize("claim", [Claim.ANY, Claim.HEAD])
async def test_a_repeated_put_does_not_take_the_head_back(ports: Ports, claim: Claim) -> None:
    """It had won, and another has advanced since."""
    await ports.won(put("a"), put("b", claim, "a"), put("c"))
    assert await won_at(ports, put("b", claim, "a")) == 2
    assert await ports.head(HERE) == "c"
    assert await ports.ids() == ["c", "b", "a"]


async def test_a_repeated_refusal_is_refused_again_and_kept_once(ports: Ports) -> None:
    await ports.won(put("a"), put("b"))
    for _ in range(2):
        assert await ports.durable.commit([put("c", Claim.HEAD, "a")]) == [Lost("b")]
    assert await ports.ids() == ["c", "b", "a"]


async def test_a_repeated_put_aside_is_stored_once(ports: Ports) -> None:
    await ports.won(put("a"), put("b", Claim.ASIDE), put("b", Claim.ASIDE))
    assert await ports.ids() == ["b", "a"]
    assert await ports.head(HERE) == "a"


# -- chunks that a put refers to -------------------------------------------------------------


async def test_a_put_refers_to_the_chunks_of_a_checkpoint_that_is_there(ports: Ports) -> None:
    await ports.won(put("a", chunks=(chunk(7, "x"),)))
    child = put("b", parent="a", refers="a", also=(7,), chunks=(chunk(8, "y"),))
    assert await ports.durable.commit([child]) == [Won(2)]
    found = await ports.durable.read(HERE, "b", b"", None)
    assert found is not None
    assert dict(found.chunks) == {7: chunk(7, "x"), 8: chunk(8, "y")}


@pytest.mark.parametrize("claim", [Claim.ANY, Claim.HEAD])
@pytest.mark.parametrize("refers", [("gone", "gone"), ("a", "other content")])
async def test_a_put_whose_base_is_gone_is_told_so(
    ports: Ports, claim: Claim, refers: tuple[str, str]
) -> None:
    """Gone or replaced by other content: nothing of the put is stored."""
    await ports.won(put("a"))
    child = put("b", claim, "a", refers=refers[0], base=refers[1], also=(7,))
    assert await ports.durable.commit([child]) == [ParentGone()]
    assert await ports.ids() == ["a"]
    assert await ports.durable.heads(HERE.thread) == {"": Head("a", 1, mark("a"))}


async def test_a_put_that_its_claim_covers_needs_no_row(ports: Ports) -> None:
    """The head's digest proves that its chunks are there."""
    await ports.won(put("a"))
    child = put("b", Claim.HEAD, "a", refers="gone", covered=True)
    assert await ports.durable.commit([child]) == [Won(2)]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("claim", [Claim.ANY, Claim.HEAD])
async def test_a_put_with_all_its_chunks_may_need_its_parent_all_the_same(
    ports: Ports, claim: Claim, alone: bool
) -> None:
    """To be read with it, whatever its content is by now."""
    await ports.won(put("a"))
    others = [] if alone else [put("x", place=at("sub"))]
    child = replace(put("b", claim, "a", parent="a", refers="a"), base=b"")
    assert (await ports.durable.commit([*others, child]))[-1] == Won(2)
    orphan = replace(put("c", claim, "b", parent="gone", refers="gone"), base=b"")
    assert (await ports.durable.commit([*others, orphan]))[-1] == ParentGone()
    late = put("d", Claim.HEAD, "x", parent="a", refers="a")
    assert (await ports.durable.commit([*others, replace(late, base=b"")]))[-1] == Lost("b")
    assert await ports.ids(ns="") == ["d", "b", "a"]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("claim", [Claim.ANY, Claim.HEAD, Claim.ASIDE])
async def test_a_put_does_not_follow_what_its_parent_has_become(
    ports: Ports, claim: Claim, alone: bool
) -> None:
    """Though it comes with all its chunks; a parent that is gone has become nothing."""
    await ports.won(put("a"))
    await ports.won(put("b", parent="a"))
    others = [] if alone else [put("x", place=at("sub"))]
    other = replace(put("c", claim, "b", parent="a"), follows=mark("other content"))
    (*_, told) = await ports.durable.commit([*others, other])
    assert told in (ParentGone(), Lost("b", kept=False))
    late = replace(other, claim=Claim.HEAD, expected=mark("x"))
    (*_, told) = await ports.durable.commit([*others, late])
    assert told in (ParentGone(), Lost("b", kept=False))
    assert await ports.ids(ns="") == ["b", "a"]
    same = replace(put("d", claim, "b", parent="a"), follows=mark("a"))
    orphan = replace(put("e", claim, "d", parent="gone"), follows=mark("x"))
    for each in (same, orphan):
        (*_, told) = await ports.durable.commit([*others, each])
        assert isinstance(told, Kept if claim is Claim.ASIDE else Won)


async def test_what_is_kept_under_its_id_is_no_sign_that_a_parent_is_gone(ports: Ports) -> None:
    """It lost twice, with a count of its own each time."""
    await ports.won(put("a"))
    first = put("b", Claim.HEAD, "x", parent="a", refers="a")
    assert await ports.durable.commit([first]) == [Lost("a")]
    again = replace(first, digest=mark("counted anew"))
    assert await ports.durable.commit([again]) == [Lost("a", kept=False)]


async def test_a_refused_put_whose_base_is_gone_is_kept_once_all_is_sent(ports: Ports) -> None:
    await ports.won(put("a"))
    late = put("c", Claim.HEAD, "x", refers="x", also=(7,), covered=True)
    assert await ports.durable.commit([late]) == [ParentGone()]
    whole = put("c", Claim.HEAD, "x", chunks=(chunk(7, "all"),))
    assert await ports.durable.commit([whole]) == [Lost("a")]
    found = await ports.durable.read(HERE, "c", b"", None)
    assert found is not None
    assert dict(found.chunks) == {7: chunk(7, "all")}


async def test_a_put_is_made_from_writes_that_are_there(ports: Ports) -> None:
    """Stored before, or in the same batch."""
    await ports.won(put("a"))
    await ports.durable.commit([writes(write("a", "T", "w"))])
    child = put("b", Claim.HEAD, "a", parent="a", refers="a", covered=True, consumed="w")
    assert await ports.durable.commit([child]) == [Won(2)]
    given = writes(write("b", "T", "v"))
    child = put("c", Claim.HEAD, "b", parent="b", refers="b", covered=True, consumed="v")
    assert await ports.durable.commit([given, child]) == [Stored(), Won(3)]


async def test_a_put_made_from_writes_that_are_gone_is_lost(ports: Ports) -> None:
    """Its chunks may be gone with them; all of them sent, it is not even kept."""
    await ports.won(put("a"))
    await ports.durable.commit([writes(write("a", "T", "other"))])
    for place in at("sub"), at(id="u"):  # elsewhere they are
        await ports.durable.commit([writes(write("a", "T", "w"), place=place)])
    child = put("b", Claim.HEAD, "a", parent="a", refers="a", covered=True, consumed="w")
    assert await ports.durable.commit([child]) == [ParentGone()]
    whole = put("b", Claim.HEAD, "a", parent="a", chunks=(chunk(7, "all"),), consumed="w")
    assert await ports.durable.commit([whole]) == [Lost("a", kept=False)]
    assert await ports.ids(ns="") == ["a"]
    assert await ports.head(HERE) == "a"


async def test_a_refused_put_made_from_writes_that_are_gone_is_kept_once_all_is_sent(
    ports: Ports,
) -> None:
    await ports.won(put("a"), put("b", Claim.HEAD, "a"))
    late = put("c", Claim.HEAD, "a", parent="a", refers="a", covered=True, consumed="w")
    assert await ports.durable.commit([late]) == [ParentGone()]
    whole = put("c", Claim.HEAD, "a", parent="a", chunks=(chunk(7, "all"),), consumed="w")
    assert await ports.durable.commit([whole]) == [Lost("b")]
    found = await ports.durable.read(HERE, "c", b"", None)
    assert found is not None
    assert dict(found.chunks) == {7: chunk(7, "all")}


async def test_a_number_taken_by_other_content_fails_the_put(ports: Ports) -> None:
    """Nothing of it is stored; the same content under its number is no offence."""
    await ports.won(put("a", chunks=(chunk(7, "x"),)))
    with pytest.raises(NumberTakenError):
        await ports.durable.commit([put("b", chunks=(chunk(8, "z"), chunk(7, "y")))])
    assert await ports.ids() == ["a"]
    assert await ports.head(HERE) == "a"
    assert await ports.durable.commit([put("b", chunks=(chunk(7, "x"),))]) == [Won(2)]
    page = await ports.durable.rest(HERE, [], [7, 8], [])
    assert dict(page.chunks) == {7: chunk(7, "x")}


async def test_a_number_taken_fails_a_refused_put_and_writes_too(ports: Ports) -> None:
    await ports.won(put("a", chunks=(chunk(7, "x"),)))
    with pytest.raises(NumberTakenError):
        await ports.durable.commit([put("b", Claim.HEAD, "x", chunks=(chunk(7, "y"),))])
    with pytest.raises(NumberTakenError):
        await ports.durable.commit(
            [writes(write("a", "T", "w", numbers=(7,)), chunks=(chunk(7, "y"),))]
        )
    assert await ports.ids() == ["a"]
    assert (await ports.durable.rest(HERE, ["a"], [], [])).writes == {}


async def test_numbers_are_a_threads_own(ports: Ports) -> None:
    await ports.won(put("a", chunks=(chunk(7, "x"),)))
    other = put("a", place=at(id="u"), chunks=(chunk(7, "y"),))
    assert await ports.durable.commit([other]) == [Won(1)]


# -- batches ---------------------------------------------------------------------------------


async def test_each_item_of_a_batch_fares_alone(ports: Ports) -> None:
    """Outcomes come in the items' order; a loser takes nothing down with it."""
    await ports.won(put("a"), put("a", place=at("sub")))
    batch = [
        writes(write("b", "T", "w")),
        put("b", Claim.HEAD, "wrong"),
        put("b", Claim.HEAD, "a", place=at("sub")),
        put("b", Claim.EMPTY, place=at("new")),
        put("b", Claim.HEAD, "a", place=at(id="u")),
    ]
    told = await ports.durable.commit(batch)
    assert told == [Stored(), Lost("a"), Won(2), Won(1), Lost(None, kept=False)]
    found = await ports.durable.read(HERE, "b", b"", None)
    assert found is not None
    assert [w.blob for w in found.writes] == [b"w"]


async def test_commits_give_each_its_own_outcome(ports: Ports) -> None:
    """Whether or not they travel together."""
    await ports.won(put("a", chunks=(chunk(7, "x"),)), put("a", place=at("sub")))
    told = await asyncio.gather(
        ports.commits.submit(put("b", Claim.HEAD, "a")),
        ports.commits.submit(put("c", Claim.HEAD, "a")),
        ports.commits.submit(put("b", place=at("sub"), chunks=(chunk(7, "taken"),))),
        ports.commits.submit(writes(write("a", "T", "w"))),
        return_exceptions=True,
    )
    assert told[:2] == [Won(2), Lost("b")]
    assert isinstance(told[2], NumberTakenError)
    assert told[3] == Stored()


# -- pending writes --------------------------------------------------------------------------


async def stored(ports: Ports, id: str = "a") -> list[tuple[str, int, bytes]]:
    page = await ports.durable.rest(HERE, [id], [], [])
    return sorted((w.task, min(w.slot, 1), w.blob) for w in page.writes.get(("", id), ()))


async def test_a_tasks_first_batch_stays_the_first(ports: Ports) -> None:
    """A later one that differs is kept beside it; one that is the same is not stored again."""
    for content in ["first", "other", "first", "other", "third"]:
        (outcome,) = await ports.durable.commit([writes(write("a", "T", content))])
        assert isinstance(outcome, Stored)
    assert await stored(ports) == [("T", 0, b"first"), ("T", 1, b"other"), ("T", 1, b"third")]


async def test_the_last_write_to_a_special_channel_counts(ports: Ports) -> None:
    for content in ["one", "two", "two", "three"]:
        await ports.durable.commit([writes(write("a", "T", content, slot=-3))])
    await ports.durable.commit([writes(write("a", "T", "else", slot=-1))])
    assert await stored(ports) == [("T", -3, b"three"), ("T", -1, b"else")]


async def test_ordinary_and_special_writes_of_one_call_are_rows_of_their_own(ports: Ports) -> None:
    await ports.durable.commit([writes(write("a", "T", "w"), write("a", "T", "err", slot=-1))])
    await ports.durable.commit([writes(write("a", "T", "v"), write("a", "T", "now", slot=-1))])
    assert await stored(ports) == [("T", -1, b"now"), ("T", 0, b"w"), ("T", 1, b"v")]


async def test_writes_may_come_before_their_checkpoint(ports: Ports) -> None:
    """They make no checkpoint, and are read with it once it is there, their chunks too."""
    big = writes(write("a", "T", "w", numbers=(9,)), chunks=(chunk(9, "big"),))
    await ports.durable.commit([big])
    assert await ports.durable.read(HERE, "a", b"", None) is None
    assert await ports.durable.read(HERE, None, b"", None) is None
    assert await ports.ids() == []
    await ports.won(put("a"))
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert found.writes == big.rows
    assert dict(found.chunks) == {9: chunk(9, "big")}


async def test_a_later_batch_brings_its_chunks(ports: Ports) -> None:
    await ports.durable.commit([writes(write("a", "T", "first"))])
    late = writes(write("a", "T", "other", numbers=(9,)), chunks=(chunk(9, "big"),))
    await ports.durable.commit([late])
    page = await ports.durable.rest(HERE, ["a"], [], [])
    assert {n for w in page.writes["", "a"] for n in w.numbers} == {9}
    assert dict(page.chunks) == {9: ChunkRow(9, mark("big"), b"\x00\x00\x01big")}


# -- owners ----------------------------------------------------------------------------------


async def test_owners_are_those_of_the_first_put(ports: Ports) -> None:
    await ports.won(put("a", place=at(user="ann", session="s1")), put("b", place=at(user="bob")))
    page = await ports.durable.page(listing(thread=None))
    owners = {(t.id, t.user, t.session) for t, _ in page.rows}
    assert owners == {("t", "ann", "s1")}


async def test_any_text_names_a_thread(ports: Ports) -> None:
    """NUL, lone surrogates and 3,000 characters too."""
    names = ["a\x00b", "\ud800", "x" * 3000, "ü"]
    for name in names:
        await ports.won(put("a", place=at(id=name)))
    found = []
    after = None
    while (page := await ports.durable.page(listing(thread=None, after=after))).rows:
        found += [t for t, _ in page.rows]
        after = (page.rows[-1][0].key, "", page.rows[-1][1].seq)
    assert found == sorted((thread(name) for name in names), key=lambda t: t.key.bytes)
