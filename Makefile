# `make demo` and `make test` need nothing but Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test lint types tests slow bench clean

help:
	@echo "make demo    six policies on a real-shaped workload, ending in a report (under two minutes)"
	@echo "make test    linters, types, import rules, tests and documentation examples"
	@echo "make slow    the long tests"
	@echo "make bench   the benchmarks: speed and quality as ratios"
	@echo "make install .venv with pinned dependencies and .venv/bin/dally"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Dally needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: install
	$(BIN)/dally compare --trace synth:helios-multi --jobs 3000 --load 1.0 --cluster 4x8x8 --fabric ethernet-100g-4to1 --seed 1 \
	    --policies "fifo,las,tiresias,gandiva,dally[timers=auto],dally" --out demo-report --force

test: install lint types tests

lint: install
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy

tests: install
	$(BIN)/pytest -n auto --dist worksteal -m "not slow"

slow: install
	$(BIN)/pytest -n auto --dist worksteal -m slow

bench: install
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist demo-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
