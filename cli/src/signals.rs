//! The signals that end a process, and those of job control.

use std::task::{Context, Poll};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Forwarded to the command; end the waiting.
pub(crate) const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// Job control.
pub(crate) const JOB_CONTROL: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// A stream of some signals.
///
/// A signal that whoever started us had set to be ignored (`nohup`, a background job of a shell without job control) is left
/// so, here and in the command.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    pub(crate) fn listen(to: &[Signal]) -> std::io::Result<Self> {
        let mut streams = Vec::new();
        for &one in to {
            if !is_ignored(one) {
                streams.push((one, signal(SignalKind::from_raw(one.as_raw()))?));
            }
        }
        Ok(Self(streams))
    }

    /// The next one of them. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context: &mut Context<'_>| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether this process was started with `signal` ignored. Must be asked before the signal is listened to.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Elsewhere there is no safe way to ask.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn is_ignored(_: Signal) -> bool {
    false
}
