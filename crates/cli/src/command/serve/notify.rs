//! Notifies systemd of the server's state: `sd_notify(3)`, where `NOTIFY_SOCKET` is set.

/// A notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotifyState {
    /// It serves.
    Ready,
    /// It reloads its configuration, and serves meanwhile.
    Reloading,
    /// It finishes requests in progress and ends.
    Stopping,
}

impl NotifyState {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "systemd is Linux's"))]
    const fn message(self) -> &'static str {
        match self {
            NotifyState::Ready => "READY=1\nSTATUS=serving",
            NotifyState::Reloading => "STATUS=reloading",
            NotifyState::Stopping => "STOPPING=1\nSTATUS=draining",
        }
    }
}

/// Sends it. A missing listener is not a failure.
#[cfg(target_os = "linux")]
pub(crate) fn tell(state: NotifyState) {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let _ = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(state.message().as_bytes(), &address)
    });
}

/// Other systems have no systemd.
#[cfg(not(target_os = "linux"))]
pub(crate) fn tell(_: NotifyState) {}
