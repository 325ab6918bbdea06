//! Why a listener is not opened.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Why a listener could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process listens on the address.
    #[error(
        "{address} is in use: another process listens there; stop it, or listen on another port \
         (port 0 finds a free one)"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The operating system does not allow it.
    #[error("{address} is not permitted for this user; choose a port above 1023")]
    Denied {
        /// The address.
        address: SocketAddr,
    },
    /// The address is not one of this machine's.
    #[error("{address} is no address of this machine; listen on 127.0.0.1, or on an address it has")]
    NotOurs {
        /// The address.
        address: SocketAddr,
    },
    /// Other machines could reach it, and any caller could do anything.
    #[error(
        "{address} can be reached from other machines, and nobody who calls there would be asked who they \
         are; configure tokens, listen on 127.0.0.1, or say that it is meant so"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// Any other error.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
}

impl BindError {
    /// The stable code of this kind: a word that programs may match on.
    pub fn code(&self) -> &'static str {
        match self {
            BindError::InUse { .. } => "address_in_use",
            BindError::Denied { .. } => "address_denied",
            BindError::NotOurs { .. } => "address_not_ours",
            BindError::Exposed { .. } => "listener_exposed",
            BindError::Io { .. } => "address_failed",
        }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        match self {
            BindError::InUse { address }
            | BindError::Denied { address }
            | BindError::NotOurs { address }
            | BindError::Exposed { address }
            | BindError::Io { address, .. } => *address,
        }
    }

    pub(super) fn new(address: SocketAddr, source: io::Error) -> BindError {
        match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { address },
            io::ErrorKind::PermissionDenied => BindError::Denied { address },
            io::ErrorKind::AddrNotAvailable => BindError::NotOurs { address },
            _ => BindError::Io { address, source },
        }
    }
}
