"""Proves from what was acknowledged and from what is stored at the end that nothing went wrong.

This file reads no server and no clock: it judges the history of one place (what the workers
noted) beside what a fresh reader found there. The facts of an op that it needs:

* ``put``: ``id``, ``parent``, ``guarded`` (it ran from a loaded head, so only one wins),
  ``consumed`` (task to token: the parent's writes that it was made from); of a conflict
  ``refused`` and ``actual``.
* ``writes``: ``id``, ``task``, ``token``.
* ``head``, ``one``, ``list``: ``seen``, the ids found, newest first; of ``one`` the ``id``;
  ``unsure`` if that was marked unverified or stale.

What cannot be told (a call whose answer was lost) is held against nobody, until somebody reads it.

What may go wrong at all is what a policy names, see `Rule`: a loss that was reported, or, of what
was acknowledged while Postgres was down and could not even be marked there, one that nobody was
left to report. What was once read from Postgres (`list` and reads by id see nothing else) is
excused from nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.journal import CONFLICT, DONE, UNKNOWN, Event, History, Op


@dataclass(frozen=True)
class Rule:
    """What a policy may do to what it acknowledged.

    Attributes:
        hot: Redis may have been the only home of it: it may be gone if a loss was reported, and
            stand beside the line of heads if that was reported.
        queues: Postgres may not even have known that Redis is ahead.
        unfinished_hot: what was not acknowledged may have been in Redis alone, whatever the policy:
            where Redis is ahead, puts go through it.
    """

    hot: bool = False
    queues: bool = False
    unfinished_hot: bool = False


WRITE_THROUGH = Rule()
"""What is acknowledged is in Postgres."""


def strictly(policy: Mapping[str, Any]) -> Rule:
    """The rule of every saver while nothing is done that its policy does not withstand."""
    return WRITE_THROUGH


def rule_of(policy: Mapping[str, Any]) -> Rule:
    """The rule for what a saver with these options acknowledged."""
    behind = policy.get("write_policy") == "write_behind"
    queues = policy.get("when_durable_down", "queue" if behind else "raise") == "queue"
    return Rule(behind or queues, queues, unfinished_hot=True)


@dataclass(frozen=True)
class Checkpoint:
    """One that is stored at the end.

    Attributes:
        id, parent: as read.
        writes: task to token of its pending writes; None where they are not one whole batch.
        seed: whether it holds a value of the delta channel.
        flaw: why it is not whole; None if it is.
    """

    id: str
    parent: str | None
    writes: Mapping[str, str | None] = field(default_factory=dict)
    seed: bool = False
    flaw: str | None = None


@dataclass(frozen=True)
class Stored:
    """A place at the end.

    Attributes:
        line: all checkpoints, oldest first.
        heads: the head by who was asked for it.
        trail: the tokens that the delta channel of the head is made from.
        by_id: of those asked for by their ids, which were found.
    """

    line: Sequence[Checkpoint]
    heads: Mapping[str, Checkpoint | None]
    trail: Sequence[str] = ()
    by_id: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """Something that must not be, and the ids it is about."""

    what: str
    ids: tuple[str | None, ...]


def check(
    history: History, stored: Stored, rule: Callable[[Mapping[str, Any]], Rule] = rule_of
) -> list[Finding]:
    """All findings about one place."""
    case = Case(history, stored, rule)
    checks = (stored_whole, nothing_lost, losers_kept, writes_kept, one_winner, never_back, trail)
    return [finding for each in checks for finding in each(case)]


class Case:
    """What the checks look at.

    Attributes:
        at: the checkpoints by id; place: their numbers in the line.
        puts: the attempts to put each id.
        done, refused: ids acknowledged, and refused.
        line: the ids that were the head one after the other, and those of which nobody can tell.
        beside: ids reported as branches; out: those and the refused.
        heads: the head's id at the end, by who was asked.
        seen: ids that were read as the head by any worker.
    """

    def __init__(
        self, history: History, stored: Stored, rule: Callable[[Mapping[str, Any]], Rule]
    ) -> None:
        self.ops, self.events, self.stored = history.ops, history.events, stored
        self._history, self._rule = history, rule
        self._losses = [event for event in history.events if event.kind == "state_lost"]
        self._queued = min((e.time for e in history.events if _unmarks(e)), default=math.inf)
        self._durable = self._seen_durable()
        self.at = {found.id: found for found in stored.line}
        self.place = {found.id: i for i, found in enumerate(stored.line)}
        self.puts: dict[str, list[Op]] = defaultdict(list)
        for op in self.of("put"):
            self.puts[op["id"]].append(op)
        self._trunk = self._ancestors()
        self.done = {op["id"] for op in self.of("put", DONE)}
        self.refused = {op["id"] for op in self.of("put", CONFLICT)}
        self.beside = {id for id, ops in self.puts.items() if all(map(self._is_beside, ops))}
        self.out = self.refused | self.beside
        self.line = [found.id for found in stored.line if found.id not in self.out]
        self.heads = {who: head.id if head else None for who, head in stored.heads.items()}
        self.seen = {op["seen"][0] for op in self.looks() if op["seen"]}

    def of(self, kind: str, outcome: str | None = None) -> list[Op]:
        """The operations of a kind."""
        return [op for op in self.ops if op.kind == kind and outcome in (None, op.outcome)]

    def _ancestors(self) -> set[str]:
        """The heads at the end and what they are made from."""
        found: set[str] = set()
        for head in self.stored.heads.values():
            id = head.id if head else None
            while id is not None and id not in found:
                found.add(id)
                id = self.at[id].parent if id in self.at else None
        return found

    def looks(self) -> list[Op]:
        """Reads of the head that were served for certain."""
        return [op for op in self.of("head", DONE) if not op["unsure"]]

    def _seen_durable(self) -> dict[str, float]:
        """By when each id was seen in Postgres: by its id or in a list."""
        since: dict[str, float] = {}
        for op in self.ops:
            if op.outcome != DONE or op["unsure"]:
                continue
            if op.kind in ("one", "list"):
                for id in op["seen"]:
                    since[id] = min(op.end, since.get(id, math.inf))
        return since

    def rule(self, op: Op) -> Rule:
        return self._rule(op.policy)

    def _is_beside(self, op: Op) -> bool:
        """Whether this put was reported as a branch that is kept, or as lost, and is not what the
        head is made from; or those are dead who could have reported it."""
        if not (self.rule(op).hot if op.outcome == DONE else self.rule(op).unfinished_hot):
            return False
        kept = any(e.kind == "branch_kept" and e.id == op["id"] for e in self.events)
        # A fork that was left again is on another branch as well, and has been the head.
        left = op["guarded"] and op["id"] not in self._trunk
        return kept or (left and (self._is_reported(op) or self._is_forgotten(op)))

    def may_lack(self, op: Op) -> bool:
        """Whether what was acknowledged may be gone."""
        if op.kind == "put" and op["id"] in self._durable:
            return False
        if op.outcome != DONE:
            # It may have come no further than Redis, and only been read there.
            return self.rule(op).unfinished_hot and self._is_reported(op)
        return self.rule(op).hot and (self._is_reported(op) or self._is_forgotten(op))

    def _is_reported(self, op: Op) -> bool:
        """Whether a loss that was reported covers it: it was begun before, and is not what the
        last durable checkpoint was made from."""
        return any(
            op.start <= event.time and not (op.kind == "put" and self._leads_to(op["id"], event.id))
            for event in self._losses
        )

    def _leads_to(self, id: str, last: str | None) -> bool:
        """Whether `last` is `id` or was put on it, or on what was put on it, and so on."""
        while last is not None and last != id:
            last = self.puts[last][0]["parent"] if last in self.puts else None
        return last == id

    def _is_forgotten(self, op: Op) -> bool:
        """Whether Redis was made to forget what it acknowledged while Postgres was down, and the
        worker that could have told is dead."""
        death = self._history.deaths.get(op.worker, -math.inf)
        wiped = any(op.start <= wipe for wipe in self._history.wipes)
        return self.is_queued(op) and wiped and op.start <= death

    def was_given_up(self, id: str) -> bool:
        """Whether Redis may have taken a put whose answer was lost, and a loss was reported then:
        made again, it lost."""
        return any(
            op.outcome == UNKNOWN and self.rule(op).unfinished_hot and self._is_reported(op)
            for op in self.puts[id]
        )

    def lost_its_base(self, op: Op) -> bool:
        """Whether a put was made on what is lost, or put aside, by a policy that may: the head is
        an older one then, or none."""
        base = op["parent"]
        if any(map(self.may_lack, self._consumed(op))):
            return True
        return base in self.beside or (
            base is not None and base not in self.at and not self.lacks(base)
        )

    def _consumed(self, op: Op) -> list[Op]:
        """The acknowledged writes that a put was made from."""
        tokens = set((op["consumed"] or {}).values())
        return [w for w in self.of("writes", DONE) if w["token"] in tokens]

    def is_queued(self, op: Op) -> bool:
        """Whether Postgres may not have known by then that Redis was ahead."""
        return self.rule(op).queues and self._queued <= op.end

    def binds_from(self, op: Op) -> float:
        """From when on whoever reads must know of this put or find it."""
        if not self.is_queued(op):
            return op.end
        return max(op.end, self._durable.get(op["id"], math.inf))

    def lost_between(self, start: float, end: float) -> bool:
        """Whether a loss was reported in between."""
        return any(start <= event.time <= end for event in self._losses)

    def lacks(self, id: str) -> bool:
        """Whether a checkpoint is gone that must be there."""
        return id not in self.at and not any(map(self.may_lack, self.puts[id]))

    def guarded(self, id: str) -> bool:
        return all(op["guarded"] for op in self.puts[id])

    def may_have_lost(self, id: str) -> bool:
        """Whether a checkpoint of the line may be one that was refused, which nobody was told."""
        return self.guarded(id) and id not in self.done and id not in self.seen


# -- what is there ---------------------------------------------------------------------------


def stored_whole(case: Case) -> Iterator[Finding]:
    """No partial state, and nothing that nobody made."""
    for found in (*case.stored.line, *filter(None, case.stored.heads.values())):
        if found.flaw is not None:
            yield Finding(f"partial state: {found.id}: {found.flaw}", (found.id,))
    for found in case.stored.line:
        # What needs no ancestors may have been put on one that is lost.
        alone = (found.id in case.out or found.seed) and not case.lacks(found.parent or "")
        if found.parent is not None and found.parent not in case.at and not alone:
            yield Finding(f"the parent of {found.id} is gone", (found.id, found.parent))
        parents = {op["parent"] for op in case.puts[found.id]}
        if parents != {found.parent}:
            what = f"{found.id} is stored after {found.parent}, but was put after {parents or '-'}"
            yield Finding(what, (found.id, found.parent))


def nothing_lost(case: Case) -> Iterator[Finding]:
    """What was acknowledged or read by anybody is there."""
    known: dict[str, float] = {}
    for op in case.ops:
        ids = op["seen"] or ([op["id"]] if op.kind == "put" else [])
        for id in ids if op.outcome == DONE else []:
            known[id] = min(op.end, known.get(id, math.inf))
    for id in filter(case.lacks, known):
        yield Finding(f"lost: {id} was acknowledged or read", (id,))
    for op in case.of("one", DONE):
        id = op["id"]
        late = known.get(id, math.inf) < op.start
        late &= all(case.binds_from(put) < op.start for put in case.puts[id] if case.is_queued(put))
        if late and not op["seen"] and not any(map(case.may_lack, case.puts[id])):
            yield Finding(f"{id} was known, and later not found by its id", (id,))
    for op in case.of("list", DONE):
        places = [case.place[id] for id in op["seen"] if id in case.place]
        if places != sorted(places, reverse=True) and not case.beside:
            yield Finding(f"listed in another order than stored: {op['seen']}", tuple(op["seen"]))


def losers_kept(case: Case) -> Iterator[Finding]:
    """A refused put names what refused it, is kept, and is never the head."""
    for op in case.of("put", CONFLICT):
        id, actual = op["id"], op["actual"]
        moved = case.place.get(actual, math.inf) > case.place.get(op["parent"], -1)
        wrong = op["refused"] != id or actual in (None, id) or not moved
        if wrong and not case.lost_its_base(op):
            yield Finding(f"the conflict of {id} tells {op.facts}", (id, actual))
        gone = id not in case.at or not case.stored.by_id.get(id, True)
        nowhere = op["refused"] is None and case.lost_its_base(op)
        if gone and not nowhere and not case.may_lack(op):
            yield Finding(f"the loser {id} was not kept", (id,))
        if id in case.done:
            yield Finding(f"{id} was acknowledged and refused", (id,))
    for id in case.refused & {*case.seen, *case.heads.values()}:
        if id in case.heads.values() or not case.was_given_up(id):
            yield Finding(f"the loser {id} was read as the head", (id,))


def writes_kept(case: Case) -> Iterator[Finding]:
    """Each task's acknowledged writes are there, whole, and the first of them stay."""
    made: dict[tuple[str, str], list[Op]] = defaultdict(list)
    for op in case.of("writes"):
        made[op["id"], op["task"]].append(op)
    for (id, task), ops in made.items():
        if id not in case.at:
            continue
        shown = case.at[id].writes.get(task)
        acknowledged = [op for op in ops if op.outcome == DONE]
        if task in case.at[id].writes and shown not in {op["token"] for op in ops}:
            yield Finding(f"partial writes of task {task} on {id}: {shown}", (id,))
        elif shown is None and any(not case.may_lack(op) for op in acknowledged):
            yield Finding(f"lost: the writes of task {task} on {id}", (id,))
        began = min((op.start for op in ops if op["token"] == shown), default=-math.inf)
        first = (op for op in acknowledged if not (case.may_lack(op) or case.is_queued(op)))
        if any(op.end < began for op in first):
            yield Finding(f"the first writes of task {task} on {id} were replaced", (id,))


# -- the order of heads ----------------------------------------------------------------------


def one_winner(case: Case) -> Iterator[Finding]:
    """A guarded put was made on the head as it was then: of several on one, one wins."""
    before = {id: i - 1 for i, id in enumerate(case.line)}
    for id in case.done & before.keys():
        parent, i = case.at[id].parent, before[id]
        if not case.guarded(id) or (parent is not None and parent not in before):
            continue
        while i >= 0 and case.line[i] != parent and _elsewhere(case, case.line[i], parent):
            i -= 1
        head = case.line[i] if i >= 0 else None
        if head != parent:
            what = f"two winners: {id} was put on {parent}, but the head was {head} by then"
            yield Finding(what, (id, parent, head))


def _elsewhere(case: Case, id: str, parent: str | None) -> bool:
    """Whether `id` may be a loser that was kept here: one put on another head than `parent`."""
    return case.may_have_lost(id) and case.at[id].parent != parent


def _unmarks(event: Event) -> bool:
    """Whether from then on Redis may be ahead of Postgres, and Postgres not know: it was down when
    it was to be told, or somebody who could not see Redis gave up what that held."""
    given_up = event.kind == "state_lost" and "cannot be asked" in event.detail
    return event.kind == "queued" or given_up


@dataclass(frozen=True)
class Sight:
    """Somebody saw this head at a moment between start and end, and whoever looks after `since`
    must see it or a later one."""

    start: float
    end: float
    id: str | None
    how: str
    since: float


def never_back(case: Case) -> Iterator[Finding]:
    """Whoever looks after a head was seen sees that one or a later one, of the same branch unless
    somebody forked."""
    place = {id: i for i, id in enumerate(case.line)}
    for least, sight in _in_turn(case, place):
        before = case.line[least] if least >= 0 else None
        now = -1 if sight.id is None else place[sight.id]
        if now < least:
            yield Finding(f"the head moved back from {before} to {sight}", (before, sight.id))
        elif before is not None and not _follows(case, place, before, case.line[now]):
            what = f"the head moved from {before} to another branch: {sight}"
            yield Finding(what, (before, sight.id))
    if len({*case.heads.values()}) > 1:
        yield Finding(f"readers see other heads: {case.heads}", (*case.heads.values(),))


def _in_turn(case: Case, place: Mapping[str, int]) -> Iterator[tuple[int, Sight]]:
    """Each sight, with the place of the latest head that it must not be behind."""
    known = [sight for sight in _sights(case) if sight.id is None or sight.id in place]
    before = sorted(known, key=lambda sight: -1 if sight.id is None else -place[sight.id])
    for sight in known:
        for other in before:
            if other.id is not None and _binds(case, other, sight):
                yield place[other.id], sight
                break
        else:
            yield -1, sight


def _binds(case: Case, before: Sight, now: Sight) -> bool:
    if now.start == math.inf:
        return before.start < now.start  # at the end all is settled, and nothing is excused
    return before.since < now.start and not case.lost_between(before.start, now.end)


def _sights(case: Case) -> Iterator[Sight]:
    for op in case.looks():
        id = op["seen"][0] if op["seen"] else None
        since = max([op.end, *(case.binds_from(put) for put in case.puts.get(id or "", ()))])
        yield Sight(op.start, op.end, id, f"by {op.worker}", since)
    for op in case.of("put", CONFLICT):
        # While Postgres is down, the head that has won is only what Redis knows.
        if not case.rule(op).queues:
            how = f"by {op.worker}, in a conflict"
            yield Sight(op.start, op.end, op["actual"], how, op.end)
    for id in case.done:
        ops = [op for op in case.puts[id] if op.outcome == DONE]
        end, since = min(op.end for op in ops), min(map(case.binds_from, ops))
        how = f"by {ops[0].worker}, which put it"
        yield Sight(min(op.start for op in case.puts[id]), end, id, how, since)
    for who, head in case.heads.items():
        yield Sight(math.inf, math.inf, head, f"at the end, by {who}", math.inf)


def _follows(case: Case, place: Mapping[str, int], before: str, now: str) -> bool:
    """Whether `now` is `before` or made from it, or a fork came in between."""
    if not all(map(case.guarded, case.line[place[before] + 1 : place[now] + 1])):
        return True
    found: str | None = now
    while found in case.place and case.place[found] > case.place[before]:
        found = case.at[found].parent
    return found == before


# -- the branch of each run ------------------------------------------------------------------


def trail(case: Case) -> Iterator[Finding]:
    """The head's delta channel is made from what its own branch consumed, and from nothing else."""
    head = next(iter(case.heads.values()), None)
    expected: list[str] = []
    while head in case.at and (parent := case.at[head].parent) in case.at:
        consumed = case.puts[head][0]["consumed"] if case.puts[head] else {}
        tokens = [token for _, token in sorted(consumed.items())]
        expected = [token for token in tokens if not token.endswith("/i")] + expected
        if case.at[parent].seed:
            break
        head = parent
    if list(case.stored.trail) != expected:
        what = f"the delta channel is made from {list(case.stored.trail)}, not from {expected}"
        yield Finding(what, (head,))
