//! The manifest: read only if it is what somebody wrote.

use std::path::Path;

use super::input::Input;
use crate::disk::MemoryDisk;
use crate::journal::format::u32_at;
use crate::manifest::{FILE, Manifest};

/// The first byte says whether the checksum is made right; then comes the file.
pub fn manifest(data: &[u8]) {
    let mut input = Input::new(data);
    let is_right = input.u8() & 1 == 1;
    let mut bytes = input.rest().to_vec();
    if let (true, Some(fields)) = (is_right, bytes.get(..60)) {
        let checksum = crc32fast::hash(fields);
        bytes.resize(bytes.len().max(64), 0);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    }
    let dir = Path::new("/data");
    let disk = MemoryDisk::new();
    disk.put_file(&dir.join(FILE), bytes.clone());
    match Manifest::read(&disk, dir) {
        Ok(manifest) => {
            assert_eq!(bytes.len(), 64);
            assert_eq!(crc32fast::hash(&bytes[..60]), u32_at(&bytes, 60), "a wrong checksum passed");
            manifest.write(&disk, dir).expect("this disk does not fail");
            assert_eq!(disk.read_file(&dir.join(FILE)), Some(bytes), "a manifest has one form");
        }
        Err(error) => assert!(matches!(error.code(), "damaged" | "newer_format"), "{error}"),
    }
}
