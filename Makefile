# Every target explains itself: the text after ## is what `make help` prints.
# Needs make and Python >= 3.11, nothing else; everything is installed into .venv.

PYTHON  ?= python3
JOBS    ?= 2
PROFILE ?= quick
PORT    ?= 8000

VENV  := .venv
PY    := $(VENV)/bin/python
# Packages are compiled when first imported. Where Python is told not to keep that, every process
# would do it again, and take three times as long to start.
unexport PYTHONDONTWRITEBYTECODE
# Written last: says which lock file is installed completely, and for which folder.
STAMP := $(VENV)/installed.lock
WANTED = { echo "\# $(CURDIR)"; cat requirements.lock; }
PIP   := $(PY) -m pip --disable-pip-version-check --no-input
# In `make test` a file stays in one process: its tests share what they train.
PYTEST = $(PY) -m pytest -q --numprocesses $(JOBS)

# $(call also,NAME,WHAT): what few commands need, installed by the first of them.
also = @cmp -s requirements-$(1).lock $(VENV)/$(1).lock || { \
	  echo "Installing $(2) into $(VENV) (once) ..."; \
	  $(PIP) install --quiet --no-compile --require-hashes -r requirements-$(1).lock && \
	  cp requirements-$(1).lock $(VENV)/$(1).lock; }

.DEFAULT_GOAL := help
.PHONY: help venv book page lab notebooks course figures slides pdf release test check paper verify mutate serve links bench lock clean

help: ## Show this list
	@echo "make TARGET [PYTHON=python3] [JOBS=2] [PROFILE=quick|paper] [PORT=8000] [PAGE=...] [SAMPLE=1]"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A killed installation leaves packages that pip takes for complete: without the stamp the
# whole environment is made again, never mended.
venv: ## Make or complete .venv from requirements.lock (1.2 GB; every other target does it when needed)
	@if $(WANTED) | cmp -s - $(STAMP); then exit 0; fi; \
	set -e; \
	command -v $(PYTHON) >/dev/null 2>&1 || \
	  { echo "$(PYTHON) is not on this machine; name a Python 3.11 or newer: make PYTHON=python3.12" >&2; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) -V); 3.11 or newer is needed: make PYTHON=python3.12" >&2; exit 1; }; \
	$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }; \
	echo "Installing the locked packages into $(VENV) (once; 1 to 3 minutes) ..."; \
	if [ "$$(sed -n 1p $(STAMP) 2>/dev/null)" != "# $(CURDIR)" ]; then $(PYTHON) -m venv --clear $(VENV); fi; \
	rm -f $(STAMP); \
	$(PIP) install --quiet --no-compile --require-hashes -r requirements.lock; \
	$(PIP) install --quiet --no-deps --no-build-isolation -e .; \
	$(WANTED) > $(STAMP)

book: venv ## Execute the pages that changed and build the site (the first time 10 to 25 min)
	@$(PY) -m companion.build --profile $(PROFILE) --jobs $(JOBS)

paper: ## The same with the sizes of the papers; records results in data/results/paper
	@$(MAKE) --no-print-directory book PROFILE=paper JOBS=1

# What else the command line names are parameters of the page.
page: venv ## Execute a page with other values and open it (PAGE=3-policy-evaluation/dp-lsw seed=5)
	@$(PY) -m companion.build.play $(PAGE) profile=$(PROFILE) \
	  $(filter-out PAGE=% PROFILE=% PYTHON=% JOBS=%,$(MAKEOVERRIDES))

lab: venv ## Open copies of the pages in JupyterLab (75 MB more in .venv, once)
	$(call also,lab,JupyterLab)
	@$(PY) -m companion.build.lab

notebooks: venv ## Write the executed pages as notebooks that run anywhere, with wheels and archives
	@$(PY) -m companion.build.notebooks

course: venv ## Write the archives of students and of instructors (plans: book/course.yml)
	@$(PY) -m companion.build.course

figures: venv ## Write every figure as SVG and PNG, with caption and data, into one archive
	@$(PY) -m companion.build.figure_archive

slides: venv ## Write the slides again into the site that is there (book/slides; seconds)
	@$(PY) -m companion.build.slides

pdf: venv ## Make the book as a PDF from the executed pages (needs LaTeX; 2 to 3 min; STALE=1)
	@$(PY) -m companion.build.pdf --profile $(PROFILE) $(if $(STALE),--stale)

release: venv ## Collect site, PDF, notebooks, wheels and checksums (after book and pdf; TAG=v0.1.0)
	@$(PY) -m companion.build.release $(TAG)

verify: venv ## Compute recorded results again and compare (PAGE="page or table ...", SAMPLE=1, MINUTES=, STALE=1)
	@$(PY) -m companion.build.verification $(if $(SAMPLE),--sample) $(if $(STALE),--stale) \
	  $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(ACCEPT),--accept "$(ACCEPT)") $(PAGE)

mutate: venv ## Change the mathematics under each page: does it notice? (JOBS, PAGE=, FUNCTION=)
	@$(PY) -m companion.build.mutation --jobs $(JOBS) $(if $(PAGE),--page $(PAGE)) $(if $(FUNCTION),--function $(FUNCTION))

test: venv ## Style, import directions, types and tests (no site, no browser)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache
	$(PY) -m mypy & types=$$!; $(PYTEST) --dist loadfile -m "not site and not release"; \
	  tests=$$?; wait $$types && exit $$tests

check: venv ## Test the built site: text, links, pages in a Chromium (0.4 GB more in .venv, once)
	$(call also,check,Playwright and OpenDP)
	$(PYTEST) --dist worksteal -m "site or release" tests/book tests/privacy/test_discrete_gaussian.py

serve: venv ## Show the built site at http://localhost:8000 (PORT=...)
	@test -f _build/html/index.html || { echo "no site yet: make book" >&2; exit 1; }
	@$(PY) -m http.server --bind localhost --directory _build/html $(PORT)

links: venv ## Ask the addresses outside that the book names whether they answer (after make book)
	@$(PY) -m companion.build.links

bench: venv ## Measure speed and memory against references (PEERS=python: see benchmarks/peers.txt)
	@$(PY) benchmarks/run.py
	@$(PY) benchmarks/evaluation.py
	@$(PY) benchmarks/off_policy.py
	@$(PY) benchmarks/membership.py $(if $(PEERS),--peers $(PEERS))

lock: ## Write the lock files again from pyproject.toml (needs uv; UPGRADE=1: newest versions)
	@command -v uv >/dev/null 2>&1 || { echo "uv is needed to write the lock file: pip install uv" >&2; exit 1; }
	uv pip compile $(if $(UPGRADE),--upgrade) pyproject.toml --extra off-policy --extra membership --universal \
	  --group book --group test --group cluster --group build --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --output-file requirements.lock
	grep -v '^    --hash=' requirements.lock | sed 's/ \\$$//' > requirements.txt
	uv pip compile $(if $(UPGRADE),--upgrade) --group lab --constraint requirements.txt --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --output-file requirements-lab.lock
	uv pip compile $(if $(UPGRADE),--upgrade) pyproject.toml --extra release --group browser --constraint requirements.txt \
	  --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --output-file requirements-check.lock

clean: ## Remove site, executed pages, quick results and what long runs left to go on from (.venv stays)
	rm -rf _build book/nb data/results/quick
