-- Gates have new rules: what the old ones knew is of no use to them, and nobody waits in their queue any more.
DROP TABLE waiters;
DELETE FROM gates;

-- The queue of each process before each gate; a process that is silent for long has died.
CREATE TABLE heartbeats (
    gate    TEXT NOT NULL,
    process TEXT NOT NULL,
    waiting INTEGER NOT NULL,
    oldest  INTEGER,
    seen    INTEGER NOT NULL,
    PRIMARY KEY (gate, process)
) STRICT, WITHOUT ROWID;
