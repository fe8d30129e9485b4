//! `--sample`: two looks at the table before the scan that is shown or purged.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::CommandError;
use crate::verdict::{Activity, SampleRound, Sampler};
use ctnetlink::flow::Flow;
use ctnetlink::{Table, TableKind};

use crate::session::pipeline::EntryPipeline;
use crate::session::table_access;
use crate::terminal::messages::note;

/// Dumps of one look at most, when each is interrupted.
const MAX_ATTEMPTS: usize = 3;

/// The looks before the scan.
pub struct Sample {
    sampler: Sampler,
    origin: Instant,
    /// Every dump of a look was interrupted: entries may be missing in it.
    pub inconsistent: bool,
}

impl Sample {
    /// Looks twice, half of `duration` apart, and waits for the other half. The caller scans the table next.
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

    /// As [`Sample::take`], of the entries for which `keep` returns true. Its second argument is the number that is kept already.
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
        for round in [SampleRound::First, SampleRound::Second] {
            let began = sample.look(table, pipeline, round, keep)?;
            let wait = (duration / 2).saturating_sub(began.elapsed());
            if io::stderr().is_terminal() {
                note(format!("looking again in {} s", wait.as_secs_f64().ceil()));
            }
            std::thread::sleep(wait);
        }
        // Ages count from the scan.
        pipeline.start_over();
        Ok(sample)
    }

    /// Number of entries of which a look is kept.
    pub fn kept(&self) -> usize {
        self.sampler.len()
    }

    /// Result of all looks at `flow`, which was dumped at `at`.
    pub fn seen(&self, flow: &Flow, at: Instant) -> Activity {
        self.sampler
            .activity(flow, at.saturating_duration_since(self.origin))
    }

    /// Dumps the table once. Returns when that began.
    fn look<'c>(
        &mut self,
        table: &mut Table,
        pipeline: &EntryPipeline<'c>,
        round: SampleRound,
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
                        self.sampler.record(round, &flow, at);
                    }
                    ControlFlow::Continue(())
                });
                let dump = dump.map_err(table_access::netlink_error)?;
                tracing::info!(?dump, ?round, kept = self.sampler.len(), "look");
                inconsistent |= !dump.is_consistent();
            }
            if !inconsistent || attempt == MAX_ATTEMPTS {
                self.inconsistent |= inconsistent;
                return Ok(began);
            }
            attempt += 1;
        }
    }
}
