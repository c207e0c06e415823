use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// More polls than any step of a store takes.
pub(crate) const MOST_POLLS: usize = 64;

/// When a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// As soon as it waits: its request is on the way.
    InFlight,
    /// When it has been woken and before it is polled: its answer has come and is not read.
    Answered,
}

/// Drops `future` after so many polls. Returns its output if it came to an end by then.
pub(crate) async fn cut<F: Future + Send>(future: F, polls: usize, cut: Cut) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && cut == Cut::InFlight => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Makes a request and gives it up at once, whatever becomes of it.
pub(crate) async fn give_up<F: Future + Send>(request: F) {
    let _ = cut(request, 1, Cut::InFlight).await;
}
