#!/usr/bin/env bash
# Fuzzes every fuzz target of the module for a while each (default 10s): fuzz.sh [TIME].
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
grep -rEo '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' cmd internal | sed -E 's|/[^/]+:func | |' | sort -u |
	while read -r package target; do
		echo "== $package $target"
		"${GO:-go}" test "./$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" </dev/null
	done
