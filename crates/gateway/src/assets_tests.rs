//! Tests of the page's files, and of their headers.

use super::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

/// Collects the names of all files below a folder, except those that are not part of the page.
fn names_in(folder: &Path, before: &str, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{before}{}", entry.file_name().to_str().unwrap());
        match (entry.file_type().unwrap().is_dir(), name.as_str()) {
            (_, "tests" | "README.md" | "package.json") => {}
            (true, _) => names_in(&entry.path(), &format!("{name}/"), names),
            (false, _) => drop(names.insert(name)),
        }
    }
}

fn texts(extension: &str) -> Vec<(&'static str, &'static str)> {
    let wanted = files()
        .iter()
        .filter(|file| file.name.ends_with(extension))
        .map(|file| (file.name, std::str::from_utf8(file.bytes).unwrap()));
    let wanted: Vec<_> = wanted.collect();
    assert!(!wanted.is_empty(), "no file ends with {extension}");
    wanted
}

/// Returns the quoted text behind each occurrence of the word.
fn quoted_after<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let rests = text.split(word).skip(1);
    let quoted = rests.filter_map(|rest| {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        rest[1..].split(quote).next()
    });
    quoted.collect()
}

#[test]
fn every_web_file_is_embedded_with_its_type() {
    let mut there = BTreeSet::new();
    names_in(&folder(), "", &mut there);
    let known: BTreeSet<String> = files().iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(there, known, "add it to the table in assets.rs");
    assert_eq!(known.len(), TABLE.len());
    for file in files() {
        let written = fs::read(folder().join(file.name)).unwrap();
        assert!(file.bytes == written, "{}", file.name);
        let kind = file.name.rsplit('.').next().unwrap();
        let expected = match kind {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(file.content_type, expected, "{}", file.name);
    }
}

#[test]
fn html_has_only_embedded_files_and_no_inline_code() {
    for (name, text) in texts(".html") {
        let named = [quoted_after(text, "src="), quoted_after(text, "href=")].concat();
        assert!(!named.is_empty());
        for named in named.into_iter().filter(|named| !named.starts_with('#')) {
            let within = named.strip_prefix("./").unwrap_or(named);
            let is_image = named.starts_with("data:image/");
            assert!(is_image || file(within).is_some(), "{name}: {named}");
        }
        let lower = text.to_ascii_lowercase();
        assert!(!lower.contains("://"), "{name}: an address");
        for tag in lower.split('<').skip(1) {
            let tag = tag.split('>').next().unwrap();
            assert!(!tag.starts_with("style"), "{name}: <{tag}>");
            let is_script = tag.starts_with("script");
            assert!(!is_script || tag.contains("src="), "{name}: <{tag}>");
            for word in tag.split_ascii_whitespace().skip(1) {
                let is_handler = word.starts_with("on") && word.contains('=');
                let runs = is_handler || word.starts_with("style=");
                assert!(!runs, "{name}: <{tag}>");
            }
        }
        for body in lower.split("<script").skip(1) {
            let body = body.split("</script").next().unwrap();
            let body = body.split_once('>').unwrap().1;
            assert!(body.trim().is_empty(), "{name}: {body}");
        }
    }
}

#[test]
fn scripts_import_only_existing_files() {
    for (name, text) in texts(".js") {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let imported = [quoted_after(text, " from "), quoted_after(text, "import ")].concat();
        for imported in imported.into_iter().filter(|one| one.starts_with('.')) {
            let place = joined(folder, imported);
            assert!(file(&place).is_some(), "{name} imports {imported}");
        }
    }
}

/// Resolves a relative path against a folder.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn page_file_lookup_needs_exact_name() {
    let index = file("").unwrap();
    assert_eq!(
        (index.name, index.content_type),
        (INDEX, "text/html; charset=utf-8")
    );
    assert!(std::ptr::eq(index, file("index.html").unwrap()));
    for path in [
        "/",
        "index",
        "INDEX.HTML",
        "./main.js",
        "main.js/",
        "../web/main.js",
    ] {
        assert!(file(path).is_none(), "{path}");
    }
}

#[test]
fn page_files_have_strict_security_headers() {
    for file in files() {
        let response = file.response(&HeaderMap::new());
        assert_eq!(response.status(), 200);
        let said = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(
            said("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        assert_eq!(said("x-content-type-options"), "nosniff");
        assert_eq!(said("referrer-policy"), "no-referrer");
        assert_eq!(said("cross-origin-opener-policy"), "same-origin");
        assert_eq!(said("cross-origin-resource-policy"), "same-origin");
        assert_eq!(said("cache-control"), "no-cache");
        assert_eq!(said("content-type"), file.content_type);
        assert_eq!(response.body(), file.bytes);
    }
}

#[test]
fn matching_etag_gets_304() {
    let (page, script) = (file("").unwrap(), file("main.js").unwrap());
    let asked = |tags: &str| {
        let tags = HeaderValue::from_str(tags).unwrap();
        let response = page.response(&HeaderMap::from_iter([(header::IF_NONE_MATCH, tags)]));
        (response.status().as_u16(), response.body().len())
    };
    let whole = (200, page.bytes.len());
    assert_eq!(asked(&page.etag), (304, 0));
    assert_eq!(asked(&format!("\"x\", W/{}", page.etag)), (304, 0));
    assert_eq!(asked("*"), (304, 0));
    assert_eq!(asked(&script.etag), whole);
    assert_eq!(asked("\"x\""), whole);
    let response = page.response(&HeaderMap::new());
    assert_eq!(response.headers()["etag"], page.etag);
}
