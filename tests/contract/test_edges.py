"""Under a key: a checkpoint that was removed by somebody else is told from one that was removed on
purpose, over each driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from langgraph_durable_state import ConflictError, CorruptionError, HeadMovedError
from langgraph_durable_state.decisions import keys
from langgraph_durable_state.decisions.evolution.operations import rename_channel
from langgraph_durable_state.decisions.evolution.steps import StateSchema
from langgraph_durable_state.drivers.driver import Driver
from langgraph_durable_state.protocols import drafting
from langgraph_durable_state.words import Claim, Edge, Head, RecordRow
from tests.contract.rows import HERE, Ports, at, listing, mark, put, row, thread
from tests.contract.superstep import config, superstep
from tests.contract.test_rewriting import anew, stored
from tests.contract.test_savers import LONG, NewSaver, grown, ids
from tests.faces import OnBlockingFace

SIGNED: dict[str, Any] = {"integrity_key": b"k" * 32}
ENCRYPTED: dict[str, Any] = {"encryption_key": b"m" * 32}
UNTOLD = "nothing signed says that it was removed"

both = pytest.mark.parametrize("key", [SIGNED, ENCRYPTED], ids=["signed", "encrypted"])


async def driver_of(saver: Any) -> Driver:
    if isinstance(saver, OnBlockingFace):
        return await saver.saver._faces.blocking()
    return await saver._faces.native()  # type: ignore[no-any-return]


async def cut(saver: Any, *doomed: str, thread: str = "t") -> None:
    """Removes checkpoints as somebody does who may write to the tables, and has no key."""
    durable = (await driver_of(saver)).durable
    assert await durable.remove(keys.named("", thread), [("", id) for id in doomed])


async def is_clean(saver: Any) -> bool:
    """Whether nothing is amiss, for those who list and for those who verify."""
    async for _ in saver.alist(None):
        pass
    report = await saver.averify()
    return bool(report)


async def lost(saver: Any, thread: str = "t") -> list[str | None]:
    """The checkpoints that `verify` finds lost, for this reason; a listing names the first."""
    with pytest.raises(CorruptionError, match=UNTOLD) as told:
        await ids(saver, thread)
    report = await saver.averify()
    assert {(f.tier, f.kind, f.outcome) for f in report.findings} == {
        ("postgres", "checkpoint", "lost")
    }
    assert all(UNTOLD in f.reason for f in report.findings)
    found = sorted(f.checkpoint for f in report.findings)
    assert told.value.checkpoint in found
    return found


# -- what was removed by others --------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("gone", "named"),
    [(["1"], ["1"]), (["2"], ["2"]), (["1", "2", "3"], ["3"]), (["1", "3"], ["1", "3"])],
    ids=["the first", "one amid", "all but the head", "two"],
)
async def test_a_checkpoint_that_was_cut_out_is_missed(
    new_saver: NewSaver, key: dict[str, Any], gone: list[str], named: list[str]
) -> None:
    """By a listing, whatever it leaves out, and by `verify`; the head can be read."""
    saver = new_saver(**key)
    await grown(saver, "1", "2", "3", "4")
    assert await is_clean(new_saver(**key))
    await cut(saver, *gone)
    fresh = new_saver(**key)
    assert await lost(fresh) == named
    with pytest.raises(CorruptionError, match=UNTOLD):
        async for _ in fresh.alist(config(), filter={"step": 1}):
            pass
    assert (await fresh.aget_tuple(config())).checkpoint["id"] == "4"


async def test_without_a_key_nobody_can_tell(new_saver: NewSaver) -> None:
    saver = new_saver()
    await grown(saver, "1", "2", "3")
    await cut(saver, "2")
    assert await is_clean(new_saver())
    assert await ids(saver) == ["3", "1"]


@both
async def test_a_gap_is_in_the_copy_as_well(new_saver: NewSaver, key: dict[str, Any]) -> None:
    """Nothing that is done later makes one of it that was left on purpose."""
    saver = new_saver(**key)
    await grown(saver, "1", "2", "3", "4")
    await cut(saver, "2")
    await saver.acopy_thread("t", "copy")
    assert await lost(saver, "copy") == ["2", "2"]
    await saver.adelete_thread("copy")
    assert await lost(saver) == ["2"]
    await saver.adelete_for_runs(["another"])
    await cut(saver, "3")
    await saver.aprune(["t"])
    assert await lost(saver) == ["3"]


@both
async def test_a_gap_is_closed_by_going_on_and_a_prune(
    new_saver: NewSaver, key: dict[str, Any]
) -> None:
    """Which removes what misses it."""
    saver = new_saver(**key)
    await grown(saver, "1", "2", "3")
    await cut(saver, "2")
    assert await lost(saver) == ["2"]
    await grown(saver, "4")
    await saver.aprune(["t"])
    assert await ids(saver) == ["4"]
    assert await is_clean(new_saver(**key))


# -- what was removed on purpose -------------------------------------------------------------


@both
async def test_what_was_pruned_is_not_missed(new_saver: NewSaver, key: dict[str, Any]) -> None:
    """Nor in a copy, nor when it is pruned again; what is cut out afterwards is."""
    saver = new_saver(**key)
    await grown(saver, "1", "2", "3")
    await saver.aprune(["t"])
    assert await ids(new_saver(**key)) == ["3"]
    assert await is_clean(new_saver(**key))
    await saver.acopy_thread("t", "copy")
    await grown(saver, "4", "5")
    assert await is_clean(new_saver(**key))
    await saver.aprune(["t", "copy"])
    await saver.aprune(["t", "copy"])
    assert (await ids(saver), await ids(saver, "copy")) == (["5"], ["3"])
    assert await is_clean(new_saver(**key))
    await grown(saver, "6", "7")
    await cut(saver, "6")
    assert await lost(new_saver(**key)) == ["6"]


@both
async def test_what_a_copy_left_behind_is_not_missed(
    new_saver: NewSaver, key: dict[str, Any]
) -> None:
    """`latest_only` takes what `prune` would keep."""
    saver = new_saver(**key)
    await grown(saver, "1", "2", "3")
    await saver.acopy_thread("t", "copy", latest_only=True)
    await saver.acopy_thread("copy", "again")
    assert (await ids(saver, "copy"), await ids(saver, "again")) == (["3"], ["3"])
    assert await is_clean(new_saver(**key))


@both
async def test_what_a_delta_channel_keeps_is_not_torn(
    new_saver: NewSaver, key: dict[str, Any]
) -> None:
    """Of what a prune leaves the oldest has lost its parent, and nothing else has."""
    saver = new_saver(**key)
    head = await grown(saver, "1", "2")
    for id in ("3", "4"):
        counted = {"source": "loop", "step": 1, "counters_since_delta_snapshot": {"log": [1, 1]}}
        step = superstep(saver, head, id, {"own": id}, dropped=("log",), metadata=counted)
        await saver.aput(*step)
        head = await saver.aget_tuple(config())
    await saver.aprune(["t"])
    assert await ids(saver) == ["4", "3", "2"]
    assert await is_clean(new_saver(**key))
    await cut(saver, "3")
    with pytest.raises(CorruptionError, match=UNTOLD):
        await ids(new_saver(**key))


@both
async def test_what_went_with_its_run_is_not_missed(
    new_saver: NewSaver, key: dict[str, Any]
) -> None:
    """One that others were made from, and the head."""
    saver = new_saver(**key)
    for id, run in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "c"), ("5", "b")):
        head = await saver.aget_tuple(config())
        made = {"source": "loop", "step": 1, "run_id": run}
        await saver.aput(*superstep(saver, head, id, {"own": id}, metadata=made))
    await saver.adelete_for_runs(["b"])
    assert await ids(new_saver(**key)) == ["4", "3", "1"]
    assert await is_clean(new_saver(**key))
    await saver.adelete_for_runs(["a"])
    assert await ids(saver) == ["4"]
    assert await is_clean(new_saver(**key))


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "another key": (
        SIGNED,
        {"integrity_key": [b"n" * 32, b"k" * 32]},
        {"integrity_key": b"n" * 32},
    ),
    "a first key": ({}, {**SIGNED, "accept_plain": True}, SIGNED),
    "encrypted": (SIGNED, {**ENCRYPTED, **SIGNED, "accept_plain": True}, ENCRYPTED),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_another_key_knows_what_was_pruned(new_saver: NewSaver, change: str) -> None:
    """And what was cut out, where the key before knew."""
    before, between, after = CHANGES[change]
    saver = new_saver(**before)
    await grown(saver, "1", "2", "3")
    await saver.aprune(["t"])
    await grown(saver, "1", "2", "3", thread="cut")
    await cut(saver, "2", thread="cut")
    assert (await new_saver(**between).arekey()).rewritten == 2
    fresh = new_saver(**after)
    assert await ids(fresh) == ["3"]
    if before:
        with pytest.raises(CorruptionError, match=UNTOLD):
            await ids(fresh, "cut")
    else:
        assert await is_clean(fresh)
    assert (await new_saver(**between).arekey()).rewritten == 0


@both
async def test_a_migration_knows_what_was_pruned(new_saver: NewSaver, key: dict[str, Any]) -> None:
    """And what was cut out."""
    saver = new_saver(**key)
    for name in ("t", "cut"):
        await grown(saver, "1", "2", "3", thread=name)
    await saver.aprune(["t"])
    await cut(saver, "2", thread="cut")
    schema = StateSchema(1)
    schema.step(0, rename_channel("log", "said"))
    done = await new_saver(state_schema=schema, **key).amigrate()
    assert [one.outcome for one in done.told] == ["migrated", "migrated"]
    fresh = new_saver(state_schema=schema, **key)
    head = await fresh.aget_tuple(config())
    assert head.checkpoint["channel_values"] == {"said": ["1", "2", "3"]}
    assert await ids(fresh) == ["3"]
    with pytest.raises(CorruptionError, match=UNTOLD) as told:
        await ids(fresh, "cut")
    assert told.value.checkpoint == "2"
    report = await fresh.averify()
    assert [(f.thread, f.checkpoint) for f in report.findings] == [("cut", "2")]


# -- what was stored before ------------------------------------------------------------------


@both
async def test_what_was_stored_before_there_were_edges_is_taken_as_it_is(
    new_saver: NewSaver, key: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is brought under the key again: from then on what is cut out is missed."""
    made = drafting.Record
    with monkeypatch.context() as former:
        former.setattr(drafting, "Record", lambda *of: made(*of[:-1], edged=False))
        saver = new_saver(**key)
        await grown(saver, "1", "2", "3", "4")
        await cut(saver, "1")  # as it was pruned then
    fresh = new_saver(**key)
    assert await is_clean(fresh)
    await grown(fresh, "5", "6")
    assert await is_clean(fresh)
    assert (await fresh.arekey()).rewritten == 1
    assert await is_clean(new_saver(**key))
    await cut(fresh, "3")
    assert await lost(new_saver(**key)) == ["3"]
    assert (await fresh.arekey()).rewritten == 0


# -- puts beside it --------------------------------------------------------------------------


@both
async def test_a_fork_of_what_was_pruned_since_misses_nothing(
    new_saver: NewSaver, key: dict[str, Any]
) -> None:
    """The run was given the checkpoint before; the fork is stored whole."""
    saver, other = new_saver(**key), new_saver(**key)
    await grown(saver, "1", "2", "3")
    at_2 = await saver.aget_tuple(config(id="2"))
    await other.aprune(["t"])
    await saver.aput(*superstep(saver, at_2, "fork", {"own": LONG}))
    assert await ids(new_saver(**key)) == ["fork", "3"]
    assert await is_clean(new_saver(**key))


@both
async def test_what_lost_on_a_head_that_was_pruned_since_misses_nothing(
    new_saver: NewSaver, key: dict[str, Any]
) -> None:
    """It is kept beside the head that it lost to."""
    saver, other = new_saver(**key), new_saver(**key)
    head = await grown(saver, "1", "2")
    await grown(other, "3")
    await other.aprune(["t"])
    with pytest.raises(ConflictError):
        await saver.aput(*superstep(saver, head, "lost", {"own": LONG}))
    assert await ids(new_saver(**key)) == ["lost", "3"]
    assert await is_clean(new_saver(**key))


@both
async def test_a_fork_that_waits_to_be_flushed_misses_nothing(
    new_saver: NewSaver, key: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was made from is pruned while Redis alone has it."""
    behind = {**key, "write_policy": "write_behind"}
    saver, other = new_saver(**behind), new_saver(**key)
    for one in (saver, other):
        plain = one.saver if isinstance(one, OnBlockingFace) else one
        monkeypatch.setattr(plain._faces.background, "start", lambda: None)
    await grown(saver, "1", "2", "3")
    await saver.aflush()
    at_1 = await saver.aget_tuple(config(id="1"))
    await saver.aput(*superstep(saver, at_1, "fork", {"own": LONG}))
    driver = await driver_of(other)
    where = keys.named("", "t")
    known = await driver.durable.heads(where)
    stay = await driver.durable.page(listing(id="3"))
    await driver.vault.gather(where)
    edges = driver.upkeep._edges(where, [r for _, r in stay.rows])
    assert await driver.durable.keep(where, [("", "3")], known, edges)
    await saver.aflush()
    assert set(await ids(new_saver(**key))) == {"fork", "3"}
    assert await is_clean(new_saver(**key))


# -- heads kept outside ----------------------------------------------------------------------


async def test_a_head_kept_outside_tells_a_history_that_was_cut_off(new_saver: NewSaver) -> None:
    """Checkpoints that would tell that it was passed by are gone; not if they were pruned."""
    saver = new_saver(**SIGNED)
    await grown(saver, "1", "2", "3")
    anchor = await saver.aexport_head("t")
    await grown(saver, "4", "5", "6")
    await cut(saver, "3", "4")
    with pytest.raises(HeadMovedError):
        await new_saver(**SIGNED).acheck_head(anchor)
    await grown(saver, "7")
    await saver.aprune(["t"])
    assert await new_saver(**SIGNED).acheck_head(anchor) == 4


# -- ports -----------------------------------------------------------------------------------


def edge(id: str, text: str = "told", content: str | None = None) -> Edge:
    return Edge("", id, mark(content or id), text.encode())


async def shown(ports: Ports, id: str, **place: Any) -> tuple[bytes, bool]:
    """A checkpoint's edge, and whether it is an orphan."""
    page = await ports.durable.page(listing(ns="", id=id, **place))
    (found,) = [r for _, r in page.rows]
    where = at(id=place["thread"].id) if place else HERE
    (same, *_) = await ports.durable.chain(where, id, 1)
    assert same == replace(found, orphan=False)
    sight = await ports.durable.look(where.thread.key, [("", id)], [], None)
    assert sight.records["", id].edge == found.edge
    assert sight.records["", id] in await ports.durable.scan_records(where.thread.key, None, 99)
    return found.edge, found.orphan


async def test_what_stays_gets_its_edge_where_its_parent_goes(ports: Ports) -> None:
    """If it is still the same; and not if its parent was gone before."""
    await ports.won(put("a"), put("b", parent="a"), put("c", parent="gone"), put("d", parent="b"))
    heads = await ports.durable.heads(HERE.thread)
    kept = [("", "b"), ("", "c"), ("", "d")]
    said = [edge("b"), edge("c"), edge("d", content="another")]
    assert await ports.durable.keep(HERE.thread, kept, heads, said)
    assert await shown(ports, "b") == (b"told", True)
    assert await shown(ports, "c") == (b"", True)
    assert await shown(ports, "d") == (b"", False)


async def test_nothing_is_removed_whose_child_is_not_known(ports: Ports) -> None:
    """It came since, or is another one now."""
    await ports.won(put("a"), put("b", parent="a"), put("c", parent="b"), put("x", place=at("s")))
    durable, doomed = ports.durable, [("", "a"), ("s", "x"), ("", "none")]
    (known,) = await durable.children(HERE.thread, doomed)
    assert known == row(put("b", parent="a"), 2)
    for wrong in ([], [edge("b", content="x")], [edge("b"), edge("c")]):
        assert not await durable.remove(HERE.thread, doomed, {}, wrong)
    assert await ports.ids(ns="") == ["c", "b", "a"]
    assert await durable.remove(HERE.thread, doomed, {}, [edge("b")])
    assert await shown(ports, "b") == (b"told", True)
    assert await shown(ports, "c") == (b"", False)
    assert await durable.children(HERE.thread, [("", "b"), ("", "c")]) == []


def edged(one: Any, text: bytes = b"told") -> Any:
    return replace(one, edge=text)


@pytest.mark.parametrize("company", [False, True])
async def test_a_put_keeps_its_edge_if_its_parent_is_gone(ports: Ports, company: bool) -> None:
    """Alone or in company; whether it wins or is kept beside the head; and puts it off when it is
    put again."""
    others = [put("z", place=at(id="u"))] if company else []

    async def commit(one: Any) -> None:
        await ports.durable.commit([edged(one), *others])

    await commit(put("a"))
    await commit(put("b", parent="a"))
    await commit(put("c", parent="gone"))
    await commit(put("lost", Claim.HEAD, "a", parent="gone"))
    await commit(put("late", Claim.HEAD, "a", parent="b"))
    assert [await shown(ports, id) for id in ("a", "b", "c", "lost", "late")] == [
        (b"told", False),
        (b"", False),
        (b"told", True),
        (b"told", True),
        (b"", False),
    ]
    await ports.won(put("c", content="again", parent="b"))
    assert await shown(ports, "c") == (b"", False)


async def test_what_is_rewritten_or_copied_gets_the_edge_it_is_given(ports: Ports) -> None:
    """A copy only where the parent did not come along, with it or before."""
    heads = await stored(ports)
    made = anew()
    rows = [(old, replace(r, edge=b"e" if r.id == "b" else b""), m) for old, r, m in made.records]
    assert await ports.durable.rewrite(HERE.thread, heads, replace(made, records=rows))
    assert await shown(ports, "b") == (b"e", False)
    assert await shown(ports, "a") == (b"", False)
    target = thread("copy")
    copied = RecordRow("", "b", "a", 2, mark("c"), b"copy", (), edge=b"f")
    await ports.durable.copy(HERE.thread, target, [copied], [], [])
    await ports.durable.copy(HERE.thread, target, [], [], [("", "b")])
    assert await shown(ports, "b", thread=target) == (b"f", True)
    assert (await ports.durable.heads(target))[""] == Head("b", 2, mark("c"))
    parent = RecordRow("", "a", None, 1, mark("p"), b"copy", ())
    for name, parts in (("at once", [[parent, copied]]), ("later", [[parent], [copied]])):
        for part in parts:
            await ports.durable.copy(HERE.thread, thread(name), part, [], [])
        assert await shown(ports, "b", thread=thread(name)) == (b"", False)
