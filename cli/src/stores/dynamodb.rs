//! `dynamodb://TABLE?region=…&endpoint=…`: leases in a DynamoDB table, with the ordinary AWS environment.

use std::net::IpAddr;
use std::sync::Arc;

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::Client;
use leasehold::{LeaseStore, StoreError, StoreErrorKind};
use leasehold_dynamodb::{Created, DynamoDbOptions, DynamoDbStore};
use url::{Host, Url};

use super::query::Query;
use crate::exit::{self, Failure};

/// A table, and how to get there. What is not said is as the AWS environment says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    name: String,
    region: Option<String>,
    home_region: Option<String>,
    endpoint: Option<Url>,
    prefix: Option<String>,
    key: Option<String>,
    sort_key: Option<(String, String)>,
}

impl Table {
    pub(crate) fn parse(url: &Url) -> Result<Self, Failure> {
        let name = url.host_str().unwrap_or_default();
        if !matches!(url.path(), "" | "/") {
            return Err(misconfigured(
                "the store's URL has a path behind the table's name: write `dynamodb://TABLE`, and `?prefix=…` for a prefix of keys",
            ));
        }
        if name.is_empty() {
            return Err(misconfigured(
                "the store's URL names no table: write `dynamodb://TABLE`, for example `dynamodb://leases?region=eu-west-1`",
            ));
        }
        let mut query = Query::of(url)?;
        let table = Self {
            name: name.to_owned(),
            region: query.take("region"),
            home_region: query.take("home-region"),
            endpoint: query.take("endpoint").map(|endpoint| parse_endpoint(&endpoint)).transpose()?,
            prefix: query.take("prefix"),
            key: query.take("key"),
            sort_key: query.take("sort-key").map(|pair| parse_sort_key(&pair)).transpose()?,
        };
        query.nothing_more("region, home-region, endpoint, prefix, key, sort-key")?;
        Ok(table)
    }

    pub(crate) async fn open(&self) -> Result<Arc<dyn LeaseStore>, Failure> {
        let client = self.client().await?;
        Ok(Arc::new(DynamoDbStore::open_with(client, &self.name, self.options()).await?))
    }

    /// Makes the table if there is none. Says whether there was.
    pub(crate) async fn make(&self) -> Result<bool, Failure> {
        let client = self.client().await?;
        let created = DynamoDbStore::create_table(&client, &self.name, &self.options()).await?;
        Ok(created == Created::Existed)
    }

    fn options(&self) -> DynamoDbOptions {
        let mut options = DynamoDbOptions::new();
        if let Some(prefix) = &self.prefix {
            options = options.with_key_prefix(prefix);
        }
        if let Some(key) = &self.key {
            options = options.with_key_attribute(key);
        }
        if let Some((name, value)) = &self.sort_key {
            options = options.with_sort_key(name, value);
        }
        if let Some(region) = &self.home_region {
            options = options.with_home_region(region);
        }
        options
    }

    async fn client(&self) -> Result<Client, Failure> {
        let mut loader = aws_config::defaults(BehaviorVersion::latest());
        if let Some(region) = &self.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &self.endpoint {
            loader = loader.endpoint_url(endpoint.as_str());
            if is_loopback(endpoint) && !says_who_we_are() {
                // An emulator on this machine checks none, and looking for some takes seconds.
                loader =
                    loader.credentials_provider(Credentials::new("test", "test", None, None, "emulator"));
            }
        }
        let config = loader.load().await;
        if config.region().is_none() {
            let line = "no AWS region is configured: add `?region=…` to the store's URL, or set AWS_REGION or a profile";
            return Err(StoreError::not_applied(StoreErrorKind::Misconfigured, line).into());
        }
        Ok(Client::new(&config))
    }
}

fn says_who_we_are() -> bool {
    ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn parse_endpoint(endpoint: &str) -> Result<Url, Failure> {
    let wrong =
        || misconfigured("`endpoint` in the store's URL takes a URL, for example `http://127.0.0.1:4566`");
    let endpoint = Url::parse(endpoint).map_err(|_| wrong())?;
    if !matches!(endpoint.scheme(), "http" | "https") || !endpoint.username().is_empty() {
        return Err(wrong());
    }
    Ok(endpoint)
}

fn parse_sort_key(pair: &str) -> Result<(String, String), Failure> {
    let parts = pair.split_once(':').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    let (name, value) = parts.ok_or_else(|| {
        misconfigured("`sort-key` in the store's URL takes NAME:VALUE, the sort key's name and what all leases have there")
    })?;
    Ok((name.to_owned(), value.to_owned()))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

fn misconfigured(line: &'static str) -> Failure {
    Failure::new(exit::MISCONFIGURED, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Table, Failure> {
        Table::parse(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_table_is_read_with_what_is_said_of_it() {
        let url = "dynamodb://My.leases_1?region=eu-west-1&endpoint=http://127.0.0.1:4566&prefix=billing%2F&key=id&sort-key=kind:lease";
        let table = parse(url).unwrap();
        assert_eq!((table.name.as_str(), table.region.as_deref()), ("My.leases_1", Some("eu-west-1")));
        assert_eq!(table.endpoint.as_ref().map(Url::as_str), Some("http://127.0.0.1:4566/"));
        assert_eq!((table.prefix.as_deref(), table.key.as_deref()), (Some("billing/"), Some("id")));
        assert_eq!(table.sort_key, Some((String::from("kind"), String::from("lease"))));
        assert!(is_loopback(table.endpoint.as_ref().unwrap()));
        assert_eq!(parse("dynamodb://leases").unwrap().region, None);
    }

    #[test]
    fn what_is_no_table_says_what_to_write() {
        for (url, expected) in [
            ("dynamodb://", "names no table"),
            ("dynamodb://leases/more", "has a path"),
            ("dynamodb://leases?region=", "no value"),
            ("dynamodb://leases?endpoint=127.0.0.1", "takes a URL"),
            ("dynamodb://leases?endpoint=http://me:hunter2@127.0.0.1", "takes a URL"),
            ("dynamodb://leases?sort-key=lease", "NAME:VALUE"),
            ("dynamodb://leases?regoin=eu-west-1", "`regoin`"),
            ("dynamodb://leases?region=a&region=b", "twice"),
        ] {
            let line = parse(url).unwrap_err().to_string();
            assert!(line.contains(expected), "{url}: {line}");
            assert!(!line.contains("hunter2"), "{url}: {line}");
        }
    }
}
