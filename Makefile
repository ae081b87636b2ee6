# Everything happens in .venv, made on first use. Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests wait for servers most of the time; those of a file share what they have set up.
WORKERS := -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint bench clean

help:
	@echo "make demo       see it work: real servers from wheels, a run that is killed and resumed"
	@echo "make test       ruff, mypy and the tests"
	@echo "make test-long  the same, with the tests that take minutes"
	@echo "make lint       ruff and mypy only"
	@echo "make bench      the benchmarks"
	@echo "make clean      remove the environment, caches and builds"

demo: $(VENV)/.all
	@$(BIN)/durable-state demo

test: lint
	@$(BIN)/python -m pytest $(WORKERS)

test-long: lint
	@$(BIN)/python -m pytest -m "long or not long" $(WORKERS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml once the installation for it has succeeded.
$(VENV)/.all: $(VENV)/.made pyproject.toml
	@echo "Installing the package and what the demo needs ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@echo "Installing the package and what the tests need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]'
	@touch $@ $(VENV)/.all

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || \
		{ echo "$(PYTHON) was not found: install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, $(PYTHON) is `$(PYTHON) -V 2>&1`. Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "$(PYTHON) could not make a virtual environment (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@touch $@
