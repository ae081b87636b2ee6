"""Text that a store or a serializer would change, spelled so that it comes back exactly.

LangGraph's serializer replaces lone surrogates by ``?``; Postgres's jsonb refuses NUL. Both are
spelled with an escape character that is itself escaped, so that distinct texts stay distinct.
"""

from __future__ import annotations

import re
from typing import Any

from .copying import rebuilt

_MARK = "\U0010ffff"
_TROUBLE = re.compile(f"[\ud800-\udfff{_MARK}]")
_TROUBLE_OR_NUL = re.compile(f"[\x00\ud800-\udfff{_MARK}]")
_ESCAPED = re.compile(f"{_MARK}([0-9a-f]{{6}})")


def _spell(found: re.Match[str]) -> str:
    return f"{_MARK}{ord(found[0]):06x}"


def escape_text(text: str, *, nul: bool = False) -> str:
    """`text` without lone surrogates (and, with `nul`, without NUL characters)."""
    return (_TROUBLE_OR_NUL if nul else _TROUBLE).sub(_spell, text)


def unescape_text(text: str) -> str:
    """The inverse of `escape_text`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def escaped(value: Any) -> Any:
    """A copy of `value` in which every text can be serialized exactly.

    Raises:
        TypeError: if `value` holds an object that cannot be taken apart.
    """
    return rebuilt(value, escape_text)


def unescaped(value: Any) -> Any:
    """The inverse of `escaped`."""
    return rebuilt(value, unescape_text)
