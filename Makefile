# Everything a newcomer needs, each target with all of its set-up: an environment of its own in .venv, no root.
#
#   make demo    a network built from op-trees learns real handwritten digits
#   make test    the whole test suite: on every engine, then on the GPU backend  (PYTEST_ARGS="-k name" narrows it)
#   make test-all    the same with all cases of each test on C and on the GPU: several times as long
#   make test-gpu    every test of a backend, all cases, with the GPU backend in place of the CPU's
#   make test-peers  the tests that compare with PyTorch, JAX and Keras, in an environment of its own with these (.venv-peers)
#   make test-pythons    the fast tests on each Python of this machine, and on the oldest NumPy  (PYTHONS_ARGS="--only 3.12")
#   make gpu-setup   what the GPU tests need without a GPU: PyCUDA and an emulated driver (make test runs this first)
#   make gpu-first   the first minutes on a GPU: everything tried, nothing stops the rest, facts in gpu-check/ or $OUT
#   make gpu-again   what failed in it, once more          (FAILED=NAME,NAME or FAILED=the folder of its facts)
#   make gpu-results the page benchmarks/RESULTS-gpu.md of its facts                                  (FOLDER=gpu-check)
#   make gpu-check   the GPU backend on a machine with a GPU: tests, compute-sanitizer, benchmark  (GPU_CHECK_ARGS=--emulated)
#   make gpu-wheels  what that needs on a machine without a registry, into .gpu-wheels     (GPU_PYTHON=3.12, that machine's)
#   make check   ruff, mypy and the fast tests
#   make bench   the benchmarks, in their quick form   (BENCH_ARGS= for the long form)
#   make fuzz    random op-trees, primitives, wrong arguments, graphs, networks, bits  (FUZZ=10000 of each; FUZZ_ARGS=--gpu: on the GPU)
#   make fuzz-sanitize   the same under AddressSanitizer and UBSan      (FUZZ=500)
#   make mutants the tests tested: faults planted one at a time, each to be caught     (MUTANT_ARGS="--family conv --part 1/8")
#   make vectors every chain of ops compiled, loops without vector code reported   (VECTOR_ARGS="--sample 200"; CC=clang)
#   make docs    write the generated pages again, and the site into docs/_build/html         (DOCS_ARGS=--no-runs: quicker)
#   make docs-pages  the generated pages alone
#   make clean   remove the environment and everything built
#
# Another interpreter: make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= python3
VENV ?= .venv
PEERS_VENV ?= .venv-peers
DEMO_ARGS ?=
PYTEST_ARGS ?=
PYTHONS_ARGS ?=
BENCH_ARGS ?= --quick
FUZZ_ARGS ?=
MUTANT_ARGS ?=
VECTOR_ARGS ?=
DOCS_ARGS ?=
GPU_CHECK_ARGS ?=
GPU_PYTHON ?= 3.12

# Tests side by side, a process for each core: most of the time goes into compilers. (JOBS=0: one process for all.)
JOBS ?= auto
SIDE_BY_SIDE = -n $(JOBS) --maxprocesses 8 --dist worksteal
# Of tests whose every case is a kernel to compile, so many cases are run on C (all of them on NumPy) and on the GPU; loops
# of tests over layouts and dtypes take a sample there, and so do tests marked `compiles`. 0: all of them.
C_CASES ?= 2
GPU_CASES ?= 1
# Every access of a kernel checked, for races too, and each stream as late as the driver may run it.
CHECKED = CUEMU_CHECK=1 CUEMU_ASYNC=1 NEONLIKE_GPU_POOL=0

# Bytecode is kept, also where the environment says no (containers do): each pass starts several Pythons, the tests some
# hundred more, and to compile all modules takes longer than to import them. git ignores what is written.
unexport PYTHONDONTWRITEBYTECODE

# PYTEST_ARGS may choose none of the tests of a pass: status 5.
OR_NONE = status=$$?; test $$status -eq 0 -o $$status -eq 5

PY = $(VENV)/bin/python
PYTEST = $(PY) -m pytest $(SIDE_BY_SIDE)
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check --editable

.NOTPARALLEL:
.PHONY: help demo test test-all test-gpu test-peers test-pythons compare-with-peers gpu-setup gpu-first gpu-again gpu-results gpu-check gpu-wheels check bench fuzz fuzz-sanitize mutants vectors docs docs-pages clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.ready-demo
	$(PY) examples/digits_mlp.py $(DEMO_ARGS)

# Everything, each test on the engines that its marks name; then what backends do on the GPU backend (where exp and its
# like err as far as a real one's may), and some of that with its kernels checked. pyproject.toml lists the marks.
test: $(VENV)/.ready-test gpu-setup
	$(PYTEST) --c-cases $(C_CASES) $(PYTEST_ARGS)
	CUEMU_INEXACT=1 $(PYTEST) -q --backend gpu --cases $(GPU_CASES) -m backend $(PYTEST_ARGS); $(OR_NONE)
	$(CHECKED) $(PYTEST) -q --backend gpu --cases 1 -m checked $(PYTEST_ARGS); $(OR_NONE)

test-all:
	@$(MAKE) --no-print-directory test C_CASES=0 GPU_CASES=0

test-gpu: $(VENV)/.ready-test gpu-setup
	$(PYTEST) --backend gpu $(PYTEST_ARGS)

# The environment is apart from the other tests': the libraries are large, and tests shall not come to need them.
test-peers:
	@$(MAKE) --no-print-directory VENV=$(PEERS_VENV) compare-with-peers

compare-with-peers: $(VENV)/.ready-peers
	NEONLIKE_REQUIRE_PEERS=1 $(PYTEST) -m peers $(PYTEST_ARGS)

# Environments in .venv-pythons, of what each run needs; a program, since it goes on after a failure.
test-pythons:
	$(PYTHON) tests/packages/pythons.py $(PYTHONS_ARGS)

# Quick once all is there. Where it cannot be done the GPU tests say why they are skipped, or fail with
# NEONLIKE_REQUIRE_GPU_TESTS=1.
gpu-setup: $(VENV)/.ready-test
	@$(PY) -m tests.cudaemu.install

# With the machine's own Python, which has the PyTorch, CuPy and JAX to compare with; it changes nothing there.
gpu-check:
	$(PYTHON) tests/gpu_check $(GPU_CHECK_ARGS)

gpu-first:
	$(PYTHON) tests/gpu_check/first.py $(GPU_CHECK_ARGS)

gpu-again:
	@test -n "$(FAILED)" || { echo "say what: make gpu-again FAILED=NAME,NAME, or the folder of facts" >&2; exit 1; }
	$(PYTHON) tests/gpu_check/first.py --again "$(FAILED)" $(GPU_CHECK_ARGS)

gpu-results:
	$(PYTHON) tests/gpu_check/results.py $(or $(FOLDER),gpu-check)

gpu-wheels: $(PY)
	$(PY) tests/gpu_check/packages.py fetch .gpu-wheels --python $(GPU_PYTHON)

check: $(VENV)/.ready-dev
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PYTEST) -q --c-cases $(C_CASES) -m "not slow" $(PYTEST_ARGS)

NO_BENCHMARK := benchmarks/versus.py benchmarks/front_page.py

# A script that needs PyTorch says so and ends with status 2 where it is not installed.
bench: $(VENV)/.ready-bench
	@for script in $(filter-out $(NO_BENCHMARK),$(wildcard benchmarks/[a-z]*.py)); do \
	    echo "== $$script $(BENCH_ARGS)"; $(PY) "$$script" $(BENCH_ARGS); \
	    status=$$?; test $$status -eq 0 -o $$status -eq 2 || exit 1; \
	done

fuzz: $(VENV)/.ready-test
	$(PY) tests/fuzz $(or $(FUZZ),10000) $(FUZZ_ARGS)

# Needs a gcc with libasan and libubsan; proves first that they catch deliberate faults.
fuzz-sanitize: $(VENV)/.ready-test
	$(PY) tests/fuzz $(or $(FUZZ),500) --sanitize $(FUZZ_ARGS)

mutants: $(VENV)/.ready-test
	$(PY) tests/mutants.py $(MUTANT_ARGS)

vectors: $(VENV)/.ready-test
	$(PY) tests/kernels/c/vector_code.py $(VECTOR_ARGS)

docs: docs-pages $(VENV)/.ready-docs
	PYTHONPATH=docs $(PY) -m sitebuilder $(DOCS_ARGS)

docs-pages: $(VENV)/.ready-test
	$(PY) -m neonlike.optree.docs > docs/ops.md.new
	@mv docs/ops.md.new docs/ops.md
	$(PY) -c 'from neonlike import settings; print(settings.page(), end="")' > docs/environment.md
	$(PY) -m neonlike.compat.page docs/from_neon.md
	$(PY) benchmarks/front_page.py --write
	PYTHONPATH=docs $(PY) -m sitebuilder.pictures

clean:
	rm -rf $(VENV) $(PEERS_VENV) .venv-pythons build dist docs/_build neonlike.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One marker a set of extras, older than pyproject.toml when the dependencies may have changed. The editable
# install makes every later edit of the sources count without another install.

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "neonlike needs Python 3.10 or newer; name one with: make test PYTHON=python3.12" >&2; exit 1; }
	@echo "Making the environment $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "$(PYTHON) cannot make environments; on Debian and Ubuntu the package python3-venv brings that" >&2; \
	    exit 1; }

$(VENV)/.ready-demo: pyproject.toml $(PY)
	@echo "Installing what the demo needs (once)"
	@$(INSTALL) ".[demo]"
	@touch $@

$(VENV)/.ready-test: pyproject.toml $(PY)
	@echo "Installing what the tests need (once)"
	@$(INSTALL) ".[test]"
	@touch $@

$(VENV)/.ready-peers: pyproject.toml $(PY)
	@echo "Installing what the tests compare with (once; a large download)"
	@$(INSTALL) ".[test-peers]"
	@touch $@

$(VENV)/.ready-docs: pyproject.toml $(PY)
	@echo "Installing what the documentation site needs (once)"
	@$(INSTALL) ".[docs]"
	@touch $@

$(VENV)/.ready-dev: pyproject.toml $(PY)
	@echo "Installing what the checks need (once)"
	@$(INSTALL) ".[dev]"
	@touch $@

$(VENV)/.ready-bench: pyproject.toml $(PY)
	@echo "Installing what the benchmarks need (once)"
	@$(INSTALL) ".[bench]"
	@touch $@
