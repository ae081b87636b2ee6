"""Which checkpoints a thread needs: this file decides and never acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTERS = "counters_since_delta_snapshot"


def replayed_channels(
    metadata: Mapping[str, Any], versions: Mapping[str, Any], stored: Mapping[str, Any]
) -> set[str]:
    """The channels of a checkpoint whose value is made from its ancestors.

    LangGraph counts, in the metadata, what each DeltaChannel has seen since its last snapshot. A
    channel that is counted, was ever written, and has no value stored here, needs ancestors down
    to where one is.
    """
    counted = metadata.get(COUNTERS) or {}
    return {name for name in counted if name in versions and name not in stored}
