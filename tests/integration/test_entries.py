"""What waits in Redis is proven before it becomes a row in Postgres."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import redis

from langgraph_durable_state import KeyMissingError, StateLostError
from langgraph_durable_state.decisions import outgoing
from langgraph_durable_state.words import Put, PutWrites
from tests.cases import at, id_of, ids_of, query, values_of
from tests.integration.outages import BEHIND, Pair, Turn, in_spell
from tests.integration.test_recovery import Heard
from tests.integration.test_recovery_behind import spoil_copy, spoil_entry

GUARDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "signed": {"integrity_key": b"i" * 32},
    "encrypted": {"encryption_key": b"e" * 32},
}

guards = pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


ALTERED: dict[str, Callable[[Put], Put]] = {
    "its record": lambda put: replace(put, record=flipped(put.record)),
    "its digest": lambda put: replace(put, digest=flipped(put.digest)),
    "its parent": lambda put: replace(put, parent=None),
    "its id": lambda put: replace(put, id=put.id[:-1] + "_"),
    "its chunks": lambda put: replace(put, numbers=(7, *put.numbers)),
}


def alter(pair: Pair, index: int, change: Callable[[Any], Any]) -> None:
    """An entry is another one, that can be read as well as it."""
    with redis.Redis.from_url(pair.redis.url) as client:
        raw: Any = client.lindex(pair._key("t", ""), index)
    item = outgoing.read_entry(raw).item
    spoil_entry(pair, index, outgoing.repacked(raw, change(item)))


def quarantined(pair: Pair) -> list[tuple[str, str]]:
    return query(pair.postgres.url, "SELECT tier, kind FROM durable_state.quarantine")  # type: ignore[return-value]


async def flush(saver: Any) -> None:
    with suppress(StateLostError):
        await saver.flush()


@guards
@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED)
async def test_an_altered_entry_becomes_no_row(
    pair: Pair, guard: dict[str, Any], change: Callable[[Put], Put]
) -> None:
    """It is kept in quarantine, and nothing is served until the loss is accepted."""
    heard = Heard()
    saver = pair.saver(BEHIND, **guard, **heard.options)
    [first, _] = await in_spell(pair, saver)
    alter(pair, 0, change)
    spoil_copy(pair)
    await flush(saver)
    assert (pair.stored(), pair.waiting()) == ([id_of(first)], 0)
    assert ("redis", "entry") in quarantined(pair)
    assert "state_lost" in heard.kinds
    reader = pair.saver(BEHIND, **guard)
    with pytest.raises(StateLostError):
        await reader.get_tuple(at())
    assert await reader.accept_loss("t") == [""]
    found = await reader.get_tuple(at())
    assert values_of(found) == {"c": 1}
    third = await Turn(reader, found).step(3)
    pair.release()
    await reader.flush()
    assert pair.stored() == [id_of(first), id_of(third)]


@guards
async def test_an_altered_entry_is_restored_from_the_hot_head(
    pair: Pair, guard: dict[str, Any]
) -> None:
    heard = Heard()
    saver = pair.saver(BEHIND, **guard, **heard.options)
    [first, second] = await in_spell(pair, saver)
    alter(pair, 0, ALTERED["its record"])
    await saver.flush()
    assert pair.stored() == [id_of(first), id_of(second)]
    assert heard.kinds == ["repaired"]
    assert values_of(await pair.saver(BEHIND, **guard).get_tuple(at())) == {"c": 2}
    assert await saver.verify(["t"])


@guards
async def test_what_no_digest_covers_of_an_entry_is_made_again(
    pair: Pair, guard: dict[str, Any]
) -> None:
    """What filters look at, and what signs it as a head."""
    saver = pair.saver(BEHIND, **guard)
    [_, second] = await in_spell(pair, saver)
    alter(pair, 0, lambda put: replace(put, metadata='{"source": "loop", "step": 77}', seal=b"x"))
    await saver.flush()
    pair.empty_redis()
    fresh = pair.saver({}, **guard)
    assert ids_of(await fresh.list(at(), filter={"step": 2})) == [id_of(second)]
    assert await fresh.list(at(), filter={"step": 77}) == []
    assert values_of(await fresh.get_tuple(at())) == {"c": 2}


@guards
@pytest.mark.parametrize("readable", [True, False])
async def test_what_is_sound_behind_an_altered_entry_is_kept(
    pair: Pair, guard: dict[str, Any], readable: bool
) -> None:
    """Beside the head, since what it stands on is not there."""
    heard = Heard()
    saver = pair.saver(BEHIND, **guard, **heard.options)
    [first, _, third] = await in_spell(pair, saver, held=2)
    if readable:
        alter(pair, 0, ALTERED["its record"])
    else:
        spoil_entry(pair, 0)
    await flush(saver)
    assert (pair.stored(), pair.waiting()) == ([id_of(first), id_of(third)], 0)
    assert {"state_lost", "branch_kept"} <= {*heard.kinds}
    reader = pair.saver(BEHIND, **guard)
    with pytest.raises(StateLostError):
        await reader.get_tuple(at())
    assert values_of(await reader.get_tuple(at(id=id_of(third)))) == {"c": 3}
    assert await reader.accept_loss("t") == [""]


@guards
async def test_altered_pending_writes_become_no_row(pair: Pair, guard: dict[str, Any]) -> None:
    """Where Redis has them right beside the outbox, those are flushed."""
    saver = pair.saver(BEHIND, **guard)
    [_, second] = await in_spell(pair, saver)
    await saver.put_writes(second, [("c", "x" * 99)], "task")

    def change(item: PutWrites) -> PutWrites:
        [row] = item.rows
        return replace(item, rows=(replace(row, blob=flipped(row.blob)),))

    alter(pair, 1, change)
    await saver.flush()
    pair.empty_redis()
    found = await pair.saver({}, **guard).get_tuple(at())
    assert found.pending_writes == [("task", "c", "x" * 99)]


async def test_who_flushes_needs_no_key(pair: Pair) -> None:
    """What it cannot prove is proven by who reads it."""
    saver = pair.saver(BEHIND, **GUARDS["encrypted"])
    [first, second] = await in_spell(pair, saver)
    with pytest.raises(KeyMissingError):
        await pair.saver(BEHIND).get_tuple(at(id=id_of(first)))
    assert pair.stored() == [id_of(first), id_of(second)]
    found = await pair.saver({}, **GUARDS["encrypted"]).get_tuple(at())
    assert values_of(found) == {"c": 2}


async def test_an_entry_that_was_emptied_holds_nothing_up(pair: Pair) -> None:
    saver = pair.saver(BEHIND)
    [first, _] = await in_spell(pair, saver)
    with redis.Redis.from_url(pair.redis.url) as client:
        client.lset(pair._key("t", ""), 0, "")
    spoil_copy(pair)
    await flush(saver)
    assert (pair.stored(), pair.waiting()) == ([id_of(first)], 0)
    assert await pair.saver(BEHIND).accept_loss("t") == [""]
