#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh BUILD: runs every test, two at a time. Many run against the clock, and two NICs that spin
# take both cores of a small machine from their neighbours: a few that fail are run once more, alone,
# and named. What a sanitizer reports or the simulator finds is no matter of time, nor is a crash: that
# stays.
set -eu

build=$1
log=$build/tests.log
few=5

failed=$build/Testing/Temporary/LastTestsFailed.log
rm -f "$failed" # of a run before this one

# shellcheck disable=SC2086 # several words
run="ctest --test-dir $build --output-on-failure --no-label-summary"
status=0
$run -j2 --output-log "$log" || status=$?
[ $status -ne 0 ] || exit 0

if ! [ -s "$failed" ] || [ "$(wc -l <"$failed")" -gt $few ] ||
    grep -qE 'Sanitizer:|runtime error:|VIOLATION|Assertion .* failed|Segmentation fault|\*\*\*Exception' "$log"
then
    exit $status
fi
names=$(cut -d: -f2 "$failed" | paste -s -d ' ')
echo
echo "once more, alone: $names"
$run -j1 --rerun-failed
echo "passed alone, but not beside others: $names"
