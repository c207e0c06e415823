//! Who asks, and where: account, endpoint, credential.

use std::fmt;
use std::sync::Arc;

use azure_core::credentials::{Secret, TokenCredential};
use azure_core::http::Url;
use leasehold::{StoreError, StoreErrorKind};

/// The emulator's account and its key, which its vendor publishes.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_ENDPOINT: &str = "http://127.0.0.1:10000/devstoreaccount1";

/// A storage account, and what its requests are authorised with.
///
/// `Debug` shows neither key nor signature.
///
/// ```
/// use leasehold_azure_blob::Account;
///
/// let account = Account::shared_key("billing", "bm90IGEga2V5")?;
/// let emulated = Account::emulator().with_endpoint("http://127.0.0.1:10000/devstoreaccount1")?;
/// # Ok::<(), leasehold::StoreError>(())
/// ```
#[derive(Clone)]
pub struct Account {
    pub(crate) name: String,
    pub(crate) endpoint: Url,
    pub(crate) credential: Credential,
}

#[derive(Clone)]
pub(crate) enum Credential {
    SharedKey(Secret),
    Sas(Secret),
    Token(Arc<dyn TokenCredential>),
}

impl Account {
    /// With one of the account's two keys, in Base64.
    ///
    /// # Errors
    /// `Misconfigured` when name or key cannot be one.
    pub fn shared_key(name: &str, key: &str) -> Result<Self, StoreError> {
        if key.is_empty() || azure_core::base64::decode(key).is_err() {
            return Err(misconfigured(
                "the account key is not Base64: copy it whole from the account's access keys",
            ));
        }
        Self::new(name, Credential::SharedKey(Secret::new(String::from(key))))
    }

    /// With a shared access signature: `sv=…&sig=…`, with or without a leading `?`.
    ///
    /// # Errors
    /// `Misconfigured` when name or signature cannot be one.
    pub fn sas(name: &str, signature: &str) -> Result<Self, StoreError> {
        let signature = signature.trim().trim_start_matches('?');
        let has = |name: &str| signature.split('&').any(|pair| pair.starts_with(name));
        let is_query = signature.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !(has("sig=") && has("sv=") && is_query) {
            return Err(misconfigured(
                "the shared access signature lacks sv= or sig=: copy the SAS token whole, and not the URL",
            ));
        }
        Self::new(name, Credential::Sas(Secret::new(String::from(signature))))
    }

    /// With tokens of Microsoft Entra ID: a managed identity, a workload identity, the Azure CLI. Needs https.
    ///
    /// # Errors
    /// `Misconfigured` when the name cannot be one.
    pub fn token(name: &str, credential: Arc<dyn TokenCredential>) -> Result<Self, StoreError> {
        Self::new(name, Credential::Token(credential))
    }

    /// The emulator on this machine, at its own port and with its published key.
    pub fn emulator() -> Self {
        let endpoint = Url::parse(EMULATOR_ENDPOINT).expect("the emulator's endpoint is a URL");
        let credential = Credential::SharedKey(Secret::new(EMULATOR_KEY));
        Self { name: String::from(EMULATOR), endpoint, credential }
    }

    /// As a connection string says: `AccountName` with `AccountKey` or `SharedAccessSignature`, and `BlobEndpoint` or
    /// `EndpointSuffix` and `DefaultEndpointsProtocol`; or `UseDevelopmentStorage=true`.
    ///
    /// # Errors
    /// `Misconfigured` when something is missing or makes no sense. No value is shown.
    pub fn connection_string(text: &str) -> Result<Self, StoreError> {
        let mut parts = Parts::default();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(misconfigured("the connection string has a part without `=`: copy it whole"));
            };
            parts.set(name, value);
        }
        parts.account()
    }

    /// At another endpoint: a private one, another cloud's, an emulator's (which has the account's name in its path).
    ///
    /// # Errors
    /// `Misconfigured` when it is no http or https URL, names a user or has a query: no secret is accepted in a URL. Also for a
    /// secondary endpoint, which is a stale copy, and for a token over http.
    pub fn with_endpoint(mut self, endpoint: &str) -> Result<Self, StoreError> {
        let Ok(url) = Url::parse(endpoint) else {
            return Err(misconfigured(
                "the endpoint is not a URL: write it as https://ACCOUNT.blob.core.windows.net",
            ));
        };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(misconfigured("the endpoint needs http or https, and a host"));
        }
        if url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return Err(misconfigured(
                "the endpoint has a query or a user: no secret is accepted in a URL, give the signature by itself",
            ));
        }
        if url
            .host_str()
            .is_some_and(|host| host.split('.').next().is_some_and(|first| first.ends_with("-secondary")))
        {
            return Err(misconfigured(
                "the endpoint is the account's secondary, a copy that lags behind and cannot be written: give the primary",
            ));
        }
        if matches!(self.credential, Credential::Token(_)) && url.scheme() != "https" {
            return Err(misconfigured(
                "a token is sent over https only: give an https endpoint, or another credential",
            ));
        }
        self.endpoint = url;
        Ok(self)
    }

    /// The account's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn new(name: &str, credential: Credential) -> Result<Self, StoreError> {
        // 3 to 24 letters and digits on Azure; emulators and stacks of one's own take more.
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(misconfigured("the account's name has other characters than letters and digits"));
        }
        let endpoint = Url::parse(&format!("https://{name}.blob.core.windows.net"))
            .map_err(|_| misconfigured("the account's name does not make the name of a host"))?;
        Ok(Self { name: String::from(name), endpoint, credential })
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credential = match self.credential {
            Credential::SharedKey(_) => "shared key",
            Credential::Sas(_) => "shared access signature",
            Credential::Token(_) => "token",
        };
        f.debug_struct("Account")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint.as_str())
            .field("credential", &credential)
            .finish()
    }
}

/// What a connection string says that matters to blobs.
#[derive(Default)]
struct Parts<'a> {
    development: bool,
    protocol: Option<&'a str>,
    name: Option<&'a str>,
    key: Option<&'a str>,
    sas: Option<&'a str>,
    endpoint: Option<&'a str>,
    suffix: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn set(&mut self, name: &str, value: &'a str) {
        let place = match name.trim().to_ascii_lowercase().as_str() {
            "usedevelopmentstorage" => {
                self.development = value.eq_ignore_ascii_case("true");
                return;
            }
            "defaultendpointsprotocol" => &mut self.protocol,
            "accountname" => &mut self.name,
            "accountkey" => &mut self.key,
            "sharedaccesssignature" => &mut self.sas,
            "blobendpoint" => &mut self.endpoint,
            "endpointsuffix" => &mut self.suffix,
            _ => return,
        };
        *place = Some(value);
    }

    fn account(self) -> Result<Account, StoreError> {
        if self.development {
            return Ok(Account::emulator());
        }
        let in_endpoint = self.endpoint.and_then(account_in);
        let Some(name) = self.name.map(String::from).or(in_endpoint) else {
            return Err(misconfigured("the connection string lacks AccountName"));
        };
        let account = match (self.key, self.sas) {
            (Some(key), _) => Account::shared_key(&name, key)?,
            (None, Some(sas)) => Account::sas(&name, sas)?,
            (None, None) => {
                return Err(misconfigured(
                    "the connection string lacks AccountKey and SharedAccessSignature",
                ));
            }
        };
        match (self.endpoint, self.suffix, self.protocol) {
            (Some(endpoint), _, _) => account.with_endpoint(endpoint),
            (None, None, None) => Ok(account),
            (None, suffix, protocol) => {
                let (protocol, suffix) = (protocol.unwrap_or("https"), suffix.unwrap_or("core.windows.net"));
                account.with_endpoint(&format!("{protocol}://{name}.blob.{suffix}"))
            }
        }
    }
}

/// The account that an endpoint of the usual form names.
fn account_in(endpoint: &str) -> Option<String> {
    let url = Url::parse(endpoint).ok()?;
    let (name, rest) = url.host_str()?.split_once('.')?;
    rest.starts_with("blob.").then(|| String::from(name))
}

pub(crate) fn misconfigured(message: &'static str) -> StoreError {
    StoreError::not_applied(StoreErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "c2VjcmV0LWtleQ==";

    #[test]
    fn a_connection_string_is_read() {
        for (text, name, endpoint) in [
            (
                format!(
                    "DefaultEndpointsProtocol=https;AccountName=a1;AccountKey={KEY};EndpointSuffix=core.windows.net"
                ),
                "a1",
                "https://a1.blob.core.windows.net/",
            ),
            (format!("AccountName=a1;AccountKey={KEY};"), "a1", "https://a1.blob.core.windows.net/"),
            (
                String::from(
                    "BlobEndpoint=https://a2.blob.core.windows.net/;SharedAccessSignature=sv=2024&sig=abc%3D",
                ),
                "a2",
                "https://a2.blob.core.windows.net/",
            ),
            (String::from("UseDevelopmentStorage=true"), EMULATOR, EMULATOR_ENDPOINT),
            (
                format!("AccountName=a3;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:10000/a3"),
                "a3",
                "http://127.0.0.1:10000/a3",
            ),
        ] {
            let account = Account::connection_string(&text).unwrap();
            assert_eq!((account.name(), account.endpoint.as_str()), (name, endpoint), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_no_secret_is() {
        let sig = "sv=2024&sig=S3CRET";
        let errors = [
            Account::connection_string("AccountName=a1").unwrap_err(),
            Account::connection_string("AccountName=a1;AccountKey=S3CRET!").unwrap_err(),
            Account::connection_string("S3CRET").unwrap_err(),
            Account::sas("a1", "https://a1.blob.core.windows.net/?sig=S3CRET").unwrap_err(),
            Account::sas("a1", sig).unwrap().with_endpoint("https://a1.example/?sig=S3CRET").unwrap_err(),
            Account::sas("a1", sig)
                .unwrap()
                .with_endpoint("https://a1-secondary.blob.core.windows.net")
                .unwrap_err(),
            Account::sas("a1", sig).unwrap().with_endpoint("ftp://a1").unwrap_err(),
            Account::shared_key("a/1", KEY).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
            assert!(!format!("{error} {error:?}").contains("S3CRET"), "{error:?}");
        }
    }

    #[test]
    fn debug_keeps_the_secret() {
        for account in
            [Account::shared_key("a1", KEY).unwrap(), Account::sas("a1", "sv=2024&sig=S3CRET").unwrap()]
        {
            let shown = format!("{account:?}");
            assert!(!shown.contains(KEY) && !shown.contains("S3CRET"), "{shown}");
        }
    }
}
