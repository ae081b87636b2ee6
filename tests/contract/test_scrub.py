"""Rows as they are found, and what puts them right, on every driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langgraph_durable_state.asfound import (
    Change,
    Quarantined,
    RawHead,
    RawRecord,
    RawThread,
    RawWrite,
    Repair,
    Sight,
)
from langgraph_durable_state.decisions import hotcopy, keys, outgoing
from langgraph_durable_state.words import ChunkRow, Cold, Head, Opened, Put, Step, Won
from tests.contract.rows import HERE, Ports, at, chunk, mark, put, row, thread, write, writes

KEY = HERE.thread.key
T = b"T" * 16
ONE, TWO = chunk(1, "one"), chunk(2, "two")
FIRST = put("a", chunks=(ONE, TWO), meta='{"k": 1}')
WRITTEN = write("a", "T", "w", numbers=(3,))
NAMES = RawThread(b"", b"t")
BAD = replace(ONE, blob=b"\x00\x00\x01bad")


def raw(one: Put, seq: int, meta: str = "{}") -> RawRecord:
    """A put as its row is found."""
    packed = keys.packed(one.numbers)
    columns = (one.digest, one.record, packed, meta, one.size)
    return RawRecord(one.place.ns, one.id, one.parent, seq, *columns)


RAW = raw(FIRST, 1, '{"k": 1}')
RAW_WRITE = RawWrite("", "a", "T", 0, "path", 1, mark("w"), b"w", keys.packed((3,)))


def kept(no: int = 1, **found: Any) -> Quarantined:
    return Quarantined(KEY, "postgres", "chunk", "", "", "", 0, no, "it is bad", found)


async def stored(ports: Ports) -> None:
    await ports.won(FIRST)
    await ports.durable.commit([writes(WRITTEN, chunks=(chunk(3, "three"),))])


async def look(ports: Ports, *numbers: int) -> Sight:
    return await ports.durable.look(KEY, [("", "a")], numbers, None)


# -- reading ---------------------------------------------------------------------------------


async def test_a_look_shows_all_that_was_asked_for(ports: Ports) -> None:
    """And nothing of another thread."""
    await stored(ports)
    await ports.won(put("a", place=at("sub")), put("a", place=at(id="u")))
    sight = await look(ports, 1, 3, 9)
    assert sight == Sight(
        NAMES,
        {"": RawHead("", 1, "a", mark("a")), "sub": RawHead("sub", 1, "a", mark("a"))},
        {("", "a"): RAW},
        (RAW_WRITE,),
        {1: ONE, 3: chunk(3, "three")},
    )
    only = await ports.durable.look(KEY, [], [], ["sub", "none"])
    assert (list(only.heads), only.records, only.writes, only.chunks) == (["sub"], {}, (), {})


async def test_a_look_at_nothing_shows_nothing(ports: Ports) -> None:
    assert await look(ports, 1) == Sight(None, {}, {}, (), {})


async def test_a_head_that_is_only_marked_has_no_digest(ports: Ports) -> None:
    await ports.durable.mark_ahead(HERE, T, [])
    assert (await look(ports)).heads == {"": RawHead("", 0, "", b"")}


async def test_pages_come_in_the_order_of_their_keys(ports: Ports) -> None:
    """Each row once."""
    await ports.won(*(put(id, chunks=(chunk(i, id),)) for i, id in enumerate("bca", 1)))
    await ports.won(put("z", place=at("b")), put("y", place=at("b")))
    for id, task in [("a", "U"), ("a", "T"), ("c", "T")]:
        await ports.durable.commit([writes(write(id, task, id + task))])
    durable, after = ports.durable, None
    found: list[Any] = []
    while page := await durable.scan_records(KEY, after, 2):
        found += [(r.ns, r.id) for r in page]
        after = found[-1]
    assert found == [("", "a"), ("", "b"), ("", "c"), ("b", "y"), ("b", "z")]
    first = await durable.scan_writes(KEY, None, 2)
    assert [(w.id, w.task) for w in first] == [("a", "T"), ("a", "U")]
    rest = await durable.scan_writes(KEY, ("", "a", "U", 0), 2)
    assert [(w.id, w.task) for w in rest] == [("c", "T")]
    assert [c.no for c in await durable.scan_chunks(KEY, None, 2)] == [1, 2]
    assert await durable.scan_chunks(KEY, 2, 2) == [chunk(3, "a")]
    assert await durable.scan_chunks(KEY, 3, 2) == []


async def test_keys_come_with_the_names_of_their_threads(ports: Ports) -> None:
    """One without an entry has a head at least."""
    places = [at(id="u", user="ann"), at(tenant="x"), at()]
    await ports.won(*(put("a", place=place) for place in places))
    await ports.durable.mark_ahead(at(id="ahead"), T, [])
    await ports.durable.commit([writes(write("z", "T", "w"), place=at(id="waits"))])
    names = {
        thread("u").key: RawThread(b"", b"u", b"ann", None),
        thread("t", "x").key: RawThread(b"x", b"t"),
        thread("t").key: NAMES,
        thread("ahead").key: None,
    }
    expected = sorted(names.items())
    assert await ports.durable.scan_keys(None, 10) == expected
    assert await ports.durable.scan_keys(None, 3) == expected[:3]
    assert await ports.durable.scan_keys(expected[2][0], 10) == expected[3:]


# -- mending ---------------------------------------------------------------------------------


async def test_a_bad_row_is_replaced_and_kept(ports: Ports) -> None:
    """Under its key; what is kept is read by nobody else."""
    await stored(ports)
    repair = Repair(BAD, ONE, kept(blob="00"), ("", "a"))
    assert await ports.durable.mend(KEY, [repair]) == [True]
    assert (await look(ports, 1)).chunks == {1: BAD}
    assert await ports.durable.quarantined(KEY) == [kept(blob="00")]
    assert await ports.durable.quarantined(thread("u").key) == []


async def test_what_is_not_as_it_was_found_stays(ports: Ports) -> None:
    """Each repair for itself, and nothing is kept for one that was not made."""
    await stored(ports)
    done = await ports.durable.mend(
        KEY,
        [
            Repair(ONE, BAD, kept(), ("", "a")),
            Repair(replace(RAW, parent="p"), replace(RAW, digest=mark("x")), kept()),
            Repair(replace(RAW_WRITE, path="p"), replace(RAW_WRITE, blob=b"x"), kept()),
            Repair(RawHead("", 1, "a", mark("a")), RawHead("", 1, "x", mark("a")), kept()),
            Repair(NAMES, RawThread(b"", b"x"), kept()),
            Repair(TWO, None, None, ("", "a")),
            Repair(RAW, None, None),
            Repair(chunk(2, "new"), TWO, kept(2), ("", "a")),
        ],
    )
    assert done == [False] * 7 + [True]
    sight = await look(ports, 1, 2)
    assert (sight.records, sight.writes) == ({("", "a"): RAW}, (RAW_WRITE,))
    assert sight.chunks == {1: ONE, 2: chunk(2, "new")}
    assert await ports.durable.quarantined(KEY) == [kept(2)]


async def test_every_kind_of_row_is_replaced(ports: Ports) -> None:
    """In one step."""
    await stored(ports)
    await ports.won(put("b", parent="a"))
    record = replace(RAW, parent="p", record=b"r", packed=keys.packed((1,)), meta='{"k": 2}')
    written = replace(RAW_WRITE, path="p", blob=b"x", packed=b"")
    head = RawHead("", 2, "a", mark("a"), b"a's")
    done = await ports.durable.mend(
        KEY,
        [
            Repair(record, RAW, None),
            Repair(written, RAW_WRITE, None),
            Repair(head, RawHead("", 2, "b", mark("b")), None),
        ],
    )
    assert done == [True] * 3
    sight = await look(ports)
    assert sight.records == {("", "a"): record}
    assert (sight.writes, sight.heads) == ((written,), {"": head})
    assert await ports.head(HERE) == "a"


async def test_a_missing_row_is_put_back_where_it_is_needed(ports: Ports) -> None:
    """A checkpoint by its head or a child, the others by their checkpoint."""
    await ports.won(put("a", chunks=(ONE,)), put("b", parent="a"))
    await ports.durable.keep(HERE.thread, [("", "b")], await ports.durable.heads(HERE.thread))
    one = raw(put("a", also=(1,)), 1)
    waits = replace(RAW_WRITE, packed=b"")
    assert await ports.durable.mend(
        KEY, [Repair(ONE, None, None, ("", "a")), Repair(waits, None, None, ("", "a"))]
    ) == [False, False]
    done = await ports.durable.mend(
        KEY,
        [
            Repair(one, None, None),
            Repair(waits, None, None, ("", "a")),
            Repair(ONE, None, None, ("", "a")),
            Repair(raw(put("x"), 7), None, None),
        ],
    )
    assert done == [True, True, True, False]
    sight = await look(ports, 1)
    assert (sight.records, sight.writes, sight.chunks) == ({("", "a"): one}, (waits,), {1: ONE})
    assert await ports.ids() == ["b", "a"]


async def test_what_was_removed_meanwhile_does_not_come_back(ports: Ports) -> None:
    """A repair of what a prune has removed is made of nothing."""
    await stored(ports)
    await ports.durable.delete_thread(HERE.thread)
    done = await ports.durable.mend(
        KEY,
        [
            Repair(NAMES, None, None),
            Repair(RAW, replace(RAW, record=b""), kept()),
            Repair(RAW_WRITE, None, None, ("", "a")),
            Repair(ONE, BAD, kept(), ("", "a")),
            Repair(RawHead("", 1, "a", mark("a")), None, None),
        ],
    )
    assert done == [False] * 5
    assert await look(ports, 1) == Sight(None, {}, {}, (), {})
    assert await ports.durable.quarantined(KEY) == []


async def test_a_missing_head_is_put_on_a_checkpoint_that_is_there(ports: Ports) -> None:
    """Puts go on from it."""
    await ports.won(put("a"), put("late", content="late"))
    await ports.durable.copy(HERE.thread, thread("u"), [row(put("a"), 4)], [], [])
    key = thread("u").key
    right = RawHead("", 4, "a", mark("a"), b"a's")
    absent = replace(right, digest=mark("x"))
    assert await ports.durable.mend(key, [Repair(absent, None, None)]) == [False]
    assert await ports.durable.mend(key, [Repair(right, None, None)]) == [True]
    assert await ports.durable.heads(thread("u")) == {"": Head("a", 4, mark("a"), b"a's")}
    assert await ports.durable.mend(key, [Repair(RawThread(b"", b"u"), None, None)]) == [True]
    assert (await ports.durable.look(key, [], [], [])).thread == RawThread(b"", b"u")


# -- quarantine ------------------------------------------------------------------------------


async def test_the_same_bytes_are_kept_once(ports: Ports) -> None:
    """Whichever tier they were in, and why they are bad is told by the first."""
    hot = replace(kept(blob="00"), tier="redis")
    await ports.durable.quarantine([kept(blob="00"), hot])
    await ports.durable.quarantine([replace(hot, reason="again"), kept(blob="01")])
    found = await ports.durable.quarantined(KEY)
    assert len(found) == 3
    assert all(one in found for one in (kept(blob="00"), hot, kept(blob="01")))


async def test_what_is_kept_goes_with_the_thread(ports: Ports) -> None:
    """And is neither listed nor pruned nor copied."""
    await ports.won(put("a"))
    other = replace(kept(), key=thread("u").key)
    await ports.durable.quarantine([kept(), other])
    await ports.durable.copy(HERE.thread, thread("copy"), [row(put("a"), 1)], [], [("", "a")])
    await ports.durable.keep(HERE.thread, [("", "a")], {"": Head("a", 1, mark("a"))})
    await ports.durable.remove(HERE.thread, [("", "a")])
    assert await ports.ids() == []
    assert await ports.durable.quarantined(KEY) == [kept()]
    assert await ports.durable.quarantined(thread("copy").key) == []
    await ports.durable.delete_thread(HERE.thread)
    assert await ports.durable.quarantined(KEY) == []
    assert await ports.durable.quarantined(other.key) == [other]


# -- the hot tier ----------------------------------------------------------------------------


async def begin(ports: Ports) -> None:
    """A spell that was opened by a put and has some writes."""
    step, opened = Step(b"", FIRST.chunks), Opened(Head("2", 7, mark("2")), True)
    assert await ports.outbox.append(FIRST, step, T, None, False) == Cold(T, b"")
    assert isinstance(await ports.outbox.append(FIRST, step, T, opened, False), Won)
    item = writes(WRITTEN, chunks=(chunk(3, "three"),))
    await ports.outbox.append_writes(item, T, None)


async def test_what_is_hot_is_shown_as_it_is(ports: Ports) -> None:
    """A copy, and beside it what a spell says."""
    assert (await ports.outbox.inspect(HERE)).copy == {}
    await ports.hot.fill(HERE, row(FIRST, 7), FIRST.chunks)
    found = await ports.outbox.inspect(HERE)
    assert (found.spell, found.open, found.digest, found.writes) == (False, False, b"", {})
    assert found.copy == hotcopy.copy_fields(row(FIRST, 7), FIRST.chunks)
    assert hotcopy.copy_of("", found.copy) == (row(FIRST, 7), {1: ONE, 2: TWO})


async def test_an_open_spell_says_what_its_head_is(ports: Ports) -> None:
    await begin(ports)
    found = await ports.outbox.inspect(HERE)
    assert (found.spell, found.open, found.digest) == (True, True, mark("a"))
    three = chunk(3, "three")
    assert found.writes == {
        outgoing.write_field("a", "T", 0): outgoing.pack_write(WRITTEN, (three,))
    }


async def test_fields_are_changed_all_or_none(ports: Ports) -> None:
    """And only where all of them are as they were found; never where there is no copy."""
    field, other = b"c" + (1).to_bytes(8), b"c" + (2).to_bytes(8)
    good, bad = ONE.digest + ONE.blob, BAD.digest + BAD.blob
    changes = [Change(b"digest", mark("a"), mark("a")), Change(field, good, bad)]
    assert not await ports.outbox.mend_fields(HERE, "copy", [Change(field, None, good)])
    await ports.hot.fill(HERE, row(FIRST, 7), FIRST.chunks)
    wrong = [*changes, Change(other, b"", None)]
    assert not await ports.outbox.mend_fields(HERE, "copy", wrong)
    assert not await ports.outbox.mend_fields(HERE, "copy", [Change(field, None, bad)])
    copy = await ports.hot.fetch(HERE, mark("a"))
    assert copy == (row(FIRST, 7), {1: ONE, 2: TWO})
    assert await ports.outbox.mend_fields(HERE, "copy", [*changes, Change(other, _of(TWO), None)])
    assert await ports.hot.fetch(HERE, mark("a")) == (row(FIRST, 7), {1: BAD})
    assert await ports.outbox.mend_fields(HERE, "copy", [Change(other, None, _of(TWO))])
    assert await ports.hot.fetch(HERE, mark("a")) == (row(FIRST, 7), {1: BAD, 2: TWO})


def _of(row: ChunkRow) -> bytes:
    return row.digest + row.blob


async def test_a_copy_goes_if_all_its_fields_do(ports: Ports) -> None:
    await ports.hot.fill(HERE, row(FIRST, 7), FIRST.chunks)
    fields = (await ports.outbox.inspect(HERE)).copy
    gone = [Change(name, value, None) for name, value in fields.items()]
    assert await ports.outbox.mend_fields(HERE, "copy", gone)
    assert (await ports.outbox.inspect(HERE)).copy == {}
    assert await ports.hot.fetch(HERE, mark("a")) is None


async def test_pending_writes_are_changed(ports: Ports) -> None:
    await begin(ports)
    ((name, value),) = (await ports.outbox.inspect(HERE)).writes.items()
    other = outgoing.pack_write(replace(WRITTEN, path="p"), ())
    assert await ports.outbox.mend_fields(HERE, "writes", [Change(name, value, other)])
    assert [w.path for w in (await ports.outbox.peek(HERE, b"")).writes] == ["p"]
    assert await ports.outbox.mend_fields(HERE, "writes", [Change(name, other, None)])
    assert (await ports.outbox.peek(HERE, b"")).writes == ()


async def test_entries_are_shown_and_stay(ports: Ports) -> None:
    """With their numbers, to one who does not flush them."""
    assert (await ports.outbox.entries(HERE.thread, 0, 10)).entries == ()
    await begin(ports)
    taken = await ports.outbox.take(HERE.thread, b"", 10)
    assert taken is not None
    shown = await ports.outbox.entries(HERE.thread, 0, 10)
    assert (shown.first, shown.left) == (taken.first, 0)
    assert tuple(map(outgoing.read_entry, shown.entries)) == taken.entries
    second = await ports.outbox.entries(HERE.thread, 1, 1)
    assert (second.first, second.entries, second.left) == (shown.first + 1, shown.entries[1:], 0)
    assert (await ports.outbox.entries(HERE.thread, 0, 1)).left == 1
    assert (await ports.outbox.entries(HERE.thread, 5, 1)).entries == ()


async def test_an_entry_is_replaced_if_it_is_there(ports: Ports) -> None:
    """By its number, whatever was flushed before it; what the script decided stays."""
    await begin(ports)
    shown = await ports.outbox.entries(HERE.thread, 0, 10)
    outbox, raw_entry, number = ports.outbox, shown.entries[1], shown.first + 1
    item = outgoing.read_entry(raw_entry).item
    right = outgoing.repacked(raw_entry, replace(item, rows=(replace(WRITTEN, path="p"),)))
    assert not await outbox.mend_entry(HERE.thread, number - 1, raw_entry, right)
    assert not await outbox.mend_entry(HERE.thread, number, right, raw_entry)
    out = await outbox.take(HERE.thread, b"", 1)
    assert out is not None
    last = out.entries[0].number
    assert await outbox.ack(HERE.thread, b"", out.first, 1, last, {("", T): [mark("a")]}) == 1
    assert await outbox.mend_entry(HERE.thread, number, raw_entry, right)
    assert not await outbox.mend_entry(HERE.thread, number, raw_entry, right)
    out = await outbox.take(HERE.thread, b"", 10)
    assert out is not None
    (entry,) = out.entries
    assert entry == replace(outgoing.read_entry(raw_entry), item=outgoing.read_entry(right).item)
