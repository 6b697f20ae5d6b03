//! Files and folders that are private to the user, from their first byte.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Returns options for opening a file that is private to the user if it is created.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a folder, with those above it, or makes an existing one private.
pub fn make_folder(path: &Path) -> io::Result<()> {
    create_folder(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if std::fs::metadata(path)?.permissions().mode() & 0o777 != 0o700 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

/// Creates a folder, with those above it. An existing one stays as it is.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}
