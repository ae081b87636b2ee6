"""How types and functions are spelled in a fingerprint: the same in every process and on every
Python. No ids, no addresses, no order that a hash decides."""

from __future__ import annotations

import sys
import types
import typing
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, Union

import typing_extensions
from langchain_core.messages import AnyMessage

MARKS = {
    getattr(module, name): name
    for module in (typing, typing_extensions)
    for name in ("Required", "NotRequired", "ReadOnly")
    if hasattr(module, name)
}
"""What may stand round a key's type; Python's own and the back-ported ones are not the same."""


def spelled(typ: Any) -> str:
    """A type as text. What an `Annotated` adds is left out; members of unions are sorted."""
    if typ is None or typ is type(None):
        return "None"
    if isinstance(typ, str):
        return typ
    if typ == AnyMessage:
        # A union of a dozen classes, in the state of nearly every graph.
        return "langchain_core.messages:AnyMessage"
    if isinstance(typ, typing.ForwardRef):
        return typ.__forward_arg__
    if isinstance(typ, list):
        return f"[{', '.join(map(spelled, typ))}]"
    origin = typing.get_origin(typ)
    return home(typ) if origin is None else _parametrised(origin, typing.get_args(typ))


def _parametrised(origin: Any, arguments: tuple[Any, ...]) -> str:
    if origin is Annotated or origin in MARKS:
        return spelled(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(sorted(map(_value, arguments)))}]"
    if origin in (Union, types.UnionType):
        members = {member for one in arguments for member in members_of(spelled(one))}
        return " | ".join(sorted(members, key=lambda name: (name == "None", name)))
    inner = ", ".join("..." if one is ... else spelled(one) for one in arguments)
    return f"{home(origin)}[{inner}]" if inner else home(origin)


def _value(literal: object) -> str:
    return f"{home(type(literal))}.{literal.name}" if isinstance(literal, Enum) else repr(literal)


def members_of(spelling: str, between: str = "|") -> list[str]:
    """The members of a spelled union, or what else stands between signs outside of all brackets;
    of any other type, itself alone."""
    members, depth, quote = [""], 0, ""
    for sign in spelling:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign in "[(") - (sign in "])")
        if sign == between and not depth and not quote:
            members.append("")
        else:
            members[-1] += sign
    return [member.strip() for member in members]


def home(thing: Any) -> str:
    """`module:name` of a class or a function, as `move_class` takes it; a built-in's bare name.

    Where Python keeps it in a private module (`_operator`, `pathlib._local`: not the same in every
    version), the public one that has it too is named. A `partial` and a callable object are named
    by what they are made of: their `repr` has an address.
    """
    if isinstance(thing, partial):
        return f"partial({home(thing.func)})"
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    if name is None:
        return home(type(thing))
    module = getattr(thing, "__module__", None) or "builtins"
    if module in ("builtins", "typing", "typing_extensions"):
        return str(name)
    public = _public(module)
    for where in dict.fromkeys((public, module)):
        if (found := _name_in(where, thing, name)) is not None:
            return f"{where}:{found}"
    return f"{module}:{name}"


def _public(module: str) -> str:
    """A module's name up to its first private part, which a built-in one has at its very start."""
    parts = module.split(".")
    kept = [parts[0].removeprefix("_") or parts[0]]
    for part in parts[1:]:
        if part.startswith("_"):
            break
        kept.append(part)
    return ".".join(kept)


def _name_in(module: str, thing: object, name: str) -> str | None:
    """What a module calls a thing: by the name that the thing has, or by another, as a function
    that a decorator has made is known by."""
    there = vars(sys.modules[module]) if module in sys.modules else {}
    if there.get(name) is thing:
        return name
    if "<locals>" not in name:
        return None
    return min((known for known, value in there.items() if value is thing), default=None)


def fits(value: str, typ: str) -> bool:
    """Whether every value of one spelled type is surely one of another."""
    if typ in ("Any", "object", value):
        return True
    members, known = members_of(value), members_of(typ)
    if len(members) > 1 or len(known) > 1:
        return all(any(fits(member, each) for each in known) for member in members)
    (head, inner), (other, outer) = _head(value), _head(typ)
    if head != other or head == "Literal":
        return head == other and set(inner) <= set(outer)
    return set(outer) <= {"Any"} or (
        len(inner) == len(outer) and all(map(fits, inner, outer)) and "Callable" not in head
    )


def _head(spelling: str) -> tuple[str, list[str]]:
    head, bracket, rest = spelling.partition("[")
    return head, members_of(rest[:-1], ",") if bracket and head else []
