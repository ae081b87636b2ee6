"""Whether the values of a checkpoint suit the class of a graph's state, and where they do not.

LangGraph makes an object of that class for each node. What it refuses there is stored by then: a
node's value is checked when the next node is given it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints

import pydantic
from typing_extensions import ReadOnly

from ..errors import UsageError
from ..recovery import Misfit
from . import safe_classes, unknown_fields
from .evolution.tasks import is_users

_TOLD = frozenset(
    (
        "missing",
        "extra_forbidden",
        "none_required",
        "string_type",
        "string_too_short",
        "string_too_long",
        "int_type",
        "int_from_float",
        "int_parsing",
        "float_type",
        "float_parsing",
        "bool_type",
        "bool_parsing",
        "bytes_type",
        "list_type",
        "dict_type",
        "tuple_type",
        "set_type",
        "model_type",
        "dataclass_type",
        "too_short",
        "too_long",
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "multiple_of",
        "literal_error",
        "is_instance_of",
    )
)
"""pydantic's errors whose text holds nothing of the value. Any other may quote it."""

_UNASKED = frozenset({"missing", "extra_forbidden"})
"""Errors that say nothing of a state as a whole: a graph holds more than a node is given, and less
before it has begun."""

Check = Callable[[Any], Any]
"""Raises `pydantic.ValidationError` for a value that does not suit."""


class Suit:
    """Checks values.

    Args:
        state: a compiled graph, or a graph that is not, or the class of a state: a pydantic model
            is asked as a whole, of a TypedDict or a dataclass each field's type is.

    Raises:
        UsageError: if it is none of these.
    """

    def __init__(self, state: Any) -> None:
        schema = class_of(state)
        self._whole: Check | None = None
        self._fields: dict[str, Check] = {}
        if issubclass(schema, pydantic.BaseModel):
            self._whole = pydantic.TypeAdapter(schema).validate_python
            return
        try:
            hints = get_type_hints(schema, include_extras=True)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"state={state!r}: its fields have no types ({reason})") from error
        found = {name: unknown_fields.check_of(_bare(hint)) for name, hint in hints.items()}
        self._fields = {name: check for name, check in found.items() if check is not None}

    def misfits(self, checkpoint: Mapping[str, Any]) -> tuple[Misfit, ...]:
        """What does not suit in a checkpoint, by path, each place once. What a
        DeltaChannel makes from what came before is not looked at."""
        found = checkpoint["channel_values"].items()
        values = {name: _plain(value) for name, value in found if is_users(name)}
        out: dict[str, Misfit] = {}
        for path, error in self._errors(values):
            where, why = _joined(path, error["loc"]), error["msg"]
            if "." not in where and "[" not in where and error["type"] in _UNASKED:
                continue
            out.setdefault(where, Misfit(where, why if error["type"] in _TOLD else "it is refused"))
        return tuple(out.values())

    def _errors(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        if self._whole is not None:
            yield from _tried("", self._whole, values)
        for name, check in self._fields.items():
            if name in values:
                yield from _tried(name, check, values[name])
        for name, value in values.items():
            yield from _within(name, value, frozenset())


def class_of(state: Any) -> type:
    """The class of a graph's state.

    Raises:
        UsageError: if `state` is no graph with one, and no class.
    """
    graph = getattr(state, "builder", state)
    schema = getattr(graph, "state_schema", graph)
    if not isinstance(schema, type):
        raise UsageError(f"state={state!r}: use a graph, or the class of its state")
    return schema


def _bare(hint: Any) -> Any:
    """A field's type without what says whether it has to be there."""
    while get_origin(hint) in (Required, NotRequired, ReadOnly):
        hint = get_args(hint)[0]
    return hint


def _within(path: str, value: Any, around: frozenset[int]) -> Iterator[tuple[str, Any]]:
    """What is wrong with the models in a value, of those that are nothing but their fields. One
    that is given as an object is not looked into by the class of the state."""
    if id(value) in around:
        return
    if isinstance(value, pydantic.BaseModel):
        names = unknown_fields.fields_of(type(value))
        if names is not None:
            given = {name: each for name, each in value.__dict__.items() if name in names}
            yield from _tried(path, type(value).__pydantic_validator__.validate_python, given)
    for part, inner in _parts(value):
        yield from _within(_joined(path, (part,)), inner, around | {id(value)})


def _tried(path: str, check: Check, value: Any) -> Iterable[tuple[str, Any]]:
    try:
        check(value)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return [(path, each) for each in found]
    except Exception:  # whatever a validator does with what it was not made for
        pass
    return ()


def _plain(value: Any) -> Any:
    """A channel's value, out of a DeltaChannel's snapshot."""
    kind = safe_classes.SNAPSHOT
    return value.value if kind is not None and isinstance(value, kind) else value


def _parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, pydantic.BaseModel):
        return value.__dict__.items()
    if isinstance(value, dict):
        return ((str(key), each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return ((f.name, getattr(value, f.name)) for f in fields if hasattr(value, f.name))
    return ()


def _joined(path: str, parts: Iterable[str | int]) -> str:
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
