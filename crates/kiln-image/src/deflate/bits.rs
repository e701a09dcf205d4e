//! Writing deflate to the bit: blocks without content, which bring the next block to the bit it must begin at.

/// Bytes in the making: the first bit of a byte is its lowest.
#[derive(Debug, Clone, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not make a byte yet, and how many.
    pending: u32,
    count: u32,
}

impl BitWriter {
    /// How many bits the last byte has, 0 between bytes.
    pub fn phase(&self) -> u32 {
        self.count
    }

    /// Adds up to 24 bits, the lowest first.
    pub fn put(&mut self, bits: u32, count: u32) {
        self.pending |= (bits & ((1 << count) - 1)) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.pending as u8);
            self.pending >>= 8;
            self.count -= 8;
        }
    }

    /// Adds whole bytes. Between bytes only.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.count, 0);
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the bytes that are complete.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds nothing, or a stored block without content, which ends on a byte.
    pub fn align(&mut self) {
        if self.count > 0 {
            self.put(0, 3);
            if self.count > 0 {
                self.put(0, 8 - self.count);
            }
            self.put_bytes(&[0, 0, 0xff, 0xff]);
        }
    }

    /// Adds blocks without content until the next one begins at this bit of a byte.
    ///
    /// A fixed block without content has 10 bits and reaches every other bit. The dynamic one has 95; its codes are
    /// complete, because some inflaters refuse others.
    pub fn reach_phase(&mut self, phase: u32) {
        debug_assert!(phase < 8);
        if phase == 0 {
            return self.align();
        }
        if (self.count ^ phase) & 1 == 1 {
            self.put_empty_dynamic_block();
        }
        while self.count != phase {
            self.put(0b010, 3);
            self.put(0, 7);
        }
    }

    fn put_empty_dynamic_block(&mut self) {
        self.put(0b100, 3);
        self.put(0, 5); // 257 literals and lengths
        self.put(1, 5); // 2 distances
        self.put(15, 4); // 19 lengths of the code for code lengths, in deflate's own order:
        for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
            self.put(u32::from(symbol == 1 || symbol == 18), 3);
        }
        // 1 is now written as 0, and 18 (zeros) as 1.
        for zeros in [138, 117] {
            self.put(1, 1);
            self.put(zeros - 11, 7);
        }
        self.put(0, 4); // symbols 255, 256, distances 0 and 1 have one bit each
        self.put(1, 1); // 256, the end
    }
}
