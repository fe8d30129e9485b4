//! Foreign text made harmless.
//!
//! Names, helpers, security contexts and error texts come from others. What could steer a terminal or turn the reading
//! direction never gets there: text formats show it as an escape, JSON uses its own escapes.

use std::fmt;

/// Control characters (C0, DEL, C1), line separators, and the controls of the bidirectional algorithm.
pub(super) fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e)
}

/// Looks at every byte: without a way out of the loop the compiler takes sixteen at a time.
fn all(text: &str, is_fine: impl Fn(u8) -> bool) -> bool {
    text.bytes().fold(true, |fine, byte| fine & is_fine(byte))
}

/// Appends text with harmful characters as `\x1b` or `\u{202e}`.
pub fn text(out: &mut Vec<u8>, text: &str) {
    if all(text, is_plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for c in text.chars() {
        if !is_harmful(c) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        } else if u32::from(c) < 0x100 {
            out.extend_from_slice(format!("\\x{:02x}", u32::from(c)).as_bytes());
        } else {
            out.extend_from_slice(c.escape_unicode().to_string().as_bytes());
        }
    }
}

/// Appends the inside of a JSON string (RFC 8259, section 7), harmful characters as `\u001b`.
pub fn json(out: &mut Vec<u8>, text: &str) {
    if all(text, |byte| {
        is_plain(byte) & (byte != b'"') & (byte != b'\\')
    }) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // All of them lie in the basic plane, so one group of four digits holds each.
            c if is_harmful(c) => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Lets `write!` append harmless text.
pub struct Text<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        text(self.0, s);
        Ok(())
    }
}

/// JSON that somebody else wrote, with the harmful characters that it left in its strings escaped. Outside of strings there
/// are none.
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match is_harmful(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Lets `write!` append the inside of a JSON string.
pub struct Json<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for Json<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        json(self.0, s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(input: &str) -> String {
        let mut out = Vec::new();
        text(&mut out, input);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn terminal_controls_are_shown_not_obeyed() {
        for (input, expected) in [
            ("kube-dns", "kube-dns"),
            ("a\u{1b}[31mb", "a\\x1b[31mb"),
            ("a\nb\tc\u{7f}", "a\\x0ab\\x09c\\x7f"),
            ("\u{9b}31m", "\\x9b31m"),
            ("x\u{202e}y\u{2066}z", "x\\u{202e}y\\u{2066}z"),
            ("line\u{2028}end", "line\\u{2028}end"),
            ("grün 日本", "grün 日本"),
        ] {
            assert_eq!(shown(input), expected, "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn no_harmful_character_passes(input in any::<String>()) {
            prop_assert!(!shown(&input).chars().any(is_harmful));
        }

        #[test]
        fn json_strings_read_back_as_they_were(input in any::<String>()) {
            let mut out = vec![b'"'];
            json(&mut out, &input);
            out.push(b'"');
            let written = String::from_utf8(out).unwrap();
            prop_assert!(!written.chars().any(is_harmful));
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), input);
        }
    }
}
