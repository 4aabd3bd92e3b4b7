# Targets need make and Python 3.11 or newer; they bring everything else, into VENV.
#   PYTHON=python3.12   another Python than the newest one found
#   DJANGO="django~=5.2.0"   another Django than the newest one
#   VENV=.venv-3.12   another environment, to keep several
#   PARALLEL=0   the tests in one process and not in two
#   ARGS="-k claim -x"   options for pytest, the demo, the benchmarks or the mutants
#   SECONDS=600 SEED=7   how long the chaos goes on, and which one

VENV ?= .venv
PYTHON ?=
DJANGO ?=
ARGS ?=
PARALLEL ?= 2
SECONDS ?= 60
SEED ?=

RUN = $(VENV)/bin/python -m

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

.PHONY: install
install: ## make or update the environment (the others do it themselves)
	@.ci/install "$(VENV)" "$(PYTHON)" "$(DJANGO)"

.PHONY: demo
demo: install ## see it work: a shop, a worker and a PostgreSQL, from order to receipt
	@$(RUN) example_project.demo $(ARGS)

.PHONY: serve
serve: install ## run the example shop, with a worker beside it, until Ctrl-C
	@$(RUN) example_project.serve $(ARGS)

.PHONY: test
test: install ## run the tests
	@$(RUN) pytest -n $(PARALLEL) --dist worksteal $(ARGS)

.PHONY: check
check: gates coverage faults ## run every gate, tests included

.PHONY: gates
gates: lint types layers migrations docs ## run the gates that run no test

.PHONY: coverage
coverage: install ## run the tests and measure branch coverage
	@$(RUN) pytest -n $(PARALLEL) --dist worksteal --cov --cov-report=term $(ARGS)

.PHONY: faults
faults: install ## fail at every point of the workers in every way, and check every promise
	@$(RUN) pytest -m world $(ARGS)

.PHONY: lint
lint: install ## check style and format
	@echo "ruff: rules and format"
	@$(RUN) ruff check
	@$(RUN) ruff format --check

.PHONY: types
types: install ## check types
	@echo "mypy: strict"
	@$(RUN) mypy

.PHONY: layers
layers: install ## check that imports point down only
	@echo "import-linter: layers"
	@$(VENV)/bin/lint-imports

.PHONY: migrations
migrations: install ## check that the models have their migrations
	@echo "makemigrations: nothing missing"
	@# No server runs here: the models and the migrations are compared, not a database's history.
	@DJANGO_SETTINGS_MODULE=tests.settings $(VENV)/bin/python \
		-W "ignore:Got an error checking a consistent migration history:RuntimeWarning" \
		-m django makemigrations --check --dry-run

.PHONY: messages
messages: install ## bring the translations up to what the sources say, and compile them
	@$(RUN) tests.messages

.PHONY: docs
docs: install ## build the documentation, warnings as errors
	@echo "Sphinx: docs/_build/html"
	@$(RUN) sphinx -q -W --keep-going -b html docs docs/_build/html

.PHONY: pictures
pictures: install ## take the documentation's pictures of the pages anew
	@PGJOBS_TEST_PICTURES=docs/images $(RUN) pytest tests/browser -k picture $(ARGS)

.PHONY: bench
bench: install ## run the benchmarks
	@$(RUN) benchmarks $(ARGS)

.PHONY: chaos
chaos: install ## kill, stop and cut everything for SECONDS, and check every promise
	@$(RUN) tests.chaos --seconds "$(SECONDS)" --seed "$(SEED)"

.PHONY: mutants
mutants: install ## plant faults into the product, and see each of them caught by a test
	@$(RUN) tests.mutants $(ARGS)

.PHONY: clean
clean: ## remove what builds, tests and tools leave behind (not the environments)
	rm -rf build dist docs/_build .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
