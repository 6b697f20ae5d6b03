#!/bin/sh
# Prints a number between 1 and 3999 in Roman numerals.
echo "not yet" >&2
exit 1
