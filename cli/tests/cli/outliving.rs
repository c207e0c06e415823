//! The command cannot outlive the lease, whatever becomes of leasehold.

use std::process::Output;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::{SOON, Scene, code, complaint, end_of, is_alive, now, pause, stdout, wait_for};

/// A group of four on several levels, deaf to everything that one can be deaf to.
const FAMILY: &str = "trap '' INT TERM HUP QUIT
    (sleep 1000 & sh -c 'sleep 1000 & echo $! $$ > d.tmp; mv d.tmp d; wait' & echo $! > c; wait) & echo $! > b
    echo $$ > a; echo $PPID > watcher; wait";

fn family(scene: &Scene) -> Vec<Pid> {
    let names = ["a", "b", "c", "d"].map(|name| scene.await_file(name));
    let numbers = names.iter().flat_map(|line| line.split_whitespace());
    numbers.map(|number| Pid::from_raw(number.parse().unwrap()).unwrap()).collect()
}

fn await_the_end_of(family: &[Pid], limit: Duration) {
    wait_for(limit, "nobody left", || (!family.iter().any(|pid| is_alive(*pid))).then_some(()));
}

/// The exit code after a loss, and what was said: perhaps a warning, then the loss.
fn loss(output: &Output) -> (i32, String) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let ours = |line: &str| line.starts_with("leasehold: ") || line == "Terminated";
    assert!(
        text.lines().all(ours) && text.contains("lost `k` (token ") && !text.contains("panicked"),
        "{text}"
    );
    (code(output.status), text)
}

#[test]
fn kill_leaves_no_survivor() {
    let scene = Scene::new();
    let running = scene.start(&["k"], FAMILY);
    let family = family(&scene);
    assert!(family.len() == 5 && family.iter().all(|pid| is_alive(*pid)), "{family:?}");
    running.signal(Signal::KILL);
    await_the_end_of(&family, Duration::from_secs(1));
}

#[test]
fn a_kill_of_the_whole_job_leaves_no_survivor() {
    let scene = Scene::new();
    // In a group of its own, as a shell starts a job.
    let running = scene.start(&["k"], FAMILY);
    let family = family(&scene);
    kill_process_group(running.pid(), Signal::KILL).unwrap();
    await_the_end_of(&family, Duration::from_secs(1));
}

#[test]
fn a_stopped_leasehold_does_not_let_the_command_meet_the_next() {
    let scene = Scene::new();
    let beat = "while :; do date +%s%N > beat.tmp && mv beat.tmp beat; sleep 0.01; done";
    let script = format!("({beat}) & echo $! > child; echo > up; wait");
    let first = scene.start(&["--ttl", "1s", "k"], &script);
    scene.await_file("up");
    scene.await_file("beat");
    let child = scene.await_pid("child");
    first.signal(Signal::STOP);
    let stopped = now();

    let second = scene.start(
        &["--ttl", "2s", "k"],
        "kill -0 $(cat child) 2>/dev/null && echo alive || echo gone; date +%s%N; cat beat",
    );
    let output = second.end();
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "gone", "{text}");
    if cfg!(target_os = "linux") {
        let (started, last_beat): (u64, u64) = (lines[1].parse().unwrap(), lines[2].parse().unwrap());
        assert!(last_beat < started, "{text}");
    }
    assert!(!is_alive(child));

    // Two ttls in all.
    pause(Duration::from_secs(2).saturating_sub(stopped.elapsed()));
    first.signal(Signal::CONT);
    let (found, line) = loss(&first.end());
    assert_eq!(found, 76, "{line}");
    assert!(line.contains("lost `k`") && line.contains("was stopped"), "{line}");
}

#[test]
fn a_stop_shorter_than_the_lease_does_no_harm() {
    let scene = Scene::new();
    let running =
        scene.start(&["--ttl", "6s", "k"], "echo > up; while [ ! -e go ]; do sleep 0.02; done; exit 4");
    scene.await_file("up");
    running.signal(Signal::STOP);
    pause(Duration::from_millis(500));
    running.signal(Signal::CONT);
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(code(running.end().status), 4);
}

#[test]
fn a_stopped_command_is_no_excuse() {
    let scene = Scene::new();
    let running = scene.start(&["--ttl", "1s", "k"], FAMILY);
    let family = family(&scene);
    kill_process_group(family[0], Signal::STOP).unwrap();
    running.signal(Signal::STOP);
    await_the_end_of(&family, Duration::from_secs(4));
    running.signal(Signal::CONT);
    assert_eq!(loss(&running.end()).0, 76);
}

#[test]
fn without_its_watcher_the_command_ends_at_once() {
    let scene = Scene::new();
    let running = scene.start(&["k"], FAMILY);
    let family = family(&scene);
    kill_process(scene.await_pid("watcher"), Signal::KILL).unwrap();
    let (found, line) = complaint(&running.end());
    assert_eq!(found, 70, "{line}");
    assert!(line.contains("watcher"), "{line}");
    assert!(!family.iter().any(|pid| is_alive(*pid)));
    // And only then was the lease released.
    assert_eq!(code(end_of(&mut scene.run_sh(&["--no-wait", "k"], "true")).status), 0);
}

#[test]
fn with_its_watcher_stopped_the_command_ends_all_the_same() {
    let scene = Scene::new();
    let running = scene.start(&["--max-hold", "1500ms", "--ttl", "2s", "k"], FAMILY);
    let family = family(&scene);
    kill_process(scene.await_pid("watcher"), Signal::STOP).unwrap();
    let (found, line) = loss(&running.end());
    assert_eq!(found, 76, "{line}");
    assert!(line.contains("watcher"), "{line}");
    assert!(!family.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn the_watcher_sits_out_what_the_command_does_not() {
    let scene = Scene::new();
    let running = scene.start(&["k"], "echo $PPID > watcher; while [ ! -e go ]; do sleep 0.02; done; exit 6");
    let watcher = scene.await_pid("watcher");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::TTOU] {
        kill_process(watcher, signal).unwrap();
    }
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(code(running.end().status), 6);
}

#[test]
fn the_store_deleted_under_a_holder_stops_it_within_its_ttl() {
    let scene = Scene::new();
    let running = scene.start(&["--ttl", "2s", "k"], "echo $LEASEHOLD_TOKEN > token; sleep 100");
    let first: u64 = scene.await_file("token").parse().unwrap();
    let began = now();
    for entry in std::fs::read_dir(scene.folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("leases.db") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let (found, _) = loss(&running.end());
    assert_eq!(found, 76);
    assert!(began.elapsed() < Duration::from_millis(2_500), "{:?}", began.elapsed());
    let second: u64 =
        stdout(&end_of(&mut scene.run_sh(&["k"], "echo $LEASEHOLD_TOKEN"))).trim().parse().unwrap();
    assert!(second > first, "{second} after {first}");
}

#[test]
fn a_command_that_heeds_the_request_ends_before_the_lease() {
    for stopped in [false, true] {
        let scene = Scene::new();
        let script = "trap 'echo asked > asked; exit 0' TERM; echo $$ > up; while :; do sleep 0.02; done";
        let running = scene.start(&["--ttl", "2s", "k"], script);
        let leader = scene.await_pid("up");
        if stopped {
            kill_process_group(leader, Signal::STOP).unwrap();
        }
        running.signal(Signal::STOP);
        assert_eq!(scene.await_file("asked"), "asked");
        running.signal(Signal::CONT);
        assert_eq!(loss(&running.end()).0, 76);
        let is_free = || code(end_of(&mut scene.run_sh(&["--no-wait", "k"], "true")).status) == 0;
        wait_for(SOON, "the key", || is_free().then_some(()));
    }
}

#[test]
fn a_lease_that_is_renewed_bothers_nobody() {
    let scene = Scene::new();
    let output = end_of(&mut scene.run_sh(&["--ttl", "3s", "k"], "sleep 4; exit 5"));
    assert_eq!((code(output.status), String::from_utf8_lossy(&output.stderr).as_ref()), (5, ""));
}
