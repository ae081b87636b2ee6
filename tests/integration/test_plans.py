"""How Postgres runs the statements that puts and reads are made of: nothing of it grows with a
thread's history.

The plans are those of empty tables, and those of a table of many short threads: both are where the
planner takes a thread's history for a row or two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.tiers.statements import queries

NAMES = (
    "commit",
    "move_one",
    "put_one",
    "write_one",
    "standing",
    "keep",
    "differ",
    "read_head",
    "read_one",
    "chain",
    "progress",
    "mark_ahead",
)

SHORT_THREADS = """
INSERT INTO durable_state.checkpoint
  (tk, ns, id, seq, parent, digest, chunks, size, record, meta)
SELECT md5(i::text)::uuid, '', md5(i::text), 1, NULL, 'digest', '', 1, 'record', '{}'
  FROM generate_series(1, 3000) AS i;
INSERT INTO durable_state.head (tk, ns, seq, id, digest)
SELECT tk, ns, seq, id, digest FROM durable_state.checkpoint;
ANALYZE durable_state.checkpoint, durable_state.head;
"""

KINDS = "SELECT parameter_types FROM pg_prepared_statements WHERE name = 'asked'"


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "short threads"])
def test_one_checkpoint_is_found_without_its_threads_history(
    postgres_url: str, filled: bool
) -> None:
    """It is looked up by its whole key, and none is looked up in a hash of all."""
    with DurableSaver(postgres_url) as saver:
        saver.setup()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        if filled:
            connection.execute(SHORT_THREADS)
        connection.execute("SET plan_cache_mode = force_generic_plan")
        for name in NAMES:
            nodes = list(walked(plan(connection, name)))
            assert [n for n in nodes if reads_a_history(n)] == [], name
            hashed = {h for n in nodes for h in re.findall(r"hashed (SubPlan \d+)", json.dumps(n))}
            inside = [n for n in nodes if n.get("Subplan Name") in hashed]
            assert [m for n in inside for m in walked(n) if of_checkpoints(m)] == [], name


def plan(connection: psycopg.Connection[Any], name: str) -> dict[str, Any]:
    connection.execute(f"PREPARE asked AS {queries('durable_state')[name]}".encode())
    kinds = connection.execute(KINDS).fetchone()
    assert kinds is not None
    nulls = ", ".join("NULL" for _ in kinds[0])
    found = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({nulls})".encode()).fetchone()
    assert found is not None
    connection.execute("DEALLOCATE asked")
    return found[0][0]["Plan"]  # type: ignore[no-any-return]


def walked(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's nodes, each without those below it, but for the one it began with."""
    yield node
    for below in node.get("Plans", ()):
        yield from walked(below)


def of_checkpoints(node: dict[str, Any]) -> bool:
    return bool(node.get("Relation Name") == "checkpoint")


def reads_a_history(node: dict[str, Any]) -> bool:
    """Whether it goes over a thread's checkpoints, or over all, to find those of an id."""
    condition = node.get("Index Cond", "")
    return of_checkpoints(node) and "id = " in node.get("Filter", "") and "(id = " not in condition
