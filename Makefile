# Needs Python 3.10 or newer with pip, and make; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
# Where no GPU is, torch without CUDA, which is gigabytes; empty: the torch of pip's own index.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi 2>/dev/null),,https://download.pytorch.org/whl/cpu)
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -ge 2 ] && echo "$$n" || echo 2)

# Test files without training, processes that play, or a clock: data, learning rules, limits and control, launch and container files.
CHECK := absorbing bilevel cli conditions config control dataset docker drivers edit formats guard launch_words networks outer \
  pick_place_avoid policy ranking rollout safety selection sorting teleop ur5e_kinematics variation ways

# .venv brings its own ROS: what the caller's shell says of another Python or another ROS would mix the two.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_USER PIP_TARGET PIP_PREFIX
unexport AMENT_PREFIX_PATH RMW_IMPLEMENTATION _ROS_WHEELS_BOOTSTRAP_COMPLETE
ifneq (,$(ROS_DISTRO)$(_ROS_WHEELS_BOOTSTRAP_COMPLETE))
unexport LD_LIBRARY_PATH
endif

# A stamp is named after what it was installed from, so a change of content installs again and a change of date does not.
INPUTS := pyproject.toml hatch_build.py constraints.txt requirements-pybullet.txt $(wildcard src/*/setup.py src/*/package.xml launch/*.py config/*.yaml)
MADE_WITH := $(shell $(PYTHON) -c 'import sys; print(*sys.version_info[:2], sys.base_prefix)' 2>/dev/null) in $(CURDIR)
INSTALLED_FROM := $(shell { echo "$(MADE_WITH) $(EXTRAS)"; cksum $(INPUTS); } | cksum | cut -d' ' -f1)
DEMO_READY := $(VENV)/demo-$(INSTALLED_FROM)
TEST_READY := $(VENV)/test-$(INSTALLED_FROM)
ALL_READY := $(VENV)/all-$(INSTALLED_FROM)

.PHONY: help install demo test check lint clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo 'Variables: PYTHON=python3.12 picks the Python, ARGS="..." goes to cail demo or pytest, JOBS=4 sets the test processes,'
	@echo '  EXTRAS=ros,ur what make install adds, VENV=.venv-3.12 where, TORCH_INDEX= takes torch with CUDA; docs/install.md says more.'

install: $(ALL_READY)  ## everything that cail can use, into .venv

demo: $(DEMO_READY)  ## demonstrations to policy to report, on the embedded simulator
	$(VENV)/bin/cail demo $(ARGS)

test: $(TEST_READY)  ## all tests
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: $(TEST_READY)  ## a minute's selection of the tests, and ruff
	$(VENV)/bin/python -m ruff check .
	@OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile $$(find src tests $(patsubst %,-name test_%.py -o,$(CHECK)) -false) $(ARGS)

lint: $(TEST_READY)  ## ruff on everything, mypy --strict on the packages
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m mypy

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) .venv-* build install log dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests launch -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO_READY): EXTRAS := sim,ros
$(ALL_READY): EXTRAS := all
$(TEST_READY): EXTRAS := all,dev

$(DEMO_READY) $(ALL_READY) $(TEST_READY): | python-is-new-enough
	@[ "$$(cat $(VENV)/made-with 2>/dev/null)" = "$(MADE_WITH)" ] || $(MAKE_VENV)
	@rm -f $(VENV)/demo-* $(VENV)/all-* $(VENV)/test-*
	@echo "Installing cail[$(EXTRAS)] and what it needs into $(VENV): minutes the first time, see $(VENV)/pip.log"
	@{ { $(PYBULLET) && $(TORCH) && $(PIP_INSTALL) -e '.[$(EXTRAS)]'; } 2>&1; echo "pip ended with $$?"; } | tee $(VENV)/pip.log | awk '$(SHOW_PIP)'
	@touch $@ $(if $(WITH_SIM),$(DEMO_READY))

.PHONY: python-is-new-enough
python-is-new-enough:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "expected Python 3.10 or newer, given $(PYTHON) ($$($(PYTHON) --version 2>&1 | tail -1)); name another: make PYTHON=python3.11" >&2; \
	  exit 2; }

# Debian's python3 has no ensurepip until python3-venv is there; python3-pip is enough as well.
MAKE_VENV = { \
  echo "Making $(VENV) with $$($(PYTHON) --version)"; \
  $(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { \
    $(PYTHON) -m venv --clear --without-pip $(VENV) && \
    $(PYTHON) -m pip install -q --no-input --disable-pip-version-check pip --target \
      "$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" >/dev/null 2>&1; \
  } || { echo "expected Python with venv and pip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }; \
  echo "$(MADE_WITH)" > $(VENV)/made-with; }

# The pins by variable instead of by -c, which does not reach the build environment.
PIP_INSTALL = PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
  $(VENV)/bin/python -m pip install --no-input --disable-pip-version-check --progress-bar off

# pip checks hashes only where every package of a command has one, so this one package is a command of its own.
WITH_SIM = $(findstring sim,$(EXTRAS))$(findstring all,$(EXTRAS))
PYBULLET = $(if $(WITH_SIM),$(VENV)/bin/python -m pip install --no-input \
  --disable-pip-version-check --progress-bar off --require-hashes --no-deps -r requirements-pybullet.txt,:)
TORCH = $(if $(TORCH_INDEX),{ $(PIP_INSTALL) --no-deps --retries 0 --timeout 15 --index-url $(TORCH_INDEX) torch || \
  echo "torch without CUDA is not to be had from $(TORCH_INDEX) for this Python: pip takes the one of its own index"; },:)

# Of pip's output: the big downloads and the last step as they happen; the end of it all if it failed.
SHOW_PIP = { line[NR] = $$0 } \
  /^torch without/ { print "  " $$0; fflush() } \
  /^ *Downloading .*[0-9][0-9](\.[0-9])? MB\)/ || /Building wheel .*started/ || /^Installing collected/ { \
    print "  " substr($$1 " " $$2 " " $$3 " " $$4 " " $$5, 1, 90); fflush() } \
  END { split(line[NR], end); if (end[4] != 0) for (i = NR > 25 ? NR - 25 : 1; i <= NR; i++) print line[i]; exit end[4] }
