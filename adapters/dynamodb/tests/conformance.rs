//! The contract, clause by clause, on three engines that answer as DynamoDB.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod engine;

use std::time::Duration;

use engine::{Engine, TABLE, age, number, stored_token, text};
use leasehold::record::TokenPolicy;
use leasehold::{AcquireOutcome, BreakHow, FencingToken, LeaseAdmin, LeaseKey, LeaseStore};
use leasehold_conformance::{Harness, Impossible, async_trait};
use leasehold_dynamodb::{DynamoDbOptions, DynamoDbStore};

mod dynoxide {
    use super::{Dynamo, Engine};
    leasehold_conformance::suite!(
        #[ignore = "needs dynoxide: localstack/up dynoxide"]
        Dynamo::on(Engine::Dynoxide).await
    );
}

mod localstack {
    use super::{Dynamo, Engine};
    leasehold_conformance::suite!(
        #[ignore = "needs LocalStack: localstack/up localstack"]
        Dynamo::on(Engine::LocalStack).await
    );
}

mod ministack {
    use super::{Dynamo, Engine};
    leasehold_conformance::suite!(
        #[ignore = "needs ministack: localstack/up ministack"]
        Dynamo::on(Engine::Ministack).await
    );
}

mod sequential_tokens {
    use super::{Dynamo, Engine};
    leasehold_conformance::suite!(
        #[ignore = "needs dynoxide: localstack/up dynoxide"]
        Dynamo::counting(Engine::Dynoxide).await
    );
}

mod in_batches {
    use super::{Dynamo, Engine};
    leasehold_conformance::suite!(
        #[ignore = "needs dynoxide: localstack/up dynoxide"]
        Dynamo::batching(Engine::Dynoxide).await
    );
}

struct Dynamo {
    engine: Engine,
    tokens: TokenPolicy,
    batches: bool,
}

impl Dynamo {
    async fn on(engine: Engine) -> Self {
        engine.client().await;
        Self { engine, tokens: TokenPolicy::default(), batches: false }
    }

    async fn counting(engine: Engine) -> Self {
        Self { tokens: TokenPolicy::Sequential { seed: 0 }, ..Self::on(engine).await }
    }

    async fn batching(engine: Engine) -> Self {
        Self { batches: true, ..Self::on(engine).await }
    }

    fn client(&self) -> aws_sdk_dynamodb::Client {
        engine::client(&self.engine.endpoint())
    }
}

#[async_trait]
impl Harness for Dynamo {
    type Store = DynamoDbStore;

    async fn store(&self) -> DynamoDbStore {
        let options = DynamoDbOptions::new().with_tokens(self.tokens).with_batches(self.batches);
        DynamoDbStore::open_with(self.client(), TABLE, options).await.unwrap()
    }

    async fn age(&self, key: &LeaseKey, by: Duration) {
        age(&self.client(), key, by).await;
    }

    async fn expire(&self, key: &LeaseKey) {
        engine::set(&self.client(), key, "expires_at", number(1)).await;
    }

    async fn usurp(&self, key: &LeaseKey) {
        let store = self.store().await;
        let token = self.stored_token(key).await.unwrap();
        store.break_lease(key, token, BreakHow::Immediate).await.unwrap();
        let outcome = store.acquire(&engine::ask(key)).await.unwrap();
        assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
    }

    async fn delete_record(&self, key: &LeaseKey) -> Result<(), Impossible> {
        self.client().delete_item().table_name(TABLE).key("pk", text(key.as_str())).send().await.unwrap();
        Ok(())
    }

    async fn stored_token(&self, key: &LeaseKey) -> Option<FencingToken> {
        stored_token(&self.client(), key).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn rounds(&self) -> u32 {
        20
    }
}
