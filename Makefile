# CI and people call the same targets. Settings: make run PORT=9000; pip's own (PIP_INDEX_URL, pip.conf) are honoured.
PYTHON ?= python3
PORT ?= 8000
SEED ?= 1
CALIBRATION_SEED ?= 4
PERSONS ?= 300000
CALIBRATION_PERSONS ?= 220000
HISTORIES ?= $(shell seq 100000 100019)
WORKERS ?= 3
BUILD ?= build/bundle
SYSTEMS ?= linux windows
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
BENCH ?= rollout marginals threads start_up

# Tests start hundreds of programs. If this were set, each of them would compile the whole tree.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
PARALLEL := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
SETUP := .venv/.setup-done

.PHONY: setup run test test-thorough lint bench test-ray test-containers test-service bundle prior lock docs wheelhouse

setup: $(SETUP)

# torch first and pinned, so that pip settles which build (CPU or CUDA) before anything else asks for it.
$(SETUP): pyproject.toml evaluation/pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "SAGA needs Python 3.11 or later: make setup PYTHON=python3.11")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || { echo "venv failed: on Debian or Ubuntu, apt install python3-venv"; exit 1; }
	@echo "Installing into .venv: 1 GB or more to download, some minutes without a message."
	@$(BIN)/pip install --quiet "$$(grep '^torch==' requirements.lock)" -c requirements.lock
	@$(BIN)/pip install --quiet -e ".[train,serve,jobs,ray,privacy,dev]" -e ./evaluation -c requirements.lock
	@$(BIN)/python -m compileall -qq saga api training calibration evaluation
	@touch $@

run: setup
	@echo "Starting the service; it says when it is ready."
	@exec $(BIN)/saga serve --bundle bundles/small --port $(PORT)

# A file's tests share fixtures, so a file goes to one process; each process has one core. Slow files come first.
# A process that ends in a test ends the run: pytest-xdist 3.8 hangs if one is replaced (its issue 1323).
test: setup build/store-tools
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL)

# A server of S3 for tests. Its libraries do not go with the pins, so it has an environment of its own.
build/store-tools:
	$(PYTHON) -m venv $@ && $@/bin/pip install --quiet "moto[s3,server]==5.2.5" || { rm -rf $@; exit 1; }

# The tools of Croissant, and a validator of XML, which judge the codebook of a register.
build/codebook-tools:
	$(PYTHON) -m venv $@ && $@/bin/pip install --quiet mlcroissant==1.1.1 xmlschema==4.3.2 || { rm -rf $@; exit 1; }

# Libraries that read forecasts of SAGA in their formats, in an environment of their own.
build/exchange-tools:
	$(PYTHON) -m venv $@ && $@/bin/pip install --quiet gluonts==0.17.0 darts==0.48.1 utilsforecast==0.2.17 polars==2.1.0 || { rm -rf $@; exit 1; }

# Trainings, evaluations and known truths that take long; the fixtures are made again.
test-thorough: setup build/store-tools build/codebook-tools build/docs-tools build/exchange-tools
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m thorough $(PARALLEL)

# mypy, import-linter and grimp look for a module where its name says; build/names has links that show them this tree.
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf build/names && mkdir -p build/names/saga/register
	@ln -s $(filter-out %/register,$(wildcard $(CURDIR)/saga/*)) $(addprefix $(CURDIR)/,api training calibration evaluation) build/names/saga
	@ln -s $(CURDIR)/saga/register/* $(CURDIR)/evaluation/oracle build/names/saga/register
	@ln -s $(addprefix $(CURDIR)/,studies benchmarks distribution docs tests) build/names
	cd build/names && $(CURDIR)/$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache
	cd build/names && $(CURDIR)/$(BIN)/lint-imports --config ../../pyproject.toml
	PYTHONPATH=build/names $(BIN)/python docs/pictures/architecture.py --check

bench: setup
	@set -e; for name in $(BENCH); do $(BIN)/python benchmarks/$$name.py; done

test-containers: setup
	@$(BIN)/python -m pytest -m containers tests/containers

# Clusters of Ray on this machine; on a busy one their nodes may take too long to start.
test-ray: setup
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray tests/saga/batch

# Attacks and load on a running service; prints what it must hold, what was measured and the load of the machine.
test-service: setup
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m service tests/service

# The documentation as a site in build/site; search works from the folder, without a server.
docs: build/docs-tools
	build/docs-tools/bin/mkdocs build --quiet

build/docs-tools:
	$(PYTHON) -m venv $@ && $@/bin/pip install --quiet mkdocs-material==9.8.1 latex2mathml==3.81.1

# Wheels of SAGA and all it needs for rooms without internet, with checksums and a bill of materials.
wheelhouse: setup build/sbom-tools/bin/cyclonedx-py
	rm -rf build/wheel && $(BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel . ./evaluation
	$(BIN)/python distribution/wheelhouse.py --torch-index "$(TORCH_INDEX)" build/wheelhouse build/wheel/*.whl $(SYSTEMS)
	@set -e; for system in $(SYSTEMS); do build/sbom-tools/bin/cyclonedx-py requirements build/wheelhouse/$$system/requirements.txt \
	  --output-format JSON --output-file build/wheelhouse/$$system/sbom.cdx.json; done

build/sbom-tools/bin/cyclonedx-py:
	$(PYTHON) -m venv build/sbom-tools && build/sbom-tools/bin/pip install --quiet cyclonedx-bom==7.5.0

# The shipped bundle. One register trains, together with small ones that lived through other economies; another, of
# which half the persons calibrate, sets the intervals. All are generated anew: nothing but this checkout is needed.
bundle: setup
	rm -rf $(BUILD)
	$(BIN)/saga register generate --persons $(PERSONS) --seed $(SEED) --out $(BUILD)/register
	@set -e; for history in $(HISTORIES); do $(BIN)/saga register generate --persons 11000 --seed $$history \
	  --history $$history --out $(BUILD)/histories/$$history; done
	$(BIN)/saga train --panel $(BUILD)/register $(addprefix --also $(BUILD)/histories/,$(HISTORIES)) \
	  --out $(BUILD)/small --config small --seed $(SEED)
	$(BIN)/saga circumstances $(BUILD)/small --panel $(BUILD)/register --seed $(SEED)
	$(BIN)/saga register generate --persons $(CALIBRATION_PERSONS) --seed $(CALIBRATION_SEED) --out $(BUILD)/calibration
	$(BIN)/saga calibrate $(BUILD)/small --panel $(BUILD)/calibration --shares 20,5,50,25 --rollout light
	$(BIN)/saga report $(BUILD)/small --panel $(BUILD)/register --store --persons 10000 --out $(BUILD)/report.html
	$(BIN)/python -m studies.history_errors $(BUILD)/small --histories 10 --store
	$(BIN)/saga evaluate $(BUILD)/small --panel $(BUILD)/register --baselines carry,groupq,clairvoyant --out $(BUILD)/evaluation
	$(BIN)/saga bundle verify $(BUILD)/small
	rm -rf bundles/small && mv $(BUILD)/small bundles/small

# The start for training on any panel: a network trained on simulated economies, under an hour on one core.
prior: setup
	$(BIN)/python -m saga.evaluation.pretraining --out build/prior --seed $(SEED)
	$(BIN)/saga bundle verify build/prior
	rm -rf bundles/prior && mv build/prior bundles/prior

# Pins what a clean environment resolves to today (torch without its local version, so any build of it satisfies the pin).
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet "$$(grep '^torch==' requirements.lock)"
	build/lock/bin/pip install --quiet -e ".[train,serve,jobs,ray,privacy,dev]" -e ./evaluation
	build/lock/bin/pip freeze --exclude-editable | sed -E 's/\+[A-Za-z0-9.]+$$//' > requirements.lock
