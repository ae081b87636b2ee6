"""The checker finds what is planted in a history made by hand, and nothing in a sound one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from langgraph_durable_state import ConflictError, UnavailableError
from tests.chaos.checker import Checkpoint, Stored, check
from tests.chaos.journal import CONFLICT, DONE, UNKNOWN, Event, History, Journal, Op, read_journals
from tests.chaos.state import PLACES, batch, flaw, successor, tokens_of

BEHIND = {"write_policy": "write_behind"}


class Tale:
    """A history told one call after the other, each a second long, and what is stored then."""

    def __init__(self, policy: dict[str, str] | None = None) -> None:
        self.history = History()
        self.line: list[Checkpoint] = []
        self.head: str | None = None
        self.trail: list[str] = []
        self.by_id: dict[str, bool] = {}
        self._policy = policy or {}
        self._now = 0.0

    def call(self, kind: str, outcome: str = DONE, since: float = 0.0, **facts: Any) -> None:
        """Any call; one that began `since` seconds before the one told last has ended."""
        start, self._now = self._now - since, self._now + 1.0
        end = math.inf if outcome == UNKNOWN else self._now
        op = Op("w", kind, PLACES[1], start, end, outcome, self._policy, facts)
        self.history.ops.append(op)
        self._now += 1.0

    def put(
        self,
        id: str,
        parent: str | None,
        outcome: str = DONE,
        *,
        guarded: bool = True,
        stored: bool = True,
        consumed: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """A put, stored behind all that was told before; it is the head unless it was refused."""
        facts = {"id": id, "parent": parent, "consumed": consumed or {}, "guarded": guarded}
        self.call("put", outcome, **facts, **more)
        if stored:
            self.line.append(Checkpoint(id, parent))
        if stored and outcome != CONFLICT:
            self.head = id

    def refuse(self, id: str, parent: str | None, **more: Any) -> None:
        """A put that lost against the head as it is."""
        told = {"refused": id, "actual": self.head} | more
        self.put(id, parent, CONFLICT, **told)

    def writes(self, id: str, task: str, token: str, outcome: str = DONE) -> None:
        """A task's writes, shown unless its first writes are there already."""
        self.call("writes", outcome, id=id, task=task, token=token)
        self.change(id, lambda c: replace(c, writes={task: token} | dict(c.writes)))

    def look(self, *seen: str | None, kind: str = "head", **more: Any) -> None:
        """A read that found these."""
        self.call(kind, seen=[id for id in seen if id is not None], **more)

    def wipe(self) -> None:
        """Redis forgets."""
        self.history.wipes.append(self._now)
        self._now += 1.0

    def die(self) -> None:
        """The worker is killed."""
        self.history.deaths["w"] = self._now
        self._now += 1.0

    def report(self, kind: str, id: str | None = None) -> None:
        """What an observer was told."""
        self.history.events.append(Event("w", kind, PLACES[1], self._now, id))
        self._now += 1.0

    def change(self, id: str, how: Callable[[Checkpoint], Checkpoint]) -> None:
        """Alters what is stored."""
        self.line = [how(each) if each.id == id else each for each in self.line]

    def forget(self, *ids: str) -> None:
        """Loses what is stored."""
        self.line = [each for each in self.line if each.id not in ids]

    def findings(self) -> list[str]:
        head = next((each for each in self.line if each.id == self.head), None)
        if self.head is not None and head is None:
            head = Checkpoint(self.head, None)
        stored = Stored(self.line, {"a reader": head}, self.trail, self.by_id)
        return [finding.what for finding in check(self.history, stored)]

    def found(self) -> str:
        """The only finding."""
        (only,) = self.findings()
        return only


@pytest.fixture
def tale() -> Tale:
    """Three checkpoints, one after the other, with a read after the second."""
    tale = Tale()
    tale.put("a", None)
    tale.put("b", "a")
    tale.look("b")
    tale.put("c", "b")
    return tale


@pytest.fixture
def behind() -> Tale:
    """The same by workers whose saver writes behind."""
    tale = Tale(BEHIND)
    tale.put("a", None)
    tale.put("b", "a")
    tale.look("b")
    tale.put("c", "b")
    return tale


class TestSound:
    def test_a_plain_history(self, tale: Tale) -> None:
        """Puts and a read."""
        assert tale.findings() == []

    def test_a_loser_a_fork_and_writes(self, tale: Tale) -> None:
        """All that the workers do."""
        tale.refuse("x", "a")
        tale.writes("c", "c/0", "d/0")
        tale.writes("c", "c/0", "e/0")
        tale.put("d", "c", consumed={"c/0": "d/0"})
        tale.put("f", "a", guarded=False)
        tale.look("f", "d", "x", "c", kind="list")
        tale.put("g", "f")
        assert tale.findings() == []

    def test_answers_that_were_lost(self, tale: Tale) -> None:
        """A put may be there or not, and so may writes; one made again was stored once."""
        tale.put("gone", "c", UNKNOWN, stored=False)
        tale.writes("c", "c/0", "gone/0", UNKNOWN)
        tale.change("c", lambda c: replace(c, writes={}))
        tale.put("d", "c", UNKNOWN)
        tale.put("d", "c", stored=False)
        assert tale.findings() == []

    def test_a_loser_that_was_not_told(self, tale: Tale) -> None:
        """It is kept between two heads, and nobody can tell that it is not one of them."""
        tale.put("x", "a", UNKNOWN)
        tale.put("d", "c")
        assert tale.findings() == []

    def test_reads_at_the_time_of_a_put(self, tale: Tale) -> None:
        """They see the head before it or after it, in any order."""
        tale.put("d", "c")
        tale.look("d", since=2.0)
        tale.look("c", since=4.0)
        assert tale.findings() == []


class TestLost:
    def test_an_acknowledged_checkpoint(self, tale: Tale) -> None:
        """The newest one is not there, and an older one is the head."""
        tale.forget("c")
        tale.head = "b"
        assert "lost: c was acknowledged or read" in tale.findings()

    def test_one_that_somebody_read(self, tale: Tale) -> None:
        """Its put was not answered, but it was there."""
        tale.put("d", "c", UNKNOWN, stored=False)
        tale.look("d")
        assert "lost: d was acknowledged or read" in tale.findings()

    def test_one_in_the_middle(self, tale: Tale) -> None:
        """What was made from it is not whole without it."""
        tale.forget("b")
        assert "the parent of c is gone" in tale.findings()

    def test_acknowledged_writes(self, tale: Tale) -> None:
        tale.writes("c", "c/0", "d/0")
        tale.change("c", lambda c: replace(c, writes={}))
        assert tale.found() == "lost: the writes of task c/0 on c"

    def test_one_that_is_not_found_by_its_id(self, tale: Tale) -> None:
        tale.look(kind="one", id="b")
        assert tale.found() == "b was known, and later not found by its id"


class TestPartial:
    def test_a_state_that_is_not_whole(self, tale: Tale) -> None:
        tale.change("b", lambda c: replace(c, flaw="channels echo are not this state's"))
        assert tale.found() == "partial state: b: channels echo are not this state's"

    def test_a_checkpoint_under_another_parent(self, tale: Tale) -> None:
        tale.change("c", lambda c: replace(c, parent="a"))
        assert "c is stored after a, but was put after {'b'}" in tale.findings()

    def test_a_checkpoint_that_nobody_put(self, tale: Tale) -> None:
        tale.line.append(Checkpoint("z", "c"))
        assert tale.found() == "z is stored after c, but was put after -"

    def test_writes_that_are_not_whole(self, tale: Tale) -> None:
        tale.writes("c", "c/0", "d/0")
        tale.change("c", lambda c: replace(c, writes={"c/0": None}))
        assert tale.found() == "partial writes of task c/0 on c: None"

    def test_first_writes_that_were_replaced(self, tale: Tale) -> None:
        tale.writes("c", "c/0", "d/0")
        tale.writes("c", "c/0", "e/0")
        tale.change("c", lambda c: replace(c, writes={"c/0": "e/0"}))
        assert tale.found() == "the first writes of task c/0 on c were replaced"

    def test_another_runs_writes_in_a_branch(self, tale: Tale) -> None:
        """The delta channel is made from what a loser wrote."""
        tale.writes("c", "c/0", "d/0")
        tale.put("d", "c", consumed={"c/0": "d/0"})
        tale.trail = ["x/0"]
        assert tale.found() == "the delta channel is made from ['x/0'], not from ['d/0']"


class TestHeads:
    def test_two_winners(self, tale: Tale) -> None:
        """Both were put on one head, and both were told that they had won."""
        tale.put("d", "b")
        assert "two winners: d was put on b, but the head was c by then" in tale.findings()

    def test_two_first_winners(self) -> None:
        """Both found no thread."""
        tale = Tale()
        tale.put("a", None)
        tale.put("b", None)
        assert "two winners: b was put on None, but the head was a by then" in tale.findings()

    def test_a_winner_after_a_fork(self, tale: Tale) -> None:
        """The fork had moved the head."""
        tale.put("f", "a", guarded=False)
        tale.put("d", "c")
        assert "two winners: d was put on c, but the head was f by then" in tale.findings()

    def test_a_head_that_moved_back(self, tale: Tale) -> None:
        """A reader saw an old one: a stale copy, say."""
        tale.look("b")
        (first, *_) = tale.findings()
        assert first.startswith("the head moved back from c to Sight(")

    def test_a_head_that_was_not_there(self, tale: Tale) -> None:
        """A reader saw an empty thread."""
        tale.look(None)
        (first, *_) = tale.findings()
        assert first.startswith("the head moved back from c to Sight(")

    def test_a_head_that_is_back_at_the_end(self, tale: Tale) -> None:
        """All is stored, but the head is not the last that was acknowledged."""
        tale.head = "b"
        assert "the head moved back from c to" in tale.found()

    def test_readers_that_differ(self, tale: Tale) -> None:
        """Redis and Postgres serve other heads."""
        heads = {"Redis": tale.line[-1], "Postgres": tale.line[-2]}
        found = [each.what for each in check(tale.history, Stored(tale.line, heads))]
        assert "readers see other heads: {'Redis': 'c', 'Postgres': 'b'}" in found

    def test_a_list_in_another_order(self, tale: Tale) -> None:
        tale.look("b", "c", kind="list")
        assert tale.found() == "listed in another order than stored: ['b', 'c']"


class TestLosers:
    def test_one_that_is_not_kept(self, tale: Tale) -> None:
        tale.refuse("x", "a", stored=False)
        assert tale.found() == "the loser x was not kept"

    def test_one_that_is_not_found_by_its_id(self, tale: Tale) -> None:
        """It is listed, though."""
        tale.refuse("x", "a")
        tale.by_id = {"x": False}
        assert tale.found() == "the loser x was not kept"

    def test_one_that_is_the_head(self, tale: Tale) -> None:
        tale.refuse("x", "a")
        tale.look("x")
        assert "the loser x was read as the head" in tale.findings()

    @pytest.mark.parametrize("reported", [True, False])
    def test_one_that_redis_had_taken_before_it_was_given_up(self, reported: bool) -> None:
        """Its first answer was lost; made again, it lost to a run that went on from what Postgres
        had, and said so."""
        tale = Tale(BEHIND)
        tale.put("c", None)
        tale.put("x", "c", UNKNOWN, stored=False)
        tale.look("x")
        if reported:
            tale.report("state_lost", "c")
        tale.put("d", "c")
        tale.refuse("x", "c", actual="d")
        tale.head = "d"
        assert ("the loser x was read as the head" in tale.findings()) != reported

    def test_one_that_nothing_beat(self, tale: Tale) -> None:
        """It was put on the head, which had not moved."""
        tale.refuse("x", "c")
        assert tale.found().startswith("the conflict of x tells")

    def test_one_that_beat_itself(self, tale: Tale) -> None:
        """Its answer was lost, and it was not found again when it was made once more."""
        tale.put("d", "c", UNKNOWN)
        tale.refuse("d", "c", stored=False)
        assert any(each.startswith("the conflict of d tells") for each in tale.findings())

    def test_one_that_was_acknowledged_before(self, tale: Tale) -> None:
        """The second answer is not the first."""
        tale.refuse("b", "a", stored=False)
        assert "b was acknowledged and refused" in tale.findings()


class TestWriteBehind:
    """What is gone must have been reported."""

    def test_a_loss_that_was_reported(self, behind: Tale) -> None:
        """The head is an older one, from which others go on."""
        behind.forget("b", "c")
        behind.head = "a"
        behind.report("state_lost")
        behind.look("a")
        behind.put("d", "a")
        assert behind.findings() == []

    def test_a_loss_that_was_not_reported(self, behind: Tale) -> None:
        behind.forget("c")
        behind.head = "b"
        assert "lost: c was acknowledged or read" in behind.findings()

    def test_a_loss_after_the_report(self, behind: Tale) -> None:
        """An old report does not cover what was acknowledged since."""
        behind.report("state_lost")
        behind.put("d", "c", stored=False)
        assert behind.found() == "lost: d was acknowledged or read"

    def test_writes_through_are_not_covered(self) -> None:
        """Another worker's report is no excuse for what went to Postgres at once."""
        tale = Tale()
        tale.put("a", None)
        tale.put("b", "a", stored=False)
        tale.report("state_lost")
        assert "lost: b was acknowledged or read" in tale.findings()

    def test_writes_whose_loss_was_reported(self, behind: Tale) -> None:
        behind.writes("c", "c/0", "d/0")
        behind.change("c", lambda c: replace(c, writes={}))
        behind.report("state_lost")
        assert behind.findings() == []

    def test_a_branch_that_was_reported(self, behind: Tale) -> None:
        """It was the head in Redis, which was not seen when Postgres's moved."""
        behind.line.pop()
        behind.look("c")
        behind.put("d", "b")
        behind.line.append(Checkpoint("c", "b"))
        behind.report("branch_kept", "c")
        assert behind.findings() == []

    def test_a_branch_that_was_not_reported(self, behind: Tale) -> None:
        behind.line.pop()
        behind.look("c")
        behind.put("d", "b")
        behind.line.append(Checkpoint("c", "b"))
        assert "two winners: c was put on b, but the head was d by then" in behind.findings()

    def test_a_branch_that_was_reported_and_is_gone(self, behind: Tale) -> None:
        """Kept means that it can be read."""
        behind.forget("c")
        behind.head = "b"
        behind.report("branch_kept", "c")
        assert behind.found() == "lost: c was acknowledged or read"

    def test_a_loss_of_what_the_last_durable_checkpoint_is_made_from(self, behind: Tale) -> None:
        """The report itself says that it is there."""
        behind.forget("a", "b")
        behind.report("state_lost", "b")
        assert "lost: b was acknowledged or read" in behind.findings()
        assert "lost: a was acknowledged or read" in behind.findings()

    def test_a_loss_of_what_was_seen_in_postgres(self, behind: Tale) -> None:
        """By its id, or in a list."""
        behind.look("c", "b", "a", kind="list")
        behind.report("state_lost", "a")
        behind.forget("b", "c")
        behind.head = "a"
        assert "lost: b was acknowledged or read" in behind.findings()

    def test_a_head_that_moved_back_over_a_loss(self, behind: Tale) -> None:
        """Redis could not be asked, and was later: it had lost nothing."""
        behind.report("state_lost", "b")
        behind.look("b")
        behind.look("c")
        behind.put("d", "c")
        assert behind.findings() == []

    def test_a_head_that_moved_back_after_a_loss(self, behind: Tale) -> None:
        """The report was of what came before."""
        behind.report("state_lost", "b")
        behind.put("d", "c")
        behind.look("c")
        assert any(each.startswith("the head moved back from d") for each in behind.findings())

    def test_what_was_not_acknowledged_and_read_in_redis(self) -> None:
        """Any worker's put goes through Redis where that is ahead."""
        tale = Tale()
        tale.put("a", None)
        tale.put("b", "a", UNKNOWN, stored=False)
        tale.look("b")
        tale.head = "a"
        assert "lost: b was acknowledged or read" in tale.findings()
        tale.report("state_lost", "a")
        assert tale.findings() == []

    def test_unsure_reads_tell_nothing(self, behind: Tale) -> None:
        """They were marked."""
        behind.look("b", unsure=True)
        assert behind.findings() == []

    def test_a_loser_on_what_was_lost(self, behind: Tale) -> None:
        """It is kept, though what it was made from is gone."""
        behind.report("state_lost", "b")
        behind.forget("c")
        behind.head = "b"
        behind.refuse("x", "c")
        assert behind.findings() == []


class TestQueued:
    """What was acknowledged while Postgres could not even be told that Redis is ahead."""

    @pytest.fixture
    def queued(self) -> Tale:
        tale = Tale(BEHIND)
        tale.put("a", None)
        tale.look("a", kind="list")
        tale.report("queued", "b")
        tale.put("b", "a")
        return tale

    def test_others_do_not_see_it_yet(self, queued: Tale) -> None:
        """Not until somebody saw it in Postgres."""
        queued.look("a")
        assert queued.findings() == []

    def test_others_see_it_once_it_is_in_postgres(self, queued: Tale) -> None:
        queued.look("b", "a", kind="list")
        queued.look("a")
        assert any(each.startswith("the head moved back from b") for each in queued.findings())

    def test_it_is_there_in_the_end(self, queued: Tale) -> None:
        queued.head = "a"
        assert any(each.startswith("the head moved back from b") for each in queued.findings())

    def test_it_is_lost_with_redis_and_with_who_knew(self, queued: Tale) -> None:
        """Nobody is left to report it."""
        queued.forget("b")
        queued.head = "a"
        queued.wipe()
        assert "lost: b was acknowledged or read" in queued.findings()
        queued.die()
        assert queued.findings() == []

    def test_what_came_before_is_not_lost(self, queued: Tale) -> None:
        queued.forget("a")
        queued.wipe()
        queued.die()
        assert "lost: a was acknowledged or read" in queued.findings()

    def test_a_policy_that_does_not_queue_is_not_excused(self) -> None:
        tale = Tale(BEHIND | {"when_durable_down": "raise"})
        tale.report("queued", "b")
        tale.put("a", None)
        tale.put("b", "a")
        tale.look("a")
        assert any(each.startswith("the head moved back from b") for each in tale.findings())


class TestStates:
    @pytest.fixture(params=["0", "1"], ids=["bulky", "small"])
    def place(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def grown(self, place: str, count: int) -> dict[str, Any]:
        values = None
        for i in range(count):
            values = successor(place, values, f"w.{i}")
        assert values is not None
        return values

    @pytest.mark.parametrize("count", [1, 2, 16, 149, 150, 151, 400])
    def test_a_whole_one_has_no_flaw(self, place: str, count: int) -> None:
        """Whatever was cut off from its front."""
        parent = f"w.{count - 2}" if count > 1 else None
        assert flaw(place, f"w.{count - 1}", parent, self.grown(place, count)) is None

    def test_every_mixture_is_one(self, place: str) -> None:
        """A channel of the parent, of another branch, or none."""
        mine, before = self.grown(place, 160), self.grown(place, 159)
        for name in mine:
            for mixed in (mine | {name: before.get(name)}, {k: mine[k] for k in mine if k != name}):
                if mixed != mine:
                    assert flaw(place, "w.159", "w.158", mixed) is not None

    def test_a_part_of_a_list_is_one(self, place: str) -> None:
        """A chunk is missing, at either end or within."""
        mine = self.grown(place, 160)
        for part in (mine["entries"][8:], mine["entries"][:-1], mine["entries"][:50] * 2):
            assert flaw(place, "w.159", "w.158", mine | {"entries": part}) is not None

    def test_a_task_has_one_whole_batch(self) -> None:
        """Not two, nor parts."""
        one, other = ([("t", *write) for write in batch(token)] for token in ("a/0", "b/0"))
        assert tokens_of(one) == {"t": "a/0"}
        assert tokens_of(one[:1]) == {"t": None}
        assert tokens_of(one[:1] + other[1:]) == {"t": None}
        assert tokens_of(one + other) == {"t": None}


class TestJournal:
    async def test_what_became_of_each_call_is_noted(self, tmp_path: Path) -> None:
        """Also of one that is never answered because the worker is killed."""
        journal = Journal(tmp_path / "w.jsonl", BEHIND)

        async def fail(error: Exception | None) -> None:
            if error is not None:
                raise error

        lost = ConflictError(thread="1", namespace="", expected="a", actual="b", refused="c")
        for error in (None, lost, UnavailableError("redis", "gone"), ValueError("?")):
            await journal.call("put", PLACES[1], lambda error=error: fail(error), id="c")
        journal.close()
        with (tmp_path / "w.jsonl").open("a") as file:
            file.write('{"n": 4, "kind": "put", "place": "1", "start": 1.0}\n{"n": 4, "outc')
        history = read_journals([tmp_path / "w.jsonl"])
        told = [op.outcome for op in history.ops]
        assert told == [DONE, CONFLICT, UNKNOWN, UNKNOWN, UNKNOWN]
        assert history.ops[1]["actual"] == "b"
        assert history.ops[0].policy == BEHIND
        assert [op.end < math.inf for op in history.ops] == [True, True, False, False, False]
        (finding,) = history.findings
        assert "ValueError: ?" in finding
