# `make demo` and `make test` set up everything by themselves on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test slow lint types docs check clean

setup: $(VENV)/.installed

# torch first and alone: asked for by another package, it would bring gigabytes of CUDA along.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e ".[dev,faiss]"
	touch $@

demo: setup
	$(BIN)/python scripts/run_demo.py

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

slow: setup
	$(BIN)/python -m pytest tests/slow -o addopts=-q

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

docs: setup
	$(BIN)/python scripts/cli_docs.py

check: lint types
	$(BIN)/python scripts/cli_docs.py --check

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
