use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// The number of a grant. It grows with every grant of a key and never falls.
///
/// Give it to the resource that the lease protects with every write; the resource keeps the highest one that it has seen
/// and turns lower ones away. That, not the lease, is what makes a late writer harmless.
///
/// A token lies between 1 and 2^63 − 1, so that a signed 64-bit column (`BIGINT`, not `INT`) holds it. It has no
/// arithmetic: only a store makes tokens. Tokens of different keys are not comparable.
///
/// ```
/// use leasehold::FencingToken;
///
/// let token = FencingToken::try_from(1_764_520_000_000_u64)?;
/// assert_eq!("1764520000000".parse::<FencingToken>()?, token);
/// assert!(FencingToken::try_from(0_u64).is_err());
/// # Ok::<(), leasehold::TokenError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The lowest token.
    pub const MIN: Self = Self(NonZeroU64::MIN);
    /// The highest token, 2^63 − 1. A key that has reached it can be granted no more.
    pub const MAX: Self = Self(NonZeroU64::new(i64::MAX as u64).unwrap());

    /// The token as a number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The token as the signed number that SQL databases store. Never negative.
    pub const fn as_i64(self) -> i64 {
        self.0.get() as i64
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = TokenError;

    fn try_from(number: u64) -> Result<Self, TokenError> {
        if number > Self::MAX.get() {
            return Err(TokenError::TooLarge);
        }
        NonZeroU64::new(number).map(Self).ok_or(TokenError::NotPositive)
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = TokenError;

    fn try_from(number: i64) -> Result<Self, TokenError> {
        u64::try_from(number).map_err(|_| TokenError::NotPositive)?.try_into()
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl FromStr for FencingToken {
    type Err = TokenError;

    /// Takes decimal digits alone: no sign, no spaces.
    fn from_str(text: &str) -> Result<Self, TokenError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TokenError::NotANumber);
        }
        text.parse::<u64>().map_err(|_| TokenError::TooLarge)?.try_into()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = <u64 as serde::Deserialize>::deserialize(deserializer)?;
        Self::try_from(number).map_err(serde::de::Error::custom)
    }
}

/// A number or text that cannot be a [`FencingToken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The text is not made of decimal digits.
    #[error("a fencing token is written in decimal digits")]
    NotANumber,
    /// Zero or below.
    #[error("a fencing token is at least 1")]
    NotPositive,
    /// Above [`FencingToken::MAX`].
    #[error("a fencing token is at most 9223372036854775807")]
    TooLarge,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_token_is_refused() {
        assert_eq!(FencingToken::try_from(0_u64), Err(TokenError::NotPositive));
        assert_eq!(FencingToken::try_from(-1_i64), Err(TokenError::NotPositive));
        assert_eq!(FencingToken::try_from(1_u64 << 63), Err(TokenError::TooLarge));
        for text in ["", " 1", "+1", "-1", "1.0", "0x1", "١"] {
            assert_eq!(text.parse::<FencingToken>(), Err(TokenError::NotANumber), "{text:?}");
        }
        assert_eq!("99999999999999999999".parse::<FencingToken>(), Err(TokenError::TooLarge));
        assert_eq!(FencingToken::MAX.as_i64(), i64::MAX);
    }

    proptest! {
        #[test]
        fn every_token_survives_text_and_json(number in 1_u64..=i64::MAX as u64) {
            let token = FencingToken::try_from(number).unwrap();
            prop_assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
            let json = serde_json::to_string(&token).unwrap();
            prop_assert_eq!(serde_json::from_str::<FencingToken>(&json).unwrap(), token);
            prop_assert_eq!(FencingToken::try_from(token.as_i64()).unwrap(), token);
        }
    }
}
