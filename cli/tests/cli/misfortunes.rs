//! Stores that cannot be used: one clear line, the right code, nothing changed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::support::{Scene, code, complaint, end_of, stdout};

#[test]
fn a_store_that_is_not_built_in_says_what_would_be() {
    let scene = Scene::new();
    for (url, expected) in [
        ("azblob://account/leases", "`azure`"),
        ("redis://:hunter2@host", "`redis`"),
        ("mongodb://hunter2@host", "known are `sqlite:`"),
        ("leases.db", "`sqlite:PATH`"),
        ("sqlite::memory:", "memory"),
    ] {
        for task in [&["run", "k", "--", "sh", "-c", "echo > ran"][..], &["show", "k"], &["init"]] {
            let (found, line) = complaint(&end_of(scene.leasehold(["--store", url]).args(task)));
            assert_eq!(found, 78, "{line}");
            assert!(line.contains(expected) && !line.contains("hunter2"), "{line}");
        }
    }
    assert_eq!(scene.read("ran"), None);
}

#[test]
fn what_is_no_database_is_left_as_it_is() {
    let scene = Scene::new();
    let text = "dear diary, this is no database at all\n".repeat(100);
    fs::write(scene.store(), &text).unwrap();
    for task in [&["run", "k", "--", "true"][..], &["show", "k"], &["init"]] {
        let (found, line) = complaint(&end_of(&mut scene.leasehold(task)));
        assert_eq!(found, 78, "{line}");
        assert!(line.contains("database"), "{line}");
    }
    assert_eq!(fs::read_to_string(scene.store()).unwrap(), text);
}

#[test]
fn a_folder_or_a_file_in_the_way_is_said() {
    let scene = Scene::new();
    fs::create_dir(scene.store()).unwrap();
    let (found, line) = complaint(&end_of(&mut scene.leasehold(["run", "k", "--", "true"])));
    assert_eq!(found, 78, "{line}");
    fs::write(scene.path("file"), "").unwrap();
    let mut command = scene.leasehold(["--store", "sqlite:file/leases.db", "run", "k", "--", "true"]);
    let (found, line) = complaint(&end_of(&mut command));
    assert_eq!(found, 78, "{line}");
}

/// `leasehold` as somebody without rights, started by a shell with this preamble; the superuser has all of them.
fn unprivileged(scene: &Scene, preamble: &str, arguments: &[&str]) -> Command {
    // The build's folder may be closed to others.
    let binary = scene.path("leasehold");
    if !binary.exists() {
        fs::copy(env!("CARGO_BIN_EXE_leasehold"), &binary).unwrap();
    }
    let mut command = Command::new("sh");
    scene.dress(&mut command);
    command.args(["-c", &format!("{preamble}\nexec \"$0\" \"$@\"")]).arg(binary).args(arguments);
    if rustix::process::geteuid().is_root() {
        use std::os::unix::process::CommandExt as _;
        command.uid(65534).gid(65534);
    }
    command
}

#[test]
fn a_folder_that_may_not_be_written_is_said() {
    let scene = Scene::new();
    fs::set_permissions(scene.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    unprivileged(&scene, "", &[]);
    fs::create_dir(scene.path("closed")).unwrap();
    fs::set_permissions(scene.path("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    for url in ["sqlite:closed/leases.db", "sqlite:closed/new/leases.db"] {
        for task in [&["run", "k", "--", "true"][..], &["init"]] {
            let arguments = [&["--store", url], task].concat();
            let (found, line) = complaint(&end_of(&mut unprivileged(&scene, "", &arguments)));
            assert_eq!(found, 78, "{line}");
            assert!(line.contains("closed"), "{line}");
        }
    }
    assert_eq!(fs::read_dir(scene.path("closed")).unwrap().count(), 0);
}

#[test]
fn a_store_of_somebody_else_is_said_and_left_as_it_is() {
    let scene = Scene::new();
    fs::set_permissions(scene.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(code(end_of(&mut scene.run_sh(&["k"], "true")).status), 0);
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(scene.store(), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let before = fs::metadata(scene.store()).unwrap().modified().unwrap();
    for task in [&["run", "k", "--", "true"][..], &["show", "k"]] {
        let (found, line) = complaint(&end_of(&mut unprivileged(&scene, "", task)));
        assert_eq!(found, 78, "{line}");
    }
    assert_eq!(fs::metadata(scene.store()).unwrap().modified().unwrap(), before);
}

#[test]
fn a_full_disk_is_said_and_nothing_is_changed() {
    let scene = Scene::new();
    fs::set_permissions(scene.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    let full = "trap '' XFSZ; ulimit -f 1";
    let (found, line) =
        complaint(&end_of(&mut unprivileged(&scene, full, &["run", "k", "--", "sh", "-c", "echo > ran"])));
    assert!([69, 78].contains(&found), "{found}: {line}");
    assert_eq!(scene.read("ran"), None);

    // A store that is there already, and as it was.
    let store = scene.store();
    let _ = fs::remove_file(&store);
    assert_eq!(code(end_of(&mut unprivileged(&scene, "", &["run", "k", "--", "true"])).status), 0);
    let show = || stdout(&end_of(&mut scene.leasehold(["show", "k", "--json"])));
    let before = show();
    let (found, line) =
        complaint(&end_of(&mut unprivileged(&scene, full, &["run", "k", "--", "sh", "-c", "echo > ran"])));
    assert!([69, 78].contains(&found), "{found}: {line}");
    assert_eq!((scene.read("ran"), show()), (None, before));
}

#[test]
fn the_hidden_subcommand_says_that_it_is_not_for_people() {
    let scene = Scene::new();
    let (found, line) = complaint(&end_of(&mut scene.leasehold(["__watch"])));
    assert_eq!(found, 2, "{line}");
    assert!(line.contains("leasehold run"), "{line}");
}
