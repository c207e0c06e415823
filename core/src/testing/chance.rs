use std::sync::{Mutex, PoisonError};

use crate::chance::{Chance, ChanceError};

/// Chance from a seed: the same seed draws the same bits. Not for secrets.
#[derive(Debug)]
pub struct SeededChance {
    state: Mutex<u64>,
}

impl SeededChance {
    /// Draws from `seed` on.
    pub const fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }

    /// The next 64 bits, by SplitMix64.
    pub fn next_u64(&self) -> u64 {
        // Adding leaves nothing half done.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

impl Chance for SeededChance {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), ChanceError> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}
