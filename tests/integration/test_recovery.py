"""Damage to what is stored: what is served instead, who is told, and how a thread goes on."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import redis

from langgraph_durable_state import (
    ConflictError,
    CorruptionError,
    DurableSaver,
    Event,
    EvolutionError,
    RecoveryReport,
    UnavailableError,
    UsageError,
)
from langgraph_durable_state.decisions import keys, recording
from langgraph_durable_state.evolution import StateSchema, rename_channel
from langgraph_durable_state.words import EventRow
from tests.cases import Store, at, chain, cp, id_of, ids_of, put, query, values_of
from tests.integration.outages import Pair

DICE = random.Random(4)


def text(length: int = 3_000) -> str:
    """Letters that no compression makes small."""
    return "".join(DICE.choices("abcdefghijklmnopqrstuvwxyz", k=length))


STEPS: list[dict[str, Any]] = [{"n": n, "big": text()} for n in range(4)]
HEAD, BEFORE = STEPS[3], STEPS[2]

TABLE = "durable_state"

FLIP = "set_byte({0}, length({0}) / 2, get_byte({0}, length({0}) / 2) # 90)"

OF_HEAD = f"(c.tk, c.ns, c.id) IN (SELECT tk, ns, id FROM {TABLE}.head WHERE ns = '')"
CHUNK_OF_HEAD = (
    f"no IN (SELECT unnest({TABLE}.numbers(c.chunks)) FROM {TABLE}.checkpoint c WHERE {OF_HEAD})"
    f" AND no NOT IN (SELECT unnest({TABLE}.numbers(c.chunks)) FROM {TABLE}.checkpoint c"
    f" WHERE NOT {OF_HEAD})"
)

DAMAGE = {
    "a byte of the record": f"UPDATE {TABLE}.checkpoint c SET record = {FLIP.format('record')}"
    f" WHERE {OF_HEAD}",
    "the record's end": f"UPDATE {TABLE}.checkpoint c SET record = substring(record FROM 1 FOR 9)"
    f" WHERE {OF_HEAD}",
    "its digest": f"UPDATE {TABLE}.checkpoint c SET digest = {FLIP.format('digest')}"
    f" WHERE {OF_HEAD}",
    "its digest is empty": f"UPDATE {TABLE}.checkpoint c SET digest = '' WHERE {OF_HEAD}",
    "its chunk numbers are cut off": f"UPDATE {TABLE}.checkpoint c"
    f" SET chunks = substring(chunks FROM 1 FOR greatest(length(chunks) - 1, 0)) WHERE {OF_HEAD}",
    "its chunk numbers": f"UPDATE {TABLE}.checkpoint c SET chunks = '' WHERE {OF_HEAD}",
    "a byte of a chunk": f"UPDATE {TABLE}.chunk SET data = {FLIP.format('data')}"
    f" WHERE {CHUNK_OF_HEAD}",
    "a chunk's method": f"UPDATE {TABLE}.chunk SET data = set_byte(data, 0, 77)"
    f" WHERE {CHUNK_OF_HEAD}",
    "a chunk is gone": f"DELETE FROM {TABLE}.chunk WHERE {CHUNK_OF_HEAD}",
    "the record is gone": f"DELETE FROM {TABLE}.checkpoint c WHERE {OF_HEAD}",
    "the head names another": f"UPDATE {TABLE}.head SET id = (SELECT c.id FROM {TABLE}.checkpoint c"
    " WHERE c.ns = '' ORDER BY c.seq LIMIT 1)",
}

POINTERS = {"its digest", "its digest is empty", "the head names another"}
"""What is damaged there only points to the state, which the head's digest proves."""

damages = pytest.mark.parametrize("damage", DAMAGE)
losses = pytest.mark.parametrize("damage", [name for name in DAMAGE if name not in POINTERS])


async def stored(store: Store, **options: Any) -> list[Any]:
    """The checkpoints of `STEPS`, by a saver that is gone afterwards; their configs."""
    saver = store.open(**options)
    configs = await chain(store.face(saver), STEPS)
    await saver.aclose()
    return configs


class Heard:
    """Events, and reports of the hook."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reports: list[RecoveryReport] = []

    @property
    def options(self) -> dict[str, Any]:
        return {"observer": self.events.append, "on_recovery": self.reports.append}

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def event_rows(store: Store) -> list[tuple[str, Any]]:
    """The kinds and details of the thread's chain of events, which is sound."""
    rows = store.query(
        "SELECT n, (extract(epoch FROM at) * 1000000)::bigint, kind, detail::text, digest"
        f" FROM {TABLE}.event ORDER BY n"
    )
    chain = [EventRow(n, at, kind, recording.respelled(d), mark) for n, at, kind, d, mark in rows]
    assert recording.breaks(keys.thread_key("", "t"), chain) == []
    return [(row.kind, json.loads(row.detail)) for row in chain]


# -- one good tier ---------------------------------------------------------------------------


@damages
async def test_a_damaged_head_is_served_from_its_hot_copy(hot_store: Store, damage: str) -> None:
    """By its digest, which the head's row tells; it is reported, and the thread goes on."""
    configs = await stored(hot_store)
    hot_store.query(DAMAGE[damage])
    heard = Heard()
    saver = hot_store.saver(**heard.options, hot_reads="never")
    report = await saver.recover(at())
    found = await saver.get_tuple(at())
    assert values_of(found) == HEAD
    assert id_of(found.config) == id_of(configs[3])
    assert "durable_state_fell_back" not in found.metadata
    assert (report.decision, report.checkpoint, report.tier) == (
        "repair",
        id_of(configs[3]),
        "postgres" if damage in POINTERS else "redis",
    )
    assert report.last_sound == id_of(configs[3])
    assert [one.repairable for one in report.damage] == [True]
    # What a head names is told by the next put.
    assert heard.kinds == ["damaged", *["repaired"] * (damage != "the head names another")]
    assert [one.decision for one in heard.reports] == ["repair"]
    assert [(kind, d["decision"]) for kind, d in event_rows(hot_store)] == [("damaged", "repair")]


@damages
async def test_what_follows_a_repaired_head_is_whole_in_postgres(
    hot_store: Store, damage: str
) -> None:
    """Nothing of it refers to what is damaged."""
    await stored(hot_store)
    hot_store.query(DAMAGE[damage])
    saver = hot_store.saver(head_cache_bytes=0, hot_reads="auto")
    found = await saver.get_tuple(at())
    config = await put(saver, found.config, cp({**HEAD, "n": 9}, versions={"n": "9"}), new={})
    hot_store.flush_redis()
    reader = hot_store.saver(on_corrupt="raise")
    now = await reader.get_tuple(at())
    assert id_of(now.config) == id_of(config)
    assert values_of(now)["big"] == HEAD["big"]


async def test_a_damaged_hot_copy_is_never_served(hot_store: Store) -> None:
    """Postgres's is, and the copy is replaced."""
    await stored(hot_store)
    with redis.Redis.from_url(hot_store.redis_url) as client:
        (name,) = client.keys()  # type: ignore[misc]
        before = client.hgetall(name)
        for field, value in before.items():  # type: ignore[union-attr]
            if len(value) > 1_000:
                client.hset(name, field, value[:-9] + bytes(9))
        heard = Heard()
        saver = hot_store.saver(**heard.options)
        report = await saver.recover(at())
        assert (report.decision, report.tier) == ("resume", "postgres")
        assert values_of(await saver.get_tuple(at())) == HEAD
        assert heard.kinds == ["damaged"]
        assert client.hgetall(name) == before


COPY_FIELDS = ["digest", "seq", "id", "parent", "record", "numbers"]


@pytest.mark.parametrize("value", [None, b"", b"\xff\xfe\xfd"])
@pytest.mark.parametrize("field", COPY_FIELDS)
async def test_whatever_a_hot_copy_lacks_postgres_is_read(
    hot_store: Store, field: str, value: bytes | None
) -> None:
    await stored(hot_store)
    with redis.Redis.from_url(hot_store.redis_url) as client:
        (name,) = client.keys()  # type: ignore[misc]
        if value is None:
            client.hdel(name, field)
        else:
            client.hset(name, field, value)
    saver = hot_store.saver()
    assert (await saver.recover(at())).decision == "resume"
    assert values_of(await saver.get_tuple(at())) == HEAD
    hot_store.query(DAMAGE["a byte of the record"])
    report = await saver.recover(at())
    assert report.checkpoint is not None
    assert values_of(await hot_store.saver().get_tuple(at())) in (BEFORE, HEAD)


# -- no good tier ----------------------------------------------------------------------------


@losses
async def test_a_damaged_head_without_a_copy_falls_back(hot_store: Store, damage: str) -> None:
    """To its parent, loudly: an event, a row, the hook, and a mark in the metadata."""
    configs = await stored(hot_store)
    hot_store.query(DAMAGE[damage])
    hot_store.flush_redis()
    heard = Heard()
    saver = hot_store.saver(**heard.options)
    report = await saver.recover(at())
    assert heard.kinds == []
    found = await saver.get_tuple(at())
    assert values_of(found) == BEFORE
    assert id_of(found.config) == id_of(configs[2])
    assert found.metadata["durable_state_fell_back"] == report.asked
    assert (report.decision, report.checkpoint) == ("fall_back", id_of(configs[2]))
    assert report.last_sound == report.checkpoint
    assert heard.kinds == ["fell_back"]
    assert (heard.events[0].checkpoint, heard.events[0].head) == (report.asked, report.checkpoint)
    assert [one.decision for one in heard.reports] == ["fall_back"]
    (row,) = event_rows(hot_store)
    assert row[0] == "fell_back"
    assert (row[1]["checkpoint"], row[1]["served"]) == (report.asked, report.checkpoint)


@losses
async def test_a_run_goes_on_from_where_it_fell_back_to(hot_store: Store, damage: str) -> None:
    """Its put becomes the head, is marked for good, and a rival run loses; nothing is deleted."""
    await stored(hot_store)
    hot_store.query(DAMAGE[damage])
    hot_store.flush_redis()
    before = hot_store.query(f"SELECT id, digest, record FROM {TABLE}.checkpoint ORDER BY id")
    saver = hot_store.saver()
    runs = [await saver.get_tuple(at()) for _ in range(2)]
    config = await advance(saver, runs[0], {"n": 7})
    with pytest.raises(ConflictError) as conflict:
        await advance(saver, runs[1], {"n": 8})
    assert conflict.value.actual == id_of(config)
    reader = hot_store.saver(on_corrupt="raise")
    found = await reader.get_tuple(at())
    assert values_of(found) == {**BEFORE, "n": 7}
    assert found.metadata["durable_state_degraded"] == "fell_back"
    assert "durable_state_fell_back" not in found.metadata
    assert id_of(found.parent_config) == id_of(runs[0].config)
    rows = f"SELECT id, digest, record FROM {TABLE}.checkpoint ORDER BY id"
    assert set(before) <= set(hot_store.query(rows))
    again = await advance(reader, found, {"n": 10})
    assert id_of((await hot_store.saver().get_tuple(at())).config) == id_of(again)


async def advance(saver: Any, found: Any, values: dict[str, Any]) -> Any:
    """A put as LangGraph makes it on what `get_tuple` gave."""
    versions = dict(found.checkpoint["channel_versions"])
    new = {n: saver.target.get_next_version(versions[n], None) for n in values}
    made = cp(found.checkpoint["channel_values"] | values, versions=versions | new)
    return await put(saver, found.config, made, {"source": "loop", "step": 5}, new)


@losses
async def test_on_request_damage_is_an_error(hot_store: Store, damage: str) -> None:
    await stored(hot_store)
    hot_store.query(DAMAGE[damage])
    hot_store.flush_redis()
    heard = Heard()
    saver = hot_store.saver(on_corrupt="raise", **heard.options)
    report = await saver.recover(at())
    assert (report.decision, report.checkpoint) == ("refuse", None)
    assert report.last_sound is not None
    for _ in range(2):
        with pytest.raises(CorruptionError) as error:
            await saver.get_tuple(at())
    assert report.error == f"CorruptionError: {error.value}"
    assert heard.kinds == ["damaged"]
    assert heard.reports == []


async def test_several_damaged_checkpoints_are_passed_over(hot_store: Store) -> None:
    configs = await stored(hot_store)
    ids = tuple(id_of(config) for config in configs[1:])
    hot_store.query(
        f"UPDATE {TABLE}.checkpoint SET record = {FLIP.format('record')} WHERE id IN {ids}"
    )
    hot_store.flush_redis()
    saver = hot_store.saver()
    report = await saver.recover(at())
    assert values_of(await saver.get_tuple(at())) == STEPS[0]
    assert [id for id, _ in report.skipped] == list(reversed(ids))
    assert report.checkpoint == id_of(configs[0])


async def test_an_ancestor_that_is_missing_is_passed_over(hot_store: Store) -> None:
    configs = await stored(hot_store)
    hot_store.query(DAMAGE["a byte of the record"])
    hot_store.query(f"DELETE FROM {TABLE}.checkpoint WHERE id = '{id_of(configs[2])}'")
    hot_store.flush_redis()
    assert values_of(await hot_store.saver().get_tuple(at())) == STEPS[1]


async def test_a_refused_checkpoint_is_no_ancestor(hot_store: Store) -> None:
    """What a run put that had lost is not where the thread was."""
    saver = hot_store.saver()
    configs = await chain(saver, STEPS[:2])
    rivals = [await saver.get_tuple(at()) for _ in range(2)]
    await advance(saver, rivals[0], {"n": 5})
    with pytest.raises(ConflictError):
        await advance(saver, rivals[1], {"n": 6})
    hot_store.query(DAMAGE["the record is gone"])
    hot_store.flush_redis()
    found = await hot_store.saver().get_tuple(at())
    assert id_of(found.config) == id_of(configs[1])


@pytest.mark.parametrize("policy", ["fall_back", "raise"])
async def test_a_thread_of_which_nothing_is_sound_is_never_empty(
    hot_store: Store, policy: Any
) -> None:
    await stored(hot_store)
    hot_store.query(f"UPDATE {TABLE}.checkpoint SET record = {FLIP.format('record')}")
    hot_store.flush_redis()
    saver = hot_store.saver(on_corrupt=policy)
    with pytest.raises(CorruptionError):
        await saver.get_tuple(at())
    report = await saver.recover(at())
    assert (report.decision, report.last_sound) == ("refuse", None)


async def test_a_head_that_is_gone_is_found(hot_store: Store) -> None:
    """The newest checkpoint is taken for it, loudly, and the next put opens the head again."""
    configs = await stored(hot_store)
    hot_store.query(f"DELETE FROM {TABLE}.head")
    hot_store.query(f"DELETE FROM {TABLE}.thread")
    for policy in ("raise", "fall_back"):
        heard = Heard()
        saver = hot_store.saver(on_corrupt=policy, **heard.options)
        if policy == "raise":
            with pytest.raises(CorruptionError, match="no head"):
                await saver.get_tuple(at())
    runs = [await saver.get_tuple(at()) for _ in range(2)]
    assert values_of(runs[0]) == HEAD
    assert id_of(runs[0].config) == id_of(configs[3])
    assert heard.kinds == ["fell_back"]
    config = await advance(saver, runs[0], {"n": 7})
    with pytest.raises(ConflictError):
        await advance(saver, runs[1], {"n": 8})
    now = await hot_store.saver(on_corrupt="raise").get_tuple(at())
    assert id_of(now.config) == id_of(config)
    assert values_of(now) == {**HEAD, "n": 7}


async def test_a_head_whose_digest_is_empty_is_no_empty_thread(hot_store: Store) -> None:
    """It looks like one that is there for a mark only, which it has not."""
    configs = await stored(hot_store)
    hot_store.query(f"UPDATE {TABLE}.head SET digest = ''")
    saver = hot_store.saver()
    found = await saver.get_tuple(at())
    assert id_of(found.config) == id_of(configs[3])
    assert found.metadata["durable_state_fell_back"] == id_of(configs[3])
    config = await advance(saver, found, {"n": 7})
    now = await hot_store.saver(on_corrupt="raise").get_tuple(at())
    assert id_of(now.config) == id_of(config)


@pytest.mark.parametrize("policy", ["write_through", "write_behind"])
@pytest.mark.parametrize("digest", ["substring(digest FROM 1 FOR 7)", FLIP.format("digest")])
async def test_a_head_with_a_wrong_digest_is_moved_on(
    hot_store: Store, digest: str, policy: str
) -> None:
    """It is what the next put has to find there, be it cut off."""
    configs = await stored(hot_store)
    hot_store.query(f"UPDATE {TABLE}.head SET digest = {digest}")
    hot_store.flush_redis()
    saver = hot_store.saver(write_policy=policy)
    found = await saver.get_tuple(at())
    assert id_of(found.config) == id_of(configs[2])
    config = await advance(saver, found, {"n": 7})
    await saver.flush()
    now = await hot_store.saver(on_corrupt="raise", hot_reads="never").get_tuple(at())
    assert id_of(now.config) == id_of(config)


async def test_names_that_are_damaged_are_no_trouble(hot_store: Store) -> None:
    """A thread is known by its key; who lists all meets what its digests do not prove."""
    await stored(hot_store)
    hot_store.query(f"UPDATE {TABLE}.thread SET id = '\\xff00'")
    saver = hot_store.saver()
    assert values_of(await saver.get_tuple(at())) == HEAD
    assert await saver.list(None) == []
    with pytest.raises(CorruptionError):
        await hot_store.saver(on_corrupt="raise").list(None)


async def test_a_thread_that_was_never_there_is_new(hot_store: Store) -> None:
    saver = hot_store.saver()
    assert await saver.get_tuple(at("other")) is None
    report = await saver.recover(at("other"))
    assert (report.decision, report.checkpoint, report.error) == ("start_fresh", None, None)


async def test_a_copy_that_is_being_made_is_no_damage(hot_store: Store) -> None:
    """Its checkpoints come before its head does."""
    await stored(hot_store)
    saver = hot_store.saver()
    await saver.copy_thread("t", "copy")
    assert values_of(await saver.get_tuple(at("copy"))) == HEAD
    key = keys.thread_key("", "copy")
    hot_store.query(f"DELETE FROM {TABLE}.head WHERE tk = '{key}'")
    hot_store.query(f"UPDATE {TABLE}.thread SET at = 'infinity' WHERE tk = '{key}'")
    assert await saver.get_tuple(at("copy")) is None


# -- one checkpoint, and lists ----------------------------------------------------------------


async def test_a_checkpoint_asked_for_by_id_is_served_right_or_not_at_all(
    hot_store: Store,
) -> None:
    configs = await stored(hot_store)
    hot_store.query(f"UPDATE {TABLE}.checkpoint SET record = {FLIP.format('record')}")
    saver = hot_store.saver(head_cache_bytes=0, hot_reads="auto")
    assert (await saver.recover(configs[3])).decision == "repair"
    found = await saver.get_tuple(configs[3])
    assert values_of(found) == HEAD  # by its hot copy, from which it is restored
    assert (await saver.recover(configs[3])).decision == "resume"
    with pytest.raises(CorruptionError):
        await saver.get_tuple(configs[2])
    assert (await saver.recover(configs[2])).decision == "refuse"


async def test_a_fork_of_a_repaired_checkpoint_is_whole(hot_store: Store) -> None:
    configs = await stored(hot_store)
    hot_store.query(DAMAGE["a byte of a chunk"])
    saver = hot_store.saver(head_cache_bytes=0, hot_reads="auto")
    found = await saver.get_tuple(configs[3])
    config = await put(saver, found.config, cp({**HEAD, "n": 9}, versions={"n": "9"}), new={})
    hot_store.flush_redis()
    now = await hot_store.saver(on_corrupt="raise").get_tuple(at())
    assert (id_of(now.config), values_of(now)["big"]) == (id_of(config), HEAD["big"])


async def test_a_list_goes_without_what_is_damaged(hot_store: Store) -> None:
    """And says so; on request it is an error."""
    configs = await stored(hot_store)
    hot_store.query(
        f"UPDATE {TABLE}.checkpoint SET record = {FLIP.format('record')}"
        f" WHERE id = '{id_of(configs[1])}'"
    )
    heard = Heard()
    saver = hot_store.saver(**heard.options)
    listed = await saver.list(at())
    assert ids_of(listed) == [id_of(configs[i]) for i in (3, 2, 0)]
    assert ids_of(await saver.list(at(), limit=2)) == [id_of(configs[i]) for i in (3, 2)]
    assert heard.kinds == ["damaged"]
    assert [d["decision"] for _, d in event_rows(hot_store)] == ["left_out"]
    with pytest.raises(CorruptionError):
        await hot_store.saver(on_corrupt="raise").list(at())


# -- pending writes --------------------------------------------------------------------------


WRITE = f"UPDATE {TABLE}.write SET data = {FLIP.format('data')} WHERE task = 'bad'"
GONE = (
    f"DELETE FROM {TABLE}.chunk WHERE no IN (SELECT unnest({TABLE}.numbers(chunks))"
    f" FROM {TABLE}.write WHERE task = 'bad')"
)


@pytest.mark.parametrize("damage", [WRITE, GONE])
async def test_a_damaged_write_is_left_out(hot_store: Store, damage: str) -> None:
    """Its task runs again; the other tasks' writes stay, and so does the checkpoint."""
    configs = await stored(hot_store)
    saver = hot_store.saver()
    await saver.put_writes(configs[3], [("big", text())], "bad", "~__pregel_pull, node")
    await saver.put_writes(configs[3], [("n", 1)], "good")
    hot_store.query(damage)
    heard = Heard()
    saver = hot_store.saver(**heard.options)
    report = await saver.recover(at())
    found = await saver.get_tuple(at())
    assert values_of(found) == HEAD
    assert found.pending_writes == [("good", "n", 1)]
    assert found.metadata["durable_state_fell_back"] == id_of(configs[3])
    assert (report.decision, report.checkpoint) == ("fall_back", id_of(configs[3]))
    assert [(one.what, one.task) for one in report.damage] == [("write", "bad")]
    assert heard.kinds == ["fell_back"]
    again = text(2_000)
    await saver.put_writes(found.config, [("big", again)], "bad")
    await advance(saver, found, {"n": 7})
    with pytest.raises(CorruptionError):
        await hot_store.saver(on_corrupt="raise").get_tuple(configs[3])
    assert values_of(await hot_store.saver(on_corrupt="raise").get_tuple(at()))["n"] == 7


async def test_what_the_task_writes_again_counts(hot_store: Store) -> None:
    configs = await stored(hot_store)
    saver = hot_store.saver()
    await saver.put_writes(configs[3], [("big", text())], "bad")
    hot_store.query(WRITE)
    saver = hot_store.saver()
    found = await saver.get_tuple(at())
    await saver.put_writes(found.config, [("n", 42)], "bad")
    assert (await hot_store.saver().get_tuple(at())).pending_writes == [("bad", "n", 42)]


async def test_a_write_that_redis_has_is_taken_from_there(hot_store: Store) -> None:
    hot_store.options = {"when_durable_down": "queue"}
    configs = await stored(hot_store)
    saver = hot_store.saver()
    await saver.put_writes(configs[3], [("n", 5)], "bad")
    hot_store.query(WRITE)
    heard = Heard()
    reader = hot_store.saver(**heard.options, head_cache_bytes=0)
    found = await reader.get_tuple(at())
    assert found.pending_writes == [("bad", "n", 5)]
    assert "durable_state_fell_back" not in found.metadata


# -- stale, foreign --------------------------------------------------------------------------


async def test_a_state_that_is_too_old_is_marked(hot_store: Store) -> None:
    """Where it is read, not where it is stored; what the hook raises keeps it from being used."""
    await stored(hot_store)
    saver = hot_store.saver(stale_after=0.0)
    found = await saver.get_tuple(at())
    assert found.metadata["durable_state_aged"] is True
    assert (await saver.recover(at())).decision == "resume_stale"
    await advance(saver, found, {"n": 5})
    plain = await hot_store.saver(stale_after=3_600.0).get_tuple(at())
    assert "durable_state_aged" not in plain.metadata

    class Old(Exception):
        pass

    def refuse(report: RecoveryReport) -> None:
        assert report.decision == "resume_stale"
        raise Old

    with pytest.raises(Old):
        await hot_store.saver(stale_after=0.0, on_recovery=refuse).get_tuple(at())


async def test_a_newer_shape_is_refused(hot_store: Store) -> None:
    """Before any node runs, and not taken for damage."""
    configs = await stored(hot_store)
    schema = StateSchema(version=1)
    schema.step(0, rename_channel("c", "d"))
    saver = hot_store.saver(state_schema=schema)
    newest = await put(saver, configs[3], cp({"n": 8}))
    for _ in range(2):
        with pytest.raises(EvolutionError, match="version 1"):
            await hot_store.saver().get_tuple(at())
    report = await hot_store.saver().recover(at())
    assert (report.decision, report.asked) == ("refuse", id_of(newest))


# -- what a read puts right ------------------------------------------------------------------


@damages
async def test_what_the_other_tier_has_is_restored_before_the_thread_moves_on(
    hot_store: Store, damage: str
) -> None:
    """Since it has the head only: what is older than that would be gone."""
    configs = await stored(hot_store)
    hot_store.query(DAMAGE[damage])
    heard = Heard()
    saver = hot_store.saver(hot_reads="never", **heard.options)
    await advance(saver, await saver.get_tuple(at()), {"n": 7})
    assert [one.decision for one in heard.reports] == ["repair"]
    hot_store.flush_redis()
    fresh = hot_store.saver(on_corrupt="raise")
    assert values_of(await fresh.get_tuple(configs[3])) == HEAD
    assert len(await fresh.list(at())) == 5
    report = await fresh.verify()
    assert report, str(report)


async def test_a_pending_write_that_redis_has_is_restored_by_a_read(hot_store: Store) -> None:
    hot_store.options = {"when_durable_down": "queue"}
    saver = hot_store.saver()
    (config,) = await chain(saver, [{"n": 1}])
    await saver.put_writes(config, [("n", 5)], "task")
    hot_store.query(f"UPDATE {TABLE}.write SET data = {FLIP.format('data')}")
    found = await hot_store.saver(hot_reads="never").get_tuple(at())
    assert found.pending_writes == [("task", "n", 5)]
    hot_store.flush_redis()
    again = await hot_store.saver(on_corrupt="raise").get_tuple(at())
    assert again.pending_writes == [("task", "n", 5)]


async def test_what_cannot_be_restored_just_now_is_served_all_the_same(hot_store: Store) -> None:
    """A reader may have no right to write."""
    await stored(hot_store)
    hot_store.query(DAMAGE["a byte of the record"])
    hot_store.query(f"ALTER TABLE {TABLE}.checkpoint ADD CHECK (false) NOT VALID")
    saver = hot_store.saver(hot_reads="never")
    for _ in range(2):
        assert values_of(await saver.get_tuple(at())) == HEAD


# -- what recover does not do ----------------------------------------------------------------


@losses
async def test_recover_changes_nothing(hot_store: Store, damage: str) -> None:
    """With a copy or without, whatever it reports."""
    await stored(hot_store)
    hot_store.query(DAMAGE[damage])
    for flushed in (False, True):
        if flushed:
            hot_store.flush_redis()
        before = everything(hot_store)
        report = await hot_store.saver(head_cache_bytes=0).recover(at())
        assert report.decision == ("fall_back" if flushed else "repair")
        assert everything(hot_store) == before


def everything(store: Store) -> Any:
    """All rows and keys."""
    tables = ("thread", "head", "checkpoint", "chunk", "write", "event")
    rows = {t: sorted(map(repr, store.query(f"SELECT * FROM {TABLE}.{t}"))) for t in tables}
    with redis.Redis.from_url(store.redis_url) as client:
        names: Any = client.keys()
        return rows, {name: client.hgetall(name) for name in names}


# -- fork ------------------------------------------------------------------------------------


async def test_a_thread_goes_on_from_the_last_sound_checkpoint(hot_store: Store) -> None:
    """Somebody decides it, where damage is an error; the pending writes there are kept."""
    configs = await stored(hot_store)
    saver = hot_store.saver(on_corrupt="raise")
    await saver.put_writes(configs[2], [("n", 1)], "task")
    hot_store.query(DAMAGE["a byte of the record"])
    hot_store.flush_redis()
    report = await saver.recover(at())
    config = await saver.fork_from(report)
    assert config == at()
    found = await saver.get_tuple(config)
    assert values_of(found) == BEFORE
    assert found.pending_writes == [("task", "n", 1)]
    assert (await saver.recover(at())).decision == "resume"
    assert len(hot_store.query(f"SELECT id FROM {TABLE}.checkpoint")) == 4
    assert event_rows(hot_store)[-1] == (
        "forked",
        {"namespace": "", "from": id_of(configs[3]), "to": id_of(configs[2])},
    )
    advanced = await advance(saver, found, {"n": 7})
    assert id_of((await saver.get_tuple(at())).config) == id_of(advanced)


async def test_a_report_that_is_out_of_date_moves_nothing(hot_store: Store) -> None:
    await stored(hot_store)
    hot_store.query(DAMAGE["a byte of the record"])
    hot_store.flush_redis()
    saver = hot_store.saver()
    report = await saver.recover(at())
    config = await advance(saver, await saver.get_tuple(at()), {"n": 7})
    with pytest.raises(ConflictError) as conflict:
        await saver.fork_from(report)
    assert conflict.value.actual == id_of(config)
    assert id_of((await saver.get_tuple(at())).config) == id_of(config)


async def test_a_head_that_is_gone_can_be_put_back(hot_store: Store) -> None:
    configs = await stored(hot_store)
    hot_store.query(f"DELETE FROM {TABLE}.head")
    saver = hot_store.saver(on_corrupt="raise")
    await saver.fork_from(await saver.recover(at()))
    assert id_of((await saver.get_tuple(at())).config) == id_of(configs[3])


async def test_there_is_nothing_to_fork_from_nothing(hot_store: Store) -> None:
    saver = hot_store.saver()
    with pytest.raises(UsageError):
        await saver.fork_from(await saver.recover(at()))


# -- a tier that is down ---------------------------------------------------------------------


async def test_while_redis_may_have_it_right_nothing_older_is_served(pair: Pair) -> None:
    """It could be asked again in a moment; and then it is served."""
    saver = pair.saver()
    await chain(saver, STEPS)
    query(pair.postgres.url, DAMAGE["a byte of the record"])
    pair.redis.kill()
    reader = pair.saver(redis_timeout=0.2)
    report = await reader.recover(at())
    assert (report.decision, report.checkpoint) == ("refuse", None)
    with pytest.raises(UnavailableError) as error:
        await reader.get_tuple(at())
    assert error.value.tier == "redis"
    assert isinstance(error.value.__cause__, CorruptionError)


async def test_an_outage_is_in_the_report(pair: Pair) -> None:
    saver = pair.saver()
    await chain(saver, STEPS)
    pair.postgres.kill()
    report = await saver.recover(at())
    assert report.decision == "refuse"
    assert report.error is not None
    assert report.error.startswith("UnavailableError")


async def test_writes_are_those_of_the_right_checkpoint(hot_store: Store) -> None:
    """Where the head names another, those against that one are not taken along."""
    configs = await stored(hot_store)
    saver = hot_store.saver()
    await saver.put_writes(configs[0], [("n", 1)], "old")
    await saver.put_writes(configs[3], [("n", 2)], "task")
    hot_store.query(DAMAGE["the head names another"])
    found = await hot_store.saver(hot_reads="auto").get_tuple(at())
    assert id_of(found.config) == id_of(configs[3])
    assert found.pending_writes == [("task", "n", 2)]


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"on_corrupt": "ignore"},
        {"stale_after": -1},
        {"stale_after": True},
        {"on_recovery": "print"},
        {"on_recovery": stored},  # nothing would await it
    ],
)
def test_what_cannot_be_set_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DurableSaver("postgresql://", **options)
