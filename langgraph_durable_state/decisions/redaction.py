"""What must not be stored, taken out of values before they are serialized.

A list is taken item by item and a dict entry by entry, so that what is stored already need not be
looked at again: the cost of a put is that of what is new in it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.types import Send

from ..errors import DurableStateError, UsageError, ValueRefusedError
from . import refusal, safe_classes, secret_shapes
from .fitting import misfit
from .keys import IDS
from .parts import changed, named_parts
from .texts import WITH_NAMES, Fixed, replaced

METADATA = "__metadata__"
"""The channel by whose name a checkpoint's metadata goes."""

_OWN = frozenset({*CheckpointMetadata.__annotations__, *IDS})

START = "__start__"
"""LangGraph's channel of a run's input."""

MASK = "[redacted]"

States = frozenset[int]
"""How many steps of a path lead to a value; several, since ``..`` may stand for any number."""

_ROOT: States = frozenset({0})

_STEP = re.compile(
    r"""(?P<deep>\.\.)?\[(?:\*|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]"""
    r"""|(?P<dots>\.\.?)(?:\*|(?P<name>[^.\[\]*'"\s]+))"""
)


@dataclass(frozen=True)
class Redact:
    r"""What to take out of values before they are stored.

    ``Redact(r"\b\d{3}-\d{2}-\d{4}\b")`` covers what matches in every text;
    ``Redact(path="$..ssn")`` whatever is called so; ``Redact(r"\d{12,19}", channel="orders",
    path="$[*].card")`` is both.

    Args:
        pattern: a regular expression; what it matches is replaced in each text. None replaces
            what `path` leads to as a whole.
        channel: the state's channel; None for all of them, LangGraph's own, and metadata.
            ``"__metadata__"`` is the metadata alone.
        path: where in the channel's value: a JSONPath of ``.name``, ``['name']``, ``[*]``, ``.*``
            and ``..name``. A name is a dict's key or an object's attribute. None is everywhere, but
            the ids of messages, tool calls and interrupts, by which LangGraph finds them.
        by: what stands in its place: a text, in which ``\1`` is a group of the pattern, or a
            function of the match; without a pattern any value, or a function of the value.

    Raises:
        UsageError: if an argument cannot be used.
    """

    pattern: str | re.Pattern[str] | None = None
    _: KW_ONLY
    channel: str | None = None
    path: str | None = None
    by: Any = MASK
    _regex: re.Pattern[str] | None = field(init=False, repr=False, compare=False, default=None)
    _steps: tuple[tuple[bool, str | None], ...] | None = field(
        init=False, repr=False, compare=False, default=None
    )

    def __post_init__(self) -> None:
        if self.pattern is None and self.path is None:
            raise UsageError("Redact: give a pattern, a path or both")
        if self.pattern is not None:
            object.__setattr__(self, "_regex", _compiled(self.pattern))
            _check_by(self.by, self._regex)
        if self.channel is not None and not isinstance(self.channel, str):
            raise UsageError(f"Redact: channel={self.channel!r}: use the name of a channel")
        if inspect.iscoroutinefunction(self.by):
            raise UsageError("Redact: by must be a plain function: nothing awaits a coroutine")
        if self.path is not None:
            object.__setattr__(self, "_steps", _steps_of(self.path))

    def applied(self, value: Any, states: States) -> Any:
        """`value`, to which these states of the path lead, without what this takes out."""
        if self._steps is None or len(self._steps) in states:
            return self._taken_out(value)
        return changed(value, lambda name, part: self._inside(name, part, states))

    def after(self, name: str | None, states: States = _ROOT) -> States:
        """The states at a part of this name; none if nothing in it is concerned."""
        if self._steps is None or len(self._steps) in states:
            return states
        found = set()
        for at in states:
            if at < len(self._steps):
                deep, wanted = self._steps[at]
                found |= {at + 1} if wanted is None or wanted == name else set()
                found |= {at} if deep else set()
        return frozenset(found)

    def renames(self, channel: str, names: Iterable[str]) -> bool:
        """Whether this may change one of the keys of a channel that is a dict."""
        if self._regex is None or self._steps or self.channel not in (None, channel):
            return False
        return any(self._regex.search(name) for name in names)

    def _inside(self, name: str | None, part: Any, states: States) -> Any:
        onward = self.after(name, states)
        return self.applied(part, onward) if onward else part

    def _taken_out(self, value: Any) -> Any:
        if self._regex is not None:
            return replaced(value, self._sub)
        if value is None:
            return None
        new = self.by(value) if callable(self.by) else self.by
        if hasattr(value, "get_secret_value") and isinstance(new, (str, bytes)):
            return type(value)(new)
        return new

    def _sub(self, text: str) -> str:
        assert self._regex is not None
        return self._regex.sub(self.by, text)


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        found = re.compile(pattern)
    except (re.error, TypeError, OverflowError) as error:
        raise UsageError(f"Redact: pattern={pattern!r}: {error}") from error
    except RecursionError:
        raise UsageError("Redact: the pattern is nested too deeply") from None
    if not isinstance(found.pattern, str):
        raise UsageError(f"Redact: pattern={pattern!r}: use a pattern of text")
    return found


def _check_by(by: object, regex: re.Pattern[str] | None) -> None:
    if callable(by):
        return
    if not isinstance(by, str) or regex is None:
        raise UsageError(f"Redact: by={by!r} cannot stand in a text")
    try:
        regex.sub(by, "")
    except (re.error, IndexError) as error:
        raise UsageError(f"Redact: by={by!r}: {error}") from error


def _steps_of(path: str) -> tuple[tuple[bool, str | None], ...]:
    if not isinstance(path, str) or not path.startswith("$"):
        raise UsageError(f"Redact: path={path!r}: a path begins with $")
    steps, at = [], 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise UsageError(
                f"Redact: path={path!r}: {path[at:]!r} is none of .name, ['name'], [*], .* and "
                "..name (an item's number is none: the items move)"
            )
        name = next((found[k] for k in ("single", "double", "name") if found[k] is not None), None)
        steps.append((found["deep"] is not None or found["dots"] == "..", name))
        at = found.end()
    return tuple(steps)


# -- all rules of a saver --------------------------------------------------------------------

Function = Callable[[str, Any], Any]
"""Of a channel's name and a value: an item of a list, else the whole of what is stored."""

Redaction = Redact | Function | Sequence[Redact | Function]

_SWAPS = 50_000
"""Items remembered as changed; an entry is about 250 bytes. Forgotten ones are looked at again."""


class Screen:
    """What every value goes through before it is serialized.

    Args:
        redact: what to take out.
        seen: told of what looks like a secret in what is left: channel, path and shape, once for
            each place; None not to look.

    Raises:
        UsageError: if `redact` cannot be used.
    """

    def __init__(self, redact: Redaction | None, seen: Callable[[str], None] | None) -> None:
        self._rules = _rules_of(redact)
        self._seen = seen
        self._told: set[tuple[str, str, str]] = set()
        self._swaps: dict[tuple[str, bytes], bytes] = {}
        self._declared = [rule for rule in self._rules if isinstance(rule, Redact)]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._rules and self._seen is None

    def entrywise(self, channel: str, value: Mapping[Any, Any]) -> bool:
        """Whether the entries of a channel that is a dict can be taken one by one: functions get
        the whole, and a key that is changed could meet another one."""
        if len(self._declared) < len(self._rules) or not all(type(key) is str for key in value):
            return False
        return channel == START or not any(r.renames(channel, value) for r in self._declared)

    def whole(self, channel: str, value: Any) -> Any:
        """A channel's value, ready to be stored.

        Raises:
            ValueRefusedError: if a rule fails, or makes what cannot be stored.
        """
        if type(value) is list:
            news = [self.item(channel, i, item) for i, item in enumerate(value)]
            same = all(new is old for new, old in zip(news, value, strict=True))
            return value if same else news
        if safe_classes.SNAPSHOT is not None and isinstance(value, safe_classes.SNAPSHOT):
            return safe_classes.SNAPSHOT(self.whole(channel, value.value))
        return self._screened(channel, "", value, lambda rule: _ROOT)

    def item(self, channel: str, i: int, item: Any) -> Any:
        """An item of a channel that is a list."""
        return self._screened(channel, f"[{i}]", item, lambda rule: rule.after(None))

    def entry(self, channel: str, key: str, value: Any) -> Any:
        """An entry of a channel that is a dict, if they are taken one by one."""
        if channel == START:
            return self.whole(key, value)
        if self._seen is not None:
            self._look(channel, secret_shapes.KEY, key)
        return self._screened(
            channel, secret_shapes.shown(key), value, lambda rule: rule.after(key)
        )

    def metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """A checkpoint's metadata; LangGraph's own, and ids, are left as they are.

        Raises:
            ValueRefusedError: if a rule fails, or makes something else than a dict of it.
        """
        own = {k: v for k, v in metadata.items() if k in _OWN}
        rest = {k: v for k, v in metadata.items() if k not in own}
        after = self.whole(METADATA, rest)
        if not isinstance(after, dict):
            raise ValueRefusedError("metadata", f"redact made a {type(after).__name__} of it")
        return {**own, **after} if after is not rest else dict(metadata)

    def swapped(self, channel: str, mark: bytes) -> bytes | None:
        """The fingerprint of what an item with this one became, if that is remembered."""
        return self._swaps.get((channel, mark))

    def swap(self, channel: str, mark: bytes, after: bytes) -> None:
        """Remembers what an item became."""
        if len(self._swaps) >= _SWAPS:
            self._swaps.clear()
        self._swaps[channel, mark] = after

    def _screened(
        self, channel: str, at: str, value: Any, states: Callable[[Redact], States]
    ) -> Any:
        if isinstance(value, Send):
            after = changed(
                value, lambda k, part: self._named(channel, part) if k == "arg" else part
            )
        elif channel == START:
            after = self._named(channel, value)
        else:
            after = self._ruled(channel, value, states)
        try:
            wrong = misfit(value, after)
            if self._seen is not None:
                self._look(channel, at, after)
        except RecursionError:
            raise refusal.too_deep(_where(channel)) from None
        if wrong is not None:
            reason = f"redact made a {wrong} of it that its class refuses: use a by= that fits"
            raise ValueRefusedError(_where(channel), reason)
        return after

    def _named(self, channel: str, value: Any) -> Any:
        """An input, or what is sent to a node: its parts go by the names of channels."""
        names = () if isinstance(value, WITH_NAMES) else named_parts(value)
        if not any(name is not None for name, _ in names):
            return self._unlooked(channel, value)
        return changed(value, lambda name, part: self._unlooked(name or channel, part))

    def _unlooked(self, channel: str, value: Any) -> Any:
        if type(value) is not list:
            return self._ruled(channel, value, lambda rule: _ROOT)
        return changed(value, lambda _, item: self._ruled(channel, item, lambda r: r.after(None)))

    def _ruled(self, channel: str, value: Any, states: Callable[[Redact], States]) -> Any:
        for i, rule in enumerate(self._rules):
            try:
                if not isinstance(rule, Redact):
                    value = rule(channel, value)
                elif rule.channel is None or rule.channel == channel:
                    at = states(rule)
                    value = rule.applied(value, at) if at else value
            except DurableStateError:
                raise
            except RecursionError:
                raise refusal.too_deep(_where(channel)) from None
            except Exception as error:  # whose text may quote the value
                why = str(error) if isinstance(error, Fixed) else f"raised {type(error).__name__}"
                reason = f"rule {i + 1} of redact, {_called(rule)}: {why}"
                raise ValueRefusedError(_where(channel), reason) from error
        return value

    def _look(self, channel: str, at: str, value: Any) -> None:
        for path, shape in secret_shapes.found(value, at):
            place = re.sub(r"\[\d+\]", "[*]", path)
            if (channel, place, shape) not in self._told and self._seen is not None:
                self._told.add((channel, place, shape))
                self._seen(f"{_where(channel)}, at ${path}, {shape}")


def _where(channel: str) -> str:
    return "metadata" if channel == METADATA else f"channel {channel!r}"


def _called(rule: Redact | Function) -> str:
    if not isinstance(rule, Redact):
        return getattr(rule, "__name__", type(rule).__name__)
    told = ((name, getattr(rule, name)) for name in ("pattern", "channel", "path"))
    return f"Redact({', '.join(f'{name}={value!r}' for name, value in told if value is not None)})"


def _rules_of(redact: Redaction | None) -> tuple[Redact | Function, ...]:
    if redact is None:
        return ()
    several = isinstance(redact, Iterable) and not isinstance(redact, (str, bytes, Mapping))
    rules: tuple[Any, ...] = tuple(redact) if several else (redact,)  # type: ignore[arg-type]
    for rule in rules:
        if isinstance(rule, (str, re.Pattern)) or not (isinstance(rule, Redact) or callable(rule)):
            raise UsageError(f"redact={rule!r}: use Redact(…), a function, or a list of them")
        if inspect.iscoroutinefunction(rule):
            raise UsageError("redact must be a plain function: nothing awaits a coroutine")
    return rules
