//! Signatures according to [Standard Webhooks](https://www.standardwebhooks.com): HMAC-SHA256 over id, time and body.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::{Error, Result};

/// The range of key lengths in bytes, from the specification.
const KEY_LEN: std::ops::RangeInclusive<usize> = 24..=64;
/// The prefix of a secret, which is optional.
const PREFIX: &str = "whsec_";

/// A secret that both sides know. No debug output shows it.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// Parses a secret: `whsec_` and base64 of 24 to 64 bytes. The prefix is optional, and white space around it is
    /// ignored.
    ///
    /// # Errors
    /// [`Error::InvalidSecret`], which does not show the text.
    pub fn parse(text: &str) -> Result<Secret> {
        let refuse = |reason: String| Error::InvalidSecret { reason: reason.into() };
        let text = text.trim();
        let encoded = text.strip_prefix(PREFIX).unwrap_or(text);
        let key = STANDARD
            .decode(encoded)
            .map_err(|_| refuse(format!("it is no base64; write {PREFIX} and base64 of 24 to 64 bytes")))?;
        if !KEY_LEN.contains(&key.len()) {
            return Err(refuse(format!("it has {} bytes once decoded; 24 to 64 are accepted", key.len())));
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// Reads a secret from `source`: `file:PATH`, or `env:NAME` for a variable of the environment.
    ///
    /// # Errors
    /// [`Error::UnreadableSecret`] if it is missing, [`Error::InvalidSecret`] if it is not a secret.
    pub fn load(source: &str) -> Result<Secret> {
        let unreadable = |reason: String| Error::UnreadableSecret {
            source_name: crate::error::excerpt(source),
            reason: reason.into(),
        };
        let text = match source.split_once(':') {
            Some(("file", path)) => {
                std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?
            }
            Some(("env", name)) => std::env::var(name).map_err(|error| unreadable(error.to_string()))?,
            // The text may be the secret itself, typed in the wrong place.
            _ => {
                return Err(Error::UnreadableSecret {
                    source_name: "…".into(),
                    reason: "write file:PATH or env:NAME".into(),
                });
            }
        };
        Secret::parse(&text)
    }
}

/// Two secrets are equal if they sign alike. ring does not expose the keys.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        hmac::sign(&self.0, PREFIX.as_bytes()).as_ref() == hmac::sign(&other.0, PREFIX.as_bytes()).as_ref()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The value of `webhook-signature`: one signature per secret, in order, so that a receiver finds the one it can check
/// while secrets rotate. `timestamp` is in seconds since 1970. Empty without a secret.
pub fn sign(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut value = String::new();
    for Secret(key) in secrets {
        let mut context = hmac::Context::with_key(key);
        context.update(id.as_bytes());
        context.update(format!(".{timestamp}.").as_bytes());
        context.update(body);
        let separator = if value.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = write!(value, "{separator}v1,{}", STANDARD.encode(context.sign()));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = b"{\"test\": 2432232314}";
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_reference_vector_is_signed() {
        for text in [SECRET, &SECRET[PREFIX.len()..], &format!(" {SECRET}\n")] {
            let secret = Secret::parse(text).unwrap();
            assert_eq!(sign(&[secret], ID, 1_614_265_330, BODY), SIGNATURE);
        }
    }

    #[test]
    fn secrets_that_rotate_sign_in_turn() {
        let new = Secret::parse(&format!("{PREFIX}{}", STANDARD.encode([7; 32]))).unwrap();
        let old = Secret::parse(SECRET).unwrap();
        let alone = sign(std::slice::from_ref(&new), ID, 1_614_265_330, BODY);
        assert_ne!(alone, SIGNATURE);
        assert_eq!(sign(&[new, old], ID, 1_614_265_330, BODY), format!("{alone} {SIGNATURE}"));
        assert_eq!(sign(&[], ID, 1, BODY), "");
    }

    #[test]
    fn secrets_are_the_same_if_their_keys_are() {
        let secret = |byte: u8| Secret::parse(&STANDARD.encode([byte; 32])).unwrap();
        assert_eq!(secret(7), Secret::parse(&format!("{PREFIX}{}", STANDARD.encode([7; 32]))).unwrap());
        assert_ne!(secret(7), secret(8));
    }

    #[test]
    fn id_time_and_body_all_count() {
        let secret = [Secret::parse(SECRET).unwrap()];
        assert_ne!(sign(&secret, "other", 1_614_265_330, BODY), SIGNATURE);
        assert_ne!(sign(&secret, ID, 1_614_265_331, BODY), SIGNATURE);
        assert_ne!(sign(&secret, ID, 1_614_265_330, b"{}"), SIGNATURE);
    }

    #[test]
    fn a_secret_that_is_none_is_refused_and_not_shown() {
        let cases = ["", "whsec_", "whsec_not base64!", &STANDARD.encode([1; 23]), &STANDARD.encode([1; 65])];
        for text in cases {
            let error = Secret::parse(text).unwrap_err();
            assert_eq!(error.code(), "invalid_secret");
            assert!(text.len() < 10 || !error.to_string().contains(text), "{error}");
        }
        assert_eq!(format!("{:?}", Secret::parse(SECRET).unwrap()), "Secret(…)");
    }

    #[test]
    fn a_secret_is_loaded_from_a_file_alone_or_from_the_environment() {
        for source in ["file:/there/is/no/such/file", "env:DWELL_TEST_NO_SUCH_VARIABLE", SECRET, ""] {
            let error = Secret::load(source).unwrap_err();
            assert_eq!(error.code(), "unreadable_secret", "{source}");
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
        // The crate's manifest is a file that exists and is not a secret.
        let manifest = concat!("file:", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(Secret::load(manifest).unwrap_err().code(), "invalid_secret");
    }
}
