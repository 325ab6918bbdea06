//! Tables, runs and sets of settled entries against plain lists, from random bytes: see `dwell_engine::fuzzing`.
//!
//! proptest prints the bytes that fail, shrunk, and keeps their seed beside this file: the next run begins with it.

use dwell_engine::fuzzing;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_table_is_a_sorted_list(bytes in vec(any::<u8>(), 0..3_000)) {
        fuzzing::table(&bytes);
    }

    #[test]
    fn a_run_is_a_sorted_map(bytes in vec(any::<u8>(), 0..3_000)) {
        fuzzing::index_run(&bytes);
    }

    #[test]
    fn a_set_of_settlements_is_a_list_of_bits(bytes in vec(any::<u8>(), 0..60)) {
        fuzzing::deletion_bitmap(&[&[1], &bytes[..]].concat());
    }

    #[test]
    fn any_file_with_right_checksums_is_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        fuzzing::sealed(&bytes);
    }
}
