//! The answers to a batch, which must not be ignored.

use std::ops::Deref;

use crate::{Error, Result};

/// One answer per item, in the order of the items: an item that is refused fails alone, and the others have
/// taken effect all the same.
///
/// It dereferences to a slice of results. [`all`](Answers::all) returns all answers or the first error.
///
/// ```
/// # use std::sync::Arc;
/// # use dwell_model::Limits;
/// # use dwell_store::{MemoryStore, Queue};
/// # use dwell_time::SystemClock;
/// # pollster::block_on(async {
/// # let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// # let orders = Queue::new(Arc::new(store), "orders")?;
/// for put in orders.put_many(["one", "two"]).await.all()? {
///     println!("{} is due {}", put.id, put.due);
/// }
///
/// let answers = orders.put_many([orders.put("three"), orders.put("four").key("")]).await;
/// assert!(answers[0].is_ok());
/// assert_eq!(answers.errors().map(|error| error.code()).collect::<Vec<_>>(), ["invalid_key"]);
/// # Ok::<(), dwell_store::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an item may have been refused: look at the answers, or at `all()` of them"]
pub struct Answers<T>(Vec<Result<T>>);

impl<T> Answers<T> {
    /// All answers, if nothing was refused.
    ///
    /// # Errors
    /// The first refusal in the order of the items. Items before and after it have taken effect if they were
    /// not refused too.
    pub fn all(self) -> Result<Vec<T>> {
        self.0.into_iter().collect()
    }

    /// The refusals, in the order of the items.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.0.iter().filter_map(|answer| answer.as_ref().err())
    }

    /// The answers, in the order of the items.
    pub fn into_vec(self) -> Vec<Result<T>> {
        self.0
    }
}

impl<T> From<Vec<Result<T>>> for Answers<T> {
    fn from(answers: Vec<Result<T>>) -> Answers<T> {
        Answers(answers)
    }
}

impl<T> Deref for Answers<T> {
    type Target = [Result<T>];

    fn deref(&self) -> &[Result<T>] {
        &self.0
    }
}

impl<T> IntoIterator for Answers<T> {
    type Item = Result<T>;
    type IntoIter = std::vec::IntoIter<Result<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Answers<T> {
    type Item = &'a Result<T>;
    type IntoIter = std::slice::Iter<'a, Result<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
