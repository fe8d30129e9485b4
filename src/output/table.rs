//! `-o table` and `-o wide`.

use std::sync::LazyLock;

use super::cell;
use super::color::{Palette, Style};
use super::column::{Column, Columns};
use super::layout::{Cells, ColumnLayout, Layout};
use super::row::Row;
use super::write;

/// A column of a table of entries.
#[derive(Clone)]
struct TableColumn {
    layout: ColumnLayout,
    write: CellWriter,
    /// `None` for a column without colour.
    style: Option<fn(&Row<'_>) -> Style>,
}

#[derive(Clone, Copy)]
enum CellWriter {
    Cell(fn(&Row<'_>, &mut Vec<u8>)),
    Column(&'static Column),
}

impl CellWriter {
    #[inline]
    fn write(self, row: &Row<'_>, out: &mut Vec<u8>) {
        match self {
            CellWriter::Cell(write) => write(row, out),
            CellWriter::Column(column) => (column.value)(row).show(out),
        }
    }
}

fn column(heading: &str, write: fn(&Row<'_>, &mut Vec<u8>)) -> TableColumn {
    TableColumn {
        layout: ColumnLayout {
            heading: heading.to_owned(),
            optional: false,
            flexible: false,
        },
        write: CellWriter::Cell(write),
        style: None,
    }
}

impl TableColumn {
    fn optional(mut self) -> Self {
        self.layout.optional = true;
        self
    }

    fn flexible(mut self) -> Self {
        self.layout.flexible = true;
        self
    }

    fn styled(mut self, style: fn(&Row<'_>) -> Style) -> Self {
        self.style = Some(style);
        self
    }
}

/// Columns of `-o table`.
fn default_columns() -> Vec<TableColumn> {
    vec![
        column("PROTO", cell::protocol),
        column("ZONE", cell::zone).optional(),
        column("STATE", cell::state),
        column("CLIENT", cell::client_as_sent).flexible(),
        column("SERVICE", cell::service).flexible(),
        column("ENDPOINT", cell::endpoint).flexible(),
        column("TTL", cell::ttl),
        column("VERDICT", cell::verdict).styled(cell::verdict_style),
    ]
}

/// Columns of `-o wide`: all fields of the kernel, then the names. `--match` is applied to them.
fn wide_columns() -> Vec<TableColumn> {
    vec![
        column("PROTO", cell::protocol),
        column("STATE", cell::state),
        column("SOURCE", |row, out| {
            write::address_port(out, row.flow.original.source())
        }),
        column("DESTINATION", |row, out| {
            write::address_port(out, row.flow.original.destination())
        }),
        column("REPLY-SOURCE", |row, out| {
            write::address_port(out, row.flow.reply.source())
        }),
        column("REPLY-DESTINATION", |row, out| {
            write::address_port(out, row.flow.reply.destination())
        }),
        column("DETAIL", cell::detail).optional(),
        column("TTL", cell::ttl),
        column("AGE", cell::age).optional(),
        column("PACKETS", |row, out| {
            count(row.flow.counters_original.map(|c| c.packets), out)
        })
        .optional(),
        column("BYTES", |row, out| {
            count(row.flow.counters_original.map(|c| c.bytes), out)
        })
        .optional(),
        column("REPLY-PACKETS", |row, out| {
            count(row.flow.counters_reply.map(|c| c.packets), out)
        })
        .optional(),
        column("REPLY-BYTES", |row, out| {
            count(row.flow.counters_reply.map(|c| c.bytes), out)
        })
        .optional(),
        column("MARK", |row, out| count(row.flow.mark.map(u64::from), out)),
        column("ZONE", cell::zone).optional(),
        column("LABELS", |row, out| {
            if let Some(labels) = row.flow.labels() {
                write::labels(out, labels);
            }
        })
        .optional(),
        column("HELPER", |row, out| {
            super::escape::text(out, row.flow.helper().unwrap_or(""))
        })
        .optional(),
        column("SECCTX", |row, out| {
            super::escape::text(out, row.flow.secctx().unwrap_or(""))
        })
        .optional(),
        column("ID", |row, out| count(row.flow.id.map(u64::from), out)),
        column("CLIENT", cell::client).flexible(),
        column("SERVICE", cell::service).flexible(),
        column("ENDPOINT", cell::endpoint).flexible(),
        column("VERDICT", cell::verdict).styled(cell::verdict_style),
    ]
}

fn count(n: Option<u64>, out: &mut Vec<u8>) {
    if let Some(n) = n {
        write::number(out, n);
    }
}

fn result() -> TableColumn {
    column("RESULT", cell::result).styled(cell::result_style)
}

fn chosen_columns(columns: Columns) -> Vec<TableColumn> {
    let shown = |column: &'static Column| TableColumn {
        layout: ColumnLayout {
            heading: column.heading(),
            optional: false,
            flexible: matches!(column.key, "client" | "service" | "endpoint"),
        },
        write: CellWriter::Column(column),
        style: (column.key == "verdict").then_some(cell::verdict_style),
    };
    columns.0.into_iter().map(shown).collect()
}

/// A table of entries.
pub(super) struct EntryTable {
    columns: Vec<TableColumn>,
    layout: Layout,
}

/// Columns of a table.
pub(super) enum TableColumns {
    Default,
    Wide,
    Chosen(Columns),
}

impl EntryTable {
    pub fn new(
        kind: TableColumns,
        results: bool,
        palette: Palette,
        header: bool,
        terminal: Option<usize>,
    ) -> Self {
        let chosen = matches!(kind, TableColumns::Chosen(_));
        let mut columns = match kind {
            TableColumns::Default => default_columns(),
            TableColumns::Wide => wide_columns(),
            TableColumns::Chosen(columns) => chosen_columns(columns),
        };
        if !chosen {
            columns.insert(0, column("NETNS", cell::netns).optional());
        }
        if results && !chosen {
            columns.push(result());
        }
        let layouts = columns.iter().map(|column| column.layout.clone()).collect();
        EntryTable {
            columns,
            layout: Layout::new(layouts, palette, header, terminal),
        }
    }

    pub fn row(&mut self, row: &Row<'_>, out: &mut Vec<u8>) {
        let columns = &self.columns;
        self.layout.row(out, |cells: &mut Cells| {
            for column in columns {
                let style = column.style.map_or(Style::Plain, |style| style(row));
                cells.push(style, |text| column.write.write(row, text));
            }
        });
    }

    /// Prints the rows held back; see [`Layout::release`].
    pub fn release(&mut self, out: &mut Vec<u8>) {
        self.layout.release(out);
    }
}

/// Appends the line that `--match` is applied to: the wide columns joined by one blank, `-` for absent values.
pub(super) fn wide_line(row: &Row<'_>, out: &mut Vec<u8>) {
    static COLUMNS: LazyLock<Vec<TableColumn>> = LazyLock::new(wide_columns);
    for (i, column) in COLUMNS.iter().enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        let start = out.len();
        column.write.write(row, out);
        if out.len() == start {
            out.push(b'-');
        }
    }
}

#[cfg(test)]
mod tests;
