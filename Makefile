# `make help` lists the targets.  Everything is installed into .venv, from lists with hashes.

PYTHON ?= python3
ARGS ?=
WORKERS ?= 4
SEEDS ?= 2000
ROUNDS ?= 3
SECONDS ?= 600
RECORD := docs/reliability.md
CHAOS = $(BIN)/python -m holdfast.chaos
PEERS ?=
CODE := src tests bench
COUNTS := build/requirements.json
BIN := .venv/bin
LONG := HOLDFAST_LONG=1 HOLDFAST_KILL_S=60 $(BIN)/python -m pytest
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help demo test mutants sim sim-bugs sim-coverage chaos soak long bad-day check requirements bench bench-peers wheel clean format lock

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 15

demo: .venv/.base  ## a guided minute on a temporary SQLite file
	$(BIN)/holdfast demo

test: .venv/.test  ## the whole suite, with a private PostgreSQL; ARGS="-k words" for a part of it
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --requirements-json=$(COUNTS) $(ARGS)

mutants: .venv/.test  ## small bugs in the pure core, and how many of them the fast tests notice; ARGS="ring.py --survivors"
	PYTHONPATH=tests $(BIN)/python -m mutation $(ARGS)

sim: .venv/.test  ## whole clusters in virtual time, SEEDS=2000; a failing seed names its replay
	$(BIN)/holdfast sim --seeds $(SEEDS) $(ARGS)

sim-bugs: .venv/.test  ## plant each known bug, and see whether the simulation finds it
	$(BIN)/python tests/simulation/known_bugs.py $(ARGS)

sim-coverage: .venv/.test  ## how much of each part the simulation alone runs; ARGS="--missing" for the lines
	$(BIN)/python tests/simulation/coverage_of_parts.py $(ARGS)

soak: .venv/.test  ## an hour of steady load: what grows.  Writes its slopes into the track record
	$(CHAOS).soak --record $(RECORD) $(ARGS)

long: .venv/.test  ## the long tests, half an hour: kills, histories, a standing backlog, a paused million
	$(LONG) -n 2 --dist worksteal tests/histories tests/faults/test_sqlite_kill.py \
		tests/faults/test_limits_under_kill.py tests/nodes/test_standing_backlog.py \
		tests/nodes/test_histories.py tests/contracts/test_three_stores.py tests/faults/test_renewer.py tests/nodes/test_schedules.py tests/docs/test_pages.py $(ARGS)
	$(LONG) tests/nodes/test_paused_million.py $(ARGS)

chaos: .venv/.test  ## real faults on each store, SECONDS=600; power losses; nine scenarios. Adds to the track record
	$(CHAOS) --store postgres --seconds $(SECONDS) --record $(RECORD) $(ARGS)
	$(CHAOS) --store sqlite --seconds $(SECONDS) --record $(RECORD) $(ARGS)
	$(CHAOS) --store postgres --seconds 60 --only "full disks" --record $(RECORD)
	$(CHAOS) --store sqlite --seconds 60 --only "full disks" --record $(RECORD)
	$(CHAOS).blackouts --losses 200 --record $(RECORD)
	$(CHAOS).scenarios

bad-day: .venv/.test  ## a story of four minutes: workers killed and stopped, the server restarted, a clock stepped
	@command -v faketime >/dev/null || { [ "$$(id -u)" -eq 0 ] && apt-get update -qq \
		&& apt-get install -y -qq --no-install-recommends faketime >/dev/null; }
	$(BIN)/python -m holdfast.bench.bad_day

check: .venv/.test  ## format, lint, types, tidy and unit tests, in less than a minute
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not whole" tests/test_tidy.py tests/unit $(ARGS)

requirements: .venv/.test  ## which requirement lines are proven; JSON=1 for a machine
	@$(BIN)/python -m holdfast.testing.requirements --is-current $(COUNTS) \
		|| { rm -f $(COUNTS); $(MAKE) --no-print-directory test ARGS= >&2 || true; }
	@$(BIN)/python -m holdfast.testing.requirements $(if $(JSON),--json) $(COUNTS)

bench: .venv/.test  ## load and latency on this machine; ARGS="--help" for what can be chosen
	$(BIN)/holdfast bench $(ARGS)

bench-peers: .venv/.test  ## Holdfast beside other queues, an hour: PEERS=celery,huey ROUNDS=1 for less
	@command -v redis-server >/dev/null || { [ "$$(id -u)" -eq 0 ] && apt-get update -qq \
		&& apt-get install -y -qq --no-install-recommends redis-server >/dev/null; }
	$(BIN)/python -m bench --peers "$(PEERS)" --rounds $(ROUNDS) $(if $(PEERS),,--out docs) $(ARGS)

wheel: .venv/.test  ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

format: .venv/.test  ## format the code and mend what the linter can mend
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lock:  ## pin the dependencies anew, with hashes (needs uv)
	cd requirements && for name in base build test; do $(COMPILE) --upgrade $$name.in -o $$name.txt; done

clean:  ## remove everything that was made here
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

# The stamps are younger than what they were made from, or the step is done again.
.venv/.base: requirements/base.txt requirements/build.txt pyproject.toml | .venv/bin/python
	$(INSTALL) --require-hashes -r requirements/base.txt -r requirements/build.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.test: requirements/test.txt .venv/.base
	$(INSTALL) --require-hashes -r requirements/test.txt
	@touch $@
