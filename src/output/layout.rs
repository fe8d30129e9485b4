//! Rows of cells in aligned columns, without knowing all rows first.
//!
//! The widths come from a sample of the first rows; the rest streams past with the same widths. Memory stays constant, and a
//! later cell that is wider just pushes its neighbours.

use std::slice::Iter;

use super::color::{Palette, Style};

/// Rows looked at before the widths are fixed.
pub(super) const SAMPLE_ROWS: usize = 4096;
const COLUMN_GAP: usize = 2;
/// Cells are not shortened below this.
const MIN_SHORTENED_WIDTH: usize = 16;
/// What stays of a shortened cell's end: `…` and a port.
const TAIL_WIDTH: usize = 6;

/// How one column is laid out.
#[derive(Clone, Debug)]
pub(super) struct ColumnLayout {
    pub heading: String,
    /// Shown only when some row of the sample has a value.
    pub optional: bool,
    /// May be shortened where a terminal is too narrow.
    pub flexible: bool,
}

/// Takes the cells of one row from left to right: the sample's are kept, later ones printed at once.
pub(super) enum Cells<'a> {
    Kept(&'a mut SampleRows),
    Printed(LinePrinter<'a>),
}

impl Cells<'_> {
    /// Adds a cell; one that writes nothing is absent and shown as `-`.
    #[inline]
    pub fn push(&mut self, style: Style, write: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Cells::Kept(sample) => sample.push(style, write),
            Cells::Printed(line) => line.push(style, write),
        }
    }
}

/// The first rows, one cell after the other in one buffer.
#[derive(Default)]
pub(super) struct SampleRows {
    text: Vec<u8>,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy)]
struct Cell {
    end: usize,
    style: Style,
}

impl SampleRows {
    fn push(&mut self, style: Style, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.text);
        let end = self.text.len();
        self.cells.push(Cell { end, style });
    }

    /// Style and text of each cell from `first` on.
    fn cells(&self, first: usize) -> impl Iterator<Item = (Style, &[u8])> {
        let mut start = match first.checked_sub(1) {
            Some(before) => self.cells[before].end,
            None => 0,
        };
        self.cells[first..].iter().map(move |cell| {
            let text = &self.text[start..cell.end];
            start = cell.end;
            (cell.style, text)
        })
    }
}

/// A column whose width is fixed.
struct FixedColumn {
    /// `None` where it is hidden.
    width: Option<usize>,
    flexible: bool,
}

/// A line that is being printed.
pub(super) struct LinePrinter<'a> {
    columns: Iter<'a, FixedColumn>,
    palette: Palette,
    /// Flexible cells are shortened to the width of their column.
    shorten: bool,
    /// Every byte is taken for one column.
    ascii: bool,
    /// Blanks before the next cell: owed until there is one, so that no line ends in any.
    owed: usize,
    out: &'a mut Vec<u8>,
}

impl LinePrinter<'_> {
    #[inline]
    fn push(&mut self, style: Style, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(&FixedColumn {
            width: Some(width),
            flexible,
        }) = self.columns.next()
        else {
            return; // hidden
        };
        let out = &mut *self.out;
        blanks(self.owed, out);
        self.palette.begin(out, style);
        let start = out.len();
        write(out);
        if out.len() == start {
            out.push(b'-');
        }
        let mut used = out.len() - start;
        if !self.ascii {
            used = width_of(&out[start..]);
        }
        if used > width && self.shorten && flexible {
            shorten(out, start, width);
            used = width;
        }
        self.palette.end(out, style);
        self.owed = width.saturating_sub(used) + COLUMN_GAP;
    }
}

/// Characters, which is columns for all that names are made of.
fn width_of(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    // Every byte but the continuation bytes of UTF-8 begins a character.
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Prints rows; see the module.
pub(super) struct Layout {
    columns: Vec<ColumnLayout>,
    palette: Palette,
    header: bool,
    /// Columns of the terminal; `None` when the output is none, and then nothing is shortened.
    terminal: Option<usize>,
    /// Empty while the sample is gathered.
    fixed: Vec<FixedColumn>,
    /// Empty once the widths are fixed.
    sample: SampleRows,
}

impl Layout {
    pub fn new(
        columns: Vec<ColumnLayout>,
        palette: Palette,
        header: bool,
        terminal: Option<usize>,
    ) -> Self {
        Layout {
            columns,
            palette,
            header,
            terminal,
            fixed: Vec::new(),
            sample: SampleRows::default(),
        }
    }

    /// Adds a row: `fill` pushes one cell for each column. It may be asked twice.
    #[inline]
    pub fn row(&mut self, out: &mut Vec<u8>, fill: impl Fn(&mut Cells)) {
        if !self.fixed.is_empty() {
            return self.print(out, fill);
        }
        fill(&mut Cells::Kept(&mut self.sample));
        if self.sample.cells.len() >= SAMPLE_ROWS * self.columns.len() {
            self.release(out);
        }
    }

    #[inline]
    fn print(&self, out: &mut Vec<u8>, fill: impl Fn(&mut Cells)) {
        let start = out.len();
        // One look at the line costs less than one at each cell, and nearly all lines are as they should be the first time.
        for ascii in [true, false] {
            out.truncate(start);
            fill(&mut Cells::Printed(LinePrinter {
                columns: self.fixed.iter(),
                palette: self.palette,
                shorten: self.terminal.is_some(),
                ascii,
                owed: 0,
                out,
            }));
            if is_ascii(&out[start..]) {
                break;
            }
        }
        out.push(b'\n');
    }

    /// Prints what is held back: the sample, if it is not out yet. Later rows are aligned with it.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        if !self.fixed.is_empty() {
            return;
        }
        let flexible = self.columns.iter().map(|column| column.flexible);
        let fixed = self.measure().into_iter().zip(flexible);
        self.fixed = fixed
            .map(|(width, flexible)| FixedColumn { width, flexible })
            .collect();
        if self.header {
            self.print(out, |cells| {
                for column in &self.columns {
                    let heading = column.heading.as_bytes();
                    cells.push(Style::Heading, |text| text.extend_from_slice(heading));
                }
            });
        }
        let sample = std::mem::take(&mut self.sample);
        for first in (0..sample.cells.len()).step_by(self.columns.len()) {
            self.print(out, |cells| {
                for (style, cell) in sample.cells(first).take(self.columns.len()) {
                    cells.push(style, |text| text.extend_from_slice(cell));
                }
            });
        }
    }

    fn measure(&self) -> Vec<Option<usize>> {
        let mut widths: Vec<_> = self
            .columns
            .iter()
            .map(|column| (!column.optional).then_some(1))
            .collect();
        for (at, (_, cell)) in self.sample.cells(0).enumerate() {
            if !cell.is_empty() {
                let width = &mut widths[at % self.columns.len()];
                *width = Some(width.unwrap_or(1).max(width_of(cell)));
            }
        }
        if self.header {
            for (width, column) in widths.iter_mut().zip(&self.columns) {
                *width = width.map(|width| width.max(column.heading.chars().count()));
            }
        }
        if let Some(terminal) = self.terminal {
            self.fit(&mut widths, terminal);
        }
        widths
    }

    /// Takes from the widest flexible column until a line fits.
    fn fit(&self, widths: &mut [Option<usize>], terminal: usize) {
        let shown = widths.iter().flatten().count();
        let needed: usize =
            widths.iter().flatten().sum::<usize>() + COLUMN_GAP * shown.saturating_sub(1);
        for _ in terminal..needed {
            let widest = widths
                .iter_mut()
                .zip(&self.columns)
                .filter(|(_, column)| column.flexible)
                .filter_map(|(width, _)| width.as_mut())
                .max_by_key(|width| **width);
            match widest {
                Some(width) if *width > MIN_SHORTENED_WIDTH => *width -= 1,
                _ => break,
            }
        }
    }
}

/// The standard library's looks at the last bytes one by one, up to 63 of them.
fn is_ascii(line: &[u8]) -> bool {
    let Some(last) = line.last_chunk() else {
        return line.is_ascii();
    };
    let (chunks, _) = line.as_chunks();
    let all = chunks.iter().chain([last]);
    let bits = all.fold(0, |bits, chunk| bits | u128::from_ne_bytes(*chunk));
    bits & u128::from_ne_bytes([0x80; 16]) == 0
}

fn blanks(count: usize, out: &mut Vec<u8>) {
    const SOME: [u8; 32] = [b' '; 32];
    let end = out.len() + count;
    if count <= SOME.len() {
        // A copy of fixed length is cheaper than filling any.
        out.extend_from_slice(&SOME);
        out.truncate(end);
    } else {
        out.resize(end, b' ');
    }
}

/// Leaves `width` characters of the text from `start` on: its beginning, `…`, and its end, where the port is.
fn shorten(out: &mut Vec<u8>, start: usize, width: usize) {
    let text: Vec<char> = String::from_utf8_lossy(&out[start..]).chars().collect();
    let tail = if width > 2 * TAIL_WIDTH {
        TAIL_WIDTH
    } else {
        0
    };
    let head = width.saturating_sub(tail + 1);
    let mut short: String = text.iter().take(head).collect();
    short.push('…');
    short.extend(text.iter().skip(text.len().saturating_sub(tail)));
    out.truncate(start);
    out.extend_from_slice(short.as_bytes());
}
