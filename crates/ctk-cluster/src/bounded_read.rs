//! Reading of files up to a limit, so that an endless device or pipe ends with an error.

use std::io::{self, Read};
#[cfg(any(feature = "kube", test))]
use std::{fs::File, path::Path};

/// Reads a file of at most `max_mib` MiB.
///
/// # Errors
/// The error of the file, or that it is larger.
#[cfg(any(feature = "kube", test))]
pub fn file(path: &Path, max_mib: u64) -> io::Result<Vec<u8>> {
    contents(File::open(path)?, max_mib)
}

/// Reads an open file of at most `max_mib` MiB.
///
/// # Errors
/// The error of the file, or that it is larger.
pub fn contents(file: impl Read, max_mib: u64) -> io::Result<Vec<u8>> {
    let max = max_mib << 20;
    let mut bytes = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut bytes)?;
    match read as u64 > max {
        true => Err(io::Error::other(format!("it is larger than {max_mib} MiB"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_an_error_and_one_of_the_limit_is_not() {
        let error = file(Path::new("/dev/zero"), 1).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB");
        let whole = contents(io::repeat(7).take(1 << 20), 1).unwrap();
        assert_eq!(whole.len(), 1 << 20);
    }
}
