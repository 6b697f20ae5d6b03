-- A session and who owns it. The fence grows with every change of owner; `open_turn` is the turn that is not settled.
CREATE TABLE sessions (
    id        TEXT PRIMARY KEY,
    created   INTEGER NOT NULL,
    changed   INTEGER NOT NULL,
    directory TEXT NOT NULL,
    title     TEXT NOT NULL,
    fence     INTEGER NOT NULL,
    owner     TEXT,
    last_turn INTEGER NOT NULL,
    open_turn INTEGER,
    entries   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX unfinished_sessions ON sessions (changed, id) WHERE open_turn IS NOT NULL;

-- What happened, numbered within its session from one on and without gaps.
CREATE TABLE entries (
    session TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    turn    INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    time    INTEGER NOT NULL,
    body    TEXT NOT NULL,
    UNIQUE (session, seq)
) STRICT;
-- A turn begins once and ends once, whatever the program believes.
CREATE UNIQUE INDEX once_in_a_turn ON entries (session, turn, kind) WHERE kind IN ('prompt', 'settled');
