//! `leasehold init`.

use leasehold::Severity;

use crate::exit::{self, Failure};
use crate::print;
use crate::stores::Place;

/// Makes the store, or looks whether it can be used, and says which.
pub(crate) async fn init(place: &Place) -> Result<u8, Failure> {
    let address = place.address()?;
    let was_there = address.make().await?;
    let store = address.open().await?;
    for finding in store.check().await? {
        if finding.severity == Severity::Error {
            return Err(Failure::new(exit::MISCONFIGURED, format!("{}: {}", finding.what, finding.remedy)));
        }
        print::note(format_args!("{}: {}", finding.what, finding.remedy));
    }
    let verb = if was_there { "found" } else { "made" };
    let name = store.profile().name;
    print::answer(&match address.file() {
        Some(file) => format!("{verb} the {name} store {}; it is ready\n", file.display()),
        None => format!("{verb} the {name} store; it is ready\n"),
    })
}
