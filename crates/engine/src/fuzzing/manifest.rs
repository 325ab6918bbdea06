//! The manifest: read only if it is what somebody wrote.

use std::path::Path;

use super::input::Input;
use crate::disk::MemoryDisk;
use crate::journal::format::u32_at;
use crate::manifest::{FILE, Manifest};

/// The first byte says whether length and checksums are made right; then comes the file.
pub fn manifest(data: &[u8]) {
    let mut input = Input::new(data);
    let is_right = input.u8() & 1 == 1;
    let mut bytes = input.rest().to_vec();
    if is_right && bytes.len() >= 60 {
        bytes.resize(bytes.len().max(64), 0);
        if bytes[8] > 1 {
            let (len, checksum) = (bytes.len() as u64 - 64, crc32fast::hash(&bytes[64..]));
            bytes[48..56].copy_from_slice(&len.to_le_bytes());
            bytes[56..60].copy_from_slice(&checksum.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    }
    let dir = Path::new("/data");
    let disk = MemoryDisk::new();
    disk.put_file(&dir.join(FILE), bytes.clone());
    match Manifest::read(&disk, dir) {
        Ok(manifest) => {
            assert!(bytes.len() == 64 || bytes[8] > 1, "the first format has one part");
            assert_eq!(crc32fast::hash(&bytes[..60]), u32_at(&bytes, 60), "a wrong checksum passed");
            manifest.write(&disk, dir).expect("this disk does not fail");
            let again = Manifest::read(&disk, dir).expect("what was written is read");
            assert_eq!(again, manifest, "what was written is what was read");
            if bytes[8] > 1 {
                assert_eq!(disk.read_file(&dir.join(FILE)), Some(bytes), "a manifest has one form");
            }
        }
        Err(error) => assert!(matches!(error.code(), "damaged" | "newer_format"), "{error}"),
    }
}
