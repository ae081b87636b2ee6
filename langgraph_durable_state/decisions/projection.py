"""Metadata as JSON that Postgres can search: a projection for filters, never what is read back.

JSON types are kept apart (True is not 1) and distinct values stay distinct: what jsonb cannot
hold (NUL, lone surrogates, NaN) is spelled with an escape, and long texts stand as their digest.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from ..errors import UsageError
from .escape import escape_text
from .keys import encoded

_LONGEST = 1_000
"""Characters of a text that are kept as they are; LangGraph's own metadata stays far below."""

_MARK = "\U0010ffff"


LANGGRAPHS = frozenset({"source", "step", "parents", "run_id"})
"""LangGraph's own metadata keys: what stands in clear where all else is encrypted."""


def of_metadata(metadata: Mapping[str, Any], clear: frozenset[str] | None = None) -> str:
    """The JSON text to store beside a checkpoint; values that JSON cannot express are left out,
    and so is what is not under one of the keys `clear`, unless that is None."""
    shown = {}
    for key, value in metadata.items():
        if clear is not None and key not in clear:
            continue
        try:
            shown[_text(str(key))] = _spelled(value)
        except TypeError:
            continue
    return _object(shown)


def of_filter(wanted: Mapping[str, Any], clear: frozenset[str] | None = None) -> dict[str, str]:
    """The JSON text that each key of a metadata filter must equal.

    Raises:
        UsageError: if a value cannot be compared as JSON, or is encrypted, being under none of the
            keys `clear`.
    """
    found = {}
    for key, value in wanted.items():
        if clear is not None and key not in clear:
            raise UsageError(
                f"metadata filter {key!r}: its values are encrypted, and nobody can search them; "
                "to have them in clear from now on, name it in clear_metadata"
            )
        try:
            found[_text(str(key))] = _spelled(value)
        except (TypeError, RecursionError):
            raise UsageError(
                f"metadata filter {key!r}: a {type(value).__name__} cannot be compared as JSON"
            ) from None
    return found


def _spelled(value: Any) -> str:
    """As JSON. To set up an encoder takes longer than to spell a checkpoint's metadata."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, str):
        return encode_basestring(_text(value))
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        shown = float.__repr__(value)
        return shown if math.isfinite(value) else _object({_MARK: encode_basestring(shown)})
    if isinstance(value, Mapping):
        return _object({_text(str(k)): _spelled(v) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_spelled, value))}]"
    raise TypeError(type(value).__name__)


def _object(fields: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{encode_basestring(name)}:{text}' for name, text in fields.items())}}}"


def _text(text: str) -> str:
    if len(text) > _LONGEST:
        return f"{_MARK}sha256:{hashlib.sha256(encoded(text)).hexdigest()}"
    return escape_text(text, nul=True)


def typed(text: str) -> Any:
    """A JSON text so that only what jsonb holds equal is equal."""
    return _typed(json.loads(text, parse_int=Decimal, parse_float=Decimal))


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return "object", {key: _typed(part) for key, part in value.items()}
    if isinstance(value, list):
        return "array", [_typed(part) for part in value]
    return type(value).__name__, value
