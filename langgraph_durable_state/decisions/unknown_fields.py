"""Fields of stored objects that their class does not have: those of a newer class, where older
code is at work beside newer, or of an older one. They are kept beside the object for as long as it
lives, and stored with it again.

Only of classes that are nothing but their fields: what validators, aliases or a constructor of the
user's make of what is stored, they alone know. An object that was copied or changed into another
one is that one: it has the fields no more.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import ormsgpack
import pydantic
from langgraph.checkpoint.serde import jsonplus

from . import safe_classes

POSITIONS, KEYWORDS, MODEL, DELTA = 1, 2, 5, 7
"""LangGraph's codes of what is made from positions and from keywords, of models, of snapshots."""

_VALIDATES = "model_validate_json"

_ANY = pydantic.ConfigDict(arbitrary_types_allowed=True)

_kept: dict[int, tuple[weakref.ref[Any], Mapping[str, Any]]] = {}
"""By the object's address, which is its own while it lives."""


def made(make: Callable[[Any], Any], found: Any, given: Any) -> Any:
    """The object of class `found` that `make` makes of what is stored of it.

    Raises:
        Exception: what the class raises; what it knows nothing of is no reason to.
    """
    names = fields_of(found) if isinstance(found, type) and isinstance(given, dict) else None
    if names is None:
        return make(given)
    value = make({name: each for name, each in given.items() if name in names})
    _keep(value, names, given)
    if isinstance(value, pydantic.BaseModel) and _nests(type(value)):
        for name, part in _parts(value):
            _keep_within(part, given.get(name))
    return value


def _keep(value: Any, names: frozenset[str], given: Mapping[str, Any]) -> None:
    unknown = {name: each for name, each in given.items() if name not in names}
    if unknown:
        _kept[id(value)] = weakref.ref(value, partial(_drop, id(value))), unknown


def _keep_within(value: Any, given: Any) -> None:
    """Keeps what pydantic made the models in a part of a model without: of each, what is stored in
    its place."""
    if type(value) in (list, tuple) and isinstance(given, (list, tuple)):
        if len(value) == len(given):
            for part, stored in zip(value, given, strict=True):
                _keep_within(part, stored)
    elif type(value) is dict and isinstance(given, dict):
        for key, part in value.items():
            _keep_within(part, given.get(key))
    elif isinstance(given, dict) and (names := fields_of(type(value))) is not None:
        with suppress(TypeError):  # nothing can be kept beside a dataclass with slots
            _keep(value, names, given)
        for name, part in _parts(value):
            _keep_within(part, given.get(name))


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    """The fields of an object of a class that is nothing but these."""
    if isinstance(value, pydantic.BaseModel):
        return value.__dict__.items()
    return ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))


def _drop(address: int, _: weakref.ref[Any]) -> None:
    _kept.pop(address, None)


def given(value: Any) -> dict[str, Any] | None:
    """What a pydantic model was made from, by field, with what its class has no field for; None if
    that cannot be told."""
    names = fields_of(type(value))
    if names is None or not isinstance(value, pydantic.BaseModel):
        return None
    own = {name: each for name, each in value.__dict__.items() if name in value.model_fields_set}
    return {**own, **_beside(value)}


def taken(kind: type[pydantic.BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the fields of a model would take them, each that they do."""
    out = dict(values)
    for name, field in kind.model_fields.items():
        check = check_of(field.annotation) if name in out else None
        if check is not None:
            with suppress(Exception):  # so it is for the class to refuse
                out[name] = check(out[name])
    return out


def check_of(hint: Any) -> Callable[[Any], Any] | None:
    """What makes a value of a type, or raises `pydantic.ValidationError`; None if pydantic knows no
    way."""
    with suppress(Exception):
        return pydantic.TypeAdapter(hint, config=_ANY).validate_python
    with suppress(Exception):  # a class with a configuration of its own
        return pydantic.TypeAdapter(hint).validate_python
    return None


def _beside(value: Any) -> Mapping[str, Any]:
    found = _kept.get(id(value))
    return {} if found is None else found[1]


# -- storing it again ------------------------------------------------------------------------


def packed(value: Any) -> bytes | None:
    """What LangGraph's serializer makes of a value, with what is kept beside the objects in it;
    None if nothing is."""
    if not _kept:
        return None
    packer = _Packer()
    try:
        data = packer.packed(value)
    except Exception:  # it is for the serializer to refuse, or to store in its own way
        return None
    return data if packer.met else None


class _Packer:
    """Packs as LangGraph's serializer; `met` tells whether anything was kept beside an object."""

    def __init__(self) -> None:
        self.met = False

    def packed(self, value: Any) -> bytes:
        return ormsgpack.packb(value, default=self._default, option=jsonplus._option)

    def _default(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, pydantic.BaseModel):
            if not _beside(value) and not _nests(kind):
                return jsonplus._msgpack_default(value)
            return self._ext(MODEL, kind, self._whole(value, value.model_dump()), _VALIDATES)
        if fields_of(kind) is not None:
            return self._ext(KEYWORDS, kind, self._with_beside(value, dict(_parts(value))))
        if kind is safe_classes.Send:
            return self._ext(POSITIONS, kind, _send(value))
        if safe_classes.SNAPSHOT is not None and kind is safe_classes.SNAPSHOT:
            return ormsgpack.Ext(DELTA, self.packed(value.value))
        return jsonplus._msgpack_default(value)

    def _whole(self, value: Any, dumped: Any) -> Any:
        """What is dumped of a part of a model, with what is kept beside the objects in it."""
        if type(value) in (list, tuple) and type(dumped) is type(value):
            return type(dumped)(map(self._whole, value, dumped))
        if type(value) is dict and type(dumped) is dict:
            return {key: self._whole(value.get(key), part) for key, part in dumped.items()}
        if type(dumped) is not dict or fields_of(type(value)) is None:
            return dumped
        own = {
            name: self._whole(part, dumped[name]) for name, part in _parts(value) if name in dumped
        }
        return self._with_beside(value, dumped | own)

    def _with_beside(self, value: Any, own: dict[str, Any]) -> dict[str, Any]:
        beside = _beside(value)
        self.met |= bool(beside)
        return {**beside, **own}

    def _ext(self, code: int, kind: type, *parts: Any) -> ormsgpack.Ext:
        return ormsgpack.Ext(code, self.packed((kind.__module__, kind.__name__, *parts)))


def _send(value: Any) -> tuple[Any, ...]:
    timeout = getattr(value, "timeout", None)
    return (value.node, value.arg) if timeout is None else (value.node, value.arg, timeout)


# -- which classes ---------------------------------------------------------------------------


def fields_of(kind: Any) -> frozenset[str] | None:
    """The names of a class's fields, if it is nothing but these: an object of it is what it is
    given for them. None if it is more, takes others, or is none of the user's."""
    return _fields_of(kind)


@lru_cache(maxsize=1024)
def _fields_of(kind: type) -> frozenset[str] | None:
    makes: Any = kind.__new__
    if (kind.__module__, kind.__name__) in safe_classes.SAFE or makes is not object.__new__:
        return None
    if issubclass(kind, pydantic.BaseModel):
        return frozenset(kind.model_fields) if _is_plain_model(kind) else None
    if dataclasses.is_dataclass(kind) and _is_plain_dataclass(kind):
        return frozenset(each.name for each in dataclasses.fields(kind))
    return None


def _nests(kind: Any) -> bool:
    """Whether a model that is nothing but its fields holds others, and pydantic alone makes them,
    and what is stored of them: nobody puts one in another's place."""
    return fields_of(kind) is not None and _holds_others(kind)


@lru_cache(maxsize=1024)
def _holds_others(kind: type[pydantic.BaseModel]) -> bool:
    types = [*_types(kind.__pydantic_core_schema__)]
    native = not any(each.startswith("function-") for each in types)
    return native and sum(map(types.count, ("model", "dataclass", "definition-ref"))) > 1


def _types(schema: Any) -> Iterator[str]:
    """The types of all parts of what pydantic knows of a model."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema["type"]
        schema = schema.values()
    elif not isinstance(schema, (list, tuple)):
        return
    for part in schema:
        yield from _types(part)


def _is_plain_model(kind: type[pydantic.BaseModel]) -> bool:
    decorators = kind.__pydantic_decorators__
    decorated = any(getattr(decorators, each.name) for each in dataclasses.fields(decorators))
    config = {key: value for key, value in kind.model_config.items() if key not in _HARMLESS}
    return (
        type(kind) is type(pydantic.BaseModel)
        and not issubclass(kind, pydantic.RootModel)
        and kind.__init__ is pydantic.BaseModel.__init__
        and not decorated
        and config.pop("extra", "ignore") in ("ignore", "forbid", None)
        and not config
        and all(map(_is_plain_field, kind.model_fields.values()))
    )


_HARMLESS = frozenset({"arbitrary_types_allowed", "frozen", "title", "validate_assignment"})
"""Of a model's configuration, what changes nothing of what is stored and taken."""


def _is_plain_field(field: Any) -> bool:
    aliases = (field.alias, field.validation_alias, field.serialization_alias)
    shaped = any(hasattr(each, "__get_pydantic_core_schema__") for each in field.metadata)
    return aliases == (None, None, None) and not field.exclude and not shaped


def _annotations(kind: type) -> list[Any]:
    found = (vars(base).get("__annotations__", {}) for base in kind.__mro__)
    return [each for annotations in found for each in annotations.values()]


def _is_plain_dataclass(kind: type) -> bool:
    by_itself = all(each.init for each in dataclasses.fields(kind))
    other_ways = ("model_dump", "get_secret_value", "dict", "_asdict", "__post_init__")
    return (
        type(kind) is type
        and by_itself
        and kind.__dataclass_params__.init  # type: ignore[attr-defined]
        and not any(hasattr(kind, name) for name in (*other_ways, "__pydantic_validator__"))
        and not any("InitVar" in str(each) for each in _annotations(kind))
    )
