"""Samples to figures: medians, 95th percentiles, and ratios to the peer."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .chat import Stored
from .rounds import Samples


@dataclass(frozen=True)
class Figure:
    """One cell.

    Attributes:
        workload, size: its row.
        subject: its column.
        median, p95: in milliseconds.
        samples: how many there were.
        ratio: of its median to that of the peer; None if the peer was not measured.
    """

    workload: str
    size: str
    subject: str
    median: float
    p95: float
    samples: int
    ratio: float | None


def figures(
    workload: str, size: str, samples: Samples, peers: Mapping[str, str]
) -> Sequence[Figure]:
    """The row of these samples (in seconds), one figure for each subject."""
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    return [
        Figure(
            workload,
            size,
            name,
            medians[name] * 1000,
            percentile(taken, 95) * 1000,
            len(taken),
            medians[name] / medians[peers[name]] if peers.get(name) in medians else None,
        )
        for name, taken in samples.items()
    ]


def percentile(samples: Iterable[float], percent: int) -> float:
    """The smallest sample that `percent` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


@dataclass(frozen=True)
class Outage:
    """One row.

    Attributes:
        what: was measured.
        tier: and how it was.
        median, p95, worst: in milliseconds.
        samples: how many there were.
        added: to the median of the same without Redis, in milliseconds.
    """

    what: str
    tier: str
    median: float
    p95: float
    worst: float
    samples: int
    added: float | None = None


@dataclass(frozen=True)
class Results:
    """All that one run found.

    Attributes:
        about: versions and settings.
        rows: of the subjects.
        floors: of the bare parts.
        stored: what the chat left behind.
        outages: what a tier costs that is away.
    """

    about: Mapping[str, str | int]
    rows: Sequence[Figure]
    floors: Sequence[Figure]
    stored: Sequence[Stored]
    outages: Sequence[Outage]
