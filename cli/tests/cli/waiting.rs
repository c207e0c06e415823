//! Two who want the same key.

use std::time::Duration;

use crate::support::{Scene, code, complaint, end_of, now, stdout};

#[test]
fn a_second_caller_waits_and_gets_it() {
    let scene = Scene::new();
    let first = scene
        .start(&["k"], "echo > up; while [ ! -e go ]; do sleep 0.02; done; echo $LEASEHOLD_TOKEN > first");
    scene.await_file("up");
    let second = scene.start(&["k"], "echo $(cat first) $LEASEHOLD_TOKEN");
    crate::support::pause(Duration::from_millis(300));
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(code(first.end().status), 0);
    let text = stdout(&second.end());
    let tokens: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{text}");
}

#[test]
fn who_does_not_wait_is_told_who_since_when_with_which_token_until_when() {
    let scene = Scene::new();
    let holder = scene.start(&["--holder", "web-1 (blue)", "a key"], "echo $LEASEHOLD_TOKEN > up; sleep 100");
    let token = scene.await_file("up");
    for variant in 0..3 {
        let mut command =
            scene.run_sh(if variant == 0 { &["--no-wait", "a key"] } else { &["a key"] }, "echo ran");
        match variant {
            1 => drop(command.env("LEASEHOLD_NO_WAIT", "1")),
            2 => drop(command.env("LEASEHOLD_WAIT", "0s")),
            _ => {}
        }
        let began = now();
        let output = end_of(&mut command);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let (found, line) = complaint(&output);
        assert_eq!((found, stdout(&output).as_str()), (75, ""), "{line}");
        let rest = line
            .strip_prefix("leasehold: `a key` is held by web-1 (blue) since ")
            .unwrap_or_else(|| panic!("{line}"));
        let (since, rest) =
            rest.split_once(&format!(" with token {token}, until ")).unwrap_or_else(|| panic!("{line}"));
        let (until, rest) = rest.split_once(' ').unwrap();
        for time in [since, until] {
            assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{line}");
        }
        assert!(since < until, "{line}");
        let hint = rest
            .strip_prefix("unless it is renewed; look again with `leasehold ")
            .unwrap_or_else(|| panic!("{line}"));
        assert!(hint.ends_with("show 'a key'`"), "{line}");
    }
    drop(holder);
}

#[test]
fn who_waits_too_long_is_told_the_same() {
    let scene = Scene::new();
    let holder = scene.start(&["k"], "echo > up; sleep 100");
    scene.await_file("up");
    let began = now();
    let (found, line) = complaint(&end_of(&mut scene.run_sh(&["--wait", "1s", "k"], "true")));
    assert_eq!(found, 75, "{line}");
    assert!(line.starts_with("leasehold: waited 1s, and `k` is held by "), "{line}");
    assert!(
        (Duration::from_millis(950)..Duration::from_secs(5)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    // What is typed beats what is set.
    let mut command = scene.run_sh(&["--no-wait", "k"], "true");
    let (found, line) = complaint(&end_of(command.env("LEASEHOLD_WAIT", "1h")));
    assert_eq!(found, 75, "{line}");
    drop(holder);
}

#[test]
fn other_keys_are_not_waited_for() {
    let scene = Scene::new();
    let holder = scene.start(&["k"], "echo > up; sleep 100");
    scene.await_file("up");
    assert_eq!(code(end_of(&mut scene.run_sh(&["--no-wait", "K"], "true")).status), 0);
    assert_eq!(code(end_of(&mut scene.run_sh(&["--no-wait", "k "], "true")).status), 0);
    drop(holder);
}
