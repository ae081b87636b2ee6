"""LangGraph's own conformance suite over the memory driver, which other tests rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_durable_state import DurableSaver
from langgraph_durable_state.testing import memory_saver
from tests.contract.test_conformance import conforms
from tests.faces import OnBlockingFace


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("wrap", [OnBlockingFace, lambda saver: saver], ids=["blocking", "native"])
async def test_in_memory(hot: bool, wrap: Callable[[DurableSaver], Any]) -> None:
    """Every test passes on both faces, with hot copies and without."""
    await conforms(lambda: memory_saver(hot=hot, hot_reads="always"), wrap)
