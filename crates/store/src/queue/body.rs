//! Types that can be the body of a message: bytes, text, or a value as JSON.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{Headers, QueueName};

use crate::{Put, Result};

/// The header with the body's content type. Its name is compared case-insensitively, as in HTTP, and stored
/// like this.
pub(super) const CONTENT_TYPE: &str = "content-type";

/// The bytes of a message's body, and their content type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    bytes: Bytes,
    content_type: Option<&'static str>,
}

impl Body {
    /// A body of `bytes`, with no content type.
    pub fn new(bytes: impl Into<Bytes>) -> Body {
        Body { bytes: bytes.into(), content_type: None }
    }

    /// Sets the content type, such as `application/json`. The message gets it as its header `content-type`.
    #[must_use]
    pub fn content_type(self, content_type: &'static str) -> Body {
        Body { content_type: Some(content_type), ..self }
    }

    /// A put of this body into `queue`, due at once.
    pub(super) fn into_put(self, queue: QueueName) -> Result<Put> {
        let mut put = Put::new(queue, self.bytes);
        if let Some(content_type) = self.content_type {
            put.headers = Headers::new([(CONTENT_TYPE, content_type)])?;
        }
        Ok(put)
    }
}

/// A value that can be the body of a message.
///
/// Owned values ([`Bytes`], `Vec<u8>`, `String`, `Box<[u8]>`) and `&Bytes` are not copied. Borrowed and
/// shared ones (`&str`, `&[u8]`, `Arc<str>`) and arrays are copied once. `Json` (feature `json`) serialises
/// any value that serde supports. Implement the trait for other formats:
///
/// ```
/// use dwell_store::{Body, IntoBody, Result};
///
/// struct Celsius(f32);
///
/// impl IntoBody for Celsius {
///     fn into_body(self) -> Result<Body> {
///         Ok(Body::new(self.0.to_be_bytes().to_vec()).content_type("application/x-celsius"))
///     }
/// }
/// ```
pub trait IntoBody {
    /// Converts the value to a body.
    ///
    /// # Errors
    /// [`Error::MalformedBody`](crate::Error::MalformedBody) if the value cannot be converted.
    fn into_body(self) -> Result<Body>;
}

impl IntoBody for Body {
    fn into_body(self) -> Result<Body> {
        Ok(self)
    }
}

macro_rules! owned_bodies {
    ($($owned:ty),*) => {$(
        impl IntoBody for $owned {
            fn into_body(self) -> Result<Body> {
                Ok(Body::new(self))
            }
        }
    )*};
}

owned_bodies!(Bytes, Vec<u8>, String, Box<[u8]>);

macro_rules! borrowed_bodies {
    ($($borrowed:ty),*) => {$(
        impl IntoBody for &$borrowed {
            fn into_body(self) -> Result<Body> {
                let bytes: &[u8] = self.as_ref();
                Ok(Body::new(Bytes::copy_from_slice(bytes)))
            }
        }
    )*};
}

borrowed_bodies!(str, String, [u8], Vec<u8>);

impl IntoBody for &Bytes {
    fn into_body(self) -> Result<Body> {
        self.clone().into_body()
    }
}

impl IntoBody for Arc<str> {
    fn into_body(self) -> Result<Body> {
        let text: &str = &self;
        text.into_body()
    }
}

impl IntoBody for Cow<'_, str> {
    fn into_body(self) -> Result<Body> {
        match self {
            Cow::Borrowed(text) => text.into_body(),
            Cow::Owned(text) => text.into_body(),
        }
    }
}

impl<const N: usize> IntoBody for [u8; N] {
    fn into_body(self) -> Result<Body> {
        self.as_slice().into_body()
    }
}

impl<const N: usize> IntoBody for &[u8; N] {
    fn into_body(self) -> Result<Body> {
        self.as_slice().into_body()
    }
}
