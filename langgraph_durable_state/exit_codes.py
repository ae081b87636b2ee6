"""The exit codes of `durable-state`: what tells a script how it went."""

from .errors import (
    ConflictError,
    CorruptionError,
    HeadMovedError,
    StateLostError,
    UnavailableError,
    UsageError,
)

BY_ERROR: tuple[tuple[type[Exception], int], ...] = (
    (UsageError, 2),
    (UnavailableError, 3),
    (CorruptionError, 4),
    (HeadMovedError, 4),
    (ConflictError, 5),
    (StateLostError, 6),
)
"""By class of error; the first that fits counts. A wrong option gives 2 as well."""

FAILED = 1
"""Any other error."""
DAMAGED = dict(BY_ERROR)[CorruptionError]
"""Something is not what was written, and neither tier has what was."""
BUSY = dict(BY_ERROR)[ConflictError]
"""Somebody else was faster."""
REPAIRED = 7
"""Something is not what was written, and was restored, or can be: what is served is right."""
UNDECLARED = 8
"""A graph changed in a way that its stored threads would notice, and no step says so."""
INTERRUPTED = 130


def code_of(kind: type[Exception]) -> int:
    """The exit code of a class of errors."""
    return next((code for known, code in BY_ERROR if issubclass(kind, known)), FAILED)
