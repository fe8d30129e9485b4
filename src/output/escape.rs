//! Escapes for untrusted text.
//!
//! Names, helpers, security contexts and error texts are untrusted. Characters that control a terminal or change the reading
//! direction are written as escapes: `\x1b` in text formats, `\u001b` in JSON.

use std::fmt;

/// Control characters (C0, DEL, C1), line separators, and the controls of the bidirectional algorithm.
pub(super) fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e)
}

/// Tests every byte. The loop has no early exit, so that the compiler vectorises it.
fn all(text: &str, is_plain: impl Fn(u8) -> bool) -> bool {
    text.bytes().fold(true, |all, byte| all & is_plain(byte))
}

/// Appends text with control characters as `\x1b` or `\u{202e}`.
pub fn text(out: &mut Vec<u8>, text: &str) {
    if all(text, is_plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for c in text.chars() {
        if !needs_escape(c) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        } else if u32::from(c) < 0x100 {
            out.extend_from_slice(format!("\\x{:02x}", u32::from(c)).as_bytes());
        } else {
            out.extend_from_slice(c.escape_unicode().to_string().as_bytes());
        }
    }
}

/// Appends the inside of a JSON string (RFC 8259, section 7), control characters as `\u001b`.
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
            // All of them are in the basic plane, so four hex digits are enough.
            c if needs_escape(c) => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Target of `write!` that escapes text with [`text`].
pub struct EscapedText<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for EscapedText<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        text(self.0, s);
        Ok(())
    }
}

/// Escapes control characters in JSON from another serializer, which leaves some in strings; outside of strings it writes
/// none.
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match needs_escape(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Target of `write!` that escapes the inside of a JSON string with [`json`].
pub struct EscapedJson<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for EscapedJson<'_> {
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
    fn terminal_controls_are_escaped() {
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
        fn no_control_character_passes(input in any::<String>()) {
            prop_assert!(!shown(&input).chars().any(needs_escape));
        }

        #[test]
        fn json_strings_read_back_as_they_were(input in any::<String>()) {
            let mut out = vec![b'"'];
            json(&mut out, &input);
            out.push(b'"');
            let written = String::from_utf8(out).unwrap();
            prop_assert!(!written.chars().any(needs_escape));
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), input);
        }
    }
}
