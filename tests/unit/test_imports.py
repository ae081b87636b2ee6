"""The layers of the code: imports point downward only, and the core does no I/O of its own."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import langgraph_durable_state

ROOT = Path(langgraph_durable_state.__file__).parent
PACKAGE = ROOT.name

LAYERS = [
    "words asfound errors events health recovery verification migration",
    "decisions",
    "ports",
    "tiers",
    "protocols",
    "settings",
    "drivers",
]
"""From the bottom up; whatever is not named is a face and may import all."""

IO = {"asyncio", "threading", "time", "psycopg", "psycopg_pool", "redis"}


def layer(module: str) -> int:
    top = module.split(".")[0]
    found = (i for i, names in enumerate(LAYERS) if top in names.split())
    return next(found, len(LAYERS))


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def imports(module: str, path: Path) -> Iterator[str]:
    """What a module imports, ours as ``.name`` relative to the package."""
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ("." + ".".join([*base, name]) for name in names)


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda p: str(p)[-40:])
def test_imports_point_downward(module: str, path: Path) -> None:
    """No module imports one of a layer above its own."""
    if module == "__init__":
        return
    ours = [name[1:] for name in imports(module, path) if name.startswith(".")]
    above = [name for name in ours if layer(name) > layer(module)]
    assert above == []


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda p: str(p)[-40:])
def test_nothing_below_the_drivers_does_io(module: str, path: Path) -> None:
    """Loops, threads, clocks and sockets are the drivers' business."""
    if layer(module) >= layer("drivers"):
        return
    theirs = {name.split(".")[0] for name in imports(module, path)}
    assert theirs & IO == set()


def test_no_room_is_named_for_nothing() -> None:
    """A file says what is in it."""
    vague = {"utils", "base", "common", "manager", "helpers"}
    assert [m for m, _ in modules() if vague & set(m.split("."))] == []


def test_the_public_names() -> None:
    """What users call, catch, or name in the types of what they are given; each on purpose."""
    assert sorted(langgraph_durable_state.__all__) == [
        "ClosedError",
        "ConflictError",
        "CorruptionError",
        "DurableSaver",
        "DurableStateError",
        "Event",
        "EvolutionError",
        "HeadMovedError",
        "Health",
        "KeyMissingError",
        "Lease",
        "LeaseHeldError",
        "LeaseLostError",
        "MigrateProgress",
        "MigrateReport",
        "RecoveryReport",
        "Redact",
        "Rekeyed",
        "StateLostError",
        "UnavailableError",
        "UsageError",
        "ValueRefusedError",
        "VerifyProgress",
        "VerifyReport",
        "arerun_on_conflict",
        "rerun_on_conflict",
    ]


def test_what_public_methods_give_can_be_named() -> None:
    """The classes of ours that their annotations name, aliases included."""
    ours = set()
    for name, method in inspect.getmembers(langgraph_durable_state.DurableSaver, callable):
        function: Any = inspect.unwrap(method)
        if name.startswith("_") or not hasattr(function, "__globals__"):
            continue
        words = re.findall(r"\w+", " ".join(map(str, function.__annotations__.values())))
        for each in classes([function.__globals__.get(word) for word in words]):
            ours |= {each.__name__} if each.__module__.startswith(PACKAGE) else set()
    assert ours <= set(langgraph_durable_state.__all__)
    assert {"Lease", "Rekeyed", "VerifyProgress", "VerifyReport", "Health"} <= ours


def classes(annotation: Any) -> Iterator[type]:
    """The classes that an annotation is made of."""
    if isinstance(annotation, type):
        yield annotation
    for part in annotation if isinstance(annotation, list) else get_args(annotation):
        yield from classes(part)
