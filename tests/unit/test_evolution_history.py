"""The history of a DeltaChannel, whose value is what was written to it under all its names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.decisions.evolution.evolving import evolved, stored_name, value_up
from langgraph_durable_state.decisions.evolution.snapshot import Snapshot, Write
from langgraph_durable_state.evolution import (
    StateSchema,
    add_channel,
    convert_channel,
    drop_channel,
    merge,
    rename_channel,
    rename_node,
    split,
)
from tests.moving import THREAD, snapshots

CONFIG: Any = {"configurable": {"thread_id": THREAD}}


def replayed(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(each for write in writes for each in write)]


def build(name: str, nodes: tuple[str, str], mark: str, frequency: int) -> StateGraph:
    state = TypedDict(  # type: ignore[misc]
        "state", {name: Annotated[list, DeltaChannel(replayed, snapshot_frequency=frequency)]}
    )
    graph = StateGraph(state)
    for role, node in zip("az", nodes, strict=True):
        graph.add_node(node, lambda state, role=role: {name: [f"{role}{mark}"]})
        graph.add_edge(START, node)
    return graph


class Lazy(InMemorySaver):
    """Keeps what older code stored as it is, and brings it up when it is read."""

    def __init__(self, old: InMemorySaver, schema: StateSchema) -> None:
        super().__init__()
        self.storage, self.blobs, self.writes = old.storage, old.blobs, old.writes
        self.old = {each.checkpoint["id"]: each for each in snapshots(old)}
        self.schema = schema

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if found is None or found.checkpoint["id"] not in self.old:
            return found
        new = evolved(self.old[found.checkpoint["id"]], self.schema, self.schema.version)
        waits = [(w.task, w.channel, w.value) for w in new.writes]
        return found._replace(
            checkpoint=new.checkpoint, metadata=new.metadata, pending_writes=waits
        )

    def get_delta_channel_history(
        self, *, config: Any, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        return {name: self.history(config, name) for name in channels}

    def history(self, config: Any, name: str) -> dict[str, Any]:
        at, now = super().get_tuple(config), self.schema.version
        found: list[Any] = []
        while at is not None and at.parent_config is not None:
            at = super().get_tuple(at.parent_config)
            assert at is not None
            version = 0 if at.checkpoint["id"] in self.old else now
            then = stored_name(self.schema, name, now, version, "")
            if then is None:
                break
            for task, channel, value in reversed(at.pending_writes or ()):
                if channel == then:
                    new = value_up(self.schema, name, value, version, now, "")
                    found.append((task, name, new))
            if then in at.checkpoint["channel_values"]:
                seed = at.checkpoint["channel_values"][then]
                return {
                    "writes": found[::-1],
                    "seed": value_up(self.schema, name, seed, version, now, ""),
                }
        return {"writes": found[::-1]}


def marked(value: list[str]) -> list[str]:
    return [f"{each}!" for each in value]


@pytest.mark.parametrize("frequency", [3, 100])
def test_what_was_written_under_old_names_is_replayed(frequency: int) -> None:
    """In the order in which it was then, whatever the nodes are called now."""
    saver = InMemorySaver()
    graph: Any = build("items", ("a", "z"), "", frequency).compile(checkpointer=saver)
    for turn in "123":
        graph.invoke({"items": [turn]}, CONFIG)
    before = graph.get_state(CONFIG).values["items"]
    assert before == ["1", "a", "z", "2", "a", "z", "3", "a", "z"]

    schema = StateSchema(version=2)
    schema.step(
        0, rename_channel("items", "list"), rename_node("a", "late"), rename_node("z", "early")
    )
    schema.step(1, convert_channel("list", marked))
    lazy = Lazy(saver, schema)
    graph = build("list", ("late", "early"), "?", frequency).compile(checkpointer=lazy)
    assert graph.get_state(CONFIG).values["list"] == marked(before)
    graph.invoke({"list": ["4"]}, CONFIG)
    expected = [*marked(before), "4", "z?", "a?"]
    assert graph.get_state(CONFIG).values["list"] == expected


def schema_of(*steps: Any) -> StateSchema:
    schema = StateSchema(version=len(steps))
    for version, each in enumerate(steps):
        schema.step(version, each)
    return schema


def test_the_name_of_a_channel_then() -> None:
    """Back through all steps; none before it was added."""
    schema = schema_of(add_channel("a"), rename_channel("a", "b"), rename_channel("b", "c"))
    assert [stored_name(schema, "c", 3, then, "") for then in (3, 2, 1, 0)] == ["c", "b", "a", None]
    assert stored_name(schema, "c", 3, 0, "elsewhere") == "c"
    again = schema_of(drop_channel("a"), add_channel("a"))
    assert [stored_name(again, "a", 2, then, "") for then in (1, 0)] == [None, None]


def test_a_value_inside_what_langgraph_puts_around_it() -> None:
    """Snapshots stay snapshots, and what overwrites still does."""
    schema = schema_of(
        convert_channel("a", marked), split("a", ("b", "c"), lambda v: (v[:1], v[1:]))
    )
    assert value_up(schema, "c", _DeltaSnapshot(["x", "y"]), 0, 2, "") == _DeltaSnapshot(["y!"])
    assert value_up(schema, "b", Overwrite(["x", "y"]), 0, 2, "") == Overwrite(["x!"])
    assert value_up(schema, "b", ["x"], 1, 2, "") == ["x"]
    assert stored_name(schema, "b", 2, 0, "") == "a"


def test_a_history_that_cannot_be_told() -> None:
    """Of what came from several channels, or by a function that may have touched it."""
    with pytest.raises(EvolutionError, match="cannot be told"):
        stored_name(schema_of(merge(("a", "b"), "c", list)), "c", 1, 0, "")
    for channels, fits in ((None, False), (["a"], False), (["b"], True)):
        schema = StateSchema(version=1)
        schema.step(0, channels=channels)(lambda values: values)
        if fits:
            assert stored_name(schema, "a", 1, 0, "") == "a"
        else:
            with pytest.raises(EvolutionError, match="cannot be told"):
                stored_name(schema, "a", 1, 0, "")
    schema = StateSchema(version=1)
    schema.step(0, updates=lambda values: {"a": marked(values["a"])})(lambda values: values)
    assert value_up(schema, "a", ["x"], 0, 1, "") == ["x!"]


def test_the_writes_of_a_snapshot_that_are_of_no_task() -> None:
    """The input of a later run, kept on the checkpoint before it for its DeltaChannels."""
    checkpoint = {
        "v": 4,
        "id": "1ef4f797-8335-6428-8001-8a1503f9b875",
        "channel_values": {},
        "channel_versions": {"items": 1},
        "versions_seen": {},
        "updated_channels": None,
    }
    held = (Write("11111111-2222-3333-4444-555555555555", "", "items", ["x"], 0),)
    before = Snapshot("", 0, checkpoint, {"step": 1}, held)
    after = evolved(before, schema_of(rename_channel("items", "list"), rename_node("a", "b")), 2)
    assert after.writes == (Write(held[0].task, "", "list", ["x"], 2),)
