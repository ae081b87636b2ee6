"""What a report tells, and what a checkpoint tells beside its values."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Interrupt, Send

from langgraph_durable_state import RecoveryReport
from langgraph_durable_state.decisions import findings
from langgraph_durable_state.recovery import Damage, PendingInterrupt, ToolCall
from langgraph_durable_state.testing import memory_saver
from tests.cases import at

REPORT = RecoveryReport(
    "t",
    "",
    "fall_back",
    "the head is damaged: <its parent> is served",
    tenant="acme",
    asked="c3",
    checkpoint="c2",
    tier="postgres",
    skipped=(("c3", "its digest does not match"),),
    last_sound="c2",
    age=65.0,
    version=0,
    interrupts=(PendingInterrupt("i", "task", "'go on?'"),),
    unrecorded=("agent",),
    dangling=(ToolCall("call-1", "search", "messages"),),
    damage=(Damage("postgres", "c3", "checkpoint", "its digest does not match"),),
    _head=b"secret head",
)


def test_a_report_reads_as_a_few_lines() -> None:
    assert str(REPORT).splitlines() == [
        "Thread       't' of tenant 'acme'",
        "Decision     fall_back: the head is damaged: <its parent> is served",
        "Asked for    c3",
        "Served       c2, from postgres, 65 s old",
        "Skipped      c3: its digest does not match",
        "Version      0, this code has 0",
        "Waits for    'go on?' (interrupt i, task task)",
        "May have run agent",
        "Unanswered   search (call-1, channel messages)",
        "Damage       checkpoint c3 in postgres: its digest does not match",
    ]


def test_a_notebook_shows_a_table_and_nothing_of_it_is_taken_for_markup() -> None:
    shown = REPORT._repr_html_()
    assert shown.startswith("<table>")
    assert shown.count("<tr>") == len(str(REPORT).splitlines())
    assert "&lt;its parent&gt;" in shown


def test_a_report_is_frozen_and_has_a_form_for_machines() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        REPORT.decision = "resume"  # type: ignore[misc]
    told = json.loads(json.dumps(REPORT.as_dict()))
    assert (told["decision"], told["checkpoint"], told["damage"][0]["checkpoint"]) == (
        "fall_back",
        "c2",
        "c3",
    )
    assert not any(name.startswith("_") for name in told)
    assert "secret" not in repr(REPORT)


def test_what_would_be_repaired_is_what_the_other_tier_has() -> None:
    right = dataclasses.replace(REPORT.damage[0], repairable=True)
    both = dataclasses.replace(REPORT, damage=(*REPORT.damage, right))
    assert both.repairs == (right,)
    assert both.as_dict()["repairs"] == [both.as_dict()["damage"][1]]
    assert REPORT.as_dict()["repairs"] == []


# -- questions -------------------------------------------------------------------------------


def test_a_question_waits_until_its_own_task_has_an_answer() -> None:
    asked = [
        ("one", "__interrupt__", [Interrupt(value="go on?", id="a")]),
        ("two", "__interrupt__", (Interrupt(value="how?", id="b"),)),
        ("two", "__resume__", ["so"]),
        ("one", "messages", ["x"]),
    ]
    assert findings.interrupts(asked) == (PendingInterrupt("a", "one", "'go on?'"),)


def test_a_long_question_is_cut() -> None:
    (found,) = findings.interrupts([("t", "__interrupt__", [Interrupt(value="x" * 999, id="a")])])
    assert len(found.question) == 201


# -- nodes -----------------------------------------------------------------------------------


def checkpoint(
    values: dict[str, Any], versions: dict[str, str], seen: dict[str, dict[str, str]]
) -> dict[str, Any]:
    return {"channel_values": values, "channel_versions": versions, "versions_seen": seen}


def test_a_node_that_is_due_may_have_run_unless_something_of_it_is_stored() -> None:
    made = checkpoint(
        {"branch:to:a": None, "branch:to:b": None, "branch:to:c": None, "n": 1},
        {"branch:to:a": "2", "branch:to:b": "2", "branch:to:c": "1", "n": "2"},
        {"a": {"branch:to:a": "1"}, "c": {"branch:to:c": "1"}},
    )
    assert findings.unrecorded(made, []) == ("a", "b")
    assert findings.unrecorded(made, ["~__pregel_pull, b"]) == ("a",)


def test_a_channel_without_a_value_starts_nothing() -> None:
    made = checkpoint({}, {"branch:to:a": "2"}, {"a": {"branch:to:a": "1"}})
    assert findings.unrecorded(made, []) == ()


def test_the_input_is_due_until_it_was_seen() -> None:
    made = checkpoint({"__start__": {"n": 1}}, {"__start__": "1"}, {})
    assert findings.unrecorded(made, []) == ("__start__",)


@pytest.mark.parametrize(("arrived", "expected"), [({"a"}, ()), ({"a", "b"}, ("c",))])
def test_a_node_that_waits_for_several_is_due_when_all_have_come(
    arrived: set[str], expected: tuple[str, ...]
) -> None:
    made = checkpoint({"join:a+b:c": arrived}, {"join:a+b:c": "2"}, {})
    assert findings.unrecorded(made, []) == expected


def test_each_send_may_have_run_unless_something_of_it_is_stored() -> None:
    sends = [Send("w", 1), Send("w", 2), Send("v", 3)]
    made = checkpoint({"__pregel_tasks": sends}, {"__pregel_tasks": "2"}, {})
    assert findings.unrecorded(made, ["~__pregel_push, 0000000001, False"]) == ("w", "v")


# -- tool calls ------------------------------------------------------------------------------


CALLS = AIMessage(
    "",
    tool_calls=[{"id": "1", "name": "search", "args": {}}, {"id": "2", "name": "buy", "args": {}}],
)


def test_a_tool_call_dangles_until_a_message_answers_it() -> None:
    values = {"messages": [HumanMessage("?"), CALLS, ToolMessage("found", tool_call_id="1")]}
    assert findings.dangling(values, []) == (ToolCall("2", "buy", "messages"),)


def test_an_answer_among_the_pending_writes_counts() -> None:
    written = [("task", "messages", [ToolMessage("bought", tool_call_id="2")])]
    found = findings.dangling({"messages": [CALLS]}, written)
    assert found == (ToolCall("1", "search", "messages"),)


def test_messages_may_be_plain_dicts() -> None:
    asked = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "search"}}]}
    assert findings.dangling({"m": [asked]}, []) == (ToolCall("1", "search", "m"),)
    answer = {"role": "tool", "tool_call_id": "1", "content": "found"}
    assert findings.dangling({"m": [asked, answer]}, []) == ()


def test_values_that_are_no_messages_are_no_trouble() -> None:
    values = {"a": 1, "b": None, "c": [1, {"tool_calls": 7}], "d": {"tool_calls": ["x"]}}
    assert findings.dangling(values, []) == ()


# -- age -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1970-01-01T00:01:00+00:00", 60.0),
        ("1970-01-01T00:01:00", 60.0),
        ("soon", None),
        (None, None),
    ],
)
def test_a_checkpoint_tells_when_it_was_made_or_does_not(ts: object, expected: float) -> None:
    assert findings.made_at({"ts": ts}) == expected


def test_what_is_said_of_a_thread_of_which_there_is_nothing() -> None:
    assert memory_saver().recover(at()).why == "there is nothing: a new thread"
