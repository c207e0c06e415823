//! The table: what it is, whether leases can live in it, and its making.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, MultiRegionConsistency, ScalarAttributeType,
    TableDescription, TableStatus,
};
use leasehold::{Clock, Finding, Severity, StoreError, StoreErrorKind};

use crate::error::of_sdk;
use crate::options::DynamoDbOptions;

/// How long a new table is waited for. The service needs some seconds.
const CREATION: Duration = Duration::from_secs(120);

/// What is known of a table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// A global table of which every region sees the newest writes.
    pub(crate) strong: bool,
    /// What was found on opening that does not prevent leases.
    pub(crate) findings: Vec<Finding>,
}

impl Table {
    /// What nobody has looked at.
    pub(crate) fn unchecked(name: String) -> Self {
        Self { name, strong: false, findings: Vec::new() }
    }

    /// Looks at the table, once.
    pub(crate) async fn describe(
        client: &Client,
        name: String,
        options: &DynamoDbOptions,
    ) -> Result<Self, StoreError> {
        let description = describe(client, &name).await?;
        check_keys(&description, options)?;
        let mut findings = Vec::new();
        let strong = check_replicas(&description, client, options, &mut findings)?;
        if description.deletion_protection_enabled() != Some(true) {
            findings.push(Finding::new(
                Severity::Warning,
                format!("table `{name}` has no deletion protection"),
                "enable it: a deleted table frees every lease while its holder works",
            ));
        }
        Ok(Self { name, strong, findings })
    }
}

async fn describe(client: &Client, name: &str) -> Result<TableDescription, StoreError> {
    let ask = || async {
        client.describe_table().table_name(name).send().await.map_err(|error| of_sdk(error, None))
    };
    let answer = match ask().await {
        // The refusal carried the right time, with which the client signs from here on.
        Err(error) if error.kind() == StoreErrorKind::ClockSkew => ask().await?,
        answer => answer?,
    };
    answer.table.ok_or_else(|| {
        StoreError::not_applied(
            StoreErrorKind::Misconfigured,
            format!("DescribeTable says nothing of table `{name}`: check that the endpoint is DynamoDB"),
        )
    })
}

fn check_keys(table: &TableDescription, options: &DynamoDbOptions) -> Result<(), StoreError> {
    let key = |kind: &KeyType| {
        table
            .key_schema()
            .iter()
            .find(|element| element.key_type() == kind)
            .map(KeySchemaElement::attribute_name)
    };
    let is_string = |name: &str| {
        let definitions = table.attribute_definitions().iter();
        definitions
            .filter(|definition| definition.attribute_name() == name)
            .all(|definition| *definition.attribute_type() == ScalarAttributeType::S)
    };
    let (hash, range) = (key(&KeyType::Hash), key(&KeyType::Range));
    let wanted_range = options.sort_key.as_ref().map(|(name, _)| name.as_str());
    let fits = hash == Some(options.key_attribute.as_str()) && range == wanted_range;
    if fits && hash.into_iter().chain(range).all(is_string) {
        return Ok(());
    }
    let describe = |hash: Option<&str>, range: Option<&str>| match (hash, range) {
        (Some(hash), Some(range)) => format!("`{hash}` and sort key `{range}`"),
        (Some(hash), None) => format!("`{hash}`"),
        _ => String::from("none"),
    };
    Err(StoreError::not_applied(
        StoreErrorKind::Misconfigured,
        format!(
            "the table's key is {} and the options say {} (strings): name the table's own key in the options, or use a table of their own for leases",
            describe(hash, range),
            describe(Some(&options.key_attribute), wanted_range),
        ),
    ))
}

/// Whether the table is strong over its regions. One that is eventual grants a key once in each region, so it is refused
/// unless all holders use one region.
fn check_replicas(
    table: &TableDescription,
    client: &Client,
    options: &DynamoDbOptions,
    findings: &mut Vec<Finding>,
) -> Result<bool, StoreError> {
    if table.replicas().is_empty() {
        return Ok(false);
    }
    if table.multi_region_consistency() == Some(&MultiRegionConsistency::Strong) {
        return Ok(true);
    }
    let here = client.config().region().map(ToString::to_string).unwrap_or_default();
    match &options.home_region {
        Some(home) if *home == here => {
            findings.push(Finding::new(
                Severity::Warning,
                format!(
                    "the table is an eventually consistent global table, used from its home region {home}"
                ),
                "see that every holder names this same region: another region would grant the same keys",
            ));
            Ok(false)
        }
        Some(home) => Err(StoreError::not_applied(
            StoreErrorKind::Misconfigured,
            format!(
                "the table's home region is {home} and this client is in {here}: point the client to {home}"
            ),
        )),
        None => Err(StoreError::not_applied(
            StoreErrorKind::Misconfigured,
            "the table is an eventually consistent global table, and each of its regions would grant the same key: use a table of \
             one region or a strongly consistent global table, or name one home region for all holders",
        )),
    }
}

/// What [`DynamoDbStore::create_table`](crate::DynamoDbStore::create_table) found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by nature: it was there or not")]
pub enum Created {
    /// It was there already, and fits.
    Existed,
    /// It is new.
    New,
}

/// Makes the table if there is none, and waits until it is active. Looks first: who may not make tables can see that there is one.
pub(crate) async fn create(
    client: &Client,
    name: &str,
    options: &DynamoDbOptions,
) -> Result<Created, StoreError> {
    let created = match describe(client, name).await {
        Ok(_) => Created::Existed,
        Err(error) if error.code() == Some("ResourceNotFoundException") => {
            send_create(client, name, options).await?
        }
        Err(error) => return Err(error),
    };
    check_keys(&await_active(client, name, &*options.clock).await?, options)?;
    Ok(created)
}

async fn send_create(client: &Client, name: &str, options: &DynamoDbOptions) -> Result<Created, StoreError> {
    let mut request = client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .deletion_protection_enabled(true);
    let sort_key = options.sort_key.as_ref().map(|(name, _)| (name, KeyType::Range));
    for (attribute, kind) in [(&options.key_attribute, KeyType::Hash)].into_iter().chain(sort_key) {
        let element = KeySchemaElement::builder().attribute_name(attribute).key_type(kind).build();
        let definition = AttributeDefinition::builder()
            .attribute_name(attribute)
            .attribute_type(ScalarAttributeType::S)
            .build();
        let (Ok(element), Ok(definition)) = (element, definition) else {
            return Err(StoreError::not_applied(
                StoreErrorKind::Misconfigured,
                "the key attributes have no names",
            ));
        };
        request = request.key_schema(element).attribute_definitions(definition);
    }
    match request.send().await {
        Ok(_) => Ok(Created::New),
        // Somebody else has made it meanwhile.
        Err(error) if error.as_service_error().is_some_and(|error| error.is_resource_in_use_exception()) => {
            Ok(Created::Existed)
        }
        Err(error) => Err(of_sdk(error, None)),
    }
}

async fn await_active(
    client: &Client,
    name: &str,
    clock: &dyn Clock,
) -> Result<TableDescription, StoreError> {
    let began = clock.read();
    loop {
        let table = describe(client, name).await?;
        if table.table_status() == Some(&TableStatus::Active) {
            return Ok(table);
        }
        if clock.read().monotonic.saturating_sub(began.monotonic) > CREATION {
            return Err(StoreError::unknown(
                StoreErrorKind::Unavailable,
                format!("table `{name}` is not active yet: run the same again in a minute"),
            ));
        }
        clock.sleep(Duration::from_millis(500)).await;
    }
}

/// Whether DynamoDB deletes items of this table by their age: it would free leases while they are held.
pub(crate) async fn ttl_finding(client: &Client, name: &str) -> Result<Option<Finding>, StoreError> {
    let answer =
        client.describe_time_to_live().table_name(name).send().await.map_err(|error| of_sdk(error, None))?;
    let enabled = answer.time_to_live_description().and_then(|description| description.attribute_name());
    Ok(enabled.map(|attribute| {
        Finding::new(
            Severity::Error,
            format!("table `{name}` deletes items by their attribute `{attribute}` (Time to Live)"),
            "disable it, or see that no lease has that attribute: a deleted record frees its key while its holder works",
        )
    }))
}
