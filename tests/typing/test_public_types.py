"""The public API's types, as a user's type checker sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_a_users_type_checker_agrees() -> None:
    """Right uses check strictly, and wrong ones are errors (an unused ignore is one, too)."""
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "usage.py"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout.startswith("Success"), told.stdout + told.stderr
