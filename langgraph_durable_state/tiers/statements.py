"""Loads the named statements and scripts that stand as files of their own for review."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAMED = re.compile(r"^-- (\w+): (?=[A-Z])", re.MULTILINE)


def _file(kind: str, name: str) -> str:
    return (files(__package__) / kind / name).read_text(encoding="utf-8")


@cache
def queries(schema: str) -> dict[str, str]:
    """The statements of `queries.sql` by name, for the tables in `schema`."""
    parts = _NAMED.split(_file("sql", "queries.sql"))[1:]
    return {
        name: f"-- {text.partition(';' + chr(10))[0]}".replace("{schema}", schema)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def schema_sql(schema: str) -> str:
    """The tables in `schema`, as SQL that an administrator can review and run."""
    return _file("sql", "schema.sql").format(schema=schema)


_ON_SPELLS = {"append", "append_writes", "fence", "peek", "close", "adopt", "depth", "take"}


@cache
def script(name: str) -> str:
    """The text of one Redis script."""
    text = _file("lua", f"{name}.lua")
    return _file("lua", "spells.lua") + text if name in _ON_SPELLS else text
