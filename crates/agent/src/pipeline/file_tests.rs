use super::*;

/// What is wrong with a file, one line each.
fn faults(source: &str) -> String {
    read(source, Path::new("p.yaml")).unwrap_err().to_string()
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let source = "steps:\n  - id: a\n    comand: x\n  - id: b\n    command: 'echo {{ x }}'\n    needs: [c]\n";
    assert_eq!(
        faults(source),
        "p.yaml:3:5: a step has no `comand`; did you mean `command`?\n\
         p.yaml:5:14: a command is never filled in; name it under `inputs` and write \"$INPUT_NAME\", or read the \
         file \"$INPUT_NAME_FILE\"\n\
         p.yaml:6:13: there is no step `c`; did you mean `a`?"
    );
}
