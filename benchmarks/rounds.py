"""Interleaving: every round measures each case once, in an order that changes from round to round,
so that whatever else the machine does hits all alike."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping

Cases = Mapping[str, Callable[[], float]]
Samples = dict[str, list[float]]


def interleaved(cases: Cases, rounds: int, warmups: int, tick: Callable[[], None]) -> Samples:
    """Seconds by case.

    Args:
        cases: each returns what one sample took.
        rounds: samples of each.
        warmups: rounds before that, which are not kept.
        tick: called after each sample that is kept.
    """
    # What set-up left behind shall not be traversed again amid somebody's sample.
    gc.collect()
    gc.freeze()
    samples: Samples = {name: [] for name in cases}
    order = random.Random(0)
    for number in range(-warmups, rounds):
        for name in order.sample(list(cases), len(cases)):
            took = cases[name]()
            if number >= 0:
                samples[name].append(took)
                tick()
    gc.unfreeze()
    return samples
