//! How the command ends, and what leasehold exits with.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Running, SOON, Scene, code, complaint, end_of, is_alive, now, stdout, wait_for};

#[test]
fn the_command_gets_key_token_stdin_and_its_own_output() {
    let scene = Scene::new();
    let script =
        r#"read line; echo "$line $LEASEHOLD_KEY ${LEASEHOLD_UNTIL-none}"; echo "$LEASEHOLD_TOKEN" >&2"#;
    let mut command = scene.run_sh(&["key with space"], script);
    command
        .env("LEASEHOLD_UNTIL", "of an outer run")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(output.status), stdout(&output)), (0, String::from("hello key with space none\n")));
    assert!(String::from_utf8(output.stderr).unwrap().trim().parse::<u64>().unwrap() > 0);
}

#[test]
fn tokens_grow_and_the_key_is_free_again() {
    let scene = Scene::new();
    let tokens: Vec<u64> = (0..5)
        .map(|_| {
            stdout(&end_of(&mut scene.run_sh(&["--no-wait", "k"], "echo $LEASEHOLD_TOKEN")))
                .trim()
                .parse()
                .unwrap()
        })
        .collect();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

#[test]
fn the_exit_code_is_the_commands_own_or_that_of_a_shell() {
    let scene = Scene::new();
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -INT $$", 130),
    ] {
        assert_eq!(code(end_of(&mut scene.run_sh(&["k"], script)).status), expected, "{script}");
    }
    let start = |program: &str| complaint(&end_of(&mut scene.leasehold(["run", "k", "--", program])));
    let (found, line) = start("no-such-program");
    assert_eq!(found, 127, "{line}");
    assert!(line.contains("`no-such-program` was not found"), "{line}");
    for odd in ["/etc/passwd", "/"] {
        let (found, line) = start(odd);
        assert_eq!(found, 126, "{line}");
        assert!(line.contains("cannot be executed"), "{line}");
    }
    // Of neither is the lease left behind.
    assert_eq!(code(end_of(&mut scene.run_sh(&["--no-wait", "k"], "true")).status), 0);
}

#[test]
fn what_makes_no_sense_is_2_and_starts_nothing() {
    let scene = Scene::new();
    let long = "k".repeat(513);
    for arguments in [
        &["", "--", "true"][..],
        &[&long, "--", "true"],
        &["k"],
        &["--ttl", "soon", "k", "--", "true"],
        &["--ttl", "0s", "k", "--", "true"],
        &["--ttl", "10y", "k", "--", "true"],
        &["--max-hold", "0s", "k", "--", "true"],
        &["--wait", "1s", "--no-wait", "k", "--", "true"],
    ] {
        let output = end_of(scene.leasehold(["run"]).args(arguments));
        assert_eq!(code(output.status), 2, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
    assert_eq!(code(end_of(scene.run_sh(&["k"], "true").env("LEASEHOLD_TTL", "never")).status), 2);
}

#[test]
fn every_key_that_is_one_is_taken_as_it_is() {
    let scene = Scene::new();
    let long = "é".repeat(256);
    for key in ["a/b c", "Ünï/çødé", "日本語 🦀 \u{10ffff}", "tab\tand\nnewline", long.as_str()] {
        let output = end_of(&mut scene.run_sh(&["--no-wait", key], r#"printf %s "$LEASEHOLD_KEY""#));
        assert_eq!((code(output.status), stdout(&output).as_str()), (0, key));
    }
}

#[test]
fn signals_are_handed_on_to_the_whole_group() {
    let scene = Scene::new();
    for (signal, name, expected) in [
        (Signal::INT, "INT", 11),
        (Signal::TERM, "TERM", 12),
        (Signal::HUP, "HUP", 13),
        (Signal::QUIT, "QUIT", 14),
    ] {
        // Not in the background, where a shell sets INT and QUIT to be ignored.
        let child = format!(
            "trap 'echo child > child-{name}; exit' {name}; echo > up-{name}; while :; do sleep 0.02; done"
        );
        let script = format!("trap 'exit {expected}' {name}; sh -c \"{child}\"; exit 1");
        let running = scene.start(&["k"], &script);
        scene.await_file(&format!("up-{name}"));
        running.signal(signal);
        assert_eq!(code(running.end().status), expected, "{name}");
        assert_eq!(scene.read(&format!("child-{name}")).as_deref(), Some("child"));
    }
}

#[test]
fn the_second_int_or_term_kills() {
    for second in [Signal::INT, Signal::TERM] {
        let scene = Scene::new();
        let running =
            scene.start(&["k"], "trap 'echo >> seen' INT TERM; echo $$ > up; while :; do sleep 0.02; done");
        let leader = scene.await_pid("up");
        running.signal(Signal::INT);
        scene.await_file("seen");
        // Two signals at the same instant are one.
        crate::support::pause(Duration::from_millis(100));
        running.signal(second);
        assert_eq!(code(running.end().status), 137);
        assert!(!is_alive(leader));
    }
}

#[test]
fn two_signals_at_the_same_instant_are_one() {
    let scene = Scene::new();
    let running =
        scene.start(&["k"], "trap 'sleep 0.2; exit 9' TERM; echo > up; while :; do sleep 0.02; done");
    scene.await_file("up");
    // As `timeout` does it: to the child, and to the group that the child is in.
    running.signal(Signal::TERM);
    running.signal(Signal::TERM);
    assert_eq!(code(running.end().status), 9);
}

#[test]
#[cfg(target_os = "linux")]
fn what_was_ignored_at_the_start_stays_ignored() {
    let scene = Scene::new();
    let mut command = std::process::Command::new("sh");
    scene.dress(&mut command);
    command.args(["-c", "trap '' HUP; exec \"$0\" run k -- sh -c 'kill -HUP $$; echo > up; while [ ! -e go ]; do sleep 0.02; done; exit 5'"]);
    command.arg(env!("CARGO_BIN_EXE_leasehold"));
    let running = Running::new(&mut command);
    scene.await_file("up");
    running.signal(Signal::HUP);
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(code(running.end().status), 5);
}

#[test]
fn a_signal_ends_the_waiting() {
    let scene = Scene::new();
    let holder = scene.start(&["k"], "echo > up; sleep 100");
    scene.await_file("up");
    for (signal, expected) in
        [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)]
    {
        let waiting = scene.start(&["k"], "echo > started");
        // It listens before it asks the store, which it has done when its file shows it.
        crate::support::pause(Duration::from_millis(300));
        waiting.signal(signal);
        let output = waiting.end();
        assert_eq!(code(output.status), expected);
        assert_eq!(scene.read("started"), None);
    }
    drop(holder);
}

#[test]
fn max_hold_stops_a_command_that_hangs() {
    let scene = Scene::new();
    let began = now();
    let output = end_of(
        &mut scene.run_sh(&["--max-hold", "1500ms", "k"], "echo $LEASEHOLD_UNTIL $(date +%s%3N); sleep 100"),
    );
    let (found, line) = complaint(&output);
    assert_eq!(found, 76, "{line}");
    assert!(line.contains("max_hold") && line.contains("stopped"), "{line}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    if cfg!(target_os = "linux") {
        let text = stdout(&output);
        let times: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let left = times[0].saturating_sub(times[1]);
        assert!((500..=1500).contains(&left), "{text}");
    }
    // The work has ended, so the lease has too.
    assert_eq!(code(end_of(&mut scene.run_sh(&["--no-wait", "k"], "true")).status), 0);
}

#[test]
fn max_hold_asks_first() {
    let scene = Scene::new();
    let script = "trap 'echo asked > asked; exit 0' TERM; while :; do sleep 0.02; done";
    let (found, line) =
        complaint(&end_of(&mut scene.run_sh(&["--max-hold", "1500ms", "--ttl", "3s", "k"], script)));
    assert_eq!((found, scene.read("asked").as_deref()), (76, Some("asked")), "{line}");
}

#[test]
fn leftovers_are_dead_before_the_lease_is_released() {
    let scene = Scene::new();
    let script = "(trap '' TERM; echo > deaf; while :; do date +%s%N > beat; sleep 0.02; done) & echo $! > pid; while [ ! -e deaf ]; do sleep 0.02; done";
    let first = scene.start(&["k"], script);
    let leftover = scene.await_pid("pid");
    let second = scene.start(&["k"], "kill -0 $(cat pid) 2>/dev/null && echo alive || echo gone");
    assert_eq!(code(first.end().status), 0, "the command's own code, whatever it left behind");
    assert!(!is_alive(leftover));
    assert_eq!(stdout(&second.end()), "gone\n");
}

#[test]
fn leftovers_that_end_by_themselves_are_left_to_it() {
    let scene = Scene::new();
    let output = end_of(&mut scene.run_sh(&["k"], "(sleep 0.05; echo done > late) & exit 4"));
    assert_eq!((code(output.status), scene.read("late").as_deref()), (4, Some("done")));
}

#[test]
fn no_process_of_leaseholds_is_left() {
    let scene = Scene::new();
    let running = scene.start(&["k"], "echo $PPID > watcher");
    let watcher = scene.await_pid("watcher");
    assert_eq!(code(running.end().status), 0);
    wait_for(SOON, "the watcher's end", || (!is_alive(watcher)).then_some(()));
}
