//! A shell on a real terminal, typed into. (`setsid --ctty`, of util-linux, makes the terminal the shell's own.)

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Running, SOON, Scene, pause, wait_for};

/// An interactive bash. Its prompt is `ready> `.
struct Shell {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    seen: usize,
    _bash: Running,
}

impl Shell {
    fn open(scene: &Scene) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let side = || -> Stdio {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file: OwnedFd = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
            file.into()
        };
        let mut command = Command::new("setsid");
        scene.dress(&mut command);
        command.args(["--ctty", "bash", "--norc", "--noprofile", "-i"]);
        command
            .env("PS1", "ready> ")
            .env("LH", env!("CARGO_BIN_EXE_leasehold"))
            .env("TERM", "dumb")
            .env_remove("HISTFILE");
        let bash = Running::new(command.stdin(side()).stdout(side()).stderr(side()));
        drop(command);

        let keyboard = File::from(master);
        let mut screen_side = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        let reader = std::thread::Builder::new().name(String::from("screen"));
        reader
            .spawn(move || {
                let mut bytes = [0; 1024];
                // Fails when nobody has the other side any more.
                while let Ok(length @ 1..) = screen_side.read(&mut bytes) {
                    shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
                }
            })
            .unwrap();
        let mut shell = Self { keyboard, screen, seen: 0, _bash: bash };
        shell.expect("ready> ");
        // What is typed is not to be taken for what is answered.
        shell.enter("stty -echo");
        shell
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line and waits for nothing.
    fn say(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Types a command and waits until the shell reads again.
    fn enter(&mut self, line: &str) -> String {
        self.say(line);
        self.expect("ready> ")
    }

    /// Waits until `text` is shown, after all that was waited for before. Returns what was shown up to its end.
    fn expect(&mut self, text: &str) -> String {
        let screen = Arc::clone(&self.screen);
        let seen = self.seen;
        let found = wait_for(SOON, text, || {
            let shown = screen.lock().unwrap();
            let found = shown[seen..].find(text).map(|at| seen + at + text.len());
            assert!(found.is_some() || shown.len() < 1 << 20);
            found
        });
        self.seen = found;
        screen.lock().unwrap()[seen..found].to_owned()
    }
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

#[test]
fn the_command_reads_from_the_terminal_and_then_the_shell_does() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(r#""$LH" run k -- sh -c 'echo asking; read line; echo "got $line"'"#);
    shell.expect("asking");
    shell.say("hello");
    shell.expect("got hello");
    shell.expect("ready> ");
    assert!(shell.enter("echo $((20 + 22))").contains("42"));
}

#[test]
fn the_command_is_in_the_foreground_and_the_shell_after_it() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    // `ps` shows + for those in the terminal's foreground.
    let shown =
        shell.enter(r#""$LH" run k -- sh -c 'sleep 0.2; echo "me $(ps -o stat= -p $$)"'; echo "rc $?""#);
    assert!(shown.lines().any(|line| line.starts_with("me ") && line.contains('+')), "{shown}");
    assert!(shown.contains("rc 0"), "{shown}");
}

#[test]
fn an_interactive_shell_works_under_a_lease() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(r#"PS1="inner> " "$LH" run k -- bash --norc --noprofile -i"#);
    shell.expect("inner> ");
    shell.say("cat");
    shell.say("echoed");
    shell.expect("echoed");
    shell.press(CTRL_C);
    shell.expect("inner> ");
    shell.say("exit 7");
    shell.expect("ready> ");
    assert!(shell.enter("echo rc $?").contains("rc 7"));
}

#[test]
fn ctrl_c_reaches_the_command() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(
        r#""$LH" run k -- sh -c 'trap "echo seen; exit 9" INT; echo going; while :; do sleep 0.02; done'"#,
    );
    shell.expect("going");
    shell.press(CTRL_C);
    shell.expect("seen");
    shell.expect("ready> ");
    assert!(shell.enter("echo rc $?").contains("rc 9"));
}

#[test]
fn ctrl_c_ends_the_loop_and_the_script_around_it_too() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    for pipe in ["", " | cat"] {
        shell.say(&format!(
            r#"for i in 1 2 3; do "$LH" run k -- sh -c 'echo going; exec sleep 100'{pipe}; done"#
        ));
        shell.expect("going");
        shell.press(CTRL_C);
        shell.expect("ready> ");
        assert!(shell.enter("echo $((20 + 22))").contains("42"));
    }

    let script = r#""$LH" run k -- sh -c 'echo going; exec sleep 100'; echo "not ""reached""#;
    std::fs::write(scene.path("script"), script).unwrap();
    for interpreter in ["bash", "sh"] {
        shell.say(&format!("{interpreter} script"));
        shell.expect("going");
        shell.press(CTRL_C);
        let shown = shell.expect("ready> ");
        assert!(!shown.contains("not reached"), "{interpreter}: {shown}");
        assert!(shell.enter("echo rc $?").contains("rc 130"), "{interpreter}");
    }
}

#[test]
fn ctrl_c_ends_the_waiting_and_the_script_around_it() {
    let scene = Scene::new();
    let holder = scene.start(&["k"], "echo > up; sleep 100");
    scene.await_file("up");
    let mut shell = Shell::open(&scene);
    std::fs::write(scene.path("script"), r#""$LH" run k -- true; echo "not ""reached""#).unwrap();
    shell.say("bash script");
    shell.expect("waiting for `k`, held by ");
    shell.press(CTRL_C);
    let shown = shell.expect("ready> ");
    assert!(!shown.contains("not reached"), "{shown}");
    assert!(shell.enter("echo rc $?").contains("rc 130"));
    drop(holder);
}

#[test]
fn ctrl_z_stops_the_job_and_fg_goes_on_with_it() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(r#""$LH" run k -- sh -c 'echo asking; read line; echo "got $line"'; echo "rc $?""#);
    shell.expect("asking");
    for _ in 0..2 {
        shell.press(CTRL_Z);
        shell.expect("Stopped");
        shell.expect("ready> ");
        assert!(shell.enter("echo $((20 + 22))").contains("42"), "the shell reads");
        shell.say("fg");
        shell.expect(" run k -- ");
        pause(Duration::from_millis(100));
    }
    shell.say("hello");
    shell.expect("got hello");
    shell.expect("ready> ");
    assert!(shell.enter("echo $((20 + 22))").contains("42"), "the shell reads again");
}

#[test]
fn bg_goes_on_in_the_background_until_the_command_wants_the_terminal() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(
        r#""$LH" run k -- sh -c 'echo going; while [ ! -e go ]; do :; done; echo > went; read line; echo "got $line"'"#,
    );
    shell.expect("going");
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    shell.expect("ready> ");
    shell.enter("bg");
    std::fs::write(scene.path("go"), "").unwrap();
    scene.await_file("went");
    // It reads from the background, so the job is stopped.
    wait_for(SOON, "a stopped job", || shell.enter("jobs").contains("Stopped").then_some(()));
    shell.say("fg");
    shell.expect(" run k -- ");
    pause(Duration::from_millis(100));
    shell.say("hello");
    shell.expect("got hello");
    shell.expect("ready> ");
}

// The commands that are to be stopped loop without starting anything: a shell that is just starting something waits for it
// unstoppably, and is stopped when it is continued.

#[test]
fn ctrl_z_stops_a_script_and_a_pipeline_as_a_whole() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    std::fs::write(
        scene.path("script"),
        r#""$LH" run k -- sh -c 'echo $$ > pid; echo going; while [ ! -e go ]; do :; done; echo gone'"#,
    )
    .unwrap();
    for line in ["sh script", "sh script | cat", "sh script < /dev/null"] {
        let _ = std::fs::remove_file(scene.path("go"));
        shell.say(line);
        shell.expect("going");
        shell.press(CTRL_Z);
        shell.expect("Stopped");
        shell.expect("ready> ");
        let pid = scene.await_file("pid");
        // The shell is told of the script; the command follows.
        wait_for(SOON, line, || shell.enter(&format!("ps -o stat= -p {pid}")).contains('T').then_some(()));
        std::fs::write(scene.path("go"), "").unwrap();
        shell.say("fg");
        shell.expect("gone");
        shell.expect("ready> ");
    }
}

#[test]
fn in_a_pipeline_the_command_gets_the_terminal_when_it_asks() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(r#""$LH" run k -- sh -c 'echo asking; read line < /dev/tty; echo "got $line"' | cat"#);
    shell.expect("asking");
    pause(Duration::from_millis(100));
    shell.say("hello");
    shell.expect("got hello");
    shell.expect("ready> ");
    assert!(shell.enter("echo $((20 + 22))").contains("42"));
}

#[test]
fn a_job_stopped_for_longer_than_its_lease_is_lost() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(r#""$LH" run --ttl 1s k -- sh -c 'echo $$ > pid; echo going; read line; echo "got $line"'"#);
    shell.expect("going");
    shell.press(CTRL_Z);
    shell.expect("ready> ");
    let command = scene.await_pid("pid");
    wait_for(SOON, "the command's end", || (!crate::support::is_alive(command)).then_some(()));
    assert!(shell.enter("echo $((20 + 22))").contains("42"), "the shell has the terminal");
    shell.say("fg");
    shell.expect("lost `k`");
    shell.expect("ready> ");
    assert!(shell.enter("echo rc $?").contains("rc 76"));
}

#[test]
fn killed_leasehold_leaves_the_terminal_to_the_shell() {
    let scene = Scene::new();
    let mut shell = Shell::open(&scene);
    shell.say(r#""$LH" run k -- sh -c 'echo $$ > pid; echo going; read line'"#);
    let command = scene.await_pid("pid");
    shell.expect("going");
    let leasehold =
        std::fs::read_to_string(format!("/proc/{}/stat", parent_of(command.as_raw_pid()))).unwrap();
    let leasehold = leasehold.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(leasehold).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    shell.expect("ready> ");
    assert!(shell.enter("echo rc $?").contains("rc 137"));
    wait_for(SOON, "the command's end", || (!crate::support::is_alive(command)).then_some(()));
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}
