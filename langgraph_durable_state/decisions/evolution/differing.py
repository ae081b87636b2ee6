"""What differs between the shape that the declared steps lead to and the one that a graph has, and
which step would say so."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

Change = Literal[
    "channel added",
    "channel removed",
    "channel renamed",
    "channel of another type",
    "channel of another kind",
    "channel with another reducer",
    "channel now required",
    "node added",
    "node removed",
    "node renamed",
    "node deferred",
    "edge that waits added",
    "edge that waits removed",
    "subgraph added",
    "subgraph removed",
    "subgraph's checkpointer",
    "step without effect",
]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the record and the declared steps say. `str` gives it as a line.

    Attributes:
        path: of the graph that it is in, in the names from before it: ``""`` the graph itself,
            ``"research"`` the one in that node.
        change: what it is.
        name: of the channel, node or edge.
        why: what it does to a thread that was stored before it.
        needed: whether something has to be done, since it is not harmless.
        was, now: what it was and what it is, where that is more than a name.
        step: the operation that would declare it, as code; None if there is none, or none needed.
        otherwise: what to do where there is none.
        guess: whether the step is a guess: that what vanished and what appeared are the same.
    """

    path: str
    change: Change
    name: str
    why: str
    needed: bool = True
    was: str | None = None
    now: str | None = None
    step: str | None = None
    otherwise: str = "no step can: let such threads finish, then record it"
    guess: bool = False

    def as_dict(self) -> dict[str, Any]:
        """It as plain values."""
        return {name: told for name, told in asdict(self).items() if name != "otherwise"} | {
            "remedy": self.remedy
        }

    @property
    def where(self) -> str:
        """The name, with the path of the graph that it is in."""
        return f"{self.path}/{self.name}" if self.path else self.name

    @property
    def what(self) -> str:
        """The name, with what it was and what it is."""
        told = [each for each in (self.was, self.now) if each is not None]
        if self.change.endswith("renamed"):
            return f"{self.where} -> {self.now}"
        return f"{self.where} ({' -> '.join(told)})" if told else self.where

    @property
    def remedy(self) -> str:
        """What to do, in a few words."""
        if not self.needed:
            return "needs no step"
        if self.step is None:
            return self.otherwise
        return f"{self.step}, if it is the same" if self.guess else self.step

    def __str__(self) -> str:
        return f"{self.change}: {self.what}: {self.why}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """How a graph compares with its recorded fingerprint. True if nothing has to be done.

    Attributes:
        graph: its name.
        recorded: the version that was recorded, and `version` that of the schema.
        differences: all that steps do not tell, what is needed first.
    """

    graph: str
    recorded: int
    version: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether every change is declared, or harmless."""
        return not any(each.needed for each in self.differences)

    @property
    def stale(self) -> bool:
        """Whether the record should be made anew: it is not what the graph is now."""
        return self.recorded != self.version or bool(self.differences)

    @property
    def steps(self) -> dict[str, bool]:
        """The operations that would declare what is not declared, and whether each is a guess."""
        return {each.step: each.guess for each in self.differences if each.step}

    @property
    def code(self) -> str:
        """The step to be added to the schema, to be checked by its author; empty if none is."""
        if not self.steps:
            return ""
        lines = "".join(
            f"    {each},{'  # if it is the same' if guess else ''}\n"
            for each, guess in self.steps.items()
        )
        return f"# version={self.version + 1}\nschema.step(\n    {self.version},\n{lines})"

    def __bool__(self) -> bool:
        return self.ok

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        told = [each.as_dict() for each in self.differences]
        more = {"ok": self.ok, "stale": self.stale, "code": self.code}
        return asdict(self) | {"differences": told} | more

    @property
    def verdict(self) -> str:
        """How it stands, as one line."""
        name = f"graph {self.graph!r}, version {self.version}"
        count = sum(each.needed for each in self.differences)
        if count:
            return f"{name}: {count} undeclared change{'s' if count > 1 else ''}"
        if self.stale:
            return f"{name}: nothing to be declared; record it, it is not what was recorded"
        return f"{name}: as it was recorded"

    def __str__(self) -> str:
        parts = [self.verdict, *map(str, self.differences), self.code]
        return "\n".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'!' if each.needed else ''}</td>"
            + "".join(f"<td>{escape(told)}</td>" for told in (each.change, each.what, each.why))
            + f"<td><code>{escape(each.remedy)}</code></td></tr>"
            for each in self.differences
        )
        code = f"<pre>{escape(self.code)}</pre>" if self.code else ""
        table = f"<table>{rows}</table>" if rows else ""
        return f"<p><b>{escape(self.verdict)}</b></p>{table}{code}"
