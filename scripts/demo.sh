#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the demonstration of the command that was built in place.
set -eu

exec "$(dirname "$0")/../build/verbena" demo "$@"
