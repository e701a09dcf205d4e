//! The two checksums of ext4: CRC-32C (metadata_csum) and CRC-16 (uninit_bg).
//!
//! ext4 keeps the running value of CRC-32C, without the inversion at the end that other users of it apply.

/// Continues a CRC-32C. ext4 starts with all ones or with a value derived from the filesystem.
pub(super) fn crc32c(mut crc: u32, bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        let mixed = u64::from_le_bytes(eight) ^ u64::from(crc);
        crc = 0;
        for (table, byte) in CRC32C.iter().rev().zip(mixed.to_le_bytes()) {
            crc ^= table[usize::from(byte)];
        }
    }
    for byte in words.remainder() {
        crc = CRC32C[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    }
    crc
}

/// Continues a CRC-16 (reflected, polynomial 0x8005).
pub(super) fn crc16(mut crc: u16, bytes: &[u8]) -> u16 {
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0xA001 } else { 0 };
        }
    }
    crc
}

/// Table `n` advances a byte over `n` zero bytes, so that eight bytes are taken at once.
const CRC32C: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_values_come_out() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(crc32c(!0, b"0123456789a"), b"bcdefghijklmnop"), crc32c(!0, b"0123456789abcdefghijklmnop"));
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }
}
