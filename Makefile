# `make demo` and `make test` need nothing but Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test lint types tests slow bench wheel compiled compiled-tests clean

help:
	@echo "make demo    six policies on a real-shaped workload, ending in a report (under two minutes)"
	@echo "make test    linters, types, import rules, tests and documentation examples"
	@echo "make slow    the long tests"
	@echo "make bench   the benchmarks: speed and quality as ratios"
	@echo "make install .venv with pinned dependencies and .venv/bin/dally; compiled where there is a C compiler (some minutes)"
	@echo "make compiled only that: build/compiled, taken as long as the sources are those it was made of"
	@echo "make wheel   dist/dally-*.whl in pure Python; with DALLY_COMPILE=1 compiled, for this platform"

# Compiling is never fatal and never waited for by the targets below: without it everything runs as pure Python.
install: $(STAMP)
	@$(BIN)/python src/dally/compiling.py

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Dally needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/dally compare --trace synth:helios-multi --jobs 3000 --load 1.0 --cluster 4x8x8 --fabric ethernet-100g-4to1 --seed 1 \
	    --policies "fifo,las,tiresias,gandiva,dally[timers=auto],dally" --out demo-report --force

test: $(STAMP) lint types tests

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

tests: $(STAMP)
	DALLY_PURE=1 $(BIN)/pytest -n auto --dist worksteal -m "not slow"

slow: $(STAMP)
	DALLY_PURE=1 $(BIN)/pytest -n auto --dist worksteal -m slow

bench: $(STAMP)
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

compiled: $(STAMP)
	$(BIN)/python src/dally/compiling.py --must

# On what was compiled: golden journals, scenarios, properties and the core.
compiled-tests: $(STAMP)
	DALLY_COMPILED=1 $(BIN)/pytest -n auto --dist worksteal -m "not slow and not pure" tests/golden tests/scenarios tests/properties tests/core

clean:
	rm -rf $(VENV) build dist demo-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
