# Two targets do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Each worker starts its own PostgreSQL and API server; more than eight need more memory than they save time.
ON_ALL_CORES := -q -n auto --maxprocesses 8 --dist worksteal --durations 20

.PHONY: demo demo-load demo-history screenshots demo-clean test unit integration conformance e2e chaos chaos-sample bench lint type fmt reference proto constraints

demo: $(STAMP)            ## the whole product on this machine, until Ctrl-C
	@exec $(BIN)/python manage.py demo $(ARGS)

demo-load: $(STAMP)       ## a stream of sample jobs in the running demo, until Ctrl-C
	@exec $(BIN)/python manage.py run_demo_load $(ARGS)

demo-history: $(STAMP)    ## two months of sample history for the running demo
	@$(BIN)/python manage.py make_demo_history $(ARGS)

demo-clean:               ## forget the demo's state
	rm -rf .ipuhub

test: $(STAMP)            ## all tests; what is missing here is skipped with a reason
	$(BIN)/pytest tests $(ON_ALL_CORES) $(ARGS)

unit integration conformance e2e: $(STAMP)
	$(BIN)/pytest tests/$@ $(ARGS)

chaos: $(STAMP)           ## the long form of the proof under faults; see docs/developer/chaos.md
	CHAOS_LONG=1 $(BIN)/pytest tests/chaos tests/integration/monitor/test_interleavings.py $(ARGS)

chaos-sample: $(STAMP)    ## some of it on an API server: the embedded one, or IPUHUB_TEST_KUBECONFIG
	$(BIN)/pytest tests/chaos/test_on_servers.py $(ARGS)

screenshots: $(STAMP)     ## every page, wide and narrow, light and dark, into build/screenshots
	$(BIN)/python -m tests.e2e.screenshots

bench: $(STAMP)           ## prints figures and ratios; see docs/developer/benchmarks.md
	$(BIN)/python -m tests.bench $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	IPUHUB_SECRET_KEY=$$($(PYTHON) -c 'import secrets; print(secrets.token_urlsafe(50))') \
	  $(BIN)/python manage.py check --deploy --fail-level WARNING
	$(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py make_crd --check
	$(BIN)/python manage.py make_builtin_schemas --check
	$(BIN)/python manage.py make_reference --check

type: $(STAMP)
	$(BIN)/mypy

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(STAMP)       ## generated files: CRD, schemas, reference pages
	$(BIN)/python manage.py make_crd
	$(BIN)/python manage.py make_builtin_schemas
	$(BIN)/python manage.py make_reference

proto: $(STAMP)
	$(BIN)/python -m partitions.vipu.protos.generate

constraints: $(STAMP)     ## resolve the pins anew
	$(BIN)/uv pip compile -q pyproject.toml --group dev --upgrade --no-annotate --no-header -o constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "IPUHub needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv -c constraints.txt
	@# Python compiles what it imports once and keeps it, unless it is told not to (containers, CI):
	@# then every process compiles everything, half of its start-up, so compile now (5 s).
	@$(BIN)/uv pip install -q $${PYTHONDONTWRITEBYTECODE:+--compile-bytecode} --python $(BIN)/python \
	  -c constraints.txt -e . --group dev
	@touch $@
