"""Keys: where they come from, and what is said of one that cannot be used, but never what it is."""

from __future__ import annotations

import base64
import os
import pathlib
import traceback
from typing import Any

import pytest

from langgraph_durable_state import CorruptionError, DurableSaver, KeyMissingError, UsageError
from langgraph_durable_state.key_sources import keys_of
from langgraph_durable_state.testing import World, memory_saver
from tests.contract.superstep import config, superstep

KEY = bytes(range(200, 232))
SECRET = "hunter2"


def raising() -> bytes:
    raise RuntimeError(SECRET)


async def coroutine() -> bytes:
    return KEY


BAD: dict[str, Any] = {
    "text": SECRET,
    "bytes that are too short": SECRET.encode(),
    "a variable that is not there": "env:NO_SUCH_KEY",
    "a variable that cannot be": "env:A\x00B",
    "a variable of no text": "env:\ud800",
    "a file that is not there": "file:/no/such/key",
    "a file that cannot be": "file:/a\x00b",
    "a file of no text": "file:/\ud800",
    "a directory": "file:/",
    "none": [],
    "a number": 5,
    "a callable that returns nothing": lambda: None,
    "a callable that returns a number": lambda: 5,
    "a callable that returns text": lambda: SECRET * 32,
    "a callable that returns several of them": lambda: [KEY, None],
    "a callable that returns none of them": list,
    "a callable that raises": raising,
    "a coroutine": coroutine,
}


@pytest.mark.parametrize("setting", ["integrity_key", "encryption_key"])
@pytest.mark.parametrize("kind", BAD)
def test_a_key_that_cannot_be_used_is_said_by_the_setting(kind: str, setting: str) -> None:
    """When the saver is made; neither the message nor the traceback shows what may be the key."""
    for given in (BAD[kind], [KEY, BAD[kind]]):
        if given != [KEY, []]:
            with pytest.raises(UsageError, match=setting) as refused:
                DurableSaver("", **{setting: given})
            assert SECRET not in "".join(traceback.format_exception(refused.value)[-1:])
            assert refused.value.__cause__ is None


TEXTS: dict[str, str] = {
    "not ASCII": "schlüssel" * 9,
    "half a character": "\udcff" * 44,
    "neither hex nor base64": "!" * 44,
    "31 bytes in hex": KEY[:31].hex(),
    "22 bytes in hex, which base64 would take for 33": KEY[:22].hex(),
    "16 bytes in hex": KEY[:16].hex(),
    "32 bytes and a half in hex": KEY.hex() + "a",
    "31 bytes in base64": base64.b64encode(KEY[:31]).decode(),
    "base64 that is cut off": "x" * 45,
    "nothing": " \n",
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("place", ["env", "file"])
def test_a_text_that_is_no_key_is_refused(
    kind: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Wherever it stands, also behind one that is a key. Of hex the digits are counted."""
    for text in (TEXTS[kind], f"{KEY.hex()}\n{TEXTS[kind]}"):
        if text.strip() == KEY.hex():
            continue
        monkeypatch.setitem(os.environ, "STATE_KEY", text)
        (tmp_path / "key").write_bytes(text.encode("utf-8", "surrogateescape"))
        source = "env:STATE_KEY" if place == "env" else f"file:{tmp_path}/key"
        with pytest.raises(UsageError, match="integrity_key") as refused:
            keys_of("integrity_key", source)
        assert not TEXTS[kind].strip() or TEXTS[kind] not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex(),
        KEY.hex().upper(),
        base64.b64encode(KEY).decode(),
        base64.b64encode(KEY).decode().rstrip("="),
        base64.urlsafe_b64encode(KEY).decode(),
    ],
)
def test_hex_and_base64_are_told_apart(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And several keys by what stands between them."""
    monkeypatch.setenv("STATE_KEY", f" {text}\n")
    assert keys_of("integrity_key", "env:STATE_KEY") == [KEY]
    monkeypatch.setenv("STATE_KEY", f"{text},{'ab' * 40}")
    assert keys_of("integrity_key", "env:STATE_KEY") == [KEY, b"\xab" * 40]


@pytest.mark.parametrize("given", [None, 5, "kind", b"kind", [5], {"kind": 1}])
@pytest.mark.parametrize("key", [None, KEY], ids=["without", "with"])
def test_metadata_keys_that_are_none_are_refused(given: Any, key: Any) -> None:
    """With and without a key that they are of use with."""
    with pytest.raises(UsageError, match="clear_metadata"):
        DurableSaver("", encryption_key=key, clear_metadata=given)


@pytest.mark.parametrize("policy", ["write_through", "write_behind"])
@pytest.mark.parametrize("setting", ["integrity_key", "encryption_key"])
def test_a_key_is_introduced_in_the_order_that_is_documented(setting: str, policy: str) -> None:
    """What was stored without one says what would believe it; whoever has no key yet cannot read
    what is under it; when all was brought under it, nothing without is left."""
    world = World()

    def saver(**options: Any) -> DurableSaver:
        return memory_saver(world, write_policy=policy, hot_reads="always", **options)

    keyed = {setting: KEY}
    old = saver()
    old.put(*superstep(old, None, "1", {"c": "x" * 900}))
    old.close()
    with pytest.raises(CorruptionError, match="accept_plain=True"):
        saver(**keyed).get_tuple(config())
    assert "accept_plain=True" in str(saver(**keyed).recover(config()).error)
    new = saver(accept_plain=True, **keyed)
    new.put(*superstep(new, new.get_tuple(config()), "2", {"c": "y" * 900}))
    with pytest.raises(KeyMissingError):
        saver().get_tuple(config())
    new.flush()
    assert not saver(**keyed).verify().clean
    assert new.rekey().rewritten == 1
    last = saver(on_corrupt="raise", **keyed)
    assert last.verify().clean
    assert [found.checkpoint["channel_values"]["c"][0] for found in last.list(config())] == [*"yx"]
