//! The inputs of a command: as files, and as variables where they fit.
//!
//! Invariants: an input never becomes part of a command's text; only a program that reads the variable or the file sees
//! it. Files and their folder are private to the user. Not here: the origin of inputs.

use outlast_store::private;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Maximum bytes of an input that is also a variable; systems refuse a program with longer variables.
pub(crate) const MAX_VARIABLE_BYTES: usize = 64 * 1024;
/// Maximum bytes of all variables together; the other inputs are only files.
const MAX_VARIABLES_BYTES: usize = 512 * 1024;

/// Writes the inputs into a folder of their own, and returns the variables by which a command finds them.
///
/// `INPUT_<NAME>_FILE` is the path; `INPUT_<NAME>` is the text itself, if it is valid text and not too long. The name
/// is in upper case, with `_` for each character that variable names cannot have. `extra` comes unchanged, before them.
pub(crate) fn write_inputs(
    inputs: &BTreeMap<String, Vec<u8>>,
    folder: &Path,
    extra: &[(&str, String)],
) -> io::Result<Vec<(String, String)>> {
    private::make_folder(folder)?;
    let extra = extra.iter();
    let mut variables: Vec<_> = extra
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let (mut names, mut room) = (BTreeSet::new(), MAX_VARIABLES_BYTES);
    for (input, content) in inputs {
        let name = variable_name(input)?;
        let path = folder.join(&name);
        let path_text = path
            .to_str()
            .ok_or_else(|| invalid_input(format!("{} is not a path in UTF-8", path.display())))?
            .to_owned();
        let (text, file) = (format!("INPUT_{name}"), format!("INPUT_{name}_FILE"));
        for variable in [&text, &file] {
            if !names.insert(variable.clone()) {
                let problem = format!("two inputs are called {variable}; give one another name");
                return Err(invalid_input(problem));
            }
        }
        write_private_file(&path, content)?;
        variables.push((file, path_text));
        if let Some(content) = as_variable(content).filter(|content| content.len() <= room) {
            room -= content.len();
            variables.push((text, content.to_owned()));
        }
    }
    Ok(variables)
}

/// Returns the name of an input as the name of a variable and of its file.
fn variable_name(input: &str) -> io::Result<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if input.is_empty() || input.len() > 128 || !input.bytes().all(is_allowed) {
        let shown = outlast_kernel::text::bounded(input, 128);
        let problem = format!("`{shown}` is not a name of letters, digits, `-` and `_`");
        return Err(invalid_input(problem));
    }
    Ok(input.to_ascii_uppercase().replace('-', "_"))
}

/// Returns the content as text, if it can be a variable.
fn as_variable(content: &[u8]) -> Option<&str> {
    let text = str::from_utf8(content).ok()?;
    (text.len() <= MAX_VARIABLE_BYTES && !text.contains('\0')).then_some(text)
}

fn invalid_input(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// Creates a new file in place of an earlier attempt's, which may have been changed or linked.
pub(crate) fn write_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = private::options();
    let mut file = options.write(true).create_new(true).open(path)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn inputs(pairs: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
        let owned = pairs.iter();
        owned
            .map(|(name, content)| ((*name).to_owned(), content.to_vec()))
            .collect()
    }

    fn value<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let found = variables.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    #[test]
    fn every_input_is_a_file_and_short_text_a_variable_too() {
        let folder = TempDir::new().unwrap();
        let folder = folder.path().join("inputs");
        let longest = "x".repeat(MAX_VARIABLE_BYTES);
        let too_long = format!("{longest}y");
        let given = inputs(&[
            ("diff", b"; rm -rf $HOME `id`\n"),
            ("test-log", b""),
            ("longest", longest.as_bytes()),
            ("too_long", too_long.as_bytes()),
            ("picture", b"\x89PNG"),
            ("nul", b"a\0b"),
        ]);
        let extra = [("OUTLAST_STEP", "fix".to_owned())];
        let variables = write_inputs(&given, &folder, &extra).unwrap();
        assert_eq!(variables[0], ("OUTLAST_STEP".to_owned(), "fix".to_owned()));
        let table = [
            ("DIFF", "diff", true),
            ("TEST_LOG", "test-log", true),
            ("LONGEST", "longest", true),
            ("TOO_LONG", "too_long", false),
            ("PICTURE", "picture", false),
            ("NUL", "nul", false),
        ];
        for (name, input, is_variable) in table {
            let content = &given[input];
            let path = value(&variables, &format!("INPUT_{name}_FILE")).unwrap();
            assert_eq!(path, folder.join(name).to_str().unwrap());
            assert_eq!(&fs::read(path).unwrap(), content);
            let text = value(&variables, &format!("INPUT_{name}"));
            let expected = is_variable.then(|| str::from_utf8(content).unwrap());
            assert_eq!(text, expected, "{name}");
        }
        assert_eq!(variables.len(), 1 + 6 + 3);
    }

    #[test]
    fn command_with_many_long_inputs_can_be_started() {
        let folder = TempDir::new().unwrap();
        let long = vec![b'x'; MAX_VARIABLE_BYTES];
        let given = (0..100).map(|number| (format!("part{number:03}"), long.clone()));
        let variables = write_inputs(&given.collect(), folder.path(), &[]).unwrap();
        let texts = variables.iter().map(|(_, text)| text.len()).sum::<usize>();
        assert!(texts < 1024 * 1024, "{texts}");
        let started = std::process::Command::new("true").envs(variables).status();
        assert!(started.unwrap().success());
    }

    #[test]
    fn colliding_or_unsafe_input_names_are_refused() {
        let folder = TempDir::new().unwrap();
        let folder = folder.path().join("inputs");
        let both = inputs(&[("test-log", b"one"), ("test_log", b"other")]);
        let error = write_inputs(&both, &folder, &[]).unwrap_err().to_string();
        assert!(error.contains("INPUT_TEST_LOG"), "{error}");
        let file = inputs(&[("log", b"one"), ("log_file", b"other")]);
        let error = write_inputs(&file, &folder, &[]).unwrap_err().to_string();
        assert!(error.contains("INPUT_LOG_FILE"), "{error}");
        let long = "x".repeat(1000);
        for name in ["", "../evil", "a/b", "a b", "ä", "A=B", &long] {
            let error = write_inputs(&inputs(&[(name, b"x")]), &folder, &[]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn input_files_are_private_and_replace_earlier_ones() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = TempDir::new().unwrap();
        let (given, elsewhere) = (folder.path().join("inputs"), folder.path().join("else"));
        fs::create_dir(&given).unwrap();
        fs::write(&elsewhere, "mine").unwrap();
        // An attempt can leave anything in place of its input.
        symlink(&elsewhere, given.join("DIFF")).unwrap();
        for content in [&b"one"[..], b"other"] {
            let inputs = inputs(&[("diff", content)]);
            write_inputs(&inputs, &given, &[]).unwrap();
            assert_eq!(fs::read(given.join("DIFF")).unwrap(), content);
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&given), mode(&given.join("DIFF"))), (0o700, 0o600));
    }
}
