//! Which boot of which machine the boot clock counts from.

use std::sync::Arc;

use leasehold::StoreErrorKind;

use crate::error::Failure;

/// The name of the boot clock that this process reads. Times of two names are not comparable.
pub(crate) fn timeline() -> Result<Arc<str>, Failure> {
    platform::timeline().map(Arc::from)
}

fn no_boot_id(what: &str) -> Failure {
    Failure::not_applied(
        StoreErrorKind::Misconfigured,
        format!(
            "the id of this boot, which tells whose clock a record was timed by, is not to be had: {what}"
        ),
    )
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use std::fs;

    use super::{Failure, no_boot_id};

    const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
    /// The kernel's fixed name for the time namespace of the machine itself.
    const INITIAL: &str = "time:[4026531834]";

    pub(super) fn timeline() -> Result<String, Failure> {
        let id = fs::read_to_string(BOOT_ID)
            .map_err(|error| no_boot_id("mount /proc, with /proc/sys readable").with_source(error))?;
        if id.trim().is_empty() {
            return Err(no_boot_id("/proc/sys/kernel/random/boot_id is empty; mount the kernel's own /proc"));
        }
        let namespace = fs::read_link("/proc/self/ns/time").ok();
        let namespace = namespace.as_deref().and_then(|link| link.to_str());
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Ok(named(id.trim(), namespace, &offsets))
    }

    /// A container may run the boot clock with an offset (a time namespace) under the machine's boot id. Namespaces are
    /// renumbered, so the offsets are part of the name.
    fn named(boot_id: &str, namespace: Option<&str>, offsets: &str) -> String {
        match namespace {
            None | Some(INITIAL) => boot_id.to_owned(),
            Some(namespace) => {
                let words = [boot_id, namespace].into_iter().chain(offsets.split_whitespace());
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_boot_id_is_the_kernels_and_stays() {
            let first = timeline().unwrap();
            assert!(first.starts_with(fs::read_to_string(BOOT_ID).unwrap().trim()));
            assert_eq!(first, timeline().unwrap());
        }

        #[test]
        fn a_shifted_boot_clock_is_another_timeline() {
            let plain = named("b", None, "");
            assert_eq!(plain, named("b", Some(INITIAL), "monotonic 0 0\nboottime 0 0\n"));
            let shifted = named("b", Some("time:[7]"), "monotonic 0 0\nboottime  86400 0\n");
            assert_eq!(shifted, "b time:[7] monotonic 0 0 boottime 86400 0");
            assert_ne!(shifted, named("b", Some("time:[7]"), "monotonic 0 0\nboottime 60 0\n"));
        }
    }
}

#[cfg(target_os = "macos")]
mod platform {
    use std::process::Command;

    use super::{Failure, no_boot_id};

    pub(super) fn timeline() -> Result<String, Failure> {
        const ADVICE: &str = "see that `/usr/sbin/sysctl -n kern.bootsessionuuid` prints one";
        let output = Command::new("/usr/sbin/sysctl")
            .args(["-n", "kern.bootsessionuuid"])
            .output()
            .map_err(|error| no_boot_id(ADVICE).with_source(error))?;
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if id.is_empty() { Err(no_boot_id(ADVICE)) } else { Ok(id) }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
mod platform {
    use super::{Failure, no_boot_id};

    pub(super) fn timeline() -> Result<String, Failure> {
        Err(no_boot_id("this store works on Linux and macOS; use another store here"))
    }
}
