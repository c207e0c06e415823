//! One connection of a client, and the requests on it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};

use crate::answer::Answer;
use crate::plan::{Ending, Forward, Plan};
use crate::recorded::Outcome;
use crate::server::Message;
use crate::state::{Call, Close, Open, Shared, Signal, UnderWay};

/// What happens on the connection in the end.
enum Last {
    Answer(Answer),
    Silence,
    Reset { after: Bytes, outcome: Outcome },
}

/// Serves a connection until one side closes it.
pub(crate) async fn serve(open: Open, mut signals: watch::Receiver<Signal>, stream: TcpStream) {
    // Where it cannot be set, answers are slower.
    let _ = stream.set_nodelay(true);
    let open = Arc::new(open);
    let (resets, mut reset) = mpsc::channel(1);
    let service = service_fn(|request| {
        let (open, resets) = (Arc::clone(&open), resets.clone());
        async move { Ok::<_, Infallible>(answer(open, resets, request).await) }
    });
    let mut connection =
        http1::Builder::new().auto_date_header(false).serve_connection(TokioIo::new(stream), service);
    let before = loop {
        tokio::select! {
            biased;
            Some(bytes) = reset.recv() => break bytes,
            Ok(()) = signals.changed() => {
                let signal = *signals.borrow_and_update();
                match signal.close {
                    Close::Reset => break Bytes::new(),
                    Close::WhenIdle => Pin::new(&mut connection).graceful_shutdown(),
                }
            }
            _ = &mut connection => return,
        }
    };
    let mut stream = connection.into_parts().io.into_inner();
    // The client may have closed it already.
    let _ = stream.write_all(&before).await;
    let _ = stream.set_zero_linger();
}

/// Answers a request, or has its connection reset, or never returns. Dropped when the client closes the connection.
async fn answer(
    open: Arc<Open>,
    resets: mpsc::Sender<Bytes>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    // In this order: who waits until nothing is under way finds the outcome.
    let (under_way, call) = Call::new(&open, &head);
    let Ok(body) = body.collect().await else {
        // Hyper closes the connection.
        call.end(Outcome::Left);
        drop(under_way);
        return pending().await;
    };
    let (fault, message) = call.choose(head, body.to_bytes());
    let (tell, told) = oneshot::channel();
    open.shared().tasks.spawn(carry(under_way, Plan::new(&fault), message, tell));
    match told.await.unwrap_or(Last::Silence) {
        Last::Answer(answer) => {
            call.end(Outcome::Answered(answer.status));
            answer.into_response()
        }
        Last::Silence => {
            call.end(Outcome::Silence);
            pending().await
        }
        Last::Reset { after, outcome } => {
            call.end(outcome);
            // The connection takes one, and this is the only request on it.
            let _ = resets.send(after).await;
            pending().await
        }
    }
}

/// Carries a request to the server and its answer back, whether or not the client still waits.
async fn carry(under_way: UnderWay, plan: Plan, message: Message, tell: oneshot::Sender<Last>) {
    let shared = under_way.shared();
    wait(&shared, plan.delay).await;
    let mut served = None;
    match plan.forward {
        Forward::Now => {
            served = Some(under_way.forward(&message).await);
            for _ in 0..plan.copies_now {
                // Heard by nobody; that it was served is recorded.
                let _ = under_way.forward(&message).await;
            }
            under_way.hold_back(&message, plan.copies_later);
        }
        Forward::Later => under_way.hold_back(&message, 1 + plan.copies_now + plan.copies_later),
        Forward::Never => under_way.hold_back(&message, plan.copies_later),
    }
    drop(under_way);
    wait(&shared, plan.answer_delay).await;
    // A client that left hears nothing.
    let _ = tell.send(last(&shared, &plan, served));
}

fn last(shared: &Shared, plan: &Plan, served: Option<std::io::Result<Answer>>) -> Last {
    let reset = |after| Last::Reset { after, outcome: Outcome::Reset };
    let from_server = |give: fn(Answer) -> Last| match served {
        Some(Ok(mut answer)) => {
            plan.edit(&mut answer.headers);
            give(answer)
        }
        Some(Err(error)) => {
            Last::Reset { after: Bytes::new(), outcome: Outcome::NoServer(error.to_string()) }
        }
        None => Last::Silence,
    };
    match plan.ending() {
        Ending::Silence => Last::Silence,
        Ending::Reset => reset(Bytes::new()),
        Ending::Server => from_server(Last::Answer),
        Ending::ResetMidBody => {
            from_server(|answer| Last::Reset { after: answer.broken_off(), outcome: Outcome::Reset })
        }
        Ending::Instead(mut answer) => {
            let wall = shared.clock.read().wall;
            shared.lock().service_clock.date_instead(&mut answer.headers, wall);
            plan.edit(&mut answer.headers);
            Last::Answer(answer)
        }
    }
}

async fn wait(shared: &Shared, duration: Duration) {
    if !duration.is_zero() {
        shared.clock.sleep(duration).await;
    }
}
