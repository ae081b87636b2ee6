"""Sequences of calls that checkpointers are known to get wrong."""

from __future__ import annotations

import asyncio
import random
from itertools import product
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from langgraph_durable_state import UsageError
from tests.cases import Store, at, chain, cp, id_of, ids_of, put, values_of

# -- 8: writes before, between and after the puts of their checkpoint -------------------------


async def test_an_interrupt_may_come_before_its_checkpoint(store: Store) -> None:
    """Until the checkpoint is put there is none, not half of one; then both are there."""
    saver = store.saver()
    checkpoint = cp({"c": 1})
    config = at(id=checkpoint["id"])
    await saver.put_writes(config, [(INTERRUPT, "question")], "task")
    for where in (at(), config):
        assert await store.reader().get_tuple(where) is None
        assert await saver.get_tuple(where) is None
    assert await store.reader().list(at()) == []
    await put(saver, at(), checkpoint)
    for where in (at(), config):
        found = await store.reader().get_tuple(where)
        assert values_of(found) == {"c": 1}
        assert found.pending_writes == [("task", INTERRUPT, "question")]


@pytest.mark.parametrize("again", ["the same", "with another channel", "with other metadata"])
async def test_an_interrupt_survives_a_second_put_of_its_checkpoint(
    store: Store, again: str
) -> None:
    """A put never takes away what waits at its checkpoint."""
    saver = store.saver()
    checkpoint = cp({"c": 1})
    config = await put(saver, at(), checkpoint)
    await saver.put_writes(config, [(INTERRUPT, "question")], "task")
    if again == "with another channel":
        checkpoint = cp({"c": 1, "d": 2}, checkpoint["id"])
    metadata = {"source": "loop", "step": 1} if again == "with other metadata" else None
    await put(saver, at(), checkpoint, metadata)
    for where in (at(), config):
        found = await store.reader().get_tuple(where)
        assert checkpoint["channel_values"] == values_of(found)
        assert (metadata or {"source": "loop", "step": 0}) == found.metadata
        assert found.pending_writes == [("task", INTERRUPT, "question")]
    assert [checkpoint["id"]] == ids_of(await store.reader().list(at()))


async def test_writes_and_put_may_come_at_the_same_time(store: Store) -> None:
    """Whichever is first, both are there afterwards."""
    saver = store.saver()
    checkpoint = cp({"c": 1})
    config = at(id=checkpoint["id"])
    await asyncio.gather(
        saver.put_writes(config, [("c", 2)], "one"),
        put(saver, at(), checkpoint),
        saver.put_writes(config, [(INTERRUPT, "question")], "two"),
    )
    found = await store.reader().get_tuple(at())
    assert values_of(found) == {"c": 1}
    assert {("one", "c", 2), ("two", INTERRUPT, "question")} == set(found.pending_writes)


# -- 9: many tasks at once --------------------------------------------------------------------


async def test_writes_of_many_tasks_at_once_are_each_there_once_and_in_order(store: Store) -> None:
    """32 tasks, half of them twice: 64 writes, by task path, then task id, then index."""
    drawn = random.Random(9)
    saver = store.saver()
    config = await put(saver, at(), cp({"c": 0}))
    paths = ["", "~__pregel_pull, a", "~__pregel_pull, B", "~__pregel_pull, é", "~__pregel_push, 9"]
    tasks = [(drawn.choice(paths), f"{drawn.getrandbits(64):016x}") for _ in range(32)]
    calls = [*tasks, *tasks[::2]]
    drawn.shuffle(calls)

    await asyncio.gather(
        *(saver.put_writes(config, [("x", t), ("y", [t, "2"])], t, path) for path, t in calls)
    )

    expected = [
        (task, *write) for _, task in sorted(tasks) for write in (("x", task), ("y", [task, "2"]))
    ]
    assert len(expected) == 64
    assert expected == (await store.reader().get_tuple(at())).pending_writes
    assert expected == (await store.reader().list(at()))[0].pending_writes


# -- 10: nothing to write, and batches tried again --------------------------------------------


@pytest.mark.parametrize("where", ["a stored checkpoint", "an unknown one", "an unknown thread"])
async def test_writing_nothing_does_nothing(store: Store, where: str) -> None:
    """No row, no thread, no error."""
    saver = store.saver()
    config = await put(saver, at(), cp({"c": 1}))
    await saver.put_writes(config, [("c", 2)], "task")
    before = store.counts()
    target = {
        "a stored checkpoint": config,
        "an unknown one": at(id="unknown"),
        "an unknown thread": at("other", id="unknown"),
    }[where]
    await saver.put_writes(target, [], "task")
    await saver.put_writes(target, [], "another task")
    assert before == store.counts()
    found = await store.reader().get_tuple(config)
    assert (values_of(found), found.pending_writes) == ({"c": 1}, [("task", "c", 2)])
    assert await store.reader().get_tuple(at("other")) is None


async def test_of_a_mixed_batch_the_special_writes_are_replaced_and_the_ordinary_stay(
    store: Store,
) -> None:
    """Special ones each for itself; of the ordinary ones the first batch, whole."""
    saver = store.saver()
    config = await put(saver, at(), cp({"c": 1}))
    first = [(INTERRUPT, "q1"), ("x", 1), (RESUME, "r1"), ("y", 2)]
    await saver.put_writes(config, first, "task")
    await saver.put_writes(config, [("y", 8), ("z", 9), (INTERRUPT, "q2")], "task")
    await saver.put_writes(config, [(ERROR, "e1")], "task")
    found = (await store.reader().get_tuple(at())).pending_writes
    assert [w for w in found if not w[1].startswith("__")] == [("task", "x", 1), ("task", "y", 2)]
    special = {w[1]: w[2] for w in found if w[1].startswith("__")}
    assert special == {INTERRUPT: "q2", RESUME: "r1", ERROR: "e1"}
    assert len(found) == 5


async def test_a_shorter_or_longer_second_batch_never_mixes_with_the_first(store: Store) -> None:
    """Two runs of one task that wrote different numbers of values: only the first is read."""
    saver = store.saver()
    config = await put(saver, at(), cp({"c": 1}))
    await saver.put_writes(config, [("x", 1)], "short then long")
    await saver.put_writes(config, [("x", 7), ("x", 8), ("y", 9)], "short then long")
    await saver.put_writes(config, [("x", 1), ("y", 2)], "long then short")
    await saver.put_writes(config, [("z", 9)], "long then short")
    found = await store.reader().get_tuple(at())
    assert sorted(found.pending_writes) == [
        ("long then short", "x", 1),
        ("long then short", "y", 2),
        ("short then long", "x", 1),
    ]


async def test_two_tries_of_one_task_at_once_never_mix(store: Store) -> None:
    """Whichever batch is first is there whole, and nothing of the other."""
    saver, other = store.saver(), store.saver()
    config = await put(saver, at(), cp({"c": 1}))
    batches = [[("x", n), ("y", n), ("z", n)] for n in range(8)]
    await asyncio.gather(
        *((saver, other)[n % 2].put_writes(config, b, "task") for n, b in enumerate(batches))
    )
    found = (await store.reader().get_tuple(at())).pending_writes
    assert [w[1:] for w in found] in batches


# -- 11: channels that one put leaves to the one before ---------------------------------------


@pytest.mark.parametrize("saver_of_the_second", ["the same", "another"])
async def test_a_channel_without_a_new_version_is_the_parents(
    store: Store, saver_of_the_second: str
) -> None:
    """put {x} with new versions {x}, then {x, y} with new versions {y}: both are read."""
    saver = store.saver()
    first = await put(saver, at(), cp({"x": "one"}), new={"x": "1"})
    if saver_of_the_second == "another":
        saver = store.saver()
    await put(saver, first, cp({"x": "one", "y": "two"}), new={"y": "1"})
    assert values_of(await store.reader().get_tuple(at())) == {"x": "one", "y": "two"}
    assert values_of(await store.reader().get_tuple(first)) == {"x": "one"}


async def test_a_channel_that_is_not_in_the_values_is_not_read(store: Store) -> None:
    """A version alone does not bring back a value that was taken out."""
    saver = store.saver()
    first = await put(saver, at(), cp({"x": "one", "y": "two"}))
    gone = cp({"x": "one"}, versions={"y": "2"})
    await put(saver, first, gone, new={"y": "2"})
    found = await store.reader().get_tuple(at())
    assert values_of(found) == {"x": "one"}
    assert found.checkpoint["channel_versions"] == {"x": "1", "y": "2"}


# -- 12: clocks that step back ----------------------------------------------------------------


async def test_a_child_whose_id_sorts_before_its_parents_is_the_head(store: Store) -> None:
    """It is read as such, and listed first."""
    saver = store.saver()
    late, early = "2f000000-0000-6000-8000-000000000000", "1f000000-0000-6000-8000-000000000000"
    parent = await put(saver, at(), cp({"c": "parent"}, late))
    await put(saver, parent, cp({"c": "child"}, early, {"c": "2"}))
    head = await store.reader().get_tuple(at())
    assert ("child", early) == (values_of(head)["c"], id_of(head.config))
    assert late == id_of(head.parent_config)
    reader = store.reader()
    assert [early, late] == ids_of(await reader.list(at()))
    assert [late] == ids_of(await reader.list(at(), before=at(id=early)))
    assert ids_of(await reader.list(at(), before=at(id=late))) == []
    assert [early] == ids_of(await reader.list(at(), limit=1))


# -- 13: branches -----------------------------------------------------------------------------


async def test_children_of_one_parent_that_claim_one_version_read_their_own_values(
    store: Store,
) -> None:
    """A version names a value only together with its checkpoint."""
    saver = store.saver()
    parent = await put(saver, at(), cp({"c": "parent", "kept": "k"}))
    versions = {"c": "2", "kept": "1"}
    values = [f"child {n}" * 60 for n in range(3)]
    children = [
        await put(saver, parent, cp({"c": v, "kept": "k"}, versions=versions), new={"c": "2"})
        for v in values
    ]
    for value, config in zip(values, children, strict=True):
        assert {"c": value, "kept": "k"} == values_of(await store.reader().get_tuple(config))
    assert values[-1] == values_of(await store.reader().get_tuple(at()))["c"]


async def test_edit_and_resend_leaves_the_original_branch_intact(store: Store) -> None:
    """Every checkpoint of both branches reads as it was put, with its own writes."""
    saver = store.saver()
    talk = [{"m": [f"{n} " + "x" * 80 for n in range(size)]} for size in range(1, 13)]
    original = await chain(saver, talk)
    for step, config in enumerate(original):
        await saver.put_writes(config, [("m", f"original {step}")], "task")
    config = original[4]
    edited = []
    for step in range(5, 12):
        value = [*talk[4]["m"], *(f"{n} edited " + "y" * 80 for n in range(5, step + 1))]
        config = await put(saver, config, cp({"m": value}, versions={"m": f"{step + 1}"}))
        await saver.put_writes(config, [("m", f"edited {step}")], "task")
        edited.append((config, value))
    for step, was in enumerate(original):
        found = await store.reader().get_tuple(was)
        assert talk[step] == values_of(found)
        assert [("task", "m", f"original {step}")] == found.pending_writes
    for step, (now, value) in enumerate(edited, 5):
        found = await store.reader().get_tuple(now)
        assert {"m": value} == values_of(found)
        assert [("task", "m", f"edited {step}")] == found.pending_writes
    assert {"m": edited[-1][1]} == values_of(await store.reader().get_tuple(at()))


# -- 15: thread ids ---------------------------------------------------------------------------

_DRAWN = random.Random(15)
THREAD_IDS = [
    *("a", "ab", "a:b", "a*", "a%", "a_", "{a}", "é", "1", "a\x00", " a", "A"),
    "".join(chr(_DRAWN.randrange(0xD800)) for _ in range(3000)),
    "a\ud800",
]


async def test_deleting_a_thread_deletes_no_other(store: Store) -> None:
    """Ids are neither patterns nor prefixes, whatever they are made of."""
    saver = store.saver()
    for n, thread_id in enumerate(THREAD_IDS):
        config = await put(saver, at(thread_id), cp({"n": n}))
        await put(saver, at(thread_id, "sub:1"), cp({"n": -n}))
        await saver.put_writes(config, [("n", [n])], "task")
    keys = store.keys()
    assert len(keys) == 2 * len(THREAD_IDS)

    await saver.delete_thread("a")

    assert len(keys - store.keys()) == 2
    reader = store.reader()
    for n, thread_id in enumerate(THREAD_IDS):
        found = await reader.get_tuple(at(thread_id))
        sub = await reader.get_tuple(at(thread_id, "sub:1"))
        listed = await reader.list({"configurable": {"thread_id": thread_id}})
        if thread_id == "a":
            assert (found, sub, listed) == (None, None, [])
            continue
        assert ({"n": n}, [("task", "n", [n])]) == (values_of(found), found.pending_writes)
        assert {"n": -n} == values_of(sub)
        assert thread_id == found.config["configurable"]["thread_id"]
        assert len(listed) == 2
    everything = await reader.list(None)
    assert {t for t in THREAD_IDS if t != "a"} == {
        found.config["configurable"]["thread_id"] for found in everything
    }
    assert len(everything) == 2 * (len(THREAD_IDS) - 1)


@pytest.mark.parametrize("thread_id", [1, 1.0, True, b"1", "", None])
async def test_a_thread_id_that_is_no_text_is_refused_by_name(
    hot_store: Store, thread_id: Any
) -> None:
    """So that 1 and "1" can never be two threads, or one; "1" is untouched."""
    saver = hot_store.saver()
    one = await put(saver, at("1"), cp({"c": "one"}))
    before = hot_store.counts()
    with pytest.raises(UsageError, match="thread_id"):
        await put(saver, at(thread_id), cp({"c": "other"}))
    with pytest.raises(UsageError, match="thread_id"):
        await saver.get_tuple(at(thread_id))
    with pytest.raises(UsageError, match="thread_id"):
        await saver.put_writes(at(thread_id, id=id_of(one)), [("c", 2)], "task")
    with pytest.raises(UsageError, match="thread_id"):
        await saver.delete_thread(thread_id)
    assert before == hot_store.counts()
    assert values_of(await hot_store.reader().get_tuple(at("1"))) == {"c": "one"}


@pytest.mark.parametrize(
    ("named", "config", "task", "path"),
    [
        ("checkpoint_ns", at(ns="a\x00b", id="1"), "t", ""),
        ("checkpoint_ns", at(ns="n" * 5000, id="1"), "t", ""),
        ("checkpoint_id", at(id="a\x00b"), "t", ""),
        ("checkpoint_id", at(id="i" * 5000), "t", ""),
        ("task_id", at(id="1"), "t\x00", ""),
        ("task_id", at(id="1"), "t\ud800", ""),
        ("task_path", at(id="1"), "t", "p\x00"),
    ],
)
async def test_other_ids_that_cannot_be_keys_are_refused_by_name(
    hot_store: Store, named: str, config: Any, task: str, path: str
) -> None:
    """Nothing is written, and the error says which one it was."""
    saver = hot_store.saver()
    await saver.setup()
    with pytest.raises(UsageError, match=named):
        await saver.put_writes(config, [("c", 1)], task, path)
    assert hot_store.counts()["write"] == 0


# -- 16: metadata filters ---------------------------------------------------------------------

METADATA: list[dict[str, Any]] = [
    {"source": "input", "step": -1, "flag": True, "note": None, "score": 0.5},
    {"source": "loop", "step": 0, "flag": 1, "note": "None", "nested": {"a": {"b": 1}, "c": [1]}},
    {"source": "loop", "step": 1, "flag": False, 'it\'s "quoted"': "v'\"", "score": 2},
    {"source": "loop", "step": 2, "flag": 0, "nested": {"a": {"b": True}}, "note": ""},
    {"source": "update", "step": 3, "flag": "true", "step ": 3, "list": ["a", 1, None]},
    {"source": "update", "step": 4, "%": "%", "a.b": 1, "{}": {}, "[]": []},
]

FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [5, 4, 3, 2, 1, 0]),
    ({"source": "loop"}, [3, 2, 1]),
    ({"source": "loop", "step": 1}, [2]),
    ({"step": "1"}, []),
    ({"step": -1}, [0]),
    ({"flag": True}, [0]),
    ({"flag": 1}, [1]),
    ({"flag": False}, [2]),
    ({"flag": 0}, [3]),
    ({"flag": "true"}, [4]),
    ({"note": None}, [0]),
    ({"note": "None"}, [1]),
    ({"note": ""}, [3]),
    ({"absent": None}, []),
    ({"absent": ""}, []),
    ({"score": 0.5}, [0]),
    ({"score": 2}, [2]),
    ({"nested": {"a": {"b": 1}, "c": [1]}}, [1]),
    ({"nested": {"c": [1], "a": {"b": 1}}}, [1]),
    ({"nested": {"a": {"b": True}}}, [3]),
    ({"nested": {"a": {"b": 1}}}, []),
    ({"nested": {}}, []),
    ({'it\'s "quoted"': "v'\""}, [2]),
    ({"it's": "v"}, []),
    ({"step ": 3}, [4]),
    ({"list": ["a", 1, None]}, [4]),
    ({"list": ["a"]}, []),
    ({"%": "%"}, [5]),
    ({"a.b": 1}, [5]),
    ({"{}": {}}, [5]),
    ({"[]": []}, [5]),
    ({"source": "%"}, []),
    ({"source": "lo_p"}, []),
]


async def filtered(store: Store, thread_id: str = "t") -> list[Any]:
    saver = store.saver()
    configs: list[Any] = []
    for n, metadata in enumerate(METADATA):
        parent = configs[-1] if configs else at(thread_id)
        configs.append(await put(saver, parent, cp({"n": n}, versions={"n": str(n)}), metadata))
    await put(saver, at("other"), cp({"n": 99}), METADATA[1])
    return configs


async def test_filters_find_what_is_equal_and_nothing_else(store: Store) -> None:
    """JSON types count: True is not 1, None is an explicit null, a part is not the whole."""
    await filtered(store)
    reader = store.reader()
    for wanted, expected in FILTERS:
        found = await reader.list(at(), filter=wanted)
        assert (wanted, expected) == (wanted, [values_of(each)["n"] for each in found])


async def test_before_and_limit_and_filter_work_together(store: Store) -> None:
    """`limit` counts what is left after the other two."""
    configs = await filtered(store)
    reader = store.reader()
    filters: list[Any] = [None, {"source": "loop"}, {"source": "update"}]
    for before, limit, wanted in product([None, *range(6)], [None, 0, 1, 2, 9], filters):
        found = await reader.list(
            at(),
            before=None if before is None else configs[before],
            limit=limit,
            filter=wanted,
        )
        expected = [
            n
            for n in reversed(range(6 if before is None else before))
            if wanted is None or METADATA[n]["source"] == wanted["source"]
        ][: 6 if limit is None else limit]
        assert expected == [values_of(each)["n"] for each in found]


async def test_keys_from_the_config_can_be_filtered_by(store: Store) -> None:
    """A run's own metadata is stored with its checkpoints."""
    saver = store.saver()
    config = {**at(), "metadata": {"customer": "c-7", "retries": 2}}
    await put(saver, config, cp({"n": 1}), {"source": "loop"})
    await put(saver, at("other"), cp({"n": 2}), {"source": "loop"})
    reader = store.reader()
    for wanted in ({"customer": "c-7"}, {"retries": 2}, {"customer": "c-7", "source": "loop"}):
        assert [values_of(f)["n"] for f in await reader.list(None, filter=wanted)] == [1]
    assert await reader.list(None, filter={"customer": "c"}) == []


async def test_a_filter_that_is_not_json_is_refused_by_name(hot_store: Store) -> None:
    """An empty list would look like an answer."""
    saver = hot_store.saver()
    with pytest.raises(UsageError, match="'colour'"):
        await saver.list(at(), filter={"colour": {1, 2}})


# -- 17: looking back -------------------------------------------------------------------------


async def test_reading_an_old_checkpoint_does_not_move_the_head(store: Store) -> None:
    """However it is read, and whoever reads the head afterwards."""
    saver = store.saver()
    configs = await chain(saver, [{"c": n} for n in range(5)])
    reader = store.reader()
    for look in (
        lambda: reader.get_tuple(configs[1]),
        lambda: saver.get_tuple(configs[0]),
        lambda: reader.list(at(), before=configs[3]),
        lambda: reader.list(at(), filter={"step": 2}),
        lambda: reader.get_delta_channel_history(config=configs[2], channels=["c"]),
    ):
        await look()
        for other in (reader, saver, store.reader(), store.saver(hot_reads="never")):
            head = await other.get_tuple(at())
            assert ({"c": 4}, id_of(configs[4])) == (values_of(head), id_of(head.config))


async def test_reading_an_old_checkpoint_first_does_not_make_it_the_hot_copy(store: Store) -> None:
    """A fresh process that looks back before it looks at the head finds the head."""
    configs = await chain(store.saver(), [{"c": n} for n in range(3)])
    reader = store.reader()
    assert values_of(await reader.get_tuple(configs[0])) == {"c": 0}
    assert values_of(await reader.get_tuple(at())) == {"c": 2}
    assert values_of(await store.saver().get_tuple(at())) == {"c": 2}


async def test_what_a_reader_changes_is_not_stored(store: Store) -> None:
    """Values read, and values put, are not shared with the store."""
    saver = store.saver()
    value = {"k": ["v"]}
    config = await put(saver, at(), cp({"c": value}))
    value["k"].append("changed by the writer")
    for reader in (saver, store.reader()):
        for where in (at(), config):
            found = await reader.get_tuple(where)
            assert values_of(found) == {"c": {"k": ["v"]}}
            found.checkpoint["channel_values"]["c"]["k"].append("changed by a reader")
            found.metadata["source"] = "changed"
            again = await reader.get_tuple(where)
            assert (values_of(again), again.metadata["source"]) == ({"c": {"k": ["v"]}}, "loop")
