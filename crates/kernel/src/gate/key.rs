//! The key of a gate: provider, address, account and model.

use std::borrow::Cow;

/// Returns the key of the gate that all calls of an account to a model share. `address` tells the provider from others with
/// the same name.
pub fn gate_key(provider: &str, address: &str, account: &str, model: &str) -> String {
    let [provider, address, account] = [provider, address, account].map(escape);
    format!("{provider}@{address}/{account}/{model}")
}

/// Returns the account in the key of a gate.
pub fn gate_key_account(key: &str) -> Option<String> {
    let account = key.split('/').nth(1)?;
    Some(account.replace("%2F", "/").replace("%25", "%"))
}

/// Returns the name of the account that a key stands for where no account is configured: another key is another account, and
/// so is the same key at another address. Nobody can guess the key from it.
pub fn key_account(provider: &str, key: &str, address: &str) -> String {
    let mark = fingerprint(key);
    match address {
        "" => format!("{provider}-{mark:05x}"),
        address => format!("{provider}-{mark:05x}@{address}"),
    }
}

/// Returns a few bits that tell keys apart (FNV-1a, folded to 20 bits).
fn fingerprint(key: &str) -> u64 {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 40 ^ hash >> 20 ^ hash) & 0xf_ffff
}

/// Escapes the separator; the model comes last and needs no escape.
fn escape(part: &str) -> Cow<'_, str> {
    match part.contains(['/', '%']) {
        true => Cow::Owned(part.replace('%', "%25").replace('/', "%2F")),
        false => Cow::Borrowed(part),
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
        let one = key_account("openai", "planted-one", "");
        assert_ne!(one, key_account("openai", "planted-two", ""));
        assert_ne!(one, key_account("openai", "planted-one", "host:1"));
        assert!(!one.contains("planted"), "{one}");
    }
}
