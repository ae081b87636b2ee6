"""What is stored is whole or not there, whatever another process does between two statements."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import INTERRUPT

from tests.cases import query
from tests.contract.beside import beside, plain
from tests.contract.superstep import config, superstep
from tests.contract.test_savers import LONG, grown, ids, pending

NewSaver = Callable[..., Any]

pytestmark = pytest.mark.parametrize("new_saver", ["blocking", "native"], indirect=True)
"""In memory nothing comes between: there the explorer does this."""


async def test_the_first_put_of_a_namespace_stays_beside_a_prune(new_saver: NewSaver) -> None:
    """It had no head that the prune could lock, nor one that the prune could know of."""
    pruner, run = new_saver(), new_saver()
    await grown(run, "1", "2")
    first = superstep(run, None, "s", {"x": LONG}, ns="sub:1")
    done = await beside(pruner, "remove_all_but", lambda: plain(run).put(*first))
    await pruner.aprune(["t"])
    assert done
    for saver in (run, new_saver()):
        found = await saver.aget_tuple(config(ns="sub:1"))
        assert found.checkpoint["channel_values"] == {"x": LONG}
        assert (await saver.aget_tuple(config())).checkpoint["id"] == "2"
    assert "1" not in await ids(run)


@pytest.mark.parametrize("more", [[], [(INTERRUPT, "?")]], ids=["alone", "in company"])
async def test_a_later_batch_and_its_chunks_are_seen_together_by_a_prune(
    new_saver: NewSaver, postgres_url: str, more: list[Any]
) -> None:
    """The prune comes while the batch's own transaction waits for its commit; what comes with a
    batch decides by which statement it is tried first."""
    one, two, pruner = new_saver(), new_saver(), new_saver()
    head = (await grown(one, "1")).config
    await one.aput_writes(head, [("log", "first" + LONG)], "task")
    await pruner.aget_tuple(config())
    prune = threading.Thread(target=lambda: plain(pruner).prune(["t"]))

    def prune_as_far_as_it_goes() -> None:
        prune.start()
        while prune.is_alive() and query(postgres_url, LOCKED_OUT) == [(0,)]:
            time.sleep(0.01)

    done = await beside(two, "differ", prune_as_far_as_it_goes, held=True)
    await two.aput_writes(head, [("log", "later" + LONG), *more], "task")
    assert done
    prune.join()
    expected = sorted(("task", *w) for w in [("log", "first" + LONG), *more])
    for saver in (one, two, new_saver()):
        assert sorted(await pending(saver)) == expected
    await pruner.aprune(["t"])
    assert sorted(await pending(new_saver())) == expected


LOCKED_OUT = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.mark.parametrize("statement", ["writes", "chunks"])
async def test_a_list_beside_a_deletion_is_of_before_or_after(
    new_saver: NewSaver, statement: str
) -> None:
    """Rows, writes and chunks are read one after the other: what is missing then is no damage."""
    reader, other = new_saver(), new_saver()
    head = await grown(other, "1", "2", big=LONG)
    await other.aput_writes(head.config, [("log", LONG)], "task")
    done = await beside(reader, statement, lambda: plain(other).delete_thread("t"))
    assert await ids(reader) == []
    assert done


@pytest.mark.parametrize("statement", ["chain", "writes", "chunks"])
async def test_a_delta_history_beside_a_deletion_is_of_before_or_after(
    new_saver: NewSaver, statement: str
) -> None:
    reader, other = new_saver(), new_saver()
    head = await grown(other, "1")
    await other.aput_writes(head.config, [("delta", LONG)], "task")
    await grown(other, "2", "3")
    where = (await reader.aget_tuple(config())).config
    done = await beside(reader, statement, lambda: plain(other).delete_thread("t"))
    found = await reader.aget_delta_channel_history(config=where, channels=["delta"])
    assert found["delta"]["writes"] == []
    assert done


@pytest.mark.parametrize("latest_only", [False, True])
async def test_a_copy_beside_a_prune_of_its_source_starts_again(
    new_saver: NewSaver, latest_only: bool
) -> None:
    """The source moves on and is pruned: the copy is what the source is then, and never empty."""
    copier, other = new_saver(), new_saver()
    await grown(other, "1", "2", big=LONG)
    ahead = superstep(other, await other.aget_tuple(config()), "3", {"big": "3" + LONG})

    def move() -> None:
        plain(other).put(*ahead)
        plain(other).prune(["t"])

    done = await beside(copier, "copy_chunks", move)
    await copier.acopy_thread("t", "copy", latest_only=latest_only)
    assert done
    for saver in (copier, new_saver()):
        assert await ids(saver, "copy") == ["3"]
        found = await saver.aget_tuple(config("copy"))
        assert found.checkpoint["channel_values"] == {"log": ["1", "2"], "big": "3" + LONG}
