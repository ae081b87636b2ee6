"""With `integrity_key`: whoever changes what is stored, and has not the key, is noticed."""

from __future__ import annotations

import base64
import os
import traceback
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from langgraph_durable_state import (
    CorruptionError,
    DurableSaver,
    EvolutionError,
    HeadMovedError,
    KeyMissingError,
    StateLostError,
    UsageError,
)
from tests.calls import Open
from tests.cases import Face, at, chain, cp, grown, put, query, values_of

KEY = b"k" * 32
OLD_KEY = b"o" * 32


@pytest.fixture
def open_saver(open_saver: Open) -> Open:
    """Opens savers that serve nothing else in the place of what is damaged."""

    def opened(postgres: Any, redis: str | None = None, **options: Any) -> Any:
        return open_saver(postgres, redis, **({"on_corrupt": "raise"} | options))

    return opened


class State(TypedDict, total=False):
    items: Annotated[list[Any], grown]
    note: str


def graph(saver: Any) -> Any:
    """Two nodes, each of whose writes the next checkpoint consumes."""
    builder = StateGraph(State)
    builder.add_node("a", lambda _: {"items": ["a" * 300], "note": "a"})
    builder.add_node("b", lambda _: {"items": ["b" * 300], "note": "b"})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", END)
    return builder.compile(checkpointer=saver)


async def two_runs(face: Face, saver: Any) -> None:
    """Eight checkpoints of the thread `t`, and four of the thread `other`."""
    runs = face(graph(saver))
    for thread, times in (("t", 2), ("other", 1)):
        for _ in range(times):
            await runs.invoke({"items": ["x" * 300]}, at(thread), durability="sync")


def rows(where: str) -> str:
    """A condition on checkpoints of the thread `t`."""
    of = "(SELECT tk FROM durable_state.thread WHERE id = 't')"
    newest = f"(SELECT c.id FROM durable_state.checkpoint c WHERE c.tk = {of} ORDER BY seq DESC"
    at_depth = {"head": 0, "parent": 1, "middle": 3}
    return f"tk = {of} AND id = {newest} OFFSET {at_depth[where]} LIMIT 1)"


def flipped(column: str) -> str:
    """One bit of the last byte of a column turned over."""
    last = f"length({column}) - 1"
    return f"{column} = set_byte({column}, {last}, get_byte({column}, {last}) # 1)"


def swap(table: str, columns: str, key: str, one: str, other: str) -> str:
    """Exchanges columns of two rows."""
    names = [name.strip() for name in columns.split(",")]
    sets = ", ".join(f"{name} = b.{name}" for name in names)
    return (
        f"UPDATE durable_state.{table} a SET {sets} FROM durable_state.{table} b"
        f" WHERE a.tk = b.tk AND ((a.{key}, b.{key}) IN (({one}, {other}), ({other}, {one})))"
    )


def of_head(column: str, where: str = "head") -> str:
    return f"(SELECT {column} FROM durable_state.checkpoint WHERE {rows(where)})"


HEAD_ATTACKS = {
    "a byte of the record flipped": (
        f"UPDATE durable_state.checkpoint SET {flipped('record')} WHERE {rows('head')}"
    ),
    "a byte of a chunk flipped": f"UPDATE durable_state.chunk SET {flipped('data')}",
    "a chunk deleted": "DELETE FROM durable_state.chunk",
    "the record deleted": f"DELETE FROM durable_state.checkpoint WHERE {rows('head')}",
    "the record swapped with its parent's": swap(
        "checkpoint", "record, digest, chunks", "id", of_head("id"), of_head("id", "parent")
    ),
    "the record copied from another thread": (
        "UPDATE durable_state.checkpoint SET (record, digest, chunks) = ("
        " SELECT record, digest, chunks FROM durable_state.checkpoint c"
        "  JOIN durable_state.thread o ON o.tk = c.tk AND o.id = 'other' ORDER BY seq DESC LIMIT 1)"
        f" WHERE {rows('head')}"
    ),
    "the parent's id edited": (
        f"UPDATE durable_state.checkpoint SET parent = 'x' WHERE {rows('head')}"
    ),
    "two chunks swapped": (
        f"WITH two AS (SELECT durable_state.numbers({of_head('chunks')}) AS n)"
        " UPDATE durable_state.chunk c SET digest = o.digest, data = o.data"
        "  FROM two, durable_state.chunk o"
        "  WHERE (c.no, o.no) IN ((n[1], n[2]), (n[2], n[1]))"
    ),
}

LIST_ATTACKS = {
    "an older checkpoint deleted": (f"DELETE FROM durable_state.checkpoint WHERE {rows('middle')}"),
    "the first checkpoint deleted": (
        f"DELETE FROM durable_state.checkpoint WHERE parent IS NULL AND tk = {of_head('tk')}"
    ),
    "all but the head deleted": (
        f"DELETE FROM durable_state.checkpoint WHERE tk = {of_head('tk')} AND id <> {of_head('id')}"
    ),
    "an older checkpoint deleted, its child said to be refused": (
        f"UPDATE durable_state.checkpoint SET refused = true WHERE tk = {of_head('tk')};"
        f" DELETE FROM durable_state.checkpoint WHERE {rows('middle')}"
    ),
    "a byte of an older record flipped": (
        f"UPDATE durable_state.checkpoint SET {flipped('record')} WHERE {rows('middle')}"
    ),
    "two older records swapped": swap(
        "checkpoint",
        "record, digest, chunks",
        "id",
        of_head("id", "parent"),
        of_head("id", "middle"),
    ),
    "a consumed write edited": (
        f"UPDATE durable_state.write SET {flipped('data')} WHERE {rows('middle')}"
    ),
    "a consumed write moved to another task": (
        f"UPDATE durable_state.write SET task = 'x' WHERE {rows('middle')}"
    ),
    "a consumed write moved to another checkpoint": (
        f"UPDATE durable_state.write SET id = {of_head('id')} WHERE {rows('middle')}"
    ),
}


@pytest.mark.parametrize("attack", HEAD_ATTACKS)
async def test_what_the_head_needs_cannot_be_changed(
    postgres_url: str, face: Face, open_saver: Open, attack: str
) -> None:
    """Neither a read of the head nor a listing takes it for what was written."""
    await two_runs(face, DurableSaver(postgres_url, integrity_key=KEY))
    query(postgres_url, HEAD_ATTACKS[attack])
    reader = open_saver(postgres_url, integrity_key=KEY)
    with pytest.raises(CorruptionError):
        await reader.get_tuple(at())
    with pytest.raises((CorruptionError, HeadMovedError)):
        await reader.list(at())


async def test_a_head_that_is_given_the_id_of_another_is_found_by_its_digest(
    postgres_url: str, face: Face, open_saver: Open
) -> None:
    """Which is signed: the state that was put last is served."""
    await two_runs(face, DurableSaver(postgres_url, integrity_key=KEY))
    reader = open_saver(postgres_url, integrity_key=KEY)
    last = await reader.get_tuple(at())
    query(
        postgres_url,
        f"UPDATE durable_state.head SET id = {of_head('id', 'middle')} WHERE tk = {of_head('tk')}",
    )
    found = await open_saver(postgres_url, integrity_key=KEY).get_tuple(at())
    assert (found.checkpoint, found.config) == (last.checkpoint, last.config)


@pytest.mark.parametrize("attack", LIST_ATTACKS)
async def test_what_came_before_cannot_be_changed(
    postgres_url: str, face: Face, open_saver: Open, attack: str
) -> None:
    """A listing says so, and the head, which does not need it, is served."""
    await two_runs(face, DurableSaver(postgres_url, integrity_key=KEY))
    query(postgres_url, LIST_ATTACKS[attack])
    reader = open_saver(postgres_url, integrity_key=KEY)
    with pytest.raises(CorruptionError):
        await reader.list(at())
    if "another checkpoint" not in attack:
        assert values_of(await reader.get_tuple(at()))["note"] == "b"


async def test_nothing_is_noticed_where_nothing_was_changed(
    postgres_url: str, redis_url: str, face: Face, open_saver: Open
) -> None:
    """Head, listing, history, and a copy; from both tiers."""
    saver = open_saver(postgres_url, redis_url, integrity_key=KEY)
    await two_runs(face, saver.target)
    for hot_reads in ("always", "never"):
        reader = open_saver(postgres_url, redis_url, integrity_key=KEY, hot_reads=hot_reads)
        head = await reader.get_tuple(at())
        assert [item[0] for item in values_of(head)["items"]] == ["x", "a", "b"] * 2
        assert len(await reader.list(at())) == 8
        assert len(await reader.list(None)) == 12
    await saver.copy_thread("t", "copy")
    assert len(await saver.list(at("copy"))) == 8
    await saver.prune(["copy"])
    assert len(await saver.list(at("copy"))) == 1


PRUNED = {
    "its edge deleted": "UPDATE durable_state.checkpoint SET edge = NULL",
    "its edge altered": f"UPDATE durable_state.checkpoint SET {flipped('edge')}",
    "its edge copied from another thread": (
        "UPDATE durable_state.checkpoint c SET edge ="
        " (SELECT edge FROM durable_state.checkpoint o WHERE o.tk <> c.tk)"
    ),
}


@pytest.mark.parametrize("key", ["integrity_key", "encryption_key"])
@pytest.mark.parametrize("attack", PRUNED)
async def test_nobody_else_says_that_something_was_pruned(
    postgres_url: str, face: Face, open_saver: Open, key: str, attack: str
) -> None:
    """What is left of a thread is listed; not, what is left of another that somebody cut off."""
    saver = open_saver(postgres_url, **{key: KEY})
    await two_runs(face, saver.target)
    await saver.prune(["t", "other"])
    reader = open_saver(postgres_url, **{key: KEY})
    assert len(await reader.list(None)) == 2
    assert await reader.verify()
    query(postgres_url, PRUNED[attack])
    with pytest.raises(CorruptionError, match="nothing signed says that it was removed"):
        await reader.list(at())
    found = await reader.verify()
    assert {(f.kind, f.outcome) for f in found.findings} == {("checkpoint", "lost")}


@pytest.mark.parametrize("key", ["integrity_key", "encryption_key"])
async def test_a_listing_says_what_is_missing_whatever_is_asked_for(
    postgres_url: str, open_saver: Open, key: str
) -> None:
    """By its child, where that is listed: with a limit, a filter, or before some checkpoint; and
    also where lists leave out what is damaged."""
    saver = open_saver(postgres_url, on_corrupt="fall_back", **{key: KEY})
    configs = await chain(saver, [{"c": n} for n in range(5)])
    gone = configs[2]["configurable"]["checkpoint_id"]
    query(postgres_url, f"DELETE FROM durable_state.checkpoint WHERE id = '{gone}'")
    asked: list[dict[str, Any]] = [
        {"limit": 2},
        {"filter": {"step": 3}},
        {"before": configs[4]},
    ]
    for options in ({}, *asked):
        with pytest.raises(CorruptionError) as told:
            await saver.list(at(), **options)
        assert told.value.checkpoint == gone
    assert [values_of(found) for found in await saver.list(at(), limit=1)] == [{"c": 4}]
    found = await saver.list(at(), before=configs[3])
    assert [values_of(one) for one in found] == [{"c": 1}, {"c": 0}]


@pytest.mark.parametrize("key", ["integrity_key", "encryption_key"])
async def test_a_run_does_not_hide_that_the_head_was_deleted(
    postgres_url: str, open_saver: Open, key: str
) -> None:
    """It goes on from the head that it was given, and from then on something else is the head."""
    saver = open_saver(postgres_url, **{key: KEY})
    configs = await chain(saver, [{"c": n} for n in range(3)])
    found = await saver.get_tuple(at())
    gone = configs[2]["configurable"]["checkpoint_id"]
    query(postgres_url, f"DELETE FROM durable_state.checkpoint WHERE id = '{gone}'")
    versions = {"c": saver.target.get_next_version(found.checkpoint["channel_versions"]["c"], None)}
    await put(saver, found.config, cp({"c": "next"}, versions=versions), new=versions)
    reader = open_saver(postgres_url, **{key: KEY})
    assert values_of(await reader.get_tuple(at())) == {"c": "next"}
    with pytest.raises(CorruptionError) as told:
        await reader.list(at())
    assert told.value.checkpoint == gone


async def test_an_older_version_of_a_checkpoint_is_not_taken_back(
    postgres_url: str, open_saver: Open
) -> None:
    """A row that was once stored under this id, put back: its child was made from another one."""
    saver = open_saver(postgres_url, integrity_key=KEY)
    first = await put(saver, at(), cp({"c": "before"}, id="1"))
    query(postgres_url, "CREATE TABLE kept AS SELECT * FROM durable_state.checkpoint")
    await put(saver, at(), cp({"c": "after"}, id="1"))
    await put(saver, first, cp({"c": "child"}, id="2", versions={"c": "2"}))
    assert [values_of(found)["c"] for found in await saver.list(at())] == ["child", "after"]
    query(
        postgres_url,
        "UPDATE durable_state.checkpoint c SET (record, digest, chunks) ="
        " (SELECT record, digest, chunks FROM kept) WHERE id = '1'",
    )
    with pytest.raises(CorruptionError, match="another content"):
        await open_saver(postgres_url, integrity_key=KEY).list(at())


async def test_a_write_that_was_consumed_cannot_be_deleted(
    postgres_url: str, open_saver: Open
) -> None:
    """The checkpoint that was made from it says that it is missing."""
    saver = open_saver(postgres_url, integrity_key=KEY)
    await chain(saver, [{"c": 1}])
    found = await saver.get_tuple(at())
    await saver.put_writes(found.config, [("c", 2)], "task")
    versions = {"d": found.checkpoint["channel_versions"]["c"]}
    await put(saver, found.config, cp({"c": 2, "d": 2}, versions=versions))
    assert len(await saver.list(at())) == 2
    query(postgres_url, "DELETE FROM durable_state.write")
    with pytest.raises(CorruptionError, match="consumed is missing"):
        await open_saver(postgres_url, integrity_key=KEY).list(at())


async def test_what_was_stored_without_the_key_is_refused(
    postgres_url: str, open_saver: Open
) -> None:
    """Somebody who may write to the database, and knows all of this code, adds a checkpoint."""
    saver = open_saver(postgres_url, integrity_key=KEY)
    await chain(saver, [{"c": 1}, {"c": 2}])
    await put(open_saver(postgres_url), at(), cp({"c": "forged"}))
    with pytest.raises(CorruptionError, match="without a key"):
        await open_saver(postgres_url, integrity_key=KEY).get_tuple(at())
    with pytest.raises(CorruptionError, match="without a key"):
        await open_saver(postgres_url, integrity_key=KEY).list(at())


async def test_an_answer_that_was_stored_without_the_key_is_refused(
    postgres_url: str, open_saver: Open
) -> None:
    """A forged `__resume__` resumes nothing."""
    saver = open_saver(postgres_url, integrity_key=KEY)
    head = (await chain(saver, [{"c": 1}]))[-1]
    await saver.put_writes(head, [("__interrupt__", "go on?")], "task")
    await open_saver(postgres_url).put_writes(head, [("__resume__", "yes")], "task")
    with pytest.raises(CorruptionError, match="without a key"):
        await open_saver(postgres_url, integrity_key=KEY).get_tuple(at())


async def test_a_write_of_another_thread_is_not_taken(postgres_url: str, open_saver: Open) -> None:
    """An answer that was given elsewhere, under the same key and the same ids."""
    saver = open_saver(postgres_url, integrity_key=KEY)
    for thread in ("t", "other"):
        config = await put(saver, at(thread), cp({"c": 1}, id="1"))
        await saver.put_writes(config, [("__resume__", thread)], "task")
    query(
        postgres_url,
        "UPDATE durable_state.write w SET (digest, data, chunks) = (SELECT digest, data, chunks"
        " FROM durable_state.write o WHERE o.tk <> w.tk) WHERE w.tk ="
        " (SELECT tk FROM durable_state.thread WHERE id = 't')",
    )
    with pytest.raises(CorruptionError):
        await open_saver(postgres_url, integrity_key=KEY).get_tuple(at())


async def test_a_hot_copy_made_without_the_key_is_not_served(
    postgres_url: str, redis_url: str, open_saver: Open
) -> None:
    """What a saver without the key has brought to Redis is served to nobody who has it, and becomes
    no row."""
    heard: list[str] = []
    urls, options = (postgres_url, redis_url), {"write_policy": "write_behind"}
    forger = open_saver(*urls, **options)
    reader = open_saver(
        *urls, integrity_key=KEY, observer=lambda told: heard.append(str(told)), **options
    )
    for saver in (forger, reader):
        saver.target._faces.background.start = lambda: None
    await put(forger, at(), cp({"c": "forged"}))
    with pytest.raises(StateLostError):
        await reader.get_tuple(at())
    assert any("it was stored without a key" in told for told in heard)
    await reader.accept_loss("t")
    assert await reader.get_tuple(at()) is None


# -- keys ------------------------------------------------------------------------------------------


async def test_keys_rotate(postgres_url: str, redis_url: str, open_saver: Open) -> None:
    """The first makes, the others verify; a chain may be under several."""
    old = open_saver(postgres_url, redis_url, integrity_key=OLD_KEY)
    long = ["x" * 100] * 10
    first = (await chain(old, [{"c": 1, "long": long}]))[-1]
    both = open_saver(postgres_url, redis_url, integrity_key=[KEY, OLD_KEY])
    assert values_of(await both.get_tuple(at()))["c"] == 1
    second = cp({"c": 2, "long": [*long, "y" * 100]}, versions={"c": "2", "long": "2"})
    await put(both, first, second)
    assert values_of(await both.get_tuple(at())) == second["channel_values"]
    again = open_saver(postgres_url, redis_url, integrity_key=[KEY, OLD_KEY])
    assert [values_of(found)["c"] for found in await again.list(at())] == [2, 1]
    with pytest.raises(KeyMissingError) as error:
        await old.get_tuple(at())
    assert isinstance(error.value, EvolutionError)
    with pytest.raises(KeyMissingError):
        await open_saver(postgres_url, redis_url, integrity_key=KEY).list(at())


async def test_a_key_is_introduced_beside_what_has_none(
    postgres_url: str, open_saver: Open
) -> None:
    """While `accept_plain` says so, and no longer."""
    first = (await chain(open_saver(postgres_url), [{"c": 1}]))[-1]
    strict = open_saver(postgres_url, integrity_key=KEY)
    with pytest.raises(CorruptionError, match="without a key"):
        await strict.get_tuple(at())
    lenient = open_saver(postgres_url, integrity_key=KEY, accept_plain=True)
    assert values_of(await lenient.get_tuple(at())) == {"c": 1}
    await put(lenient, first, cp({"c": 2}, versions={"c": "2"}))
    assert values_of(await strict.get_tuple(at())) == {"c": 2}
    with pytest.raises(CorruptionError, match="without a key"):
        await strict.list(at())


async def test_a_saver_without_the_key_says_that_it_needs_one(
    postgres_url: str, open_saver: Open
) -> None:
    """It is not damage, and no empty thread."""
    await chain(open_saver(postgres_url, integrity_key=KEY), [{"c": 1}])
    reader = open_saver(postgres_url)
    with pytest.raises(KeyMissingError, match="was not given"):
        await reader.get_tuple(at())
    with pytest.raises(KeyMissingError):
        await reader.list(at())


async def test_keys_are_read_from_where_they_are_kept(
    postgres_url: str,
    open_saver: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes, a callable, a variable and a file, in base64 or hex, are one key."""
    monkeypatch.setenv("STATE_KEY", base64.urlsafe_b64encode(KEY).decode())
    (tmp_path / "key").write_text(f"{KEY.hex()}\n{OLD_KEY.hex()}\n")
    await chain(open_saver(postgres_url, integrity_key=KEY), [{"c": 1}])
    for source in (lambda: KEY, lambda: [OLD_KEY, KEY], "env:STATE_KEY", f"file:{tmp_path}/key"):
        reader = open_saver(postgres_url, integrity_key=source)
        assert values_of(await reader.get_tuple(at())) == {"c": 1}


UNUSABLE: dict[str, Any] = {
    "too short": b"secret-of-mine",
    "a str that is none of the two": "secret-of-mine-that-is-long-enough-for-a-key",
    "no such variable": "env:NO_SUCH_KEY",
    "no such file": "file:/no/such/key",
    "a callable that returns text": lambda: "secret-of-mine-that-is-long-enough-for-a-key",
    "text that is no key": "env:BAD_KEY",
    "no key at all": [],
    "a number": 7,
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_key_that_cannot_be_used_is_refused_and_not_shown(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the saver is made."""
    monkeypatch.setenv("BAD_KEY", "secret-of-mine!")
    with pytest.raises(UsageError, match="integrity_key") as error:
        DurableSaver("", integrity_key=UNUSABLE[what])
    assert "secret-of-mine" not in f"{error.value} {error.value!r}"


def forms(secret: bytes) -> list[str]:
    """How a key may be spelled in a text."""
    return [repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode()]


def test_no_key_is_in_what_a_saver_shows() -> None:
    """Nor what is derived from one; the id that stands in the rows tells nothing of it."""
    secret = os.urandom(32)
    shared = DurableSaver("", integrity_key=secret)._faces._shared
    seal = shared.blobs.keys.current
    shown = " ".join(map(repr, (shared, shared.blobs.keys, seal)))
    for key in (secret, seal._of_bytes, seal._of_parts):
        assert [form for form in forms(key) if form in shown] == []
    assert seal.id not in secret


async def test_no_key_is_in_an_error_or_its_traceback(
    postgres_url: str, open_saver: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a key that is missing, of damage, and in the log."""
    secret = os.urandom(32)
    saver = open_saver(postgres_url, integrity_key=secret)
    await chain(saver, [{"c": 1}])
    query(postgres_url, f"UPDATE durable_state.checkpoint SET {flipped('record')}")
    shown = caplog.text
    for options in ({}, {"integrity_key": secret}, {"integrity_key": KEY}):
        with pytest.raises((CorruptionError, KeyMissingError)) as error:
            await open_saver(postgres_url, **options).get_tuple(at())
        found = traceback.TracebackException.from_exception(error.value, capture_locals=False)
        shown += "".join(found.format()) + repr(error.value)
    assert [form for form in forms(secret) if form in shown] == []


@pytest.mark.parametrize("key", ["integrity_key", "encryption_key"])
async def test_a_filter_finds_nothing_that_was_made_to_fit(
    postgres_url: str, open_saver: Open, key: str
) -> None:
    """Somebody changed what filters look at. Nothing that fits is left out beside it."""
    saver = open_saver(postgres_url, **{key: KEY})
    await chain(saver, [{"c": n} for n in range(4)])
    query(
        postgres_url,
        """UPDATE durable_state.checkpoint SET meta = meta || '{"step": 3}'
           WHERE meta ->> 'step' = '1'""",
    )
    with pytest.raises(CorruptionError, match="filters"):
        await saver.list(at(), filter={"step": 3})
    lenient = open_saver(postgres_url, on_corrupt="fall_back", **{key: KEY})
    found = await lenient.list(at(), filter={"step": 3})
    assert [values_of(one) for one in found] == [{"c": 3}]
    found = await saver.list(at(), filter={"step": 2, "source": "loop"})
    assert [values_of(one) for one in found] == [{"c": 2}]


@pytest.mark.parametrize("key", ["integrity_key", "encryption_key"])
async def test_no_run_takes_along_what_it_did_not_make(
    postgres_url: str, open_saver: Open, key: str
) -> None:
    """Somebody changed which run a checkpoint is found by."""
    saver = open_saver(postgres_url, **{key: KEY})
    for run in ("one", "two"):
        await put(saver, at(run), cp({"c": run}), {"source": "loop", "step": 0, "run_id": run})
    query(
        postgres_url,
        """UPDATE durable_state.checkpoint SET meta = meta || '{"run_id": "two"}'""",
    )
    with pytest.raises(CorruptionError, match="runs"):
        await saver.delete_for_runs(["two"])
    for run in ("one", "two"):
        assert values_of(await saver.get_tuple(at(run))) == {"c": run}
