"""Running again after a conflict."""

from __future__ import annotations

import pytest

from langgraph_durable_state import UsageError, rerun_on_conflict


async def never_run() -> None:
    """What a native call gives: a coroutine that somebody has to await."""
    raise AssertionError


def test_a_coroutine_is_refused() -> None:
    """Nobody would await it, nor see its conflict; it is closed, so nothing warns of it later."""
    with pytest.raises(UsageError, match="arerun_on_conflict"):
        rerun_on_conflict(never_run)
    with pytest.raises(UsageError, match="arerun_on_conflict"):
        rerun_on_conflict(lambda: never_run())
