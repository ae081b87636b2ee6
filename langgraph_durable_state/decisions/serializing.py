"""Values to bytes and back through LangGraph's serializer, with nothing lost unsaid.

The bytes are the serializer's own. For the plain values of a `JsonPlusSerializer` they are made
directly with ormsgpack under the serializer's options less the one that replaces lone
surrogates: that the encoder accepted them proves that they come back exactly. Any other value is
decoded again and compared before anything is written.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import ormsgpack
import xxhash
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR

from ..errors import ValueRefusedError
from ..words import Typed
from . import escape, refusal, reviving, unknown_fields
from .copying import MESSAGES
from .redaction import Screen

Verify = Literal["off", "warn", "raise"]
OnUnknownClass = Literal["raise", "raw"]

_STRICT = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_PLAIN_KEYS = frozenset({str, int, float, bool, bytes, type(None)})
_ESCAPED = "escaped:"
_SEED = int.from_bytes(os.urandom(7))
_MESSAGE_SEED = _SEED + 1
_NOT_MSGPACK = (type(None), bytes, bytearray)

_REMEDY = "convert it, with model_dump() say; verify_round_trip='warn' stores it nevertheless"
_ALLOW = "name its class in allow=[…], or convert it, with model_dump() say"

logger = logging.getLogger("langgraph_durable_state")


def is_transparent(serde: SerializerProtocol) -> bool:
    """Whether the serializer's bytes can be taken apart and joined: exactly LangGraph's own."""
    return type(serde) is JsonPlusSerializer


def plain(value: Any) -> bytes | None:
    """The msgpack bytes of a value made only of plain types; None if it is not."""
    try:
        return ormsgpack.packb(value, option=_STRICT)
    except (TypeError, ValueError):
        pass
    try:
        packed = ormsgpack.packb(value, option=_STRICT | ormsgpack.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return None
    # The encoder makes texts of UUIDs, dates and enums that are keys, and says nothing.
    return packed if _has_plain_keys(value) else None


def _has_plain_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain_key, value)) and all(map(_has_plain_keys, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(_has_plain_keys, value))


def _is_plain_key(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_plain_key, key))
    return type(key) in _PLAIN_KEYS


def fingerprint(item: Any) -> bytes | None:
    """16 bytes that differ where the serialized bytes differ; None for what cannot be told cheaply.

    About 1 us for a message, where serializing it takes 5. Taken over the object's own parts,
    with the class's name, and seeded per process: it is never stored.
    """
    kind = type(item)
    if kind in MESSAGES:
        packed = plain((kind.__name__, item.__dict__, item.__pydantic_extra__))
        return None if packed is None else xxhash.xxh3_128_digest(packed, _MESSAGE_SEED)
    packed = plain(item)
    return None if packed is None else xxhash.xxh3_128_digest(packed, _SEED)


def comes_back(value: Any) -> bool:
    """Whether a value is made only of what LangGraph's serializer is known to give back: plain
    values, and messages of them that their class's validators leave alone, in lists and maps."""
    kind = type(value)
    if kind in MESSAGES:
        return _is_settled(value) and fingerprint(value) is not None
    if kind is list:
        return all(map(comes_back, value))
    if kind is dict:
        return plain(list(value)) is not None and all(map(comes_back, value.values()))
    return plain(value) is not None


def _is_settled(message: Any) -> bool:
    """Whether a message has nothing that its class makes anew from something else when it is
    built: AIMessage fills tool calls in from `additional_kwargs`, ToolMessage makes ids text."""
    kind = type(message)
    if type(message.content) is not str or message.additional_kwargs:
        return False
    if kind is AIMessage:
        calls = message.tool_calls or message.invalid_tool_calls
        return not calls and message.usage_metadata is None
    if kind is ToolMessage:
        return type(message.tool_call_id) is str
    return kind is HumanMessage or kind is SystemMessage


def print_of_bytes(data: bytes) -> bytes:
    """The fingerprint of an item that only its serialized bytes identify."""
    return xxhash.xxh3_128_digest(b"bytes:" + data, _SEED)


class Serializer:
    """One serializer with the checks of this library around it.

    Args:
        serde: LangGraph's or the user's.
        verify: what to do with a value that would not come back as it was: refuse it
            (``"raise"``), log it (``"warn"``), or not look (``"off"``).
        max_bytes: refuse a value larger than this once serialized; None for no limit.
        unknown: what to do with a stored object of LangGraph's serializer whose class is not
            allowed, is gone, or does not take what was stored: refuse to read it (``"raise"``),
            or give what was stored of it and note that (``"raw"``; see `reviving.noted`).
        screen: what values go through first, by whoever takes them apart; None for nothing.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        verify: Verify = "raise",
        max_bytes: int | None = None,
        unknown: OnUnknownClass = "raise",
        screen: Screen | None = None,
    ) -> None:
        self.serde = serde
        self.screen = screen
        self.transparent = is_transparent(serde)
        self.lenient = unknown == "raw"
        self._verify = verify
        self._max_bytes = max_bytes
        self._theirs = reviving.readable(serde)
        self._allowed = reviving.allowed_by(self._theirs) if self._theirs is not None else None
        self._revival = reviving.Revival({}, {})
        self.way: object = serde
        """What tells one way to read bytes from another, by its identity."""

    def as_of(self, revival: reviving.Revival) -> Serializer:
        """This serializer, for reading what names classes and fields as older code did.

        Only what LangGraph's serializer stored is read so; a user's own has its own way.
        """
        if not revival.moved and not revival.fields:
            return self
        reader = copy.copy(self)
        reader._revival = reader.way = revival
        return reader

    def strict(self) -> Serializer:
        """This serializer, refusing what it cannot read whole: for what is to be stored again."""
        reader = copy.copy(self)
        reader.lenient = False
        return reader

    def dumps(self, value: Any, where: str, *, lossy: bool = False) -> Typed:
        """`value` as bytes.

        Args:
            value: anything the serializer takes.
            where: what to call it in an error, such as ``channel 'messages'``.
            lossy: accept that it comes back as another type (an exception comes back as text).

        Raises:
            ValueRefusedError: if it cannot be serialized, is too large, or would not come back.
        """
        try:
            return self._sized(self._dumped(value, where, lossy), where)
        except RecursionError:
            raise refusal.too_deep(where) from None

    def _dumped(self, value: Any, where: str, lossy: bool) -> Typed:
        if self.transparent and type(value) not in _NOT_MSGPACK:
            packed = plain(value)
            if packed is not None:
                return Typed("msgpack", packed)
        proven = lossy or type(value) in _NOT_MSGPACK or (self.transparent and comes_back(value))
        return self._typed(value, where, proven)

    def item(self, value: Any, where: str) -> bytes | None:
        """The bytes of an item within a list or map, as the serializer would place them there.

        None if the item only survives escaped, which holds for a value as a whole.
        """
        if type(value) not in MESSAGES:
            packed = plain(value)
            if packed is not None:
                return packed
        typed = self._typed(value, where, comes_back(value))
        return typed.data if typed.tag == "msgpack" else None

    def copied(self, value: Any, channel: str) -> Any:
        """A copy of a value that its owner cannot change.

        Raises:
            ValueRefusedError: if it cannot be serialized; nothing was written.
        """
        if self.screen is not None:  # what cannot be stored may still be taken out of it
            with suppress(Exception):
                return copy.deepcopy(value)
        typed = self.dumps(value, f"channel {channel!r}", lossy=channel == ERROR)
        back, missed = self._read(typed.tag, typed.data)
        return copy.deepcopy(value) if missed else back

    def copied_checkpoint(self, checkpoint: Any) -> Any:
        """A checkpoint whose values are copies that their owner cannot change.

        Raises:
            ValueRefusedError: if one cannot be serialized; nothing was written.
        """
        values = checkpoint.get("channel_values") or {}
        return {**checkpoint, "channel_values": {k: self.copied(v, k) for k, v in values.items()}}

    def loads(self, tag: str, data: bytes) -> Any:
        """The value of these bytes; whatever the serializer raises.

        Raises:
            Unknown: for an object whose class is not known here, unless that is to be noted only.
        """
        value, missed = self._read(tag, data)
        if missed:
            if not self.lenient:
                raise reviving.Unknown(missed)
            reviving.note(missed)
        return value

    def _read(self, tag: str, data: bytes) -> tuple[Any, Sequence[reviving.Missed]]:
        """The value of these bytes, and which objects in it could not be made again."""
        if tag.startswith(_ESCAPED):
            value, missed = self._read(tag[len(_ESCAPED) :], data)
            return escape.unescaped(value), missed
        if self._theirs is None or self._allowed is None:
            return self.serde.loads_typed((tag, data)), ()
        if self._theirs is not self.serde and "+" in tag:
            assert isinstance(self.serde, EncryptedSerializer)
            tag, cipher = tag.split("+", 1)
            data = self.serde.cipher.decrypt(cipher, data)
        if tag != "msgpack":
            return self._theirs.loads_typed((tag, data)), ()
        reviver = reviving.Reviver(self._allowed, self._theirs._unpack_ext_hook, self._revival)
        return reviver.read(data), reviver.missed

    def _typed(self, value: Any, where: str, proven: bool) -> Typed:
        """The bytes of a value, in the escaped spelling if only that comes back."""
        try:
            typed = self._given(value)
        except Exception as error:
            spelled = self._spelled(value)
            if spelled is not None:
                return spelled
            if refusal.is_too_deep(value):
                raise refusal.too_deep(where) from None
            path, reason = refusal.unserializable(value, self.serde.dumps_typed)
            raise ValueRefusedError(_at(where, path), reason) from error
        if proven or self._verify == "off":
            return typed
        lost = self._lost(value, typed)
        if lost is None:
            return typed
        spelled = self._spelled(value)
        if spelled is not None:
            return spelled
        path, reason, remedy = lost
        if self._verify == "warn":
            logger.warning("%s: %s", _at(where, path), reason)
            return typed
        raise ValueRefusedError(_at(where, path), f"{reason} ({remedy})")

    def _given(self, value: Any) -> Typed:
        """The serializer's bytes, with fields that an object came without; see `unknown_fields`.
        They stay out where values are screened: nobody could look into them."""
        if self.transparent and self.screen is None and type(value) not in _NOT_MSGPACK:
            whole = unknown_fields.packed(value)
            if whole is not None:
                return Typed("msgpack", whole)
        return Typed(*self.serde.dumps_typed(value))

    def _spelled(self, value: Any) -> Typed | None:
        """The escaped spelling, if it comes back as `value`."""
        try:
            typed = Typed(*self.serde.dumps_typed(escape.escaped(value)))
        except Exception:
            return None
        spelled = Typed(_ESCAPED + typed.tag, typed.data)
        return spelled if self._lost(value, spelled) is None else None

    def _lost(self, value: Any, typed: Typed) -> tuple[str, str, str] | None:
        """Where a value would not come back from these bytes, why, and what to do; None if it
        would."""
        try:
            after, missed = self._read(typed.tag, typed.data)
        except Exception as error:
            return "", f"{type(value).__name__} cannot be read back ({error})", _REMEDY
        first = next((each for each in missed if each.barred), None)
        found = refusal.difference(value, after)
        if found is not None and first is None:
            return *found, _REMEDY
        if not missed:
            return None
        first = first or missed[0]
        path = refusal.instance(value, first.module, first.name) or ""
        reason = f"{first.name} would not come back: {first}"
        return path, reason, _ALLOW if first.barred else _REMEDY

    def _sized(self, typed: Typed, where: str) -> Typed:
        self.check_size(len(typed.data), where)
        return typed

    def check_size(self, size: int, where: str) -> None:
        """Refuses a value of more than `max_bytes`; warns of one that is more than half of it.

        Raises:
            ValueRefusedError: if it is too large.
        """
        if self._max_bytes is None or size <= self._max_bytes // 2:
            return
        told = f"{size:,} bytes, more than max_value_bytes={self._max_bytes:,}"
        if size > self._max_bytes:
            raise ValueRefusedError(where, told)
        logger.warning("%s: %s", where, told.replace("more than", "more than half of"))


def _at(where: str, path: str) -> str:
    return f"{where}, at {path}" if path else where
