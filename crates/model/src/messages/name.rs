//! Names: of a queue, a key, the idempotency key of a put, and the holder of a lease.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::Invalid;
use crate::text::excerpt;

/// A queue's name: 1–200 of `A-Za-z0-9-+/;.$_():@`, not starting with `-`, not `.` or `..`.
///
/// The alphabet is that of beanstalkd, plus `:` and `@`, so that every tube name is a queue name. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 200;
    /// What names of queues that are dwell's own begin with. Over the network those queues can only be read; a program that has the
    /// store itself may do anything with them.
    pub const RESERVED: &str = "dwell:";

    /// Checks `name`.
    ///
    /// # Errors
    /// [`Invalid::InvalidQueueName`].
    pub fn new(name: &str) -> Result<QueueName, Invalid> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-+/;.$_():@".contains(&byte);
        let valid = (1..=QueueName::MAX_LEN).contains(&name.len())
            && name.bytes().all(allowed)
            && !name.starts_with('-')
            && name != "."
            && name != "..";
        if valid {
            Ok(QueueName(name.into()))
        } else {
            Err(Invalid::InvalidQueueName { name: excerpt(name) })
        }
    }

    /// Whether the queue is dwell's own.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(QueueName::RESERVED)
    }

    /// Copies the name into a new allocation.
    ///
    /// Clones of the copy do not share a reference count with clones of the original, so that cloning and dropping them
    /// on two processors does not contend.
    #[must_use]
    pub fn to_unshared(&self) -> QueueName {
        QueueName(Arc::from(&*self.0))
    }
}

/// The caller's own name for a message, unique in its queue among live messages: 1–512 bytes of UTF-8.
///
/// Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 512;

    /// Checks `key`.
    ///
    /// # Errors
    /// [`Invalid::InvalidKey`] if it is empty or too long.
    pub fn new(key: &str) -> Result<Key, Invalid> {
        if (1..=Key::MAX_LEN).contains(&key.len()) {
            Ok(Key(key.into()))
        } else {
            Err(Invalid::InvalidKey { len: key.len(), limit: Key::MAX_LEN })
        }
    }
}

/// The caller's idempotency key for a put, which makes a retried put harmless: 1–256 characters of visible ASCII.
///
/// Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 256;

    /// Checks `idempotency_key`.
    ///
    /// # Errors
    /// [`Invalid::InvalidIdempotencyKey`] if it is empty, too long, or contains anything but visible ASCII.
    pub fn new(idempotency_key: &str) -> Result<IdempotencyKey, Invalid> {
        if (1..=IdempotencyKey::MAX_LEN).contains(&idempotency_key.len())
            && idempotency_key.bytes().all(|byte| byte.is_ascii_graphic())
        {
            Ok(IdempotencyKey(idempotency_key.into()))
        } else {
            Err(Invalid::InvalidIdempotencyKey {
                text: excerpt(idempotency_key),
                limit: IdempotencyKey::MAX_LEN,
            })
        }
    }
}

/// The holder of a lease, as named by its take: 1–128 bytes of UTF-8 without control characters.
///
/// It is displayed to users, and compared with nothing.
///
/// Cloning is cheap. It is one pointer wide, not two: it keeps [`Standing`](crate::Standing) small.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<String>);

impl Holder {
    /// The maximum length in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks `holder`.
    ///
    /// # Errors
    /// [`Invalid::InvalidHolder`] if it is empty, too long, or has control characters.
    pub fn new(holder: &str) -> Result<Holder, Invalid> {
        if (1..=Holder::MAX_LEN).contains(&holder.len()) && !holder.chars().any(char::is_control) {
            Ok(Holder(Arc::new(holder.to_owned())))
        } else {
            Err(Invalid::InvalidHolder { text: excerpt(holder), limit: Holder::MAX_LEN })
        }
    }
}

macro_rules! text_newtype {
    ($name:ident) => {
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<$name, Invalid> {
                $name::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Invalid;

            fn try_from(text: &str) -> Result<$name, Invalid> {
                $name::new(text)
            }
        }

        impl TryFrom<&String> for $name {
            type Error = Invalid;

            fn try_from(text: &String) -> Result<$name, Invalid> {
                $name::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<$name, Invalid> {
                $name::new(&text)
            }
        }

        impl From<&$name> for $name {
            fn from(name: &$name) -> $name {
                name.clone()
            }
        }
    };
}

text_newtype!(QueueName);
text_newtype!(Key);
text_newtype!(IdempotencyKey);
text_newtype!(Holder);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names_follow_the_alphabet() {
        for good in ["a", "orders", "a/b;c.d$e_f(g):h@i+j-k", "...", &"x".repeat(200)] {
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", ".", "..", "a b", "ä", "a\n", "a{b}", &"x".repeat(201)] {
            assert!(QueueName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_idempotency_keys_and_holders_have_bounds() {
        assert!(Key::new("заказ 7").is_ok());
        assert!(Key::new("").is_err());
        assert!(Key::new(&"k".repeat(513)).is_err());
        assert!(IdempotencyKey::new("file:1").is_ok());
        assert!(IdempotencyKey::new("two words").is_err());
        assert!(IdempotencyKey::new("").is_err());
        assert!(IdempotencyKey::new(&"t".repeat(257)).is_err());
        assert!(Holder::new("worker 7 на хосте").is_ok());
        assert!(Holder::new(&"h".repeat(128)).is_ok());
        for bad in ["", "a\nb", "\u{7f}", &"h".repeat(129)] {
            assert_eq!(Holder::new(bad).unwrap_err().code(), "invalid_holder", "{bad}");
        }
    }
}
