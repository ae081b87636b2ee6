"""What the durable tier removes and copies, and what it leaves, on every driver."""

from __future__ import annotations

from langgraph_durable_state.words import Claim, Head, Won
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

EVERY = range(1, 30)


async def numbers(ports: Ports) -> list[int]:
    """The chunks that are stored, of those these tests use."""
    return sorted((await ports.durable.rest(HERE, [], EVERY, [])).chunks)


# -- delete_thread ---------------------------------------------------------------------------


async def test_a_deleted_thread_is_gone(ports: Ports) -> None:
    """All of it, writes that wait for their checkpoint too; other threads stay."""
    await ports.won(put("a", chunks=(chunk(1, "x"),)), put("a", place=at("sub")))
    await ports.won(put("a", place=at(id="u")), put("a", place=at(tenant="x")))
    await ports.durable.commit([writes(write("z", "T", "w"))])
    assert sorted(await ports.durable.delete_thread(HERE.thread)) == ["", "sub"]
    assert await ports.ids() == []
    assert await ports.durable.heads(HERE.thread) == {}
    assert await numbers(ports) == []
    assert (await ports.durable.rest(HERE, ["z"], [], [])).writes == {}
    assert await ports.head(at(id="u")) == "a"
    assert await ports.head(at(tenant="x")) == "a"
    listed = await ports.durable.page(listing(thread=None))
    assert {t.id for t, _ in listed.rows} == {"u"}


async def test_deleting_what_is_not_there_is_no_error(ports: Ports) -> None:
    assert list(await ports.durable.delete_thread(HERE.thread)) == []


async def test_a_deleted_thread_can_begin_again(ports: Ports) -> None:
    await ports.won(put("a"))
    await ports.durable.delete_thread(HERE.thread)
    assert await ports.durable.commit([put("b", Claim.EMPTY)]) == [Won(1)]


# -- remove ----------------------------------------------------------------------------------


async def test_a_removed_head_moves_to_the_newest_that_is_left(ports: Ports) -> None:
    """Never to a refused one; the order goes on from where it was."""
    await ports.won(put("a"), put("b"), put("c"), put("late", Claim.HEAD, "a"))
    assert await ports.durable.remove(HERE.thread, [("", "c")])
    heads = await ports.durable.heads(HERE.thread)
    assert (heads[""].id, heads[""].digest) == ("b", mark("b"))
    assert await ports.ids() == ["late", "b", "a"]
    assert await ports.durable.commit([put("d", Claim.HEAD, "b")]) == [Won(5)]


async def test_a_removed_checkpoint_takes_only_what_it_alone_needs(ports: Ports) -> None:
    """Chunks that another checkpoint or write refers to stay; its own writes go."""
    await ports.won(put("a", chunks=(chunk(1, "one"), chunk(2, "two"))))
    await ports.won(put("b", refers="a", also=(2,), chunks=(chunk(3, "three"),)))
    own = writes(write("a", "T", "w", numbers=(4,)), chunks=(chunk(4, "four"),))
    kept = writes(write("b", "T", "w", numbers=(5,)), chunks=(chunk(5, "five"),))
    waits = writes(write("z", "T", "w", numbers=(6,)), chunks=(chunk(6, "six"),))
    for batch in (own, kept, waits):
        await ports.durable.commit([batch])
    await ports.durable.remove(HERE.thread, [("", "a")])
    assert await numbers(ports) == [2, 3, 5, 6]
    page = await ports.durable.rest(HERE, ["a", "b", "z"], [], [])
    assert dict(page.writes) == {("", "b"): kept.rows, ("", "z"): waits.rows}
    assert await ports.head(HERE) == "b"


async def test_a_thread_without_checkpoints_is_no_thread(ports: Ports) -> None:
    await ports.won(put("a"), put("a", place=at("sub")))
    assert await ports.durable.remove(HERE.thread, [("sub", "a"), ("", "a"), ("", "none")])
    assert await ports.durable.heads(HERE.thread) == {}
    assert (await ports.durable.page(listing(thread=None))).rows == ()
    assert await ports.durable.commit([put("b", Claim.EMPTY)]) == [Won(1)]


async def test_a_new_head_comes_after_refused_ones_that_are_left(ports: Ports) -> None:
    """The order only grows: what was put last is listed first."""
    await ports.won(put("a"), put("late", Claim.HEAD, "x"))
    await ports.durable.remove(HERE.thread, [("", "a")])
    assert await ports.durable.heads(HERE.thread) == {}
    assert await ports.durable.commit([put("b", Claim.EMPTY)]) == [Won(3)]
    assert await ports.ids() == ["b", "late"]


async def test_only_the_namespaces_concerned_are_touched(ports: Ports) -> None:
    await ports.won(put("a"), put("b"), put("a", place=at("sub")), put("b", place=at("sub")))
    await ports.durable.remove(HERE.thread, [("sub", "b")])
    assert await ports.head(at("sub")) == "a"
    assert await ports.head(HERE) == "b"


# -- keep ------------------------------------------------------------------------------------


async def test_all_but_what_is_kept_goes(ports: Ports) -> None:
    """Refused ones too; writes that wait for their checkpoint stay."""
    await ports.won(put("a", chunks=(chunk(1, "one"),)), put("b", chunks=(chunk(2, "two"),)))
    await ports.won(put("late", Claim.HEAD, "x", chunks=(chunk(3, "three"),)))
    await ports.won(put("a", place=at("sub")))
    for id in ["a", "b", "z"]:
        await ports.durable.commit([writes(write(id, "T", "w"))])
    heads = await ports.durable.heads(HERE.thread)
    assert await ports.durable.keep(HERE.thread, [("", "b"), ("sub", "a")], heads)
    assert await ports.ids() == ["b", "a"]
    assert await numbers(ports) == [2]
    page = await ports.durable.rest(HERE, ["a", "b", "z"], [], [])
    assert sorted(page.writes) == [("", "b"), ("", "z")]
    assert await ports.head(HERE) == "b"


async def test_nothing_goes_if_a_head_has_moved(ports: Ports) -> None:
    """Or if a namespace was opened; a refused put moves no head."""
    await ports.won(put("a"), put("b"))
    heads = await ports.durable.heads(HERE.thread)
    await ports.won(put("c"))
    assert not await ports.durable.keep(HERE.thread, [("", "b")], heads)
    assert await ports.ids() == ["c", "b", "a"]
    heads = await ports.durable.heads(HERE.thread)
    await ports.won(put("a", place=at("sub")))
    assert not await ports.durable.keep(HERE.thread, [("", "c")], heads)
    heads = await ports.durable.heads(HERE.thread)
    await ports.won(put("late", Claim.HEAD, "x"))
    assert await ports.durable.keep(HERE.thread, [("", "c"), ("sub", "a")], heads)
    assert await ports.ids() == ["c", "a"]


# -- runs ------------------------------------------------------------------------------------


async def test_the_checkpoints_of_runs(ports: Ports) -> None:
    """Within the tenant, in every thread and namespace, refused ones too."""
    one, two = '{"run_id":"one"}', '{"run_id":"two"}'
    await ports.won(put("a", meta=one), put("b", meta=two), put("c"))
    await ports.won(put("late", Claim.HEAD, "x", meta=one))
    await ports.won(put("a", place=at("sub", id="u"), meta=one))
    await ports.won(put("a", place=at(tenant="x"), meta=one))
    found = await ports.durable.runs("", ["one", "none"])
    assert sorted((t.id, ns, id) for t, ns, id in found) == [
        ("t", "", "a"),
        ("t", "", "late"),
        ("u", "sub", "a"),
    ]
    assert [(t.tenant, id) for t, _, id in await ports.durable.runs("x", ["one"])] == [("x", "a")]
    assert len(await ports.durable.runs("", ["one", "two"])) == 4


# -- copy ------------------------------------------------------------------------------------


async def test_a_copy_is_visible_once_its_heads_are_given(ports: Ports) -> None:
    """With chunks, writes, metadata and the order of the original; what is not there stays out."""
    source, target = HERE.thread, thread("copy", user="ann")
    first = put("a", chunks=(chunk(1, "one"),), meta='{"k":1}')
    await ports.won(first, put("b", refers="a", also=(1,)), put("late", Claim.HEAD, "x"))
    batch = writes(write("b", "T", "w", numbers=(2,)), chunks=(chunk(2, "two"),))
    await ports.durable.commit([batch])
    redone = [row(first, 1), row(put("b", also=(1,)), 2), row(put("none"), 9)]
    await ports.durable.copy(source, target, redone, [("", batch.rows[0])], [])
    assert await ports.durable.heads(target) == {}
    assert {t.id for t, _ in (await ports.durable.page(listing(thread=None))).rows} == {"t"}
    await ports.durable.copy(source, target, [], [], [("", "b"), ("", "none")])
    assert await ports.durable.heads(target) == {"": Head("b", 2, mark("b"))}
    page = await ports.durable.page(listing(thread=target))
    assert [r for _, r in page.rows] == [redone[1], redone[0]]
    assert dict(page.writes) == {("", "b"): batch.rows}
    assert dict(page.chunks) == {1: chunk(1, "one"), 2: chunk(2, "two")}
    assert await ports.ids(thread=target, filter={"k": "1"}) == ["a"]
    await ports.durable.delete_thread(source)
    found = await ports.durable.read(at(id="copy"), None, b"", None)
    assert found is not None
    assert dict(found.chunks) == {1: chunk(1, "one"), 2: chunk(2, "two")}


async def test_a_copy_changes_nothing_that_is_there(ports: Ports) -> None:
    await ports.won(put("a"), put("a", place=at(id="u"), content="other"))
    target = thread("u")
    await ports.durable.copy(HERE.thread, target, [row(put("a"), 1)], [], [("", "a")])
    assert await ports.durable.heads(target) == {"": Head("a", 1, mark("other"))}
    found = await ports.durable.read(at(id="u"), "a", b"", None)
    assert found is not None
    assert found.head.digest == mark("other")
