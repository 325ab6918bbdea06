//! Headers: a small map of text to text that travels with a message.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Invalid;
use crate::text::excerpt;

/// Names and values, 16 KiB in all. The content type of the body is the header `content-type`.
///
/// Names are case-sensitive. Cloning is cheap, and empty headers take eight bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Headers(Option<Arc<BTreeMap<Box<str>, Box<str>>>>);

impl Headers {
    /// The maximum length of all names and values together, in bytes.
    pub const MAX_LEN: usize = 16 * 1024;

    /// Checks and collects `pairs`; of equal names the last one wins.
    ///
    /// # Errors
    /// [`Invalid::InvalidHeader`] for a name that is not an HTTP token of 1–200 characters or a value with control
    /// characters, [`Invalid::HeadersTooLarge`] past [`Headers::MAX_LEN`].
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Headers, Invalid> {
        let mut map = BTreeMap::new();
        for (name, value) in pairs {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let valid_name = (1..=200).contains(&name.len()) && name.bytes().all(token);
            if !valid_name || value.chars().any(|c| c.is_control() && c != '\t') {
                return Err(Invalid::InvalidHeader { name: excerpt(name) });
            }
            map.insert(Box::from(name), Box::from(value));
        }
        if map.is_empty() {
            return Ok(Headers(None));
        }
        let headers = Headers(Some(Arc::new(map)));
        let len = headers.size();
        if len > Headers::MAX_LEN {
            return Err(Invalid::HeadersTooLarge { len, limit: Headers::MAX_LEN });
        }
        Ok(headers)
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(|value| &**value)
    }

    /// All pairs, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|map| map.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The length of all names and values in bytes.
    pub fn size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_it_was_given_and_refuses_the_rest() {
        let headers = Headers::new([("content-type", "text/plain"), ("x", "é")]).unwrap();
        assert_eq!(headers.get("content-type"), Some("text/plain"));
        assert_eq!(headers.iter().count(), 2);
        assert!(Headers::new([]).unwrap().is_empty());
        assert!(Headers::new([("", "v")]).is_err());
        assert!(Headers::new([("a b", "v")]).is_err());
        assert!(Headers::new([("a", "v\r\nb: c")]).is_err());
        assert!(Headers::new([("a", "v".repeat(Headers::MAX_LEN).as_str())]).is_err());
    }
}
