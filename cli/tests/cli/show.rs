//! `show`, `init` and the words that they say.

use std::time::Duration;

use serde_json::Value;

use crate::support::{Scene, code, end_of, pause, stdout};

fn report(scene: &Scene, key: &str) -> Value {
    let output = end_of(&mut scene.leasehold(["show", key, "--json"]));
    assert_eq!(code(output.status), 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn show_tells_the_whole_life_of_a_key() {
    let scene = Scene::new();
    assert_eq!(report(&scene, "k")["state"], "new");
    assert!(!scene.store().exists(), "show makes no store");

    let holder =
        scene.start(&["--ttl", "1s", "--holder", "me", "k"], "echo $LEASEHOLD_TOKEN > token; sleep 100");
    let token: u64 = scene.await_file("token").parse().unwrap();
    let held = report(&scene, "k");
    assert_eq!((&held["state"], &held["token"]), (&Value::from("held"), &Value::from(token)), "{held}");
    let grant = &held["grant"];
    assert_eq!(
        (&grant["holder"], &grant["token"], &grant["ttl_ms"]),
        (&"me".into(), &token.into(), &1000.into()),
        "{held}"
    );
    assert!(grant["since_ms"].as_u64().unwrap() < grant["until_ms"].as_u64().unwrap(), "{held}");
    let text = stdout(&end_of(&mut scene.leasehold(["show", "k"])));
    assert!(text.starts_with("k: held\n") && text.contains(&token.to_string()), "{text}");

    drop(holder);
    pause(Duration::from_millis(1_200));
    assert_eq!(report(&scene, "k")["state"], "over");
    assert_eq!(code(end_of(&mut scene.run_sh(&["k"], "true")).status), 0);
    let free = report(&scene, "k");
    assert_eq!((&free["state"], &free["grant"]), (&Value::from("free"), &Value::Null), "{free}");
    assert!(free["token"].as_u64().unwrap() > token, "{free}");
}

#[test]
fn nothing_that_is_said_holds_the_secret() {
    let scene = Scene::new();
    let holder = scene.start(&["k"], "echo > up; sleep 100");
    scene.await_file("up");
    let mut said = Vec::new();
    for arguments in
        [&["show", "k"][..], &["show", "--json", "k"], &["run", "--no-wait", "k", "--", "true"], &["init"]]
    {
        let output = end_of(scene.leasehold(arguments).env("LEASEHOLD_LOG", "trace"));
        said.extend(output.stdout);
        said.extend(output.stderr);
    }
    let said = String::from_utf8(said).unwrap();
    // No run of 32 hexadecimal digits, and no such name.
    let longest = said.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max();
    assert!(longest < Some(32) && !said.contains("nonce\":"), "{said}");
    drop(holder);
}

#[test]
fn init_says_what_it_made_and_what_it_found() {
    let scene = Scene::new();
    let mut command = scene.leasehold(["--store", "sqlite:new/folder/leases.db", "init"]);
    let output = end_of(&mut command);
    assert_eq!(
        (code(output.status), stdout(&output).starts_with("made the sqlite store")),
        (0, true),
        "{output:?}"
    );
    let output = end_of(&mut command);
    assert_eq!(
        (code(output.status), stdout(&output).starts_with("found the sqlite store")),
        (0, true),
        "{output:?}"
    );
}

#[test]
fn the_default_store_is_in_the_users_state_directory() {
    let scene = Scene::new();
    for (variable, file) in
        [("XDG_STATE_HOME", "leasehold/leases.db"), ("HOME", ".local/state/leasehold/leases.db")]
    {
        let mut command = scene.run_sh(&["k"], "true");
        command.env_remove("LEASEHOLD_STORE").env_remove("XDG_STATE_HOME").env(variable, scene.folder());
        assert_eq!(code(end_of(&mut command).status), 0);
        assert!(scene.path(file).is_file(), "{file}");
    }
}

#[test]
fn help_shows_what_there_is_and_no_values_of_the_environment() {
    let scene = Scene::new();
    for arguments in
        [&["--help"][..], &["run", "--help"], &["show", "--help"], &["init", "--help"], &["--version"]]
    {
        let output = end_of(scene.leasehold(arguments).env("LEASEHOLD_STORE", "redis://:hunter2@host"));
        let text = stdout(&output);
        assert_eq!(code(output.status), 0);
        assert!(
            text.contains("leasehold") && !text.contains("hunter2") && !text.contains("__watch"),
            "{text}"
        );
    }
    let text = stdout(&end_of(&mut scene.leasehold(["run", "--help"])));
    for word in
        ["--ttl", "--wait", "--no-wait", "--holder", "--max-hold", "--store", "LEASEHOLD_MAX_HOLD", "76"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let scene = Scene::new();
    let mut child = scene.leasehold(["show", "k"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(code(child.wait().unwrap()), 0);
}
