//! Every format of output, to be tried on whatever was read.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use ctk::entry::Entry;
use ctk::output::{
    COLUMNS, ExpectationPrinter, Format, ItemResult, Options, Palette, Printer, Summary, wide_line,
};
use ctnetlink::{Expectation, Flow};

/// Formats of entries.
const FORMATS: [Format; 6] = [
    Format::Table,
    Format::Wide,
    Format::Json,
    Format::Jsonl,
    Format::Conntrack,
    Format::Csv,
];

/// Text that a printer writes.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut page = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        page.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Page {
    /// Takes the text, which holds nothing that acts on a terminal.
    fn text(self) -> String {
        let mut page = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8(std::mem::take(&mut *page));
        let text = text.unwrap_or_else(|error| unreachable!("no text is printed: {error}"));
        check_printable(&text);
        text
    }
}

/// Fails for a text with control characters other than line ends.
pub fn check_printable(text: &str) {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\r';
    assert!(!text.contains(acts), "printed raw: {text:?}");
}

fn options(format: Format) -> Options {
    Options {
        format,
        palette: Palette::default(),
        header: true,
        ..Options::default()
    }
}

/// Prints an entry with a result in one format.
pub fn entry(format: Format, entry: &Entry<'_>, result: Option<&ItemResult>) -> String {
    let page = Page::default();
    let options = Options {
        results: result.is_some(),
        ..options(format)
    };
    let mut printer = Printer::new(options, Box::new(page.clone()));
    let printed = printer.entry(entry, result);
    let printed = printed.and_then(|()| printer.finish(&Summary::default()));
    assert!(printed.is_ok(), "a page takes everything");
    drop(printer);
    page.text()
}

/// Prints an entry in every format, and checks that JSON is JSON and has every key.
pub fn entry_everywhere(item: &Entry<'_>) {
    for format in FORMATS {
        let text = entry(format, item, None);
        if matches!(format, Format::Json | Format::Jsonl) {
            let value = json(&text);
            let item = match format {
                Format::Json => &value["items"][0],
                _ => &value,
            };
            assert!(
                COLUMNS.len() > 10 && item.get("original").is_some(),
                "{text}"
            );
        }
        if format == Format::Jsonl || format == Format::Conntrack {
            assert_eq!(text.matches('\n').count(), 1, "one line: {text:?}");
        }
    }
    let mut line = String::new();
    wide_line(item, &mut line);
    check_printable(&line);
}

/// Prints an entry without names in every format.
pub fn flow_everywhere(flow: &Flow) {
    entry_everywhere(&Entry::bare(flow.clone()));
}

/// Prints an expectation in every format.
pub fn expectation_everywhere(expectation: &Expectation) {
    for format in FORMATS {
        let page = Page::default();
        let mut printer = ExpectationPrinter::new(&options(format), Box::new(page.clone()));
        let printed = printer.expectation(expectation);
        let printed = printed.and_then(|()| printer.finish(&Summary::default()));
        assert!(printed.is_ok(), "a page takes everything");
        drop(printer);
        let text = page.text();
        if matches!(format, Format::Json | Format::Jsonl) {
            json(&text);
        }
    }
}

/// Runs `print` with a page, and returns the text on it.
pub fn paged(print: impl FnOnce(Box<dyn Write>) -> std::io::Result<()>) -> String {
    let page = Page::default();
    let printed = print(Box::new(page.clone()));
    assert!(printed.is_ok(), "a page takes everything");
    page.text()
}

/// Parses JSON that was printed.
pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| unreachable!("{error}: {text}"))
}
