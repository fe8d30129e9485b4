//! Rows of cells in aligned columns, without knowing all rows first.
//!
//! The widths come from a sample of the first rows; the rest streams past with the same widths. Memory stays constant, and a
//! later cell that is wider just pushes its neighbours.

use super::color::{Palette, Style};

/// Rows looked at before the widths are fixed.
pub(super) const SAMPLE: usize = 4096;
const GAP: usize = 2;
/// Cells are not shortened below this.
const NARROWEST: usize = 16;
/// What stays of a shortened cell's end: `…` and a port.
const TAIL: usize = 6;

/// How one column is laid out.
#[derive(Clone, Debug)]
pub(super) struct ColumnLayout {
    pub heading: String,
    /// Shown only when some row of the sample has a value.
    pub optional: bool,
    /// May be shortened where a terminal is too narrow.
    pub flexible: bool,
}

/// Cells of some rows, one after the other in one buffer.
#[derive(Default)]
pub(super) struct Cells {
    text: Vec<u8>,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy)]
struct Cell {
    end: usize,
    width: usize,
    style: Style,
}

impl Cells {
    /// Adds a cell; one that writes nothing is absent and shown as `-`.
    pub fn push(&mut self, style: Style, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.close(start, style);
    }

    fn close(&mut self, start: usize, style: Style) {
        let text = &self.text[start..];
        self.cells.push(Cell {
            end: self.text.len(),
            width: width(text),
            style,
        });
    }

    fn clear(&mut self) {
        self.text.clear();
        self.cells.clear();
    }
}

/// Characters, which is columns for all that names are made of.
fn width(text: &[u8]) -> usize {
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
    rows: Cells,
    /// Width of each column, `None` where it is hidden; empty while the sample is gathered.
    widths: Vec<Option<usize>>,
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
            rows: Cells::default(),
            widths: Vec::new(),
        }
    }

    /// Adds a row: `fill` pushes one cell for each column.
    pub fn row(&mut self, out: &mut Vec<u8>, fill: impl FnOnce(&mut Cells)) {
        fill(&mut self.rows);
        if !self.widths.is_empty() || self.rows.cells.len() >= SAMPLE * self.columns.len() {
            self.release(out);
        }
    }

    /// Prints what is held back: the sample, if it is not out yet. Later rows are aligned with it.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        if self.widths.is_empty() {
            self.widths = self.measure();
            if self.header {
                self.print_header(out);
            }
        }
        let mut start = 0;
        for row in self.rows.cells.chunks(self.columns.len()) {
            start = self.print(row, start, out);
        }
        self.rows.clear();
    }

    fn measure(&self) -> Vec<Option<usize>> {
        let mut widths: Vec<_> = self
            .columns
            .iter()
            .map(|column| (!column.optional).then_some(1))
            .collect();
        for row in self.rows.cells.chunks(self.columns.len()) {
            for (width, cell) in widths.iter_mut().zip(row) {
                if cell.width > 0 {
                    *width = Some(width.unwrap_or(1).max(cell.width));
                }
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
        let needed: usize = widths.iter().flatten().sum::<usize>() + GAP * shown.saturating_sub(1);
        for _ in terminal..needed {
            let widest = widths
                .iter_mut()
                .zip(&self.columns)
                .filter(|(_, column)| column.flexible)
                .filter_map(|(width, _)| width.as_mut())
                .max_by_key(|width| **width);
            match widest {
                Some(width) if *width > NARROWEST => *width -= 1,
                _ => break,
            }
        }
    }

    fn print_header(&self, out: &mut Vec<u8>) {
        let mut text = Vec::new();
        let mut cells = Vec::new();
        for column in &self.columns {
            text.extend_from_slice(column.heading.as_bytes());
            cells.push(Cell {
                end: text.len(),
                width: column.heading.chars().count(),
                style: Style::Heading,
            });
        }
        self.print_cells(&cells, &text, 0, out);
    }

    /// Prints a row whose text starts at `start`; returns where it ends.
    fn print(&self, row: &[Cell], start: usize, out: &mut Vec<u8>) -> usize {
        self.print_cells(row, &self.rows.text, start, out)
    }

    fn print_cells(&self, row: &[Cell], text: &[u8], start: usize, out: &mut Vec<u8>) -> usize {
        let mut start = start;
        // Blanks are owed until another cell follows, so that no line ends in any.
        let mut owed = 0;
        for ((cell, width), column) in row.iter().zip(&self.widths).zip(&self.columns) {
            let cell_text = &text[start..cell.end];
            start = cell.end;
            let Some(width) = *width else {
                continue;
            };
            blanks(owed, out);
            let used = self.print_cell(cell_text, *cell, width, column.flexible, out);
            owed = width.saturating_sub(used) + GAP;
        }
        out.push(b'\n');
        start
    }

    /// Prints one cell and returns the columns it takes.
    fn print_cell(
        &self,
        text: &[u8],
        cell: Cell,
        width: usize,
        flexible: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        if text.is_empty() {
            self.palette.paint(out, cell.style, b"-");
            return 1;
        }
        if cell.width > width && flexible && self.terminal.is_some() {
            self.palette.paint(out, cell.style, &shortened(text, width));
            return width;
        }
        self.palette.paint(out, cell.style, text);
        cell.width
    }
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

/// The text in `width` characters: its beginning, `…`, and its end, where the port is.
fn shortened(text: &[u8], width: usize) -> Vec<u8> {
    let text: Vec<char> = String::from_utf8_lossy(text).chars().collect();
    let tail = if width > 2 * TAIL { TAIL } else { 0 };
    let head = width.saturating_sub(tail + 1);
    let mut short: String = text.iter().take(head).collect();
    short.push('…');
    short.extend(text.iter().skip(text.len().saturating_sub(tail)));
    short.into_bytes()
}
