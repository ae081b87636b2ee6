"""The chain of steps from one version of a graph to the next: which apply where, and in what order.

A step's operations all speak of the shape before it, so their order does not matter; what would
make it matter is refused when it is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

from ...errors import EvolutionError, UsageError
from .. import arguments
from ..reviving import Revival
from . import comparing, taking
from .differing import SchemaReport
from .fingerprint import Fingerprint, fingerprint_of
from .operations import Free, Name, Operation, Reclass, Renode, Reshape, checked_function

Values = dict[str, Any]
Function = Callable[[Values], Values]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step as it applies to one graph, already turned round if it goes down.

    Attributes:
        version: that the shape has after it.
        shapes: of channels; `frees` likewise, by a function of the user's.
        nodes: the new name of each node that has another; None for one that is no more.
        heirs: the nodes that take over from one that is no more.
        path: the graph's path after it.
    """

    version: int
    shapes: tuple[Reshape, ...]
    frees: tuple[Free, ...]
    nodes: dict[str, str | None]
    heirs: frozenset[str]
    path: str


class StateSchema:
    """The versions of one graph's state, and how each came from the one before.

    Args:
        version: of the graph as it is now.
        graph: its name, for messages and for who looks at what is stored.
        fingerprint: what `record` gave of the graph, or its text.

    Raises:
        UsageError: if the version is not a whole number from 0 on.
    """

    def __init__(
        self, version: int, graph: str = "", *, fingerprint: Fingerprint | str | None = None
    ) -> None:
        if type(version) is not int or version < 0:
            raise UsageError(f"version={version!r} is no whole number from 0 on")
        self.version = version
        self.graph = graph
        self.fingerprint = fingerprint
        self._steps: dict[int, list[Operation]] = {}

    def step(
        self,
        version: int,
        *operations: Operation,
        at: str = "",
        downgrade: Function | None = None,
        updates: Function | None = None,
        channels: Sequence[str] | None = None,
    ) -> Callable[[Function], Function]:
        """Declares what changes from `version` to the next, by operations, or as a decorator of a
        function on the values of all channels.

        Args:
            version: the one before.
            operations: what changes; none, if the step is for code that stored state fits as it
                is.
            at: which graph the function is for; an operation has its own.
            downgrade: the way back of the function; None if there is none.
            updates: what the function is for a whole state, for an update that no channel has
                taken up yet: a run's input, or what one task wrote. Without it such an update is
                refused where the function changes a channel that it is for.
            channels: those that the function is given, and those that it gives; None for all.
                The others are surely left as they are, and a DeltaChannel has to be one of them.

        Raises:
            UsageError: for a version that is not before the schema's, and for what contradicts
                what was declared of this step.
        """
        if type(version) is not int or not 0 <= version < self.version:
            raise UsageError(f"step {version!r} is not one of those to version {self.version}")
        self._steps.setdefault(version, [])
        for each in operations:
            self._add(version, each)

        only = None if channels is None else frozenset(arguments.texts("channels", channels))
        for name, given in (("downgrade", downgrade), ("updates", updates)):
            checked_function(name, given)

        def declare(function: Function) -> Function:
            checked_function("a step", function, needed=True)
            self._add(version, Free(function, downgrade, updates, only, at))
            return function

        return declare

    def _add(self, version: int, new: Operation) -> None:
        if not isinstance(new, Reshape | Renode | Reclass | Free):
            raise UsageError(f"step {version}: {new!r} is no operation; use those of this module")
        arguments.text("at", new.at)
        known = self._steps[version]
        for told in _contradictions([*known, new]):
            raise UsageError(f"step {version}: {told}")
        known.append(new)

    def checked(self) -> StateSchema:
        """This schema, once it is whole.

        Raises:
            UsageError: if a step from one version to the next was not declared.
        """
        gaps = [each for each in range(self.version) if each not in self._steps]
        if gaps:
            raise UsageError(f"nothing was declared of step {gaps[0]}, to version {gaps[0] + 1}")
        return self

    def stages(self, from_: int, to: int, path: str) -> tuple[Stage, ...]:
        """The steps between two versions, for the graph at `path` in the names of the first.

        Raises:
            EvolutionError: if the schema does not know a version, or does not know a way back.
        """
        self.checked()
        for version in (from_, to):
            if not 0 <= version <= self.version:
                raise EvolutionError(
                    f"State of version {version} of graph {self.graph!r} was met by code that "
                    f"knows {self.version} versions of it after the first"
                )
        return tuple(self._staged(from_, to, path))

    def _staged(self, from_: int, to: int, path: str) -> Iterator[Stage]:
        if from_ <= to:
            for version in range(from_, to):
                stage = self._up(version, path)
                yield stage
                path = stage.path
        else:
            for version in reversed(range(to, from_)):
                stage = self._down(version, path)
                yield stage
                path = stage.path

    def _up(self, version: int, path: str) -> Stage:
        operations = [each for each in self._steps[version] if fnmatchcase(path, each.at)]
        return Stage(
            version + 1,
            tuple(each for each in operations if isinstance(each, Reshape)),
            tuple(each for each in operations if isinstance(each, Free)),
            {each.old: each.new for each in operations if isinstance(each, Renode)},
            frozenset(e.new for e in operations if isinstance(e, Renode) and e.gone and e.new),
            self._path_up(version, path),
        )

    def _down(self, version: int, path: str) -> Stage:
        before = self._path_down(version, path)
        operations = [each for each in self._steps[version] if fnmatchcase(before, each.at)]
        for each in operations:
            if not each.reversible:
                raise EvolutionError(
                    f"No way back from version {version + 1} of graph {self.graph!r} was declared"
                )
        return Stage(
            version,
            tuple(each.inverse() for each in operations if isinstance(each, Reshape)),
            tuple(each.inverse() for each in operations if isinstance(each, Free)),
            {each.new or "": each.old for each in operations if isinstance(each, Renode)},
            frozenset(),
            before,
        )

    def _path_up(self, version: int, path: str) -> str:
        names = _parts(path)
        return "/".join(
            self._node(version, "/".join(names[:depth]), name) for depth, name in enumerate(names)
        )

    def _path_down(self, version: int, path: str) -> str:
        names: list[str] = []
        for name in _parts(path):
            above = "/".join(names)
            olds = [
                each.old
                for each in self._steps[version]
                if isinstance(each, Renode) and each.new == name and fnmatchcase(above, each.at)
                if not each.gone
            ]
            names.append(olds[0] if olds else name)
        return "/".join(names)

    def _node(self, version: int, above: str, name: str) -> str:
        for each in self._steps[version]:
            if isinstance(each, Renode) and each.old == name and fnmatchcase(above, each.at):
                return each.new or name
        return name

    def path(self, path: str, from_: int, to: int) -> str:
        """A graph's path at version `from_` in the names of version `to`."""
        if from_ <= to:
            for version in range(from_, to):
                path = self._path_up(version, path)
        else:
            for version in reversed(range(to, from_)):
                path = self._path_down(version, path)
        return path

    def revival(self, from_: int, to: int) -> Revival:
        """How what is stored of objects at version `from_` is read at version `to`."""
        steps = self._class_steps(from_, to)
        stored = dict.fromkeys(each.old for step in steps for each in step)
        moved: dict[Name, Name] = {}
        fields: dict[Name, dict[str, str]] = {}
        for name in stored:
            now, names = _through(steps, name)
            if now != name:
                moved[name] = now
            if names:
                fields[name] = names
        return Revival(moved, fields)

    def _class_steps(self, from_: int, to: int) -> list[list[Reclass]]:
        low, high = sorted((from_, to))
        steps = [
            [each for each in self._steps.get(version, ()) if isinstance(each, Reclass)]
            for version in range(low, high)
        ]
        if from_ <= to:
            return steps
        return [[each.inverse() for each in step] for step in reversed(steps)]

    def operations(self, version: int) -> Sequence[Operation]:
        """What was declared of the step from this version to the next."""
        return tuple(self._steps.get(version, ()))

    def record(self, graph: Any) -> Fingerprint:
        """The fingerprint of a compiled graph as it is now; its `str` is to be kept with the code.

        Raises:
            UsageError: if it is no compiled graph.
        """
        return taking.taken(graph, self.graph, self.version)

    def check(self, graph: Any, recorded: Fingerprint | str | None = None) -> SchemaReport:
        """How a compiled graph differs from its recorded fingerprint, but for what is declared.

        Args:
            graph: compiled.
            recorded: its fingerprint, or the text of one; without it, the one that the schema was
                made with.

        Raises:
            UsageError: if there is no fingerprint, if it is of a newer version, or of another
                graph, or if a step was not declared.
        """
        recorded = self.fingerprint if recorded is None else recorded
        if recorded is None:
            raise UsageError("there is no fingerprint to compare with; record() makes one")
        if isinstance(recorded, str):
            recorded = fingerprint_of(recorded)
        return comparing.compared(recorded, self.record(graph), self.checked())


def _through(steps: Sequence[Sequence[Reclass]], name: Name) -> tuple[Name, dict[str, str]]:
    """A class's name after the steps, and the new names of its fields by their first ones."""
    fields: dict[str, str] = {}
    for step in steps:
        now = [each for each in step if each.old == name]
        for old, new in (pair for each in now for pair in each.fields):
            known = next((first for first, field in fields.items() if field == old), old)
            if known not in fields or fields[known] == old:  # else it came later, of the same name
                fields[known] = new
        name = next((each.new for each in now), name)
    return name, fields


def _parts(path: str) -> list[str]:
    return path.split("/") if path else []


# -- what would make the order of a step's operations matter ---------------------------------


def _contradictions(operations: Sequence[Operation]) -> Iterator[str]:
    for one, other in combinations(operations, 2):
        if _overlap(one.at, other.at):
            yield from _clash(one, other)
    for each in operations:
        if isinstance(each, Renode | Reshape):
            yield from _cycle(each)


def _cycle(each: Renode | Reshape) -> Iterator[str]:
    if isinstance(each, Renode):
        if each.old == each.new:
            yield f"node {each.old!r} would become itself"
        return
    for names in (each.sources, each.targets):
        if len(set(names)) < len(names):
            yield f"a channel is named twice: {', '.join(names)}"
    if each.same and each.sources == each.targets:
        yield f"channel {each.sources[0]!r} would become itself"


def _clash(one: Operation, other: Operation) -> Iterator[str]:
    if isinstance(one, Renode) and isinstance(other, Renode):
        yield from _node_clash(one, other)
    elif isinstance(one, Reshape) and isinstance(other, Reshape):
        shared = {*one.sources, *one.targets} & {*other.sources, *other.targets}
        if shared:
            yield f"two operations are about channel {min(shared)!r}; make them two steps"
    elif isinstance(one, Reclass) and isinstance(other, Reclass):
        yield from _class_clash(one, other)
    elif isinstance(one, Free) or isinstance(other, Free):
        yield from _function_clash(one, other)


def _node_clash(one: Renode, other: Renode) -> Iterator[str]:
    names = [each for op in (one, other) for each in {op.old, op.new} if each is not None]
    # Two dropped nodes may be taken over by one.
    if one.gone and other.gone and one.new == other.new and one.new is not None:
        names.remove(one.new)
    twice = {each for each in names if names.count(each) > 1}
    if twice:
        yield f"two operations are about node {min(twice)!r}; make them two steps"


def _class_clash(one: Reclass, other: Reclass) -> Iterator[str]:
    moves = [each for each in (one, other) if each.old != each.new]
    if len(moves) == 2 and {one.old, one.new} & {other.old, other.new}:
        yield f"two operations move class {':'.join(one.old)!r}; make them two steps"
    elif len(moves) == 1 and {one.old, one.new} & {other.old, other.new}:
        yield f"class {':'.join(one.old)!r} is moved and changed; make that two steps"
    elif not moves and one.old == other.old:
        shared = {n for pair in one.fields for n in pair} & {n for p in other.fields for n in p}
        if shared:
            yield f"two operations are about field {min(shared)!r}; make them two steps"


def _function_clash(one: Operation, other: Operation) -> Iterator[str]:
    names = [_channels(each) for each in (one, other)]
    if frozenset() in names:
        return
    if None in names or names[0] & names[1]:  # type: ignore[operator]
        yield "a function is about channels that another operation is about; make them two steps"


def _channels(operation: Operation) -> frozenset[str] | None:
    """The channels that an operation is about; None for all."""
    if isinstance(operation, Free):
        return operation.channels
    if isinstance(operation, Reshape):
        return frozenset((*operation.sources, *operation.targets))
    return frozenset()


def _overlap(one: str, other: str) -> bool:
    """Whether two patterns may both fit one path; yes if in doubt."""
    if fnmatchcase(one, other) or fnmatchcase(other, one):
        return True
    return all(any(sign in each for sign in "*?[") for each in (one, other))
