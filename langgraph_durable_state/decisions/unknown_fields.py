"""Fields of stored objects that their class does not have: those of a newer class, where older code
is at work beside newer, or of an older one. The object is made without them; they are kept beside
it for as long as it lives, and stored with it again.

An object that was copied or changed into another one is that one: it has them no more.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, cast

import ormsgpack
import pydantic
from langgraph.checkpoint.serde import jsonplus

from . import safe_classes

_KEYWORDS, _MODEL, _DELTA = 2, 5, 7
"""LangGraph's codes of what is made from keywords, of pydantic models, of snapshots."""

_VALIDATES = "model_validate_json"

_kept: dict[int, tuple[weakref.ref[Any], Mapping[str, Any]]] = {}
"""By the object's address, which is its own while it lives."""


def split(found: Any, given: Any) -> tuple[Any, Mapping[str, Any]]:
    """What is stored of an object of class `found`, and which of it the class has no field for."""
    names = _names(found) if isinstance(found, type) and isinstance(given, dict) else None
    if names is None or names.issuperset(given):
        return given, {}
    unknown = {name: value for name, value in given.items() if name not in names}
    return {name: value for name, value in given.items() if name in names}, unknown


def keep(made: Any, given: Any) -> None:
    """Keeps what an object and the models within it were made without.

    Args:
        made: the object.
        given: all that is stored of it.

    Raises:
        TypeError: if nothing can be kept beside it: a dataclass with slots, for one.
    """
    if _is_record(made) and isinstance(given, dict):
        _, unknown = split(type(made), given)
        if unknown:
            _kept[id(made)] = weakref.ref(made, partial(_drop, id(made))), unknown
        for name, value in _parts(made):
            if name in given:
                keep(value, given[name])
    elif isinstance(made, (list, tuple)) and isinstance(given, (list, tuple)):
        if len(made) == len(given):
            for value, stored in zip(made, given, strict=True):
                keep(value, stored)
    elif isinstance(made, dict) and isinstance(given, dict):
        for key, value in made.items():
            keep(value, given.get(key))


def _drop(address: int, _: weakref.ref[Any]) -> None:
    _kept.pop(address, None)


def given(made: Any) -> dict[str, Any] | None:
    """What a pydantic model was made from, by field, with what it was made without; None of what is
    none."""
    if not isinstance(made, pydantic.BaseModel) or isinstance(made, pydantic.RootModel):
        return None
    own = {name: made.__dict__[name] for name in made.__dict__ if name in made.model_fields_set}
    beside = _kept.get(id(made))
    return {**own, **(made.__pydantic_extra__ or {}), **(beside[1] if beside is not None else {})}


def taken(kind: type[pydantic.BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the fields of a model would take them, each that they do."""
    out = dict(values)
    for name, field in kind.model_fields.items():
        if name in out:
            with suppress(Exception):  # so it is for the class to refuse, or none of pydantic's
                taking = pydantic.TypeAdapter(cast("Any", field.annotation))
                out[name] = taking.validate_python(out[name])
    return out


def packed(value: Any) -> bytes | None:
    """What LangGraph's serializer makes of a value, with what is kept beside the objects in it;
    None if nothing is kept beside any object now."""
    if not _kept:
        return None
    return ormsgpack.packb(value, default=_default, option=jsonplus._option)


def _default(value: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        whole = _with_kept(value, value.model_dump())
        return _packed(_MODEL, value, whole, _VALIDATES)
    if safe_classes.SNAPSHOT is not None and isinstance(value, safe_classes.SNAPSHOT):
        return ormsgpack.Ext(_DELTA, packed(value.value) or b"")
    if _is_record(value) and not hasattr(value, "model_dump"):
        return _packed(_KEYWORDS, value, _with_kept(value, dict(_parts(value))))
    return jsonplus._msgpack_default(value)


def _packed(code: int, value: Any, whole: Any, *more: str) -> ormsgpack.Ext:
    kind = type(value)
    parts = (kind.__module__, kind.__name__, whole, *more)
    return ormsgpack.Ext(code, ormsgpack.packb(parts, default=_default, option=jsonplus._option))


def _with_kept(value: Any, dumped: Any) -> Any:
    """What is dumped of a value, with what is kept beside the objects in it."""
    if _is_record(value) and isinstance(dumped, dict):
        for name, part in _parts(value):
            if name in dumped:
                dumped[name] = _with_kept(part, dumped[name])
        beside = _kept.get(id(value))
        return dumped if beside is None else {**beside[1], **dumped}
    if isinstance(value, (list, tuple)) and isinstance(dumped, (list, tuple)):
        return type(dumped)(map(_with_kept, value, dumped))
    if isinstance(value, dict) and isinstance(dumped, dict):
        return {key: _with_kept(value.get(key), part) for key, part in dumped.items()}
    return dumped


def _is_record(value: Any) -> bool:
    return _names(value.__class__) is not None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a model or dataclass, as LangGraph's serializer stores them."""
    if isinstance(value, pydantic.BaseModel):
        yield from value.__dict__.items()
    else:
        yield from ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))


@lru_cache(maxsize=1024)
def _names(found: type) -> frozenset[str] | None:
    """The names that a class has fields for; None if it takes any, or is none of the user's."""
    if (found.__module__, found.__name__) in safe_classes.SAFE:
        return None
    if issubclass(found, pydantic.BaseModel):
        if found.model_config.get("extra") == "allow":
            return None
        fields = found.model_fields.values()
        aliases = (alias for each in fields for alias in (each.alias, each.validation_alias))
        texts = {alias for alias in aliases if isinstance(alias, str)}
        return frozenset({*found.model_fields, *found.model_computed_fields, *texts})
    if dataclasses.is_dataclass(found):
        return frozenset(each.name for each in dataclasses.fields(found))
    return None
