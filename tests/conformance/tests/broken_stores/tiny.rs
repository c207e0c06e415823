//! A store small enough to be broken in every way, and its harness.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::record::{Expiry, GrantRecord, Moment, Record, Step, TokenPolicy};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Chance, FencingToken, Finding, GrantState,
    LeaseAdmin, LeaseKey, LeaseStore, Nonce, Observation, OsChance, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Scope, Severity, StoreError, StoreErrorKind, StoreProfile, Timing,
    TokenOrigin,
};
use leasehold_conformance::{Harness, Impossible, async_trait};
use tokio::task::yield_now;

use crate::Fault;

/// A store in memory that awaits before and after each step, as one does that is reached over a network. It keeps its
/// promises, but for one fault.
#[derive(Clone, Debug)]
pub(crate) struct Tiny {
    fault: Option<Fault>,
    /// Does the least that a profile may say: counts no renewals and times each request by its arrival.
    modest: bool,
    profile: StoreProfile,
    /// Which client this is, for the fault that remembers it.
    client: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    records: Mutex<BTreeMap<String, Record>>,
    now_ms: AtomicU64,
    /// The last token of all keys, for the modest one.
    last_token: AtomicU64,
    /// The last token of each key, for the fault that keeps it apart.
    counters: Mutex<BTreeMap<String, FencingToken>>,
    /// How many clients there have been, and which of them was granted each key.
    clients: AtomicU64,
    granted_to: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        lock(&self.records)
    }
}

impl Tiny {
    /// A store that does all that a profile can say, of which it breaks one thing at most.
    pub(crate) fn capable(fault: Option<Fault>) -> Self {
        let mut profile = StoreProfile::new("tiny", Timing::Server, TokenOrigin::Record, Scope::Region);
        profile.durable = true;
        profile.detects_clones = true;
        profile.max_batch = 8;
        match fault {
            Some(Fault::ClaimsThatTokensSurviveDeletion) => profile.token_survives_deletion = true,
            Some(Fault::HidesThatRecordsLast) => profile.durable = false,
            Some(Fault::ClaimsAQueue) => profile.fifo = true,
            Some(Fault::CarriesNoRenewals) => profile.max_batch = 0,
            Some(Fault::ClaimsOneMachinesTime) => profile.timing = Timing::Machine,
            Some(Fault::ClaimsTokensOverAllKeys) => profile.token_origin = TokenOrigin::NativeGlobal,
            _ => {}
        }
        Self { fault, modest: false, profile, client: 0, shared: Arc::default() }
    }

    /// A store that does what it must and says that it can do no more.
    pub(crate) fn modest() -> Self {
        let mut profile =
            StoreProfile::new("modest", Timing::Server, TokenOrigin::NativeGlobal, Scope::Process);
        profile.token_survives_deletion = true;
        Self { fault: None, modest: true, profile, client: 0, shared: Arc::default() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// What a key is stored under.
    fn name(&self, key: &LeaseKey) -> String {
        let key = key.as_str();
        match self.fault {
            Some(Fault::FoldsCase) => key.to_lowercase(),
            Some(Fault::TrimsNames) => key.trim().to_owned(),
            Some(Fault::NormalisesNames) => key.replace("e\u{301}", "\u{e9}"),
            Some(Fault::KnowsOnePlaneOfUnicode) => {
                key.chars().map(|c| if u32::from(c) > 0xffff { '\u{fffd}' } else { c }).collect()
            }
            Some(Fault::CutsNames) => {
                let mut end = key.len().min(255);
                while !key.is_char_boundary(end) {
                    end -= 1;
                }
                key[..end].to_owned()
            }
            _ => key.to_owned(),
        }
    }

    fn moment(&self, current: Option<&Record>) -> Moment {
        let now_ms = self.shared.now_ms.load(Ordering::SeqCst);
        let now = Expiry { timeline: Arc::from("tiny"), at_ms: now_ms };
        let grant = current.and_then(|record| record.grant.as_ref());
        let over = grant.is_some_and(|grant| grant.is_over_at(&now) == Some(true));
        let over = over && !self.has(Fault::NeverExpires);
        Moment { over, now, floor_ms: 0, unix_ms: now_ms }
    }

    /// One atomic step, with an await before it and one after.
    async fn step<O: Send>(
        &self,
        key: &LeaseKey,
        verb: impl FnOnce(Option<&Record>, &Moment) -> Result<Step<O>, StoreError> + Send,
    ) -> Result<O, StoreError> {
        yield_now().await;
        let answer = {
            let mut records = self.shared.records();
            let current = records.get(&self.name(key));
            match verb(current, &self.moment(current)) {
                Ok(Step::Keep(answer)) => Ok(answer),
                Ok(Step::Write(record, answer)) => {
                    records.insert(self.name(key), record);
                    Ok(answer)
                }
                Err(error) => Err(error),
            }
        };
        yield_now().await;
        answer
    }

    /// What acquire makes of a record: what the protocol says, and the faults.
    fn acquire_step(
        &self,
        current: Option<&Record>,
        ask: &AcquireRequest,
        moment: &Moment,
    ) -> Result<Step<AcquireOutcome>, StoreError> {
        let (mut current, mut moment) = (current.cloned(), moment.clone());
        if self.has(Fault::TokenStartsAgain) {
            current = current.filter(|record| record.grant.is_some());
        }
        moment.over |= self.has(Fault::GrantsWhatIsHeld);
        if let Some(record) = &mut current {
            record.sealed &= !self.has(Fault::GrantsUnderASeal);
            if let Some(grant) = &mut record.grant {
                let forgets = self.has(Fault::ForgetsItsNonceAfterARenewal) && grant.seq > 0;
                if forgets || self.has(Fault::ForgetsItsNonce) {
                    grant.nonce = fresh_nonce();
                }
                if self.has(Fault::TakesTheLabelForTheHolder) && grant.holder == ask.holder {
                    grant.nonce = ask.nonce.clone();
                }
                if self.has(Fault::CountsTheContendersTtl) {
                    let began = millis(grant).saturating_sub(ms(grant.ttl));
                    moment.over = began.saturating_add(ms(ask.ttl)) <= moment.now.at_ms;
                }
            }
        }
        if self.modest {
            let last = FencingToken::try_from(self.shared.last_token.load(Ordering::SeqCst)).ok();
            match (&mut current, last) {
                (Some(record), Some(last))
                    if record.grant.as_ref().is_none_or(|grant| moment.over && grant.nonce != ask.nonce) =>
                {
                    record.version = last;
                }
                (None, Some(version)) => current = Some(Record { version, grant: None, sealed: false }),
                _ => {}
            }
        }
        let step = Record::acquire(current.as_ref(), ask, &moment, TokenPolicy::Sequential { seed: 0 })?;
        Ok(self.acquired(current, ask, &moment, step))
    }

    fn acquired(
        &self,
        current: Option<Record>,
        ask: &AcquireRequest,
        moment: &Moment,
        step: Step<AcquireOutcome>,
    ) -> Step<AcquireOutcome> {
        match step {
            Step::Write(mut record, AcquireOutcome::Granted(mut granted)) => {
                if self.modest {
                    self.shared.last_token.store(record.version.get(), Ordering::SeqCst);
                }
                if self.has(Fault::HalvesTheTtl) {
                    expire_at(&mut record, moment.now.at_ms + ms(ask.ttl / 2));
                }
                if self.has(Fault::ReleasesByState) {
                    granted.grant.state = GrantState::new("0");
                }
                if self.has(Fault::HandsOutAnotherToken) {
                    granted.grant.token = next(granted.grant.token);
                }
                Step::Write(record, AcquireOutcome::Granted(granted))
            }
            Step::Keep(AcquireOutcome::Granted(mut granted)) => {
                let record = current.filter(|_| self.modest);
                if record.is_some() || self.has(Fault::NamesAnAttemptThatDoesNotCount) {
                    granted.attempt = ask.attempt;
                }
                match record {
                    Some(mut record) => {
                        granted.ttl = ask.ttl;
                        expire_at(&mut record, moment.now.at_ms + ms(ask.ttl));
                        if let Some(grant) = &mut record.grant {
                            (grant.attempt, grant.ttl) = (ask.attempt, ask.ttl);
                        }
                        Step::Write(record, AcquireOutcome::Granted(granted))
                    }
                    None => Step::Keep(AcquireOutcome::Granted(granted)),
                }
            }
            Step::Keep(AcquireOutcome::Held(held)) if self.has(Fault::RefusalWrites) => match current {
                Some(mut record) => {
                    if let Some(grant) = &mut record.grant {
                        grant.seq += 1;
                    }
                    Step::Write(record, AcquireOutcome::Held(held))
                }
                None => Step::Keep(AcquireOutcome::Held(held)),
            },
            step => step,
        }
    }

    fn renew_step(
        &self,
        current: Option<&Record>,
        ask: &RenewRequest,
        moment: &Moment,
    ) -> Step<RenewOutcome> {
        let mut ask = ask.clone();
        let asked_seq = ask.grant.seq;
        let mut current = current.cloned();
        let version = current.as_ref().map(|record| record.version);
        if let Some(grant) = current.as_mut().and_then(|record| record.grant.as_mut()) {
            if self.has(Fault::RenewsAnybody) {
                ask.grant.nonce = grant.nonce.clone();
                ask.grant.token = version.unwrap_or(ask.grant.token);
            }
            if self.modest || self.has(Fault::RenewsWithoutSeq) {
                ask.grant.seq = grant.seq;
            }
            if self.has(Fault::RenewsAfterABreak) {
                grant.break_requested = false;
            }
        }
        let standing =
            current.as_ref().is_some_and(|record| record.grant.is_some() || record.version > ask.grant.token);
        if self.has(Fault::RevivesReleasedGrants) && !standing
            || self.has(Fault::RevivesDeletedRecords) && current.is_none()
        {
            let mut granted = GrantRecord { nonce: ask.grant.nonce.clone(), ..blank_grant(moment) };
            granted.seq = ask.grant.seq;
            current = Some(Record { version: ask.grant.token, grant: Some(granted), sealed: false });
        }
        match Record::renew(current.as_ref(), &ask, moment) {
            Step::Write(mut record, RenewOutcome::Renewed(mut granted)) => {
                if self.modest {
                    granted.grant.seq = asked_seq + 1;
                    if let Some(grant) = &mut record.grant {
                        grant.seq = 0;
                    }
                }
                if self.has(Fault::ReleasesByState) {
                    granted.grant.state = GrantState::new(granted.grant.seq.to_string());
                }
                if self.has(Fault::RenewsWithoutExtending) {
                    let last = current.as_ref().and_then(|record| record.grant.as_ref()).map_or(0, millis);
                    expire_at(&mut record, last);
                }
                if self.has(Fault::MovesTheExpiryBack) {
                    expire_at(&mut record, moment.now.at_ms + ms(ask.ttl));
                }
                if self.has(Fault::RenewsWithANewToken) {
                    record.version = next(record.version);
                    granted.grant.token = record.version;
                }
                Step::Write(record, RenewOutcome::Renewed(granted))
            }
            Step::Keep(RenewOutcome::Renewed(_)) if self.has(Fault::TakesItsOwnRenewalForAClones) => {
                Step::Keep(RenewOutcome::Cloned)
            }
            step => step,
        }
    }
}

#[async_trait]
impl LeaseStore for Tiny {
    fn profile(&self) -> &StoreProfile {
        &self.profile
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let findings = self
            .has(Fault::FindsHealthWrong)
            .then(|| Finding::new(Severity::Error, "there are no records", "acquire something"));
        Ok(findings.into_iter().collect())
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        if self.has(Fault::LooksAndThenWrites) {
            let name = self.name(&ask.key);
            let current = self.shared.records().get(&name).cloned();
            let moment = self.moment(current.as_ref());
            yield_now().await;
            return Ok(match self.acquire_step(current.as_ref(), ask, &moment)? {
                Step::Keep(outcome) => outcome,
                Step::Write(record, outcome) => {
                    self.shared.records().insert(name, record);
                    outcome
                }
            });
        }
        if self.has(Fault::LocksBeforeItWrites) {
            // A mark of nobody's, without end, which the second step replaces.
            let refused = self
                .step(&ask.key, |current, moment| {
                    Ok(match self.acquire_step(current, ask, moment)? {
                        Step::Write(mut record, _) => {
                            if let Some(grant) = &mut record.grant {
                                (grant.nonce, grant.expiry) = (fresh_nonce(), None);
                            }
                            Step::Write(record, None)
                        }
                        Step::Keep(outcome) => Step::Keep(Some(outcome)),
                    })
                })
                .await?;
            if let Some(outcome) = refused {
                return Ok(outcome);
            }
            return self
                .step(&ask.key, |current, moment| {
                    let marked = current.cloned().map(|mut record| {
                        record.grant = record.grant.filter(|grant| grant.expiry.is_some());
                        record
                    });
                    self.acquire_step(marked.as_ref(), ask, moment)
                })
                .await;
        }
        if self.has(Fault::FailsAtAnOddTtl) && ask.ttl > self.profile.max_ttl {
            return Err(StoreError::unknown(StoreErrorKind::Other, "the number is too large for the column"));
        }
        if self.has(Fault::RefusesTheLongestTtl) && ask.ttl == self.profile.max_ttl {
            return Err(StoreError::not_applied(StoreErrorKind::Unsupported, "the ttl is too long"));
        }
        let counts_later = self.has(Fault::CountsTokensAfterwards);
        let outcome = self
            .step(&ask.key, |current, moment| {
                let counter = lock(&self.shared.counters).get(&self.name(&ask.key)).copied();
                let current = match (current, counter) {
                    (Some(record), Some(version)) if counts_later && record.grant.is_none() => {
                        Some(Record { version, ..record.clone() })
                    }
                    (Some(record), None) if counts_later && record.grant.is_none() => None,
                    (record, _) => record.cloned(),
                };
                self.acquire_step(current.as_ref(), ask, moment)
            })
            .await?;
        if matches!(outcome, AcquireOutcome::Granted(_)) {
            lock(&self.shared.granted_to).insert(self.name(&ask.key), self.client);
        }
        match &outcome {
            AcquireOutcome::Granted(granted) if counts_later && granted.attempt == ask.attempt => {
                lock(&self.shared.counters).insert(self.name(&ask.key), granted.grant.token);
            }
            AcquireOutcome::Granted(_) if self.has(Fault::RenewsInTheBackground) => {
                let (store, key) = (self.clone(), ask.key.clone());
                #[expect(clippy::disallowed_methods, reason = "the fault is that it does")]
                tokio::spawn(async move {
                    yield_now().await;
                    if let Some(record) = store.shared.records().get_mut(&store.name(&key)) {
                        if let Some(grant) = &mut record.grant {
                            grant.seq += 1;
                        }
                    }
                });
            }
            AcquireOutcome::Held(_) if self.has(Fault::WaitsForTheKey) => std::future::pending().await,
            AcquireOutcome::Held(_) if self.has(Fault::MakesContentionAnError) => {
                return Err(StoreError::not_applied(StoreErrorKind::Other, "the key is held"));
            }
            _ => {}
        }
        Ok(outcome)
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            if self.has(Fault::RenewsByTakingAndGivingBack) {
                let name = self.name(&ask.grant.key);
                let taken = self.shared.records().get_mut(&name).and_then(|record| record.grant.take());
                yield_now().await;
                if let Some(record) = self.shared.records().get_mut(&name) {
                    record.grant = taken;
                }
            }
            let granted_to = lock(&self.shared.granted_to).get(&self.name(&ask.grant.key)).copied();
            if self.has(Fault::RemembersTheClient) && granted_to != Some(self.client) {
                answers.push(Ok(RenewOutcome::RecordGone));
                continue;
            }
            let answer =
                self.step(&ask.grant.key, |current, moment| Ok(self.renew_step(current, ask, moment))).await;
            let lost = !matches!(answer, Ok(RenewOutcome::Renewed(_)));
            answers.push(answer);
            if lost && self.has(Fault::StopsABatchAtALoss) {
                break;
            }
        }
        if self.has(Fault::AnswersABatchBackwards) {
            answers.reverse();
        }
        answers
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        let outcome = self
            .step(&ask.key, |current, _| {
                let mut ask = ask.clone();
                if let Some(grant) = current.and_then(|record| record.grant.as_ref()) {
                    if self.has(Fault::ReleasesAnybody) {
                        ask.nonce = grant.nonce.clone();
                    }
                }
                let seq = current.and_then(|record| record.grant.as_ref()).map(|grant| grant.seq.to_string());
                if self.has(Fault::ReleasesByState) && ask.state.expose() != seq.as_deref()
                    || self.has(Fault::ReleasesByTokenOnly) && ask.token.is_none()
                {
                    return Ok(Step::Keep(ReleaseOutcome::AlreadyEnded));
                }
                Ok(match Record::release(current, &ask) {
                    Step::Write(mut record, outcome) => {
                        record.sealed &= !self.has(Fault::ForgetsTheSealOnRelease);
                        Step::Write(record, outcome)
                    }
                    step => step,
                })
            })
            .await?;
        match outcome {
            ReleaseOutcome::Released if self.has(Fault::DeletesOnRelease) => {
                self.shared.records().remove(&self.name(&ask.key));
            }
            ReleaseOutcome::AlreadyEnded if self.has(Fault::ReleasesOnce) => {
                return Err(StoreError::not_applied(StoreErrorKind::Other, "there is nothing to release"));
            }
            ReleaseOutcome::HeldByOther { .. } if self.has(Fault::SaysReleasedWhateverItFound) => {
                return Ok(ReleaseOutcome::Released);
            }
            _ => {}
        }
        Ok(outcome)
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        self.step(key, |current, moment| {
            let over = moment.over || self.has(Fault::ShowsEveryGrantAsOver);
            let mut seen = Record::observe(current, key, over);
            if let Some(held) = seen.held.as_mut().filter(|_| self.has(Fault::ShowsSecondsAsMilliseconds)) {
                held.until_ms = held.until_ms.map(|until| until / 1000);
            }
            let mut touched = current.cloned();
            Ok(match touched.as_mut().and_then(|record| record.grant.as_mut()) {
                Some(grant) if self.has(Fault::WritesWhenLookedAt) => {
                    grant.seq += 1;
                    Step::Write(touched.unwrap(), seen)
                }
                _ => Step::Keep(seen),
            })
        })
        .await
    }
}

#[async_trait]
impl LeaseAdmin for Tiny {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError> {
        let records = self.shared.records();
        let begins = |name: &str| {
            if self.has(Fault::ListsByPattern) { is_like(name, prefix) } else { name.starts_with(prefix) }
        };
        Ok(records
            .iter()
            .filter(|(name, _)| begins(name) && after.is_none_or(|after| name.as_str() > after.as_str()))
            .filter(|(_, record)| record.grant.is_some() || !self.has(Fault::ListsOnlyWhatIsHeld))
            .take(limit)
            .map(|(name, record)| {
                Record::observe(Some(record), &LeaseKey::new(name).unwrap(), self.moment(Some(record)).over)
            })
            .collect())
    }

    async fn break_lease(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        self.step(key, |current, _| {
            let newest =
                current.map(|record| record.version).filter(|_| self.has(Fault::BreaksWhateverIsThere));
            let how = if self.has(Fault::BreaksAtOnce) { BreakHow::Immediate } else { how };
            Ok(Record::break_grant(current, newest.unwrap_or(seen), how))
        })
        .await
    }

    async fn raise_floor(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        if self.modest {
            return Err(StoreError::not_applied(StoreErrorKind::Unsupported, "the server makes the tokens"));
        }
        if self.has(Fault::ForgetsTheFloor) {
            return Ok(());
        }
        self.step(key, |current, _| {
            Ok(match (current, Record::raise_floor(current, floor)) {
                (Some(record), _) if self.has(Fault::LowersTheFloor) => {
                    Step::Write(Record { version: floor, ..record.clone() }, ())
                }
                (Some(record), Step::Write(raised, ())) if self.has(Fault::RaisesTheFloorUnderAGrant) => {
                    Step::Write(Record { version: raised.version, ..record.clone() }, ())
                }
                (_, step) => step,
            })
        })
        .await
    }

    async fn seal(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        self.step(key, |current, _| {
            Ok(match Record::seal(current, sealed) {
                Step::Write(record, ()) if self.has(Fault::EndsTheGrantBySealing) => {
                    Step::Write(Record { grant: None, ..record }, ())
                }
                Step::Keep(()) if self.has(Fault::MakesARecordToOpen) && current.is_none() => {
                    Step::Write(Record { version: FencingToken::MIN, grant: None, sealed: false }, ())
                }
                step => step,
            })
        })
        .await
    }
}

#[async_trait]
impl Harness for Tiny {
    type Store = Self;

    async fn store(&self) -> Self {
        Self { client: self.shared.clients.fetch_add(1, Ordering::SeqCst), ..self.clone() }
    }

    async fn after_restart(&self) -> Self {
        if self.modest || self.has(Fault::LosesRecordsWithItsProcess) {
            return Self { shared: Arc::default(), ..self.clone() };
        }
        self.clone()
    }

    async fn age(&self, _key: &LeaseKey, by: Duration) {
        self.shared.now_ms.fetch_add(ms(by), Ordering::SeqCst);
    }

    async fn expire(&self, _key: &LeaseKey) {
        self.shared.now_ms.fetch_add(ms(self.profile.max_ttl), Ordering::SeqCst);
    }

    async fn usurp(&self, key: &LeaseKey) {
        let mut records = self.shared.records();
        let record = records.get_mut(&self.name(key)).expect("there is a grant to take over");
        record.version = next(record.version);
        if self.modest {
            record.version =
                next(FencingToken::try_from(self.shared.last_token.load(Ordering::SeqCst)).unwrap());
            self.shared.last_token.store(record.version.get(), Ordering::SeqCst);
        }
        record.grant = Some(blank_grant(&self.moment(None)));
    }

    async fn delete_record(&self, key: &LeaseKey) -> Result<(), Impossible> {
        self.shared.records().remove(&self.name(key));
        Ok(())
    }

    async fn stored_token(&self, key: &LeaseKey) -> Option<FencingToken> {
        self.shared.records().get(&self.name(key)).map(|record| record.version)
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn rounds(&self) -> u32 {
        10
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A grant of somebody's for a minute.
fn blank_grant(moment: &Moment) -> GrantRecord {
    let ttl = Duration::from_secs(60);
    GrantRecord {
        nonce: fresh_nonce(),
        attempt: leasehold::AttemptId::from_record(0),
        holder: leasehold::Holder::new("usurper").unwrap(),
        seq: 0,
        ttl,
        since_ms: moment.unix_ms,
        until_ms: moment.unix_ms + ms(ttl),
        expiry: Some(Expiry { at_ms: moment.now.at_ms + ms(ttl), ..moment.now.clone() }),
        break_requested: false,
    }
}

fn fresh_nonce() -> Nonce {
    let chance: &dyn Chance = &OsChance;
    Nonce::draw(chance).unwrap()
}

fn next(token: FencingToken) -> FencingToken {
    FencingToken::try_from(token.get() + 1).unwrap()
}

fn millis(grant: &GrantRecord) -> u64 {
    grant.expiry.as_ref().map_or(u64::MAX, |expiry| expiry.at_ms)
}

fn expire_at(record: &mut Record, at_ms: u64) {
    if let Some(expiry) = record.grant.as_mut().and_then(|grant| grant.expiry.as_mut()) {
        expiry.at_ms = at_ms;
    }
}

fn ms(duration: Duration) -> u64 {
    // Half of what there is, so that sums of two stay within it.
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(u64::MAX / 4)
}

/// What SQL's LIKE makes of a prefix in which nobody has escaped `_`.
fn is_like(name: &str, prefix: &str) -> bool {
    let mut characters = name.chars();
    prefix.chars().all(|wanted| characters.next().is_some_and(|found| wanted == '_' || wanted == found))
}
