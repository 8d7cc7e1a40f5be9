SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
POLICY := policy/.venv
CHECKED := __main__.py settings infra workloads bootstrap tools sandbox tests docs
STACK ?= dev
# With this variable, each of the thousand Python processes of the tests would compile the program again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help price watch recover sandbox sandbox-status sandbox-down venv policy lint types unit unit-python test bench bench-watch lock

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

sandbox: $(VENV)/.program ## run the whole program on this machine, without an AWS account
	$(BIN)/python -m sandbox up

sandbox-status: $(VENV)/.program ## list the processes of the sandbox with pids and ports
	$(BIN)/python -m sandbox status

sandbox-down: $(VENV)/.program ## destroy the stack of the sandbox and stop all its processes
	$(BIN)/python -m sandbox down

price: $(VENV)/.program ## show the price of a stack: make price STACK=dev
	@$(BIN)/python -m tools.price $(STACK)

watch: $(VENV)/.watch ## show a running stack live: make watch STACK=dev
	@$(BIN)/python -m tools.watch --stack $(STACK)

recover: $(VENV)/.recover ## repair a stack after Pulumi was killed: make recover STACK=dev
	@$(BIN)/python -m tools.recover $(STACK) $(if $(DRY_RUN),--dry-run) $(if $(ADOPT),--adopt)

venv: $(VENV)/.checks ## install the pinned Python packages into .venv

$(VENV)/.program: requirements.txt constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.watch: $(VENV)/.program tools/watch/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r tools/watch/requirements.txt
	@touch $@

$(VENV)/.recover: $(VENV)/.program tools/recover/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r tools/recover/requirements.txt
	@touch $@

$(VENV)/.checks: $(VENV)/.program requirements-dev.txt sandbox/requirements.txt tools/watch/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

policy: $(POLICY)/.installed ## install the packages of the policy pack into policy/.venv

$(POLICY)/.installed: policy/requirements.txt policy/constraints.txt
	$(PYTHON) -m venv $(POLICY)
	$(POLICY)/bin/pip install --quiet --disable-pip-version-check -r policy/requirements.txt
	@touch $@

lint: venv ## check style and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv policy ## check types with mypy --strict
	$(BIN)/mypy --strict $(CHECKED)
	$(BIN)/mypy --strict --python-executable $(POLICY)/bin/python policy

unit: venv ## run the unit tests: every stack and setting with mocked AWS (one minute)
	$(BIN)/pytest tests/unit -n auto

# PaddlePaddle has no packages for Python 3.14.
unit-python: ## run the unit tests on another Python: make unit-python PYTHON=python3.13
	$(PYTHON) -m venv .venv-$(notdir $(PYTHON))
	! $(PYTHON) -c "import sys; sys.exit(sys.version_info >= (3, 14))" || .venv-$(notdir $(PYTHON))/bin/pip install \
		--quiet --disable-pip-version-check --dry-run -r requirements-dev.txt
	.venv-$(notdir $(PYTHON))/bin/pip install --quiet --disable-pip-version-check -r tools/watch/requirements.txt $$(grep -E "^(policy|pytest)" requirements-dev.txt)
	.venv-$(notdir $(PYTHON))/bin/pytest tests/unit -n auto

# mypy uses one processor only. The stories take longest, so they start first. The tests of a file can share a cluster,
# so they stay together.
test: venv policy ## run all checks and all tests
	@$(MAKE) --no-print-directory --jobs 3 lint types unit
	$(BIN)/pytest tests/sandbox tests/in_pod tests/emulator -n 4 --dist loadfile --no-loadscope-reorder --durations 15

bench: venv ## measure the preparation of data and the export (1 GB each)
	$(BIN)/python -m tests.bench.scripts 1

bench-watch: venv ## measure the live view with 1000 trainers on a real API server
	$(BIN)/python -m tests.bench.watch

lock: ## update constraints.txt and the locks with hashes: pin the packages that the required ones depend on
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/pip install --quiet uv
	grep -hE '^[a-zA-Z]' requirements.txt sandbox/requirements.txt tools/watch/requirements.txt tools/recover/requirements.txt requirements-dev.txt \
		| sort -u > .lock/all.txt
	.lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --no-header --no-annotate --no-emit-index-url \
		.lock/all.txt -o constraints.txt
	for file in requirements policy/requirements; do .lock/bin/uv pip compile --quiet --generate-hashes --only-binary :all: \
		--no-header --no-annotate --no-emit-index-url --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
		$$file.txt -o $$file.lock; done
	rm -rf .lock
