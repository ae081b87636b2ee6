"""LangGraph's list of classes that are safe to read, wherever its release keeps it."""

from __future__ import annotations

import datetime
import decimal
import ipaddress
import pathlib
import uuid
import zoneinfo
from collections import deque
from typing import Any

from langchain_core import messages
from langchain_core.documents import Document
from langgraph.types import Command, Interrupt, Send
from pydantic import SecretBytes, SecretStr

__all__ = ["SAFE", "SNAPSHOT", "Send", "within"]


def _listed() -> frozenset[tuple[str, ...]]:
    try:
        from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
    except ImportError:  # LangGraph has a list since 4.0.1 of its checkpoint package
        return _our_own()
    return SAFE_MSGPACK_TYPES


def _our_own() -> frozenset[tuple[str, ...]]:
    """What LangGraph's first list held."""
    plain = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)
    more = (uuid.UUID, decimal.Decimal, set, frozenset, deque, zoneinfo.ZoneInfo)
    paths = (pathlib.Path, pathlib.PosixPath, pathlib.WindowsPath)
    networks = (getattr(ipaddress, f"IPv{n}{k}") for n in "46" for k in _NETWORKS)
    theirs = (getattr(messages, name) for name in messages.__all__ if "Message" in name)
    classes = (*plain, *more, *paths, *networks, *theirs, Document, Send, Interrupt, Command)
    named = {(c.__module__, c.__name__) for c in classes if isinstance(c, type)}
    return frozenset(named | {("re", "compile")})


_NETWORKS = ("Address", "Interface", "Network")


def _snapshot() -> Any:
    try:
        from langgraph.checkpoint.serde.types import _DeltaSnapshot
    except ImportError:  # LangGraph has DeltaChannels since 1.2
        return None
    return _DeltaSnapshot


def within(schema: type) -> set[tuple[str, ...]]:
    """The classes that the fields of a class are annotated with, and theirs, as LangGraph collects
    them of a graph's state: dataclasses, pydantic models, enums; a TypedDict is seen through."""
    try:
        from langgraph._internal._serde import collect_allowlist_from_schemas
    except ImportError:  # LangGraph before 1.1, or another one that keeps it elsewhere
        return set()
    return collect_allowlist_from_schemas(schemas=[schema])


SAFE = _listed() | {(each.__module__, each.__name__) for each in (SecretStr, SecretBytes)}
SNAPSHOT = _snapshot()
"""What a DeltaChannel with snapshots stores; None if this LangGraph has none."""
