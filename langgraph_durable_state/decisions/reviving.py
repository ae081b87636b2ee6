"""Objects made again from what LangGraph's serializer stored of them, of allowed classes only.

The form is LangGraph's: an ext code says how an object is called, its payload names the class and
holds the arguments. LangGraph's own reader gives the arguments in the object's place where a class
is not allowed, is gone or refuses them. So does this one, but it tells each time, so that nobody
takes a dict for the object that was stored.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ..errors import EvolutionError, UsageError
from . import safe_classes, unknown_fields

Name = tuple[str, str]
"""A class's module and its name there."""

Allow = Iterable[type | tuple[str, str]] | Literal[True]

_METHODS = {("datetime", "datetime", "fromisoformat")}
"""As LangGraph has it: no other method of a class is called."""

_METHOD = 3

_BARRED = "is not among the classes that may be read"


@dataclass(frozen=True, slots=True)
class Missed:
    """An object that could not be made again: its class, and why."""

    module: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name} {self.why}"

    @property
    def barred(self) -> bool:
        """Whether `allow` would help."""
        return self.why == _BARRED


class Unknown(EvolutionError):
    """A stored object could not be made again."""

    def __init__(self, missed: Sequence[Missed]) -> None:
        super().__init__("; ".join(str(each) for each in dict.fromkeys(missed)))
        self.missed = tuple(missed)


_NOTED: ContextVar[list[Missed] | None] = ContextVar("durable_state_missed", default=None)


def note(missed: Sequence[Missed]) -> None:
    """Keeps what was missed until whoever knows the channel takes it with `noted`."""
    _NOTED.set([*(_NOTED.get() or ()), *missed])


def noted() -> list[Missed]:
    """What was missed since the last call, each class once."""
    found = _NOTED.get()
    if not found:
        return []
    _NOTED.set(None)
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Revival:
    """Classes that have another name than the stored one, and fields that have.

    Attributes:
        moved: new names of classes. The new class has to be allowed as any other.
        fields: by a class's stored name, new names of its fields.
    """

    moved: Mapping[Name, Name]
    fields: Mapping[Name, Mapping[str, str]]

    def of(self, parts: Sequence[Any]) -> Sequence[Any]:
        """What is stored of an object, as of the class that it is to be."""
        stored = (parts[0], parts[1])
        fields, given = self.fields.get(stored), parts[2]
        if fields is not None and isinstance(given, dict):
            given = {fields.get(key, key): value for key, value in given.items()}
        return (*self.moved.get(stored, stored), given, *parts[3:])


_AS_STORED = Revival({}, {})


class Reviver:
    """Reads one value; `missed` are the objects in it that came back as their arguments.

    Args:
        allowed: classes beside LangGraph's own list of safe ones; True for all.
        theirs: LangGraph's own reader, for codes that have no class in them.
        revival: which classes and fields have other names than the stored ones.
    """

    __slots__ = ("_allowed", "_revival", "_theirs", "missed")

    def __init__(
        self,
        allowed: frozenset[Name] | Literal[True],
        theirs: Callable[[int, bytes], Any],
        revival: Revival = _AS_STORED,
    ) -> None:
        self._allowed = allowed
        self._theirs = theirs
        self._revival = revival
        self.missed: list[Missed] = []

    def read(self, data: bytes) -> Any:
        """The value of msgpack bytes.

        Raises:
            ValueError: if they are none.
        """
        return ormsgpack.unpackb(data, ext_hook=self._ext, option=ormsgpack.OPT_NON_STR_KEYS)

    def _ext(self, code: int, data: bytes) -> Any:
        if code == unknown_fields.DELTA and safe_classes.SNAPSHOT is not None:
            return safe_classes.SNAPSHOT(self.read(data))
        make = _MAKERS.get(code)
        if make is None:
            value = self._theirs(code, data)
            if value is None:
                self.missed.append(Missed("numpy", "ndarray", f"cannot be read (code {code})"))
            return value
        parts = self._revival.of(self.read(data))
        key = (parts[0], parts[1])
        if key not in safe_classes.SAFE and not self._may(key):
            return self._miss(parts, _BARRED)
        if code == _METHOD and (*key, parts[3]) not in _METHODS:
            return self._miss(parts, f"would be made by {parts[3]}(), which is not allowed")
        try:
            module = sys.modules.get(parts[0]) or importlib.import_module(parts[0])
            found = getattr(module, parts[1])
        except Exception as error:
            return self._miss(parts, f"cannot be found ({type(error).__name__})")
        try:
            if code not in (unknown_fields.KEYWORDS, unknown_fields.MODEL):
                return make(found, parts)
            by_field = lambda given: make(found, (*parts[:2], given, *parts[3:]))  # noqa: E731
            return unknown_fields.made(by_field, found, parts[2])
        except Exception as error:  # whose text may quote the value
            return self._miss(parts, f"does not take what was stored ({type(error).__name__})")

    def _may(self, key: Name) -> bool:
        return self._allowed is True or key in self._allowed

    def _miss(self, parts: Sequence[Any], why: str) -> Any:
        self.missed.append(Missed(str(parts[0]), str(parts[1]), why))
        return parts[2]


def _positional(found: Any, parts: Sequence[Any]) -> Any:
    if found is safe_classes.Send and len(parts[2]) > 2:
        return found(*parts[2][:2], timeout=parts[2][2])
    return found(*parts[2])


def _pydantic_1(found: Any, parts: Sequence[Any]) -> Any:
    try:
        return found(**parts[2])
    except Exception:
        return found.construct(**parts[2])


def _pydantic_2(found: Any, parts: Sequence[Any]) -> Any:
    try:
        return found(**parts[2])
    except Exception:
        return found.model_construct(**parts[2])


_MAKERS: dict[int, Callable[[Any, Sequence[Any]], Any]] = {
    0: lambda found, parts: found(parts[2]),
    unknown_fields.POSITIONS: _positional,
    unknown_fields.KEYWORDS: lambda found, parts: found(**parts[2]),
    _METHOD: lambda found, parts: getattr(found, parts[3])(parts[2]),
    4: _pydantic_1,
    unknown_fields.MODEL: _pydantic_2,
}
"""How an object is made, by LangGraph's ext code."""


# -- which classes ---------------------------------------------------------------------------


def names_of(allow: Allow) -> frozenset[Name] | Literal[True]:
    """The classes that `allow` names, and those that their fields are annotated with.

    Raises:
        UsageError: if it holds anything but classes and pairs of texts.
    """
    if allow is True:
        return True
    if isinstance(allow, (str, type)) or not isinstance(allow, Iterable):
        raise UsageError(f"allow={allow!r}: use a list of classes, or True for all")
    return frozenset(name for entry in allow for name in _names_of(entry))


def _names_of(entry: object) -> Iterable[Name]:
    if isinstance(entry, type):
        yield entry.__module__, entry.__name__
        yield from ((name[0], name[1]) for name in safe_classes.within(entry))
    elif isinstance(entry, (tuple, list)) and [*map(type, entry)] == [str, str]:
        yield entry[0], entry[1]
    else:
        raise UsageError(f"allow=[… {entry!r} …]: use classes, or pairs of module and name")


def permitting(serde: SerializerProtocol | None, allow: Allow) -> SerializerProtocol:
    """A serializer that reads these classes beside those that `serde` allows; LangGraph's own with
    its safe classes alone if that is None.

    Raises:
        UsageError: if `serde` is not LangGraph's and so has no list, or if all are allowed to one
            that has a list of its own.
    """
    names = names_of(allow)
    if serde is None:
        return _listing(names)
    if not names:
        return serde
    inner = readable(serde)
    if inner is None:
        raise UsageError(f"allow= is for LangGraph's serializer, not for {type(serde).__name__}")
    if names is True:
        raise UsageError("allow=True: say that to the serde, by allowed_msgpack_modules=True")
    if not hasattr(inner, "with_msgpack_allowlist"):
        return serde  # it reads all
    listed = inner.with_msgpack_allowlist(names)
    return listed if inner is serde else EncryptedSerializer(serde.cipher, listed)  # type: ignore[attr-defined]


def _listing(names: frozenset[Name] | Literal[True]) -> JsonPlusSerializer:
    allowed = True if names is True else set(names) or None
    try:
        return JsonPlusSerializer(allowed_msgpack_modules=allowed)  # type: ignore[arg-type]
    except TypeError:  # LangGraph has the argument since 4.0.1 of its checkpoint package
        made = JsonPlusSerializer()
        made._allowed_msgpack_modules = allowed  # type: ignore[assignment]
        return made


def readable(serde: SerializerProtocol) -> JsonPlusSerializer | None:
    """LangGraph's serializer in `serde`, if what it stored is read here: not if its user has
    given it a reader."""
    inner = serde.serde if type(serde) is EncryptedSerializer else serde
    if type(inner) is not JsonPlusSerializer or _is_hooked(inner):
        return None
    return inner


def _is_hooked(serde: JsonPlusSerializer) -> bool:
    if hasattr(serde, "_custom_unpack_ext_hook"):
        return bool(serde._custom_unpack_ext_hook)
    return serde._unpack_ext_hook is not jsonplus._msgpack_ext_hook  # LangGraph before its list


def allowed_by(serde: JsonPlusSerializer) -> frozenset[Name] | Literal[True]:
    """The classes that LangGraph's serializer reads beside the safe ones."""
    found = getattr(serde, "_allowed_msgpack_modules", True)
    return True if found is True else frozenset(found or ())
