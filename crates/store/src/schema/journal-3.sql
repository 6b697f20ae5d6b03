-- Entries of the kinds `queued`, `said` and `unqueued`: whoever does not know them would lose what was said beside a turn.
-- The tables are as they were.
SELECT 1;
