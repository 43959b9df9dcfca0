# SPDX-License-Identifier: Apache-2.0
# A thin front for CMake: each target also installs the packages that it misses (scripts/setup.sh).

BUILD        := build
PREFIX       ?= /usr/local
DESTDIR      ?=
FUZZ_SECONDS ?= 600
SOAK_SEEDS   ?= 2000
SOAK_GETS    ?= 40000000
CROWD_SECONDS ?= 600
CRASH_ROUNDS ?= 1000
CMAKE_FLAGS  ?=

# Only what is wrong is worth a line: errors and warnings go to stderr.
CONFIGURE := cmake -G Ninja -S . -B $(BUILD) $(CMAKE_FLAGS) >/dev/null
CTEST     := ctest --test-dir $(BUILD) --output-on-failure --no-label-summary -j2

.PHONY: all help demo test sanitize fuzz soak soak-get soak-crowd soak-crash soak-linux bench bench-hull bench-hull-crowd bench-isolation format install clean configure tests

all: configure ## build the command, build/verbena, and the library
	@cmake --build $(BUILD)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: configure ## two NICs in two processes on this machine: what it does and how fast
	@cmake --build $(BUILD) --target verbena
	@scripts/demo.sh

test: tests ## every test: unit, sim, tidy, linux, capture, sanitizers, short fuzzing
	@scripts/test.sh $(BUILD)

sanitize: tests ## only the unit and simulator tests under the sanitizers
	@$(CTEST) -L sanitize

fuzz: ## every fuzzer for FUZZ_SECONDS (600) each
	@scripts/setup.sh build test
	@scripts/flavour.sh fuzz $(BUILD)/fuzz
	@scripts/fuzz.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

soak: tests ## SOAK_SEEDS (2000) simulator seeds, then every mutant
	@$(BUILD)/verbena sim --seeds $(SOAK_SEEDS)
	@sim/mutants/mutants.py --build $(BUILD)

soak-get: all ## SOAK_GETS (40 million) hash gets over shm and udp, the server's CPU asleep
	@$(BUILD)/bench/soak_get --gets $(SOAK_GETS) --port shm
	@$(BUILD)/bench/soak_get --gets $(SOAK_GETS) --port udp

soak-crowd: tests ## 50 servers and 200 clients of rdma_cm for CROWD_SECONDS (600), killed and stopped
	@tests/verbs/crowd_test.py --build $(BUILD) --servers 50 --clients 200 --seconds $(CROWD_SECONDS)

soak-crash: all ## a service answers gets while its application is killed CRASH_ROUNDS (1000) times
	@bench/crash.py --build $(BUILD) --rounds $(CRASH_ROUNDS) --strict

soak-linux: tests ## every program against Linux's soft-RoCE in both roles, and rsockets everywhere
	@tests/linux/pingpong_test.py --build $(BUILD) --full
	@tests/linux/programs_test.py --build $(BUILD) --full
	@tests/linux/cm_programs_test.py --build $(BUILD) --full
	@tests/verbs/rsockets_test.py --build $(BUILD) --full

bench: all ## the benchmarks, side by side with what a user would take instead
	@scripts/setup.sh bench
	@bench/run.sh
	@bench/verbs.py

bench-hull-crowd: all ## 1,000 applications attach to a hull, work and leave: what one costs
	@$(BUILD)/bench/hull_crowd --applications 1000

bench-isolation: all ## what hostile tenants do to another one, in a hull and in virtual time
	@$(BUILD)/verbena sim isolation
	@$(BUILD)/bench/hull_isolation --port udp
	@$(BUILD)/bench/hull_isolation --port auto

bench-hull: all ## a READ with the NIC in a hull against one in the process, in cache lines
	@$(BUILD)/bench/hull_lat

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
