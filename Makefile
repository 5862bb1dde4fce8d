# `make` lists what can be done. Everything happens in .venv, which may be deleted at any time.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
CONFIG ?= examples/payout/hookonce.toml
PYTEST_ARGS ?=
BENCH_ARGS ?=

BIN := .venv/bin
UV := $(BIN)/uv
PROJECT := pyproject.toml

export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= 1# a company's own certificate authority is known there
endif
export VIRTUAL_ENV := $(CURDIR)/.venv
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONHOME PYTHONPATH

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: .venv/.installed-run ## Run the server with the sample application (CONFIG=path)
	@exec $(BIN)/hookonce run --config $(CONFIG)

.PHONY: test
test: check ## Check, then run every test (PYTEST_ARGS='-k claim')
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: check
check: .venv/.installed-dev ## Lint, format, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: fmt
fmt: .venv/.installed-dev ## Format the code and repair what can be repaired
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: bench
bench: .venv/.installed-dev ## Run the benchmarks (BENCH_ARGS=...)
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

.PHONY: lock
lock: $(UV) ## Renew requirements/*.txt (LOCK_ARGS=--upgrade)
	$(UV) pip compile $(LOCK) $(PROJECT) requirements/dev.in --all-extras -o requirements/dev.txt
	$(UV) pip compile $(LOCK) $(PROJECT) requirements/run.in --extra server -c requirements/dev.txt -o requirements/run.txt

# No address of a registry is written; --universal: one file for every platform and Python from 3.11 on.
LOCK = --universal --python-version 3.11 --generate-hashes --quiet --custom-compile-command 'make lock' $(LOCK_ARGS)

.PHONY: clean
clean: ## Remove .venv, caches and build output
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps say what was installed from; a newer requirement file or pyproject.toml installs again.

.venv/.installed-dev: requirements/dev.txt $(PROJECT) | $(UV)
	@echo "Installing requirements/dev.txt"
	@$(UV) pip sync --quiet --require-hashes requirements/dev.txt
	@$(UV) pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@ .venv/.installed-run

# Adds what is missing and removes nothing, so that the tools of `make test` stay.
.venv/.installed-run: requirements/run.txt $(PROJECT) | $(UV)
	@echo "Installing requirements/run.txt"
	@$(UV) pip install --quiet --require-hashes -r requirements/run.txt
	@$(UV) pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# uv's version and hashes come from the lock as well. A .venv left half-made is made again.
$(UV):
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Hookonce needs Python 3.11 or newer, but $(PYTHON) is $$("$(PYTHON)" --version 2>&1 || true)."; \
		echo "Name another one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; } >&2
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make a virtual environment: its module ensurepip is missing."; \
		echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; } >&2
	@echo "Making .venv with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv .venv
	@awk '/^uv==/ { uv = 1 } uv { print; if (!/\\$$/) exit }' requirements/run.txt > .venv/uv.txt
	@$(BIN)/python -m pip install --quiet --no-input --require-hashes -r .venv/uv.txt
