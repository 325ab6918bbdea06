//! The model test.

pub use dwell_model::Limits;
