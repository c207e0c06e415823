use std::fmt;

use zeroize::Zeroize;

use crate::chance::{Chance, ChanceError};

/// 128 random bits that identify one grant. Secret: who knows it can renew and release.
///
/// A fresh one is drawn for every acquire call, so neither a restarted process nor one with the same holder label is ever
/// taken for the holder. `Debug` shows nothing of it, there is no `Display`, and the memory is wiped on drop.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Draws a fresh nonce.
    ///
    /// # Errors
    /// [`ChanceError`] when the source of randomness fails.
    pub fn draw(chance: &dyn Chance) -> Result<Self, ChanceError> {
        let mut bytes = [0; 16];
        chance.fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The nonce that these bytes of a record spell.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The nonce for the record of a store. Keep it out of logs and errors.
    pub const fn expose(&self) -> &[u8; 16] {
        &self.0
    }

    /// The nonce as 32 lower-case hexadecimal digits, for stores that keep text. Keep it out of logs and errors.
    pub fn expose_hex(&self) -> String {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
    }

    /// The nonce that 32 hexadecimal digits spell, or nothing if they spell none.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        Some(Self(bytes))
    }
}

impl Drop for Nonce {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(secret)")
    }
}

/// 64 random bits that mark one attempt: one request on the wire.
///
/// The record keeps the mark of the attempt that wrote it. So a holder finds out *which* of its attempts landed, and counts
/// its deadline from the sending of that one; and a mark that it never sent, under its own nonce, betrays a clone of its
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttemptId(u64);

impl AttemptId {
    /// Draws a fresh mark.
    ///
    /// # Errors
    /// [`ChanceError`] when the source of randomness fails.
    pub fn draw(chance: &dyn Chance) -> Result<Self, ChanceError> {
        let mut bytes = [0; 8];
        chance.fill(&mut bytes)?;
        // 63 bits: stores with signed columns keep the number as it is.
        Ok(Self(u64::from_le_bytes(bytes) >> 1))
    }

    /// The mark that a record holds. One that no attempt can have drawn is of no attempt of ours, which is all that matters.
    pub const fn from_record(number: u64) -> Self {
        Self(number)
    }

    /// The mark as a number below 2^63.
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_keeps_the_secret() {
        let nonce = Nonce::from_bytes([0xab; 16]);
        assert_eq!(format!("{nonce:?}"), "Nonce(secret)");
        assert_eq!(nonce.expose_hex(), "ab".repeat(16));
    }

    #[test]
    fn hexadecimal_text_is_read_exactly() {
        let nonce = Nonce::from_bytes(*b"0123456789abcdef");
        assert_eq!(Nonce::from_hex(&nonce.expose_hex()), Some(nonce));
        for text in ["", "ab", &"g".repeat(32), &"é".repeat(16), &"a".repeat(33)] {
            assert_eq!(Nonce::from_hex(text), None, "{text:?}");
        }
    }
}
