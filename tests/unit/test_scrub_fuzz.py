"""Bytes that may be anything: they are judged, and nothing else fails."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from langgraph_durable_state.asfound import HotRaw, RawWrite, Sight
from langgraph_durable_state.decisions import hotcopy, hotscrub, outgoing, scrub
from langgraph_durable_state.decisions.codec import Blobs, Unsound
from langgraph_durable_state.decisions.evidence import Child, Sources, described
from langgraph_durable_state.decisions.hotscrub import HotCase
from langgraph_durable_state.decisions.keys import named, unpacked
from langgraph_durable_state.decisions.scrub import Case
from langgraph_durable_state.decisions.serializing import Serializer
from langgraph_durable_state.drivers.blocking import run
from langgraph_durable_state.drivers.memory import MemoryDurable
from langgraph_durable_state.drivers.memory_outbox import MemoryOutbox
from langgraph_durable_state.drivers.memory_world import World
from langgraph_durable_state.errors import EvolutionError
from langgraph_durable_state.testing import memory_saver
from langgraph_durable_state.words import Place
from tests.contract.superstep import config, superstep

THREAD = named("", "t")
PLACE = Place(THREAD, "")
BLOBS = Blobs()
SERIALIZER = Serializer(memory_saver().serde)
TRIES = 1_500


def stored(**options: Any) -> World:
    """A thread of two checkpoints and a pending write."""
    world, found = World(), None
    saver = memory_saver(world, **options)
    for id in "12":
        values = {"log": [f"message {i} " * 30 for i in range(int(id))], "n": int(id)}
        saver.put(*superstep(saver, found, id, values))
        found = saver.get_tuple(config())
    saver.put_writes(found.config, [("log", ["written " * 40])], "task")
    return world


def mangled(data: bytes, chance: random.Random) -> bytes:
    """Some bytes replaced, cut out, doubled or added."""
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randrange(len(data) + 1), chance.randint(0, 9)
        made = chance.randbytes(chance.randint(0, 9))
        data = data[:at] + made + data[at + size :]
    return data


def describe(record: Any) -> Any:
    return described(record, SERIALIZER)


@pytest.mark.parametrize("field", ["record", "digest", "packed", "blob", "no digest", "written"])
def test_a_row_that_may_be_anything_is_judged(field: str) -> None:
    """With and without another tier; if it is not the one that was stored, it is told."""
    chance = random.Random(field)
    world = stored(when_durable_down="queue")
    numbers = list(world.threads[THREAD.key].chunks)
    durable = MemoryDurable(world)
    sight = run(durable.look(THREAD.key, [("", "1"), ("", "2")], numbers, None))
    full = Sources()
    full.add_sight(sight, BLOBS)
    children = [Child(sight.records["", "2"].digest, (), True)]
    for _ in range(TRIES):
        bad = spoilt(sight, field, chance)
        for sources in (Sources(), full):
            case = Case(PLACE, "2", bad, sources, children, BLOBS, describe)
            flaws = scrub.examine(case)
            assert flaws or contents(bad) == contents(sight)
            if sources is full:
                assert all(flaw.repair is not None for flaw in flaws), flaws


def contents(sight: Sight) -> list[Any]:
    """What stored bytes hold: bytes behind their end change nothing."""
    found: list[Any] = [sight.writes[0].digest, sight.writes[0].packed, sight.records["", "2"]]
    record, blobs = sight.records["", "2"], [sight.writes[0].blob]
    blobs += [record.record, *(c.blob for _, c in sorted(sight.chunks.items()))]
    found[2] = (record.digest, record.packed)
    found += [[c.digest for _, c in sorted(sight.chunks.items())]]
    for blob in blobs:
        try:
            found.append(BLOBS.unpack(blob))
        except Unsound as error:
            found.append(str(error))
    return found


def spoilt(sight: Sight, field: str, chance: random.Random) -> Sight:
    record = sight.records["", "2"]
    if field in ("record", "digest", "packed"):
        bad = replace(record, **{field: mangled(getattr(record, field), chance)})
        return replace(sight, records={**sight.records, ("", "2"): bad})
    if field == "written":
        write: RawWrite = sight.writes[0]
        name = chance.choice(["blob", "digest", "packed"])
        return replace(
            sight, writes=(replace(write, **{name: mangled(getattr(write, name), chance)}),)
        )
    no = max(unpacked(record.packed))
    chunk = sight.chunks[no]
    name = "digest" if field == "no digest" else "blob"
    changed = replace(chunk, **{name: mangled(getattr(chunk, name), chance)})
    return replace(sight, chunks={**sight.chunks, no: changed})


@pytest.mark.parametrize("of", ["copy", "writes"])
def test_fields_that_may_be_anything_are_judged(of: str) -> None:
    """Names and values; outside a spell all of it can be restored, or may go."""
    chance = random.Random(of)
    world = stored(when_durable_down="queue")
    numbers = list(world.threads[THREAD.key].chunks)
    sight = run(MemoryDurable(world).look(THREAD.key, [("", "1"), ("", "2")], numbers, None))
    full = Sources()
    full.add_sight(sight, BLOBS)
    raw = run(MemoryOutbox(world).inspect(PLACE))
    for _ in range(TRIES):
        fields = dict(raw.copy if of == "copy" else raw.writes)
        name = chance.choice(sorted(fields))
        value = fields.pop(name)
        if chance.random() < 0.3:
            name = mangled(name, chance)
        if chance.random() < 0.8:
            fields[name] = mangled(value, chance)
        for is_open in (False, True):
            bad = HotRaw(is_open, is_open, sight.heads[""].digest if is_open else b"", {}, {})
            bad = replace(bad, **{of: fields})
            for sources in (full, Sources()):
                case = HotCase(PLACE, bad, sources, BLOBS, "2")
                flaws = [hotscrub.copy_flaw(case), *hotscrub.write_flaws(case)]
                if sources is full and not is_open and of == "copy":
                    assert all(f is None or f.repair is not None or f.unread for f in flaws)


def test_entries_that_may_be_anything_are_judged() -> None:
    """What can be taken apart is proven, or told; what cannot is told as well."""
    chance = random.Random(7)
    world = stored(write_policy="write_behind")
    outbox = MemoryOutbox(world)
    entries = run(outbox.entries(THREAD, 0, 10)).entries
    raw = run(outbox.inspect(PLACE))
    full = Sources()
    full.add_chunks(hotcopy.chunks_of(raw.copy).values(), BLOBS)
    full.add_record(hotcopy.copy_of("", raw.copy)[0])
    for _, row, chunks in hotscrub.sound_writes(PLACE, raw.writes, BLOBS):
        full.add_write("", row)
        full.add_chunks(chunks, BLOBS)
    assert len(entries) == 3
    judged = 0
    for _ in range(TRIES * 2):
        bad = mangled(chance.choice(entries), chance)
        try:
            entry = outgoing.read_entry(bad)
        except (Unsound, EvolutionError):
            continue
        judged += 1
        for sources in (full, Sources()):
            flaw = hotscrub.entry_flaw(1, bad, entry.item, sources, BLOBS, describe)
            if flaw is not None and flaw.repair is not None:
                right: Any = flaw.repair
                assert outgoing.read_entry(right.right).item.id == entry.item.id
    assert judged > 100
