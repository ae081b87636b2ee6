"""A thread that old code left goes on under new code: what was declared of the change is all that
differs from a run that was never migrated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from langgraph_durable_state import EvolutionError
from tests.cases import Store
from tests.conftest import database
from tests.integration.evolving import (
    ALL_CHANGES,
    ALLOWED,
    CHANGES,
    MORE_CHANGES,
    World,
    counted,
)
from tests.integration.situations import (
    MORE_SITUATIONS,
    SITUATIONS,
    ToldSaver,
    looked_at,
    reference,
)
from tests.servers import PostgresServer

WAYS = ["lazy", pytest.param("bulk", marks=pytest.mark.long)]
"""When what is stored becomes today's: as it is read, or before."""

JOINING = (
    "three branches, one answered",
    "crashed between siblings",
    "half of a join is there",
    "in a subgraph after a join",
)
CELLS = dict.fromkeys(
    [
        *itertools.product(SITUATIONS, CHANGES),
        *itertools.product(MORE_SITUATIONS, ("everything", "everything in a subgraph")),
        *itertools.product(["waits at a breakpoint"], CHANGES),
        *itertools.product(JOINING, MORE_CHANGES),
    ]
)
ALL_SITUATIONS = SITUATIONS | MORE_SITUATIONS


@pytest.fixture(scope="module")
def postgres_url(
    shared_postgres: PostgresServer, databases: Callable[[str], None], numbers: Iterator[int]
) -> Iterator[str]:
    """One database for all: each test has a thread of its own."""
    with database(shared_postgres, databases, next(numbers)) as url:
        yield url


@pytest.fixture
def thread(numbers: Iterator[int]) -> str:
    return f"t{next(numbers)}"


def rows(store: Store, thread: str) -> list[Any]:
    """All that is stored of a thread in Postgres."""
    tk = f"(SELECT tk FROM durable_state.thread WHERE id = '{thread}')"
    each = (
        f"SELECT '{table}', t::text FROM durable_state.{table} t WHERE tk = {tk}"
        for table in ("head", "checkpoint", "chunk", "write")
    )
    return sorted(store.query(" UNION ALL ".join(each)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tier", ["hot", pytest.param("durable", marks=pytest.mark.long)])
@pytest.mark.parametrize(("situation", "change"), CELLS)
async def test_a_thread_goes_on(
    store: Store, thread: str, situation: str, change: str, way: str
) -> None:
    """It ends in the same state, and the same nodes run, as if nothing had changed; to look at it
    changes nothing that is stored; and once it went on, the old code refuses it. No cell is
    refused: what these changes need can be told of each thread."""
    how, what = ALL_SITUATIONS[situation], ALL_CHANGES[change]
    before, after, ran = await reference(how, change)

    old = World(model=what.model, thread=thread)
    saver = store.open(ToldSaver, allow=ALLOWED)
    await how.before(store.face(how.compiled(old, saver, what.within)), saver, old)
    held = rows(store, thread)
    assert held

    if way == "bulk":
        migrating = store.face(store.open(state_schema=what.schema(), allow=ALLOWED))
        done = await migrating.migrate([thread])
        assert (done.failed, done.busy) == ((), ())
        assert (await migrating.migrate([thread], dry_run=True)).migrated == ()
        held = rows(store, thread)

    new = World(what, what.model, old.ran, thread)
    saver = store.open_reader(state_schema=what.schema(), allow=ALLOWED)
    graph = store.face(how.compiled(new, saver, what.within))
    assert await looked_at(graph, new, what) == before
    assert rows(store, thread) == held
    await how.after(graph, saver, new)
    assert await looked_at(graph, new, what) == after
    assert counted(new) == ran

    late = store.face(how.compiled(old, store.open(allow=ALLOWED), what.within))
    with pytest.raises(EvolutionError, match="version 1, this code knows 0"):
        await old.run(late, old.given())
    assert counted(old) == ran
