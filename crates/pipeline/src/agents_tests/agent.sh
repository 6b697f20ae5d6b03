#!/bin/sh
# Stands in for an agent program: notes how it was called and what it read, and prints what the real one once printed.
printf '%s\n' "$(basename "$0")" "$@" > called
cat > asked
cat "$RECORDING"
exit "${CODE:-0}"
