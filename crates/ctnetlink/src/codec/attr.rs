//! Netlink attributes: a borrowing iterator, and a writer.
//!
//! An entry has about 25 attributes, so the iteration is the hottest code of a dump. It copies nothing and cannot panic on
//! any input. A wrong length ends it, and [`Attributes::finish`] reports that.

use netlink_packet_core::{NLA_ALIGNTO, NLA_F_NESTED, NLA_HEADER_SIZE, NLA_TYPE_MASK};

/// Error: the length of an attribute is below 4 or reaches beyond the enclosing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// One attribute. The accessors return `None` when the value is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Type without the bits `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`: not every kernel sets them.
    pub kind: u16,
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    #[inline]
    pub fn u8(&self) -> Option<u8> {
        self.value.first().copied()
    }

    #[inline]
    pub fn be16(&self) -> Option<u16> {
        self.value.first_chunk().copied().map(u16::from_be_bytes)
    }

    #[inline]
    pub fn be32(&self) -> Option<u32> {
        self.value.first_chunk().copied().map(u32::from_be_bytes)
    }

    #[inline]
    pub fn be64(&self) -> Option<u64> {
        self.value.first_chunk().copied().map(u64::from_be_bytes)
    }

    /// Text up to the first NUL. Bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> Box<str> {
        let end = self.value.iter().position(|b| *b == 0);
        let bytes = self.value.get(..end.unwrap_or(self.value.len()));
        String::from_utf8_lossy(bytes.unwrap_or_default()).into()
    }

    #[inline]
    pub fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.value)
    }
}

/// Iterator over attributes. Iterate over `&mut` of it, then call [`Attributes::finish`].
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    /// Bytes not read yet. Bytes left at the end are no attribute.
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Attributes { rest: bytes }
    }

    /// Checks that all bytes were read.
    #[inline]
    pub fn finish(self) -> Result<(), Broken> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Broken)
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'a>> {
        let (length, kind) = header(*self.rest.first_chunk()?);
        let length = usize::from(length);
        // `get` returns `None` for a length below the header's and for one beyond the end.
        let value = self.rest.get(NLA_HEADER_SIZE..length)?;
        // The padding of the last attribute may be missing.
        self.rest = self.rest.get(aligned(length)..).unwrap_or_default();
        Some(Attribute {
            kind: kind & NLA_TYPE_MASK,
            value,
        })
    }
}

/// Writes attributes at the end of a buffer, padded to 4 bytes.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Longest value that the 16-bit length can express.
    pub const MAX_VALUE: usize = u16::MAX as usize - NLA_HEADER_SIZE;

    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Writer { out }
    }

    /// Appends an attribute. A value longer than [`Writer::MAX_VALUE`] is cut, so that later attributes stay readable.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        let value = value.get(..Self::MAX_VALUE).unwrap_or(value);
        let start = self.begin(kind);
        self.out.extend_from_slice(value);
        self.end(start);
    }

    pub fn u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    pub fn be16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }

    pub fn be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Appends text with the final NUL that the kernel's `NLA_NUL_STRING` policy requires.
    pub fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes);
    }

    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Writer<'_>)) {
        let start = self.begin(kind | NLA_F_NESTED);
        fill(&mut Writer { out: self.out });
        self.end(start);
    }

    fn begin(&mut self, kind: u16) -> usize {
        let start = self.out.len();
        self.out.extend_from_slice(&[0, 0]);
        self.out.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    fn end(&mut self, start: usize) {
        let length = self.out.len() - start;
        let field_length = u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes();
        if let Some(field) = self.out.get_mut(start..start + field_length.len()) {
            field.copy_from_slice(&field_length);
        }
        self.out.resize(start + aligned(length), 0);
    }
}

/// Length and type from the header of an attribute. Read as one number: the compiler reads two halves byte by byte.
#[inline]
fn header(bytes: [u8; NLA_HEADER_SIZE]) -> (u16, u16) {
    let number = u32::from_ne_bytes(bytes);
    let (low, high) = (number as u16, (number >> 16) as u16);
    if cfg!(target_endian = "little") {
        (low, high)
    } else {
        (high, low)
    }
}

/// Header of an attribute of this length and type (with flag bits), for comparison of whole headers.
pub(crate) const fn header_bytes(length: u16, kind: u16) -> [u8; NLA_HEADER_SIZE] {
    let ([l0, l1], [k0, k1]) = (length.to_ne_bytes(), kind.to_ne_bytes());
    [l0, l1, k0, k1]
}

/// Length with padding to 4 bytes.
pub(crate) const fn aligned(length: usize) -> usize {
    // Cheaper than `next_multiple_of`, which branches on the remainder.
    (length + NLA_ALIGNTO - 1) & !(NLA_ALIGNTO - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(u16, Vec<u8>)>;

    fn walk(bytes: &[u8]) -> (Seen, Result<(), Broken>) {
        let mut attributes = Attributes::new(bytes);
        let seen = (&mut attributes)
            .map(|a| (a.kind, a.value.to_vec()))
            .collect();
        (seen, attributes.finish())
    }

    #[test]
    fn written_attributes_are_read_back_with_padding_and_nesting() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.u8(1, 7);
        writer.nested(2, |inner| {
            inner.be16(3, 0x1234);
            inner.text(4, "ftp");
        });
        writer.be32(5, 0xdead_beef);
        assert_eq!(bytes.len() % 4, 0);

        let all: Vec<_> = Attributes::new(&bytes).collect();
        assert_eq!(all.iter().map(|a| a.kind).collect::<Vec<_>>(), [1, 2, 5]);
        assert_eq!((all[0].u8(), all[2].be32()), (Some(7), Some(0xdead_beef)));
        let inner: Vec<_> = all[1].nested().collect();
        assert_eq!(inner[0].be16(), Some(0x1234));
        assert_eq!(&*inner[1].text(), "ftp");
    }

    #[test]
    fn wrong_lengths_end_the_iteration_and_are_reported() {
        let good = [5, 0, 1, 0, 9, 0, 0, 0];
        for (name, tail, count, end) in [
            ("nothing more", &[][..], 1, Ok(())),
            ("header cut", &[8, 0, 1][..], 1, Err(Broken)),
            ("length 0", &[0, 0, 1, 0][..], 1, Err(Broken)),
            ("length 3", &[3, 0, 1, 0][..], 1, Err(Broken)),
            (
                "beyond the end",
                &[9, 0, 1, 0, 0, 0, 0, 0][..],
                1,
                Err(Broken),
            ),
            ("last without padding", &[5, 0, 2, 0, 1][..], 2, Ok(())),
            ("empty value", &[4, 0, 2, 0][..], 2, Ok(())),
        ] {
            let bytes = [&good[..], tail].concat();
            let (seen, found) = walk(&bytes);
            assert_eq!((seen.len(), found), (count, end), "{name}");
        }
    }

    #[test]
    fn flag_bits_are_masked_and_short_values_are_absent() {
        let (seen, _) = walk(&[5, 0, 18, 0xc0, 1, 0, 0, 0]);
        assert_eq!(seen, [(18, vec![1])]);
        let one = Attribute {
            kind: 1,
            value: &[1],
        };
        assert_eq!((one.be16(), one.be32(), one.be64()), (None, None, None));
    }

    #[test]
    fn oversized_value_is_cut_and_later_attributes_stay_readable() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.put(1, &vec![1; 70_000]);
        writer.u8(2, 2);
        let (seen, end) = walk(&bytes);
        assert_eq!((seen.len(), end), (2, Ok(())));
    }
}
