#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh BUILD: runs every test, two at a time. Many run against the clock, and a small machine is
# busy at times: a few that fail are run once more, alone, and what fails again once more after a
# rest; all are named. What a sanitizer reports or the simulator finds is no matter of time, nor is a
# crash: that stays.
set -eu

build=$1
log=$build/tests.log
few=10
rest_s=${VERBENA_REST_S:-10}

failed=$build/Testing/Temporary/LastTestsFailed.log
rm -f "$failed" # of a run before this one

run="ctest --test-dir $build --output-on-failure --no-label-summary"

# The names of tests in a log of CTest's whose failure is no matter of time. A unit test that fails
# leaves what it had, which the leak checker then finds; and sanitizers may find no place for
# themselves in memory.
final() {
    awk '
    function judge() {
        if (name != "" && (bug || (leaks && !gave_up)))
            print name
    }
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
        judge()
        name = index($0, "***") ? $4 : ""
        bug = index($0, "***Exception") > 0
        leaks = gave_up = 0
        next
    }
    /^\[  FAILED  \]/ { gave_up = 1 }
    /LeakSanitizer: |byte\(s\) leaked in/ { leaks = 1; next }
    /Sanitizer: (unexpected memory mapping|failed to (allocate|mmap))/ { next }
    /(Address|Thread|Memory|UndefinedBehavior)Sanitizer: / { bug = 1 }
    /runtime error: |VIOLATION|Assertion .* failed|Segmentation fault/ { bug = 1 }
    /libFuzzer: (deadly signal|out-of-memory)/ { bug = 1 }
    END { judge() }' "$1"
}

names() {
    cut -d: -f2 "$failed" | paste -s -d ' '
}

# After a run that failed, whose log is $1: goes on where another try makes sense.
consider() {
    if ! [ -s "$failed" ]; then
        exit 1
    fi
    echo
    echo "failed: $(names)"
    bugs=$(final "$1" | paste -s -d ' ')
    if [ -n "$bugs" ]; then
        echo "no matter of time: $bugs"
        exit 1
    fi
    if [ "$(wc -l <"$failed")" -gt $few ]; then
        echo "too many for a busy machine: not run again"
        exit 1
    fi
}

# shellcheck disable=SC2086 # several words
if $run -j2 --output-log "$log"; then
    exit 0
fi
consider "$log"
first=$(names)

echo "once more, alone:"
# shellcheck disable=SC2086 # several words
if ! $run -j1 --rerun-failed --output-log "$log.again"; then
    consider "$log.again"
    echo "and again, after $rest_s s:"
    sleep "$rest_s"
    # shellcheck disable=SC2086 # several words
    if ! $run -j1 --rerun-failed --output-log "$log.last"; then
        echo
        echo "failed three times: $(names)"
        exit 1
    fi
fi
echo
echo "passed alone, but not beside others: $first"
