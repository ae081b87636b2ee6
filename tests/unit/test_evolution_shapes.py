"""What an operation changes in a checkpoint and in what waits on it, place by place."""

from __future__ import annotations

import copy
from typing import Any

import pydantic
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send

from langgraph_durable_state import EvolutionError
from langgraph_durable_state.decisions.evolution import tasks
from langgraph_durable_state.decisions.evolution.evolving import evolved, shown, touched
from langgraph_durable_state.decisions.evolution.snapshot import Snapshot, Write
from langgraph_durable_state.decisions.evolution.tasks import Task
from langgraph_durable_state.decisions.reviving import permitting
from langgraph_durable_state.decisions.serializing import Serializer
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
NULL = "00000000-0000-0000-0000-000000000000"
NOBODY = "11111111-2222-3333-4444-555555555555"
PARENT_NS = f"outer:{NOBODY}"


def checkpoint(**changed: Any) -> dict[str, Any]:
    """A graph of ask, b and last, with two messages; ask and what was sent to it are to run."""
    made = {
        "v": 4,
        "id": ID,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {
            "msgs": ["m"],
            "other": 1,
            "branch:to:ask": None,
            "join:ask+b:last": {"b"},
            "join:b+c:ask": set(),
            "__pregel_tasks": [Send("b", 0), Send("ask", 1)],
        },
        "channel_versions": {
            "__start__": 2,
            "msgs": 3,
            "other": 2,
            "branch:to:ask": 3,
            "join:ask+b:last": 3,
            "join:b+c:ask": 1,
            "__pregel_tasks": 3,
        },
        "versions_seen": {
            "__input__": {},
            "__start__": {"__start__": 1},
            "ask": {"branch:to:ask": 2, "join:b+c:ask": 1},
            "reader": {"msgs": 2},
            "__interrupt__": {"msgs": 2, "other": 2, "branch:to:ask": 2},
            "__snapshot_bumps__": {"ask|msgs": 2, "ask:branch:to:ask": 1, "b|msgs": 2},
        },
        "updated_channels": ["__pregel_tasks", "branch:to:ask", "join:ask+b:last", "msgs"],
    }
    return made | changed


METADATA = {
    "source": "loop",
    "step": 4,
    "parents": {"": "p"},
    "counters_since_delta_snapshot": {"msgs": (1, 2)},
}


def frame(ns: str = "") -> tasks.Frame:
    return tasks.frame(ns, checkpoint(), METADATA)


def asking(node: str = "ask", *more: str) -> Task:
    join = f"join:b+c:{node}"
    return Task(node, triggers=frozenset({f"branch:to:{node}", join, *more}))


def writes(node: str = "ask", ns: str = "", msgs: str = "msgs") -> tuple[Write, ...]:
    """What waits: an answered question and the next one of a node, a finished `Send`, an update
    from outside, an answer for whoever asks, a finished other node."""
    pulled, pushed = asking(node), Task(node, 1)
    one, two = tasks.task_id(frame(ns), pulled), tasks.task_id(frame(ns), pushed)
    ask = Interrupt("two?", tasks.interrupt_id(tasks.task_ns(frame(ns), pulled), 1))
    b = tasks.task_id(frame(ns), Task("b", triggers=frozenset({"branch:to:b"})))
    pull, push = f"~__pregel_pull, {node}", "~__pregel_push, 0000000001, 0000000000"
    found = [
        Write(NULL, "", "__resume__", "for all", 0),
        Write(NOBODY, "", msgs, ["outside"], 0),
        Write(one, pull, "__interrupt__", (ask,), 0),
        Write(one, pull, "__resume__", ["one!"], 0),
        Write(b, "~__pregel_pull, b", msgs, ["from b"], 0),
        Write(b, "~__pregel_pull, b", f"branch:to:{node}", None, 0),
        Write(b, "~__pregel_pull, b", f"join:{node}+b:last", "b", 0),
        Write(b, "~__pregel_pull, b", "__pregel_tasks", Send(node, 2), 0),
        Write(two, push, msgs, ["from what was sent"], 0),
        Write(two, push, f"join:{node}+b:last", node, 0),
        Write(two, push, "__error_source_node__", node, 0),
    ]
    return tuple(sorted(found, key=lambda each: (each.path, each.task)))


def snapshot(ns: str = "", **changed: Any) -> Snapshot:
    return Snapshot(ns, 0, checkpoint(**changed), METADATA, writes(ns=ns))


def schema(*steps: Operation | list[Operation]) -> StateSchema:
    made = StateSchema(version=len(steps), graph="test")
    for version, step in enumerate(steps):
        made.step(version, *(step if isinstance(step, list) else [step]))
    return made


def up(before: Snapshot, *steps: Operation | list[Operation]) -> Snapshot:
    """The snapshot after the steps, which have not changed it itself."""
    kept = copy.deepcopy(before)
    after = evolved(before, schema(*steps), len(steps))
    assert before == kept
    return after


def part(found: Snapshot, name: str) -> Any:
    return found.checkpoint[name]


# -- a node is renamed: each place of EVOLUTION ----------------------------------------------

NODE = rename_node("ask", "human")


def test_the_channels_that_start_it() -> None:
    """In values and in versions."""
    after = up(snapshot(), NODE)
    for name in ("channel_values", "channel_versions"):
        assert "branch:to:human" in part(after, name)
        assert "ask" not in str({*part(after, name)} - {"__pregel_tasks"})
    assert part(after, "channel_versions")["branch:to:human"] == 3


def test_the_updated_channels() -> None:
    """Else the node is shown as the next one and never runs."""
    expected = ["__pregel_tasks", "branch:to:human", "join:human+b:last", "msgs"]
    assert part(up(snapshot(), NODE), "updated_channels") == expected


def test_the_versions_that_it_has_seen() -> None:
    """Its own entry, and the channel in the breakpoints' entry."""
    seen = part(up(snapshot(), NODE), "versions_seen")
    assert "ask" not in seen
    assert seen["human"] == {"branch:to:human": 2, "join:b+c:human": 1}
    assert seen["__interrupt__"] == {"msgs": 2, "other": 2, "branch:to:human": 2}


def test_the_notes_of_snapshots() -> None:
    """LangGraph notes by node and channel which versions were only snapshots."""
    marks = part(up(snapshot(), NODE), "versions_seen")["__snapshot_bumps__"]
    assert marks == {"human|msgs": 2, "human:branch:to:human": 1, "b|msgs": 2}


def test_what_is_sent_to_it() -> None:
    """In the channel of tasks, with what it is sent."""
    sent = part(up(snapshot(), NODE), "channel_values")["__pregel_tasks"]
    assert sent == [Send("b", 0), Send("human", 1)]


def test_the_joins_that_wait_for_it() -> None:
    """The name and who has arrived."""
    values = part(
        up(
            snapshot(
                channel_values={"join:ask+b:last": {"ask"}, "join:ask+a:late": ({"ask"}, True)},
                channel_versions={"join:ask+b:last": 3, "join:ask+a:late": 3},
            ),
            NODE,
        ),
        "channel_values",
    )
    assert values == {"join:human+b:last": {"human"}, "join:human+a:late": ({"human"}, True)}


@pytest.mark.parametrize("ns", ["", PARENT_NS])
def test_what_waits(ns: str) -> None:
    """Tasks, paths, interrupts, what is for its channels, what is sent to it: as if its code had
    always had the new name."""
    at = "outer" if ns else ""
    after = up(snapshot(ns), rename_node("ask", "human", at=at))
    expected = sorted(writes("human", ns), key=lambda each: (each.path, each.task))
    assert [*after.writes] == [Write(w.task, w.path, w.channel, w.value, 1) for w in expected]


def test_a_finished_task_whose_path_was_not_stored() -> None:
    """It is found by its id."""
    bare = Snapshot(
        "",
        0,
        checkpoint(),
        METADATA,
        tuple(Write(w.task, "", w.channel, w.value, 0) for w in writes()),
    )
    ids = {w.task for w in up(bare, NODE).writes}
    assert ids == {w.task for w in writes("human")}


def test_a_graph_inside_a_renamed_node() -> None:
    """Its tasks' ids, its interrupts' and its metadata hold its namespace."""
    inner = f"{PARENT_NS}|in:{NOBODY}"
    before = Snapshot(
        inner, 0, checkpoint(), METADATA | {"parents": {"": "p", PARENT_NS: "q"}}, writes(ns=inner)
    )
    now = f"new:{NULL}|in:{NOBODY}"
    after = evolved(before, schema(rename_node("outer", "new")), 1, now)
    assert after.ns == now
    assert after.checkpoint == before.checkpoint
    assert after.metadata["parents"] == {"": "p", f"new:{NULL}": "q"}
    assert {w.task for w in after.writes} == {w.task for w in writes(ns=now)}
    assert [w.value for w in after.writes if w.channel == "__interrupt__"] == [
        w.value for w in writes(ns=now) if w.channel == "__interrupt__"
    ]


def test_an_interrupt_that_a_graph_below_raised() -> None:
    """Its new id is told by who knows that graph."""
    below = Interrupt("?", "a" * 32)
    task = next(w for w in writes() if w.channel == "__interrupt__")
    before = Snapshot(
        "", 0, checkpoint(), METADATA, (Write(task.task, task.path, "__interrupt__", (below,), 0),)
    )
    after = evolved(before, schema(NODE), 1, interrupts={"a" * 32: "b" * 32})
    assert [each.id for each in after.writes[0].value] == ["b" * 32]
    assert below.id == "a" * 32


def test_a_task_whose_id_cannot_be_made_again() -> None:
    """It is named, and nothing is guessed."""
    lost = Write(NOBODY, "~__pregel_pull, ask", "msgs", [], 0)
    before = Snapshot("", 0, checkpoint(), METADATA, (lost,))
    with pytest.raises(EvolutionError, match=f"Task {NOBODY} of node 'ask'"):
        evolved(before, schema(NODE), 1)
    with pytest.raises(EvolutionError):  # it may come before, for all that is stored
        evolved(before, schema(rename_node("x", "y")), 1)
    assert up(before, CHANNEL).writes[0].task == NOBODY


def test_a_call_whose_callers_id_changes() -> None:
    """A node before its caller has another name: the call would be made again, so it is refused."""
    path = "~__pregel_push, ~__pregel_pull, ask, 0000000000, 0000000001"
    call = Write(NOBODY, path, "__return__", 1, 0)
    before = Snapshot("", 0, checkpoint(), METADATA, (call,))
    with pytest.raises(EvolutionError, match="a call made by node 'ask'"):
        evolved(before, schema(rename_node("b", "c2")), 1)
    assert up(before, rename_node("last", "end")).writes[0].task == NOBODY


def test_a_node_of_another_graph() -> None:
    """Only the graph that an operation is for is touched."""
    before = snapshot(PARENT_NS)
    after = up(before, NODE, rename_channel("msgs", "messages", at="inner"))
    assert (after.checkpoint, after.metadata) == (before.checkpoint, before.metadata)


@pytest.mark.parametrize("at", ["*", "out*", "outer"])
def test_a_pattern(at: str) -> None:
    """A graph is told by the names of the nodes that it is in."""
    after = up(snapshot(PARENT_NS), rename_channel("msgs", "messages", at=at))
    assert "messages" in part(after, "channel_values")


def test_a_path_that_a_step_has_renamed() -> None:
    """Each step speaks of the names before it."""
    steps = [rename_node("outer", "new"), rename_channel("msgs", "messages", at="new")]
    after = evolved(snapshot(PARENT_NS), schema(*steps), 2, f"new:{NULL}")
    assert "messages" in part(after, "channel_values")


# -- a channel is renamed --------------------------------------------------------------------

CHANNEL = rename_channel("msgs", "messages")


def test_a_renamed_channel_has_its_value_and_version() -> None:
    """Under the new name alone."""
    after = up(snapshot(), CHANNEL)
    assert part(after, "channel_values")["messages"] == ["m"]
    assert part(after, "channel_versions")["messages"] == 3
    for name in ("channel_values", "channel_versions"):
        assert "msgs" not in part(after, name)


def test_who_has_seen_a_renamed_channel() -> None:
    """Nodes that it starts, breakpoints, and the notes of snapshots."""
    seen = part(up(snapshot(), CHANNEL), "versions_seen")
    assert seen["reader"] == {"messages": 2}
    assert seen["__interrupt__"] == {"messages": 2, "other": 2, "branch:to:ask": 2}
    assert seen["__snapshot_bumps__"] == {
        "ask|messages": 2,
        "ask:branch:to:ask": 1,
        "b|messages": 2,
    }


def test_a_renamed_channel_that_was_updated() -> None:
    """It still was."""
    expected = ["__pregel_tasks", "branch:to:ask", "join:ask+b:last", "messages"]
    assert part(up(snapshot(), CHANNEL), "updated_channels") == expected


def test_the_counters_of_a_renamed_channel() -> None:
    """How long ago its last snapshot was."""
    after = up(snapshot(), CHANNEL)
    assert after.metadata["counters_since_delta_snapshot"] == {"messages": (1, 2)}


def test_what_waits_for_a_renamed_channel() -> None:
    """Tasks keep their ids."""
    expected = [Write(w.task, w.path, w.channel, w.value, 1) for w in writes(msgs="messages")]
    assert [*up(snapshot(), CHANNEL).writes] == expected


def test_an_input_that_was_not_taken_up() -> None:
    """A run that died before its first step."""
    before = snapshot(channel_values={"__start__": {"msgs": ["hi"], "other": 1}})
    assert part(up(before, CHANNEL), "channel_values") == {
        "__start__": {"messages": ["hi"], "other": 1}
    }


@pytest.mark.parametrize("gives", ["PQ", {"a": 1, "b": 2}, {1, 2}])
def test_what_is_split_into_no_list_is_refused(gives: Any) -> None:
    """A dict would give its keys, a text its letters; the step is named."""
    before = snapshot(channel_values={"msgs": "x"})
    with pytest.raises(EvolutionError, match="not a list, in the step to version 1"):
        up(before, split("msgs", ["a", "b"], lambda _: gives))


class Part(pydantic.BaseModel):
    n: int


class Given(pydantic.BaseModel):
    """As it is today: `msgs` is called `messages`, and `total` is a text."""

    messages: list[str] = []
    total: str = ""
    parts: list[Part] = []
    more: str = "not given"


def test_an_input_that_waits_as_a_model_is_what_it_was_given() -> None:
    """By the fields that it had then; the values are what today's class makes of them."""
    stored = {"msgs": ["a"], "total": 3, "parts": [{"n": 1}]}
    serde = JsonPlusSerializer()
    ours = Serializer(permitting(None, [Given]))
    made = pydantic.create_model("Given", __module__=__name__, **dict.fromkeys(stored, (Any, ...)))
    given = ours.loads(*serde.dumps_typed(made(**stored)))
    before = snapshot(channel_values={"__start__": given})
    after = up(before, rename_channel("msgs", "messages"), convert_channel("total", str))
    assert after.checkpoint["channel_values"] == {
        "__start__": {"messages": ["a"], "total": "3", "parts": [Part(n=1)]}
    }
    kept = up(before, rename_node("x", "y")).checkpoint["channel_values"]
    assert kept["__start__"] is given


def test_an_input_that_waits_as_another_object_is_refused() -> None:
    """Read as today's class it may have lost the field already; a list shows it nevertheless."""
    before = snapshot(channel_values={"other": 1, "__start__": Interrupt("any object")})
    with pytest.raises(EvolutionError, match="as a Interrupt"):
        up(before, CHANNEL)
    made = shown(before, schema(CHANNEL), 1)
    assert made.checkpoint["channel_values"] == {"other": 1}


# -- the other operations --------------------------------------------------------------------


def test_a_dropped_channel_leaves_nothing() -> None:
    """Nor what breakpoints have seen of it, which would stop the next run for ever."""
    after = up(snapshot(), drop_channel("msgs"))
    told = str({**after.checkpoint, "metadata": after.metadata, "writes": after.writes})
    assert "msgs" not in told
    assert "counters_since_delta_snapshot" not in after.metadata


def test_a_task_of_whose_writes_none_is_left() -> None:
    """It has run, and does not run again."""
    b = tasks.task_id(frame(), Task("b", triggers=frozenset({"branch:to:b"})))
    one = Write(b, "~__pregel_pull, b", "msgs", ["x"], 0)
    after = up(Snapshot("", 0, checkpoint(), METADATA, (one,)), drop_channel("msgs"))
    assert after.writes == (Write(b, "~__pregel_pull, b", "__no_writes__", None, 1),)


def test_an_added_channel() -> None:
    """It has its value, and is news to nobody: no breakpoint sees a change."""
    after = up(snapshot(), [add_channel("lang", default="en"), add_channel("tags", factory=list)])
    assert part(after, "channel_values") == {
        **checkpoint()["channel_values"],
        "lang": "en",
        "tags": [],
    }
    assert part(after, "channel_versions")["lang"] == 3
    assert part(after, "versions_seen")["__interrupt__"]["lang"] == 3
    assert "lang" not in part(after, "updated_channels")


def test_an_added_default_is_nobody_elses() -> None:
    """Each checkpoint has a copy."""
    told = schema(add_channel("tags", default=[]))
    one, two = (evolved(snapshot(), told, 1) for _ in range(2))
    part(one, "channel_values")["tags"].append("x")
    assert part(two, "channel_values")["tags"] == []


def test_a_thread_without_state_gets_none() -> None:
    """LangGraph takes a checkpoint with versions for one to resume."""
    before = snapshot(channel_values={}, channel_versions={})
    assert part(up(before, add_channel("lang", default="en")), "channel_values") == {}


def test_a_converted_channel() -> None:
    """What it holds, what waits for it, what an input has for it; and in what LangGraph puts
    around a value."""
    convert = convert_channel("msgs", lambda value: tuple(value))
    assert part(up(snapshot(), convert), "channel_values")["msgs"] == ("m",)
    waits = [w.value for w in up(snapshot(), convert).writes if w.channel == "msgs"]
    assert sorted(waits) == [("from b",), ("from what was sent",), ("outside",)]
    values = {"msgs": _DeltaSnapshot(["m"]), "__start__": {"msgs": Overwrite(["i"])}}
    after = part(up(snapshot(channel_values=values), convert), "channel_values")
    assert after == {"msgs": _DeltaSnapshot(("m",)), "__start__": {"msgs": Overwrite(("i",))}}


def test_a_function_that_changes_what_it_is_given() -> None:
    """It changes nothing that is stored."""

    def careless(value: list[str]) -> list[str]:
        value.append("more")
        return value

    assert part(up(snapshot(), convert_channel("msgs", careless)), "channel_values")["msgs"] == [
        "m",
        "more",
    ]


def test_a_function_that_fails() -> None:
    """The channel is named."""
    with pytest.raises(EvolutionError, match="channel 'msgs' failed") as told:
        up(snapshot(), convert_channel("msgs", lambda value: value.nothing))
    assert told.value.channel == "msgs"
    assert told.value.checkpoint == ID


def test_a_split_channel() -> None:
    """Each part has its version, and what waits for the whole waits for the parts."""
    after = up(snapshot(), split("msgs", ("first", "rest"), lambda v: (v[:1], v[1:])))
    values, versions = part(after, "channel_values"), part(after, "channel_versions")
    assert (values["first"], values["rest"]) == (["m"], [])
    assert (versions["first"], versions["rest"]) == (3, 3)
    assert {"first", "rest"} < {*part(after, "updated_channels")}
    waits = [(w.channel, w.value) for w in after.writes if w.task == NOBODY]
    assert waits == [("first", ["outside"]), ("rest", [])]


def test_merged_channels() -> None:
    """The newest version of them; news to a breakpoint if one of them was."""
    plain = {"step": 4}
    before = Snapshot("", 0, checkpoint(), plain)
    together = merge(("msgs", "other"), "both", lambda msgs, other: [*msgs, other])
    after = up(before, together)
    assert part(after, "channel_values")["both"] == ["m", 1]
    assert part(after, "channel_versions")["both"] == 3
    assert part(after, "versions_seen")["__interrupt__"]["both"] == 2
    caught_up = checkpoint()
    caught_up["versions_seen"]["__interrupt__"] |= {"msgs": 3}
    after = up(Snapshot("", 0, caught_up, plain), together)
    assert part(after, "versions_seen")["__interrupt__"]["both"] == 3


def test_half_of_merged_channels_waits() -> None:
    """It is refused: nobody knows what the whole is."""
    before = Snapshot("", 0, checkpoint(), {"step": 4}, writes())
    with pytest.raises(EvolutionError, match="An update of msgs waits"):
        up(before, merge(("msgs", "other"), "both", lambda msgs, other: [*msgs, other]))
    whole = (Write(NOBODY, "", "other", 2, 0), Write(NOBODY, "", "msgs", ["x"], 0))
    after = up(
        Snapshot("", 0, checkpoint(), {"step": 4}, whole),
        merge(("msgs", "other"), "both", lambda msgs, other: [*msgs, other]),
    )
    assert [(w.channel, w.value) for w in after.writes] == [("both", ["x", 2])]


def test_a_merged_channel_that_only_its_history_tells() -> None:
    """It is refused, and not taken for empty."""
    values = {"other": 1}
    with pytest.raises(EvolutionError, match="'msgs' holds only"):
        up(snapshot(channel_values=values), merge(("msgs", "other"), "both", lambda *v: v))


def test_a_renamed_field_of_plain_dicts() -> None:
    """One, or a list of them."""
    values = {"msgs": [{"txt": 1}, {"text": 2}], "other": {"txt": 3, "k": 4}}
    before = Snapshot("", 0, checkpoint(channel_values=values), METADATA)
    after = up(
        before,
        [rename_field("msgs", None, "txt", "text"), rename_field("other", None, "txt", "text")],
    )
    assert part(after, "channel_values") == {
        "msgs": [{"text": 1}, {"text": 2}],
        "other": {"text": 3, "k": 4},
    }


# -- nodes that are no more ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ({"branch:to:ask": None}, ()),
        ({"__pregel_tasks": [Send("ask", 1)]}, ()),
        ({"join:b+c:ask": {"b"}}, ()),
        ({"join:ask+b:last": {"b"}}, ()),
        ({}, (Write(NULL, "", "branch:to:ask", None, 0),)),
        ({}, (Write(NULL, "", "__pregel_tasks", Send("ask", 1), 0),)),
        ({}, (Write(NOBODY, "~__pregel_pull, ask", "msgs", ["x"], 0),)),
    ],
)
def test_a_dropped_node_that_something_waits_for(
    values: dict[str, Any], held: tuple[Write, ...]
) -> None:
    """It is refused, with what would be lost."""
    before = Snapshot("", 0, checkpoint(channel_values=values), METADATA, held)
    with pytest.raises(EvolutionError, match="waits for node 'ask'"):
        up(before, drop_node("ask"))


def test_a_dropped_node_leaves_nothing() -> None:
    """No version of a channel that nobody reads, which would stop at breakpoints for ever."""
    values = {"msgs": ["m"], "join:b+c:ask": set[str](), "join:ask+b:last": set[str]()}
    before = Snapshot("", 0, checkpoint(channel_values=values), METADATA)
    left = str(up(before, drop_node("ask")).checkpoint)
    assert "ask" not in left.replace("__pregel_tasks", "")


def test_another_node_takes_over() -> None:
    """What waits for the one waits for the other, under the id that LangGraph gives it."""
    before = checkpoint()
    before["channel_versions"] |= {"join:c+d:human": 1, "branch:to:human": 1}
    task = asking("human", "join:c+d:human")
    held = tuple(w for w in writes() if w.path == "~__pregel_pull, ask")
    after = up(Snapshot("", 0, before, METADATA, held), drop_node("ask", to="human"))
    assert part(after, "channel_versions")["branch:to:human"] == 3
    assert part(after, "versions_seen")["human"] == {"branch:to:human": 2, "join:b+c:human": 1}
    assert {w.task for w in after.writes} == {tasks.task_id(frame(), task)}


def test_two_nodes_that_are_to_run_and_are_now_one() -> None:
    """They are refused: what one has done would stand for both."""
    values = {"branch:to:ask": None, "branch:to:b": None}
    versions = {"branch:to:ask": 3, "branch:to:b": 3}
    before = Snapshot("", 0, checkpoint(channel_values=values, channel_versions=versions), METADATA)
    for operation in (drop_node("ask", to="b"), rename_node("ask", "b")):
        with pytest.raises(EvolutionError, match="both to run"):
            up(before, operation)


def test_a_channel_in_anothers_place() -> None:
    """It is refused: what the other holds would be lost."""
    with pytest.raises(EvolutionError, match="there is such a channel"):
        up(snapshot(), rename_channel("msgs", "other"))


# -- writes of several versions --------------------------------------------------------------


def test_a_newer_codes_writes_win() -> None:
    """Whole: a task's ordinary writes are never mixed, each special channel is for itself."""
    old = tasks.task_id(frame(), asking())
    new = tasks.task_id(frame(), asking("human"))
    pull = "~__pregel_pull, "
    before = Snapshot(
        "",
        0,
        checkpoint(),
        METADATA,
        (
            Write(old, pull + "ask", "msgs", ["old"], 0),
            Write(old, pull + "ask", "other", 0, 0),
            Write(old, pull + "ask", "__resume__", ["one!"], 0),
            Write(old, pull + "ask", "__error__", "old", 0),
            Write(new, pull + "human", "msgs", ["new"], 1),
            Write(new, pull + "human", "__error__", "new", 1),
        ),
    )
    after = {(w.task, w.channel): w.value for w in up(before, NODE).writes}
    assert after == {
        (new, "msgs"): ["new"],
        (new, "__resume__"): ["one!"],
        (new, "__error__"): "new",
    }


def test_new_codes_writes_on_an_old_checkpoint_alone() -> None:
    """They are brought on from where they are."""
    new = tasks.task_id(frame(), asking("human"))
    held = (Write(new, "~__pregel_pull, human", "msgs", ["new"], 1),)
    after = up(Snapshot("", 0, checkpoint(), METADATA, held), NODE, CHANNEL)
    assert after.writes == (Write(new, "~__pregel_pull, human", "messages", ["new"], 2),)


# -- what the user's own function does -------------------------------------------------------


def free(**options: Any) -> StateSchema:
    made = StateSchema(version=1, graph="test")

    @made.step(0, **options)
    def forward(values: dict[str, Any]) -> dict[str, Any]:
        msgs = values.pop("msgs")
        return {**values, "text": "+".join(msgs)}

    return made


def test_a_function_on_all_channels() -> None:
    """It is given the state alone, and what it gives is the state."""
    before = Snapshot("", 0, checkpoint(), METADATA)
    after = evolved(before, free(), 1)
    values = part(after, "channel_values")
    assert values["text"] == "m"
    assert "msgs" not in str(after.checkpoint)
    assert values["branch:to:ask"] is None
    assert part(after, "channel_versions")["text"] == 3


def test_an_update_that_a_function_would_have_to_change() -> None:
    """It is refused, unless it was declared how."""
    held = (Write(NOBODY, "", "msgs", ["a", "b"], 0), Write(NOBODY, "", "other", 2, 0))
    before = Snapshot("", 0, checkpoint(), METADATA, held)
    with pytest.raises(EvolutionError, match="updates=") as told:
        evolved(before, free(), 1)
    assert told.value.channel == "msgs"
    after = evolved(before, free(updates=lambda v: {"text": "+".join(v["msgs"]), "other": 3}), 1)
    assert [(w.channel, w.value) for w in after.writes] == [("text", "a+b"), ("other", 3)]


def test_an_update_that_a_function_leaves_alone() -> None:
    """It passes."""
    held = (Write(NOBODY, "", "other", 2, 0),)
    after = evolved(Snapshot("", 0, checkpoint(), METADATA, held), free(), 1)
    assert after.writes == (Write(NOBODY, "", "other", 2, 1),)


def test_a_function_on_some_channels() -> None:
    """The others it neither sees nor gives."""
    told = StateSchema(version=1)
    given: list[dict[str, Any]] = []

    @told.step(0, channels=("other",))
    def forward(values: dict[str, Any]) -> dict[str, Any]:
        given.append(values)
        return {"msgs": 1} if values["other"] == 2 else {"other": 5}

    assert part(evolved(snapshot(), told, 1), "channel_values")["other"] == 5
    assert given[0] == {"other": 1}
    values = {"other": 2, "msgs": []}
    with pytest.raises(EvolutionError, match="'msgs', which is not its"):
        evolved(snapshot(channel_values=values), told, 1)


# -- what may be reused of stored bytes ------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (CHANNEL, {"msgs", "messages", "__start__"}),
        (add_channel("x"), {"x", "__start__"}),
        (convert_channel("x", str), {"x", "__start__"}),
        (split("x", ("a", "b"), list), {"x", "a", "b", "__start__"}),
        (NODE, {"branch:to:human", "__pregel_tasks"}),
        (rename_field("x", None, "a", "b"), {"x", "__start__"}),
        (rename_channel("x", "y", at="elsewhere"), set()),
    ],
)
def test_bytes_that_are_not_reused(operation: Operation, expected: set[str]) -> None:
    """Of whatever a step has touched."""
    assert touched(schema(operation), 0, 1, "") == expected


def test_no_bytes_are_reused() -> None:
    """Where a function has touched all, and where a name has gone from one node to another."""
    assert touched(free(), 0, 1, "") is None
    assert touched(schema(drop_node("a"), rename_node("b", "a")), 0, 2, "") is None
    assert touched(schema(rename_field("x", "m:C", "a", "b")), 0, 1, "") is None
    assert touched(schema(NODE), 1, 1, "") == frozenset()
    named = schema(rename_node("a", "b"), rename_channel("x", "y", at="b"))
    assert touched(named, 0, 2, "b") == {"x", "y", "__start__"}
