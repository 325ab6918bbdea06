//! The contract over HTTP: a server in this process, on the clock of the store behind it, and the client as the store under
//! test.
//!
//! The differences of HTTP are those that [`over::Over`] declares, and no others; `docs/http.md` lists them.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod dropped;
mod over;
mod stores;

/// A suite for one store behind HTTP, with the number of lives of the model, and the average number of calls in each.
macro_rules! over_http {
    ($name:ident, $store:ty, $lives:literal) => {
        mod $name {
            use dwell_model::Limits;

            use super::over::Over;

            fn open(limits: Limits) -> Over<$store> {
                Over::new(<$store>::open(limits))
            }

            dwell_store::conformance_suite!(open);

            #[test]
            fn behaves_as_the_model_does() {
                dwell_store::conformance::model::run(open, $lives, 100, 1);
            }
        }
    };
}

over_http!(memory, crate::stores::Memory, 60);
over_http!(engine, crate::stores::Files, 30);
over_http!(redis, crate::stores::Redis, 10);
