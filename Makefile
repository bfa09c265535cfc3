# `make test` is all a developer needs: it makes .venv, installs, checks and tests.
# Nothing outside this directory changes. Variables: PYTHON=python3.12 VENV=.venv JOBS=2

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find fastadmm kernels data_tools -name __pycache__ -prune -o -print)
MATH_THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# What is tested is the installed package, not the source that lies here.
export PYTHONSAFEPATH := 1
# Containers often set it; every process would then compile all that it imports, 4 s for Numba and scikit-learn.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help test test-fast test-repeats test-slow test-portable test-lowest test-wheels image test-faults test-federation corpus house snapshots faults federation-faults neighbours mutants prove bench bench-compare release-check rounds paper-a owners readme demo docs gallery look lint types format venv clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Types beside the tests: mypy has one core.
test: lint ## everything that must pass before a commit (minutes)
	@$(MAKE) --no-print-directory -j2 types test-fast

test-fast: venv
	$(MATH_THREADS) $(BIN)/pytest -n $(JOBS) --dist worksteal -m "not slow and not repeats"

EVERY ?= 1
test-repeats: venv ## the same code on further data, sizes and kinds of fault; EVERY=2: half of each test's (minutes)
	EVERY=$(EVERY) $(MATH_THREADS) $(BIN)/pytest -q -n $(JOBS) --dist worksteal -m "repeats and not slow"

test-slow: venv ## the tests marked slow: large data, many parties
	$(MATH_THREADS) $(BIN)/pytest -n $(JOBS) -m slow

test-portable: venv ## the numerical tests on every family of BLAS kernels (minutes)
	NUMBA_CACHE_DIR=$(abspath $(VENV))/portable-cache tests/portable.sh $(abspath $(BIN))/pytest -q -n $(JOBS)

# An environment of its own, with the lowest version of every direct dependency and of the reports'. Old
# libraries call what newer ones beneath them deprecate, so warnings are no errors here.
LOWEST := test_cli test_config test_convert test_estimators test_metrics test_predict_evaluate test_reports test_tables
test-lowest: $(BIN)/python ## with the lowest declared versions of the dependencies (minutes)
	$(BIN)/python tests/lowest.py report > $(VENV)/lowest.txt
	$(BIN)/python -m venv $(VENV)/lowest
	$(VENV)/lowest/bin/python -m pip --disable-pip-version-check --quiet install --upgrade pip
	rm -rf build
	$(VENV)/lowest/bin/python -m pip --disable-pip-version-check --quiet install --no-compile -c $(VENV)/lowest.txt \
	    "setuptools>=77" ".[report]" pytest pytest-xdist pytest-benchmark hypothesis mpmath
	@rm -rf build
	$(MATH_THREADS) $(VENV)/lowest/bin/pytest -q -W default -n $(JOBS) -m "not slow and not repeats" $(LOWEST:%=tests/%.py)

PYTHONS ?= $(PYTHON)
test-wheels: venv ## install wheel and source archive with every one of PYTHONS, newest and lowest libraries (minutes)
	$(PIP) install uv
	$(BIN)/python -P tests/wheels.py --python $(PYTHONS)

image: ## build both images and run what is in them; their lines one by one where no daemon is (minutes)
	PYTHON=$(PYTHON) tests/image.sh

test-faults: venv ## a share of the faults, as continuous integration runs them (minutes)
	$(MATH_THREADS) $(BIN)/pytest -q -m slow tests/test_faults.py

test-federation: venv ## NVFlare on the loopback interface: its simulator, sites and faults (90 seconds)
	$(MATH_THREADS) $(BIN)/pytest -q -n 4 --dist loadscope -m slow tests/test_federation_faults.py tests/test_federation_nvflare.py

# What moves inside must not change what comes out.
AGAINST ?= HEAD
corpus: venv ## some forty fits: the same bits as at the revision AGAINST? (minutes)
	$(BIN)/python -P tests/corpus.py --against $(AGAINST)

house: venv ## count what must hold inside: pairs of rooms, circles, long functions, lines
	$(BIN)/python -P tests/house.py

snapshots: venv ## write what commands print, what they say about mistakes, and the rounds of fits anew
	FASTADMM_WRITE_SNAPSHOTS=1 $(MATH_THREADS) $(BIN)/pytest -q tests/test_error_lines.py tests/test_outputs.py tests/test_course.py

FAULTS ?= 10000
faults: venv ## kill and fail commands at FAULTS file operations: docs/reliability.md (an hour)
	$(MATH_THREADS) $(BIN)/python -P tests/faults/campaign.py --faults $(FAULTS) --jobs $(JOBS) --json bench/faults.json

neighbours: venv ## ask pairs of neighbours the same, in 2,000 sequences: docs/privacy.md (half an hour)
	PYTHONPATH=tests $(MATH_THREADS) $(BIN)/python -P tests/neighbours.py 2000

federation-faults: venv ## kill and stop processes between organisations: docs/reliability.md (half an hour; root cuts the link)
	$(MATH_THREADS) $(BIN)/python -P tests/faults/federation.py --json bench/federation_faults.json

N ?= 20
mutants: venv ## plant N small faults, one at a time: which do the tests survive? (an hour)
	PYTHONPATH=tests $(BIN)/python -P tests/mutants.py $(N) $(SEED) $(JOBS)

PROBLEMS ?= 2000
SEED ?= 0
prove: venv ## fit PROBLEMS generated problems: is anything that is printed as proved false? (ten minutes)
	$(MATH_THREADS) $(BIN)/python -P tests/prove/campaign.py --problems $(PROBLEMS) --seed $(SEED) --jobs $(JOBS)

bench: venv ## timings beside peers: JSON, docs/performance.md (quarter of an hour; FASTADMM_DATA)
	-$(PIP) install liblinear-official snapml
	$(BIN)/python bench/performance.py

# Both trees are installed, and take turns call by call: a busy machine changes no verdict.
BASE ?= HEAD~1
bench-compare: venv ## has anything become slower than at BASE? ONLY="fit or product" (minutes)
	$(BIN)/python -P bench/compare.py $(BASE) --only "$(ONLY)"

rounds: venv ## rounds of every scheme over data sets (ten minutes; FASTADMM_DATA)
	$(BIN)/python bench/rounds.py

# Pages that are made from what does not depend on the clock; a difference is shown, and fails.
release-check: venv ## measure published exchanges, rounds and the README again: does a page change? (an hour; FASTADMM_DATA)
	$(BIN)/python -P bench/apart.py
	for script in rounds nonconvex readme; do $(BIN)/python bench/$$script.py || exit 1; done
	$(BIN)/python website/tables.py
	git diff --exit-code -I '^Measured on' -- README.md docs ':!docs/img'

paper-a: venv ## the paper's experiments again (twelve minutes; FASTADMM_DATA)
	$(MATH_THREADS) $(BIN)/python bench/paper_a.py

owners: venv ## figures and tables of owners of rows (fifteen minutes; FASTADMM_DATA)
	$(BIN)/python bench/owners.py

readme: venv ## measure the README's numbers, draw its picture (a minute; FASTADMM_DATA)
	$(BIN)/python bench/readme.py
	$(BIN)/python bench/idea.py

demo: $(VENV)/.demo-installed ## train on a real data set and write a report
	$(BIN)/fastadmm demo --force

lint: venv ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# From inside the environment: in the current directory mypy would find the source folder.
types: venv ## mypy on the installed package
	cd $(VENV) && bin/mypy --config-file "$(CURDIR)/pyproject.toml" -p fastadmm

# The installed package documents itself; a broken link or docstring fails.
docs: venv ## the documentation site: website/html/index.html (a minute)
	$(BIN)/python website/build.py

# Without WRITE all but ten million rows: a hundredth of them says the same.
gallery: venv ## run the notebooks: is that what they show? WRITE=1 keeps what they say now (minutes; FASTADMM_DATA)
	$(if $(WRITE),FASTADMM_WRITE_GALLERY=1) $(MATH_THREADS) $(BIN)/pytest -q -n $(JOBS) -m slow tests/test_gallery.py \
	    $(if $(WRITE),,-k "not (shows and large)")

look: docs ## pages in a browser: website/look.py (minutes; Chromium)
	$(PIP) install playwright
	$(BIN)/python website/look.py

format: venv ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

venv: $(VENV)/.installed ## .venv with the package and all tools

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build dist website/html *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- stamps: each step runs again only when what it depends on is newer

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip  # those of old Pythons take minutes where there are many packages

# setuptools goes in too, so that reinstalling needs no isolated build environment. Python compiles modules
# when they are first imported: most of the 12,000 never are.
$(VENV)/.dependencies: pyproject.toml | $(BIN)/python
	rm -rf build
	$(PIP) install --no-compile "setuptools>=77" ".[dev]"
	@touch $@

# build/ is removed because setuptools would install modules left there by an older source tree.
$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	rm -rf build
	$(PIP) install --no-deps --no-build-isolation --force-reinstall .
	@rm -rf build
	@touch $@

# The demo needs neither test nor development tools; with a full environment only sources are refreshed.
$(VENV)/.demo-installed: pyproject.toml $(SOURCES) | $(BIN)/python
	rm -rf build
	$(PIP) install --force-reinstall --no-deps .
	$(PIP) install --no-compile "fastadmm[report]"  # what is installed is not built again
	@rm -rf build
	@touch $@
