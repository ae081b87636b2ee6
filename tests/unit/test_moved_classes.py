"""Stored objects of classes that have moved, and of fields that have another name."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pydantic
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_durable_state.decisions.reviving import Unknown, permitting
from langgraph_durable_state.decisions.serializing import Serializer
from langgraph_durable_state.evolution import StateSchema, move_class, rename_field

HERE = __name__


@dataclasses.dataclass
class Point:
    """As it is now."""

    x: Any
    y: Any = 0


class Model(pydantic.BaseModel):
    number: int


class Colour(enum.Enum):
    RED = "red"


def stored(kind: str, **fields: Any) -> bytes:
    """What code that had the class under another name, or with other fields, stored."""
    if kind == "Hue":
        made: Any = enum.Enum("Hue", {"RED": "red"}, module=HERE).RED  # type: ignore[attr-defined]
    elif kind == "Form":
        made = pydantic.create_model("Form", __module__=HERE, **dict.fromkeys(fields, (int, ...)))(
            **fields
        )
    else:
        made = dataclasses.make_dataclass(kind, [*fields])(**fields)
        type(made).__module__ = HERE
    return JsonPlusSerializer().dumps_typed(made)[1]


def read(
    schema: StateSchema, data: bytes, version: int = 0, allow: Any = (Point, Model, Colour)
) -> Any:
    plain = Serializer(permitting(None, allow))
    return plain.as_of(schema.revival(version, schema.version)).loads("msgpack", data)


def schema(*steps: Any) -> StateSchema:
    made = StateSchema(version=len(steps))
    for version, operations in enumerate(steps):
        made.step(version, *operations)
    return made


def test_a_class_that_moved_is_the_new_class() -> None:
    """Not its fields in a dict, and not an error."""
    moved = schema([move_class(f"{HERE}:Spot", f"{HERE}:Point")])
    assert read(moved, stored("Spot", x=1, y=2)) == Point(1, 2)


def test_an_enum_and_a_model_that_moved() -> None:
    """Whatever kind of class it is."""
    moved = schema(
        [move_class(f"{HERE}:Hue", f"{HERE}:Colour"), move_class(f"{HERE}:Form", f"{HERE}:Model")]
    )
    assert read(moved, stored("Hue")) is Colour.RED
    assert read(moved, stored("Form", number=3)) == Model(number=3)


def test_a_class_that_moved_twice() -> None:
    """From either of its old places it comes to the last one."""
    moved = schema(
        [move_class(f"{HERE}:Spot", f"{HERE}:Place")],
        [move_class(f"{HERE}:Place", f"{HERE}:Point")],
    )
    assert read(moved, stored("Spot", x=1, y=2)) == Point(1, 2)
    assert read(moved, stored("Place", x=1, y=2), version=1) == Point(1, 2)


def test_a_moved_class_has_to_be_allowed() -> None:
    """That it was declared is no permission to make it of stored bytes."""
    moved = schema([move_class(f"{HERE}:Spot", f"{HERE}:Point")])
    with pytest.raises(Unknown, match="Point is not among the classes"):
        read(moved, stored("Spot", x=1, y=2), allow=())


def test_a_field_has_its_new_name_before_the_class_is_made() -> None:
    """So that a class that refuses the old name takes it."""
    renamed = schema([rename_field("at", Point, "left", "x")])
    assert read(renamed, stored("Point", left=1, y=2)) == Point(1, 2)


def test_a_field_of_a_class_that_moves_later() -> None:
    """Each step speaks of the class by the name that it then had."""
    changed = schema(
        [rename_field("at", f"{HERE}:Spot", "left", "x")],
        [move_class(f"{HERE}:Spot", f"{HERE}:Point")],
    )
    assert read(changed, stored("Spot", left=1, y=2)) == Point(1, 2)
    assert read(changed, stored("Spot", x=1, y=2), version=1) == Point(1, 2)


def test_a_field_that_later_bears_an_old_ones_name() -> None:
    """It is told from it by the version that stored it."""
    changed = schema([rename_field("at", Point, "y", "x")], [rename_field("at", Point, "z", "y")])
    assert read(changed, stored("Point", y=1)) == Point(1)
    assert read(changed, stored("Point", x=1, z=2), version=1) == Point(1, 2)
    back = schema([rename_field("at", Point, "x", "q")], [rename_field("at", Point, "x", "y")])
    assert back.revival(0, 2).fields == {(HERE, "Point"): {"x": "q"}}


def test_the_newest_bytes_are_read_as_they_are() -> None:
    """A new field may bear an old one's name."""
    changed = schema([rename_field("at", Point, "y", "x")])
    assert read(changed, stored("Point", x=1, y=2), version=1) == Point(1, 2)


def test_older_code_reads_the_moved_class_by_its_old_name() -> None:
    """Downwards too."""
    moved = schema([move_class(f"{HERE}:Point", f"{HERE}:Spot")])
    plain = Serializer(permitting(None, (Point,)))
    data = stored("Spot", x=1, y=2)
    assert plain.as_of(moved.revival(1, 0)).loads("msgpack", data) == Point(1, 2)
