//! The key of a gate: provider, address, account and model.

/// Returns the key of the gate that all calls of an account to a model share. `address` tells the provider from others with
/// the same name.
pub fn gate_key(provider: &str, address: &str, account: &str, model: &str) -> String {
    let length = provider.len() + address.len() + account.len() + model.len() + 3;
    let mut key = String::with_capacity(length);
    for (part, separator) in [(provider, '@'), (address, '/'), (account, '/')] {
        push_escaped(&mut key, part);
        key.push(separator);
    }
    // The model comes last and needs no escape.
    key.push_str(model);
    key
}

/// Returns the account in the key of a gate.
pub fn gate_key_account(key: &str) -> Option<String> {
    let account = key.split('/').nth(1)?;
    Some(account.replace("%2F", "/").replace("%25", "%"))
}

/// Returns the name of the account that a key stands for where no account is configured: another key is another account, and
/// so is the same key at another address. Nobody can guess the key from it.
pub fn key_account(provider: &str, mark: KeyMark, address: &str) -> String {
    let mut name = String::with_capacity(provider.len() + address.len() + 7);
    name.push_str(provider);
    name.push('-');
    let digits = (0..5).rev().map(|digit| mark.0 >> (4 * digit) & 0xf);
    name.extend(digits.filter_map(|digit| char::from_digit(digit, 16)));
    if !address.is_empty() {
        name.push('@');
        name.push_str(address);
    }
    name
}

/// A few bits that tell keys apart (FNV-1a, folded to 20 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMark(u32);

impl KeyMark {
    /// Returns the mark of a key.
    pub fn of(key: &str) -> Self {
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let folded = (hash >> 40 ^ hash >> 20 ^ hash) & 0xf_ffff;
        Self(u32::try_from(folded).unwrap_or_default())
    }
}

/// Appends a part of a key with its separators escaped.
fn push_escaped(key: &mut String, part: &str) {
    let has = |byte: u8| part.as_bytes().contains(&byte);
    match has(b'/') || has(b'%') {
        true => key.push_str(&part.replace('%', "%25").replace('/', "%2F")),
        false => key.push_str(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_found_in_key_whatever_its_parts_contain() {
        for account in ["main", "", "a/b", "50%2F", "%"] {
            for (address, model) in [("", "m"), ("host:1/v1", "vendor/model")] {
                let key = gate_key("p", address, account, model);
                assert_eq!(gate_key_account(&key).as_deref(), Some(account), "{key}");
            }
        }
        assert_ne!(gate_key("p", "", "a/b", "c"), gate_key("p", "", "a", "b/c"));
        assert_eq!(gate_key("openai", "", "main", "gpt"), "openai@/main/gpt");
    }

    #[test]
    fn account_of_key_differs_by_key_and_address_and_hides_the_key() {
        let [mark, other] = ["planted-one", "planted-two"].map(KeyMark::of);
        let one = key_account("openai", mark, "");
        assert_ne!(one, key_account("openai", other, ""));
        assert_ne!(one, key_account("openai", mark, "host:1"));
        assert!(!one.contains("planted"), "{one}");
        let named = key_account("openai", KeyMark(0x0a_bc12), "host:1");
        assert_eq!(named, "openai-abc12@host:1");
    }
}
