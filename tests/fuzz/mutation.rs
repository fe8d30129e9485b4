//! Mutations of an input: bits, lengths, words of the format, pieces of other inputs. The seed repeats them.

use std::path::PathBuf;

use testkit::dice::Dice;

/// Longest result in bytes.
const MAX_BYTES: usize = 32 * 1024;
/// Most changes of one mutation.
const MAX_CHANGES: u64 = 6;

/// Numbers at the bounds of types, and words with a meaning in some format.
const WORDS: &[&[u8]] = &[
    b"",
    b"\0",
    b"\n",
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x80\0\0\0",
    b"\x04\0",
    b"\xff\xfe\xfd\xfc",
    b"-1",
    b"0",
    b"65535",
    b"65536",
    b"4294967296",
    b"18446744073709551616",
    b"1e999",
    b"NaN",
    b"null",
    b"[]",
    b"{}",
    b"\"\"",
    b"\"\\u0000\\u001b\"",
    b"\"\\ud800\"",
    b"\xe2\x80\xae",
    b"\xc2\x9b",
    b"\x1b[2J",
    b"::",
    b"::ffff:10.0.0.1",
    b"0.0.0.0/0",
    b"/33",
    b"!",
    b",",
    b"--",
    b" ",
    b"\"",
    b"\\",
];

/// Makes mutations of one file with pieces of all.
pub struct Mutator<'c> {
    dice: Dice,
    all: &'c [(PathBuf, Vec<u8>)],
}

impl<'c> Mutator<'c> {
    pub fn new(seed: u64, all: &'c [(PathBuf, Vec<u8>)]) -> Self {
        Mutator {
            dice: Dice(seed),
            all,
        }
    }

    pub fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut data = bytes.to_vec();
        for _ in 0..=self.dice.below(MAX_CHANGES) {
            self.change(&mut data);
        }
        data.truncate(MAX_BYTES);
        data
    }

    fn change(&mut self, data: &mut Vec<u8>) {
        let at = self.below(data.len() + 1);
        let end = at + self.below((data.len() - at + 1).min(64));
        match self.dice.below(8) {
            0 if at < data.len() => data[at] ^= 1 << self.dice.below(8),
            1 if at < data.len() => data[at] = self.dice.below(256) as u8,
            2 => drop(data.drain(at..end)),
            3 => {
                let piece = data[at..end].to_vec();
                let to = self.below(data.len() + 1);
                data.splice(to..to, piece);
            }
            4 => data.truncate(at),
            5 => {
                let word = *self.dice.of(WORDS);
                data.splice(at..at, word.iter().copied());
            }
            6 => {
                let word = *self.dice.of(WORDS);
                data.splice(at..end, word.iter().copied());
            }
            _ => {
                let (_, other) = self.dice.of(self.all);
                let from = self.below(other.len() + 1);
                let to = from + self.below((other.len() - from + 1).min(256));
                data.splice(at..end, other[from..to].iter().copied());
            }
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.dice.below(n as u64) as usize
    }
}
