"""Makes edits one by one, reads everything after each, and says what no reader should have seen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from langgraph_durable_state import DurableSaver, Event
from langgraph_durable_state.protocols.vault import DataKeys
from tests.fuzz.edits import Edit, made
from tests.fuzz.world import NOTHING, Answer, World, asked


@dataclass
class Report:
    """What came of a run."""

    edits: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{n:,} {name}" for name, n in sorted(self.answers.items()))
        return f"{self.edits:,} edits; reads after them: {counts}; {len(self.findings)} findings"


def run(world: World, edits: int, seed: int) -> Report:
    """Edits of `seed`, each from the same state; every way in is read through either tier."""
    report = Report()
    events: list[Event] = []
    options = {"observer": events.append, **_policy(world)}
    savers = {
        "hot": world.saver(**options),
        "durable": world.saver(hot_reads="never", **options),
    }
    try:
        reads = {
            (t, name): read for t, s in savers.items() for name, read in world.reads(s).items()
        }
        right = {where: asked(read) for where, read in reads.items()}
        assert all(answer.found for answer in right.values()), right
        content = contents(right)
        for n in count():
            if report.edits == edits:
                break
            dice = random.Random(f"{seed}/{n}")
            edit = made(world, dice)
            if edit is not None:
                report.edits += 1
                events.clear()
                for where in chosen(reads, dice):
                    forget_keys(savers[where[0]])
                    answer = asked(reads[where])
                    verdict = judged(answer, right[where], content, edit)
                    lost = any(event.kind == "state_lost" for event in events)
                    if verdict == "omitted" and world.guard != "plain" and not lost:
                        verdict = judged_signed(where[1], answer, right[where])
                    report.answers[verdict.partition(":")[0]] += 1
                    if verdict.startswith(("WRONG", "CRASH")):
                        told = f"{seed}/{n} {' '.join(where)}: {verdict} | {edit.what}"
                        report.findings.append(told)
            world.restore()
    finally:
        for saver in savers.values():
            saver._faces.background.stop()
    return report


def chosen(reads: Iterable[tuple[str, str]], dice: random.Random) -> list[tuple[str, str]]:
    """All heads, and some of what is read by id or takes long."""
    share = {"head": 1.0, "list": 0.3}
    return [where for where in reads if dice.random() < share.get(where[1].split()[0], 0.15)]


def _policy(world: World) -> dict[str, Any]:
    return {"write_policy": "write_behind"} if world.behind else {}


def forget_keys(saver: DurableSaver) -> None:
    """As a process that was just started."""
    keys = saver._faces._shared.blobs.keys
    if isinstance(keys, DataKeys):
        keys._by_id.clear()
        keys._by_owner.clear()


def contents(right: dict[tuple[str, str], Answer]) -> dict[str, frozenset[str]]:
    """All checkpoints as they should be read, with all the writes that wait at each."""
    return {
        checkpoint: frozenset(writes)
        for answer in right.values()
        for checkpoint, writes in answer.found
    }


def judged(answer: Answer, right: Answer, content: dict[str, frozenset[str]], edit: Edit) -> str:
    """What an answer is worth: the word before the colon counts it."""
    if answer.crash is not None:
        return f"CRASH: {type(answer.crash).__name__}: {answer.crash!s:.200}"
    if answer.error is not None:
        if edit.tier == "redis" and not edit.omits:
            return f"WRONG: Postgres is sound, and yet {answer.error:.200}"
        return "told"
    if answer == right:
        return "right"
    for checkpoint, writes in answer.found:
        if checkpoint not in content and not (checkpoint == NOTHING and edit.omits):
            return f"WRONG: no such checkpoint was stored: {checkpoint:.300}"
        if not content.get(checkpoint, frozenset()).issuperset(writes) or len(set(writes)) != len(
            writes
        ):
            return f"WRONG: no such writes were stored: {writes!s:.300}"
    if not edit.omits:
        return f"WRONG: {len(answer.found)} checkpoints instead of {len(right.found)}, in silence"
    return "omitted"


def judged_signed(read: str, answer: Answer, right: Answer) -> str:
    """What an answer is worth that lacks something where heads are signed: no read of a head gives
    another checkpoint, or none."""
    there = {checkpoint for checkpoint, _ in answer.found}
    if read.startswith("head") and there != {checkpoint for checkpoint, _ in right.found}:
        return "WRONG: the head is another one, in silence"
    return "omitted"
