//! The file of the names, in a private folder: nobody else can write to it, and a reader finds it whole or not at all.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

use super::{Each, Keep, Kind};

/// The file; another form of it would get another name.
const FILE: &str = "names-v1";
/// Longest file, in bytes. What does not fit is left out, Pods first.
const MOST: usize = 2 << 20;

/// A file that was begun so long ago is finished by nobody.
const UNFINISHED_SECONDS: i64 = 3600;
/// Files of the folder that are looked at.
const MOST_FILES: usize = 1000;

/// A folder of this user's, which nobody else can write to.
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

/// Opens `folder`; makes it where only the last part of it is missing, in a parent that is this user's own.
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
    forget_unfinished(&own);
    // Of a process that was killed with the same number.
    let unfinished = format!("{FILE}.{}", std::process::id());
    let _ = rustix::fs::unlinkat(&own, &unfinished, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&own, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
    let written = write_names(File::from(file), each).and_then(|count| {
        // A reading that found nothing does not take away what an earlier one found.
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

/// Removes what processes left that were killed while they wrote. Their numbers tell nothing: those of a container that
/// shares the folder are numbers of others. But nobody writes for so long.
fn forget_unfinished(own: &OwnedFd) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let Ok(files) = Dir::read_from(own) else {
        return;
    };
    for file in files.take(MOST_FILES).flatten() {
        let name = file.file_name();
        let is_unfinished = name
            .to_str()
            .ok()
            .and_then(|name| name.strip_prefix(FILE)?.strip_prefix('.'))
            .is_some_and(|number| number.parse::<u32>().is_ok());
        let old = |stat: Stat| now.saturating_sub(stat.st_mtime) > UNFINISHED_SECONDS;
        if is_unfinished && rustix::fs::statat(own, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(old)
        {
            let _ = rustix::fs::unlinkat(own, name, AtFlags::empty());
        }
    }
}

/// Writes a line a name, and says how many.
fn write_names(file: File, each: &mut dyn FnMut(Each<'_>) -> io::Result<()>) -> io::Result<usize> {
    let mut out = BufWriter::new(file);
    let (mut count, mut bytes) = (0, 0);
    each(&mut |kind, name| {
        let size = kind.word().len() + name.len() + 2;
        if bytes + size <= MOST && kind.allows(name) {
            bytes += size;
            count += 1;
            writeln!(out, "{} {name}", kind.word())?;
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(count)
}

pub(super) fn read(folder: &Path, wanted: Kind) -> io::Result<Vec<String>> {
    let own = open_own(&open_folder(folder)?)?;
    // A pipe in its place is not waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&own, FILE, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if !is_ours(stat.st_uid) || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no file of this user's"));
    }
    let mut names = Vec::new();
    for line in BufReader::new(File::from(file).take(MOST as u64)).lines() {
        let line = line?;
        let Some((kind, name)) = line.split_once(' ') else {
            continue;
        };
        if Kind::of_word(kind) == Some(wanted) && wanted.allows(name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn put(folder: &Path, keep: Keep, names: &[(Kind, &str)]) -> io::Result<()> {
        write(folder, keep, &mut |to| {
            names.iter().try_for_each(|(kind, name)| to(*kind, name))
        })
    }

    #[test]
    fn names_come_back_by_kind_and_only_names() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join(".cache");
        put(
            &cache,
            Keep::Always,
            &[
                (Kind::Namespace, "shop"),
                (Kind::Service, "shop/api"),
                (Kind::Service, "shop/$(reboot)"),
                (Kind::Service, "no-namespace"),
                (Kind::Port, "shop/api:http"),
                (Kind::Pod, "shop/web-1\nservice shop/made-up"),
                (Kind::Pod, "shop/web-1"),
            ],
        )
        .unwrap();
        assert_eq!(read(&cache, Kind::Service).unwrap(), ["shop/api"]);
        assert_eq!(read(&cache, Kind::Port).unwrap(), ["shop/api:http"]);
        assert_eq!(read(&cache, Kind::Pod).unwrap(), ["shop/web-1"]);
        assert_eq!(read(&cache, Kind::Node).unwrap(), [""; 0]);
        let file = std::fs::metadata(cache.join("ctk").join(FILE)).unwrap();
        assert_eq!(file.mode() & 0o777, 0o600);
        let folder = std::fs::metadata(cache.join("ctk")).unwrap();
        assert_eq!(folder.mode() & 0o777, 0o700);
    }

    #[test]
    fn the_demo_and_an_empty_cluster_leave_real_names_alone() {
        let folder = tempfile::tempdir().unwrap();
        let services = |folder: &Path| read(folder, Kind::Service).unwrap_or_default();
        let path = folder.path();
        put(path, Keep::IfFirst, &[(Kind::Service, "demo/a")]).unwrap();
        assert_eq!(services(path), ["demo/a"]);
        put(path, Keep::Always, &[(Kind::Service, "real/a")]).unwrap();
        put(path, Keep::IfFirst, &[(Kind::Service, "demo/a")]).unwrap();
        put(path, Keep::Always, &[]).unwrap_err();
        assert_eq!(services(path), ["real/a"]);
        let left = std::fs::read_dir(path.join("ctk")).unwrap().count();
        assert_eq!(left, 1, "an unfinished file is left");
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_what_others_write_is_not() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), Keep::Always, &[(Kind::Node, "node1")]).unwrap();
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
        put(folder.path(), Keep::Always, &[(Kind::Node, "node1")]).unwrap();
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
            (0..100_000).try_for_each(|n| to(Kind::Pod, &format!("shop/a-rather-long-name-{n}")))
        })
        .unwrap();
        let file = std::fs::metadata(folder.path().join("ctk").join(FILE)).unwrap();
        assert!(file.len() <= MOST as u64);
        assert!(read(folder.path(), Kind::Pod).unwrap().len() > 50_000);
    }

    #[test]
    fn what_another_could_have_written_is_not_read_and_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("a"), folder.path().join("elsewhere"));
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::create_dir_all(&path).unwrap();
        let names = [(Kind::Service, "shop/api")];
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
        read(&path, Kind::Service).unwrap_err();
        put(&path, Keep::Always, &[(Kind::Service, "shop/new")]).unwrap();
        assert_eq!(read(&path, Kind::Service).unwrap(), ["shop/new"]);
        let other = std::fs::read_to_string(elsewhere.join("other")).unwrap();
        assert_eq!(other, "service shop/api\n");
        // A folder that others can write to.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(path.join("ctk"), open).unwrap();
        read(&path, Kind::Service).unwrap_err();
        put(&path, Keep::Always, &names).unwrap_err();
    }

    #[test]
    fn a_folder_of_another_user_is_left_alone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make a folder of another user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(65534), None).unwrap();
        let names = [(Kind::Service, "shop/api")];
        put(&home.join(".cache"), Keep::Always, &names).unwrap_err();
        put(&home, Keep::Always, &names).unwrap_err();
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    }

    #[test]
    fn a_pipe_in_its_place_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), Keep::Always, &[(Kind::Node, "node1")]).unwrap();
        let file = folder.path().join("ctk").join(FILE);
        std::fs::remove_file(&file).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &file, FileType::Fifo, mode, 0).unwrap();
        read(folder.path(), Kind::Node).unwrap_err();
    }
}
