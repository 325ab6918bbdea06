//! The answers to a call of many items: one an item, in order.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::transport::Call;
use crate::{Client, Error, Problem, Result};

/// The answer to one item.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer<T> {
    Refused { error: Box<Problem> },
    Done(T),
}

impl<T> From<Answer<T>> for Result<T> {
    fn from(answer: Answer<T>) -> Result<T> {
        match answer {
            Answer::Refused { error } => Err(Error::Refused(error)),
            Answer::Done(done) => Ok(done),
        }
    }
}

#[derive(Deserialize)]
struct Answers<T> {
    answers: Vec<Answer<T>>,
}

impl Client {
    /// Sends `call` of so many items. Where it failed as a whole, each item fails with its error.
    pub(crate) fn send_items<T: DeserializeOwned>(&self, call: &Call, items: usize) -> Vec<Result<T>> {
        let answers = self.send::<Answers<T>>(call).and_then(|answers| {
            if answers.answers.len() == items {
                Ok(answers.answers)
            } else {
                Err(self.bad_answer("it does not answer each item"))
            }
        });
        match answers {
            Ok(answers) => answers.into_iter().map(Result::from).collect(),
            Err(error) => (0..items).map(|_| Err(error.clone())).collect(),
        }
    }
}
