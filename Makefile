# Every target prepares what it needs: .venv, the locked packages, the project itself.
# Settings: PYTHON=python3.12 chooses the interpreter, WORKERS=4 the test processes,
# ARGS="-k journal" is handed to the command of the target.

.DEFAULT_GOAL := help
.PHONY: help ready demo test prove check bench servers lock clean

# Without compiled files every process that a test starts compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv/bin
WORKERS ?= 3
ARGS ?=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

ready: ## make .venv and install the locked packages, if anything changed
	@scripts/bootstrap

demo: ready ## watch Penstock at work: a kill, devices, a pipeline on Spark into tables
	@scripts/java
	@$(VENV)/penstock demo $(ARGS)

test: ready ## run the tests, with the servers they need
	@scripts/java
	@$(VENV)/python scripts/servers || echo "their tests are skipped, or fail when CI is set" >&2
	@start=$$(date +%s); status=0; \
	$(VENV)/python -m pytest tests -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) || status=$$?; \
	echo "make test took $$(( $$(date +%s) - start )) s"; exit $$status

prove: ready ## run the long proofs: every crash point, every seed
	@start=$$(date +%s); status=0; \
	$(VENV)/python -m pytest tests -m prove -q --hypothesis-profile=prove $(ARGS) || status=$$?; \
	echo "make prove took $$(( $$(date +%s) - start )) s"; exit $$status

check: ready ## check format, lint, types and imports between rooms
	$(VENV)/ruff format --check src tests benchmarks
	$(VENV)/ruff check src tests benchmarks
	$(VENV)/mypy
	$(VENV)/lint-imports --no-logo

bench: ready ## measure speed on this machine
	@$(VENV)/penstock bench --suite $(ARGS)

servers: ready ## get the real servers the tests and measurements use, into a cache
	@$(VENV)/python scripts/servers $(ARGS)

lock: ## resolve the dependencies of pyproject.toml again (needs uv)
	uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
		--fork-strategy fewest --generate-hashes --no-header --quiet --upgrade \
		--output-file requirements/dev.lock

clean: ## remove .venv and all generated files; downloaded packages stay in .cache
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +
