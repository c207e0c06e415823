//! The watcher: the process between `leasehold` and the command, which sees that the command ends with the lease.
//!
//! `leasehold` starts itself anew as the watcher, and the watcher starts the command. So whatever becomes of `leasehold`
//! (killed, stopped, swapped out, hung in the store's library), somebody is left who knows the deadline and the clocks. It
//! does nothing else, and that little without a runtime, threads or the store: one loop around one `poll`.

use std::ffi::OsStr;
use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use leasehold::{Clock as _, Deadline, Reading, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, wait, waitid};

use crate::exit;
use crate::group::{Group, adopt_orphans};
use crate::message::{Ending, Exited, Inbox, NotStarted, Start, ToMain, ToWatcher, line};
use crate::print;
use crate::signals::{self, is_ignored};
use crate::terminal::Terminal;

/// The hidden subcommand.
pub(crate) const SUBCOMMAND: &str = "__watch";

/// The clocks are compared at least this often: a timer stands still while the machine sleeps, and the wall clock jumps.
const TICK: Duration = Duration::from_secs(1);
/// How soon a KILL is repeated on what has not ended yet.
const KILL_AGAIN: Duration = Duration::from_millis(100);
/// What a command leaves running may end by itself for this long: the `tee` of a shell, the last writer of a pipe.
const SETTLE: Duration = Duration::from_millis(100);
/// From then on it has this long to heed TERM.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// And if it is there this long after KILL, it hangs in the kernel or belongs to another user.
const UNKILLABLE: Duration = Duration::from_secs(5);

/// Whether this process is to be the watcher.
pub(crate) fn is_asked_for() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().as_deref() == Some(OsStr::new(SUBCOMMAND)) && words.next().is_none()
}

/// Starts a command as `leasehold` says on the socket that is stdin, and sees to its end.
pub(crate) fn watch() -> ExitCode {
    match Watcher::connect() {
        Ok((watcher, stdin)) => {
            watcher.serve(stdin);
            ExitCode::SUCCESS
        }
        Err(error) => {
            print::note(format_args!(
                "`{SUBCOMMAND}` is for leasehold's own use; call `leasehold run`: {error}"
            ));
            ExitCode::from(exit::USAGE)
        }
    }
}

struct Watcher {
    socket: UnixStream,
    inbox: Inbox,
    /// `leasehold` has gone: nobody renews the lease any more.
    orphaned: bool,
    /// Readable when a child has changed its state.
    children: UnixStream,
    clock: SystemClock,
}

impl Watcher {
    /// Takes the socket and the command's stdin.
    fn connect() -> std::io::Result<(Self, OwnedFd)> {
        let socket = UnixStream::from(fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
        let stdin = receive_stdin(&socket)?;
        socket.set_nonblocking(true)?;
        let (children, changed) = UnixStream::pair()?;
        children.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(Signal::CHILD.as_raw(), changed)?;
        stand_fast()?;
        Ok((Self { socket, inbox: Inbox::default(), orphaned: false, children, clock: SystemClock }, stdin))
    }

    fn serve(mut self, stdin: OwnedFd) {
        let Some(start) = self.start() else { return };
        let term = Term::new(start.deadline, start.grace);
        let terminal = Terminal::open();
        let (Some(job), interactive) = (Pid::from_raw(start.job), start.interactive) else { return };
        let child = match spawn(start, stdin, &self.clock.read()) {
            Ok(child) => child,
            Err(why) => return self.tell(&ToMain::NotStarted(why)),
        };
        let Some(group) = i32::try_from(child.id()).ok().and_then(Group::from_raw) else { return };
        let stage = Stage { terminal, job, group, shared: interactive, suspended: false };
        let mut watch = Watch { term, stage, ended: None };
        watch.stage.follow();
        self.tell(&ToMain::Started { group: group.id().as_raw_pid() });

        let how = self.mind(&mut watch);
        let enforced = watch.term.is_enforced() || watch.term.deadline.has_passed(&self.clock.read());
        let in_foreground = watch.stage.step_back();
        self.tell(&ToMain::Ended);
        let survivors = !self.clear(&mut watch);
        self.tell(&ToMain::Exited(Exited { how, enforced, in_foreground, survivors }));
    }

    /// The first message; nothing if `leasehold` ends before it.
    fn start(&mut self) -> Option<Start> {
        loop {
            self.take_in();
            match self.inbox.next() {
                Some(Ok(ToWatcher::Start(start))) => return Some(start),
                Some(_) => return None,
                None if self.orphaned => return None,
                None => self.wait(TICK),
            }
        }
    }

    /// Minds the command until it has ended.
    fn mind(&mut self, watch: &mut Watch) -> Ending {
        loop {
            self.listen(watch);
            self.reap(watch);
            if let Some(how) = watch.ended {
                return how;
            }
            let stopped = stopped(watch.stage.group.leader());
            if stopped.is_some_and(|signal| watch.stage.on_stop(signal)) {
                self.tell(&ToMain::Stopped);
            }
            watch.stage.follow();
            let now = self.clock.read();
            match watch.term.duty(&now, self.orphaned) {
                Duty::Nothing => {}
                Duty::Ask => watch.stage.group.ask_to_stop(),
                Duty::Kill => watch.stage.group.kill(),
            }
            self.wait(watch.term.next_look(&now));
        }
    }

    /// Sees that nothing of the group is left. False if something would not die.
    ///
    /// The command itself has ended. It has been waited for at the end of this: until somebody has, nobody else can get the
    /// group's number; afterwards, nobody can as long as anything of the group is left.
    fn clear(&mut self, watch: &mut Watch) -> bool {
        let group = watch.stage.group;
        let _ = waitid(WaitId::Pid(group.leader()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        let began = self.clock.read();
        let mut asked = watch.term.is_enforced();
        let mut killed: Option<Reading> = None;
        let mut pause = Duration::from_millis(1);
        loop {
            self.listen(watch);
            self.reap(watch);
            if group.is_empty() {
                return true;
            }
            let now = self.clock.read();
            let passed = now.elapsed_since(&began);
            if let Some(killed) = &killed {
                if now.elapsed_since(killed) >= UNKILLABLE {
                    return false;
                }
                group.kill();
            } else if watch.term.duty(&now, self.orphaned) == Duty::Kill || passed >= SETTLE + LEFTOVER_GRACE
            {
                group.kill();
                killed = Some(now);
            } else if !asked && passed >= SETTLE {
                group.ask_to_stop();
                asked = true;
            }
            self.wait(pause);
            pause = (pause * 2).min(KILL_AGAIN);
        }
    }

    /// Does what `leasehold` has said. All of it, before anything is enforced: a renewal that waits to be read counts.
    fn listen(&mut self, watch: &mut Watch) {
        self.take_in();
        while let Some(message) = self.inbox.next() {
            match message {
                Ok(ToWatcher::Deadline(deadline)) => watch.term.renewed(deadline, &self.clock.read()),
                Ok(ToWatcher::Lost) => watch.term.lost(),
                Ok(ToWatcher::Signal(number)) => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        watch.stage.group.signal(signal);
                    }
                }
                Ok(ToWatcher::Resume) => watch.stage.resume(),
                // Not the `leasehold` that we know: trust it no more than one that has gone.
                Ok(ToWatcher::Start(_)) | Err(_) => self.orphaned = true,
            }
        }
    }

    /// Takes in what has arrived, without waiting.
    fn take_in(&mut self) {
        let mut bytes = [0; 4096];
        while !self.orphaned {
            match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.orphaned = true,
                Ok((length, _)) => self.inbox.push(&bytes[..length]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.orphaned = true,
            }
        }
    }

    /// Says something to `leasehold`, without waiting: the few messages of a command fit into the socket's buffer, and one
    /// who has stopped reading must not stop us from enforcing.
    fn tell(&self, message: &ToMain) {
        let _ = send(&self.socket, &line(message), SendFlags::DONTWAIT);
    }

    /// Waits for a message, a child, or the end of `limit`.
    fn wait(&self, limit: Duration) {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let children = PollFd::new(&self.children, PollFlags::IN);
        let socket = PollFd::new(&self.socket, PollFlags::IN);
        // A socket whose other end is closed is readable for ever.
        let mut watched = [children, socket];
        let watched = if self.orphaned { &mut watched[..1] } else { &mut watched[..] };
        // A wait that a signal cuts short is a short one.
        let _ = poll(watched, Some(&limit));
        let mut bytes = [0; 64];
        while matches!(recv(&self.children, &mut bytes[..], RecvFlags::DONTWAIT), Ok((length, _)) if length > 0)
        {
        }
    }

    /// Notes the end of the command, without taking its number from it, and waits for the orphans that we have adopted.
    fn reap(&self, watch: &mut Watch) {
        let leader = watch.stage.group.leader();
        loop {
            if watch.ended.is_none() {
                watch.ended = ended(leader);
                if watch.ended.is_some() {
                    return;
                }
            }
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == leader => {
                    let code = status.exit_status().map(Ending::Code);
                    watch.ended =
                        code.or_else(|| status.terminating_signal().map(Ending::Signal)).or(watch.ended);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// A command and what is known of it.
struct Watch {
    term: Term,
    stage: Stage,
    ended: Option<Ending>,
}

/// What is left of the lease, and how far its end has been enforced.
#[derive(Debug)]
struct Term {
    deadline: Deadline,
    grace: Duration,
    lost: bool,
    /// Set when the command has been asked to stop: until when it may go on at the most.
    asked: Option<Deadline>,
    killed: bool,
}

/// What has to be done to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Nothing,
    /// TERM, and CONT so that a stopped one gets it.
    Ask,
    Kill,
}

impl Term {
    fn new(deadline: Deadline, grace: Duration) -> Self {
        Self { deadline, grace, lost: false, asked: None, killed: false }
    }

    /// A renewal. One that comes after the command was asked to stop does not take that back.
    fn renewed(&mut self, deadline: Deadline, now: &Reading) {
        self.deadline = self.deadline.later(deadline, now);
    }

    fn lost(&mut self) {
        self.lost = true;
    }

    fn duty(&mut self, now: &Reading, orphaned: bool) -> Duty {
        let over = |deadline: &Deadline| deadline.has_passed(now);
        if orphaned || over(&self.deadline) || self.asked.as_ref().is_some_and(over) {
            self.killed = true;
            Duty::Kill
        } else if self.asked.is_none() && (self.lost || self.deadline.remaining(now) <= self.grace) {
            self.asked = Some(Deadline { since: *now, length: self.grace });
            Duty::Ask
        } else {
            Duty::Nothing
        }
    }

    fn is_enforced(&self) -> bool {
        self.killed || self.asked.is_some()
    }

    /// How long nothing needs to be done, if nothing comes.
    fn next_look(&self, now: &Reading) -> Duration {
        if self.killed {
            return KILL_AGAIN;
        }
        let left = self.deadline.remaining(now);
        let edge = match &self.asked {
            None => left.saturating_sub(self.grace),
            Some(until) => until.remaining(now).min(left),
        };
        edge.min(TICK)
    }
}

/// The command's group, the job that it belongs to in a shell's eyes, and the terminal that they share.
struct Stage {
    terminal: Option<Terminal>,
    /// The process group of `leasehold` and of whoever it was started with: a script, a pipeline.
    job: Pid,
    group: Group,
    /// The command gets the terminal whenever the job gets it: it is interactive, or has asked for it before.
    shared: bool,
    /// The job has been told to stop, and not yet to go on.
    suspended: bool,
}

impl Stage {
    /// Gives the command the terminal, if the job has it; the command may have been stopped for asking too early.
    fn bring_forward(&mut self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_with(self.job)) {
            terminal.give_to(self.group.id());
            self.shared = true;
            self.group.signal(Signal::CONT);
        }
    }

    /// Gives the terminal back to the job. Says whether the command had it.
    fn step_back(&self) -> bool {
        let terminal = self.terminal.as_ref().filter(|terminal| terminal.is_with(self.group.id()));
        if let Some(terminal) = terminal {
            terminal.give_to(self.job);
        }
        terminal.is_some()
    }

    /// The command has been stopped. Says whether the job is to stop with it.
    fn on_stop(&mut self, signal: Signal) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        let asks_for_terminal = signal == Signal::TTIN || signal == Signal::TTOU;
        if asks_for_terminal && !self.suspended && terminal.is_with(self.job) {
            self.bring_forward();
            return false;
        }
        // STOP in the background is somebody's own doing, who knows how to undo it; the lease is kept meanwhile.
        self.suspended = self.step_back() || signal != Signal::STOP;
        self.suspended
    }

    fn resume(&mut self) {
        self.suspended = false;
        self.follow();
        self.group.signal(Signal::CONT);
    }

    /// Hands on what the job has got. A shell can bring a running job to the foreground without telling it.
    fn follow(&mut self) {
        if self.shared && !self.suspended {
            self.bring_forward();
        }
    }
}

/// Starts the command in a group of its own. Signals that we only sit out are back at their defaults in it.
fn spawn(start: Start, stdin: OwnedFd, now: &Reading) -> Result<Child, NotStarted> {
    if start.deadline.has_passed(now) {
        return Err(NotStarted::TooLate);
    }
    let (program, arguments) = start.command.split_first().ok_or(NotStarted::NotFound)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(stdin)).process_group(0);
    for (name, value) in start.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => NotStarted::NotFound,
        _ => NotStarted::NotExecutable(error.to_string()),
    })
}

/// The signal that has stopped the command since the last call.
fn stopped(leader: Pid) -> Option<Signal> {
    let status = waitid(WaitId::Pid(leader), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG).ok()??;
    Signal::from_named_raw(status.stopping_signal()?)
}

/// How the command has ended. It stays as it is, a zombie that keeps its number.
fn ended(leader: Pid) -> Option<Ending> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(leader), options).ok()??;
    status.exit_status().map(Ending::Code).or_else(|| status.terminating_signal().map(Ending::Signal))
}

/// The command's stdin, which `leasehold` sends with one byte.
fn receive_stdin(socket: &UnixStream) -> std::io::Result<OwnedFd> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, CLOSED_ON_EXEC)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    let file = file
        .ok_or_else(|| std::io::Error::new(ErrorKind::InvalidInput, "stdin is no socket of leasehold's"))?;
    // Where the flag above is missing. Nothing is started meanwhile.
    fcntl_setfd(&file, FdFlags::CLOEXEC)?;
    Ok(file)
}

/// Lives by the socket alone, whatever the terminal or an impatient operator sends to everything in sight.
fn stand_fast() -> std::io::Result<()> {
    for signal in signals::ENDING.into_iter().chain([Signal::TSTP]) {
        if !is_ignored(signal) {
            // A handler that does nothing, since one that is ignored would be ignored by the command too.
            signal_hook::flag::register(signal.as_raw(), Arc::new(AtomicBool::new(false)))?;
        }
    }
    // Whoever moves the terminal's foreground from the background is stopped, unless it blocks this.
    let mut blocked = nix::sys::signal::SigSet::empty();
    blocked.add(nix::sys::signal::Signal::SIGTTOU);
    blocked.thread_block()?;
    adopt_orphans();
    // Started as /proc/self/exe, it would be listed as `exe`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::thread::set_name(c"lh-watch");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Reading {
        let time = Duration::from_millis(ms);
        Reading { monotonic: time, boot: time, wall: time }
    }

    fn until(ms: u64) -> Deadline {
        Deadline { since: at(0), length: Duration::from_millis(ms) }
    }

    fn term() -> Term {
        Term::new(until(10_000), Duration::from_millis(1_500))
    }

    #[test]
    fn asked_a_grace_before_the_deadline_and_killed_at_it() {
        let mut term = term();
        assert_eq!(term.duty(&at(8_499), false), Duty::Nothing);
        assert_eq!(term.next_look(&at(8_499)), Duration::from_millis(1));
        assert_eq!(term.duty(&at(8_500), false), Duty::Ask);
        assert_eq!(term.duty(&at(8_501), false), Duty::Nothing);
        assert_eq!(term.next_look(&at(9_900)), Duration::from_millis(100));
        assert_eq!(term.duty(&at(10_000), false), Duty::Kill);
        assert_eq!(term.duty(&at(10_001), false), Duty::Kill, "repeated while it lives");
    }

    #[test]
    fn a_renewal_in_time_is_the_end_of_the_matter() {
        let mut term = term();
        term.renewed(until(20_000), &at(8_000));
        assert_eq!(term.duty(&at(12_000), false), Duty::Nothing);
        assert!(!term.is_enforced());
        assert_eq!(term.next_look(&at(12_000)), TICK);
    }

    #[test]
    fn a_renewal_after_the_request_to_stop_does_not_take_it_back() {
        let mut term = term();
        assert_eq!(term.duty(&at(8_500), false), Duty::Ask);
        term.renewed(until(20_000), &at(8_600));
        assert_eq!(term.duty(&at(9_999), false), Duty::Nothing);
        assert_eq!(term.duty(&at(10_000), false), Duty::Kill);
    }

    #[test]
    fn a_loss_leaves_a_grace_and_never_more_than_the_lease() {
        let mut early = term();
        early.lost();
        assert_eq!(early.duty(&at(1_000), false), Duty::Ask);
        assert_eq!(early.duty(&at(2_499), false), Duty::Nothing);
        assert_eq!(early.duty(&at(2_500), false), Duty::Kill);

        let mut late = term();
        late.lost();
        assert_eq!(late.duty(&at(10_000), false), Duty::Kill);
    }

    #[test]
    fn without_leasehold_there_is_no_grace() {
        assert_eq!(term().duty(&at(0), true), Duty::Kill);
    }

    #[test]
    fn a_suspended_machine_and_a_jump_of_the_wall_clock_end_it() {
        for now in [
            Reading { boot: Duration::from_secs(11), ..at(100) },
            Reading { wall: Duration::from_secs(11), ..at(100) },
        ] {
            assert_eq!(term().duty(&now, false), Duty::Kill);
        }
    }
}
