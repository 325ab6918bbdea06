//! JSON bodies, by serde.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body::{Body, IntoBody};
use crate::{Delivery, Error, Result};

/// A value to be the body of a message as JSON, with the content type `application/json`.
///
/// A borrowed value works too: `Json(&order)`. The reverse is [`Delivery::json`], which every job has.
///
/// ```
/// use std::sync::Arc;
/// use dwell_model::Limits;
/// use dwell_store::{Json, MemoryStore, Queue};
/// use dwell_time::SystemClock;
///
/// # pollster::block_on(async {
/// let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// let points = Queue::new(Arc::new(store), "points")?;
///
/// points.put(Json((3, 4))).await?;
/// let job = points.take().await?.expect("it is due at once");
/// let (x, y): (i32, i32) = job.json()?;
/// assert_eq!((x, y), (3, 4));
/// job.ack().await?;
/// # Ok::<(), dwell_store::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoBody for Json<T> {
    fn into_body(self) -> Result<Body> {
        let bytes = serde_json::to_vec(&self.0).map_err(|error| malformed(&error))?;
        Ok(Body::new(bytes).content_type("application/json"))
    }
}

impl Delivery {
    /// Deserialises the body as JSON. The content type is ignored.
    ///
    /// # Errors
    /// [`Error::MalformedBody`] if the body is not JSON, or not that of a `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.message.body).map_err(|error| malformed(&error))
    }
}

fn malformed(error: &serde_json::Error) -> Error {
    Error::MalformedBody { form: "JSON", reason: error.to_string().into() }
}
