//! A watch on its way to the host: passed on as it comes, later, or not to its end.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::exchange::Asked;
use crate::passing::{Body, Closed, Passing, expired, pass_on};
use crate::shared::{Shared, WatchEnd};

/// Frames that wait for a slow host; the rest waits in the API server.
const FRAMES_MAX: usize = 64;

type Frames = mpsc::Sender<Result<Frame<Bytes>, Closed>>;

/// Opens a watch at the API server and passes it on.
pub(crate) async fn open(shared: Arc<Shared>, passing: Passing) -> Result<Response<Body>, Closed> {
    let Ok(answer) = shared.upstream.send(passing.upstream()?).await else {
        shared.note(passing.ended(None, None, None));
        return Err(Closed);
    };
    let code = Some(answer.status().as_u16());
    shared.note(passing.ended(code, code, None));
    let (head, body) = answer.into_parts();
    let (frames, arriving) = mpsc::channel(FRAMES_MAX);
    let (number, ended) = shared.opened(&passing.asked);
    tokio::spawn(async move {
        pump(&shared, &passing.asked, body, frames, ended).await;
        shared.closed(number);
    });
    let arriving = stream::unfold(arriving, |mut arriving| async move {
        arriving.recv().await.map(|frame| (frame, arriving))
    });
    Ok(pass_on(Response::from_parts(head, StreamBody::new(arriving).boxed_unsync())))
}

/// Passes frames on, each when it is due, until one side ends or a test ends it.
async fn pump(
    shared: &Shared,
    asked: &Asked,
    mut body: kube::client::Body,
    frames: Frames,
    mut ended: oneshot::Receiver<WatchEnd>,
) {
    let mut waiting: VecDeque<(Instant, Bytes)> = VecDeque::new();
    let mut over = false;
    loop {
        let due = waiting.front().map(|(due, _)| *due);
        if over && due.is_none() {
            return;
        }
        tokio::select! {
            how = &mut ended => return end(how.unwrap_or(WatchEnd::Cut), &frames).await,
            () = frames.closed() => return,
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let Some((_, data)) = waiting.pop_front() else { continue };
                if frames.send(Ok(Frame::data(data))).await.is_err() {
                    return;
                }
            }
            frame = body.frame(), if !over => match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        waiting.push_back((Instant::now() + shared.rules.lag(asked), data));
                    }
                }
                Some(Err(_)) => return end(WatchEnd::Cut, &frames).await,
                None => over = true,
            },
        }
    }
}

async fn end(how: WatchEnd, frames: &Frames) {
    let last = match how {
        WatchEnd::Cut => Err(Closed),
        WatchEnd::Expired => Ok(Frame::data(expired().into())),
        WatchEnd::Clean => return,
    };
    // A host that is gone by now does not have to be told.
    drop(frames.send(last).await);
}
