# Says when a command begins and ends, and whether another of the same step is alive.
exec 9>>"lock-$OUTLAST_STEP"
mark="$OUTLAST_STEP $OUTLAST_VISIT $OUTLAST_ATTEMPT"
flock -n 9 || echo "$mark" >>violations
echo "begin $mark" >>log
sleep 0.02
