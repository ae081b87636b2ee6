"""Where keys come from: bytes, an environment variable, a file, or a callable.

Nothing here, an error least of all, shows what a key is.
"""

from __future__ import annotations

import base64
import inspect
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .decisions import arguments
from .decisions.cipher import Masters
from .decisions.keyring import Keys, keyring
from .decisions.projection import LANGGRAPHS
from .errors import UsageError
from .protocols.drafting import DEGRADED
from .protocols.vault import DataKeys

KeySource = bytes | str | Callable[[], bytes | Sequence[bytes]]
"""A key: its bytes; ``"env:NAME"`` or ``"file:/path"``, which hold keys in hex or base64, the
current one first; or a callable that returns its bytes, or several keys'."""

LEAST = 32
"""Bytes of a key: what HMAC-SHA-256 and AES-256 make use of."""

_HEX = re.compile(r"[0-9a-fA-F]+")


KeySources = KeySource | Sequence[KeySource]


def keys_for(
    integrity_key: KeySources | None,
    encryption_key: KeySources | None,
    accept_plain: bool,
    clear_metadata: Sequence[str],
) -> Keys:
    """What a saver with these settings believes; see `DurableSaver`.

    Raises:
        UsageError: if one of them cannot be used.
    """
    if not isinstance(accept_plain, bool):
        raise UsageError(f"accept_plain={accept_plain!r}: use True or False")
    ring = keyring(keys_of("integrity_key", integrity_key), accept_plain)
    secrets = keys_of("encryption_key", encryption_key)
    named = arguments.texts("clear_metadata", clear_metadata)
    if not secrets:
        if named:
            raise UsageError("clear_metadata is of no use without encryption_key")
        return ring
    clear = LANGGRAPHS | {DEGRADED, *named}
    beside = replace(ring, accepts_plain=accept_plain)
    return DataKeys(Masters(secrets), beside, clear, time.monotonic)


def keys_of(name: str, sources: KeySources | None) -> list[bytes]:
    """The keys of a setting, the current one first.

    Args:
        name: the setting's, for errors.
        sources: one or several; None for no key.

    Raises:
        UsageError: if one cannot be had, or is too short.
    """
    if sources is None:
        return []
    several = isinstance(sources, (list, tuple))
    found: list[bytes] = []
    for source in sources if several else (sources,):  # type: ignore[union-attr]
        found += _keys(name, source)  # type: ignore[arg-type]
    if not found:
        raise UsageError(f"{name}: there is no key in it")
    return list(dict.fromkeys(found))


def _keys(name: str, source: KeySource) -> list[bytes]:
    if isinstance(source, bytes):
        return [_long_enough(name, source)]
    if isinstance(source, str):
        return _of_text(name, source)
    if callable(source):
        return [_long_enough(name, key) for key in _called(name, source)]
    raise UsageError(f"{name}: use bytes, 'env:NAME', 'file:/path' or a callable")


def _called(name: str, source: Callable[[], object]) -> Sequence[bytes]:
    if inspect.iscoroutinefunction(source):
        raise UsageError(f"{name}: use a plain function: nothing awaits a coroutine")
    try:
        made = source()
    except Exception as error:  # whose text may quote the key
        why = type(error).__name__
        raise UsageError(f"{name}: the callable that returns it raised {why}") from None
    several: Sequence[Any] = made if isinstance(made, (list, tuple)) else [made]
    if not several or not all(isinstance(key, bytes) for key in several):
        raise UsageError(f"{name}: the callable must return bytes, or a list of them")
    return several


def _of_text(name: str, source: str) -> list[bytes]:
    kind, _, where = source.partition(":")
    if kind == "env" and where:
        text = _in_environment(where)
        if text is None:
            raise UsageError(f"{name}: the environment has no {where!r}")
    elif kind == "file" and where:
        try:
            text = Path(where).read_text("ascii")
        except OSError as error:
            raise UsageError(f"{name}: {where!r} cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise UsageError(f"{name}: {where!r} holds something else than hex or base64") from None
        except ValueError:
            raise UsageError(f"{name}: {where!r} is no path") from None
    else:
        # Not shown: it may be a key.
        raise UsageError(f"{name}: a str must be 'env:NAME' or 'file:/path'; pass a key as bytes")
    return [_long_enough(name, _decoded(name, part)) for part in re.split(r"[\s,]+", text) if part]


def _in_environment(where: str) -> str | None:
    try:
        return os.environ.get(where)
    except ValueError:  # it cannot be the name of a variable
        return None


def _decoded(name: str, text: str) -> bytes:
    if _HEX.fullmatch(text):  # base64 of 32 bytes has other digits, too
        if len(text) % 2:
            raise UsageError(f"{name}: a key has {len(text)} hex digits, which make no whole bytes")
        return bytes.fromhex(text)
    try:
        plain = text.rstrip("=").replace("-", "+").replace("_", "/")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        raise UsageError(f"{name}: a key is neither hex nor base64") from None


def _long_enough(name: str, key: bytes) -> bytes:
    if len(key) < LEAST:
        raise UsageError(
            f"{name}: a key has {len(key)} bytes; use at least {LEAST}, from a source of "
            "randomness: openssl rand -base64 32"
        )
    return key
