//! `top --interval`: repeated frames.

use std::io::{self, Write};
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::error::ExitStatus;
use ctnetlink::Table;

use super::{Frame, Top, TopFormat, report};
use crate::session::cluster::Cluster;
use crate::session::pipeline::now;
use crate::terminal::frames::Frames;
use crate::terminal::messages::note;
use crate::terminal::printing::ListingEnd;

/// Time between two readings of the cluster. Names change more slowly than entries, and reading them loads the API server.
const REREAD_INTERVAL: Duration = Duration::from_secs(30);
/// Lines above the rows of a repainted table: counts and header.
const LINES_ABOVE: usize = 2;

/// Facts that are reported at the end, since a repainted terminal shows no notes.
#[derive(Default)]
struct FrameLog {
    frames: u64,
    partial: u64,
    /// Notes of the last frame.
    notes: Vec<String>,
    /// Error of the last reading of the cluster, which is older than it should be then.
    old: Option<String>,
}

pub fn run(top: &Top<'_>, interval: Duration) -> Result<ExitStatus, ListingEnd> {
    let mut cluster = top.read_cluster(false)?;
    // An unknown name is an error before the screen is taken.
    top.pipeline(&top.keys(cluster.as_ref()), cluster.as_ref())?;
    let mut table = top.table()?;
    let mut frames = Frames::begin(interval, top.args.report.format == TopFormat::Table)?;
    let mut log = FrameLog::default();
    let ended = loop {
        match follow(top, &mut table, cluster.as_ref(), &mut frames, &mut log) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(ended) => break Err(ended),
        }
        let read = top.read_cluster(true).and_then(|read| {
            top.pipeline(&top.keys(read.as_ref()), read.as_ref())?;
            Ok(read)
        });
        match read {
            Ok(read) => (cluster, log.old) = (read, None),
            Err(error) => log.old = Some(error.text()),
        }
    };
    let repainted = frames.rows().is_some();
    // The terminal is restored before notes are printed.
    drop(frames);
    ended?;
    if repainted {
        log.notes.iter().for_each(note);
    }
    if let Some(why) = &log.old {
        note(format!("the cluster could not be read again: {why}"));
    }
    if log.partial > 0 {
        note(format!(
            "{} of {} frames left something out",
            log.partial, log.frames
        ));
    }
    Ok(match log.partial > 0 || log.old.is_some() {
        true => ExitStatus::Partial,
        false => ExitStatus::Done,
    })
}

/// Shows frames with one reading of the cluster. Returns false when the user ends the command.
fn follow(
    top: &Top<'_>,
    table: &mut Table,
    cluster: Option<&Cluster>,
    frames: &mut Frames,
    log: &mut FrameLog,
) -> Result<bool, ListingEnd> {
    let by = top.keys(cluster);
    let mut pipeline = top.pipeline(&by, cluster)?;
    let began = Instant::now();
    let changes = cluster.is_some_and(Cluster::can_be_read_again);
    loop {
        if !frames.next()? {
            return Ok(false);
        }
        let fits = frames.rows().map(|rows| rows.saturating_sub(LINES_ABOVE));
        let limit = [top.args.limit, fits].into_iter().flatten().min();
        let (ranked, report) = top.scan(&by, table, &mut pipeline, limit)?;
        let frame = Frame {
            ranked: &ranked,
            counts: pipeline.counts,
            report,
            time: Some(now()),
            namespaces: None,
        };
        let is_first = log.frames == 0;
        match frames.show(|out| write(top, &frame, cluster, is_first, fits.is_some(), out)) {
            // The command was ended while the reader was paused.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
            shown => shown?,
        }
        let caveats = top.caveats(&frame, cluster);
        // A note is printed when it is new, not with every frame.
        if fits.is_none() {
            let new = caveats
                .notes
                .iter()
                .filter(|note| !log.notes.contains(note));
            new.for_each(note);
        }
        log.frames += 1;
        log.partial += u64::from(caveats.partial);
        log.notes = caveats.notes;
        if changes && began.elapsed() >= REREAD_INTERVAL {
            return Ok(true);
        }
    }
}

/// Writes a frame. A table has a line with time and counts above it.
fn write(
    top: &Top<'_>,
    frame: &Frame<'_, '_>,
    cluster: Option<&Cluster>,
    is_first: bool,
    is_repainted: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let is_table = top.args.report.format == TopFormat::Table;
    if is_table {
        let time = UNIX_EPOCH + Duration::from_nanos(frame.time.unwrap_or_default());
        let time = humantime::format_rfc3339_seconds(time);
        let counts = report::count_line(frame.ranked, frame.counts.scanned);
        let incomplete = match frame.report.inconsistent || frame.report.unreadable > 0 {
            true => ", not all could be read",
            false => "",
        };
        let line = match (is_repainted, is_first) {
            (true, _) => format!("{time}  {counts}{incomplete}   q quits\n"),
            (false, true) => format!("--- {time}  {counts}{incomplete}\n"),
            (false, false) => format!("\n--- {time}  {counts}{incomplete}\n"),
        };
        out.write_all(line.as_bytes())?;
    }
    // CSV has one header for all frames, and each table its own.
    let header = !top.args.no_header && (is_first || is_table);
    top.print(frame, cluster, header, out)
}
