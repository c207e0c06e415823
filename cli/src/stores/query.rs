//! What stands behind the `?` of a store's URL.

use url::Url;

use crate::exit::{self, Failure};

/// The pairs that nobody has taken yet.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// # Errors
    /// For an option without a value, and one that is given twice.
    pub(crate) fn of(url: &Url) -> Result<Self, Failure> {
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        for (at, (name, value)) in pairs.iter().enumerate() {
            if value.is_empty() {
                return Err(misconfigured(format!(
                    "`{name}` in the store's URL has no value: give it one, or leave it out"
                )));
            }
            if pairs[..at].iter().any(|(known, _)| known == name) {
                return Err(misconfigured(format!(
                    "`{name}` stands twice in the store's URL: leave one out"
                )));
            }
        }
        Ok(Self(pairs))
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
            Some((name, _)) => {
                Err(misconfigured(format!("`{name}` is no option of this store's URL: known are {known}")))
            }
        }
    }
}

fn misconfigured(line: String) -> Failure {
    Failure::new(exit::MISCONFIGURED, line)
}
