//! Sizes in bytes in settings: `65536`, `512KiB`, `64MiB`, `1GiB`.

const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];

/// Parses a number of bytes; `None` if the text is none.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = UNITS.iter().find_map(|(name, power)| {
        let number = text.strip_suffix(name)?;
        Some((number.trim_end(), *power))
    });
    let (number, power) = unit.unwrap_or((text, 0));
    let number: u64 = number.parse().ok()?;
    number.checked_mul(1 << power)
}

/// Formats a number of bytes as a file can have it.
pub(crate) fn to_text(bytes: u64) -> String {
    let whole = |(_, power): &&(&str, u32)| bytes > 0 && bytes.is_multiple_of(1 << power);
    let unit = UNITS.iter().rev().skip(1).find(whole);
    match unit {
        Some((name, power)) => format!("{}{name}", bytes >> power),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_size_parses_back() {
        for bytes in [1, 1023, 1024, 1536, 64 << 20, 3 << 30, u64::MAX] {
            assert_eq!(parse(&to_text(bytes)), Some(bytes), "{}", to_text(bytes));
        }
    }

    #[test]
    fn size_parses_only_bytes_and_binary_units() {
        let table = [
            ("65536", Some(65_536)),
            ("64MiB", Some(64 << 20)),
            (" 2 KiB ", Some(2048)),
            ("1GiB", Some(1 << 30)),
            ("12B", Some(12)),
            ("64MB", None),
            ("-1", None),
            ("1.5MiB", None),
            ("", None),
            ("18446744073709551615GiB", None),
        ];
        for (text, bytes) in table {
            assert_eq!(parse(text), bytes, "{text:?}");
        }
        assert_eq!(to_text(64 << 20), "64MiB");
    }
}
