//! `top --interval`: one look after the other.

use std::io::{self, Write};
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::error::Status;
use ctnetlink::Table;

use super::{Frame, Top, TopFormat, say};
use crate::session::cluster::Cluster;
use crate::session::pipeline::now;
use crate::terminal::frames::Frames;
use crate::terminal::messages::note;
use crate::terminal::printing::ListingEnd;

/// Between two readings of the cluster: names change more slowly than entries, and reading them may cost the API server more.
const REREAD: Duration = Duration::from_secs(30);
/// Lines above the rows of a repainted table: what is counted, and the header.
const ABOVE: usize = 2;

/// What is told when all is over, since nothing else can be while a terminal is repainted.
#[derive(Default)]
struct Told {
    frames: u64,
    partial: u64,
    /// What the last frame left open.
    notes: Vec<String>,
    /// Why the cluster is not the newest.
    old: Option<String>,
}

pub fn run(top: &Top<'_>, interval: Duration) -> Result<Status, ListingEnd> {
    let mut cluster = top.read_cluster(false)?;
    // A name that nobody has is said before the terminal is taken.
    top.pipeline(&top.keys(cluster.as_ref()), cluster.as_ref())?;
    let mut table = top.table()?;
    let mut frames = Frames::begin(interval, top.args.output == TopFormat::Table)?;
    let mut told = Told::default();
    let ended = loop {
        match follow(top, &mut table, cluster.as_ref(), &mut frames, &mut told) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(ended) => break Err(ended),
        }
        let read = top.read_cluster(true).and_then(|read| {
            top.pipeline(&top.keys(read.as_ref()), read.as_ref())?;
            Ok(read)
        });
        match read {
            Ok(read) => (cluster, told.old) = (read, None),
            Err(error) => told.old = Some(error.message),
        }
    };
    let repainted = frames.rows().is_some();
    // The terminal is given back before anything is said on it.
    drop(frames);
    ended?;
    if repainted {
        told.notes.iter().for_each(note);
    }
    if let Some(why) = &told.old {
        note(format!("the cluster could not be read again: {why}"));
    }
    if told.partial > 0 {
        note(format!(
            "{} of {} looks left something out",
            told.partial, told.frames
        ));
    }
    Ok(match told.partial > 0 || told.old.is_some() {
        true => Status::Partial,
        false => Status::Done,
    })
}

/// Shows frames with one reading of the cluster. Whether there are to be more.
fn follow(
    top: &Top<'_>,
    table: &mut Table,
    cluster: Option<&Cluster>,
    frames: &mut Frames,
    told: &mut Told,
) -> Result<bool, ListingEnd> {
    let by = top.keys(cluster);
    let mut pipeline = top.pipeline(&by, cluster)?;
    let began = Instant::now();
    let changes = cluster.is_some_and(Cluster::can_be_read_again);
    loop {
        if !frames.next()? {
            return Ok(false);
        }
        let fits = frames.rows().map(|rows| rows.saturating_sub(ABOVE));
        let limit = [top.args.limit, fits].into_iter().flatten().min();
        let (ranked, report) = top.look(&by, table, &mut pipeline, limit)?;
        let frame = Frame {
            ranked: &ranked,
            counts: pipeline.counts,
            report,
            time: Some(now()),
        };
        let is_first = told.frames == 0;
        match frames.show(|out| write(top, &frame, cluster, is_first, fits.is_some(), out)) {
            // Whoever paused the reader wants the end now.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
            shown => shown?,
        }
        let open = top.open(&frame, cluster);
        // Said when it is new: the same every second would bury the rest.
        if fits.is_none() {
            let new = open.notes.iter().filter(|note| !told.notes.contains(note));
            new.for_each(note);
        }
        told.frames += 1;
        told.partial += u64::from(open.partial);
        told.notes = open.notes;
        if changes && began.elapsed() >= REREAD {
            return Ok(true);
        }
    }
}

/// A frame with what tells it from the one before.
fn write(
    top: &Top<'_>,
    frame: &Frame<'_, '_>,
    cluster: Option<&Cluster>,
    is_first: bool,
    is_repainted: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let is_table = top.args.output == TopFormat::Table;
    if is_table {
        let time = UNIX_EPOCH + Duration::from_nanos(frame.time.unwrap_or_default());
        let time = humantime::format_rfc3339_seconds(time);
        let counts = say::count_line(frame.ranked, frame.counts.scanned);
        let open = match frame.report.inconsistent || frame.report.unreadable > 0 {
            true => ", not all could be read",
            false => "",
        };
        let line = match (is_repainted, is_first) {
            (true, _) => format!("{time}  {counts}{open}   q quits\n"),
            (false, true) => format!("--- {time}  {counts}{open}\n"),
            (false, false) => format!("\n--- {time}  {counts}{open}\n"),
        };
        out.write_all(line.as_bytes())?;
    }
    // A header of csv stands once; each table has its own.
    let header = !top.args.no_header && (is_first || is_table);
    top.print(frame, cluster, header, out)
}
