"""Leases and their fences in both tiers, on every driver."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import redis

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.drivers.blocking import run
from langgraph_durable_state.drivers.memory import MemoryDurable
from langgraph_durable_state.drivers.memory_outbox import MemoryOutbox
from langgraph_durable_state.drivers.memory_world import World
from langgraph_durable_state.ports import Durable, Outbox
from langgraph_durable_state.words import (
    Advance,
    Claim,
    Cold,
    Fenced,
    Granted,
    Head,
    Lost,
    Occupied,
    Opened,
    Put,
    Step,
    Stored,
    Unfit,
    Won,
)
from tests.cases import query
from tests.contract.beside import beside
from tests.contract.conftest import DRIVERS
from tests.contract.rows import HERE, InCompany, at, chunk, mark, put, thread, write, writes
from tests.faces import OnBlockingFace

HERES = HERE.thread
TTL = 100.0
TOKEN = b"t" * 16

LOCKED_OUT = """SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'"""


@dataclass
class Tiers:
    """One driver's tiers, over empty stores.

    Attributes:
        run_out: lets every lease run out.
        forget: empties the hot tier.
        saver: whose tiers they are; None in memory.
        other: the durable tier of another process, on the blocking face; its own in memory.
    """

    durable: Durable
    outbox: Outbox
    run_out: Callable[[], None]
    forget: Callable[[], None]
    saver: Any
    other: Durable

    async def taken(self, holder: str) -> int:
        """The fence of the lease that `holder` takes."""
        found = await self.durable.take_lease(HERES, holder, TTL)
        assert isinstance(found, Granted)
        return found.fence

    async def overtaken(self) -> tuple[int, int]:
        """The fences of a holder whose lease ran out, and of the next one."""
        old = await self.taken("old")
        self.run_out()
        return old, await self.taken("new")


@pytest.fixture(params=[*DRIVERS, "in company"])
async def tiers(request: pytest.FixtureRequest) -> AsyncIterator[Tiers]:
    """The tiers of each driver; "in company" nothing is committed alone."""
    if request.param == "memory":
        world = World()

        def pass_time() -> None:
            world.now += 2 * TTL

        durable = MemoryDurable(world)
        yield Tiers(durable, MemoryOutbox(world, False), pass_time, world.lose_hot, None, durable)
        return
    urls = request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url")

    def run_out() -> None:
        with psycopg.connect(urls[0]) as administrator:
            administrator.execute("UPDATE durable_state.lease SET until = now()")

    def forget() -> None:
        with redis.Redis.from_url(urls[1]) as client:
            client.flushdb()

    async with DurableSaver(*urls) as saver, DurableSaver(urls[0]) as other:
        native = request.param == "native"
        driver = await (saver._faces.native() if native else saver._faces.blocking())
        assert driver.outbox is not None
        yield Tiers(
            InCompany(driver.durable) if request.param == "in company" else driver.durable,
            driver.outbox,
            run_out,
            forget,
            saver if native else OnBlockingFace(saver),
            (await other._faces.blocking()).durable,
        )


# -- taking and keeping ----------------------------------------------------------------------


async def test_one_holder_has_it_and_the_others_are_told_who(tiers: Tiers) -> None:
    assert await tiers.taken("one") > 0
    told = await tiers.durable.take_lease(HERES, "other", TTL)
    assert isinstance(told, Occupied)
    assert told.holder == "one"
    assert 0 < told.left <= TTL


async def test_a_lease_that_ran_out_is_taken_with_a_larger_fence(tiers: Tiers) -> None:
    old, new = await tiers.overtaken()
    assert new > old


async def test_a_holder_whose_answer_was_lost_takes_it_again(tiers: Tiers) -> None:
    first = await tiers.taken("one")
    assert await tiers.taken("one") > first


async def test_leases_are_a_threads_own(tiers: Tiers) -> None:
    """And a tenant's; all its namespaces have one."""
    await tiers.taken("one")
    for other in (thread("u"), thread("t", "x")):
        assert isinstance(await tiers.durable.take_lease(other, "other", TTL), Granted)


async def test_a_renewed_lease_goes_on(tiers: Tiers) -> None:
    """Even one that had run out, as long as nobody took it."""
    fence = await tiers.taken("one")
    tiers.run_out()
    assert await tiers.durable.renew_lease(HERES, fence, "one", TTL)
    told = await tiers.durable.take_lease(HERES, "other", TTL)
    assert isinstance(told, Occupied)
    assert told.left > 0


async def test_a_lease_that_was_taken_over_is_not_renewed(tiers: Tiers) -> None:
    old, new = await tiers.overtaken()
    assert not await tiers.durable.renew_lease(HERES, old, "old", TTL)
    assert not await tiers.durable.renew_lease(HERES, new, "old", TTL)
    assert await tiers.durable.renew_lease(HERES, new, "new", TTL)


async def test_a_released_lease_is_free_and_fences_still_grow(tiers: Tiers) -> None:
    first = await tiers.taken("one")
    await tiers.durable.release_lease(HERES, "one")
    assert await tiers.taken("other") > first


async def test_only_its_holder_releases_it(tiers: Tiers) -> None:
    await tiers.overtaken()
    await tiers.durable.release_lease(HERES, "old")
    assert isinstance(await tiers.durable.take_lease(HERES, "third", TTL), Occupied)


async def test_a_lease_outlives_its_thread(tiers: Tiers) -> None:
    """It belongs to the name, under which somebody is at work."""
    fence = await tiers.taken("one")
    await tiers.durable.commit([put("a")])
    await tiers.durable.delete_thread(HERES)
    assert isinstance(await tiers.durable.take_lease(HERES, "other", TTL), Occupied)
    assert await tiers.durable.commit([put("b", fence=fence)]) == [Won(1)]


# -- the fence in the writing transaction ----------------------------------------------------


async def nothing_but(tiers: Tiers, head: str | None, *numbers: int) -> None:
    """What there is of the thread: checkpoints up to `head`, and these chunks."""
    found = await tiers.durable.heads(HERES)
    assert {ns: one.id for ns, one in found.items()} == ({"": head} if head else {})
    page = await tiers.durable.rest(HERE, ["a", "b"], range(10), [])
    assert sorted(page.chunks) == sorted(numbers)
    assert not page.writes


async def test_a_holder_puts_under_its_fence(tiers: Tiers) -> None:
    """While its lease runs, and after it ran out, as long as nobody took it."""
    fence = await tiers.taken("one")
    assert await tiers.durable.commit([put("a", Claim.EMPTY, fence=fence)]) == [Won(1)]
    tiers.run_out()
    assert await tiers.durable.commit([put("b", Claim.HEAD, "a", fence=fence)]) == [Won(2)]
    await tiers.durable.release_lease(HERES, "one")
    assert await tiers.durable.commit([put("c", Claim.HEAD, "b", fence=fence)]) == [Won(3)]


@pytest.mark.parametrize("claim", [Claim.ANY, Claim.HEAD, Claim.EMPTY, Claim.ASIDE])
async def test_an_overtaken_holder_puts_nothing(tiers: Tiers, claim: Claim) -> None:
    """Whether or not the put's claim is right, it is neither stored nor kept."""
    old, new = await tiers.overtaken()
    await tiers.durable.commit([put("a", fence=new)])
    late = put("b", claim, "a", chunks=(chunk(7, "late"),), fence=old)
    assert await tiers.durable.commit([late]) == [Fenced()]
    await nothing_but(tiers, "a")


async def test_an_overtaken_holder_begins_no_thread(tiers: Tiers) -> None:
    old, _ = await tiers.overtaken()
    assert await tiers.durable.commit([put("a", Claim.EMPTY, fence=old)]) == [Fenced()]
    await nothing_but(tiers, None)


async def test_a_fence_of_no_lease_stores_nothing(tiers: Tiers) -> None:
    assert await tiers.durable.commit([put("a", fence=7)]) == [Fenced()]
    await nothing_but(tiers, None)


async def test_what_carries_no_fence_is_not_checked(tiers: Tiers) -> None:
    """Against that stands the claim on the head."""
    await tiers.taken("one")
    assert await tiers.durable.commit([put("a", Claim.EMPTY)]) == [Won(1)]
    assert await tiers.durable.commit([writes(write("a", "T", "w"))]) == [Stored()]


async def test_an_overtaken_holder_writes_nothing(tiers: Tiers) -> None:
    """Neither a task's first batch nor one that differs, nor a special channel's."""
    old, new = await tiers.overtaken()

    def late(text: str, slot: int = 0) -> Any:
        row = write("a", "T", text, slot, numbers=(7,))
        return writes(row, chunks=(chunk(7, "late"),), fence=old)

    assert await tiers.durable.commit([late("late")]) == [Fenced()]
    assert await tiers.durable.commit([late("late", -1)]) == [Fenced()]
    await nothing_but(tiers, None)
    assert await tiers.durable.commit([writes(write("a", "T", "w"), fence=new)]) == [Stored()]
    assert await tiers.durable.commit([late("late")]) == [Fenced()]
    page = await tiers.durable.rest(HERE, ["a"], [7], [])
    assert [w.blob for w in page.writes["", "a"]] == [b"w"]
    assert page.chunks == {}


async def test_each_item_of_a_batch_is_fenced_alone(tiers: Tiers) -> None:
    old, new = await tiers.overtaken()
    batch = [
        put("a", fence=old),
        put("a", place=at("sub"), fence=new),
        put("a", place=at("free")),
        put("a", place=at(id="u"), fence=new),
        writes(write("b", "old", "w"), fence=old),
        writes(write("b", "new", "w"), write("b", "new", "special", -1), fence=new),
        writes(write("b", "free", "w")),
    ]
    told = await tiers.durable.commit(batch)
    assert told == [Fenced(), Won(1), Won(1), Fenced(), Fenced(), Stored(), Stored()]
    page = await tiers.durable.rest(HERE, ["b"], [], [])
    assert [w.task for w in page.writes["", "b"]] == ["free", "new", "new"]
    assert sorted(await tiers.durable.heads(HERES)) == ["free", "sub"]
    assert await tiers.durable.heads(thread("u")) == {}


async def test_an_overtaken_holder_opens_no_spell(tiers: Tiers) -> None:
    """The hot tier may have lost the fence: the durable one has it."""
    old, new = await tiers.overtaken()
    assert await tiers.durable.mark_ahead(HERE, TOKEN, [], old) is None
    assert await tiers.durable.ahead(HERES.key, 1) == []
    marked = await tiers.durable.mark_ahead(HERE, TOKEN, [], new)
    assert marked == (Head("", 0, b""), TOKEN)


# -- between two statements ------------------------------------------------------------------

REAL = pytest.mark.parametrize("tiers", ["blocking", "native"], indirect=True)
"""In memory nothing comes between: there the explorer does this."""


@REAL
async def test_what_lost_the_head_and_then_its_lease_is_not_kept(tiers: Tiers) -> None:
    """It is taken over between the statement that compares and the one that keeps."""
    fence = await tiers.taken("old")
    await tiers.durable.commit([put("a")])
    other = tiers.other

    def overtake() -> None:
        tiers.run_out()
        run(other.take_lease(HERES, "new", TTL))

    done = await beside(tiers.saver, "keep", overtake)
    late = put("b", Claim.HEAD, "wrong", chunks=(chunk(7, "late"),), fence=fence)
    assert await tiers.durable.commit([late]) == [Lost("a", kept=False)]
    assert done
    await nothing_but(tiers, "a")


@REAL
async def test_what_differs_and_then_loses_its_lease_is_not_written(tiers: Tiers) -> None:
    """It is taken over between the statement for a first batch and the one for later ones."""
    await tiers.durable.commit([writes(write("a", "T", "w"))])
    fence = await tiers.taken("old")
    other = tiers.other

    def overtake() -> None:
        tiers.run_out()
        run(other.take_lease(HERES, "new", TTL))

    done = await beside(tiers.saver, "differ", overtake)
    assert await tiers.durable.commit([writes(write("a", "T", "late"), fence=fence)]) == [Fenced()]
    assert done


@REAL
@pytest.mark.parametrize("name", ["put_one", "commit"])
async def test_a_take_over_waits_for_the_put_in_flight(
    tiers: Tiers, postgres_url: str, name: str
) -> None:
    """So the next holder reads what its predecessor's transaction stores."""
    fence = await tiers.taken("old")
    tiers.run_out()
    other = tiers.other
    seen: list[Any] = []

    def overtake() -> None:
        seen.append(run(other.take_lease(HERES, "new", TTL)))
        seen.append(run(other.heads(HERES)))

    taker = threading.Thread(target=overtake)

    def begin() -> None:
        taker.start()
        while taker.is_alive() and query(postgres_url, LOCKED_OUT) == [(0,)]:
            time.sleep(0.01)

    done = await beside(tiers.saver, name, begin, held=True)
    batch = [put("a", fence=fence), put("a", place=at("sub"), fence=fence)]
    await tiers.durable.commit(batch[: 2 if name == "commit" else 1])
    taker.join()
    assert done
    granted, heads = seen
    assert isinstance(granted, Granted)
    assert heads[""] == Head("a", 1, mark("a"))


# -- the fence in the hot tier ---------------------------------------------------------------


async def append(tiers: Tiers, one: Put, refused: bool = False) -> Any:
    """What the hot tier answers to a put, a spell being opened for it if there is none."""
    step = Step(b"", one.chunks)
    answer = await tiers.outbox.append(one, step, TOKEN, None, refused)
    if isinstance(answer, Cold):
        opened = Opened(Head("", 0, b""), marked=True)
        answer = await tiers.outbox.append(one, step, answer.token, opened, refused)
    return answer


async def append_writes(tiers: Tiers, text: str, fence: int | None) -> Any:
    item = writes(write("a", "T" + text, text), fence=fence)
    answer = await tiers.outbox.append_writes(item, TOKEN, None)
    if isinstance(answer, Cold):
        opened = Opened(Head("", 0, b""), marked=True)
        answer = await tiers.outbox.append_writes(item, answer.token, opened)
    return answer


async def waiting(tiers: Tiers) -> list[str]:
    """Ids of what is in the outbox."""
    out = await tiers.outbox.take(HERES, b"", 100)
    assert out is not None
    return [entry.item.id for entry in out.entries]


async def test_an_overtaken_holder_appends_nothing(tiers: Tiers) -> None:
    """Neither puts, kept ones among them, nor writes; no spell is begun."""
    await tiers.outbox.raise_fence(HERES, 8)
    assert await append(tiers, put("a", fence=7)) is Unfit.FENCED
    assert await append(tiers, put("a", fence=7), refused=True) is Unfit.FENCED
    assert await append_writes(tiers, "w", 7) is Unfit.FENCED
    assert (await tiers.outbox.peek(HERE, b"")).spell is None
    assert isinstance(await append(tiers, put("a", fence=8)), Won)
    assert await append_writes(tiers, "w", 8) == Stored()
    assert await append(tiers, put("b", fence=7)) is Unfit.FENCED
    assert await append_writes(tiers, "late", 7) is Unfit.FENCED
    assert await waiting(tiers) == ["a", "a"]
    assert (await tiers.outbox.peek(HERE, b"")).digest == mark("a")


async def test_the_hot_fence_is_never_lowered(tiers: Tiers) -> None:
    """Whoever is told late of having taken a lease has lost it."""
    await tiers.outbox.raise_fence(HERES, 1_753_000_000_000_002)
    await tiers.outbox.raise_fence(HERES, 1_753_000_000_000_001)
    assert await append(tiers, put("a", fence=1_753_000_000_000_001)) is Unfit.FENCED
    assert isinstance(await append(tiers, put("a", fence=1_753_000_000_000_002)), Won)


async def test_a_hot_tier_that_lost_the_fence_learns_it_again(tiers: Tiers) -> None:
    """From the next put of the holder; until then it takes what comes."""
    await tiers.outbox.raise_fence(HERES, 8)
    tiers.forget()
    assert isinstance(await append(tiers, put("a", fence=7)), Won)
    assert isinstance(await append(tiers, put("b", fence=8)), Won)
    assert await append(tiers, put("c", fence=7)) is Unfit.FENCED


async def test_the_hot_tier_takes_what_carries_no_fence(tiers: Tiers) -> None:
    await tiers.outbox.raise_fence(HERES, 8)
    assert isinstance(await append(tiers, put("a")), Won)
    assert await append_writes(tiers, "w", None) == Stored()


async def test_what_was_acknowledged_is_flushed_after_a_take_over(tiers: Tiers) -> None:
    """The fence was checked when it was acknowledged; in the outbox it is not needed any more."""
    old = await tiers.taken("old")
    await append(tiers, put("a", Claim.EMPTY, fence=old))
    tiers.run_out()
    await tiers.taken("new")
    out = await tiers.outbox.take(HERES, b"", 100)
    assert out is not None
    [entry] = out.entries
    await tiers.durable.mark_ahead(entry.item.place, entry.token, [])
    advance = Advance(entry.item.place, entry.token, 0, entry.number)
    assert await tiers.durable.flush([advance], [entry.item]) == [Won(1)]


async def test_hot_fences_are_a_threads_own(tiers: Tiers) -> None:
    """All its namespaces have one."""
    await tiers.outbox.raise_fence(HERES, 8)
    assert await append(tiers, put("a", place=at("sub"), fence=7)) is Unfit.FENCED
    assert isinstance(await append(tiers, put("a", place=at(id="u"), fence=7)), Won)
