# Two commands on a fresh machine: `make demo`, `make test`. Both set up .venv first.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check lint format

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "autotune needs Python 3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# The main job on two CPU ranks with a tiny model. The ceiling is set so that some trials do not fit.
demo: setup
	$(BIN)/autotune run --model tiny --gpus 2 --device cpu --memory-ceiling 1GiB --trials 30 --seed 1

test: setup
	$(BIN)/pytest

# What CI and pre-commit check beside the tests; one list of flags, in pyproject.toml.
lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/codespell

check: lint test

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
