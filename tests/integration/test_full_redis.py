"""A Redis that is full takes nothing more, but gives what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from langgraph_durable_state import DurableSaver
from tests.conftest import MakeValkey
from tests.contract.superstep import config, superstep


def in_the_background(saver: DurableSaver) -> None:
    saver._faces.background.step()


def flush(saver: DurableSaver) -> None:
    saver.flush()


@pytest.mark.parametrize("how", [in_the_background, flush])
def test_what_is_flushed_leaves_it(
    postgres_url: str, make_valkey: MakeValkey, how: Callable[[DurableSaver], Any]
) -> None:
    """Else it would be full for ever: nothing else makes room in it."""
    server = make_valkey()
    with (
        DurableSaver(postgres_url, server.url, write_policy="write_behind") as saver,
        redis.Redis.from_url(server.url) as client,
    ):
        saver._faces.background.start = lambda: None  # type: ignore[method-assign]
        for id in ("1", "2"):
            saver.put(*superstep(saver, saver.get_tuple(config()), id, {"x": id}))
        client.config_set("maxmemory", 1)
        how(saver)
        assert list(client.scan_iter("*:outbox")) == []
        client.config_set("maxmemory", 0)
        saver.put(*superstep(saver, saver.get_tuple(config()), "3", {"x": "3"}))
        assert [found.checkpoint["id"] for found in saver.list(config())] == ["3", "2", "1"]
