//! Tables of few rows, laid out by comfy-table. `output/table.rs` streams the table of entries, which may have a million rows.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::{Palette, Style, safe_text};

/// One cell. Its text is escaped when the cell is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextCell {
    text: String,
    style: Style,
}

impl TextCell {
    pub fn plain(text: impl AsRef<str>) -> Self {
        Self::styled(text, Style::Plain)
    }

    pub fn styled(text: impl AsRef<str>, style: Style) -> Self {
        TextCell {
            text: safe_text(text.as_ref()),
            style,
        }
    }

    /// `-` for `None`.
    pub fn or_dash(text: Option<impl AsRef<str>>) -> Self {
        text.map_or_else(|| Self::plain("-"), Self::plain)
    }
}

/// Alignment of a column: numbers are aligned right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    Left,
    Right,
}

/// Lines of a table, each ended by a newline, with two blanks between columns and none at the end. Rows may be shorter
/// than `columns`. Without `header` the names are left out.
pub fn bounded_table(
    columns: &[(&str, Alignment)],
    rows: impl IntoIterator<Item = Vec<TextCell>>,
    header: bool,
    palette: Palette,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if palette.is_coloured() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if header {
        let names = columns.iter().map(|(name, _)| TextCell {
            text: (*name).to_owned(),
            style: Style::Heading,
        });
        table.set_header(names.map(cell));
    }
    for row in rows {
        table.add_row(row.into_iter().map(cell));
    }
    for (column, (_, lean)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        column.set_cell_alignment(match lean {
            Alignment::Left => CellAlignment::Left,
            Alignment::Right => CellAlignment::Right,
        });
    }
    if table.is_empty() && !header {
        return String::new();
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

fn cell(from: TextCell) -> Cell {
    let cell = Cell::new(from.text);
    match from.style {
        Style::Plain => cell,
        Style::Heading => cell.add_attribute(Attribute::Bold),
        Style::Good => cell.fg(Color::DarkGreen),
        Style::Bad => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
        Style::Warning => cell.fg(Color::DarkYellow),
        Style::Faint => cell.add_attribute(Attribute::Dim),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::ColorChoice;

    fn rows() -> Vec<Vec<TextCell>> {
        vec![
            vec![TextCell::plain("kube-dns"), TextCell::plain("7")],
            vec![
                TextCell::styled("\u{1b}[2Jx", Style::Bad),
                TextCell::plain("1234"),
            ],
            vec![TextCell::or_dash(None::<&str>)],
        ]
    }

    #[test]
    fn numbers_are_aligned_right_and_lines_end_without_blanks() {
        let columns = [("SERVICE", Alignment::Left), ("FLOWS", Alignment::Right)];
        let text = bounded_table(&columns, rows(), true, Palette::PLAIN);
        assert_eq!(
            text,
            "SERVICE   FLOWS\nkube-dns      7\n\\x1b[2Jx   1234\n-\n"
        );
        let bare = bounded_table(&columns, rows(), false, Palette::PLAIN);
        assert_eq!(bare, "kube-dns     7\n\\x1b[2Jx  1234\n-\n");
        assert_eq!(bounded_table(&columns, [], false, Palette::PLAIN), "");
    }

    #[test]
    fn colour_does_not_move_columns() {
        let palette = Palette::decide(ColorChoice::Always, |_| None, false);
        let columns = [("SERVICE", Alignment::Left), ("FLOWS", Alignment::Right)];
        let text = bounded_table(&columns, rows(), true, palette);
        assert!(text.contains("\u{1b}[1m"), "{text:?}");
        let plain = regex::Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            plain.replace_all(lines[1], "").trim_end(),
            "kube-dns      7"
        );
    }
}
