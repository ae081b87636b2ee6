"""Channel versions: what stands in them by chance, and where the chance comes from."""

from __future__ import annotations

import random
from typing import Any

import pytest

from langgraph_durable_state.testing import memory_saver

CURRENT = [None, "00000001.0000000000", "0000000000000000000001.0123456789"]


@pytest.mark.parametrize("current", CURRENT)
def test_a_seed_of_the_users_makes_no_two_versions_alike(current: Any) -> None:
    """Two processes that begin with one seed must not draw one version."""
    saver = memory_saver()
    drawn = []
    for _ in range(2):
        random.seed(1)
        drawn.append(saver.get_next_version(current, None))
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("current", CURRENT)
def test_a_version_takes_nothing_from_the_users_random_numbers(current: Any) -> None:
    saver = memory_saver()
    random.seed(1)
    expected = random.random()
    random.seed(1)
    saver.get_next_version(current, None)
    assert random.random() == expected
