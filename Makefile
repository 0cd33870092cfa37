# Every target sets up what it needs by itself, with Python >= 3.11, git and make.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
SECONDS ?= 600
JOBS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A warning is an error (mkdocs.yml). The variable silences an announcement about another program.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
FOLDERS := store checkpoint workers tests

.DEFAULT_GOAL := help
.PHONY: help install check test docs browser model machine soak hosts faults demo bench up clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## the virtual environment with everything in it

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "turnledger needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "$(PYTHON) cannot make a virtual environment; install its venv module" \
			"(on Debian and Ubuntu: apt-get install python3-venv)" >&2; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[embedded,dashboard]" --group dev
	@touch $(STAMP)

check: $(STAMP) ## format, lint, types, layers, the site of the documentation and its examples
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(SITE)
	$(BIN)/python -m pytest -q tests/docs

test: $(STAMP) ## every test, in two processes; ARGS="tests/unit -k name" for a part, JOBS=0 for one process
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

docs: $(STAMP) ## the documentation as a site, in site/
	$(SITE)

browser: $(STAMP) ## the dashboard in a headless Chromium, which is installed (Debian, as root) where there is none
	@command -v chromium chromium-browser google-chrome >/dev/null || { apt-get update -q && apt-get install -y -q chromium; }
	$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

machine: $(STAMP) ## the state machine over real servers, 2,000 examples; ARGS="--dice" throws dice, ARGS="--seed 7 --examples 50" a part
	$(BIN)/python -m tests.machine $(ARGS)

soak: $(STAMP) ## continuous load with kills and restarts, then the count; SECONDS=600 for longer
	$(BIN)/python -m tests.soak --seconds $(SECONDS) $(ARGS)

hosts: $(STAMP) ## engine and worker hosts cut off for 30 s, as network namespaces (root, Linux); 7 minutes
	$(BIN)/python -m pytest -m soak tests/acceptance/test_hosts.py $(ARGS)

faults: $(STAMP) ## failovers, disks and clocks that break for longer than a test may take; as root, for the disks
	$(BIN)/python -m pytest -m faults -rP tests/faults tests/acceptance/faults $(ARGS)

demo: $(STAMP) ## see it work, a worker killed on the way included
	$(BIN)/turnledger demo $(ARGS)

model: $(STAMP) ## the protocol explored exhaustively; ARGS="--bound larger" for more
	$(BIN)/python -m tests.model $(ARGS)

bench: $(STAMP) ## the measurements, as ratios against the bare limits; ARGS="replay" for one
	$(BIN)/python -m tests.bench $(ARGS)

up: $(STAMP) ## a local stack in the foreground; its data is kept in .turnledger/
	$(BIN)/turnledger up $(ARGS)

clean: ## remove the environment, the caches, and the data of `make up`
	rm -rf "$$(readlink -f .turnledger/postgres/elsewhere 2>/dev/null || echo .turnledger)"
	rm -rf .turnledger .bench build dist site $(VENV)
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	find $(FOLDERS) -name __pycache__ -prune -exec rm -rf {} +
