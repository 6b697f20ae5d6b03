//! The file of holds: its owner, its content, and its replacement when it is damaged or gone.

use super::Row;
use super::write_buffer::{Group, WriteOutcome};
use crate::Error;
use crate::database::{self, HOLDS, OpenFile, millis, timestamp};
use rusqlite::{Connection, params};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct HoldsFile {
    file: OpenFile,
    pub(super) connection: Connection,
    /// No other process has the file as long as this is open.
    _owned: fs::File,
}

impl HoldsFile {
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Row>, Option<PathBuf>), Error> {
        let owned = database::lock_exclusively(path)?;
        let (mut connection, mut replaced) = database::open(path, &HOLDS)?;
        // An unreadable file is detected now and not in the middle of an outage.
        let rows = match read(&connection).map_err(|error| error.with_path(path)) {
            Err(error) if error.is_corruption() => {
                (connection, replaced) = database::replace(path, &HOLDS)?;
                read(&connection)
            }
            rows => rows,
        };
        let rows = rows.map_err(|error| error.with_path(path))?;
        let file = Self {
            file: OpenFile::new(path),
            connection,
            _owned: owned,
        };
        Ok((file, rows, replaced))
    }

    /// Writes a group of changes as one transaction, to a new file if this one is damaged or gone.
    pub(super) fn write(&mut self, group: &Group) -> Result<WriteOutcome, Error> {
        if self.file.check().is_err() {
            let (connection, aside) = database::open(&self.file.path, &HOLDS)?;
            return self.write_to_new_file(group, connection, aside);
        }
        match self.try_write(group) {
            Err(error) if error.is_corruption() => {
                let (connection, aside) = database::replace(&self.file.path, &HOLDS)?;
                self.write_to_new_file(group, connection, aside)
            }
            written => written.map(|()| WriteOutcome::SameFile),
        }
    }

    fn write_to_new_file(
        &mut self,
        group: &Group,
        connection: Connection,
        aside: Option<PathBuf>,
    ) -> Result<WriteOutcome, Error> {
        self.connection = connection;
        self.file = OpenFile::new(&self.file.path);
        self.try_write(group)?;
        Ok(WriteOutcome::NewFile(aside))
    }

    fn try_write(&mut self, group: &Group) -> Result<(), Error> {
        let written =
            database::transact(&mut self.connection, |connection| write(connection, group));
        written.map_err(|error| error.with_path(&self.file.path))
    }
}

fn write(connection: &Connection, group: &Group) -> Result<(), Error> {
    if let Some(before) = group.prune {
        connection
            .prepare_cached("DELETE FROM holds WHERE until < ?1")?
            .execute([millis(before)])?;
    }
    let mut put = connection.prepare_cached(
        "INSERT INTO holds (key, value, until) VALUES (?1, ?2, ?3)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value, until = excluded.until",
    )?;
    let mut remove = connection.prepare_cached("DELETE FROM holds WHERE key = ?1")?;
    for (key, change) in &group.changes {
        match change {
            Some(row) => put.execute(params![key, row.value, millis(row.until)])?,
            None => remove.execute([key])?,
        };
    }
    Ok(())
}

fn read(connection: &Connection) -> Result<Vec<Row>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT key, value, until FROM holds ORDER BY until, key")?;
    let rows = statement.query_map([], |row| {
        Ok(Row {
            key: row.get(0)?,
            value: row.get(1)?,
            until: timestamp(row.get(2)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
