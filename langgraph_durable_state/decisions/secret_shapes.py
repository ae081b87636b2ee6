"""Texts that look like credentials, by the shapes that their issuers gave them to be found by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .parts import named_parts, step
from .texts import text_of

SHAPES: dict[str, tuple[str, str]] = {
    "an AWS access key": ("AKIA ASIA", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    "a GitHub token": (
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})",
    ),
    "a GitLab token": (
        "glpat- glptt- gldt- glrt- glcbt-",
        r"\bgl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{20,}",
    ),
    "an Anthropic API key": ("sk-ant-", r"\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{20,}"),
    "an OpenAI API key": ("T3BlbkFJ", r"\bsk-[A-Za-z0-9_-]*T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    "a LangSmith API key": ("lsv2_", r"\blsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}\b"),
    "a Google API key": ("AIza", r"\bAIza[A-Za-z0-9_-]{35}"),
    "a Slack token": ("xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{20,}"),
    "a Slack webhook": (
        "hooks.slack.com",
        r"\bhooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{20,}",
    ),
    "a Stripe key": ("k_live_ k_test_", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{20,}"),
    "a Hugging Face token": ("hf_", r"\bhf_[A-Za-z0-9]{34,}"),
    "an npm token": ("npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    "a PyPI token": ("pypi-AgE", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
    "a SendGrid key": ("SG.", r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    "a Telegram bot token": (":AA", r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    "a JSON Web Token": (
        ".eyJ",
        r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    ),
    "a private key": (
        "-----BEGIN",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    ),
    "a URL with a password": ("://", r"://[^\s:/@]{0,100}:[^\s:/@]{3,100}@[\w.-]"),
}
"""Kinds of secret: words of which it holds one, so that most texts are passed over fast, and the
regular expression of its shape. Only what is hardly anything else."""

_SHAPES = [(name, words.split(), re.compile(shape)) for name, (words, shape) in SHAPES.items()]


KEY = "[a key]"
"""Stands in a path for a key that is, or holds, a secret."""


def shape_of(text: str) -> str | None:
    """What kind of secret a text holds; the first, if there are several."""
    for name, words, shape in _SHAPES:
        if any(word in text for word in words) and shape.search(text):
            return name
    return None


def found(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The paths within `value` at which a text holds a secret, and its kind."""
    if hasattr(value, "get_secret_value"):
        return  # it is called a secret already
    text = text_of(value)
    if text is not None:
        shape = shape_of(text)
        if shape is not None:
            yield path, shape
        return
    if isinstance(value, dict):
        for key in value:
            yield from found(key, path + KEY)
    for i, (name, part) in enumerate(named_parts(value)):
        yield from found(part, path + (f"[{i}]" if name is None else shown(name)))


def shown(name: str) -> str:
    """A name as a step of a path that is told, unless it is a secret itself."""
    return step(name) if shape_of(name) is None else KEY
