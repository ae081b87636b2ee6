"""Random chains of steps on random threads: migrated at once or step by step, they are what a lazy
read makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.decisions.evolution.snapshot import Snapshot
from langgraph_durable_state.evolution import Operation
from langgraph_durable_state.testing import World, memory_saver
from tests.cases import at
from tests.unit.test_evolution_chains import chains, schema_of, snapshots


def stored(before: Snapshot) -> World:
    """A thread that code without a schema left so."""
    world = World()
    saver = memory_saver(world)
    versions = before.checkpoint["channel_versions"]
    config: Any = saver.put(at(), before.checkpoint, before.metadata, versions)  # type: ignore[arg-type]
    tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for write in before.writes:
        tasks.setdefault((write.task, write.path), []).append((write.channel, write.value))
    for (task, path), writes in tasks.items():
        saver.put_writes(config, writes, task, path)
    return world


def seen(world: World, operations: tuple[Operation, ...]) -> Any:
    """What code of the newest version reads."""
    saver = memory_saver(world, state_schema=schema_of(operations))
    try:
        found = saver.get_tuple(at())
    except EvolutionError:
        return "refused"
    assert found is not None
    return found.checkpoint, found.metadata, found.pending_writes


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(snapshots(), chains("node gone add merge drop channel split convert field"))
def test_bulk_is_as_lazy_is_as_step_by_step(
    before: Snapshot, operations: tuple[Operation, ...]
) -> None:
    before = replace(before, ns="")
    lazily = seen(stored(before), operations)
    at_once, by_step = stored(before), stored(before)
    migrated = [memory_saver(at_once, state_schema=schema_of(operations)).migrate()]
    for n in range(len(operations)):
        steps = memory_saver(by_step, state_schema=schema_of(operations[: n + 1]))
        migrated.append(steps.migrate())
    if lazily == "refused":
        assert not all(migrated)
    else:
        assert all(migrated)
        assert seen(at_once, operations) == lazily
    assert seen(by_step, operations) == lazily
