"""What is as it was written and cannot be read here: it is no damage, and nothing goes back past
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from langgraph_durable_state import (
    EvolutionError,
    KeyMissingError,
    UsageError,
)
from tests.cases import Store, at, cp, id_of, put, values_of
from tests.integration.test_branches import DeltaState, row_of
from tests.integration.test_recovery import DAMAGE, event_rows
from tests.integration.test_scrub import hold, release


@dataclass
class Order:
    """A class of the application, which others do not know."""

    number: int


async def story(store: Store, *values: Any) -> list[Any]:
    """A checkpoint of each of these values, by a saver that may read them; their configs."""
    saver = store.saver(allow=[Order])
    configs: list[Any] = [at()]
    for step, value in enumerate(values):
        made = cp({"v": value}, versions={"v": str(step + 1)})
        configs.append(await put(saver, configs[-1], made))
    store.flush_redis()
    return configs[1:]


async def test_a_head_that_cannot_be_decoded_is_not_gone_back_from(hot_store: Store) -> None:
    """It is the last sound one: its digests tell, whoever can read it."""
    configs = await story(hot_store, 1, Order(2))
    saver = hot_store.saver()
    report = await saver.recover(at())
    assert (report.decision, report.checkpoint) == ("refuse", None)
    assert report.error.startswith("EvolutionError")
    assert (report.asked, report.last_sound) == (id_of(configs[1]), id_of(configs[1]))
    assert (report.skipped, report.damage) == ((), ())
    with pytest.raises(UsageError, match=r"is itself the last.*allow="):
        await saver.fork_from(report)
    found = await hot_store.saver(allow=[Order]).get_tuple(at())
    assert (id_of(found.config), values_of(found)) == (id_of(configs[1]), {"v": Order(2)})


async def test_a_pending_write_that_cannot_be_decoded_is_no_damage_either(
    hot_store: Store,
) -> None:
    configs = await story(hot_store, 1, 2)
    await hot_store.saver(allow=[Order]).put_writes(configs[1], [("v", Order(3))], "task")
    report = await hot_store.saver().recover(at())
    assert (report.decision, report.last_sound) == ("refuse", id_of(configs[1]))
    with pytest.raises(UsageError):
        await hot_store.saver().fork_from(report)


async def test_a_read_does_not_fall_back_past_what_it_cannot_decode(hot_store: Store) -> None:
    """The parent of a damaged head is sound: who may read it is given it."""
    configs = await story(hot_store, 1, Order(2), 3)
    hot_store.query(DAMAGE["a byte of the record"])
    with pytest.raises(EvolutionError):
        await hot_store.saver().get_tuple(at())
    found = await hot_store.saver(allow=[Order]).get_tuple(at())
    assert (id_of(found.config), values_of(found)) == (id_of(configs[1]), {"v": Order(2)})


async def test_a_fork_goes_back_to_what_is_sound_whoever_can_decode_it(hot_store: Store) -> None:
    """An operator's process need not have the application's classes."""
    configs = await story(hot_store, 1, Order(2), 3)
    hot_store.query(DAMAGE["a byte of the record"])
    operator = hot_store.saver()
    report = await operator.recover(at())
    assert (report.decision, report.checkpoint) == ("refuse", None)
    assert report.error.startswith("EvolutionError")
    assert [id for id, _ in report.skipped] == [id_of(configs[2])]
    assert report.last_sound == id_of(configs[1])
    assert await operator.fork_from(report) == at()
    assert event_rows(hot_store)[-1][1]["to"] == id_of(configs[1])
    found = await hot_store.saver(allow=[Order], on_corrupt="raise").get_tuple(at())
    assert values_of(found) == {"v": Order(2)}


async def test_a_history_that_cannot_be_decoded_is_not_gone_back_from(hot_store: Store) -> None:
    """What a DeltaChannel replays is as it was written, though not for everybody."""
    nodes = {"a": lambda _: {"items": [Order(1)]}, "b": lambda _: {"who": "b"}}
    graph = row_of(hot_store.open(allow=[Order]), DeltaState, **nodes)
    done = await hot_store.face(graph).invoke({"items": ["start"]}, at())
    assert done["items"] == ["start", Order(1)]
    report = await hot_store.saver().recover(at())
    assert "replay cannot be read" in report.why
    assert (report.decision, report.checkpoint) == ("resume", report.last_sound)
    assert report.skipped == ()


# -- keys ------------------------------------------------------------------------------------

OURS: dict[str, Any] = {"encryption_key": b"m" * 32}
OTHERS: dict[str, dict[str, Any]] = {
    "another master key": {"encryption_key": b"n" * 32},
    "no key": {},
    "shredded": OURS,
}


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize("flushed", [True, False], ids=["durable", "hot"])
async def test_what_is_under_a_key_that_is_not_there_is_told(
    hot_store: Store, how: str, flushed: bool
) -> None:
    """As a refusal with the error that a read raises; nothing is gone back from."""
    saver = hot_store.saver(**OURS)
    of_user = {"configurable": at()["configurable"] | {"user_id": "u"}}
    config = await put(saver, of_user, cp({"v": 1}))
    if flushed:
        hot_store.flush_redis()
    if how == "shredded":
        assert await hot_store.saver(**OURS).shred("u") == 1
    saver = hot_store.saver(**OTHERS[how])
    with pytest.raises(KeyMissingError) as met:
        await saver.get_tuple(at())
    for id in (None, id_of(config)):
        report = await saver.recover(at(id=id))
        assert report.error == f"KeyMissingError: {met.value}"
        assert (report.decision, report.asked) == ("refuse", id_of(config))
        assert (report.checkpoint, report.last_sound, report.damage) == (None, None, ())
        with pytest.raises(UsageError, match="under the key"):
            await saver.fork_from(report)


async def test_a_head_that_only_redis_has_is_named_though_its_key_is_not_there(
    hot_store: Store,
) -> None:
    """It is what was asked for, not the older one that Postgres has."""
    saver = hot_store.saver(write_policy="write_behind", **OURS)
    first = await put(saver, at(), cp({"v": 1}))
    await saver.flush()
    hold(hot_store)
    config = await put(saver, first, cp({"v": 2}, versions={"v": "2"}))
    other = hot_store.saver(write_policy="write_behind", **OTHERS["another master key"])
    report = await other.recover(at())
    assert (report.decision, report.asked) == ("refuse", id_of(config))
    assert report.error.startswith("KeyMissingError")
    release(hot_store)


async def test_a_data_key_that_is_damaged_is_told(hot_store: Store) -> None:
    config = await put(hot_store.saver(**OURS), at(), cp({"v": 1}))
    hot_store.query(
        "UPDATE durable_state.data_key"
        " SET wrapped = set_byte(wrapped, 20, get_byte(wrapped, 20) # 1)"
    )
    report = await hot_store.saver(**OURS).recover(at())
    assert (report.decision, report.asked) == ("refuse", id_of(config))
    assert report.error.startswith("CorruptionError")
    assert (report.checkpoint, report.last_sound) == (None, None)
