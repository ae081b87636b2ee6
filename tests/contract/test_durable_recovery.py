"""What recovery needs of the durable tier: the chain of events, and heads gone or moved."""

from __future__ import annotations

from typing import Any

from langgraph_durable_state.decisions import recording
from langgraph_durable_state.drivers.memory import MemoryDurable
from langgraph_durable_state.protocols.chronicle import Chronicle
from langgraph_durable_state.words import Claim, Head
from tests.contract.rows import HERE, Ports, at, listing, mark, put, row, thread

# -- events ----------------------------------------------------------------------------------


async def test_events_are_read_back_in_order_as_a_sound_chain(ports: Ports) -> None:
    """Whatever the texts in them."""
    chronicle = Chronicle(ports.durable)
    details: list[dict[str, Any]] = [
        {"b": [1, None, True], "a": {"x": "y"}},
        {"text": 'a "quote", a NUL \x00, é, \u2028 and a lone \ud800'},
        {},
    ]
    for detail in details:
        await chronicle.record(HERE.thread, "kind", detail)
    rows = await ports.durable.events(HERE.thread, 0, 10)
    assert [(row.n, row.kind) for row in rows] == [(1, "kind"), (2, "kind"), (3, "kind")]
    assert [row.detail for row in rows] == [recording.spelled(detail) for detail in details]
    assert recording.breaks(HERE.thread.key, rows) == []
    assert rows[0].at <= rows[1].at <= rows[2].at


async def test_events_are_read_in_pages(ports: Ports) -> None:
    for _ in range(3):
        await Chronicle(ports.durable).record(HERE.thread, "kind", {})
    assert [row.n for row in await ports.durable.events(HERE.thread, 0, 2)] == [1, 2]
    assert [row.n for row in await ports.durable.events(HERE.thread, 2, 2)] == [3]


async def test_a_number_is_taken_once(ports: Ports) -> None:
    """So that two who add at once make one chain."""
    tip = await ports.durable.last_event(HERE.thread)
    assert (tip.n, tip.digest) == (0, b"")
    one, other = (recording.following(HERE.thread.key, tip, kind, {}) for kind in ("a", "b"))
    assert await ports.durable.record_event(HERE.thread, one)
    assert not await ports.durable.record_event(HERE.thread, other)
    assert await ports.durable.events(HERE.thread, 0, 10) == [one]
    tip = await ports.durable.last_event(HERE.thread)
    assert (tip.n, tip.digest) == (1, one.digest)


async def test_events_are_a_threads_own_and_go_with_it(ports: Ports) -> None:
    other = thread("other")
    for of in (HERE.thread, other):
        await Chronicle(ports.durable).record(of, "kind", {})
    await ports.durable.delete_thread(HERE.thread)
    assert await ports.durable.events(HERE.thread, 0, 10) == []
    assert len(await ports.durable.events(other, 0, 10)) == 1


# -- heads that are gone ---------------------------------------------------------------------


async def behead(ports: Ports) -> None:
    """Removes the heads and the threads' entries."""
    durable: Any = ports.durable
    if isinstance(durable, MemoryDurable):
        for rows in durable._world.threads.values():
            rows.heads.clear()
            rows.thread = None
        return
    await durable._sql.script("DELETE FROM durable_state.head; DELETE FROM durable_state.thread")


async def test_a_namespace_without_its_head_is_told_from_one_that_never_was(ports: Ports) -> None:
    """The newest checkpoint that was not refused stands in for it."""
    await ports.won(put("a"), put("b"), put("c", Claim.EMPTY))
    await behead(ports)
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert found.lost
    assert found.head == Head("b", 2, mark("b"))
    assert (found.row, found.writes) == (None, ())
    assert await ports.durable.read(at("other"), None, b"", None) is None


async def test_a_copy_under_way_has_not_lost_its_head(ports: Ports) -> None:
    """It comes last; until then nothing is listed or found by its run either."""
    one = put("a", meta='{"run_id": "r"}')
    await ports.won(one)
    there = at(id="copy")
    await ports.durable.copy(HERE.thread, there.thread, [row(one, 1)], [], [])
    assert await ports.durable.read(there, None, b"", None) is None
    page = await ports.durable.page(listing(thread=None))
    assert [of.key for of, _ in page.rows] == [HERE.thread.key]
    assert [of.key for of, _, _ in await ports.durable.runs("", ["r"])] == [HERE.thread.key]
    await ports.durable.copy(HERE.thread, there.thread, [], [], [("", "a")])
    assert await ports.head(there) == "a"
    found = await ports.durable.runs("", ["r"])
    assert {of.key for of, _, _ in found} == {HERE.thread.key, there.thread.key}


async def test_a_copy_that_was_given_up_is_a_thread_once_something_is_put(ports: Ports) -> None:
    one = put("a")
    await ports.won(one)
    there = at(id="copy")
    await ports.durable.copy(HERE.thread, there.thread, [row(one, 1)], [], [])
    await ports.won(put("b", place=there))
    assert await ports.head(there) == "b"
    found = set()
    after = None
    while (page := await ports.durable.page(listing(thread=None, after=after))).rows:
        of, last = page.rows[-1]
        found.add(of.key)
        after = (of.key, last.ns, last.seq)
    assert found == {HERE.thread.key, there.thread.key}


async def test_a_head_that_is_there_is_not_lost(ports: Ports) -> None:
    await ports.won(put("a"))
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert not found.lost


# -- heads that are moved --------------------------------------------------------------------


async def test_a_head_is_moved_to_what_is_stored(ports: Ports) -> None:
    """Signed as it is then. Places in the order are not issued again."""
    await ports.won(put("a"), put("b"))
    assert await ports.durable.move_head(HERE, mark("b"), Head("a", 0, mark("a"), b"a's"))
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert (found.head.id, found.head.digest, found.head.seal) == ("a", mark("a"), b"a's")
    await ports.won(put("c", Claim.HEAD, "a"))
    assert await ports.ids() == ["c", "b", "a"]


async def test_a_head_that_moved_meanwhile_stays(ports: Ports) -> None:
    await ports.won(put("a"), put("b"), put("c"))
    assert not await ports.durable.move_head(HERE, mark("b"), Head("a", 0, mark("a")))
    assert not await ports.durable.move_head(HERE, b"", Head("a", 0, mark("a")))
    assert await ports.head(HERE) == "c"


async def test_a_head_is_moved_to_nothing_else(ports: Ports) -> None:
    """Not to what is not there, nor to another content of the same id."""
    await ports.won(put("a"), put("b"))
    for to in (Head("z", 0, mark("z")), Head("a", 0, mark("z"))):
        assert not await ports.durable.move_head(HERE, mark("b"), to)
    assert await ports.head(HERE) == "b"


async def test_a_head_that_redis_may_be_ahead_of_stays(ports: Ports) -> None:
    await ports.won(put("a"), put("b"))
    await ports.durable.mark_ahead(HERE, b"T" * 16, [])
    assert not await ports.durable.move_head(HERE, mark("b"), Head("a", 0, mark("a")))
    assert await ports.head(HERE) == "b"


async def test_a_head_that_is_gone_is_put_back(ports: Ports) -> None:
    await ports.won(put("a"), put("b"))
    await behead(ports)
    assert await ports.durable.move_head(HERE, b"", Head("a", 0, mark("a"), b"a's"))
    assert not await ports.durable.move_head(HERE, b"", Head("b", 0, mark("b")))
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert (found.head.id, found.head.seal) == ("a", b"a's")
    await ports.won(put("c", Claim.HEAD, "a"))
    assert await ports.ids() == ["c", "b", "a"]
