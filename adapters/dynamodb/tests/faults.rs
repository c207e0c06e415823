//! Each operation × each fault on the wire: the table is the test.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod engine;

use std::time::Duration;

use engine::{Engine, TABLE, TTL, again, age, ask, attempt, fresh_key, granted};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakHow, BreakOutcome, Clock, Effect, Grant, LeaseAdmin, LeaseKey,
    LeaseStore, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, StoreError, StoreErrorKind,
    SystemClock,
};
use leasehold_dynamodb::DynamoDbStore;
use leasehold_wire::{Answer, Fault, Matcher, Proxy, dynamodb};

/// How long a caller waits in these tests, and how much later a late answer is.
const PATIENCE: Duration = Duration::from_millis(400);
const TOO_LATE: Duration = Duration::from_millis(700);

/// What the caller hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hears {
    Yes,
    No(StoreErrorKind),
    NotKnown(StoreErrorKind),
    Nothing,
}

/// What becomes of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lands {
    Now,
    Never,
    /// When the proxy lets it go.
    Later,
}

struct Row {
    fault: Fault,
    hears: Hears,
    lands: Lands,
}

fn row(fault: Fault, hears: Hears, lands: Lands) -> Row {
    Row { fault, hears, lands }
}

/// The table. A write that fails in a way which does not say whether it landed is `NotKnown`, never a guess.
fn table() -> Vec<Row> {
    use Hears::{No, NotKnown, Nothing, Yes};
    use StoreErrorKind::{ClockSkew, Denied, Misconfigured, Throttled, Unavailable};
    let refused = |code: &str| Fault::AnswerInstead(dynamodb::error(400, code, "canned"));
    let mut rows = vec![
        row(Fault::None, Yes, Lands::Now),
        row(Fault::DropRequest, Nothing, Lands::Never),
        row(Fault::DropResponse, Nothing, Lands::Now),
        row(Fault::ResetAfter, NotKnown(Unavailable), Lands::Now),
        row(Fault::ResetMidBody, NotKnown(Unavailable), Lands::Now),
        row(Fault::ForwardThenAnswer(dynamodb::internal_server_error()), NotKnown(Unavailable), Lands::Now),
        row(Fault::ForwardThenAnswer(dynamodb::service_unavailable()), NotKnown(Unavailable), Lands::Now),
        row(Fault::AnswerInstead(dynamodb::internal_server_error()), NotKnown(Unavailable), Lands::Never),
        row(Fault::AnswerInstead(dynamodb::service_unavailable()), NotKnown(Unavailable), Lands::Never),
        row(Fault::Delay(TOO_LATE), Nothing, Lands::Later),
        row(Fault::DelayAnswer(TOO_LATE), Nothing, Lands::Now),
        row(Fault::Duplicate, Yes, Lands::Now),
        row(Fault::DuplicateLater, Yes, Lands::Now),
        row(Fault::HoldBack, Nothing, Lands::Later),
        row(Fault::AnswerInstead(dynamodb::provisioned_throughput_exceeded()), No(Throttled), Lands::Never),
        row(Fault::AnswerInstead(dynamodb::throttling()), No(Throttled), Lands::Never),
        row(Fault::AnswerInstead(dynamodb::request_limit_exceeded()), No(Throttled), Lands::Never),
        row(Fault::AnswerInstead(dynamodb::transaction_conflict()), No(Unavailable), Lands::Never),
        row(Fault::AnswerInstead(dynamodb::replicated_write_conflict()), No(Unavailable), Lands::Never),
        row(refused("AccessDeniedException"), No(Denied), Lands::Never),
        row(refused("ExpiredTokenException"), No(Denied), Lands::Never),
        row(refused("UnrecognizedClientException"), No(Denied), Lands::Never),
        row(refused("RequestExpired"), No(ClockSkew), Lands::Never),
        row(refused("ResourceNotFoundException"), No(Misconfigured), Lands::Never),
        row(refused("ValidationException"), No(Misconfigured), Lands::Never),
        row(refused("SomethingNew"), No(StoreErrorKind::Other), Lands::Never),
        // Without the request id it is not DynamoDB's own answer, whatever it says.
        row(Fault::ForwardThenAnswer(nameless("ValidationException")), NotKnown(Unavailable), Lands::Now),
        row(Fault::ForwardThenAnswer(nameless("SomethingNew")), NotKnown(Unavailable), Lands::Now),
        row(Fault::ForwardThenAnswer(Answer::new(200)), NotKnown(Unavailable), Lands::Now),
        row(Fault::ForwardThenAnswer(page(429)), NotKnown(Throttled), Lands::Now),
    ];
    let pages = [200, 302, 400, 403, 404, 408, 499, 502];
    rows.extend(
        pages.map(|status| row(Fault::ForwardThenAnswer(page(status)), NotKnown(Unavailable), Lands::Now)),
    );
    rows
}

/// What a proxy in between says in the service's place.
fn page(status: u16) -> Answer {
    Answer::new(status).header("content-type", "text/html").body("<html><body>No.</body></html>")
}

/// A refusal in DynamoDB's form, without its request id.
fn nameless(code: &str) -> Answer {
    let mut answer = dynamodb::error(400, code, "canned");
    answer.headers.remove("x-amzn-requestid");
    answer
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Acquire,
    TakeOver,
    Renew,
    Release,
    Break,
    Inspect,
}

const OPERATIONS: [Operation; 6] = [
    Operation::Acquire,
    Operation::TakeOver,
    Operation::Renew,
    Operation::Release,
    Operation::Break,
    Operation::Inspect,
];

/// One operation on a key of its own, as it can be asked again and again.
struct Act {
    operation: Operation,
    key: LeaseKey,
    acquire: AcquireRequest,
    grant: Option<Grant>,
}

impl Act {
    /// Brings the key into the state that the operation needs.
    async fn prepare(
        operation: Operation,
        direct: &DynamoDbStore,
        client: &aws_sdk_dynamodb::Client,
    ) -> Self {
        let key = fresh_key("fault");
        let acquire = ask(&key);
        let grant = match operation {
            Operation::Acquire => None,
            Operation::TakeOver => {
                granted(direct, &ask(&key)).await;
                // One of a minute ago is taken in one request; one of this second may need two.
                engine::make_old(client, &key).await;
                None
            }
            Operation::Renew | Operation::Release | Operation::Break | Operation::Inspect => {
                Some(granted(direct, &acquire).await)
            }
        };
        Self { operation, key, acquire, grant }
    }

    fn grant(&self) -> &Grant {
        self.grant.as_ref().unwrap()
    }

    /// Asks, once. Yes is whatever the operation is there for.
    async fn ask(&self, store: &DynamoDbStore) -> Result<(), StoreError> {
        match self.operation {
            Operation::Acquire | Operation::TakeOver => {
                let outcome = store.acquire(&again(&self.acquire)).await?;
                assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
            }
            Operation::Renew => {
                let outcome = store
                    .renew(&[RenewRequest::new(self.grant().clone(), attempt(), TTL)])
                    .await
                    .remove(0)?;
                assert!(matches!(outcome, RenewOutcome::Renewed(_)), "{outcome:?}");
            }
            Operation::Release => {
                let outcome = store.release(&ReleaseRequest::of(self.grant())).await?;
                assert!(
                    matches!(outcome, ReleaseOutcome::Released | ReleaseOutcome::AlreadyEnded),
                    "{outcome:?}"
                );
            }
            Operation::Break => {
                let token = self.grant().token;
                let outcome = store.break_lease(&self.key, token, BreakHow::Immediate).await?;
                assert!(matches!(outcome, BreakOutcome::Broken | BreakOutcome::NotCurrent), "{outcome:?}");
            }
            Operation::Inspect => {
                store.inspect(&self.key, PATIENCE).await?;
            }
        }
        Ok(())
    }

    /// Whether the record shows that the operation has been done.
    async fn has_landed(&self, client: &aws_sdk_dynamodb::Client) -> bool {
        let item = engine::item(client, &self.key).await;
        let nonce = item.as_ref().and_then(|item| item.get("nonce")?.as_s().ok().cloned());
        match self.operation {
            Operation::Acquire | Operation::TakeOver => nonce == Some(self.acquire.nonce.expose_hex()),
            Operation::Renew => item.and_then(|item| engine::number_of(&item, "seq")) == Some(1),
            Operation::Release | Operation::Break => nonce.is_none(),
            Operation::Inspect => nonce.is_some(),
        }
    }
}

async fn hears(answer: impl Future<Output = Result<(), StoreError>>) -> Hears {
    tokio::select! {
        biased;
        answer = answer => match answer {
            Ok(()) => Hears::Yes,
            Err(error) if error.effect() == Effect::NotApplied => Hears::No(error.kind()),
            Err(error) => Hears::NotKnown(error.kind()),
        },
        () = SystemClock.sleep(PATIENCE) => Hears::Nothing,
    }
}

async fn run_table(engine: Engine) {
    let client = engine.client().await;
    let direct = DynamoDbStore::open(client.clone(), TABLE).await.unwrap();
    let proxy = Proxy::start(&engine.endpoint()).await.unwrap();
    let store = DynamoDbStore::open(engine::client(&proxy.url()), TABLE).await.unwrap();
    for row in table() {
        for operation in OPERATIONS {
            let name = format!("{operation:?} × {:?}", row.fault);
            let act = Act::prepare(operation, &direct, &client).await;
            let verb = if operation == Operation::Inspect { "GetItem" } else { "UpdateItem" };
            proxy.clear();
            proxy.script_for(&Matcher::target(verb), [row.fault.clone()]);
            assert_eq!(hears(act.ask(&store)).await, row.hears, "{name}");
            let reads = operation == Operation::Inspect;
            let landed = row.lands == Lands::Now || reads;
            assert_eq!(act.has_landed(&client).await, landed, "{name}");
            proxy.heal();

            // Asked again, the same logical request comes to its end: own writes are recognised in every operation.
            assert_eq!(hears(act.ask(&store)).await, Hears::Yes, "{name}, asked again");
            assert!(act.has_landed(&client).await, "{name}, asked again");

            // What was held back or doubled arrives when the key has changed hands, and disturbs nobody.
            let next = change_hands(&act, &direct, &client).await;
            let _ = proxy.deliver().await;
            proxy.settled().await;
            let seen = direct.inspect(&act.key, PATIENCE).await.unwrap();
            assert_eq!(
                seen.held.map(|held| (held.token, held.seq)),
                Some((next.token, 0)),
                "{name}, delivered late"
            );
        }
    }
    assert_eq!(proxy.unmet(), 0, "every scripted fault was met");
}

/// Gives the key to somebody else.
async fn change_hands(act: &Act, direct: &DynamoDbStore, client: &aws_sdk_dynamodb::Client) -> Grant {
    if engine::item(client, &act.key).await.is_some_and(|item| item.contains_key("nonce")) {
        age(client, &act.key, 3 * TTL).await;
    }
    granted(direct, &ask(&act.key)).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs dynoxide: localstack/up dynoxide"]
async fn every_operation_meets_every_fault_on_dynoxide() {
    run_table(Engine::Dynoxide).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs LocalStack: localstack/up localstack"]
async fn every_operation_meets_every_fault_on_localstack() {
    run_table(Engine::LocalStack).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs ministack: localstack/up ministack"]
async fn every_operation_meets_every_fault_on_ministack() {
    run_table(Engine::Ministack).await;
}
