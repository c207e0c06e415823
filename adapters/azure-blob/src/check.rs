//! Looks for what will hurt. What cannot be seen is said, and not assumed.

use leasehold::{Finding, Severity, StoreError};

use crate::error::of_fault;
use crate::options::{Mode, TokenSource};
use crate::port::{Call, Fault, Reply};
use crate::store::Room;

/// How far this machine's wall clock may be off before it is worth a word.
const CLOCK_LIMIT_MS: u64 = 60_000;

impl Room {
    pub(crate) async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let container = self.call(&Call::Container).await;
        if let Err(fault) = &container
            && !is_a_matter_of_rights(fault)
        {
            return Err(of_fault(fault.clone(), None));
        }
        let account = self.call(&Call::Account).await;
        let mut findings =
            vec![self.of_container(container.ok().as_ref()), self.of_account(account.ok().as_ref())];
        findings.push(self.of_versions());
        findings.extend(self.of_clock());
        findings.push(Finding::new(
            Severity::Info,
            "whether the account fails over to another region cannot be seen from here",
            "on geo-redundant accounts read what an unplanned fail-over does to leases in docs/backends/azure-blob.md",
        ));
        Ok(findings)
    }

    fn of_container(&self, reply: Option<&Reply>) -> Finding {
        match reply.and_then(|reply| reply.immutable) {
            Some(true) => Finding::new(
                Severity::Error,
                "the container has an immutability policy or a legal hold: no token can be written",
                "use a container for leases without one",
            ),
            Some(false) => Finding::new(
                Severity::Info,
                "the container has neither an immutability policy nor a legal hold",
                "keep it so, and exclude it from lifecycle rules, which would delete or archive idle keys",
            ),
            None => Finding::new(
                Severity::Info,
                "this credential cannot see whether the container has an immutability policy or a legal hold",
                "look in the account: with one of them no lease can be taken",
            ),
        }
    }

    fn of_account(&self, reply: Option<&Reply>) -> Finding {
        let pages = self.options.mode == Mode::Native && self.options.token_source == TokenSource::PageBlob;
        match (reply.and_then(|reply| reply.hierarchical), pages) {
            (Some(true), true) => Finding::new(
                Severity::Error,
                "the account has a hierarchical namespace and takes no page blobs, from which the tokens are to come",
                "take the token from metadata",
            ),
            (Some(hierarchical), _) => Finding::new(
                Severity::Info,
                format!("the account has {} hierarchical namespace", if hierarchical { "a" } else { "no" }),
                "tokens from metadata work on any; those of page blobs need a flat one that is no premium block blob account",
            ),
            (None, true) => Finding::new(
                Severity::Warning,
                "this credential cannot see whether the account takes page blobs, from which the tokens are to come",
                "look in the account: a hierarchical namespace and premium block blob accounts take none",
            ),
            (None, false) => Finding::new(
                Severity::Info,
                "this credential cannot see whether the account has a hierarchical namespace",
                "nothing: tokens from metadata work on any",
            ),
        }
    }

    fn of_versions(&self) -> Finding {
        if !self.makes_versions() {
            return Finding::new(
                Severity::Info,
                "no write of this store has made a version of its blob so far",
                "check again after an acquire: the service says it only then",
            );
        }
        let each = if self.options.mode == Mode::Record { "write, renewals included," } else { "grant" };
        Finding::new(
            Severity::Warning,
            format!("blob versioning is on: each {each} leaves a version that is paid for"),
            "delete old versions by a lifecycle rule for versions, and never promote one: it would bring an old token back",
        )
    }

    fn of_clock(&self) -> Option<Finding> {
        let (earliest, latest) = (self.time.earliest_ms()?, self.time.latest_ms()?);
        let wall = self.time.now().unix_ms();
        let off = earliest.saturating_sub(wall).max(wall.saturating_sub(latest));
        (off > CLOCK_LIMIT_MS).then(|| {
            Finding::new(
                Severity::Warning,
                format!("this machine's clock is some {} s off the service's", off / 1000),
                "set the clock: leases hold all the same, but a signature that is 15 minutes late is refused, and logs mislead",
            )
        })
    }
}

fn is_a_matter_of_rights(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(refusal) if refusal.status == 403 && refusal.code.as_deref() != Some("AuthenticationFailed"))
}
