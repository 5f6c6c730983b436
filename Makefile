# Every target sets up its dependencies: .venv here; engine, Redis and image through codesdk.provision.
SHELL := /bin/sh
BIN := .venv/bin
ARGS ?=
SANDBOX ?=
JSON ?=
LOCK_TOOL := uv==0.13.9
WORKERS ?= auto
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest # without .pyc files our processes take twice as long to start

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all coverage lint bench soak reference changelog lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /	/' | expand -t 12

setup: ## create .venv and install the pinned dependencies; does nothing if they are up to date
	@scripts/venv.sh

demo: setup ## run one agent's calls end to end, then stop everything; SANDBOX=local without an engine; ARGS="--help" for more
	@$(BIN)/codesdk demo $(if $(SANDBOX),--sandbox $(SANDBOX)) $(ARGS)

lint: setup ## check style, format, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## lint, then run the tests of a change in parallel; ARGS go to pytest, WORKERS=0 for one process
	$(PYTEST) -n $(WORKERS) -m "not full" $(ARGS)

test-all: setup ## run the tests that `make test` skips: every runtime and database, real agents, compose, hosts, chaos
	$(PYTEST) -n $(WORKERS) -m full $(ARGS)

coverage: setup ## run `make test` with branch coverage per package; fails below the minimum in pyproject.toml
	$(PYTEST) -n $(WORKERS) -m "not full" --cov --cov-report= $(ARGS)
	@$(BIN)/python scripts/coverage_by_package.py

bench: setup ## measure a governed call's latency against its peers; JSON=path writes the results
	@$(BIN)/pip install -qq --require-hashes --only-binary :all: -r bench/opa.lock || true # the bench reports it
	@$(BIN)/python bench/run.py $(if $(JSON),--json $(JSON)) $(ARGS)

soak: setup ## run 1,000 sessions, then 5,000 calls on each database, under random crashes; SOAK_SESSIONS=100, CHAOS_CALLS=600 for fewer
	$(PYTEST) tests/soak -m soak $(ARGS)

reference: setup ## generate the reference pages and the JSON Schema under docs/reference
	@$(BIN)/codesdk schema events docs/reference/events.md
	@$(BIN)/codesdk schema export docs/reference/schema

changelog: setup ## move changelog.d/ into CHANGELOG.md; VERSION=1.2.0
	$(BIN)/towncrier build --yes --version $(VERSION)

lock: ## regenerate requirements.lock from pyproject.toml (the newest versions that its ranges allow)
	python3 -m venv .cache/lock
	.cache/lock/bin/pip install --quiet $(LOCK_TOOL)
	.cache/lock/bin/uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 \
		--extra embedded --extra s3 --group dev --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--output-file requirements.lock

clean: ## remove .venv and caches; keeps images, engines and data directories
	rm -rf .venv .cache .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
