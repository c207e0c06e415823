//! The same command on DynamoDB: what depends on the store. Needs LocalStack, with a table that `init` makes.

use rustix::process::Signal;

use crate::support::{Scene, code, complaint, end_of, is_alive, stdout};

/// Where LocalStack is, as `localstack/up` has it.
fn endpoint() -> String {
    let port = std::env::var("LEASEHOLD_LOCALSTACK_PORT").unwrap_or_else(|_| String::from("4566"));
    std::env::var("LEASEHOLD_LOCALSTACK_ENDPOINT").unwrap_or_else(|_| format!("http://127.0.0.1:{port}"))
}

fn localstack() -> Scene {
    let endpoint = endpoint();
    // Keys of this test's own in the table that all share.
    let salt = tempfile::Builder::new().prefix("cli-").tempdir().unwrap();
    let prefix = salt.path().file_name().unwrap().to_string_lossy().into_owned();
    let url = format!("dynamodb://leasehold-tests?region=eu-west-1&endpoint={endpoint}&prefix={prefix}/");
    let scene = Scene::with_store(url);
    let made = end_of(&mut scene.leasehold(["init"]));
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert_eq!(code(made.status), 0, "start it with `localstack/up localstack`: {said}");
    scene
}

#[test]
#[ignore = "needs LocalStack: localstack/up localstack"]
fn init_is_repeatable_and_says_what_it_found() {
    let scene = localstack();
    let again = end_of(&mut scene.leasehold(["init"]));
    assert!(stdout(&again).starts_with("found the dynamodb store"), "{again:?}");
}

#[test]
#[ignore = "needs LocalStack: localstack/up localstack"]
fn a_command_runs_with_a_growing_token_and_gives_the_lease_back() {
    let scene = localstack();
    let mut last = 0;
    for _ in 0..3 {
        let ran = end_of(&mut scene.run_sh(&["k"], "echo $LEASEHOLD_TOKEN; exit 3"));
        assert_eq!(code(ran.status), 3, "{ran:?}");
        let token: u64 = stdout(&ran).trim().parse().unwrap();
        assert!(token > last);
        last = token;
    }
    let shown = stdout(&end_of(&mut scene.leasehold(["show", "--json", "k"])));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((shown["state"].as_str(), shown["token"].as_u64()), (Some("free"), Some(last)));
}

#[test]
#[ignore = "needs LocalStack: localstack/up localstack"]
fn a_second_caller_leaves_with_who_holds_it_and_how_to_look() {
    let scene = localstack();
    let first = scene.start(&["--holder", "first", "k"], "echo > up; while [ ! -e go ]; do sleep 0.02; done");
    scene.await_file("up");
    let (found, line) = complaint(&end_of(&mut scene.run_sh(&["--no-wait", "k"], "true")));
    assert_eq!(found, 75, "{line}");
    assert!(line.contains("held by first since 20") && line.contains("--store 'dynamodb://"), "{line}");
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(code(first.end().status), 0);
}

#[test]
#[ignore = "needs LocalStack: localstack/up localstack"]
fn a_stopped_leasehold_does_not_let_the_command_meet_the_next() {
    let scene = localstack();
    let first = scene.start(&["--ttl", "5s", "k"], "echo $$ > child; sleep 1000");
    let child = scene.await_pid("child");
    first.signal(Signal::STOP);
    let second =
        scene.start(&["--ttl", "5s", "k"], "kill -0 $(cat child) 2>/dev/null && echo alive || echo gone");
    assert_eq!(stdout(&second.end()), "gone\n");
    assert!(!is_alive(child));
    first.signal(Signal::CONT);
    assert_eq!(code(first.end().status), 76);
}

#[test]
#[ignore = "needs LocalStack: localstack/up localstack"]
fn a_missing_table_says_which_command_makes_it() {
    let scene = localstack();
    let url = format!("dynamodb://no-such-table?region=eu-west-1&endpoint={}", endpoint());
    let (found, line) = complaint(&end_of(&mut scene.leasehold(["--store", &url, "run", "k", "--", "true"])));
    assert_eq!(found, 78, "{line}");
    assert!(line.contains("leasehold init"), "{line}");
}
