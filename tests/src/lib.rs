//! Rules that hold over the whole workspace, kept by tests.
//!
//! # Layout
//! - `packages`: which crate may depend on which, and what every crate's manifest says
//! - `sources`: what every source file opens with, and what only some may name
//! - `folders`: the folders inside a crate have no dependency cycles
//! - `error_pages`: every error code has a page in `docs/errors/`, and every page a code
//! - `bad_input`: every test that `docs/bad-input.md` names is there
//! - `links`: links between documents lead somewhere
//! - `workspace`: reading the above: `cargo metadata`, and files

#![cfg(test)]

mod bad_input;
mod error_pages;
mod folders;
mod links;
mod packages;
mod sources;
mod workspace;
