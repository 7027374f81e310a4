# The front door. CMakeLists.txt is the build; this file only knows the words that people type.
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
BUILD  ?= build
PREFIX ?= /usr/local
FUZZ_S ?= 60
SOAK_S ?= 600
CASES  ?= 50
SEED   ?= 1

# The first 'make run' builds what this machine runs, so that a story is told soon; every other word builds the whole.
configure = cmake -S . -B $(BUILD) -DMICA_LOCAL=OFF >/dev/null
in_haste  = cmake -S . -B $(BUILD) $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DMICA_LOCAL=ON) >/dev/null
compile   = cmake --build $(BUILD) --parallel $(JOBS)

MAKEFLAGS     += --no-print-directory
.DEFAULT_GOAL := all
.PHONY: all run check test test-gpu test-python conform bench install format lint house fuzz soak clean help

all: ## configure and build: build/mica, build/libmica.a, build/libmica.so
	@scripts/setup run
	@$(configure)
	@$(compile)

run: ## build the tool; tell a story with the model inside (ARGS="help": something else)
	@scripts/setup run
	@$(in_haste)
	@$(compile) --target mica_tool
	@$(BUILD)/mica $(if $(ARGS),$(ARGS),run)

check: ## build and run the quick tests: for every save
	@scripts/setup check
	@$(configure) -DMICA_TESTS=ON
	@$(compile)
	@ctest --test-dir $(BUILD) --parallel $(JOBS) --exclude-regex '_slow$$|conform_opencl' --output-on-failure --no-tests=error

test: ## everything that a change must pass
	@scripts/setup test
	@BUILD=$(BUILD) JOBS=$(JOBS) scripts/test

test-gpu: ## the conformance suite on a GPU; fails if there is none
	@scripts/setup check
	@$(configure) -DMICA_TESTS=ON
	@$(compile)
	@scripts/test_gpu $(BUILD)

test-python: ## round trips with the gguf, safetensors and numpy packages, which it installs (network)
	@scripts/setup run
	@BUILD=$(BUILD) JOBS=$(JOBS) scripts/test_python

conform: ## every row of conformance with CASES drawn cases from SEED on, on the cpu's instruction sets and through OpenCL
	@scripts/setup test
	@$(configure) -DMICA_TESTS=ON
	@$(compile) --target tests_conform
	@for device in cpu opencl; do MICA_TEST_NEEDS=opencl $(BUILD)/tests/conform test_conform_$$device $(SEED) all $(CASES) || exit; done

bench: ## the tables of speeds: mica itself, ops, fusions, a decode pass (ARGS="--json")
	@scripts/setup check
	@$(configure)
	@$(compile) --target mica_tool
	@for what in 'bench overhead' 'bench ops' 'bench fusion' pass; do $(BUILD)/mica $$what $(ARGS) || exit; done

install: all ## install under PREFIX, below DESTDIR when given
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix $(PREFIX)

format: ## rewrite all C sources in the house style
	@scripts/format

lint: ## formatting, clang-tidy, cppcheck, include direction
	@scripts/setup test
	@JOBS=$(JOBS) scripts/lint

house: ## the state of the house in one table; red rows fail
	@scripts/house

fuzz: ## run each fuzz target for FUZZ_S seconds
	@scripts/setup test
	@JOBS=$(JOBS) scripts/fuzz $(FUZZ_S)

soak: ## growth at large sizes, then all tests, slow ones too, for SOAK_S seconds
	@scripts/setup check
	@$(configure) -DMICA_TESTS=ON
	@$(compile)
	@BUILD=$(BUILD) JOBS=$(JOBS) scripts/soak $(SOAK_S)

clean: ## remove the build folder
	@cmake -E rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' Makefile
