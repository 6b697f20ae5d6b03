#!/bin/sh
# The tests of roman.sh: prints what fails, and ends with 1 when anything did.
cd "$(dirname "$0")" || exit 2
failed=0

check() {
  found="$(sh roman.sh "$1" 2>&1)"
  [ "$found" = "$2" ] && return
  echo "FAIL: $1 is $2, found $found"
  failed=$((failed + 1))
}

check 1 I
check 3 III
check 4 IV
check 8 VIII
check 9 IX
check 40 XL
check 1994 MCMXCIV
check 3888 MMMDCCCLXXXVIII

[ "$failed" -eq 0 ] && echo "all tests passed" && exit 0
echo "$failed tests failed"
exit 1
