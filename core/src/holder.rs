use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A label for people: who holds a lease. Never part of a condition.
///
/// Two processes with the same label are two holders. 1 to 256 bytes of UTF-8 without control characters. The default is
/// `host:pid`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Holder(Arc<str>);

impl Holder {
    /// The longest label, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 256;

    /// Takes `text` as a label.
    ///
    /// # Errors
    /// [`HolderError`] when `text` is empty, longer than [`Holder::MAX_BYTES`] or holds a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Self, HolderError> {
        let text = text.as_ref();
        if text.is_empty() || text.len() > Self::MAX_BYTES || text.chars().any(char::is_control) {
            return Err(HolderError { bytes: text.len() });
        }
        Ok(Self(Arc::from(text)))
    }

    /// A label read from a record that somebody else may have written: control characters become `?`, what is too long is
    /// cut, nothing becomes `?`. A label decides nothing, so an odd one must not make a record unreadable.
    pub fn from_record(text: &str) -> Self {
        let mut clean = String::new();
        for character in text.chars().map(|c| if c.is_control() { '?' } else { c }) {
            if clean.len() + character.len_utf8() > Self::MAX_BYTES {
                break;
            }
            clean.push(character);
        }
        if clean.is_empty() {
            clean.push('?');
        }
        Self(Arc::from(clean))
    }

    /// The label's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Holder {
    /// `host:pid` of this process.
    fn default() -> Self {
        Self::from_record(&format!("{}:{}", host_name(), std::process::id()))
    }
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| String::from("unknown-host"))
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Holder {
    type Err = HolderError;

    fn from_str(text: &str) -> Result<Self, HolderError> {
        Self::new(text)
    }
}

/// A text that cannot be a [`Holder`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a holder label takes 1 to 256 bytes of UTF-8 without control characters and this one has {bytes} bytes"
)]
pub struct HolderError {
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_label_is_made_printable_and_short() {
        assert_eq!(Holder::from_record("").as_str(), "?");
        assert_eq!(Holder::from_record("a\nb\u{1b}[2J").as_str(), "a?b?[2J");
        assert_eq!(Holder::from_record(&"é".repeat(300)).as_str(), "é".repeat(128));
        for odd in ["", "a\nb", &"x".repeat(257)] {
            assert!(Holder::new(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn the_default_names_host_and_process() {
        let label = Holder::default();
        assert!(label.as_str().ends_with(&format!(":{}", std::process::id())), "{label}");
    }
}
