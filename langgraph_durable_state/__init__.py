"""A LangGraph checkpointer that never loses, mixes up or misreads an agent's state."""

from .decisions.redaction import Redact
from .drivers.renewal import Lease
from .errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    DurableStateError,
    EvolutionError,
    HeadMovedError,
    KeyMissingError,
    LeaseHeldError,
    LeaseLostError,
    StateLostError,
    UnavailableError,
    UsageError,
    ValueRefusedError,
)
from .events import Event
from .health import Health
from .migration import MigrateProgress, MigrateReport
from .protocols.rekeying import Rekeyed
from .recovery import RecoveryReport
from .rerun import arerun_on_conflict, rerun_on_conflict
from .saver import DurableSaver
from .verification import VerifyProgress, VerifyReport

__all__ = [
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "DurableSaver",
    "DurableStateError",
    "Event",
    "EvolutionError",
    "HeadMovedError",
    "Health",
    "KeyMissingError",
    "Lease",
    "LeaseHeldError",
    "LeaseLostError",
    "MigrateProgress",
    "MigrateReport",
    "RecoveryReport",
    "Redact",
    "Rekeyed",
    "StateLostError",
    "UnavailableError",
    "UsageError",
    "ValueRefusedError",
    "VerifyProgress",
    "VerifyReport",
    "arerun_on_conflict",
    "rerun_on_conflict",
]

__version__ = "0.1.0"
