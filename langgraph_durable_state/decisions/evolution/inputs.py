"""A run's input that waits to be taken up as a pydantic model: the class is today's, what it holds
is not. LangGraph takes up what the model was given, field by field: that may wait in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic

from .. import unknown_fields
from . import tasks
from .shaping import Shape


def opened(shape: Shape) -> Shape:
    """With what such an input was given, by its fields."""
    given = unknown_fields.given(shape.values.get(tasks.START))
    return shape if given is None else _with(shape, given)


def closed(shape: Shape, before: Mapping[str, Any]) -> Shape:
    """The same once it is of today's shape, each value as today's class takes it.

    Args:
        shape: a checkpoint.
        before: its values as they were read.
    """
    was, now = before.get(tasks.START), shape.values.get(tasks.START)
    if not isinstance(was, pydantic.BaseModel) or not isinstance(now, dict):
        return shape
    return _with(shape, unknown_fields.taken(type(was), now))


def _with(shape: Shape, given: Mapping[str, Any]) -> Shape:
    values = {**shape.values, tasks.START: given}
    return Shape({**shape.checkpoint, "channel_values": values}, shape.metadata)
