"""What can change from one version of a graph to the next.

Each operation is a value: what it takes, what it gives, and how to go back if that was declared.
All operations on channels are one kind: some channels become others. This file applies nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import UsageError
from .. import arguments

Name = tuple[str, str]
"""A class's module and its name there."""

Up = Callable[..., Sequence[Any]]
"""The values of an operation's targets from those of its sources, each in the declared order."""


@dataclass(frozen=True, slots=True)
class Reshape:
    """Channels `sources` become channels `targets`.

    Attributes:
        up, down: the values of one side from those of the other; None if there is no such way.
        same: whether the values stay what they are, only under another name.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    up: Up | None
    down: Up | None
    at: str = ""
    same: bool = False

    @property
    def reversible(self) -> bool:
        return self.down is not None

    def inverse(self) -> Reshape:
        return replace(self, sources=self.targets, targets=self.sources, up=self.down, down=self.up)


@dataclass(frozen=True, slots=True)
class Renode:
    """Node `old` is `new`, or is no more (None); `gone` if there is no way back."""

    old: str
    new: str | None
    at: str = ""
    gone: bool = False

    @property
    def reversible(self) -> bool:
        return not self.gone


@dataclass(frozen=True, slots=True)
class Reclass:
    """What is stored of class `old` is of class `new`; its `fields` have other names."""

    old: Name
    new: Name
    fields: tuple[tuple[str, str], ...] = ()
    at: str = ""

    reversible = True

    def inverse(self) -> Reclass:
        fields = tuple((new, old) for old, new in self.fields)
        return Reclass(self.new, self.old, fields, self.at)


@dataclass(frozen=True, slots=True)
class Free:
    """The user's own function on the values of all channels.

    Attributes:
        up, down: of the values of the channels.
        updates: of an update that no channel has taken up yet: a run's input, one task's writes.
        channels: that they are given, and may give; None for all.
    """

    up: Callable[[dict[str, Any]], dict[str, Any]] | None
    down: Callable[[dict[str, Any]], dict[str, Any]] | None
    updates: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    channels: frozenset[str] | None = None
    at: str = ""

    @property
    def reversible(self) -> bool:
        return self.down is not None

    def inverse(self) -> Free:
        return Free(self.down, self.up, None, self.channels, self.at)


Operation = Reshape | Renode | Reclass | Free


def rename_channel(old: str, new: str, *, at: str = "") -> Operation:
    """The state's key `old` is now called `new`.

    Args:
        old, new: the channel's names.
        at: which graph: ``""`` the graph itself, ``"research"`` the subgraph in that node,
            ``"research/inner"`` one further in; `fnmatch` patterns, ``"*"`` for all.
    """
    return Reshape((_name(old),), (_name(new),), _alike, _alike, at, same=True)


def add_channel(
    name: str,
    *,
    default: Any = None,
    factory: Callable[[], Any] | None = None,
    at: str = "",
) -> Operation:
    """There is a new key; where state was stored without it, it has this value.

    Args:
        name: the channel's name.
        default: its value; each checkpoint gets a copy.
        factory: gives the value instead.
        at: which graph; see `rename_channel`.

    Raises:
        UsageError: if both are given.
    """
    if factory is not None and default is not None:
        raise UsageError(f"add_channel({name!r}): give a default or a factory, not both")
    if default is ...:
        raise UsageError(f"add_channel({name!r}): put the value in the place of the ...")
    make = checked_function("factory", factory) or (lambda: copy.deepcopy(default))
    return Reshape((), (_name(name),), lambda: (make(),), _nothing, at)


def drop_channel(name: str, *, at: str = "") -> Operation:
    """There is no such key any more; what it held and what was written to it goes.

    Args:
        name: the channel's name.
        at: which graph; see `rename_channel`.
    """
    return Reshape((_name(name),), (), _nothing, None, at)


def convert_channel(
    name: str,
    up: Callable[[Any], Any],
    down: Callable[[Any], Any] | None = None,
    *,
    at: str = "",
) -> Operation:
    """A key's values are of another form.

    Args:
        name: the channel's name.
        up: the new form of a value. It is asked for what the channel holds and for each value
            written to it that the channel has not taken up yet.
        down: the old form of a new value; None if there is no way back.
        at: which graph; see `rename_channel`.
    """
    checked_function("up", up, needed=True)
    checked_function("down", down)
    back = None if down is None else lambda value: (down(value),)
    return Reshape((_name(name),), (name,), lambda value: (up(value),), back, at)


def split(
    name: str,
    into: Sequence[str],
    how: Callable[[Any], Sequence[Any]],
    back: Callable[..., Any] | None = None,
    *,
    at: str = "",
) -> Operation:
    """One key becomes several.

    Args:
        name: the channel that was.
        into: the channels that are.
        how: a list or tuple with a value for each of `into`, in that order, from one of `name`.
        back: one value from those of `into`, given in that order; None if there is no way back.
        at: which graph; see `rename_channel`.
    """
    checked_function("how", how, needed=True)
    checked_function("back", back)
    down = None if back is None else lambda *values: (back(*values),)
    return Reshape((_name(name),), _names(into), how, down, at)


def merge(
    names: Sequence[str],
    into: str,
    how: Callable[..., Any],
    back: Callable[[Any], Sequence[Any]] | None = None,
    *,
    at: str = "",
) -> Operation:
    """Several keys become one.

    Args:
        names: the channels that were.
        into: the channel that is.
        how: its value from those of `names`, given in that order; None for one that has no value.
        back: a list or tuple with a value for each of `names`, in that order, from one of `into`;
            None if there is no way back.
        at: which graph; see `rename_channel`.
    """
    checked_function("how", how, needed=True)
    checked_function("back", back)
    return Reshape(_names(names), (_name(into),), lambda *values: (how(*values),), back, at)


def rename_node(old: str, new: str, *, at: str = "") -> Operation:
    """The node `old` is now called `new`; runs that wait in it go on there.

    Args:
        old, new: the node's names.
        at: the graph that the node is in; see `rename_channel`.
    """
    return Renode(_node(old), _node(new), at)


def drop_node(name: str, to: str | None = None, *, at: str = "") -> Operation:
    """There is no such node any more.

    Args:
        name: the node's name.
        to: the node that takes over what waits for it; None to refuse a run that does.
        at: the graph that the node was in; see `rename_channel`.
    """
    return Renode(_node(name), None if to is None else _node(to), at, gone=True)


def move_class(old: str, new: str) -> Operation:
    """A class has another name, or is in another module.

    Args:
        old, new: its names, as ``"package.module:Name"``.
    """
    return Reclass(_class(old), _class(new), at="*")


def rename_field(
    channel: str, cls: type | str | None, old: str, new: str, *, at: str = ""
) -> Operation:
    """A field is now called `new`.

    Args:
        channel: the channel that holds it.
        cls: the class whose field it is, or its name as ``"package.module:Name"``: the field is
            renamed wherever that class is stored. None if the channel holds plain dicts.
        old, new: the field's names.
        at: which graph; see `rename_channel`.
    """
    if cls is None:
        there, back = _renaming(old, new), _renaming(new, old)
        return Reshape((_name(channel),), (channel,), there, back, at)
    name = (cls.__module__, cls.__name__) if isinstance(cls, type) else _class(cls)
    return Reclass(name, name, ((old, new),), at="*")


def _renaming(old: str, new: str) -> Up:
    def rename(value: Any) -> Any:
        if not isinstance(value, dict) or old not in value or new in value:
            return value
        return {new if key == old else key: each for key, each in value.items()}

    def up(value: Any) -> Sequence[Any]:
        if isinstance(value, list):
            return ([rename(each) for each in value],)
        return (rename(value),)

    return up


def _alike(value: Any) -> Sequence[Any]:
    return (value,)


def _nothing(*_: Any) -> Sequence[Any]:
    return ()


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{name!r} is no name of a channel or node")
    return name


def checked_function(
    name: str, given: Callable[..., Any] | None, needed: bool = False
) -> Callable[..., Any] | None:
    """A function that can be called where a checkpoint is brought up, or None."""
    if (needed and given is None) or inspect.iscoroutinefunction(given):
        raise UsageError(f"{name} must be a function that is not async, not {given!r}")
    return arguments.function(name, given)


def _node(name: str) -> str:
    """A node's name that a path of names can hold."""
    if set("/|:") & set(_name(name)):
        raise UsageError(f"{name!r}: no step can be about a node with /, | or : in its name")
    return name


def _names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or len(names) < 2:
        raise UsageError(f"{names!r}: name the channels, two at least")
    return tuple(map(_name, names))


def _class(name: str) -> Name:
    module, _, cls = name.partition(":")
    if not module or not cls:
        raise UsageError(f"{name!r} is no name of a class; write 'package.module:Name'")
    return module, cls
