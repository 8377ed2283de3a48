# `make demo` and `make test` need nothing but Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test lint types tests slow bench wheel compiled clean

help:
	@echo "make demo    six policies on a real-shaped workload, ending in a report (under two minutes)"
	@echo "make test    linters, types, import rules, tests and documentation examples"
	@echo "make slow    the long tests"
	@echo "make bench   the benchmarks: speed and quality as ratios"
	@echo "make install .venv with pinned dependencies and .venv/bin/dally"
	@echo "make wheel   dist/dally-*.whl in pure Python"
	@echo "make compiled the same sources with the inner loops compiled (needs a C compiler): a wheel, and .venv-compiled/bin/dally"

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

wheel: install
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

# Never beside the sources: there, compiled modules would hide what is edited.
compiled: install
	@command -v $${CC:-cc} >/dev/null || { echo "there is no C compiler; Dally runs without one, only slower"; exit 2; }
	rm -rf dist/compiled
	DALLY_COMPILE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist/compiled .
	$(PYTHON) -m venv .venv-compiled
	.venv-compiled/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --force-reinstall dist/compiled/dally-*.whl

clean:
	rm -rf $(VENV) .venv-compiled build dist demo-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
