"""Messages to measure with: seeded, never the same text twice, and about as compressible as prose.

Words are drawn by Zipf's law from a vocabulary of common English words and invented rare ones, so
zstd's level 1 halves 50 KB of it, as it does with chat logs; a repeated byte would flatter every
saver that compresses.
"""

from __future__ import annotations

import random
import uuid
from functools import cache

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

_COMMON = (
    "the of and to a in is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were all her she there would their we him been has when who will "
    "no more if out so up said what its about than into them can only other time new some could "
    "these two may first then do any like my now over such our man me even most made after also "
    "did many before must through years where much your way well down should because long each "
    "just state people those too mr how little good world make very year still see work life both "
    "under same here last being day part against house three need order customer refund invoice "
    "flight booking ticket account please thanks sorry check status number address payment card"
)
_SYLLABLES = (
    "ba ce di fo gu ka le mi no pu ra se ti vo yl an el in or us tra ple gri sto qua men ver ing"
)
_RARE = 12_000
"""Invented words beside the common ones: about what a person's chats use."""


@cache
def _vocabulary() -> tuple[tuple[str, ...], tuple[float, ...]]:
    rng, syllables = random.Random(1), _SYLLABLES.split()
    invented = ("".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(_RARE))
    words = (*_COMMON.split(), *invented)
    total, bounds = 0.0, []
    for rank in range(1, len(words) + 1):
        total += 1 / rank
        bounds.append(total)
    return words, tuple(bounds)


def text(rng: random.Random, size: int) -> str:
    """Exactly `size` characters of prose, all ASCII."""
    words, bounds = _vocabulary()
    drawn = rng.choices(words, cum_weights=bounds, k=size // 3 + 2)
    return " ".join(drawn).ljust(size)[:size]


def message(rng: random.Random, size: int, turn: int) -> AnyMessage:
    """A message of `size` characters: the person's on even turns, the model's on odd ones."""
    kind = AIMessage if turn % 2 else HumanMessage
    return kind(content=text(rng, size), id=str(uuid.UUID(int=rng.getrandbits(128), version=4)))


@cache
def _overhead() -> int:
    serde = JsonPlusSerializer()
    return len(serde.dumps_typed([message(random.Random(0), 256, 1)])[1]) - 256


def history(rng: random.Random, size: int) -> list[AnyMessage]:
    """Messages of about 1 KB each that serialize to about `size` bytes."""
    count = max(2, size // 1024)
    each = max(16, size // count - _overhead())
    return [message(rng, each, turn) for turn in range(count)]
