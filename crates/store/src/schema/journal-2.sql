-- Entries of the kinds `noticed` and `compacted`, and switches of models: whoever does not know them would make another
-- conversation of a session. The tables are as they were.
SELECT 1;
