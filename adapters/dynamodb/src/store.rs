use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::SharedInterceptor;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::operation::RequestId as _;
use aws_sdk_dynamodb::operation::get_item::GetItemOutput;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementError, BatchStatementErrorCodeEnum, BatchStatementRequest,
    BatchStatementResponse, ReturnValue, ReturnValuesOnConditionCheckFailure,
};
use futures_util::future::{Either, join_all, select};
use leasehold::record::{Expiry, Moment, Observations, Record, Sight, Step, TokenPolicy};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Deadline, FencingToken, Finding, GrantState,
    Granted, LeaseAdmin, LeaseKey, LeaseStore, Observation, Reading, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Scope, StoreError, StoreErrorKind, StoreProfile, Timing, TokenOrigin,
};

use crate::answers::ServiceTime;
use crate::error::{not_its_own, of_sdk, of_statement};
use crate::options::{DynamoDbOptions, ExpiryPolicy};
use crate::record::{self, Extension, Item, STORE_TIME, Write};
use crate::table::{self, Created, Table};
use crate::versions::Versions;

/// How many keys a contender watches at a time for the rule that trusts no clock.
const WATCHED_KEYS: usize = 4096;

/// How many statements a request takes, says the API reference of `BatchExecuteStatement`.
const MAX_BATCH: usize = 25;

/// The shortest ttl on a table whose every write crosses regions.
const MIN_TTL_STRONG: Duration = Duration::from_secs(15);

/// Leases in a DynamoDB table. Cheap to clone.
#[derive(Clone)]
pub struct DynamoDbStore {
    /// Derived once from the caller's: without retries, which are the keeper's, and with a look at the service's time.
    client: Client,
    table: Arc<Table>,
    options: Arc<DynamoDbOptions>,
    time: ServiceTime,
    watched: Arc<Mutex<Observations>>,
    versions: Arc<Versions>,
    profile: Arc<StoreProfile>,
}

/// How a conditional write ended.
enum Written {
    Applied(Item),
    /// The condition failed on this item; nothing, if there is none.
    Failed(Option<Item>),
}

impl DynamoDbStore {
    /// Opens the leases of `table` with the default options. Looks at the table once: key, replicas, protection; and learns
    /// the service's time, so that the first acquire is one request.
    ///
    /// `client` is configured by its owner: region, credentials, endpoint, HTTP client.
    ///
    /// # Errors
    /// `Misconfigured` when there is no such table, its key is another, or it is an eventually consistent global table.
    pub async fn open(client: Client, table: impl Into<String>) -> Result<Self, StoreError> {
        Self::open_with(client, table, DynamoDbOptions::new()).await
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(
        client: Client,
        table: impl Into<String>,
        options: DynamoDbOptions,
    ) -> Result<Self, StoreError> {
        let (client, time) = derive(&client, &options);
        let table = Table::describe(&client, table.into(), &options).await?;
        Ok(Self::assemble(client, time, table, options))
    }

    /// The same without a look at the table: for credentials that may not describe it, and for functions that must start in
    /// one request less. The first request on a key is then a read. That the table is of one region is the caller's word.
    pub fn unchecked(client: &Client, table: impl Into<String>, options: DynamoDbOptions) -> Self {
        let (client, time) = derive(client, &options);
        Self::assemble(client, time, Table::unchecked(table.into()), options)
    }

    /// Makes the table if there is none: on-demand, protected from deletion, without Time to Live. May be repeated.
    ///
    /// # Errors
    /// When it could not be made, or a table of that name has another key.
    pub async fn create_table(
        client: &Client,
        table: &str,
        options: &DynamoDbOptions,
    ) -> Result<Created, StoreError> {
        table::create(client, table, options).await
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table.name
    }

    fn assemble(client: Client, time: ServiceTime, table: Table, options: DynamoDbOptions) -> Self {
        let scope = if table.strong { Scope::MultiRegion } else { Scope::Region };
        let mut profile = StoreProfile::new("dynamodb", Timing::StoreTime, TokenOrigin::Record, scope);
        if table.strong {
            profile.min_ttl = MIN_TTL_STRONG;
        }
        profile.token_survives_deletion = options.tokens == TokenPolicy::ClockFloor;
        // The resolution of `Date`, a round trip of a second, and the spread of the service's clocks.
        profile.floor_resolution = Duration::from_secs(2) + options.max_skew;
        profile.durable = true;
        profile.detects_clones = true;
        profile.max_batch = if options.batches { MAX_BATCH } else { 1 };
        Self {
            client,
            table: Arc::new(table),
            options: Arc::new(options),
            time,
            watched: Arc::new(Mutex::new(Observations::new(WATCHED_KEYS))),
            versions: Arc::default(),
            profile: Arc::new(profile),
        }
    }

    fn now(&self) -> Reading {
        self.time.clock().read()
    }

    /// Sees to it that the service's time is known, by a read if need be.
    async fn learn_time(&self, key: &LeaseKey) -> Result<(), StoreError> {
        if self.latest_ms().is_none() {
            let answer = self.ask_item(key).await?;
            if self.latest_ms().is_none() {
                return Err(no_store_clock(key));
            }
            self.parse(key, answer.item)?;
        }
        Ok(())
    }

    fn latest_ms(&self) -> Option<u64> {
        self.time.lock().latest_ms(self.now().boot)
    }

    /// The service's time as a step needs it, for a request that is about to be sent.
    fn moment(&self, key: &LeaseKey, over: bool) -> Result<Moment, StoreError> {
        let now = self.now();
        let latest = self.time.lock().latest_ms(now.boot).ok_or_else(|| no_store_clock(key))?;
        let expiry = Expiry { timeline: Arc::from(STORE_TIME), at_ms: latest };
        Ok(Moment { over, now: expiry, floor_ms: latest, unix_ms: now.unix_ms() })
    }

    /// Whether the grant that stands in `record` is over: by its expiry in the service's time, or watched for its whole ttl.
    fn is_over(&self, key: &LeaseKey, record: Option<&Record>) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((record, grant)) = record.and_then(|record| Some((record, record.grant.as_ref()?))) else {
            watched.forget(key);
            return false;
        };
        let now = self.now();
        let sight = Sight { nonce: grant.nonce.clone(), seq: grant.seq, version: record.version };
        // Watched in any case: the clock may never become one to be trusted.
        let stood_still = watched.note(key, sight, grant.ttl, now.boot);
        let reached = grant
            .expiry
            .as_ref()
            .is_some_and(|expiry| self.time.lock().has_reached(expiry.at_ms, &now, self.options.max_skew));
        match self.options.expiry {
            ExpiryPolicy::StoreTime => stood_still || reached,
            ExpiryPolicy::Observed => stood_still,
            ExpiryPolicy::Both => stood_still && reached,
        }
    }

    /// The record as it is to be written: under `Observed` without an expiry, so that others must watch.
    fn timed(&self, mut record: Record) -> Record {
        if let Some(grant) = record.grant.as_mut().filter(|_| self.options.expiry == ExpiryPolicy::Observed) {
            grant.expiry = None;
        }
        record
    }

    /// A grant with the bound that its expiry in the store sets.
    fn bounded(&self, granted: Granted, expires_ms: u64) -> Granted {
        self.versions.note(&granted.grant.key, granted.grant.token);
        let now = self.now();
        let reached = self.time.lock().reaches(expires_ms);
        let state = GrantState::new(expires_ms.to_string());
        let mut granted = granted;
        granted.grant = granted.grant.with_state(state);
        match reached {
            Some(instant) => {
                granted.with_until(Deadline { since: now, length: instant.saturating_sub(now.boot) })
            }
            None => granted,
        }
    }

    fn bounded_by_record(&self, granted: Granted, record: &Record) -> Granted {
        match expiry_ms(record) {
            Some(expires_ms) => self.bounded(granted, expires_ms),
            None => granted,
        }
    }

    fn item_key(&self, key: &LeaseKey) -> HashMap<String, AttributeValue> {
        let full = format!("{}{}", self.options.key_prefix, key.as_str());
        let sort_key = self.options.sort_key.as_ref();
        std::iter::once((self.options.key_attribute.clone(), record::text(full)))
            .chain(sort_key.map(|(name, value)| (name.clone(), record::text(value))))
            .collect()
    }

    async fn write(
        &self,
        key: &LeaseKey,
        write: Write,
        returning: ReturnValue,
    ) -> Result<Written, StoreError> {
        let names = write.names(&self.options.key_attribute);
        let sent = self
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(self.item_key(key)))
            .update_expression(write.update)
            .condition_expression(write.condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(write.values))
            .return_values(returning)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let error = match sent {
            // An empty page reads as a success.
            Ok(answer) if answer.request_id().is_none() => return Err(not_its_own().with_key(key)),
            Ok(answer) => return Ok(Written::Applied(answer.attributes.unwrap_or_default())),
            Err(error) => error,
        };
        let failed = error.as_service_error().and_then(|error| match error {
            aws_sdk_dynamodb::operation::update_item::UpdateItemError::ConditionalCheckFailedException(
                failed,
            ) => Some(failed.item.clone()),
            _ => None,
        });
        match failed {
            Some(Some(item)) if !item.is_empty() => Ok(Written::Failed(Some(item))),
            // No such item, or an engine that does not say: one consistent read tells.
            Some(_) => Ok(Written::Failed(self.get(key).await?)),
            None => Err(of_sdk(error, Some(key))),
        }
    }

    async fn get(&self, key: &LeaseKey) -> Result<Option<Item>, StoreError> {
        let answer = self.ask_item(key).await?;
        // An empty page reads as no item.
        if answer.request_id().is_none() {
            return Err(not_its_own().with_key(key));
        }
        Ok(answer.item)
    }

    async fn ask_item(&self, key: &LeaseKey) -> Result<GetItemOutput, StoreError> {
        self.client
            .get_item()
            .table_name(&self.table.name)
            .set_key(Some(self.item_key(key)))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| of_sdk(error, Some(key)))
    }

    async fn read(&self, key: &LeaseKey) -> Result<Option<Record>, StoreError> {
        self.parse(key, self.get(key).await?)
    }

    fn parse(&self, key: &LeaseKey, item: Option<Item>) -> Result<Option<Record>, StoreError> {
        let Some(item) = item.filter(|item| !item.is_empty()) else { return Ok(None) };
        let record = record::parse(key, &item)?;
        self.versions.note(key, record.version);
        Ok(Some(record))
    }

    /// Takes the key in one request if it can be taken at sight; else the item that refused.
    async fn take(&self, ask: &AcquireRequest) -> Result<Result<Granted, Option<Record>>, StoreError> {
        let mut moment = self.moment(&ask.key, false)?;
        moment.floor_ms = moment.floor_ms.max(self.versions.floor_ms(&ask.key));
        // At sight only by time: watching takes more than one look.
        let by_time = self.options.expiry == ExpiryPolicy::StoreTime;
        let cut_ms = self.time.lock().cut_ms(&self.now(), self.options.max_skew).filter(|_| by_time);
        let step = Record::acquire(None, ask, &moment, self.options.tokens)?;
        let Step::Write(hopeful, AcquireOutcome::Granted(granted)) = step else {
            return Ok(Err(None));
        };
        let hopeful = self.timed(hopeful);
        let (write, returning) = match self.options.tokens {
            TokenPolicy::Sequential { seed } => {
                (record::take_counting(&hopeful, cut_ms, seed), ReturnValue::UpdatedNew)
            }
            _ => (record::take(&hopeful, cut_ms), ReturnValue::None),
        };
        match self.write(&ask.key, write, returning.clone()).await? {
            Written::Applied(item) => {
                let mut granted = granted;
                if returning == ReturnValue::UpdatedNew {
                    granted.grant.token = record::counted(&ask.key, &item)?;
                }
                Ok(Ok(self.bounded_by_record(granted, &hopeful)))
            }
            Written::Failed(item) => Ok(Err(self.parse(&ask.key, item)?)),
        }
    }

    /// Carries a step out on the record as it was seen; when it has changed meanwhile, once more on what it is then.
    async fn settle<O>(
        &self,
        key: &LeaseKey,
        mut seen: Option<Record>,
        verb: impl Fn(Option<&Record>, bool) -> Result<Step<O>, StoreError>,
    ) -> Result<(Option<Record>, O), StoreError> {
        for _ in 0..2 {
            let over = self.is_over(key, seen.as_ref());
            let (record, outcome) = match verb(seen.as_ref(), over)? {
                Step::Keep(outcome) => return Ok((seen, outcome)),
                Step::Write(record, outcome) => (self.timed(record), outcome),
            };
            let write = record::replace(seen.as_ref(), &record);
            match self.write(key, write, ReturnValue::None).await? {
                Written::Applied(_) => return Ok((Some(record), outcome)),
                Written::Failed(item) => seen = self.parse(key, item)?,
            }
        }
        Err(StoreError::not_applied(
            StoreErrorKind::Unavailable,
            "the record changed twice while it was to be written: others contend for it; it is tried again",
        )
        .with_key(key))
    }

    /// When a grant renewed now is over for others. It never moves back within a grant; what it was is kept with the grant.
    fn extension(&self, ask: &RenewRequest) -> Result<Extension, StoreError> {
        let ttl_ms = record::milliseconds(ask.ttl);
        if self.options.expiry == ExpiryPolicy::Observed {
            return Ok(Extension { expires_ms: None, duration_ms: ttl_ms });
        }
        let latest = self.moment(&ask.grant.key, false)?.now.at_ms;
        let last = ask.grant.state.expose().and_then(|state| state.parse::<u64>().ok()).unwrap_or(0);
        let expires_ms = latest.saturating_add(ttl_ms).max(last);
        Ok(Extension { expires_ms: Some(expires_ms), duration_ms: ttl_ms.max(expires_ms - latest) })
    }

    async fn renew_one(&self, ask: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let key = &ask.grant.key;
        self.learn_time(key).await?;
        let extension = self.extension(ask)?;
        match self.write(key, record::renew(ask, extension), ReturnValue::None).await? {
            Written::Applied(_) => Ok(self.renewed(ask, extension.expires_ms)),
            Written::Failed(item) => self.not_renewed(ask, item),
        }
    }

    /// As many as a request takes, each with an answer of its own: never a transaction, in which one lost lease fails all.
    async fn renew_batch(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let began = self.now().monotonic;
        match self.send_batch(asks).await {
            Ok((responses, expiries)) if responses.len() == asks.len() => {
                let answers =
                    asks.iter().zip(expiries).zip(responses).map(|((ask, expires_ms), response)| {
                        self.answer_of(ask, expires_ms, response.error, began)
                    });
                join_all(answers).await
            }
            Ok(_) => {
                let error = StoreError::unknown(
                    StoreErrorKind::Unavailable,
                    "DynamoDB answered a batch with another number of answers: it is asked again",
                );
                vec![Err(error); asks.len()]
            }
            Err(error) => vec![Err(error); asks.len()],
        }
    }

    async fn send_batch(
        &self,
        asks: &[RenewRequest],
    ) -> Result<(Vec<BatchStatementResponse>, Vec<Option<u64>>), StoreError> {
        let mut statements = Vec::with_capacity(asks.len());
        let mut expiries = Vec::with_capacity(asks.len());
        for ask in asks {
            self.learn_time(&ask.grant.key).await?;
            let extension = self.extension(ask)?;
            let item_key: Vec<_> = self.item_key(&ask.grant.key).into_iter().collect();
            let (text, parameters) = record::renewal_statement(&self.table.name, &item_key, ask, extension);
            let statement = BatchStatementRequest::builder()
                .statement(text)
                .set_parameters(Some(parameters))
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
                .build();
            statements.push(statement.map_err(|error| {
                StoreError::not_applied(StoreErrorKind::Other, "the batch could not be built")
                    .with_source(error)
            })?);
            expiries.push(extension.expires_ms);
        }
        let sent = self.client.batch_execute_statement().set_statements(Some(statements)).send().await;
        let answer = sent.map_err(|error| of_sdk(error, None))?;
        if answer.request_id().is_none() {
            return Err(not_its_own());
        }
        Ok((answer.responses.unwrap_or_default(), expiries))
    }

    /// What one statement's answer in a batch means, which was begun at `began`.
    async fn answer_of(
        &self,
        ask: &RenewRequest,
        expires_ms: Option<u64>,
        error: Option<BatchStatementError>,
        began: Duration,
    ) -> Result<RenewOutcome, StoreError> {
        let key = &ask.grant.key;
        let Some(error) = error else { return Ok(self.renewed(ask, expires_ms)) };
        if error.code() != Some(&BatchStatementErrorCodeEnum::ConditionalCheckFailed) {
            return Err(of_statement(&error).with_key(key));
        }
        match error.item {
            Some(item) if !item.is_empty() => self.not_renewed(ask, Some(item)),
            _ => self.not_renewed(ask, self.get_in_batch(ask, began).await?),
        }
    }

    /// Reads within half of the time that the caller waits. Others wait for this answer too, whose renewals have landed.
    async fn get_in_batch(&self, ask: &RenewRequest, began: Duration) -> Result<Option<Item>, StoreError> {
        let passed = self.now().monotonic.saturating_sub(began);
        let patience = self.time.clock().sleep((ask.timeout / 2).saturating_sub(passed));
        match select(Box::pin(self.get(&ask.grant.key)), patience).await {
            Either::Left((item, _)) => item,
            Either::Right(_) => Err(StoreError::not_applied(
                StoreErrorKind::Unavailable,
                "a renewal was refused and the record could not be read in time: it is asked again",
            )
            .with_key(&ask.grant.key)),
        }
    }

    fn renewed(&self, ask: &RenewRequest, expires_ms: Option<u64>) -> RenewOutcome {
        let next = ask.grant.clone().with_seq(ask.grant.seq.saturating_add(1));
        let granted = Granted::new(next, ask.attempt, ask.ttl);
        RenewOutcome::Renewed(match expires_ms {
            Some(expires_ms) => self.bounded(granted, expires_ms),
            None => granted,
        })
    }

    /// What the item that refused a renewal means.
    fn not_renewed(&self, ask: &RenewRequest, item: Option<Item>) -> Result<RenewOutcome, StoreError> {
        let key = &ask.grant.key;
        let record = self.parse(key, item)?;
        match Record::renew(record.as_ref(), ask, &self.moment(key, false)?) {
            Step::Keep(RenewOutcome::Renewed(granted)) => {
                let Some(record) = record else { return Ok(RenewOutcome::RecordGone) };
                Ok(RenewOutcome::Renewed(self.bounded_by_record(granted, &record)))
            }
            Step::Keep(outcome) => Ok(outcome),
            Step::Write(..) => Err(StoreError::not_applied(
                StoreErrorKind::Unavailable,
                "the record changed while the renewal was refused: it is tried again",
            )
            .with_key(key)),
        }
    }
}

/// The client for lease requests, and the time that its answers tell.
fn derive(client: &Client, options: &DynamoDbOptions) -> (Client, ServiceTime) {
    let time = ServiceTime::new(Arc::clone(&options.clock));
    let mut config = client.config().to_builder().retry_config(RetryConfig::disabled());
    // Permanent: one that can be disabled is looked up at every one of its hooks.
    config.push_interceptor(SharedInterceptor::permanent(time.clone()));
    (Client::from_conf(config.build()), time)
}

fn expiry_ms(record: &Record) -> Option<u64> {
    record.grant.as_ref()?.expiry.as_ref().map(|expiry| expiry.at_ms)
}

fn no_store_clock(key: &LeaseKey) -> StoreError {
    StoreError::not_applied(
        StoreErrorKind::NoStoreClock,
        "the answers carry neither the service's Date nor its request id: something in between removes them; talk to DynamoDB directly",
    )
    .with_key(key)
}

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore")
            .field("table", &self.table.name)
            .field("key_prefix", &self.options.key_prefix)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl LeaseStore for DynamoDbStore {
    fn profile(&self) -> &StoreProfile {
        &self.profile
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let table = Table::describe(&self.client, self.table.name.clone(), &self.options).await?;
        let mut findings = table.findings;
        findings.extend(table::ttl_finding(&self.client, &self.table.name).await?);
        let now = self.now();
        let wall_agrees = {
            let time = self.time.lock();
            let (earliest, latest) = (time.earliest_ms(now.boot), time.latest_ms(now.boot));
            earliest.zip(latest).map(|(earliest, latest)| (earliest..=latest).contains(&now.unix_ms()))
        };
        if wall_agrees == Some(false) {
            findings.push(Finding::new(
                leasehold::Severity::Info,
                "this machine's wall clock differs from DynamoDB's",
                "set the clock: leases do not need it, but five minutes off, DynamoDB refuses signatures",
            ));
        }
        Ok(findings)
    }

    async fn acquire(&self, ask: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.learn_time(&ask.key).await?;
        let seen = match self.take(ask).await? {
            Ok(granted) => return Ok(AcquireOutcome::Granted(granted)),
            Err(seen) => seen,
        };
        let verb = |seen: Option<&Record>, over| {
            Record::acquire(seen, ask, &self.moment(&ask.key, over)?, self.options.tokens)
        };
        match self.settle(&ask.key, seen, verb).await? {
            (Some(record), AcquireOutcome::Granted(granted)) => {
                Ok(AcquireOutcome::Granted(self.bounded_by_record(granted, &record)))
            }
            (_, outcome) => Ok(outcome),
        }
    }

    async fn renew(&self, asks: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        match asks {
            [one] => vec![self.renew_one(one).await],
            many => self.renew_batch(many).await,
        }
    }

    async fn release(&self, ask: &ReleaseRequest) -> Result<ReleaseOutcome, StoreError> {
        match self.write(&ask.key, record::release(&ask.nonce), ReturnValue::None).await? {
            Written::Applied(_) => Ok(ReleaseOutcome::Released),
            Written::Failed(item) => match Record::release(self.parse(&ask.key, item)?.as_ref(), ask) {
                Step::Keep(outcome) => Ok(outcome),
                Step::Write(..) => Err(StoreError::not_applied(
                    StoreErrorKind::Unavailable,
                    "the record changed while the release was refused: it is tried again",
                )
                .with_key(&ask.key)),
            },
        }
    }

    async fn inspect(&self, key: &LeaseKey, _timeout: Duration) -> Result<Observation, StoreError> {
        let record = self.read(key).await?;
        let over = self.is_over(key, record.as_ref());
        Ok(Record::observe(record.as_ref(), key, over))
    }
}

#[async_trait]
impl LeaseAdmin for DynamoDbStore {
    /// Reads the whole table, a page at a time, since DynamoDB knows no order of keys: for operators, not for programs. An item
    /// that cannot be a lease is left out, with a warning in the log.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&LeaseKey>,
        limit: usize,
    ) -> Result<Vec<Observation>, StoreError> {
        let mut filter = String::from("#z = :z AND begins_with(#k, :prefix)");
        let mut values = HashMap::from([(String::from(":z"), record::number(1))]);
        let full_prefix = format!("{}{prefix}", self.options.key_prefix);
        values.insert(String::from(":prefix"), record::text(full_prefix));
        let mut names = record::aliases(&[&filter], &self.options.key_attribute);
        if let Some((name, value)) = &self.options.sort_key {
            filter.push_str(" AND #r = :r");
            names.insert(String::from("#r"), name.clone());
            values.insert(String::from(":r"), record::text(value));
        }
        let mut found: BTreeMap<LeaseKey, Record> = BTreeMap::new();
        let mut pages = self
            .client
            .scan()
            .table_name(&self.table.name)
            .consistent_read(true)
            .filter_expression(filter)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            .into_paginator()
            .send();
        while let Some(page) = pages.next().await {
            for item in page.map_err(|error| of_sdk(error, None))?.items() {
                let Some(AttributeValue::S(full)) = item.get(&self.options.key_attribute) else { continue };
                let Some(Ok(key)) = full.strip_prefix(&self.options.key_prefix).map(LeaseKey::new) else {
                    continue;
                };
                if after.is_none_or(|after| key > *after) {
                    let Ok(record) = record::parse(&key, item) else {
                        tracing::warn!(%key, "an item that is no sound lease is left out of the list: inspect it");
                        continue;
                    };
                    found.insert(key, record);
                    if found.len() > limit {
                        found.pop_last();
                    }
                }
            }
        }
        Ok(found
            .iter()
            .map(|(key, record)| Record::observe(Some(record), key, self.is_over(key, Some(record))))
            .collect())
    }

    async fn break_lease(
        &self,
        key: &LeaseKey,
        seen: FencingToken,
        how: BreakHow,
    ) -> Result<BreakOutcome, StoreError> {
        match self.write(key, record::break_grant(seen, how), ReturnValue::None).await? {
            Written::Applied(_) => Ok(BreakOutcome::Broken),
            Written::Failed(item) => {
                // Foreign data is an error, not an outcome.
                self.parse(key, item)?;
                Ok(BreakOutcome::NotCurrent)
            }
        }
    }

    async fn raise_floor(&self, key: &LeaseKey, floor: FencingToken) -> Result<(), StoreError> {
        let record = self.read(key).await?;
        self.settle(key, record, |current, _| Ok(Record::raise_floor(current, floor))).await?;
        Ok(())
    }

    async fn seal(&self, key: &LeaseKey, sealed: bool) -> Result<(), StoreError> {
        let record = self.read(key).await?;
        self.settle(key, record, |current, _| Ok(Record::seal(current, sealed))).await?;
        Ok(())
    }
}
