//! The names of lease holders: each name is stored once, however many leases have it.
//!
//! A worker passes its name with every take, so a hundred thousand leases may have the same one.

use std::collections::BTreeMap;

use dwell_model::Holder;

/// The names of the leases in force, with the number of leases of each.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<Holder, u32>);

impl Holders {
    /// Counts a lease, and returns its name in memory shared by all leases that have it.
    pub(super) fn count_in(&mut self, holder: Holder) -> Holder {
        if let Some((known, count)) = self.0.range_mut(&holder..=&holder).next() {
            *count += 1;
            return known.clone();
        }
        self.0.insert(holder.clone(), 1);
        holder
    }

    /// Counts a lease that has ended.
    pub(super) fn count_out(&mut self, holder: &Holder) {
        let Some(count) = self.0.get_mut(holder) else { unreachable!("only what was counted is let go") };
        *count -= 1;
        if *count == 0 {
            self.0.remove(holder);
        }
    }

    /// The number of leases with a name.
    pub(super) fn leases(&self) -> usize {
        self.0.values().map(|count| *count as usize).sum()
    }

    /// The number of names.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once_and_goes_with_its_last_lease() {
        let mut holders = Holders::default();
        let name = |text: &str| Holder::new(text).unwrap();
        let first = holders.count_in(name("worker 1"));
        let second = holders.count_in(name("worker 1"));
        assert_eq!(first.as_str().as_ptr(), second.as_str().as_ptr(), "one text");
        holders.count_in(name("worker 2"));
        assert_eq!((holders.len(), holders.leases()), (2, 3));
        holders.count_out(&first);
        assert_eq!((holders.len(), holders.leases()), (2, 2));
        holders.count_out(&second);
        assert_eq!((holders.len(), holders.leases()), (1, 1));
    }
}
