# SPDX-License-Identifier: Apache-2.0
# What tests may not share, and how many of CTest's places those take that are not the rule. As root
# each system test has a network namespace of its own (tests/judge.py), so they share nothing else.

# They spin or start many processes: both cores are theirs.
set(both_cores cli.crash cli.demo cli.hull_isolation cli.perf cli.perf6 cli.perf_get cli.soak_get
    cli.tables verbs.crowd)
foreach(name IN ITEMS addresses hull_address sharing threads town units_threads)
    list(APPEND both_cores unit.${name})
endforeach()
set_tests_properties(${both_cores} PROPERTIES PROCESSORS ${all_places})

# The guest boots and waits for a long time: it begins first.
set_tests_properties(linux.linux PROPERTIES COST 1000)
