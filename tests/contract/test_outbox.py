"""What the hot tier holds before the durable one does, on every driver: who wins, what is flushed,
and when it may be forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from langgraph_durable_state import CorruptionError
from langgraph_durable_state.drivers.memory_outbox import MemoryOutbox
from langgraph_durable_state.words import (
    Answer,
    ChunkRow,
    Claim,
    Cold,
    Digest,
    Head,
    HotFound,
    Kept,
    Opened,
    Outgoing,
    Phase,
    Place,
    Put,
    Spell,
    Step,
    Stored,
    Unfit,
    Won,
)
from tests.contract.conftest import BOUND
from tests.contract.rows import HERE, Ports, at, chunk, mark, put, thread, write, writes

T = b"T" * 16
U = b"U" * 16
V = b"V" * 16
TWO = Head("2", 7, mark("2"))
"""The durable head that most spells here are opened on."""


async def append(
    ports: Ports,
    one: Put,
    *,
    step: Step | None = None,
    token: bytes = T,
    opened: Opened | None = None,
    refused: bool = False,
) -> Answer:
    """Appends a put whose copy is whole unless told otherwise."""
    return await ports.outbox.append(one, step or Step(b"", one.chunks), token, opened, refused)


async def begin(
    ports: Ports,
    head: Head | None = TWO,
    *,
    token: bytes = T,
    place: Place = HERE,
    first: str = "a",
) -> None:
    """Opens a spell on a durable head (None: nobody knows it) by a put."""
    one = put(first, place=place)
    assert await append(ports, one, token=token) == Cold(token, b"")
    assert isinstance(await append(ports, one, token=token, opened=Opened(head, True)), Won)


async def spell(ports: Ports, place: Place = HERE) -> Spell | None:
    return (await ports.outbox.peek(place, b"")).spell


async def take(ports: Ports, holder: bytes = b"", limit: int = 100) -> Outgoing:
    out = await ports.outbox.take(HERE.thread, holder, limit)
    assert out is not None
    return out


async def ack(
    ports: Ports,
    out: Outgoing,
    count: int | None = None,
    flushed: Sequence[str] = (),
    *,
    token: bytes = T,
    holder: bytes = b"",
) -> int:
    """Acknowledges the first `count` of what was taken; `flushed` are contents of heads."""
    count = len(out.entries) if count is None else count
    heads: dict[tuple[str, bytes], Sequence[Digest]] = {}
    if flushed:
        heads["", token] = [mark(text) for text in flushed]
    last = out.entries[count - 1].number
    return await ports.outbox.ack(HERE.thread, holder, out.first, count, last, heads)


# -- opening ---------------------------------------------------------------------------------


async def test_nothing_is_there_at_first(ports: Ports) -> None:
    assert await ports.outbox.peek(HERE, b"") == HotFound(None, b"", None, {}, (), {})
    assert await take(ports) == Outgoing(0, (), 0)
    assert await ports.outbox.threads() == []


async def test_a_spell_is_opened_in_two_steps(ports: Ports) -> None:
    """Nothing is taken before the durable head is marked with its token."""
    assert await append(ports, put("a")) == Cold(T, b"")
    opening = await spell(ports)
    assert opening is not None
    assert (opening.token, opening.phase) == (T, Phase.OPENING)
    assert (await take(ports)).entries == ()
    assert await append(ports, put("a"), opened=Opened(TWO, True)) == Won(8)
    assert await spell(ports) == Spell(
        T, Phase.OPEN, b"", Head("a", 8, mark("a")), mark("2"), (mark("a"),), True, True, False
    )


async def test_two_open_one_spell(ports: Ports) -> None:
    """The second is told whose token it is, and only that one opens it."""
    assert await append(ports, put("a"), token=T) == Cold(T, b"")
    assert await append(ports, put("b"), token=U) == Cold(T, b"")
    assert await append(ports, put("b"), token=U, opened=Opened(TWO, True)) == Cold(T, b"")
    assert await append(ports, put("b"), token=T, opened=Opened(TWO, True)) == Won(8)
    assert await append(ports, put("a", Claim.HEAD, "2"), opened=Opened(TWO, True)) is Unfit.LOST


async def test_the_durable_head_need_not_be_marked(ports: Ports) -> None:
    """Who is told so can say it; and that it is marked now, as long as the spell is there."""
    await append(ports, put("a"))
    assert await append(ports, put("a"), opened=Opened(TWO, False)) == Won(8, guarded=False)
    assert await append(ports, put("a")) == Won(8, repeated=True, guarded=False)
    assert not await ports.outbox.guard(HERE, U)
    assert await ports.outbox.guard(HERE, T)
    assert await append(ports, put("b")) == Won(9, guarded=True)
    assert not await ports.outbox.guard(at("none"), T)


@pytest.mark.parametrize(
    ("claim", "expected", "how", "before"),
    [
        (Claim.ANY, "", Claim.ANY, b""),
        (Claim.HEAD, "2", Claim.HEAD, mark("2")),
        (Claim.EMPTY, "", Claim.EMPTY, b""),
        (Claim.ASIDE, "", Claim.EMPTY, b""),
    ],
)
async def test_an_unknown_head_is_claimed_when_it_is_flushed(
    ports: Ports, claim: Claim, expected: str, how: Claim, before: Digest
) -> None:
    """Whatever a put claims, it wins while nobody can be asked; what it expects is what the spell
    builds on from then on."""
    one = put("a", claim, expected)
    await append(ports, one)
    assert await append(ports, one, opened=Opened(None, False)) == Won(1, guarded=False)
    found = await spell(ports)
    assert found is not None
    base = None if claim is Claim.ANY else before
    assert (found.base, found.chain) == (base, (mark("a"),))
    (entry,) = (await take(ports)).entries
    assert isinstance(entry.item, Put)
    assert (entry.item.claim, entry.item.expected, entry.advances) == (how, before, True)


async def test_writes_alone_on_an_unknown_head_leave_it_unknown(ports: Ports) -> None:
    item = writes(write("2", "T", "w"))
    assert await ports.outbox.append_writes(item, T, None) == Cold(T, b"")
    opened = Opened(None, False)
    assert await ports.outbox.append_writes(item, T, opened) == Stored(guarded=False)
    found = await spell(ports)
    assert found is not None
    assert (found.head.digest, found.base, found.chain) == (b"", None, ())


# -- claims ----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [TWO, Head("", 3, b"")], ids=["a head", "no head"])
@pytest.mark.parametrize(
    ("claim", "expected", "on_head", "on_none"),
    [
        (Claim.ANY, "", Won(8), Won(4)),
        (Claim.HEAD, "2", Won(8), Unfit.LOST),
        (Claim.HEAD, "other", Unfit.LOST, Unfit.LOST),
        (Claim.EMPTY, "", Unfit.LOST, Won(4)),
        (Claim.ASIDE, "", Kept(7), Won(4)),
    ],
)
async def test_a_claim_on_the_head_a_spell_opens_on(
    ports: Ports, head: Head, claim: Claim, expected: str, on_head: Answer, on_none: Answer
) -> None:
    one = put("a", claim, expected)
    await append(ports, one)
    wanted = on_head if head.digest else on_none
    assert await append(ports, one, opened=Opened(head, True)) == wanted
    taken = (await take(ports)).entries
    assert len(taken) == (wanted is not Unfit.LOST)
    for entry in taken:
        assert entry.advances is isinstance(wanted, Won)


async def test_the_hot_head_is_claimed_from_then_on(ports: Ports) -> None:
    """One of two that start from it wins; the order goes on."""
    await begin(ports)
    assert await append(ports, put("b", Claim.HEAD, "a")) == Won(9)
    assert await append(ports, put("c", Claim.HEAD, "a")) is Unfit.LOST
    assert await append(ports, put("c", Claim.HEAD, "b")) == Won(10)
    assert await append(ports, put("d", Claim.EMPTY)) is Unfit.LOST
    assert [e.item.id for e in (await take(ports)).entries] == ["a", "b", "c"]
    for entry, before in zip((await take(ports)).entries, ["2", "a", "b"], strict=True):
        assert isinstance(entry.item, Put)
        assert (entry.item.claim, entry.item.expected) == (Claim.HEAD, mark(before))
        assert (entry.item.spell, entry.token, entry.advances) == (T, T, True)


async def test_a_put_whose_answer_was_lost_is_repeated(ports: Ports) -> None:
    """It is there already; once another has come after it, only the durable tier can tell."""
    await begin(ports)
    assert await append(ports, put("b", Claim.HEAD, "a")) == Won(9)
    assert await append(ports, put("b", Claim.HEAD, "a")) == Won(9, repeated=True)
    assert await append(ports, put("c", Claim.HEAD, "b")) == Won(10)
    assert await append(ports, put("b", Claim.HEAD, "a")) is Unfit.LOST
    assert len((await take(ports)).entries) == 3


async def test_what_is_refused_is_kept_and_never_wins(ports: Ports) -> None:
    """Not even where its claim would."""
    await begin(ports)
    assert await append(ports, put("b", Claim.HEAD, "a"), refused=True) == Kept(8)
    assert await append(ports, put("c", Claim.ANY), refused=True) == Kept(8)
    entries = (await take(ports)).entries[1:]
    assert [(e.item.id, e.refused, e.advances) for e in entries] == [
        ("b", True, False),
        ("c", True, False),
    ]
    assert all(isinstance(e.item, Put) and e.item.claim is Claim.HEAD for e in entries)
    found = await spell(ports)
    assert found is not None
    assert found.head == Head("a", 8, mark("a"))


async def test_a_full_outbox_takes_nothing(ports: Ports) -> None:
    """Until something is taken off; who lost is told that, and who repeats that."""
    await begin(ports)
    for i in range(BOUND - 1):
        assert isinstance(await append(ports, put(f"b{i}")), Won)
    last = f"b{BOUND - 2}"
    assert await append(ports, put("c")) is Unfit.FULL
    assert await append(ports, put("c", Claim.ASIDE)) is Unfit.FULL
    assert await append(ports, put("c"), refused=True) is Unfit.FULL
    assert await append(ports, put("c", Claim.EMPTY)) is Unfit.LOST
    assert await append(ports, put(last)) == Won(7 + BOUND, repeated=True)
    assert await ports.outbox.append_writes(writes(write("a", "T", "w")), T, None) is Unfit.FULL
    await ack(ports, await take(ports), 1, ["a"])
    assert await append(ports, put("c")) == Won(8 + BOUND)


async def test_namespaces_and_threads_are_apart(ports: Ports) -> None:
    """Each has a head of its own; a thread has one outbox."""
    inside, other = at("s"), at(id="u")
    await begin(ports)
    await begin(ports, token=U, place=inside)
    await begin(ports, token=V, place=other)
    assert [(e.item.place, e.token) for e in (await take(ports)).entries] == [
        (HERE, T),
        (inside, U),
    ]
    assert await ports.outbox.threads() == sorted([HERE.thread.key, other.thread.key])
    assert (await ports.outbox.depth(HERE.thread))[0] == 2


# -- copies ----------------------------------------------------------------------------------


async def copied(ports: Ports) -> dict[int, ChunkRow]:
    return dict((await ports.outbox.peek(HERE, b"")).chunks)


async def test_the_copy_follows_the_head(ports: Ports) -> None:
    """New chunks come, dropped ones go, the others stay; or it begins anew."""
    await begin(ports)
    one = put("b", chunks=(chunk(1, "one"), chunk(2, "two")))
    assert await append(ports, one, step=Step(mark("a"), one.chunks)) == Won(9)
    assert await copied(ports) == {1: chunk(1, "one"), 2: chunk(2, "two")}
    two = put("c", chunks=(chunk(3, "three"),), also=(2,))
    assert await append(ports, two, step=Step(mark("b"), two.chunks, (1,))) == Won(10)
    found = await ports.outbox.peek(HERE, b"")
    assert found.chunks == {2: chunk(2, "two"), 3: chunk(3, "three")}
    assert found.digest == mark("c")
    assert found.row is not None
    assert (found.row.id, found.row.seq, found.row.numbers) == ("c", 10, (3, 2))
    assert (found.row.digest, found.row.record) == (two.digest, two.record)
    whole = put("d", chunks=(chunk(9, "nine"),))
    assert await append(ports, whole) == Won(11)
    assert await copied(ports) == {9: chunk(9, "nine")}


async def test_a_put_on_another_copy_is_asked_for_whole(ports: Ports) -> None:
    """Nothing of it is done until it comes so."""
    await begin(ports)
    one = put("b", chunks=(chunk(1, "one"),))
    assert await append(ports, one, step=Step(mark("elsewhere"), one.chunks)) is Unfit.WHOLE
    assert len((await take(ports)).entries) == 1
    assert await copied(ports) == {}
    await ports.hot.drop(HERE.thread, [""])
    assert await append(ports, one, step=Step(mark("a"), one.chunks)) is Unfit.WHOLE
    assert await append(ports, one) == Won(9)


async def test_a_held_copy_is_left_out(ports: Ports) -> None:
    await begin(ports)
    found = await ports.outbox.peek(HERE, mark("a"))
    assert (found.digest, found.row, found.chunks) == (mark("a"), None, {})
    assert found.spell is not None


async def test_while_there_is_a_spell_the_copy_is_its_own(ports: Ports) -> None:
    """Who writes through, or fills what a reader missed, does not touch it."""
    await begin(ports)
    other = put("z", chunks=(chunk(9, "nine"),))
    assert await ports.hot.raise_to(other, 99, mark("a"), [])
    found = await ports.outbox.peek(HERE, b"")
    assert found.row is not None
    await ports.hot.fill(HERE, replace(found.row, id="z", digest=mark("z"), seq=99), [])
    assert (await ports.outbox.peek(HERE, b"")).digest == mark("a")


# -- writes ----------------------------------------------------------------------------------


async def pending(ports: Ports) -> dict[tuple[str, str, int], bytes]:
    found = (await ports.outbox.peek(HERE, b"")).writes
    return {(row.id, row.task, row.slot): row.blob for row in found}


async def test_a_tasks_first_batch_stays(ports: Ports) -> None:
    """One that differs is kept beside it, once; one that is there already is not taken again."""
    await begin(ports)
    box = ports.outbox
    assert await box.append_writes(writes(write("a", "T", "one")), T, None) == Stored()
    assert await box.append_writes(writes(write("a", "T", "one")), T, None) == Stored(repeated=True)
    for repeated in (False, True):
        again = await box.append_writes(writes(write("a", "T", "two")), T, None)
        assert again == Stored(repeated=repeated)
    found = await pending(ports)
    assert found.pop(("a", "T", 0)) == b"one"
    ((where, blob),) = found.items()
    assert (where[:2], where[2] > 0, blob) == (("a", "T"), True, b"two")
    assert len((await take(ports)).entries) == 3


async def test_a_special_channel_is_replaced(ports: Ports) -> None:
    await begin(ports)
    for text in ("one", "two", "two"):
        await ports.outbox.append_writes(writes(write("a", "T", text, slot=-3)), T, None)
    assert await pending(ports) == {("a", "T", -3): b"two"}
    assert len((await take(ports)).entries) == 3


async def test_batches_of_one_call_are_taken_together(ports: Ports) -> None:
    """With their chunks; if any of them is new, all are flushed."""
    await begin(ports)
    rows = write("a", "T", "w", numbers=(5,)), write("a", "T", "e", slot=-1, numbers=(6,))
    item = writes(*rows, chunks=(chunk(5, "five"), chunk(6, "six")))
    await ports.outbox.append_writes(writes(rows[0], chunks=(chunk(5, "five"),)), T, None)
    assert await ports.outbox.append_writes(item, T, None) == Stored()
    found = await ports.outbox.peek(HERE, b"")
    assert set(found.writes) == set(rows)
    assert found.write_chunks == {5: chunk(5, "five"), 6: chunk(6, "six")}
    assert (await take(ports)).entries[-1].item == replace(item, spell=T)


async def test_writes_of_the_head_that_is_left_go(ports: Ports) -> None:
    """Those of the next one may have come first."""
    await begin(ports)
    for id in ("a", "b", "ab"):
        await ports.outbox.append_writes(writes(write(id, "T", id)), T, None)
    await append(ports, put("b", Claim.HEAD, "a"))
    assert await pending(ports) == {("b", "T", 0): b"b", ("ab", "T", 0): b"ab"}
    assert [e.item.id for e in (await take(ports)).entries] == ["a", "a", "b", "ab", "b"]


async def test_durable_writes_are_noted(ports: Ports) -> None:
    """Of one checkpoint only, and not in a spell, which has its own."""
    await ports.outbox.note(writes(write("2", "T", "one")))
    await ports.outbox.note(writes(write("2", "U", "two")))
    assert await pending(ports) == {("2", "T", 0): b"one", ("2", "U", 0): b"two"}
    await ports.outbox.note(writes(write("3", "T", "three")))
    assert await pending(ports) == {("3", "T", 0): b"three"}
    await begin(ports)
    await ports.outbox.note(writes(write("4", "T", "four")))
    assert await pending(ports) == {("3", "T", 0): b"three"}


# -- flushing --------------------------------------------------------------------------------


async def test_entries_are_numbered_upward_within_a_spell(ports: Ports) -> None:
    await begin(ports)
    await ports.outbox.append_writes(writes(write("a", "T", "w")), T, None)
    await append(ports, put("b"))
    first = await take(ports)
    numbers = [entry.number for entry in first.entries]
    assert numbers == sorted(set(numbers))
    await ack(ports, first, flushed=["a", "b"])
    await append(ports, put("c"))
    assert (await take(ports)).entries[0].number > numbers[-1]


async def test_what_is_acknowledged_is_taken_off_in_order(ports: Ports) -> None:
    """The base follows what is flushed, the chain is what is not."""
    await begin(ports)
    for id in "bcd":
        await append(ports, put(id))
    out = await take(ports, limit=3)
    assert ([e.item.id for e in out.entries], out.left) == (["a", "b", "c"], 1)
    assert await ack(ports, out, 2, ["a", "b"]) == 2
    found = await spell(ports)
    assert found is not None
    assert (found.base, found.chain) == (mark("b"), (mark("c"), mark("d")))
    assert await ack(ports, await take(ports), flushed=["c", "d"]) == 0
    found = await spell(ports)
    assert found is not None
    assert (found.base, found.chain, found.phase) == (mark("d"), (), Phase.OPEN)
    assert found.head == Head("d", 11, mark("d"))
    assert await ports.outbox.threads() == []


async def test_the_same_entries_are_taken_off_once(ports: Ports) -> None:
    """Two who flushed them: the second is told, and takes nothing of what came later."""
    await begin(ports)
    mine, yours = await take(ports), await take(ports)
    await append(ports, put("b"))
    assert await ack(ports, mine, flushed=["a"]) == 1
    assert await ack(ports, yours, flushed=["a"]) == -1
    assert [e.item.id for e in (await take(ports)).entries] == ["b"]
    assert await ack(ports, await take(ports), flushed=["b"]) == 0
    assert await ack(ports, mine) == -1
    await append(ports, put("c"))
    assert await ack(ports, mine) == -1


async def test_one_flushes_a_thread_at_a_time(ports: Ports) -> None:
    """Who names no holder does not wait; who has flushed all lets the next."""
    await begin(ports)
    out = await take(ports, U)
    assert await ports.outbox.take(HERE.thread, V, 100) is None
    assert await ports.outbox.take(HERE.thread, b"", 100) == out
    assert await ports.outbox.take(HERE.thread, U, 100) == out
    assert await ack(ports, out, flushed=["a"], holder=U) == 0
    await append(ports, put("b"))
    assert len((await take(ports, V)).entries) == 1


async def test_whoever_finds_nothing_to_flush_leaves_another_the_lease(ports: Ports) -> None:
    """Who names no holder has none of it; a holder gives up its own."""
    await begin(ports)
    out = await take(ports, U)
    assert await ack(ports, out, flushed=["a"]) == 0  # by somebody without a holder
    assert (await take(ports)).entries == ()
    assert await ports.outbox.take(HERE.thread, V, 100) is None
    assert (await take(ports, U)).entries == ()
    assert (await take(ports, V)).entries == ()


async def test_other_spells_than_those_flushed_stay_as_they_are(ports: Ports) -> None:
    """An acknowledgement for a spell that is not there any more changes no other."""
    await begin(ports)
    out = await take(ports)
    assert await ack(ports, out, flushed=["a"], token=U) == 0
    found = await spell(ports)
    assert found is not None
    assert (found.base, found.chain) == (mark("2"), (mark("a"),))


# -- ending ----------------------------------------------------------------------------------


async def test_a_spell_is_closed_when_nothing_is_left(ports: Ports) -> None:
    """And forgotten then; its copy stays, for whoever writes through."""
    await begin(ports)
    assert not await ports.outbox.close(HERE, T, 0.0)
    await ack(ports, await take(ports), flushed=["a"])
    assert not await ports.outbox.close(HERE, U, 0.0)
    assert not await ports.outbox.close(HERE, T, 3_600.0)
    await ports.outbox.forget(HERE, T)
    assert await spell(ports) is not None
    for _ in range(2):
        assert await ports.outbox.close(HERE, T, 0.0)
    found = await spell(ports)
    assert found is not None
    assert found.phase is Phase.CLOSING
    await ports.outbox.forget(HERE, U)
    assert await spell(ports) is not None
    await ports.outbox.forget(HERE, T)
    assert await spell(ports) is None
    assert (await ports.outbox.peek(HERE, b"")).digest == mark("a")


async def test_another_namespaces_entries_keep_a_spell_open(ports: Ports) -> None:
    """They may stand behind some of its own: the outbox is the thread's."""
    await begin(ports)
    await ack(ports, await take(ports), flushed=["a"])
    await begin(ports, token=U, place=at("s"))
    assert not await ports.outbox.close(HERE, T, 0.0)


async def test_a_new_spell_begins_while_one_closes(ports: Ports) -> None:
    """It knows whose mark it may replace; the one that closes is not forgotten into it."""
    await begin(ports)
    await ack(ports, await take(ports), flushed=["a"])
    await ports.outbox.close(HERE, T, 0.0)
    assert await append(ports, put("b"), token=U) == Cold(U, T)
    await ports.outbox.forget(HERE, T)
    head = Head("a", 8, mark("a"))
    assert await append(ports, put("b"), token=U, opened=Opened(head, True)) == Won(9)
    found = await spell(ports)
    assert found is not None
    assert (found.token, found.previous, found.base) == (U, T, mark("a"))
    assert found.chain == (mark("b"),)


async def test_a_spell_that_is_opening_can_be_closed(ports: Ports) -> None:
    """Who began it may have died."""
    await append(ports, put("a"))
    assert await ports.outbox.close(HERE, T, 0.0)
    assert await append(ports, put("a"), opened=Opened(TWO, True)) == Cold(T, T)


async def test_a_spell_is_discarded_if_it_is_the_one_that_was_seen(ports: Ports) -> None:
    """With its copy and pending writes; what is in the outbox stays."""
    await begin(ports)
    await ports.outbox.append_writes(writes(write("a", "T", "w")), T, None)
    assert not await ports.outbox.discard(HERE, U, b"")
    assert not await ports.outbox.discard(HERE, T, mark("elsewhere"))
    assert await ports.outbox.discard(HERE, T, mark("a"))
    assert not await ports.outbox.discard(HERE, T, mark("a"))
    assert await ports.outbox.peek(HERE, b"") == HotFound(None, b"", None, {}, (), {})
    assert len((await take(ports)).entries) == 2
    await begin(ports, token=U)
    assert await ports.outbox.discard(HERE, U, b"")


async def test_a_spell_that_goes_on_is_adopted(ports: Ports) -> None:
    """On a server that was not restarted that changes nothing, but that numbers go on."""
    await begin(ports)
    before = await spell(ports)
    await ports.outbox.adopt(HERE, T, 2**50)
    await ports.outbox.adopt(HERE, U, 0)
    assert await spell(ports) == before
    await append(ports, put("b"))
    assert (await take(ports)).entries[-1].number > 2**50


async def test_a_deleted_threads_hot_state_is_erased(ports: Ports) -> None:
    """That of the namespaces named, and the outbox of all."""
    await begin(ports)
    await begin(ports, token=U, place=at("s"))
    await begin(ports, token=V, place=at(id="u"))
    await take(ports, U)
    await ports.outbox.erase(HERE.thread, ["", "none"])
    assert await ports.outbox.peek(HERE, b"") == HotFound(None, b"", None, {}, (), {})
    assert await spell(ports, at("s")) is not None
    assert await take(ports, V) == Outgoing(0, (), 0)
    assert await ports.outbox.threads() == [thread("u").key]


# -- what comes back -------------------------------------------------------------------------


async def test_every_field_of_an_entry_comes_back(ports: Ports) -> None:
    """Names with lone surrogates, bytes of every kind, large numbers, owners."""
    place = at("näme|space", "t\ud800\x00", "tenant\udfff", user="u\ud800", session="")
    full = Put(
        place,
        "id",
        "parent",
        Claim.HEAD,
        mark("2"),
        mark("full"),
        b"\x00\r\n\xff",
        '{"a": "\\u0000"}',
        (2**63 - 1, 0),
        (ChunkRow(2**63 - 1, mark("c"), b"\x00\xff"),),
        2**40,
        "parent",
        mark("2"),
        True,
        (2**63 - 1, 4),
        consumed=(mark("w1"), mark("w2")),
    )
    await append(ports, full)
    assert await append(ports, full, opened=Opened(Head("parent", 2**40, mark("2")), True)) == Won(
        2**40 + 1
    )
    item = writes(
        write("id", "task", "x", slot=-3, numbers=(7,)), place=place, chunks=(chunk(7, "s"),)
    )
    await ports.outbox.append_writes(item, T, None)
    out = await ports.outbox.take(place.thread, b"", 9)
    assert out is not None
    one, other = out.entries
    assert one.item == replace(full, spell=T)
    assert other.item == replace(item, spell=T)
    for entry in out.entries:
        found = entry.item.place.thread
        assert (found.user, found.session) == ("u\ud800", "")
        assert found.key == place.thread.key


# -- entries that cannot be read -------------------------------------------------------------


def asking(ports: Ports) -> Any:
    outbox: Any = ports.outbox
    if isinstance(outbox, MemoryOutbox):
        pytest.skip("what is in memory cannot be damaged")
    return outbox._scripts._client.eval


async def spoil(ports: Ports, index: int, at: int = 70, by: bytes = b"\xc1") -> bytes:
    """Breaks what stands behind the part of an entry that its script wrote; what is there now."""
    ask, name = asking(ports), cast("Any", ports.outbox)._of_thread(HERE.thread)[0]
    entry = await ask("return redis.call('LINDEX', KEYS[1], ARGV[1])", [name], [index])
    spoilt: bytes = entry[:at] + by + entry[at + len(by) :]
    await ask("redis.call('LSET', KEYS[1], ARGV[1], ARGV[2])", [name], [index, spoilt])
    return spoilt


async def test_entries_are_taken_up_to_one_that_cannot_be_read(ports: Ports) -> None:
    """That one, once it is the first, is said to be damaged."""
    await begin(ports)
    for id, before in (("b", "a"), ("c", "b")):
        await append(ports, put(id, Claim.HEAD, before))
    await spoil(ports, 1)
    out = await take(ports)
    assert ([e.item.id for e in out.entries], out.left) == (["a"], 2)
    await ack(ports, out, 1, ["a"])
    with pytest.raises(CorruptionError, match="outbox"):
        await take(ports)


async def test_only_an_entry_that_cannot_be_read_is_skipped(ports: Ports) -> None:
    """Its bytes are given back, and the numbering goes on behind it."""
    await begin(ports)
    await append(ports, put("b", Claim.HEAD, "a"))
    assert await ports.outbox.skip(HERE.thread) is None
    first = (await take(ports)).first
    spoilt = await spoil(ports, 0)
    assert await ports.outbox.skip(HERE.thread) == spoilt
    assert await ports.outbox.skip(HERE.thread) is None
    out = await take(ports)
    assert ([e.item.id for e in out.entries], out.first) == (["b"], first + 1)
    await ack(ports, out, 1, ["b"])
    assert await ports.outbox.skip(HERE.thread) is None
    assert await take(ports) == Outgoing(0, (), 0)


@pytest.mark.parametrize("spoilt", [b"", b"0", b"007", b" 7", b"7_0", b"\xb2", b"seven"])
async def test_a_damaged_count_is_begun_anew(ports: Ports, spoilt: bytes) -> None:
    """Whoever flushes would otherwise take the same entries for ever, and have none taken off."""
    await begin(ports)
    await append(ports, put("b", Claim.HEAD, "a"))
    ask, count = asking(ports), cast("Any", ports.outbox)._of_thread(HERE.thread)[1:2]
    await ask("redis.call('SET', KEYS[1], ARGV[1])", count, [spoilt])
    out = await take(ports)
    assert [e.item.id for e in out.entries] == ["a", "b"]
    assert await ack(ports, out, 2, ["a", "b"]) == 0
    assert await take(ports) == Outgoing(0, (), 0)


@pytest.mark.parametrize("spoilt", [b"1_", b" 1", b"+1", b"0x"])
async def test_an_entry_whose_number_is_none_cannot_be_read(ports: Ports, spoilt: bytes) -> None:
    """Redis would not take it for the number that it is taken for here."""
    await begin(ports)
    await spoil(ports, 0, 33, spoilt)
    with pytest.raises(CorruptionError, match="outbox"):
        await take(ports)
