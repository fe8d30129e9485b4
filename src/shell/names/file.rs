//! File of the names in a private folder. Only its owner can write to it, and a reader finds it whole or not at all.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

use super::{Each, Keep, NameKind};

/// Name of the file. Another format gets another name.
const FILE: &str = "names-v1";
/// Largest size of the file, in bytes. Names that do not fit are left out.
const MAX_BYTES: usize = 2 << 20;

/// Age in seconds from which an unfinished file counts as left behind.
const ABANDONED_SECONDS: i64 = 3600;
/// Files of the folder that are checked for being left behind.
const MAX_FILES: usize = 1000;

/// Opens the folder `ctk` in `parent`. It must belong to this user, and nobody else may write to it.
fn open_own(parent: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, "ctk", flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&folder)?;
    let others = Mode::WGRP | Mode::WOTH;
    if !is_ours(stat.st_uid) || Mode::from_raw_mode(stat.st_mode).intersects(others) {
        return Err(io::Error::other("the folder is not this user's own"));
    }
    Ok(folder)
}

fn is_ours(owner: u32) -> bool {
    owner == rustix::process::geteuid().as_raw()
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    if !is_ours(rustix::fs::fstat(&folder)?.st_uid) {
        return Err(io::Error::other("it is another user's"));
    }
    Ok(folder)
}

/// Opens `folder`. Creates it where only its last part is missing and its parent belongs to this user.
fn make_folder(folder: &Path) -> io::Result<OwnedFd> {
    match open_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    rustix::fs::mkdirat(open_folder(parent)?, name, Mode::RWXU)?;
    open_folder(folder)
}

pub(super) fn write(
    folder: &Path,
    keep: Keep,
    each: &mut dyn FnMut(Each<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let parent = make_folder(folder)?;
    match rustix::fs::mkdirat(&parent, "ctk", Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let own = open_own(&parent)?;
    if keep == Keep::IfFirst && rustix::fs::statat(&own, FILE, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    remove_abandoned(&own);
    // A killed process with the same number may have left one.
    let unfinished = format!("{FILE}.{}", std::process::id());
    let _ = rustix::fs::unlinkat(&own, &unfinished, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&own, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
    let written = write_names(File::from(file), each).and_then(|count| {
        // A reading without names does not replace an earlier one.
        if count == 0 {
            return Err(io::Error::other("there are none"));
        }
        Ok(rustix::fs::renameat(&own, &unfinished, &own, FILE)?)
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&own, &unfinished, AtFlags::empty());
    }
    written
}

/// Removes files of processes that were killed while they wrote. Only their age shows that: a container that shares the folder
/// numbers its processes itself.
fn remove_abandoned(own: &OwnedFd) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let Ok(files) = Dir::read_from(own) else {
        return;
    };
    for file in files.take(MAX_FILES).flatten() {
        let name = file.file_name();
        let is_unfinished = name
            .to_str()
            .ok()
            .and_then(|name| name.strip_prefix(FILE)?.strip_prefix('.'))
            .is_some_and(|number| number.parse::<u32>().is_ok());
        let old = |stat: Stat| now.saturating_sub(stat.st_mtime) > ABANDONED_SECONDS;
        if is_unfinished && rustix::fs::statat(own, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(old)
        {
            let _ = rustix::fs::unlinkat(own, name, AtFlags::empty());
        }
    }
}

/// Writes one line for each name. Returns the number of names.
fn write_names(file: File, each: &mut dyn FnMut(Each<'_>) -> io::Result<()>) -> io::Result<usize> {
    let mut out = BufWriter::new(file);
    let (mut count, mut bytes) = (0, 0);
    each(&mut |kind, name| {
        let size = kind.word().len() + name.len() + 2;
        if bytes + size <= MAX_BYTES && kind.allows(name) {
            bytes += size;
            count += 1;
            writeln!(out, "{} {name}", kind.word())?;
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(count)
}

pub(super) fn read(folder: &Path, wanted: NameKind) -> io::Result<Vec<String>> {
    let own = open_own(&open_folder(folder)?)?;
    // NONBLOCK: a pipe in place of the file would block otherwise.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&own, FILE, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if !is_ours(stat.st_uid) || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no file of this user's"));
    }
    let mut names = Vec::new();
    for line in BufReader::new(File::from(file).take(MAX_BYTES as u64)).lines() {
        let line = line?;
        let Some((kind, name)) = line.split_once(' ') else {
            continue;
        };
        if NameKind::of_word(kind) == Some(wanted) && wanted.allows(name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn put(folder: &Path, keep: Keep, names: &[(NameKind, &str)]) -> io::Result<()> {
        write(folder, keep, &mut |to| {
            names.iter().try_for_each(|(kind, name)| to(*kind, name))
        })
    }

    #[test]
    fn text_that_is_no_name_does_not_reach_the_shell() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join(".cache");
        put(
            &cache,
            Keep::Always,
            &[
                (NameKind::Namespace, "shop"),
                (NameKind::Service, "shop/api"),
                (NameKind::Service, "shop/$(reboot)"),
                (NameKind::Service, "no-namespace"),
                (NameKind::Port, "shop/api:http"),
                (NameKind::Pod, "shop/web-1\nservice shop/made-up"),
                (NameKind::Pod, "shop/web-1"),
            ],
        )
        .unwrap();
        assert_eq!(read(&cache, NameKind::Service).unwrap(), ["shop/api"]);
        assert_eq!(read(&cache, NameKind::Port).unwrap(), ["shop/api:http"]);
        assert_eq!(read(&cache, NameKind::Pod).unwrap(), ["shop/web-1"]);
        assert_eq!(read(&cache, NameKind::Node).unwrap(), [""; 0]);
        let file = std::fs::metadata(cache.join("ctk").join(FILE)).unwrap();
        assert_eq!(file.mode() & 0o777, 0o600);
        let folder = std::fs::metadata(cache.join("ctk")).unwrap();
        assert_eq!(folder.mode() & 0o777, 0o700);
    }

    #[test]
    fn the_demo_or_an_empty_cluster_does_not_replace_real_names() {
        let folder = tempfile::tempdir().unwrap();
        let services = |folder: &Path| read(folder, NameKind::Service).unwrap_or_default();
        let path = folder.path();
        put(path, Keep::IfFirst, &[(NameKind::Service, "demo/a")]).unwrap();
        assert_eq!(services(path), ["demo/a"]);
        put(path, Keep::Always, &[(NameKind::Service, "real/a")]).unwrap();
        put(path, Keep::IfFirst, &[(NameKind::Service, "demo/a")]).unwrap();
        put(path, Keep::Always, &[]).unwrap_err();
        assert_eq!(services(path), ["real/a"]);
        let left = std::fs::read_dir(path.join("ctk")).unwrap().count();
        assert_eq!(left, 1, "an unfinished file is left");
    }

    #[test]
    fn an_abandoned_file_is_removed_and_a_recent_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), Keep::Always, &[(NameKind::Node, "node1")]).unwrap();
        let own = folder.path().join("ctk");
        let hours_ago = SystemTime::now() - std::time::Duration::from_secs(7200);
        for (name, old) in [
            ("names-v1.4000000001", true),
            ("names-v1.4000000002", false),
            ("names-v1.mine", true),
            ("names-v2.4000000003", true),
        ] {
            let file = File::create(own.join(name)).unwrap();
            if old {
                file.set_modified(hours_ago).unwrap();
            }
        }
        put(folder.path(), Keep::Always, &[(NameKind::Node, "node1")]).unwrap();
        let files = std::fs::read_dir(&own).unwrap();
        let mut left: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        left.sort();
        let wanted = [
            "names-v1",
            "names-v1.4000000002",
            "names-v1.mine",
            "names-v2.4000000003",
        ];
        assert_eq!(left, wanted);
    }

    #[test]
    fn a_huge_cluster_does_not_make_a_huge_file() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), Keep::Always, &mut |to| {
            (0..100_000)
                .try_for_each(|n| to(NameKind::Pod, &format!("shop/a-rather-long-name-{n}")))
        })
        .unwrap();
        let file = std::fs::metadata(folder.path().join("ctk").join(FILE)).unwrap();
        assert!(file.len() <= MAX_BYTES as u64);
        assert!(read(folder.path(), NameKind::Pod).unwrap().len() > 50_000);
    }

    #[test]
    fn a_link_or_a_shared_folder_is_neither_read_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("a"), folder.path().join("elsewhere"));
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::create_dir_all(&path).unwrap();
        let names = [(NameKind::Service, "shop/api")];
        // A link instead of the folder.
        symlink(&elsewhere, path.join("ctk")).unwrap();
        put(&path, Keep::Always, &names).unwrap_err();
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        std::fs::remove_file(path.join("ctk")).unwrap();
        // A link instead of the file: what it leads to stays as it is.
        put(&path, Keep::Always, &names).unwrap();
        let file = path.join("ctk").join(FILE);
        std::fs::rename(&file, elsewhere.join("other")).unwrap();
        symlink(elsewhere.join("other"), &file).unwrap();
        read(&path, NameKind::Service).unwrap_err();
        put(&path, Keep::Always, &[(NameKind::Service, "shop/new")]).unwrap();
        assert_eq!(read(&path, NameKind::Service).unwrap(), ["shop/new"]);
        let other = std::fs::read_to_string(elsewhere.join("other")).unwrap();
        assert_eq!(other, "service shop/api\n");
        // A folder that others can write to.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(path.join("ctk"), open).unwrap();
        read(&path, NameKind::Service).unwrap_err();
        put(&path, Keep::Always, &names).unwrap_err();
    }

    #[test]
    fn nothing_is_written_to_a_folder_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make a folder of another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(65534), None).unwrap();
        let names = [(NameKind::Service, "shop/api")];
        put(&home.join(".cache"), Keep::Always, &names).unwrap_err();
        put(&home, Keep::Always, &names).unwrap_err();
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    }

    #[test]
    fn a_pipe_in_place_of_the_file_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), Keep::Always, &[(NameKind::Node, "node1")]).unwrap();
        let file = folder.path().join("ctk").join(FILE);
        std::fs::remove_file(&file).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &file, FileType::Fifo, mode, 0).unwrap();
        read(folder.path(), NameKind::Node).unwrap_err();
    }
}
