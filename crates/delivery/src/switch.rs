//! A switch that pauses lanes, with a reason.

use std::sync::Arc;

use tokio::sync::watch;

/// Pauses and resumes the lanes that share it. Clones are the same switch.
///
/// A paused lane takes nothing. Messages that it had taken before are handled.
#[derive(Clone, Debug)]
pub struct Switch(Arc<watch::Sender<Option<Arc<str>>>>);

impl Switch {
    /// A switch that is not paused.
    pub fn new() -> Switch {
        Switch(Arc::new(watch::Sender::new(None)))
    }

    /// Pauses. If it is paused already, the earlier reason stays.
    pub fn pause(&self, reason: &str) {
        self.0.send_if_modified(|paused| {
            let changes = paused.is_none();
            paused.get_or_insert_with(|| reason.into());
            changes
        });
    }

    /// Pauses, and sets the reason also where there is an earlier one.
    pub fn pause_anew(&self, reason: &str) {
        self.0.send_if_modified(|paused| paused.replace(reason.into()).as_deref() != Some(reason));
    }

    /// Lets the lanes go on.
    pub fn resume(&self) {
        self.0.send_if_modified(|paused| paused.take().is_some());
    }

    /// The reason, if it is paused.
    pub fn paused(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Waits until it is paused, and returns the reason.
    pub async fn until_paused(&self) -> Arc<str> {
        let mut changes = self.changes();
        loop {
            if let Some(reason) = changes.borrow_and_update().clone() {
                return reason;
            }
            // `self` has the sender, so it is never dropped.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until it is not paused.
    pub async fn until_resumed(&self) {
        // `self` has the sender, so it is never dropped.
        if self.changes().wait_for(Option::is_none).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// A receiver of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.0.subscribe()
    }
}

impl Default for Switch {
    fn default() -> Switch {
        Switch::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn the_first_reason_stays_until_it_is_resumed() {
        let switch = Switch::new();
        let clone = switch.clone();
        assert_eq!(clone.paused(), None);
        switch.pause("gone");
        switch.pause("again");
        assert_eq!(clone.paused().as_deref(), Some("gone"));
        switch.pause_anew("by hand");
        assert_eq!(clone.paused().as_deref(), Some("by hand"));
        clone.resume();
        assert_eq!(switch.paused(), None);
    }

    #[tokio::test]
    async fn who_waits_for_a_pause_or_its_end_is_woken_by_a_clone() {
        const PATIENCE: Duration = Duration::from_secs(60);
        let switch = Switch::new();
        let clone = switch.clone();
        let paused = timeout(PATIENCE, tokio::spawn(async move { clone.until_paused().await }));
        tokio::task::yield_now().await;
        switch.pause("gone");
        assert_eq!(&*paused.await.unwrap().unwrap(), "gone");
        let clone = switch.clone();
        let resumed = timeout(PATIENCE, tokio::spawn(async move { clone.until_resumed().await }));
        tokio::task::yield_now().await;
        switch.resume();
        resumed.await.unwrap().unwrap();
    }
}
