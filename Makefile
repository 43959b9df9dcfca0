# SPDX-License-Identifier: Apache-2.0
# A thin front for CMake: each target also installs the packages that it misses (scripts/setup.sh).

BUILD        := build
PREFIX       ?= /usr/local
DESTDIR      ?=
FUZZ_SECONDS ?= 600
PARTS        ?=
CMAKE_FLAGS  ?=
TABLES       ?=

# Only what is wrong is worth a line: errors and warnings go to stderr.
CONFIGURE := cmake -G Ninja -S . -B $(BUILD) $(CMAKE_FLAGS) >/dev/null

.PHONY: all help demo test sanitize fuzz test-long bench bench-isolation format install clean configure tests

all: configure ## build the command, build/verbena, and the library
	@cmake --build $(BUILD)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: configure ## two NICs in two processes on this machine: what it does and how fast
	@cmake --build $(BUILD) --target verbena
	@scripts/demo.sh

test: tests ## every test once: unit, simulator, sanitizers, short fuzzing, mutants, Linux, programs
	@scripts/suite.py $(BUILD)

sanitize: tests ## only the unit and simulator tests under the sanitizers
	@scripts/suite.py $(BUILD) -L sanitize

fuzz: ## every fuzzer for FUZZ_SECONDS (600) each
	@scripts/setup.sh build test
	@scripts/flavour.sh asan $(BUILD)/asan
	@scripts/fuzz.sh $(BUILD)/asan $(FUZZ_SECONDS)

test-long: tests ## what a release needs, at full size, in parts of 20 minutes; PARTS='sim-* crash' chooses
	@scripts/flavour.sh asan $(BUILD)/asan
	@scripts/long.py --build $(BUILD) $(PARTS)

bench: all ## measure the tables of docs/performance.md and write them there; TABLES="udp shm": only these
	@scripts/setup.sh bench
	@bench/tables.py --build $(BUILD) $(TABLES)

bench-isolation: all ## what hostile tenants do to another one, in a hull and in virtual time
	@$(BUILD)/verbena sim isolation
	@$(BUILD)/bench/hull_isolation --port udp
	@$(BUILD)/bench/hull_isolation --port auto

format: ## format every C file
	@scripts/format.sh

install: all ## install under PREFIX (/usr/local), staged in DESTDIR
	@$(CONFIGURE) -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD)

clean: ## remove the build tree
	@rm -rf $(BUILD)

configure:
	@scripts/setup.sh build
	@$(CONFIGURE)

tests:
	@scripts/setup.sh build test
	@$(CONFIGURE) -DVERBENA_TESTS=ON -DVERBENA_WERROR=ON
	@cmake --build $(BUILD)
