use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What a lease is on: 1 to 512 bytes of UTF-8 without NUL.
///
/// Keys are compared byte by byte, on every store: `Job`, `job` and `job/` are three keys, and no store folds case,
/// normalises Unicode or trims. Cloning is cheap.
///
/// ```
/// use leasehold::LeaseKey;
///
/// let key: LeaseKey = "billing/nightly-report".parse()?;
/// assert_eq!(key.as_str(), "billing/nightly-report");
/// assert!(LeaseKey::new("").is_err());
/// # Ok::<(), leasehold::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey(Arc<str>);

impl LeaseKey {
    /// The longest key, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 512;

    /// Takes `text` as a key.
    ///
    /// # Errors
    /// [`KeyError`] when `text` is empty, longer than [`LeaseKey::MAX_BYTES`] or holds a NUL.
    pub fn new(text: impl AsRef<str>) -> Result<Self, KeyError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(KeyError::TooLong { bytes: text.len() });
        }
        if let Some(at) = text.bytes().position(|byte| byte == 0) {
            return Err(KeyError::Nul { at });
        }
        Ok(Self(Arc::from(text)))
    }

    /// The key's text, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LeaseKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for LeaseKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for LeaseKey {
    /// The key's text with control characters escaped, so that a key cannot write to a terminal or forge a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if character.is_control() {
                fmt::Display::fmt(&character.escape_default(), f)?;
            } else {
                fmt::Write::write_char(f, character)?;
            }
        }
        Ok(())
    }
}

impl FromStr for LeaseKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl TryFrom<&str> for LeaseKey {
    type Error = KeyError;

    fn try_from(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl TryFrom<String> for LeaseKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for LeaseKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for LeaseKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        Self::new(text).map_err(serde::de::Error::custom)
    }
}

/// A text that cannot be a [`LeaseKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no text.
    #[error("a lease key must not be empty: name what the lease is on, for example `nightly-report`")]
    Empty,
    /// A NUL, which several stores cannot keep.
    #[error("a lease key must not hold a NUL character (found at byte {at}): use a printable separator")]
    Nul {
        /// Byte offset of the first NUL.
        at: usize,
    },
    /// More than [`LeaseKey::MAX_BYTES`].
    #[error(
        "a lease key takes at most 512 bytes of UTF-8 and this one has {bytes}: shorten it, or use a hash of it"
    )]
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_exact() {
        assert_eq!(LeaseKey::new(""), Err(KeyError::Empty));
        assert!(LeaseKey::new("k".repeat(512)).is_ok());
        assert_eq!(LeaseKey::new("k".repeat(513)), Err(KeyError::TooLong { bytes: 513 }));
        // Bytes, not characters: 256 two-byte characters fit, one more does not.
        assert!(LeaseKey::new("é".repeat(256)).is_ok());
        assert_eq!(LeaseKey::new("é".repeat(257)), Err(KeyError::TooLong { bytes: 514 }));
        assert_eq!(LeaseKey::new("a\0b"), Err(KeyError::Nul { at: 1 }));
    }

    #[test]
    fn a_key_cannot_forge_a_log_line() {
        let key = LeaseKey::new("a\nlease held by root\u{1b}[2J").unwrap();
        assert_eq!(key.to_string(), "a\\nlease held by root\\u{1b}[2J");
        assert_eq!(key.as_str(), "a\nlease held by root\u{1b}[2J");
    }
}
