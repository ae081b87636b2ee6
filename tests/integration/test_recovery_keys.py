"""A thread that goes on after damage, where its heads are signed and witnessed."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_durable_state import HeadMovedError
from tests.cases import Store, at, id_of, values_of
from tests.integration.test_recovery import BEFORE, DAMAGE, TABLE, advance, stored

KEYS: dict[str, Any] = {
    "signed": {"integrity_key": b"k" * 32},
    "encrypted": {"encryption_key": b"m" * 32},
}

both = pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)


@both
async def test_a_run_goes_on_from_where_it_fell_back_to(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Its put is the next move of the head, which Redis has seen further on."""
    await stored(hot_store, hot_reads="never", **keys)
    hot_store.query(DAMAGE["a byte of the record"])
    saver = hot_store.saver(**keys)
    found = await saver.get_tuple(at())
    assert values_of(found) == BEFORE
    config = await advance(saver, found, {"n": 7})
    again = await hot_store.saver(**keys).get_tuple(at())
    assert (id_of(again.config), values_of(again)) == (id_of(config), {**BEFORE, "n": 7})


@both
async def test_the_last_sound_checkpoint_is_signed_as_head(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Who has the key has moved it back, and Redis no longer says otherwise."""
    configs = await stored(hot_store, hot_reads="never", **keys)
    saver = hot_store.saver(on_corrupt="raise", **keys)
    hot_store.query(DAMAGE["a byte of the record"])
    await saver.fork_from(await saver.recover(at()))
    found = await hot_store.saver(**keys).get_tuple(at())
    assert id_of(found.config) == id_of(configs[2])
    config = await advance(saver, await saver.get_tuple(at()), {"n": 7})
    assert id_of((await hot_store.saver(**keys).get_tuple(at())).config) == id_of(config)


@both
async def test_a_head_that_was_moved_is_no_damage_to_fall_back_from(
    hot_store: Store, keys: dict[str, Any]
) -> None:
    """Somebody without the key set it back to what is sound: that is refused, not served."""
    configs = await stored(hot_store, hot_reads="never", **keys)
    hot_store.query(
        f"UPDATE {TABLE}.head SET (id, digest) = (SELECT id, digest FROM {TABLE}.checkpoint c"
        f" WHERE c.id = '{id_of(configs[1])}')"
    )
    with pytest.raises(HeadMovedError):
        await hot_store.saver(**keys).get_tuple(at())
