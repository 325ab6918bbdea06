//! What a store can be made of, so that who has one open hands it over as it is.

use std::sync::Arc;

use dwell_store::Store;

/// A store, or what has one.
pub trait IntoStore {
    /// The store.
    fn into_store(self) -> Arc<dyn Store>;
}

impl IntoStore for Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl<S: Store + 'static> IntoStore for Arc<S> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl<S: IntoStore + Clone> IntoStore for &S {
    fn into_store(self) -> Arc<dyn Store> {
        self.clone().into_store()
    }
}
