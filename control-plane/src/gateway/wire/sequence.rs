//! The one order of steps, enforced: whatever a provider sends, what comes out is a reply that ends well or fails.
//! Pure; a wire's reader says what it saw, this decides which steps that makes.

use super::{
    fault::Fault,
    step::{Opening, Step, Stop},
};
use checkfu_shared::event::ModelUsage;

/// The state of one reply and the steps not yet taken from it.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    phase: Phase,
    open: Option<Opening>,
    /// Whether the open block has a piece.
    has_piece: bool,
    has_calls: bool,
    stop: Option<Stop>,
    usage: ModelUsage,
    steps: Vec<Step>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Fresh,
    Begun,
    Complete,
    Failed,
}

impl Sequence {
    /// The steps since the last time.
    pub(super) fn take(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// What was counted so far.
    pub(super) const fn usage(&self) -> ModelUsage {
        self.usage
    }

    /// Whether all was said.
    pub(super) const fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Complete)
    }

    /// Whether nothing can follow.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Complete | Phase::Failed)
    }

    /// Whether the reason to stop is known.
    pub(super) const fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    pub(super) const fn open_block(&self) -> Option<&Opening> {
        self.open.as_ref()
    }

    pub(super) fn begin(&mut self) {
        if self.phase == Phase::Fresh {
            self.phase = Phase::Begun;
            self.steps.push(Step::Begin);
        }
    }

    pub(super) fn open(&mut self, opening: Opening) {
        if self.is_over() {
            return;
        }
        self.begin();
        self.close();
        self.has_calls |= matches!(opening, Opening::Call { .. });
        self.has_piece = false;
        self.open = Some(opening.clone());
        self.steps.push(Step::Open(opening));
    }

    /// Opens a block of this kind unless it is open already.
    pub(super) fn continue_in(&mut self, opening: Opening) {
        if self.open.as_ref() != Some(&opening) {
            self.open(opening);
        }
    }

    pub(super) fn piece(&mut self, text: &str) {
        if !self.is_over() && !text.is_empty() && self.open.is_some() {
            self.has_piece = true;
            self.steps.push(Step::Piece(text.to_owned()));
        }
    }

    pub(super) fn sign(&mut self, signature: &str) {
        if !self.is_over() && !signature.is_empty() && self.open == Some(Opening::Thinking) {
            self.steps.push(Step::Sign(signature.to_owned()));
        }
    }

    pub(super) fn close(&mut self) {
        if self.is_over() {
            return;
        }
        match self.open {
            None => return,
            // No input at all is written as nothing on one wire and as an empty object on the others.
            Some(Opening::Call { .. }) if !self.has_piece => self.piece("{}"),
            Some(_) => {}
        }
        self.open = None;
        self.steps.push(Step::Close);
    }

    /// Takes numbers that are cumulative, so the largest is the latest.
    pub(super) fn count(&mut self, usage: ModelUsage) {
        if self.is_over() {
            return;
        }
        let held = &mut self.usage;
        held.input_tokens = held.input_tokens.max(usage.input_tokens);
        held.output_tokens = held.output_tokens.max(usage.output_tokens);
        held.cache_creation_input_tokens =
            held.cache_creation_input_tokens.max(usage.cache_creation_input_tokens);
        held.cache_read_input_tokens = held.cache_read_input_tokens.max(usage.cache_read_input_tokens);
        self.steps.push(Step::Count(self.usage));
    }

    /// The first reason holds. Some providers say that a turn ended where calls wait for their results.
    pub(super) fn stop(&mut self, stop: Stop) {
        if self.is_over() || self.stop.is_some() {
            return;
        }
        self.begin();
        self.close();
        let stop = match (stop, self.has_calls) {
            (Stop::EndTurn, true) => Stop::ToolUse,
            (Stop::ToolUse, false) => Stop::EndTurn,
            (stop, _) => stop,
        };
        self.stop = Some(stop.clone());
        self.steps.push(Step::Stop(stop));
    }

    /// The proper end; without a reason to stop it is none.
    pub(super) fn end(&mut self) {
        if self.is_over() {
            return;
        }
        if self.stop.is_none() {
            self.fail(Fault::broken("The model's reply ended before the model said why it stopped."));
            return;
        }
        self.close();
        self.phase = Phase::Complete;
        self.steps.push(Step::End);
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        if !self.is_over() {
            self.phase = Phase::Failed;
            self.steps.push(Step::Fail(fault));
        }
    }
}
