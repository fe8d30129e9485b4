//! Aligned columns for any number of rows in constant memory.
//!
//! Widths are taken from a sample of the first rows; later rows are written with the same widths. A later cell that is wider
//! shifts the cells after it.

use std::slice::Iter;

use super::color::{Palette, Style};

/// Rows held back until the widths are fixed.
pub(super) const SAMPLE_ROWS: usize = 4096;
const COLUMN_GAP: usize = 2;
/// Cells are not shortened below this width.
const MIN_SHORTENED_WIDTH: usize = 16;
/// Characters kept of the end of a shortened cell: a port.
const TAIL_WIDTH: usize = 6;

/// Heading and layout of a column.
#[derive(Clone, Debug)]
pub(super) struct ColumnLayout {
    pub heading: String,
    /// Shown only if a row of the sample has a value.
    pub optional: bool,
    /// May be shortened on a narrow terminal.
    pub flexible: bool,
}

/// Takes the cells of one row from left to right. Cells of the sample are kept, later ones are printed at once.
pub(super) enum Cells<'a> {
    Kept(&'a mut SampleRows),
    Printed(LinePrinter<'a>),
}

impl Cells<'_> {
    /// Adds a cell. A cell that writes nothing is absent and shown as `-`.
    #[inline]
    pub fn push(&mut self, style: Style, write: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Cells::Kept(sample) => sample.push(style, write),
            Cells::Printed(line) => line.push(style, write),
        }
    }
}

/// Cells of the first rows in one buffer.
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

/// Width of a column, after the sample.
struct FixedColumn {
    /// `None` for a hidden column.
    width: Option<usize>,
    flexible: bool,
}

/// Prints the cells of one line.
pub(super) struct LinePrinter<'a> {
    columns: Iter<'a, FixedColumn>,
    palette: Palette,
    /// Flexible cells are shortened to the width of their column.
    shorten: bool,
    /// Every byte is counted as one column of the terminal.
    ascii: bool,
    /// Blanks to write before the next cell, so that no line ends in blanks.
    pending_blanks: usize,
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
        blanks(self.pending_blanks, out);
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
        self.pending_blanks = width.saturating_sub(used) + COLUMN_GAP;
    }
}

/// Number of characters. Each is taken for one column of the terminal.
fn width_of(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    // A character begins at every byte that is no continuation byte of UTF-8.
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Prints rows; see the module documentation.
pub(super) struct Layout {
    columns: Vec<ColumnLayout>,
    palette: Palette,
    header: bool,
    /// Width of the terminal; `None` when the output is no terminal, and then no cell is shortened.
    terminal: Option<usize>,
    /// Empty until the widths are fixed.
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

    /// Adds a row: `fill` pushes one cell for each column. It may be called twice.
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
        // Nearly all lines are ASCII: testing the line afterwards costs less than counting the characters of each cell.
        for ascii in [true, false] {
            out.truncate(start);
            fill(&mut Cells::Printed(LinePrinter {
                columns: self.fixed.iter(),
                palette: self.palette,
                shorten: self.terminal.is_some(),
                ascii,
                pending_blanks: 0,
                out,
            }));
            if is_ascii(&out[start..]) {
                break;
            }
        }
        out.push(b'\n');
    }

    /// Prints the sample, if it is still held back. Later rows are aligned with it.
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

    /// Narrows the widest flexible column until a line fits.
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

/// Tests 16 bytes at a time; the standard library's function tests up to 63 bytes at the end one by one.
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
    const BLANKS: [u8; 32] = [b' '; 32];
    let end = out.len() + count;
    if count <= BLANKS.len() {
        // A copy of fixed length is cheaper than a fill of variable length.
        out.extend_from_slice(&BLANKS);
        out.truncate(end);
    } else {
        out.resize(end, b' ');
    }
}

/// Shortens the text from `start` on to `width` characters: its beginning, `…`, and its end, which holds the port.
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
