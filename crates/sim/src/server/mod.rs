//! The real server as a child process: started on a free port, killed without warning, started again.

mod child;
mod gate;

pub(crate) use child::{Binary, Server};
pub(crate) use gate::{ClientGate, OverOnDrop, Pass};
