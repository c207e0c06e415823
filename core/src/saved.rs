use std::time::Duration;

use crate::holder::Holder;
use crate::store::Grant;

/// A lease put aside, to be resumed by another process or a later call of a function.
///
/// With the feature `serde` it can be written down. It holds the grant's nonce: who has it can renew and release, so keep it
/// like a password. `Debug` does not show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLease {
    pub(crate) grant: Grant,
    pub(crate) holder: Holder,
    pub(crate) ttl: Duration,
    /// Unix time, so that `max_hold` goes on in another process.
    pub(crate) granted_ms: u64,
}

impl SavedLease {
    /// What the lease is on.
    pub const fn key(&self) -> &crate::LeaseKey {
        &self.grant.key
    }

    /// The grant's fencing token.
    pub const fn token(&self) -> crate::FencingToken {
        self.grant.token
    }
}

#[cfg(feature = "serde")]
mod written {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::SavedLease;
    use crate::clock::saturating_ms;
    use crate::{FencingToken, Grant, GrantState, Holder, LeaseKey, Nonce};

    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        key: LeaseKey,
        nonce: String,
        token: FencingToken,
        seq: u64,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        state: Option<String>,
        holder: String,
        ttl_ms: u64,
        granted_ms: u64,
    }

    impl Serialize for SavedLease {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            Written {
                key: self.grant.key.clone(),
                nonce: self.grant.nonce.expose_hex(),
                token: self.grant.token,
                seq: self.grant.seq,
                state: self.grant.state.expose().map(String::from),
                holder: String::from(self.holder.as_str()),
                ttl_ms: saturating_ms(self.ttl),
                granted_ms: self.granted_ms,
            }
            .serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for SavedLease {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let written = Written::deserialize(deserializer)?;
            let nonce = Nonce::from_hex(&written.nonce)
                .ok_or_else(|| D::Error::custom("nonce: not 32 hexadecimal digits"))?;
            let state = written.state.map_or_else(GrantState::default, GrantState::new);
            Ok(Self {
                grant: Grant::new(written.key, nonce, written.token, written.seq).with_state(state),
                holder: Holder::new(written.holder).map_err(D::Error::custom)?,
                ttl: Duration::from_millis(written.ttl_ms),
                granted_ms: written.granted_ms,
            })
        }
    }
}
