SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
POLICY := policy/.venv
OURS := __main__.py settings infra workloads price preview bootstrap kube sandbox watch tests bench docs
STACK ?= dev

.DEFAULT_GOAL := help
.PHONY: help price watch sandbox sandbox-status sandbox-down venv policy lint types unit test bench bench-watch report-screenshots lock

help: ## what can be made here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

sandbox: $(VENV)/.program ## the same program on this machine, with no account: AWS, Kubernetes, `pulumi up`
	$(BIN)/python -m sandbox up

sandbox-status: $(VENV)/.program ## what runs of it, since when, with pids and ports
	$(BIN)/python -m sandbox status

sandbox-down: $(VENV)/.program ## `pulumi destroy`, then stop all: nothing is left
	$(BIN)/python -m sandbox down

price: $(VENV)/.program ## what a stack costs by the hour and by the month: make price STACK=dev
	@$(BIN)/python -m price $(STACK)

watch: $(VENV)/.watch ## live view of a running stack: make watch STACK=dev
	@$(BIN)/python -m watch --stack $(STACK)

venv: $(VENV)/.checks ## the Python environment, as pinned

$(VENV)/.program: requirements.txt constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.watch: $(VENV)/.program watch/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r watch/requirements.txt
	@touch $@

$(VENV)/.checks: $(VENV)/.program requirements-dev.txt sandbox/requirements.txt watch/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

policy: $(POLICY)/.installed ## the policy pack's own environment, for `pulumi preview --policy-pack policy`

$(POLICY)/.installed: policy/requirements.txt policy/constraints.txt
	$(PYTHON) -m venv $(POLICY)
	$(POLICY)/bin/pip install --quiet --disable-pip-version-check -r policy/requirements.txt
	@touch $@

lint: venv ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv policy ## mypy --strict on our own code
	$(BIN)/mypy --strict $(OURS)
	$(BIN)/mypy --strict --python-executable $(POLICY)/bin/python policy

unit: venv ## the program under mocks, every stack and setting (under a minute)
	$(BIN)/pytest tests/unit -n auto

test: lint types unit ## everything
	$(BIN)/pytest --ignore tests/unit --durations 15

bench: venv ## what the program itself costs: 3 trainers against 1000
	$(BIN)/python -m bench.program

bench-watch: venv ## the live view with 1000 trainers on a real API server
	$(BIN)/python -m bench.watch

report-screenshots: venv ## pictures of report.html at two widths, light and dark, in screenshots/ (needs chromium)
	$(BIN)/python -m tests.in_pod.report_screenshots screenshots

lock: ## pin the packages that ours bring along
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/pip install --quiet -r <(grep -hE '^[a-zA-Z]' requirements.txt sandbox/requirements.txt watch/requirements.txt requirements-dev.txt | sort -u)
	.lock/bin/pip freeze > constraints.txt
	rm -rf .lock
