-- What is known of the failure of one (provider, account, model).
CREATE TABLE gates (
    key     TEXT PRIMARY KEY,
    state   TEXT NOT NULL,
    cause   TEXT,
    changed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who waits before a gate, in the order in which their trouble began; who does not renew has died.
CREATE TABLE waiters (
    gate     TEXT NOT NULL,
    since    INTEGER NOT NULL,
    id       TEXT NOT NULL,
    own_wake INTEGER NOT NULL,
    deadline INTEGER,
    expires  INTEGER NOT NULL,
    PRIMARY KEY (gate, since, id)
) STRICT, WITHOUT ROWID;

-- Accounts that are not to be used until then; an empty model means all.
CREATE TABLE blocks (
    account TEXT NOT NULL,
    model   TEXT NOT NULL,
    block   TEXT NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (account, model)
) STRICT, WITHOUT ROWID;

-- Calls that are under way, by account; who does not renew loses its seat.
CREATE TABLE seats (
    holder  TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX seats_by_account ON seats (account, expires);
