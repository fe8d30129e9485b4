//! `--sample`: two looks at the table before the one that is shown or purged.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::CommandError;
use crate::verdict::{Round, Sampler, Seen};
use ctnetlink::flow::Flow;
use ctnetlink::{Table, TableKind};

use crate::session::namespace;
use crate::session::pipeline::EntryPipeline;
use crate::terminal::messages::note;

/// How often a look is repeated that the kernel spoiled.
const ATTEMPTS: usize = 3;

/// The looks that came before the one that is shown.
pub struct Sample {
    sampler: Sampler,
    origin: Instant,
    /// A look stayed spoiled: entries may be missing in it.
    pub inconsistent: bool,
}

impl Sample {
    /// Looks twice, half of `duration` apart, and waits as long again: the caller looks next.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn take(
        table: &mut Table,
        pipeline: &mut EntryPipeline<'_>,
        duration: Duration,
    ) -> Result<Self, CommandError> {
        let lasting = pipeline.filter().lasting();
        Self::take_of(table, pipeline, duration, &|pipeline, _, flow| {
            pipeline.may_be_picked(&lasting, flow)
        })
    }

    /// The same of the entries for which `keep` says yes. It is told, too, how many are kept already.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn take_of<'c>(
        table: &mut Table,
        pipeline: &mut EntryPipeline<'c>,
        duration: Duration,
        keep: &dyn Fn(&EntryPipeline<'c>, usize, &Flow) -> bool,
    ) -> Result<Self, CommandError> {
        let mut sample = Sample {
            sampler: Sampler::default(),
            origin: Instant::now(),
            inconsistent: false,
        };
        for round in [Round::First, Round::Second] {
            let began = sample.look(table, pipeline, round, keep)?;
            let wait = (duration / 2).saturating_sub(began.elapsed());
            if io::stderr().is_terminal() {
                note(format!("looking again in {} s", wait.as_secs_f64().ceil()));
            }
            std::thread::sleep(wait);
        }
        // Ages count from the look that is shown.
        pipeline.start_over();
        Ok(sample)
    }

    /// Entries of which a look is kept.
    pub fn kept(&self) -> usize {
        self.sampler.len()
    }

    /// What all looks showed of `flow`, which the kernel wrote down at `at`.
    pub fn seen(&self, flow: &Flow, at: Instant) -> Seen {
        self.sampler
            .seen(flow, at.saturating_duration_since(self.origin))
    }

    /// One look; when it began.
    fn look<'c>(
        &mut self,
        table: &mut Table,
        pipeline: &EntryPipeline<'c>,
        round: Round,
        keep: &dyn Fn(&EntryPipeline<'c>, usize, &Flow) -> bool,
    ) -> Result<Instant, CommandError> {
        let lasting = pipeline.filter().lasting();
        let mut attempt = 1;
        loop {
            let began = Instant::now();
            let mut inconsistent = false;
            for filter in lasting.dumps() {
                let dump = table.dump_timed(TableKind::Conntrack, &filter, &mut |flow, at| {
                    if keep(pipeline, self.sampler.len(), &flow) {
                        let at = at.saturating_duration_since(self.origin);
                        self.sampler.look(round, &flow, at);
                    }
                    ControlFlow::Continue(())
                });
                let dump = dump.map_err(namespace::netlink_error)?;
                tracing::info!(?dump, ?round, kept = self.sampler.len(), "look");
                inconsistent |= !dump.is_consistent();
            }
            if !inconsistent || attempt == ATTEMPTS {
                self.inconsistent |= inconsistent;
                return Ok(began);
            }
            attempt += 1;
        }
    }
}
