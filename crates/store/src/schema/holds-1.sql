-- Requests that wait, or whose client has left: what a gateway must know of each when it is started again.
CREATE TABLE holds (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
