"""The versions of a graph's state: what changed from one to the next, said once.

A saver that is given a `StateSchema` reads what older code stored as if the new code had stored
it, runs that wait at an interrupt included.
"""

from __future__ import annotations

from .decisions.evolution.differing import Difference, SchemaReport
from .decisions.evolution.fingerprint import Fingerprint
from .decisions.evolution.operations import (
    Operation,
    add_channel,
    convert_channel,
    drop_channel,
    drop_node,
    merge,
    move_class,
    rename_channel,
    rename_field,
    rename_node,
    split,
)
from .decisions.evolution.steps import StateSchema

__all__ = [
    "Difference",
    "Fingerprint",
    "Operation",
    "SchemaReport",
    "StateSchema",
    "add_channel",
    "convert_channel",
    "drop_channel",
    "drop_node",
    "merge",
    "move_class",
    "rename_channel",
    "rename_field",
    "rename_node",
    "split",
]
