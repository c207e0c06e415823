//! A fault, taken apart: what is done with a request on its way there, and with its answer on the way back.

use std::time::Duration;

use hyper::header::{DATE, HeaderMap, HeaderName, HeaderValue};

use crate::answer::Answer;
use crate::date;
use crate::fault::Fault;

#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) delay: Duration,
    pub(crate) forward: Forward,
    pub(crate) copies_now: usize,
    pub(crate) copies_later: usize,
    pub(crate) answer_delay: Duration,
    ending: Option<Ending>,
    edits: Vec<Edit>,
}

/// The one that says the most counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Forward {
    #[default]
    Now,
    Never,
    Later,
}

/// What the client gets.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The server's answer.
    Server,
    Silence,
    Reset,
    ResetMidBody,
    Instead(Answer),
}

#[derive(Clone, Debug)]
enum Edit {
    ShiftDate(i64),
    Set(HeaderName, HeaderValue),
    Remove(HeaderName),
}

impl Plan {
    pub(crate) fn new(fault: &Fault) -> Self {
        let mut plan = Self::default();
        plan.add(fault);
        plan
    }

    /// What the client gets. Without an answer of the server there is silence, unless it was said what else.
    pub(crate) fn ending(&self) -> Ending {
        let default = if self.forward == Forward::Now { Ending::Server } else { Ending::Silence };
        match &self.ending {
            Some(Ending::Server | Ending::ResetMidBody) if self.forward != Forward::Now => Ending::Silence,
            Some(ending) => ending.clone(),
            None => default,
        }
    }

    pub(crate) fn edit(&self, headers: &mut HeaderMap) {
        for edit in &self.edits {
            match edit {
                Edit::ShiftDate(by) => shift_date(headers, *by),
                Edit::Set(name, value) => drop(headers.insert(name, value.clone())),
                Edit::Remove(name) => drop(headers.remove(name)),
            }
        }
    }

    fn add(&mut self, fault: &Fault) {
        match fault {
            Fault::None => {}
            Fault::DropRequest => self.end(Forward::Never, Ending::Silence),
            Fault::DropResponse => self.end(Forward::Now, Ending::Silence),
            Fault::ResetBefore => self.end(Forward::Never, Ending::Reset),
            Fault::ResetAfter => self.end(Forward::Now, Ending::Reset),
            Fault::ResetMidBody => self.end(Forward::Now, Ending::ResetMidBody),
            Fault::AnswerInstead(answer) => self.end(Forward::Never, Ending::Instead(answer.clone())),
            Fault::ForwardThenAnswer(answer) => self.end(Forward::Now, Ending::Instead(answer.clone())),
            Fault::Delay(by) => self.delay += *by,
            Fault::DelayAnswer(by) => self.answer_delay += *by,
            Fault::Duplicate => self.copies_now += 1,
            Fault::DuplicateLater => self.copies_later += 1,
            // Says nothing of the ending, so that another may.
            Fault::HoldBack => self.forward = Forward::Later,
            Fault::ShiftDate(by) => self.edits.push(Edit::ShiftDate(*by)),
            Fault::NoDate => self.edits.push(Edit::Remove(DATE)),
            Fault::Date(value) => self.edits.push(Edit::Set(DATE, value.clone())),
            Fault::WithHeader(name, value) => self.edits.push(Edit::Set(name.clone(), value.clone())),
            Fault::WithoutHeader(name) => self.edits.push(Edit::Remove(name.clone())),
            Fault::Several(faults) => faults.iter().for_each(|fault| self.add(fault)),
        }
    }

    fn end(&mut self, forward: Forward, ending: Ending) {
        self.forward = self.forward.max(forward);
        self.ending = Some(ending);
    }
}

/// Moves a `Date` that can be read and, moved, be written.
pub(crate) fn shift_date(headers: &mut HeaderMap, by: i64) {
    let shown = headers.get(DATE).and_then(|value| value.to_str().ok()).and_then(date::parse_http);
    if let Some(value) = shown.and_then(|shown| date_header(shown.saturating_add(by))) {
        headers.insert(DATE, value);
    }
}

pub(crate) fn date_header(seconds: i64) -> Option<HeaderValue> {
    date::http(seconds).and_then(|date| HeaderValue::try_from(date).ok())
}
