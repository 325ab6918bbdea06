//! Signals of a server: SIGTERM or SIGINT end it, the second one at once; SIGHUP makes it reload.

use std::io;

/// Waits for signals.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Registers the handlers: a signal that arrives before [`Signals::first`] is called is not lost.
    #[cfg(unix)]
    pub(crate) fn listen() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// As above, for other systems.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> io::Result<Signals> {
        Ok(Signals {})
    }

    /// The first signal. From then on, another one ends the process at once.
    pub(crate) async fn first(mut self) -> &'static str {
        let name = self.next().await;
        tokio::spawn(async move {
            self.next().await;
            // 128 + SIGINT, what shells show for an interrupted process.
            std::process::exit(130);
        });
        name
    }

    #[cfg(unix)]
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}

/// Waits for SIGHUP.
pub(crate) struct Hangups {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Hangups {
    /// Registers the handler: SIGHUP no longer ends the process, and none is lost.
    #[cfg(unix)]
    pub(crate) fn listen() -> io::Result<Hangups> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Hangups { hangup: signal(SignalKind::hangup())? })
    }

    /// As above, for other systems.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> io::Result<Hangups> {
        Ok(Hangups {})
    }

    /// The next one; several in short succession may be one.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        if self.hangup.recv().await.is_some() {
            return;
        }
        std::future::pending::<()>().await;
    }
}
