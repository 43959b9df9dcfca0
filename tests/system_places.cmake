# SPDX-License-Identifier: Apache-2.0
# How many of CTest's places those system tests take that are not the rule. As root
# each system test has a network namespace of its own (tests/judge.py), so they share nothing else.

# They spin or start many processes: both cores are theirs.
set(both_cores cli.hull_isolation cli.perf cli.perf6 cli.perf_get cli.soak_get verbs.crowd)
foreach(name IN ITEMS addresses threads units_threads)
    list(APPEND both_cores unit.${name})
endforeach()
set_tests_properties(${both_cores} PROPERTIES PROCESSORS ${all_places})

set_tests_properties(cli.doctor cli.hull_crowd cli.inspect cli.nic_metrics cli.tables cli.usage verbs.cm
    verbs.own verbs.raw verbs.rsockets verbs.symbols PROPERTIES PROCESSORS ${waiting})
set_tests_properties(capture.capture linux.linux PROPERTIES PROCESSORS ${half})

# Long ones begin first, so that short ones fill what is left beside them.
set_tests_properties(linux.linux verbs.cm verbs.rsockets cli.doctor PROPERTIES COST 1000)
