"""What a saver does over each driver, seen through LangGraph's interface."""

from __future__ import annotations

import dataclasses
import fractions
import json
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_durable_state import ConflictError, EvolutionError, UsageError
from langgraph_durable_state.words import NULL_TASK_ID
from tests.contract.superstep import config, superstep, with_id
from tests.faces import OnBlockingFace

NewSaver = Callable[..., Any]

LONG = "x" * 1000
"""A value that is stored as a chunk of its own."""


async def grown(saver: Any, *ids: str, thread: str = "t", **values: Any) -> CheckpointTuple:
    """A thread of so many supersteps; its head."""
    for id in ids:
        before = await saver.aget_tuple(config(thread))
        made = {"log": [*(before.checkpoint["channel_values"]["log"] if before else []), id]}
        await saver.aput(*superstep(saver, before, id, made | values, thread=thread))
    found = await saver.aget_tuple(config(thread))
    assert found is not None
    return found  # type: ignore[no-any-return]


async def ids(saver: Any, thread: str = "t") -> list[str]:
    return [t.checkpoint["id"] async for t in saver.alist(config(thread))]


async def history(saver: Any, channel: str = "log", thread: str = "t") -> list[Any]:
    found = await saver.aget_delta_channel_history(config=config(thread), channels=[channel])
    return [value for _, _, value in found[channel]["writes"]]


async def pending(saver: Any, thread: str = "t") -> Any:
    return (await saver.aget_tuple(config(thread))).pending_writes


# -- two writers -----------------------------------------------------------------------------


async def test_of_two_runs_from_one_head_one_advances_it(new_saver: NewSaver) -> None:
    """The other is told what it expected and what is there; its checkpoint can be read."""
    one, two = new_saver(), new_saver()
    await grown(one, "1")
    first, second = [await s.aget_tuple(config()) for s in (one, two)]
    await one.aput(*superstep(one, first, "a", {"own": "of a" + LONG}))
    with pytest.raises(ConflictError) as told:
        await two.aput(*superstep(two, second, "b", {"own": "of b" + LONG}))
    assert (told.value.expected, told.value.actual, told.value.refused) == ("1", "a", "b")
    fresh = new_saver()
    head = await fresh.aget_tuple(config())
    assert head.checkpoint["channel_values"] == {"log": ["1"], "own": "of a" + LONG}
    refused = await fresh.aget_tuple(config(id="b"))
    assert refused.checkpoint["channel_values"] == {"log": ["1"], "own": "of b" + LONG}
    assert await ids(fresh) == ["b", "a", "1"]


async def test_a_run_that_lost_gets_no_further_version(new_saver: NewSaver) -> None:
    """LangGraph asks for one at each superstep, so the run stops there."""
    one, two = new_saver(), new_saver()
    await grown(one, "1")
    lost = await two.aget_tuple(config())
    await grown(one, "2")
    put = superstep(two, lost, "b", {"log": []})
    with pytest.raises(ConflictError):
        await two.aput(*put)
    with pytest.raises(ConflictError):
        two.get_next_version(put[3]["log"], None)


async def test_a_fork_by_id_is_no_conflict(new_saver: NewSaver) -> None:
    one, two = new_saver(), new_saver()
    await grown(one, "1", "2", big=LONG)
    old = await two.aget_tuple(config(id="1"))
    await grown(one, "3")
    await two.aput(*superstep(two, old, "f", {"log": ["f"]}))
    head = await one.aget_tuple(config())
    assert (head.checkpoint["id"], head.parent_config["configurable"]["checkpoint_id"]) == (
        "f",
        "1",
    )
    assert head.checkpoint["channel_values"] == {"log": ["f"], "big": LONG}


async def test_looking_at_an_old_checkpoint_moves_no_head(new_saver: NewSaver) -> None:
    saver = new_saver()
    await grown(saver, "1", "2")
    await saver.aget_tuple(config(id="1"))
    await ids(saver)
    assert (await saver.aget_tuple(config())).checkpoint["id"] == "2"
    await grown(saver, "3")
    assert await ids(saver) == ["3", "2", "1"]


# -- pending writes --------------------------------------------------------------------------


async def test_the_writes_of_two_runs_of_a_task_are_never_mixed(new_saver: NewSaver) -> None:
    """The first batch wins whole, whoever reads it, even if the later one is longer."""
    one, two = new_saver(), new_saver()
    first, second = await grown(one, "1"), await grown(two)
    await one.aput_writes(first.config, [("log", "one")], "task")
    await two.aput_writes(second.config, [("log", "two"), ("log", LONG)], "task")
    for saver in (one, two, new_saver()):
        assert await pending(saver) == [("task", "log", "one")]


async def test_history_replays_what_the_branch_consumed(new_saver: NewSaver) -> None:
    """A run that loaded two batches of one task went on with the first, however long the other."""
    one, two, three = new_saver(), new_saver(), new_saver()
    first, second = await grown(one, "1"), await grown(two)
    await one.aput_writes(first.config, [("delta", "one")], "task")
    await two.aput_writes(second.config, [("delta", "two"), ("delta", "two more")], "task")
    await grown(three, "2")
    for saver in (three, new_saver()):
        assert await history(saver, "delta") == ["one"]


async def test_history_replays_a_runs_own_batch(new_saver: NewSaver) -> None:
    """Another run's came first, but this is the one the winner was made from."""
    one, two = new_saver(), new_saver()
    first, second = await grown(one, "1"), await grown(two)
    await one.aput_writes(first.config, [("delta", "one")], "task")
    await two.aput_writes(second.config, [("delta", "two")], "task")
    await two.aput(*superstep(two, second, "2", {"log": []}))
    for saver in (one, two):
        assert await history(saver, "delta") == ["two"]


async def test_the_null_tasks_batch_may_grow(new_saver: NewSaver) -> None:
    saver = new_saver()
    head = await grown(saver, "1")
    for many in [1, 3, 2]:
        writes = [("delta", i) for i in range(many)]
        await saver.aput_writes(head.config, writes, NULL_TASK_ID)
    assert await pending(saver) == [(NULL_TASK_ID, "delta", i) for i in range(3)]
    await grown(saver, "2")
    assert await history(saver, "delta") == [0, 1, 2]


async def test_special_channels_keep_the_last(new_saver: NewSaver) -> None:
    saver = new_saver()
    head = await grown(saver, "1")
    for value in ["a", LONG, "c"]:
        await saver.aput_writes(head.config, [("__resume__", value)], "task")
    assert await pending(saver) == [("task", "__resume__", "c")]


@pytest.mark.parametrize("order", ["writes first", "put first"])
async def test_writes_before_and_after_their_put_are_the_same(
    new_saver: NewSaver, order: str
) -> None:
    saver = new_saver()
    before = await grown(saver, "1")
    put = superstep(saver, before, "2", {"log": ["2"]})
    write = (with_id(before.config, "2"), [("delta", LONG), ("log", 1)], "task", "path")
    if order == "put first":
        await saver.aput(*put)
        await saver.aput_writes(*write)
    else:
        await saver.aput_writes(*write)
        await saver.aput(*put)
    assert await pending(new_saver()) == [("task", "delta", LONG), ("task", "log", 1)]
    await grown(saver, "3")
    assert await history(new_saver(), "delta") == [LONG]


# -- removing and copying --------------------------------------------------------------------


async def test_a_pruned_thread_goes_on(new_saver: NewSaver) -> None:
    """The head, its pending writes and what they share with the past are kept."""
    saver = new_saver()
    head = await grown(saver, "1", "2", "3", big=LONG)
    await saver.aput_writes(head.config, [("delta", LONG)], "task")
    await new_saver().aprune(["t"])
    assert await ids(saver) == ["3"]
    assert await pending(new_saver()) == [("task", "delta", LONG)]
    await grown(saver, "4")
    fresh = await new_saver().aget_tuple(config())
    assert fresh.checkpoint["channel_values"] == {"log": ["1", "2", "3", "4"], "big": LONG}


async def test_a_copy_stands_alone(new_saver: NewSaver) -> None:
    """With its history, after its source is gone, and both go on by themselves."""
    saver = new_saver()
    head = await grown(saver, "1", "2", big=LONG)
    await saver.aput_writes(head.config, [("delta", LONG)], "task")
    await saver.acopy_thread("t", "u")
    with pytest.raises(UsageError):
        await saver.acopy_thread("t", "u")
    await saver.adelete_thread("t")
    assert await saver.aget_tuple(config()) is None
    assert await ids(saver, "u") == ["2", "1"]
    assert await pending(new_saver(), "u") == [("task", "delta", LONG)]
    await grown(saver, "3", thread="u")
    assert await history(new_saver(), "delta", "u") == [LONG]
    assert await ids(saver, "t") == []


async def test_the_checkpoints_of_a_run_go_and_the_head_goes_back(new_saver: NewSaver) -> None:
    saver = new_saver()
    before = None
    for id, run in [("1", "one"), ("2", "two"), ("3", "two")]:
        made = superstep(saver, before, id, {"log": [id, LONG]}, metadata={"run_id": run})
        await saver.aput(*made)
        before = await saver.aget_tuple(config())
    await new_saver().adelete_for_runs(["two"])
    head = await saver.aget_tuple(config())
    assert head.checkpoint["channel_values"] == {"log": ["1", LONG]}
    await grown(saver, "4")
    assert await ids(new_saver()) == ["4", "1"]


@pytest.mark.parametrize("hot_reads", ["never", "always"])
async def test_what_is_read_is_the_callers_own(new_saver: NewSaver, hot_reads: str) -> None:
    """Changing it changes nothing stored, nor what is read next."""
    saver = new_saver(hot_reads=hot_reads)
    given = {"deep": [{"n": 1}] * 40}
    await saver.aput(*superstep(saver, None, "1", given))
    given["deep"][0]["n"] = 2
    for reader in (saver, saver, new_saver(hot_reads=hot_reads)):
        found = await reader.aget_tuple(config())
        assert found.checkpoint["channel_values"] == {"deep": [{"n": 1}] * 40}
        found.checkpoint["channel_values"]["deep"][0]["n"] = 3
        found.checkpoint["channel_values"]["deep"].append("more")


async def test_writes_made_again_share_nothing_that_a_prune_sweeps(new_saver: NewSaver) -> None:
    """A run repeats what a dead one wrote, and puts a checkpoint from it after a prune."""
    run, dead = new_saver(), new_saver()
    await grown(run, "1")
    loaded, same = [await s.aget_tuple(config()) for s in (run, dead)]
    for saver, before in [(dead, same), (run, loaded)]:
        await saver.aput_writes(before.config, [("own", LONG)], "task")
    await new_saver().aprune(["t"])
    await run.aput(*superstep(run, loaded, "2", {"own": LONG}))
    head = await new_saver().aget_tuple(config())
    assert head.checkpoint["channel_values"] == {"log": ["1"], "own": LONG}


# -- what another process removed, and whose it was -----------------------------------------


async def test_a_held_head_that_was_deleted_and_put_again_is_no_base(new_saver: NewSaver) -> None:
    """The content is the same to the byte; the chunks have other numbers now."""
    one, holder = new_saver(), new_saver()
    first = superstep(one, None, "1", {"doc": LONG, "list": [LONG, "y" + LONG]})
    await one.aput(*first)
    await holder.aget_tuple(config())
    await one.adelete_thread("t")
    await new_saver().aput(*json.loads(json.dumps(first)))
    held = await holder.aget_tuple(config())
    assert held.checkpoint["channel_values"] == first[1]["channel_values"]
    await holder.aput(*superstep(holder, held, "2", {"n": 1}))
    for saver in (holder, one, new_saver()):
        found = await saver.aget_tuple(config())
        assert found.checkpoint["channel_values"] == {**first[1]["channel_values"], "n": 1}
        assert await ids(saver) == ["2", "1"]


async def test_a_refusal_by_a_thread_that_is_gone_names_nothing_kept(new_saver: NewSaver) -> None:
    """There is no thread any more that would keep the checkpoint."""
    saver = new_saver()
    head = await grown(saver, "1")
    await new_saver().adelete_thread("t")
    with pytest.raises(ConflictError, match="Nothing was kept") as told:
        await saver.aput(*superstep(saver, head, "2", {"log": []}))
    assert (told.value.expected, told.value.actual, told.value.refused) == ("1", None, None)
    assert await ids(saver) == []


def of_tenant(tenant: str, thread: str = "t") -> Any:
    made = config(thread)
    made["configurable"]["tenant_id"] = tenant
    return made


async def of_tenants(saver: Any) -> None:
    """A thread of one name of three tenants, each of two supersteps of one run."""
    for tenant in ("", "a", "b"):
        where = of_tenant(tenant)
        for id in "12":
            found = await saver.aget_tuple(where)
            put = superstep(saver, found, id, {"whose": tenant + LONG}, metadata={"run_id": "r"})
            await saver.aput(
                {"configurable": {**put[0]["configurable"], **where["configurable"]}}, *put[1:]
            )


async def ids_of_tenant(saver: Any, tenant: str, thread: str = "t") -> list[str]:
    return [t.checkpoint["id"] async for t in saver.alist(of_tenant(tenant, thread))]


@pytest.mark.parametrize(
    ("tidy", "left"),
    [
        (lambda s, **tenant: s.adelete_thread("t", **tenant), []),
        (lambda s, **tenant: s.adelete_for_runs(["r"], **tenant), []),
        (lambda s, **tenant: s.aprune(["t"], **tenant), ["2"]),
        (lambda s, **tenant: s.aprune(["t"], strategy="delete", **tenant), []),
    ],
    ids=["delete_thread", "delete_for_runs", "prune", "prune delete"],
)
@pytest.mark.parametrize("tenant", ["", "a"])
async def test_upkeep_reaches_one_tenants_thread_only(
    new_saver: NewSaver, tidy: Any, left: list[str], tenant: str
) -> None:
    saver = new_saver()
    await of_tenants(saver)
    await tidy(saver, **({"tenant_id": tenant} if tenant else {}))
    for each in ("", "a", "b"):
        expected = left if each == tenant else ["2", "1"]
        assert await ids_of_tenant(saver, each) == expected


async def test_a_copy_is_of_one_tenants_thread_and_that_tenants(new_saver: NewSaver) -> None:
    saver = new_saver()
    await of_tenants(saver)
    await saver.acopy_thread("t", "copy", tenant_id="a")
    found = await saver.aget_tuple(of_tenant("a", "copy"))
    assert found.checkpoint["channel_values"] == {"whose": "a" + LONG}
    for each in ("", "b"):
        assert await ids_of_tenant(saver, each, "copy") == []


async def test_ids_given_as_one_text_are_refused(new_saver: NewSaver) -> None:
    """Its characters would be taken for ids: here each of them is one."""
    saver = new_saver()
    for thread in "42":
        await grown(saver, "1", "2", thread=thread)
    with pytest.raises(UsageError, match="thread_ids must be a list"):
        await saver.aprune("42")
    with pytest.raises(UsageError, match="run_ids must be a list"):
        await saver.adelete_for_runs("x")
    for thread in "42":
        assert await ids(saver, thread) == ["2", "1"]


# -- two serializers -------------------------------------------------------------------------


@dataclasses.dataclass
class Doc:
    text: str


DOCS = [Doc("a" + LONG), Doc("b" + LONG)]


def strict_and_allowing(new_saver: NewSaver) -> tuple[Any, Any]:
    """Two savers over the same caches: one may not make a Doc again, its clone may."""
    listed = JsonPlusSerializer(allowed_msgpack_modules=None)
    strict = new_saver(serde=listed, hot_reads="never", on_unknown_class="raw")
    inner = getattr(strict, "saver", strict)
    clone = inner.with_allowlist([(Doc.__module__, "Doc")])
    return strict, clone if inner is strict else OnBlockingFace(clone)


async def read(saver: Any, channel: str = "docs") -> Any:
    return (await saver.aget_tuple(config())).checkpoint["channel_values"][channel]


@pytest.mark.parametrize("first", ["strict", "allowing"])
@pytest.mark.parametrize("as_map", [False, True])
async def test_what_one_serializer_decoded_is_not_served_to_another(
    new_saver: NewSaver, first: str, as_map: bool
) -> None:
    """Both read through one head cache, in either order, several times."""
    _, writer = strict_and_allowing(new_saver)
    docs: Any = dict(zip("ab", DOCS, strict=True)) if as_map else DOCS
    await writer.aput(*superstep(writer, None, "1", {"docs": docs}))
    strict, allowing = strict_and_allowing(new_saver)
    for saver in [strict, allowing] * 2 if first == "strict" else [allowing, strict] * 2:
        found = await read(saver)
        if saver is allowing:
            assert found == docs
        else:
            assert not any(isinstance(d, Doc) for d in (found.values() if as_map else found))


@pytest.mark.parametrize("first", ["strict", "allowing"])
async def test_what_one_serializer_decoded_is_not_matched_for_another(
    new_saver: NewSaver, first: str
) -> None:
    """What the strict one makes of a Doc is, for the other, just what it is; whoever read last."""
    _, writer = strict_and_allowing(new_saver)
    await writer.aput(*superstep(writer, None, "1", {"docs": DOCS}))
    strict, allowing = strict_and_allowing(new_saver)
    if first == "strict":
        seen, loaded = await read(strict), await allowing.aget_tuple(config())
    else:
        loaded, seen = await allowing.aget_tuple(config()), await read(strict)
    await allowing.aput(*superstep(allowing, loaded, "2", {"docs": [*seen, "more"]}))
    for saver in (allowing, strict_and_allowing(new_saver)[1]):
        assert await read(saver) == [*seen, "more"]


async def test_a_value_that_this_serde_cannot_read_is_not_called_damaged(
    new_saver: NewSaver,
) -> None:
    """Written with pickle, read without: the bytes are sound, the reader cannot read them."""
    pickling = new_saver(serde=JsonPlusSerializer(pickle_fallback=True))
    value = fractions.Fraction(1, 3)
    await pickling.aput(*superstep(pickling, None, "1", {"x": value}))
    assert await read(pickling, "x") == value
    with pytest.raises(EvolutionError, match=r"channel 'x'.*another serde"):
        await read(new_saver(), "x")
    with pytest.raises(EvolutionError):
        await ids(new_saver())


@pytest.mark.parametrize("by_id", [False, True], ids=["by head", "by id"])
async def test_a_put_on_a_parent_stored_again_finds_its_chunks(
    new_saver: NewSaver, by_id: bool
) -> None:
    """The thread is deleted and the same checkpoint stored again, under other chunk numbers, while
    a run is under way."""
    one, holder = new_saver(), new_saver()
    first = superstep(one, None, "1", {"doc": LONG, "list": [LONG, "y" + LONG]})
    await one.aput(*first)
    held = await holder.aget_tuple(config(id="1" if by_id else None))
    await one.adelete_thread("t")
    await new_saver().aput(*json.loads(json.dumps(first)))
    await holder.aput(*superstep(holder, held, "2", {"n": 1}))
    found = await new_saver().aget_tuple(config())
    assert found.checkpoint["channel_values"] == {**first[1]["channel_values"], "n": 1}
