# Every target sets up what it needs: .venv here, and through the package itself (codesdk.provision) engine, Redis, image.
SHELL := /bin/sh
BIN := .venv/bin
ARGS ?=
SANDBOX ?=
JSON ?=
LOCK_TOOL := uv==0.13.9
WORKERS ?= auto
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest # without compiled files each process of ours starts half as fast

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all coverage lint bench soak reference changelog lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /	/' | expand -t 12

setup: ## make .venv and install the pinned dependencies; nothing to do, nothing done
	@scripts/venv.sh

demo: setup ## run one agent's calls end to end, then stop all that was started; SANDBOX=local without an engine; ARGS="--help" for more
	@$(BIN)/codesdk demo $(if $(SANDBOX),--sandbox $(SANDBOX)) $(ARGS)

lint: setup ## ruff, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## lint, then the tests of a change, in parallel; ARGS go to pytest, WORKERS=0 for one process
	$(PYTEST) -n $(WORKERS) -m "not full" $(ARGS)

test-all: setup ## the tests that `make test` leaves out: every runtime and database, real agents, compose, hosts, chaos
	$(PYTEST) -n $(WORKERS) -m full $(ARGS)

coverage: setup ## the tests of `make test` with coverage by branch, for each package; fails below the floor in pyproject.toml
	$(PYTEST) -n $(WORKERS) -m "not full" --cov --cov-report= $(ARGS)
	@$(BIN)/python scripts/coverage_by_package.py

bench: setup ## latencies of a governed call beside its peers; JSON=path writes them
	@$(BIN)/pip install -qq --require-hashes --only-binary :all: -r bench/opa.lock || true # then the bench says so
	@$(BIN)/python bench/run.py $(if $(JSON),--json $(JSON)) $(ARGS)

soak: setup ## 1,000 sessions, then 5,000 calls on each database, while things die at random points; SOAK_SESSIONS=100, CHAOS_CALLS=600 for fewer
	$(PYTEST) tests/soak -m soak $(ARGS)

reference: setup ## write the generated pages and the JSON Schema under docs/reference
	@$(BIN)/codesdk schema events docs/reference/events.md
	@$(BIN)/codesdk schema export docs/reference/schema

changelog: setup ## move changelog.d/ into CHANGELOG.md; VERSION=1.2.0
	$(BIN)/towncrier build --yes --version $(VERSION)

lock: ## write requirements.lock anew from pyproject.toml (the newest versions that its ranges allow)
	python3 -m venv .cache/lock
	.cache/lock/bin/pip install --quiet $(LOCK_TOOL)
	.cache/lock/bin/uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 \
		--extra embedded --extra s3 --group dev --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--output-file requirements.lock

clean: ## remove .venv and caches; images, engines and data directories stay
	rm -rf .venv .cache .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
