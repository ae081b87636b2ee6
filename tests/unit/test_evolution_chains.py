"""Random chains of steps on random snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from langgraph.types import Interrupt, Send

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.decisions.evolution import tasks
from langgraph_durable_state.decisions.evolution.evolving import evolved
from langgraph_durable_state.decisions.evolution.snapshot import Snapshot, Write
from langgraph_durable_state.decisions.evolution.tasks import Task
from langgraph_durable_state.evolution import (
    Operation,
    StateSchema,
    add_channel,
    convert_channel,
    drop_channel,
    drop_node,
    merge,
    rename_channel,
    rename_field,
    rename_node,
    split,
)

ID = "1ef4f797-8335-6428-8001-8a1503f9b875"
METADATA = {"step": 3, "source": "loop", "parents": {}}
CHANNELS, NODES = "abcdef", ("n1", "n2", "n3", "n4", "n5")
NAMESPACES = ("", "in:11111111-2222-3333-4444-555555555555")
Draw = Callable[..., Any]


@st.composite
def snapshots(draw: Draw) -> Snapshot:
    """Three channels and three nodes, some of which are to run, some of which have run."""
    versions: dict[str, int] = {"__start__": 1}
    values: dict[str, Any] = {}
    seen: dict[str, dict[str, int]] = {"__start__": {"__start__": 1}}
    numbers = st.integers(1, 4)
    for name in CHANNELS[:3]:
        if draw(st.booleans()):
            values[name], versions[name] = [{"x": draw(st.integers(0, 9))}], draw(numbers)
    for node in NODES[:3]:
        branch = tasks.branch(node)
        if draw(st.booleans()):
            versions[branch] = draw(numbers)
            seen[node] = {branch: versions[branch] - draw(st.integers(0, 1))}
            if seen[node][branch] < versions[branch]:
                values[branch] = None
    if draw(st.booleans()):
        join = tasks.join("n1+n2", "n3")
        versions[join] = draw(numbers)
        values[join] = draw(st.sets(st.sampled_from(NODES[:2]), max_size=1))
    if draw(st.booleans()):
        seen["__interrupt__"] = {
            name: max(1, v - draw(st.integers(0, 1))) for name, v in versions.items()
        }
    if draw(st.booleans()):
        values["__start__"] = {name: [{"x": 1}] for name in draw(st.sets(st.sampled_from("abc")))}
    sends = draw(st.lists(st.sampled_from(NODES[:3]), max_size=2))
    values["__pregel_tasks"], versions["__pregel_tasks"] = [Send(n, {"x": 1}) for n in sends], 2
    checkpoint = {
        "v": 4,
        "id": ID,
        "ts": "now",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": seen,
        "updated_channels": sorted(draw(st.sets(st.sampled_from(sorted(versions))))),
    }
    ns = draw(st.sampled_from(NAMESPACES))
    return Snapshot(ns, 0, checkpoint, METADATA, draw(waiting(ns, checkpoint)))


@st.composite
def waiting(draw: Draw, ns: str, checkpoint: dict[str, Any]) -> tuple[Write, ...]:
    """What some of the tasks wrote, with the ids that LangGraph gives them."""
    runs = [Task(node) for node in NODES[:3] if tasks.branch(node) in checkpoint["channel_values"]]
    runs += [Task(s.node, i) for i, s in enumerate(checkpoint["channel_values"]["__pregel_tasks"])]
    at = tasks.frame(ns, checkpoint, METADATA)
    found: list[Write] = []
    for run in runs:
        if not draw(st.booleans()):
            continue
        task = next(tasks.guesses(checkpoint, run))
        id, path = tasks.task_id(at, task), tasks.task_path(task)
        if draw(st.booleans()):
            question = Interrupt("?", tasks.interrupt_id(tasks.task_ns(at, task), 0))
            found.append(Write(id, path, "__interrupt__", (question,), 0))
            continue
        for name in draw(st.lists(st.sampled_from(CHANNELS[:3]), max_size=3)):
            found.append(Write(id, path, name, [{"x": draw(st.integers(0, 9))}], 0))
        node = draw(st.sampled_from(NODES[:3]))
        found.append(Write(id, path, tasks.branch(node), None, 0))
        found.append(Write(id, path, tasks.TASKS, Send(node, 0), 0))
    return tuple(sorted(found, key=lambda each: (each.path, each.task)))


@st.composite
def chains(draw: Draw, kinds: str) -> tuple[Operation, ...]:
    """Up to six operations, each about names that there are then, and names that are free."""
    channels, nodes = set(CHANNELS[:3]), set(NODES[:3])
    made: list[Operation] = []
    for kind in draw(st.lists(st.sampled_from(kinds.split()), min_size=1, max_size=6)):
        free = sorted(set(CHANNELS) - channels)
        held, ran = sorted(channels), sorted(nodes)
        if kind == "node":
            old, new = draw(st.sampled_from(ran)), draw(st.sampled_from(sorted(set(NODES) - nodes)))
            made.append(rename_node(old, new, at="*"))
            nodes = nodes - {old} | {new}
        elif kind == "gone" and len(ran) > 1:
            old = draw(st.sampled_from(ran))
            heirs = st.sampled_from([None, *(each for each in ran if each != old)])
            made.append(drop_node(old, to=draw(heirs), at="*"))
            nodes.discard(old)
        elif kind == "add" and free:
            new = draw(st.sampled_from(free))
            made.append(add_channel(new, default=[{"x": 0}], at="*"))
            channels.add(new)
        elif kind == "merge" and len(held) > 1 and free:
            olds, new = tuple(held[:2]), draw(st.sampled_from(free))
            made.append(merge(olds, new, lambda *v: [*(v[0] or []), *(v[1] or [])], at="*"))
            channels = channels - {*olds} | {new}
        elif not held:
            continue
        else:
            old = draw(st.sampled_from(held))
            if kind == "drop":
                made.append(drop_channel(old, at="*"))
                channels.discard(old)
            elif kind == "channel" and free:
                new = draw(st.sampled_from(free))
                made.append(rename_channel(old, new, at="*"))
                channels = channels - {old} | {new}
            elif kind == "split" and len(free) > 1:
                made.append(
                    split(old, free[:2], lambda v: (v[:1], v[1:]), lambda a, b: a + b, at="*")
                )
                channels = channels - {old} | {*free[:2]}
            elif kind == "convert":
                made.append(
                    convert_channel(
                        old, lambda v: [*v[::-1], {"x": 7}], lambda v: v[:-1][::-1], at="*"
                    )
                )
            elif kind == "field":
                made.append(rename_field(old, None, "x", "y", at="*"))
    return tuple(made)


def schema_of(operations: tuple[Operation, ...]) -> StateSchema:
    schema = StateSchema(version=len(operations), graph="test")
    for version, each in enumerate(operations):
        schema.step(version, each)
    return schema


def outcome(do: Callable[[], Snapshot]) -> Any:
    try:
        return do()
    except EvolutionError:
        return "refused"


def stepwise(snapshot: Snapshot, schema: StateSchema, versions: Any) -> Snapshot:
    for version in versions:
        snapshot = evolved(snapshot, schema, version)
    return snapshot


SETTINGS = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@SETTINGS
@given(snapshots(), chains("node gone add merge drop channel split convert field"))
def test_step_by_step_is_as_all_at_once(
    before: Snapshot, operations: tuple[Operation, ...]
) -> None:
    """However often a thread was read and put on the way."""
    schema = schema_of(operations)
    at_once = outcome(lambda: evolved(before, schema, schema.version))
    by_step = outcome(lambda: stepwise(before, schema, range(1, schema.version + 1)))
    assert by_step == at_once


@SETTINGS
@given(snapshots(), chains("node add channel split convert"))
def test_up_and_down_again_is_where_it_was(
    before: Snapshot, operations: tuple[Operation, ...]
) -> None:
    """Where a way back is declared, or nothing is lost."""
    schema = schema_of(operations)
    after = outcome(lambda: evolved(before, schema, schema.version))
    assume(after != "refused")
    back = evolved(after, schema, 0)
    assert back == before


@SETTINGS
@given(snapshots(), chains("node channel"))
def test_nothing_is_lost_by_new_names(before: Snapshot, operations: tuple[Operation, ...]) -> None:
    """As many values, versions, writes and tasks as before, and of the old names none that is not
    in use."""
    schema = schema_of(operations)
    after = outcome(lambda: evolved(before, schema, schema.version))
    assume(after != "refused")
    for part in ("channel_values", "channel_versions", "versions_seen", "updated_channels"):
        assert len(after.checkpoint[part]) == len(before.checkpoint[part])
    assert len(after.writes) == len(before.writes)
    assert len({w.task for w in after.writes}) == len({w.task for w in before.writes})
