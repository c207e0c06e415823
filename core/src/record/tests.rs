use super::*;
use proptest::prelude::*;

fn key() -> LeaseKey {
    LeaseKey::new("k").unwrap()
}

fn token(number: u64) -> FencingToken {
    FencingToken::try_from(number).unwrap()
}

fn nonce(number: u8) -> Nonce {
    Nonce::from_bytes([number; 16])
}

fn moment(now_ms: u64, over: bool) -> Moment {
    Moment {
        over,
        now: Expiry { timeline: Arc::from("test"), at_ms: now_ms },
        floor_ms: now_ms,
        unix_ms: now_ms,
    }
}

fn ask(who: u8, attempt: u64) -> AcquireRequest {
    AcquireRequest::new(key(), nonce(who), AttemptId::from_record(attempt), Duration::from_secs(30))
}

fn held(version: u64, who: u8, seq: u64) -> Record {
    Record {
        version: token(version),
        grant: Some(GrantRecord {
            nonce: nonce(who),
            attempt: AttemptId::from_record(99),
            holder: Holder::default(),
            seq,
            ttl: Duration::from_secs(30),
            since_ms: 0,
            until_ms: 30_000,
            expiry: Some(Expiry { timeline: Arc::from("test"), at_ms: 30_000 }),
            break_requested: false,
        }),
        sealed: false,
    }
}

fn renewal(version: u64, who: u8, seq: u64) -> RenewRequest {
    let grant = Grant::new(key(), nonce(who), token(version), seq);
    RenewRequest::new(grant, AttemptId::from_record(5), Duration::from_secs(30))
}

fn release_of(who: u8, version: Option<u64>) -> ReleaseRequest {
    ReleaseRequest { token: version.map(token), ..ReleaseRequest::of_nonce(key(), nonce(who)) }
}

#[test]
fn the_own_write_is_recognised_and_names_its_attempt() {
    let record = held(7, 1, 0);
    let step =
        Record::acquire(Some(&record), &ask(1, 2), &moment(60_000, true), TokenPolicy::ClockFloor).unwrap();
    let Step::Keep(AcquireOutcome::Granted(granted)) = step else { panic!("{step:?}") };
    assert_eq!((granted.grant.token, granted.attempt.get()), (token(7), 99));
}

#[test]
fn a_current_grant_is_contention_and_one_that_is_over_is_taken() {
    let record = held(7, 1, 3);
    let step =
        Record::acquire(Some(&record), &ask(2, 1), &moment(100, false), TokenPolicy::ClockFloor).unwrap();
    let Step::Keep(AcquireOutcome::Held(seen)) = step else { panic!("{step:?}") };
    assert_eq!((seen.token, seen.seq, seen.claimable), (token(7), 3, false));

    let step =
        Record::acquire(Some(&record), &ask(2, 1), &moment(30_000, true), TokenPolicy::ClockFloor).unwrap();
    let Step::Write(next, AcquireOutcome::Granted(granted)) = step else { panic!("{step:?}") };
    assert_eq!((next.version, granted.grant.token, granted.grant.seq), (token(30_000), token(30_000), 0));
}

#[test]
fn a_clock_that_is_behind_cannot_make_a_token_fall() {
    let record = Record { version: token(5_000), grant: None, sealed: false };
    for policy in [TokenPolicy::ClockFloor, TokenPolicy::Sequential { seed: 9 }] {
        let step = Record::acquire(Some(&record), &ask(1, 1), &moment(10, false), policy).unwrap();
        let Step::Write(next, _) = step else { panic!("{step:?}") };
        assert_eq!(next.version, token(5_001), "{policy:?}");
    }
    let step =
        Record::acquire(None, &ask(1, 1), &moment(10, false), TokenPolicy::Sequential { seed: 9 }).unwrap();
    let Step::Write(next, _) = step else { panic!("{step:?}") };
    assert_eq!(next.version, token(10));
}

#[test]
fn the_greatest_token_ends_the_key_with_an_error() {
    let record = Record { version: FencingToken::MAX, grant: None, sealed: false };
    let error =
        Record::acquire(Some(&record), &ask(1, 1), &moment(10, false), TokenPolicy::ClockFloor).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
}

#[test]
fn a_sealed_key_is_granted_to_nobody_but_its_holder_goes_on() {
    let record = Record { sealed: true, ..held(7, 1, 0) };
    let step =
        Record::acquire(Some(&record), &ask(2, 1), &moment(99_999, true), TokenPolicy::ClockFloor).unwrap();
    assert!(matches!(step, Step::Keep(AcquireOutcome::Sealed)), "{step:?}");
    let step = Record::renew(Some(&record), &renewal(7, 1, 0), &moment(10, false));
    assert!(matches!(step, Step::Write(Record { sealed: true, .. }, RenewOutcome::Renewed(_))), "{step:?}");
}

#[test]
fn renewal_compares_seq() {
    let cases: [(Option<Record>, RenewRequest, &str); 10] = [
        (Some(held(8, 1, 2)), renewal(7, 1, 2), "superseded"),
        (Some(held(7, 1, 2)), renewal(7, 1, 2), "renewed"),
        (Some(held(7, 1, 3)), renewal(7, 1, 2), "own write"),
        (Some(held(7, 1, 4)), renewal(7, 1, 2), "cloned"),
        (Some(held(7, 1, 1)), renewal(7, 1, 2), "gone"),
        (Some(held(8, 2, 0)), renewal(7, 1, 2), "superseded"),
        (Some(Record { grant: None, ..held(8, 2, 0) }), renewal(7, 1, 2), "superseded"),
        (Some(Record { grant: None, ..held(7, 1, 2) }), renewal(7, 1, 2), "broken"),
        (Some(held(6, 1, 2)), renewal(7, 1, 2), "gone"),
        (None, renewal(7, 1, 2), "gone"),
    ];
    for (record, ask, expected) in cases {
        let step = Record::renew(record.as_ref(), &ask, &moment(10_000, false));
        let seen = match &step {
            Step::Write(_, RenewOutcome::Renewed(granted)) => {
                assert_eq!((granted.grant.seq, granted.attempt), (3, ask.attempt));
                "renewed"
            }
            Step::Keep(RenewOutcome::Renewed(granted)) => {
                assert_eq!((granted.grant.seq, granted.attempt.get()), (3, 99));
                "own write"
            }
            Step::Keep(RenewOutcome::Cloned) => "cloned",
            Step::Keep(RenewOutcome::RecordGone) => "gone",
            Step::Keep(RenewOutcome::Superseded { by: Some(by) }) if *by == token(8) => "superseded",
            Step::Keep(RenewOutcome::Broken) => "broken",
            other => panic!("{record:?} {other:?}"),
        };
        assert_eq!(seen, expected, "{record:?}");
    }
}

#[test]
fn a_shorter_ttl_does_not_make_observers_impatient() {
    let ask = RenewRequest { ttl: Duration::from_secs(5), ..renewal(7, 1, 2) };
    let step = Record::renew(Some(&held(7, 1, 2)), &ask, &moment(10_000, false));
    let Step::Write(Record { grant: Some(grant), .. }, _) = step else { panic!("{step:?}") };
    assert_eq!((grant.expiry.unwrap().at_ms, grant.ttl), (30_000, Duration::from_secs(20)));
}

#[test]
fn a_graceful_break_stops_renewals_and_a_release_still_frees() {
    let Step::Write(asked, BreakOutcome::Broken) =
        Record::break_grant(Some(&held(7, 1, 2)), token(7), BreakHow::Graceful)
    else {
        panic!("not broken")
    };
    let step = Record::renew(Some(&asked), &renewal(7, 1, 2), &moment(10, false));
    assert!(matches!(step, Step::Keep(RenewOutcome::Broken)), "{step:?}");
    let step = Record::release(Some(&asked), &release_of(1, Some(7)));
    assert!(matches!(step, Step::Write(Record { grant: None, .. }, ReleaseOutcome::Released)), "{step:?}");
    let step = Record::break_grant(Some(&held(8, 2, 0)), token(7), BreakHow::Immediate);
    assert!(matches!(step, Step::Keep(BreakOutcome::NotCurrent)), "a newer grant is not broken: {step:?}");
}

#[test]
fn release_frees_its_own_grant_only_and_says_what_it_found() {
    let cases = [
        (Some(held(7, 1, 2)), Some(7), ReleaseOutcome::Released),
        (Some(held(8, 2, 0)), Some(7), ReleaseOutcome::HeldByOther { by: token(8) }),
        (
            Some(Record { grant: None, ..held(8, 2, 0) }),
            Some(7),
            ReleaseOutcome::HeldByOther { by: token(8) },
        ),
        (Some(Record { grant: None, ..held(7, 1, 0) }), Some(7), ReleaseOutcome::AlreadyEnded),
        (Some(Record { grant: None, ..held(8, 2, 0) }), None, ReleaseOutcome::AlreadyEnded),
        (None, Some(7), ReleaseOutcome::AlreadyEnded),
    ];
    for (record, known, expected) in cases {
        let step = Record::release(record.as_ref(), &release_of(1, known));
        match step {
            Step::Write(next, seen) => {
                assert_eq!((next.version, next.grant, seen), (token(7), None, expected));
            }
            Step::Keep(seen) => assert_eq!(seen, expected, "{record:?}"),
        }
    }
}

#[test]
fn a_raised_floor_lowers_nothing_and_ends_the_grant_it_overtakes() {
    assert!(matches!(Record::raise_floor(Some(&held(7, 1, 0)), token(7)), Step::Keep(())));
    let Step::Write(raised, ()) = Record::raise_floor(Some(&held(7, 1, 0)), token(9)) else { panic!() };
    assert_eq!((raised.version, &raised.grant), (token(9), &None));
    let step = Record::renew(Some(&raised), &renewal(7, 1, 0), &moment(10, false));
    assert!(matches!(step, Step::Keep(RenewOutcome::Superseded { .. })), "{step:?}");
}

proptest! {
    /// Two delayed copies of renewals in any order: the expiry never moves back.
    #[test]
    fn the_expiry_never_moves_back_within_a_grant(times in proptest::collection::vec(0_u64..100_000, 1..20)) {
        let mut record = held(7, 1, 0);
        let mut seq = 0;
        for now in times {
            let before = record.grant.as_ref().unwrap().expiry.clone().unwrap().at_ms;
            if let Step::Write(next, _) = Record::renew(Some(&record), &renewal(7, 1, seq), &moment(now, false)) {
                record = next;
                seq += 1;
            }
            prop_assert!(record.grant.as_ref().unwrap().expiry.clone().unwrap().at_ms >= before);
        }
    }

    /// Whatever happens to a key, its version only grows, and each grant's token is new.
    #[test]
    fn tokens_grow_over_every_verb(verbs in proptest::collection::vec((0_u8..6, 1_u8..4, 0_u64..50_000), 1..60)) {
        let mut record: Option<Record> = None;
        let mut last = 0;
        let mut now = 0;
        for (verb, who, passed) in verbs {
            now += passed;
            let over = record.as_ref().and_then(|r| r.grant.as_ref()).is_none_or(|grant| {
                grant.is_over_at(&moment(now, false).now).unwrap()
            });
            let mut granted = None;
            let next = match verb {
                0 | 1 => match Record::acquire(record.as_ref(), &ask(who, now), &moment(now, over), TokenPolicy::ClockFloor).unwrap() {
                    Step::Write(next, AcquireOutcome::Granted(grant)) => {
                        granted = Some(grant.grant.token.get());
                        Some(next)
                    }
                    _ => None,
                },
                2 => match Record::release(record.as_ref(), &release_of(who, None)) {
                    Step::Write(next, _) => Some(next),
                    Step::Keep(_) => None,
                },
                3 => match record.as_ref().map(|r| Record::break_grant(Some(r), r.version, BreakHow::Immediate)) {
                    Some(Step::Write(next, _)) => Some(next),
                    _ => None,
                },
                4 => match Record::raise_floor(record.as_ref(), token(passed + 1)) {
                    Step::Write(next, ()) => Some(next),
                    Step::Keep(()) => None,
                },
                _ => match Record::seal(record.as_ref(), who == 1) {
                    Step::Write(next, ()) => Some(next),
                    Step::Keep(()) => None,
                },
            };
            if let Some(next) = next {
                prop_assert!(next.version.get() >= last);
                if let Some(number) = granted {
                    prop_assert!(number > last);
                    prop_assert_eq!(number, next.version.get());
                }
                last = next.version.get();
                record = Some(next);
            }
        }
    }
}
