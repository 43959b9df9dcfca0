#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitized.sh BUILD asan|tsan TEST...: builds and runs unit tests that `make test` leaves out of that
# flavour's tree, at full size.
set -eu

here=$(dirname "$0")
tree=$1/$2
"$here/flavour.sh" "$2" "$tree"
shift 2
for name in "$@"; do
    cmake --build "$tree" --target "test_$name" >/dev/null
    UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
        "$here/fixed.sh" "$tree/tests/test_$name" >"$tree/test_$name.log" 2>&1 || {
        tail -n 60 "$tree/test_$name.log"
        echo "sanitized.sh: test_$name failed" >&2
        exit 1
    }
done
echo "$# tests without a report: $*"
