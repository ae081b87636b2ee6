"""Nothing is taken for damage, nor changed, that is put, flushed or removed while it is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langgraph_durable_state import ConflictError
from langgraph_durable_state.verification import VerifyReport
from tests.cases import Store, at, values_of
from tests.contract.superstep import config, superstep
from tests.integration.damage import flipped, harm, rows
from tests.integration.test_scrub import text

THREADS = [f"t{i}" for i in range(6)]
STEPS = 25


async def step(saver: Any, thread: str, n: int) -> None:
    """A superstep with writes before it, some large."""
    before = await saver.get_tuple(at(thread))
    log = [*(values_of(before)["log"] if before else [])[-20:], text(f"{thread} {n}")]
    id = f"{n:06}"
    args = superstep(saver.target, before, id, {"log": log, "n": n}, thread=thread)
    await saver.put(*args)
    found = await saver.get_tuple(at(thread))
    for task in "ab":
        await saver.put_writes(found.config, [("log", text(task) + id), ("n", n)], f"task {task}")


async def goes_on(saver: Any, thread: str) -> None:
    """A thread with all that is done to one; what is pruned or deleted in between is no conflict
    of the step after it."""
    for n in range(1, STEPS):
        await step(saver, thread, n)
        if n % 7 == 0:
            await saver.prune([thread])
        if n % 11 == 0:
            await saver.delete_thread(thread)
        if n % 13 == 0:
            old = await saver.list(at(thread))
            fork = superstep(saver.target, old[-1], f"f{n:05}", {"n": -n}, thread=thread)
            await saver.put(*fork)


async def scrubbed_beside(
    scrub: Callable[[], Awaitable[VerifyReport]], work: Awaitable[Any]
) -> list[VerifyReport]:
    """The reports of checks, one after the other for as long as the work takes."""
    task, reports = asyncio.ensure_future(work), []
    while not task.done() or not reports:
        reports.append(await scrub())
    await task
    return reports


async def test_live_threads_are_clean(policy_store: Store) -> None:
    """Under both policies; the last check, of what has come to rest, has seen all of it."""
    scrubber = policy_store.saver()

    async def work() -> None:
        savers = [policy_store.saver() for _ in range(3)]
        both = zip(THREADS, [*savers, *savers], strict=True)
        await asyncio.gather(*(goes_on(saver, thread) for thread, saver in both))

    reports = await scrubbed_beside(lambda: scrubber.verify(repair=True), work())
    assert [str(found) for report in reports for found in report.findings] == []
    assert len(reports) > 2
    assert policy_store.query("SELECT * FROM durable_state.quarantine") == []
    last = await scrubber.verify()
    assert last.threads == len(THREADS)
    stored = policy_store.counts()
    policy_store.flush_redis()  # once all is flushed
    last = await scrubber.verify()
    stored = policy_store.counts()
    assert (last.checkpoints, last.chunks, last.writes) == (
        stored["checkpoint"],
        stored["chunk"],
        stored["write"],
    )
    assert last.clean


async def test_a_thread_that_is_raced_for_is_clean(policy_store: Store) -> None:
    """Refused checkpoints and batches that differ are kept, and are no damage."""
    scrubber = policy_store.saver()

    async def work() -> None:
        await asyncio.gather(*(race(policy_store.saver(), n) for n in range(4)))

    reports = await scrubbed_beside(lambda: scrubber.verify(["t"], repair=True), work())
    assert [str(found) for report in reports for found in report.findings] == []


async def race(saver: Any, who: int) -> None:
    for n in range(12):
        before = await saver.get_tuple(at())
        if before is not None:
            await saver.put_writes(before.config, [("log", text(f"{who} {n}"))], "task")
        try:
            values = {"log": [text(f"{who}")], "n": n}
            await saver.put(*superstep(saver.target, before, f"{n:03}{who}", values))
        except ConflictError:
            continue


async def test_a_run_that_goes_on_while_its_head_is_restored_loses_nothing(
    policy_store: Store,
) -> None:
    """What it puts is not overwritten, and what it stands on is right again."""
    saver, scrubber = policy_store.saver(), policy_store.saver()
    for n in (1, 2):
        await step(saver, "t", n)
    await saver.flush()
    before = rows(policy_store)
    shared = "(SELECT (durable_state.numbers(chunks))[1] FROM @checkpoint WHERE id = '000002')"
    harm(policy_store, f"UPDATE @chunk SET {flipped('data')} WHERE no = {shared}")
    scrub, _ = await asyncio.gather(scrubber.verify(repair=True), step(saver, "t", 3))
    assert {found.outcome for found in scrub.findings} <= {"repaired"}
    await scrubber.verify(repair=True)
    await saver.flush()
    after = rows(policy_store)
    assert [row for row in after["chunk"] if row in before["chunk"]] == before["chunk"]
    assert await scrubber.verify()
    fresh = await policy_store.saver().get_tuple(config())
    assert values_of(fresh)["n"] == 3
