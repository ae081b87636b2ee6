"""Rows of a thread under other digests, on every driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from langgraph_durable_state.words import Claim, Head, Opened, Rewritten, Step
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
from tests.contract.test_data_keys import key


async def stored(ports: Ports) -> dict[str, Head]:
    """Two checkpoints and a namespace, a batch of writes, a chunk."""
    await ports.won(put("a", chunks=(chunk(1, "one"),)), put("b", parent="a", also=(1,)))
    await ports.won(put("a", place=at("x")))
    await ports.durable.commit([writes(write("b", "T", "w"), write("b", "T", "e", slot=-1))])
    return await ports.durable.heads(HERE.thread)


def anew(**changes: Any) -> Rewritten:
    """All of `stored`, each digest that of a content with "new " before it."""
    rows = [
        (
            mark(one.id),
            replace(
                row(one, n),
                digest=mark(f"new {one.id}"),
                record=b"new",
                numbers=tuple(no + 10 for no in one.numbers),
            ),
            meta,
        )
        for n, one, meta in (
            (1, put("a", chunks=(chunk(1, "one"),)), '{"k": 1}'),
            (2, put("b", parent="a", also=(1,)), '{"k": 2}'),
            (1, put("a", place=at("x")), "{}"),
        )
    ]
    ordinary, special = write("b", "T", "w"), write("b", "T", "e", slot=-1)
    batch = replace(ordinary, digest=mark("new w"), blob=b"new w")
    late = replace(special, digest=mark("new e"), blob=b"new e")
    made = Rewritten(
        rows,
        [("", ordinary), ("", replace(special, digest=mark("older e")))],
        [(0, "", batch), (1, "", late)],
        [replace(chunk(11, "one"), digest=mark("new one"), blob=b"\x00\x00\x01new")],
        {"": Head("b", 2, mark("new b"), b"s"), "x": Head("a", 1, mark("new a"), b"x")},
    )
    return replace(made, **changes)


async def test_a_thread_is_rewritten_as_a_whole(ports: Ports) -> None:
    """What has changed since it was read, an interrupt that was replaced, stays as it is."""
    heads = await stored(ports)
    assert await ports.durable.rewrite(HERE.thread, heads, anew())
    found = await ports.durable.read(HERE, None, b"", None)
    assert found is not None
    assert found.head == Head("b", 2, mark("new b"), b"s")
    assert found.row is not None
    assert (found.row.digest, found.row.record, found.row.parent) == (mark("new b"), b"new", "a")
    assert found.row.numbers == (11,)
    assert {no: c.digest for no, c in found.chunks.items()} == {11: mark("new one")}
    rest = await ports.durable.rest(HERE, [], [1, 11], [])
    assert list(rest.chunks) == [11]
    assert {(w.slot, w.digest, w.blob) for w in found.writes} == {
        (0, mark("new w"), b"new w"),
        (-1, mark("e"), b"e"),
    }
    page = await ports.durable.page(listing(filter={"k": "1"}))
    assert [(r.id, r.digest) for _, r in page.rows] == [("a", mark("new a"))]
    other = await ports.durable.read(at("x"), None, b"", None)
    assert other is not None
    assert other.head == Head("a", 1, mark("new a"), b"x")


def elsewhere(**changes: Any) -> Rewritten:
    """The same with namespace `x` called `y` and `""` as it was; one task's two rows are one, and
    under another task's id."""
    made = anew()
    rows = [
        (old, replace(r, ns="y" if r.ns == "x" else r.ns), meta) for old, r, meta in made.records
    ]
    both = [("", write("b", "T", "w")), ("", write("b", "T", "e", slot=-1))]
    new = replace(write("b", "U", "new w"), path="~new", n=3, blob=b"new w", numbers=(11,))
    heads = {"": made.heads[""], "y": made.heads["x"]}
    made = replace(made, records=rows, gone=both, writes=[(0, "", new)], heads=heads)
    return replace(made, former={"y": "x"}, exact=True, **changes)


async def test_a_namespace_gets_another_name(ports: Ports) -> None:
    """With its head, which keeps its place in the order; and so do tasks, whose rows are joined."""
    heads = await stored(ports)
    assert await ports.durable.rewrite(HERE.thread, heads, elsewhere())
    assert (await ports.durable.heads(HERE.thread)).keys() == {"", "y"}
    found = await ports.durable.read(at("y"), None, b"", None)
    assert found is not None
    assert found.head == Head("a", 1, mark("new a"), b"x")
    assert await ports.durable.read(at("x"), None, b"", None) is None
    outer = await ports.durable.read(HERE, None, b"", None)
    assert outer is not None
    (left,) = outer.writes
    assert (left.task, left.slot, left.path, left.n) == ("U", 0, "~new", 3)
    assert (left.digest, left.blob, left.numbers) == (mark("new w"), b"new w", (11,))
    await ports.won(put("c", parent="a", place=at("y")))
    assert (await ports.durable.heads(HERE.thread))["y"].seq == 2


async def test_namespaces_exchange_names(ports: Ports) -> None:
    """Each takes what is the other's."""
    await ports.won(put("a", place=at("x")), put("b", place=at("y")))
    await ports.durable.commit([writes(write("a", "T", "w"), place=at("x"))])
    heads = await ports.durable.heads(HERE.thread)
    rows = [
        (mark(id), replace(row(put(id, place=at(ns)), 1), ns=new, digest=mark(f"new {id}")), "{}")
        for id, ns, new in (("a", "x", "y"), ("b", "y", "x"))
    ]
    now = {"y": Head("a", 1, mark("new a")), "x": Head("b", 1, mark("new b"))}
    batch = replace(write("a", "T", "w"), digest=mark("new w"))
    made = Rewritten(
        rows, [("x", write("a", "T", "w"))], [(0, "y", batch)], [], now, {"y": "x", "x": "y"}, True
    )
    assert await ports.durable.rewrite(HERE.thread, heads, made)
    assert await ports.durable.heads(HERE.thread) == now
    found = await ports.durable.read(at("y"), None, b"", None)
    assert found is not None
    assert [w.digest for w in found.writes] == [mark("new w")]


@pytest.mark.parametrize("what", ["more", "another"])
async def test_all_writes_must_be_known(ports: Ports, what: str) -> None:
    """Where it is to be exact: one that came since would be left where nobody looks for it."""
    heads = await stored(ports)
    task, slot = ("V", 0) if what == "more" else ("T", -1)
    await ports.durable.commit([writes(write("b", task, "late", slot=slot))])
    before = await ports.durable.page(listing())
    assert not await ports.durable.rewrite(HERE.thread, heads, elsewhere())
    assert await ports.durable.page(listing()) == before
    assert await ports.durable.heads(HERE.thread) == heads


@pytest.mark.parametrize("what", ["head", "kept", "removed", "marked", "other"])
async def test_a_thread_that_has_moved_on_is_left_alone(ports: Ports, what: str) -> None:
    """Its head, a checkpoint beside it, one that was pruned, or a mark; then nothing is changed."""
    heads = await stored(ports)
    if what == "head":
        await ports.won(put("c"))
    elif what == "kept":
        await ports.durable.keep_aside(put("c"), refused=True)  # type: ignore[attr-defined]
    elif what == "removed":
        await ports.durable.remove(HERE.thread, [("", "a")])
    elif what == "marked":
        await ports.durable.mark_ahead(HERE, b"t" * 16, [])
    else:
        heads = {**heads, "x": replace(heads["x"], digest=mark("other"))}
    before = await ports.durable.page(listing())
    assert not await ports.durable.rewrite(HERE.thread, heads, anew())
    assert await ports.durable.page(listing()) == before
    assert (await ports.durable.heads(HERE.thread))["x"].digest == mark("a")


async def test_other_threads_are_not_touched(ports: Ports) -> None:
    """Whatever ids and chunk numbers they share."""
    heads = await stored(ports)
    await ports.won(put("a", place=at(id="u"), chunks=(chunk(1, "one"),)))
    before = await ports.durable.page(listing(thread("u")))
    assert await ports.durable.rewrite(HERE.thread, heads, anew())
    assert await ports.durable.page(listing(thread("u"))) == before


async def test_keys_under_other_master_keys_are_listed(ports: Ports) -> None:
    """In the order of their ids, a few at a time."""
    for one in (key("3"), key("1"), key("2", master="new"), key("4", master="old")):
        await ports.durable.add_data_key(one)
    besides = ports.durable.data_keys_besides
    assert await besides(b"new", b"", 9) == [key("1"), key("3"), key("4", master="old")]
    assert await besides(b"new", b"", 2) == [key("1"), key("3")]
    assert await besides(b"new", b"3", 9) == [key("4", master="old")]
    assert await besides(b"none", b"", 9) != []


async def test_what_the_hot_tier_has_under_old_digests_goes(ports: Ports) -> None:
    """A copy and pending writes, but not those of a spell, which the durable tier has not got."""
    one, token = put("a", Claim.EMPTY), b"t" * 16
    await ports.hot.fill(HERE, row(one, 1), [])
    await ports.outbox.note(writes(write("a", "T", "w")))
    await ports.outbox.outdated(HERE)
    assert await ports.hot.fetch(HERE, mark("a")) is None
    assert (await ports.outbox.peek(HERE, b"")).writes == ()
    await ports.outbox.append(one, Step(b"", ()), token, None, False)
    opened = Opened(Head("", 0, b""), marked=True)
    await ports.outbox.append(one, Step(b"", ()), token, opened, False)
    await ports.outbox.append_writes(writes(write("a", "T", "w")), token, None)
    await ports.outbox.outdated(HERE)
    found = await ports.outbox.peek(HERE, b"")
    assert (found.digest, [w.digest for w in found.writes]) == (mark("a"), [mark("w")])
