"""Every notebook runs from top to bottom, in a kernel of its own."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import langgraph_durable_state

ROOT = Path(langgraph_durable_state.__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    """The tests below would pass without any."""
    assert NOTEBOOKS != []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, own_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cell fails, and its files are gone at the end."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("TMPDIR", str(own_files))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(own_files)}}
    NotebookClient(notebook, timeout=60, resources=resources).execute()
    assert list(own_files.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_saved_without_outputs(path: Path) -> None:
    """What it prints differs from run to run, and would be in every diff."""
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[] for _ in code]
    assert [cell.execution_count for cell in code] == [None for _ in code]
