"""The chain of a thread's events."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from langgraph_durable_state.decisions import recording
from langgraph_durable_state.words import EventRow, Tip

THREAD, OTHER = UUID(int=1), UUID(int=2)


def chained(*kinds: str, thread: UUID = THREAD) -> list[EventRow]:
    rows: list[EventRow] = []
    tip = Tip(0, b"", 5)
    for kind in kinds:
        row = recording.following(thread, tip, kind, {"kind": kind})
        rows.append(row)
        tip = Tip(row.n, row.digest, tip.now + 1)
    return rows


def test_a_chain_is_sound_and_a_part_of_it_after_what_is_known() -> None:
    rows = chained("a", "b", "c")
    assert [row.n for row in rows] == [1, 2, 3]
    assert recording.breaks(THREAD, rows) == []
    assert recording.breaks(THREAD, rows[1:], Tip(1, rows[0].digest, 0)) == []


def test_an_event_that_was_changed_moved_or_removed_is_noticed() -> None:
    a, b, c = chained("a", "b", "c")
    for field, value in {"at": 9, "kind": "z", "detail": "{}"}.items():
        assert broken(a, replace(b, **{field: value}), c) == [2]
    assert broken(a, replace(b, digest=b"x" * 16), c) == [2, 3]
    assert broken(a, c) == [3]
    assert broken(b, c) == [2]
    assert broken(a, replace(c, n=2), replace(b, n=3)) == [2, 3]
    assert broken(replace(a, n=0), a, b, c) == [0, 1]
    assert [n for n, _ in recording.breaks(OTHER, [a, b, c])] == [1, 2, 3]


def broken(*rows: EventRow) -> list[int]:
    """The numbers of the events at which a chain is broken."""
    return [n for n, _ in recording.breaks(THREAD, rows)]


def test_a_detail_has_one_spelling_that_jsonb_can_hold() -> None:
    spelled = recording.spelled({"b": [1, None, True], "a": "x\x00y\ud800"})
    assert spelled.startswith('{"a":"x')
    assert "\x00" not in spelled
    spelled.encode()
    assert recording.respelled(' {"b" : [1,null, true], "a": "x"}') == '{"a":"x","b":[1,null,true]}'
