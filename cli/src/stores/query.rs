//! What stands behind the `?` of a store's URL.

use url::Url;

use crate::exit::{self, Failure};

/// The pairs that nobody has taken yet.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(url: &Url) -> Self {
        Self(url.query_pairs().into_owned().collect())
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Refuses what is left: a misspelt option would be one that is silently not there.
    pub(crate) fn nothing_more(self, known: &str) -> Result<(), Failure> {
        match self.0.first() {
            None => Ok(()),
            // The name alone: a value may be a secret that does not belong here.
            Some((name, _)) => Err(Failure::new(
                exit::MISCONFIGURED,
                format!(
                    "the store's URL says `{name}` twice, or that is nothing it can say: known are {known}"
                ),
            )),
        }
    }
}
