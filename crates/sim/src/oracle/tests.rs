//! Tests of the oracle: correct histories pass, and each kind of violation is detected.

use super::*;

/// A history made by hand. Time is `now`, and moves only by [`Story::at`].
struct Story {
    oracle: Oracle,
    now: i64,
}

const MESSAGE: Address = Address { queue: 1, key: None, no: 1 };
const ID: u128 = 0xabc;
const TERMS: Terms = Terms { lease_ms: 100, session: false, holder: None };

fn story() -> Story {
    Story { oracle: Oracle::new(Rules { one_clock: true, ..Rules::default() }), now: 1_000 }
}

fn spec(no: u64, due: i64) -> Spec {
    Spec {
        no,
        keyed: false,
        on_conflict: OnConflict::Reject,
        due: Due::At(due),
        priority: 1,
        max_attempts: 3,
        expires: None,
        idempotency_key: false,
    }
}

impl Story {
    fn reading(&self) -> Reading {
        Reading { wall: self.now, mono: self.now }
    }

    fn at(mut self, now: i64) -> Story {
        self.now = now;
        self
    }

    fn begin(&mut self, ask: StoreCall) -> Op {
        let now = self.reading();
        self.oracle.begin(ask, now)
    }

    fn end(&mut self, op: Op, answer: StoreAnswer) {
        let now = self.reading();
        self.oracle.end(op, answer, now);
    }

    fn said(mut self, ask: StoreCall, answer: StoreAnswer) -> Story {
        let op = self.begin(ask);
        self.end(op, answer);
        self
    }

    fn lost(mut self, ask: StoreCall) -> Story {
        let op = self.begin(ask);
        let now = self.reading();
        self.oracle.lose(op, now);
        self
    }

    fn put(self, due: i64) -> Story {
        self.said(
            StoreCall::Put(MESSAGE.group(), spec(1, due)),
            StoreAnswer::Put(PutHeard::Created { id: ID, due }),
        )
    }

    fn delivery(&self, due: i64, attempt: u32, token: u128) -> Delivered {
        Delivered {
            no: 1,
            id: ID,
            due,
            priority: 1,
            attempt,
            keyed: false,
            token,
            taken_at: self.now,
            terms: TERMS,
            takes: attempt,
            lapses: attempt - 1,
        }
    }

    fn taken(self, due: i64, attempt: u32, token: u128) -> Story {
        let delivered = self.delivery(due, attempt, token);
        self.said(take(), StoreAnswer::Took(vec![(MESSAGE, delivered)]))
    }

    fn settled(self, token: u128, action: Action, heard: SettleHeard) -> Story {
        self.said(StoreCall::Settle { message: MESSAGE, token, action }, StoreAnswer::Settled(heard))
    }

    fn cancelled(self, heard: Changed) -> Story {
        self.said(StoreCall::Cancel(MESSAGE.group(), GroupTarget::Message(1)), StoreAnswer::Cancelled(heard))
    }

    fn killed(mut self) -> Story {
        self.oracle.killed();
        self
    }

    fn sight(&self, due: i64, attempt: u32, shown: ShownMessage) -> StoreAnswer {
        let sight = Sight {
            no: 1,
            id: ID,
            due,
            priority: 1,
            attempt,
            takes: attempt,
            keyed: false,
            holder: None,
            shown,
        };
        StoreAnswer::Listed(vec![(MESSAGE, sight)])
    }

    fn listed(self, due: i64, attempt: u32, shown: ShownMessage) -> Story {
        let answer = self.sight(due, attempt, shown);
        self.said(StoreCall::ListAll { queue: 1 }, answer)
    }

    fn nothing_listed(self) -> Story {
        self.said(StoreCall::ListAll { queue: 1 }, StoreAnswer::Listed(Vec::new()))
    }

    #[track_caller]
    fn honest(&self) {
        let violations = self.oracle.violations();
        assert!(violations.is_empty(), "{}", violations[0]);
    }

    #[track_caller]
    fn lie(&self, kind: ViolationKind) {
        let kinds: Vec<ViolationKind> =
            self.oracle.violations().iter().map(|violation| violation.kind).collect();
        assert_eq!(kinds, [kind], "{:?}", self.oracle.violations());
    }
}

fn take() -> StoreCall {
    StoreCall::Take { queues: vec![1], terms: TERMS }
}

fn ack(story: Story, token: u128) -> Story {
    story.settled(token, Action::Ack, SettleHeard::Gone)
}

#[test]
fn an_honest_life_passes_and_leaves_nothing_behind() {
    let story = story().put(2_000).listed(2_000, 0, ShownMessage::Scheduled).at(2_000).taken(2_000, 1, 7);
    let retry = Action::Retry { due: Due::After(50), priority: Some(4) };
    let story = story.settled(7, retry, SettleHeard::Scheduled(2_050)).at(2_050);
    story.honest();
    let mut delivered = story.delivery(2_050, 2, 8);
    delivered.priority = 4;
    let story = story.said(take(), StoreAnswer::Took(vec![(MESSAGE, delivered)]));
    let story = ack(story, 8).nothing_listed();
    story.honest();
    assert_eq!(story.oracle.len(), 0);
    assert_eq!(story.oracle.counts().acknowledged, 3);
}

#[test]
fn a_lost_put_is_reported() {
    story().put(2_000).killed().nothing_listed().lie(ViolationKind::Lost);
    story().put(2_000).cancelled(Changed::NotFound).lie(ViolationKind::Lost);
}

#[test]
fn a_resurrected_ack_is_reported() {
    let acked = || ack(story().put(1_000).taken(1_000, 1, 7), 7).killed();
    acked().listed(1_000, 1, ShownMessage::Ready).lie(ViolationKind::Resurrected);
    acked().taken(1_000, 2, 8).lie(ViolationKind::Resurrected);
}

#[test]
fn a_resurrected_cancel_is_reported() {
    story()
        .put(2_000)
        .cancelled(Changed::Cancelled(ID))
        .killed()
        .at(2_000)
        .taken(2_000, 1, 7)
        .lie(ViolationKind::Resurrected);
}

#[test]
fn an_early_delivery_is_reported() {
    story().put(2_000).at(1_999).taken(2_000, 1, 7).lie(ViolationKind::Early);
    story().put(2_000).at(2_000).taken(2_000, 1, 7).honest();
}

#[test]
fn an_early_delivery_after_a_reschedule_is_reported() {
    let moved = |story: Story| {
        let ask = StoreCall::Reschedule(MESSAGE.group(), GroupTarget::Message(1), Due::At(5_000));
        story.said(ask, StoreAnswer::Rescheduled(RescheduleTo::Moved { id: ID, due: 5_000 }))
    };
    moved(story().put(2_000)).at(3_000).taken(5_000, 1, 7).lie(ViolationKind::Early);
    // A lost reschedule shows as a message with its old due instant.
    moved(story().put(2_000))
        .killed()
        .listed(2_000, 0, ShownMessage::Scheduled)
        .lie(ViolationKind::Contradiction);
}

#[test]
fn two_receipts_are_reported() {
    let held = || story().put(1_000).taken(1_000, 1, 7);
    held().at(1_099).taken(1_000, 2, 8).lie(ViolationKind::TwoReceipts);
    held().at(1_100).taken(1_000, 2, 8).honest();
    held().killed().at(1_050).listed(1_000, 0, ShownMessage::Ready).lie(ViolationKind::Contradiction);
}

#[test]
fn a_token_issued_twice_is_reported() {
    story().put(1_000).taken(1_000, 1, 7).at(1_100).taken(1_000, 2, 7).lie(ViolationKind::TokenReused);
}

#[test]
fn a_lease_that_a_kill_took_away_is_reported() {
    let held = || story().put(1_000).taken(1_000, 1, 7).killed().at(1_050);
    held().settled(7, Action::Ack, SettleHeard::LeaseLost).lie(ViolationKind::LeaseLost);
    held().listed(1_000, 1, ShownMessage::Leased(1_100)).honest();
    held().listed(1_000, 1, ShownMessage::Leased(1_090)).lie(ViolationKind::Contradiction);
    ack(held(), 7).honest();
    held().at(1_100).settled(7, Action::Ack, SettleHeard::LeaseLost).honest();
}

#[test]
fn an_attempt_that_was_forgotten_is_reported() {
    let retried = || {
        let retry = Action::Retry { due: Due::After(10), priority: None };
        story()
            .put(1_000)
            .taken(1_000, 1, 7)
            .settled(7, retry, SettleHeard::Scheduled(1_010))
            .killed()
            .at(1_020)
    };
    let twice = retried();
    let delivered = Delivered { lapses: 0, ..twice.delivery(1_010, 2, 8) };
    twice.said(take(), StoreAnswer::Took(vec![(MESSAGE, delivered)])).honest();
    retried().taken(1_010, 1, 8).lie(ViolationKind::Contradiction);
}

#[test]
fn a_message_is_dead_when_its_attempts_are_spent_and_only_then() {
    let lapsed_thrice = || {
        story()
            .put(1_000)
            .taken(1_000, 1, 7)
            .at(1_100)
            .taken(1_000, 2, 8)
            .at(1_200)
            .taken(1_000, 3, 9)
            .at(1_300)
    };
    lapsed_thrice().listed(1_000, 3, ShownMessage::Dead(1_300)).honest();
    lapsed_thrice().listed(1_000, 3, ShownMessage::Dead(1_299)).lie(ViolationKind::Contradiction);
    lapsed_thrice().taken(1_000, 4, 10).lie(ViolationKind::Resurrected);
}

#[test]
fn an_unknown_put_may_be_either_but_not_both() {
    let unknown = || story().lost(StoreCall::Put(MESSAGE.group(), spec(1, 2_000))).killed();
    unknown().nothing_listed().honest();
    unknown().listed(2_000, 0, ShownMessage::Scheduled).honest();
    unknown().listed(2_000, 0, ShownMessage::Scheduled).nothing_listed().lie(ViolationKind::Lost);
    unknown().nothing_listed().listed(2_000, 0, ShownMessage::Scheduled).lie(ViolationKind::Resurrected);
}

#[test]
fn an_unknown_ack_may_be_either_and_a_lost_take_holds_its_message_for_a_while() {
    let unknown = |story: Story| {
        story.lost(StoreCall::Settle { message: MESSAGE, token: 7, action: Action::Ack }).killed()
    };
    let held = || story().put(1_000).taken(1_000, 1, 7);
    unknown(held()).nothing_listed().honest();
    unknown(held()).at(1_100).taken(1_000, 2, 8).honest();
    let lost = || story().put(1_000).lost(take()).killed();
    lost().taken(1_000, 1, 7).honest();
    lost().at(1_100).taken(1_000, 2, 7).honest();
    lost().at(1_099).taken(1_000, 2, 7).lie(ViolationKind::Contradiction);
    assert_eq!(lost().at(1_100).taken(1_000, 2, 7).oracle.counts().redelivered, 1);
}

#[test]
fn what_overlaps_may_have_come_in_either_order() {
    let race = |heard: Changed| {
        let mut story = story().put(1_000);
        let taking = story.begin(take());
        let cancelling = story.begin(StoreCall::Cancel(MESSAGE.group(), GroupTarget::Message(1)));
        story.end(cancelling, StoreAnswer::Cancelled(heard));
        let delivered = story.delivery(1_000, 1, 7);
        story.end(taking, StoreAnswer::Took(vec![(MESSAGE, delivered)]));
        story
    };
    race(Changed::Leased).honest();
    race(Changed::Cancelled(ID)).lie(ViolationKind::Resurrected);
}

#[test]
fn a_repeated_put_gets_its_first_answer_and_puts_nothing() {
    let spec = Spec { idempotency_key: true, ..spec(1, 2_000) };
    let ask = || StoreCall::Put(MESSAGE.group(), spec);
    let created = |id| StoreAnswer::Put(PutHeard::Created { id, due: 2_000 });
    let mut pinned = story();
    pinned.oracle.pin(MESSAGE.group());
    let story = pinned.said(ask(), created(ID)).cancelled(Changed::Cancelled(ID)).said(ask(), created(ID));
    let mut story = story.nothing_listed();
    story.honest();
    story.oracle.unpin(MESSAGE.group(), 1);
    let story = story.nothing_listed();
    assert_eq!(story.oracle.len(), 0);

    let mut pinned = self::story();
    pinned.oracle.pin(MESSAGE.group());
    let story = pinned.lost(ask()).said(ask(), created(ID));
    story.honest();
    // The same idempotency key, but a second message.
    story.said(ask(), created(ID + 1)).lie(ViolationKind::Contradiction);
}

fn keyed(no: u64) -> Address {
    Address { queue: 1, key: Some(5), no }
}

fn keyed_put(story: Story, no: u64, on_conflict: OnConflict, heard: PutHeard) -> Story {
    let spec = Spec { keyed: true, on_conflict, ..spec(no, 2_000) };
    story.said(StoreCall::Put(keyed(no).group(), spec), StoreAnswer::Put(heard))
}

#[test]
fn a_key_has_one_owner() {
    let first = || keyed_put(story(), 1, OnConflict::Reject, PutHeard::Created { id: 1, due: 2_000 });
    keyed_put(first(), 2, OnConflict::Reject, PutHeard::KeyTaken { id: 1 }).honest();
    keyed_put(first(), 2, OnConflict::Reject, PutHeard::Created { id: 2, due: 2_000 })
        .lie(ViolationKind::Contradiction);
    keyed_put(first(), 2, OnConflict::Keep, PutHeard::Kept { id: 1, due: 2_000 }).honest();
    let replaced =
        || keyed_put(first(), 2, OnConflict::Replace, PutHeard::Replaced { id: 2, due: 2_000, old: 1 });
    let cancel = |story: Story, id| {
        story.said(
            StoreCall::Cancel(keyed(1).group(), GroupTarget::Key),
            StoreAnswer::Cancelled(Changed::Cancelled(id)),
        )
    };
    cancel(replaced(), 2).honest();
    cancel(replaced(), 1).lie(ViolationKind::Contradiction);
    let get = StoreCall::Get(keyed(1).group(), GroupTarget::Message(1), false);
    let sight = Sight {
        no: 1,
        id: 1,
        due: 2_000,
        priority: 1,
        attempt: 0,
        takes: 0,
        keyed: true,
        holder: None,
        shown: ShownMessage::Scheduled,
    };
    replaced().said(get, StoreAnswer::Got(FoundMessage::Message(sight))).lie(ViolationKind::Resurrected);
}

#[test]
fn an_id_or_a_number_used_twice_is_reported() {
    let second = Address { queue: 1, key: None, no: 2 };
    let put = |story: Story, id| {
        let answer = StoreAnswer::Put(PutHeard::Created { id, due: 2_000 });
        story.said(StoreCall::Put(second.group(), spec(2, 2_000)), answer)
    };
    put(story().put(2_000), ID).lie(ViolationKind::IdReused);
    let mut story = story().put(2_000);
    story.oracle.numbered(1, 10);
    let mut story = put(story, ID + 1);
    story.oracle.numbered(2, 10);
    story.lie(ViolationKind::IdReused);
}

#[test]
fn a_take_out_of_order_is_reported() {
    let second = Address { queue: 1, key: None, no: 2 };
    let answer = StoreAnswer::Put(PutHeard::Created { id: 2, due: 900 });
    let story = story().put(1_000).said(StoreCall::Put(second.group(), spec(2, 900)), answer);
    let one = story.delivery(1_000, 1, 7);
    let two = Delivered { no: 2, id: 2, due: 900, token: 8, ..one.clone() };
    story.said(take(), StoreAnswer::Took(vec![(MESSAGE, one), (second, two)])).lie(ViolationKind::OutOfOrder);
}

#[test]
fn a_setting_that_was_forgotten_and_a_pause_that_does_not_hold_are_reported() {
    let set = |story: Story, setting, value: Option<&str>| {
        let value = value.map(str::to_owned);
        story.said(StoreCall::Configure { queue: 1, setting, value }, StoreAnswer::Done)
    };
    let read = |story: Story, value: Option<&str>| {
        let values = vec![("lease", value.map(str::to_owned))];
        story.said(StoreCall::ReadSettings { queue: 1 }, StoreAnswer::Settings(values))
    };
    read(set(story(), "lease", Some("5s")).killed(), Some("5s")).honest();
    read(set(story(), "lease", Some("5s")).killed(), None).lie(ViolationKind::Setting);
    set(story().put(1_000), PAUSE, Some(PAUSED)).taken(1_000, 1, 7).lie(ViolationKind::Setting);
    let timed = || set(story().put(1_000), PAUSE, Some(&paused_until(1_050)));
    timed().at(1_049).taken(1_000, 1, 7).lie(ViolationKind::Setting);
    timed().at(1_050).taken(1_000, 1, 7).honest();
    set(timed(), PAUSE, None).taken(1_000, 1, 7).honest();
    let shown = |story: Story, value: Option<&str>| {
        let values = vec![(PAUSE, value.map(str::to_owned))];
        story.said(StoreCall::ReadSettings { queue: 1 }, StoreAnswer::Settings(values))
    };
    shown(timed().at(1_049), Some(&paused_until(1_050))).honest();
    shown(timed().at(1_049), None).lie(ViolationKind::Setting);
    shown(timed().at(1_050), None).honest();
    shown(timed().at(1_050), Some(&paused_until(1_050))).lie(ViolationKind::Setting);
}

#[test]
fn purged_means_gone_and_leased_stays() {
    let sweep = |story: Story, sweep| story.said(StoreCall::Sweep { queue: 1, sweep }, StoreAnswer::Done);
    sweep(story().put(2_000), Sweep::Purge).nothing_listed().honest();
    sweep(story().put(2_000), Sweep::Purge)
        .killed()
        .listed(2_000, 0, ShownMessage::Scheduled)
        .lie(ViolationKind::Resurrected);
    ack(sweep(story().put(1_000).taken(1_000, 1, 7), Sweep::DeleteQueue), 7).honest();
}

fn on_a_machine() -> Story {
    let rules = Rules { power_loss: true, ..Rules::default() };
    Story { oracle: Oracle::new(rules), now: 1_000 }
}

impl Story {
    fn power_failed(mut self) -> Story {
        let now = self.reading();
        self.oracle.power_failed(now);
        self.oracle.reopened(now);
        self
    }
}

#[test]
fn a_loss_of_power_may_undo_a_lease_that_no_sync_covered_and_nothing_else() {
    let held = || on_a_machine().put(1_000).taken(1_000, 1, 7);
    held().power_failed().listed(1_000, 0, ShownMessage::Ready).honest();
    held().power_failed().listed(1_000, 1, ShownMessage::Leased(1_100)).honest();
    let second = Address { queue: 1, key: None, no: 2 };
    let synced = |story: Story| {
        let answer = StoreAnswer::Put(PutHeard::Created { id: 2, due: 9_000 });
        story.said(StoreCall::Put(second.group(), spec(2, 9_000)), answer)
    };
    let answer = |story: &Story, shown, attempt| {
        let StoreAnswer::Listed(mut sights) = story.sight(1_000, attempt, shown) else { unreachable!() };
        let shown = ShownMessage::Scheduled;
        let other = Sight { no: 2, id: 2, due: 9_000, shown, attempt: 0, takes: 0, ..sights[0].1.clone() };
        sights.push((second, other));
        StoreAnswer::Listed(sights)
    };
    let story = synced(held()).power_failed();
    let ready = answer(&story, ShownMessage::Ready, 0);
    story.said(StoreCall::ListAll { queue: 1 }, ready).lie(ViolationKind::Contradiction);
    let story = synced(held()).power_failed();
    let leased = answer(&story, ShownMessage::Leased(1_100), 1);
    story.said(StoreCall::ListAll { queue: 1 }, leased).honest();
    ack(held(), 7).power_failed().listed(1_000, 0, ShownMessage::Ready).lie(ViolationKind::Resurrected);
}

#[test]
fn a_session_lease_ends_with_its_process_and_a_close_spends_no_attempt() {
    let held = || {
        let story = on_a_machine().put(1_000);
        let terms = Terms { session: true, ..TERMS };
        let delivered = Delivered { terms, ..story.delivery(1_000, 1, 7) };
        let ask = StoreCall::Take { queues: vec![1], terms };
        story.said(ask, StoreAnswer::Took(vec![(MESSAGE, delivered)]))
    };
    let reopened = |mut story: Story| {
        let now = story.reading();
        story.oracle.reopened(now);
        story
    };
    let closed = |mut story: Story| {
        let now = story.reading();
        story.oracle.closed(now);
        reopened(story)
    };
    reopened(held()).listed(1_000, 1, ShownMessage::Ready).honest();
    reopened(held()).listed(1_000, 1, ShownMessage::Leased(1_100)).lie(ViolationKind::Contradiction);
    let released = |story: Story, takes| {
        let StoreAnswer::Listed(mut sights) = story.sight(1_000, 0, ShownMessage::Ready) else {
            unreachable!()
        };
        sights[0].1.takes = takes;
        story.said(StoreCall::ListAll { queue: 1 }, StoreAnswer::Listed(sights))
    };
    released(closed(held()), 1).honest();
    // It has been leased, so the next lease has another number.
    released(closed(held()), 0).lie(ViolationKind::Contradiction);
    closed(held()).listed(1_000, 1, ShownMessage::Ready).lie(ViolationKind::Contradiction);
}

#[test]
fn an_opening_that_fails_may_have_ended_a_session_lease() {
    let session = || {
        let story = set(on_a_machine(), "lapse_backoff", "first");
        let story = set(story, "backoff", "500 100 1000 0").put(1_000);
        let terms = Terms { session: true, ..TERMS };
        let delivered = Delivered { terms, ..story.delivery(1_000, 1, 7) };
        let mut story = story
            .said(StoreCall::Take { queues: vec![1], terms }, StoreAnswer::Took(vec![(MESSAGE, delivered)]));
        story.now = 1_010;
        let now = story.reading();
        story.oracle.tried_to_open(now);
        story.oracle.power_failed(now);
        story.now = 1_020;
        let now = story.reading();
        story.oracle.reopened(now);
        story
    };
    for freed_at in [1_010, 1_020] {
        session().listed(freed_at + 500, 1, ShownMessage::Scheduled).honest();
    }
    session().listed(1_015 + 500, 1, ShownMessage::Scheduled).lie(ViolationKind::Contradiction);
}

#[test]
fn a_message_stays_ready_though_the_clock_steps_back() {
    let stepped = |seen: i64| {
        let mut story = on_a_machine().put(2_000);
        story.oracle.shown(seen);
        story.at(1_500)
    };
    stepped(2_000).taken(2_000, 1, 7).honest();
    stepped(1_999).taken(2_000, 1, 7).lie(ViolationKind::Early);
}

#[test]
fn what_a_take_that_was_given_up_has_leased_goes_back() {
    let given_up = || {
        let mut story = story().put(1_000);
        let op = story.begin(take());
        let now = story.reading();
        story.oracle.abandon(op, now);
        story
    };
    let noticed = |mut story: Story| {
        let now = story.reading();
        story.oracle.all_gave_back(now);
        story
    };
    given_up().listed(1_000, 1, ShownMessage::Leased(1_100)).honest();
    noticed(given_up()).listed(1_000, 0, ShownMessage::Ready).honest();
    noticed(given_up()).listed(1_000, 1, ShownMessage::Leased(1_100)).lie(ViolationKind::Contradiction);
    noticed(given_up().at(1_200)).listed(1_000, 1, ShownMessage::Ready).honest();
}

#[test]
fn a_look_says_what_it_shows_and_no_more() {
    let look = |story: Story, shown| {
        let StoreAnswer::Listed(sights) = story.sight(1_000, 0, shown) else { unreachable!() };
        story.said(StoreCall::Look { queue: 1 }, StoreAnswer::Seen(sights))
    };
    look(story().put(1_000), ShownMessage::Ready).honest();
    story().put(1_000).said(StoreCall::Look { queue: 1 }, StoreAnswer::Seen(Vec::new())).honest();
    look(story().put(1_000), ShownMessage::Dead(1_000)).lie(ViolationKind::Contradiction);
    look(ack(story().put(1_000).taken(1_000, 1, 7), 7), ShownMessage::Ready).lie(ViolationKind::Resurrected);
}

#[test]
fn a_revive_of_all_may_meet_what_is_put_meanwhile() {
    let mut story = story();
    let spec = Spec { expires: Some(1_500), ..spec(1, 1_000) };
    let put = story.begin(StoreCall::Put(MESSAGE.group(), spec));
    let sweep = StoreCall::Sweep { queue: 1, sweep: Sweep::ReviveAll(Due::At(2_000)) };
    let mut story = story.at(2_000).said(sweep, StoreAnswer::Done);
    story.end(put, StoreAnswer::Put(PutHeard::Created { id: ID, due: 1_000 }));
    story.listed(2_000, 0, ShownMessage::Ready).honest();
}

fn set(story: Story, setting: &'static str, value: &str) -> Story {
    let value = Some(value.to_owned());
    story.said(StoreCall::Configure { queue: 1, setting, value }, StoreAnswer::Done)
}

fn buried(story: Story) -> Story {
    let bury = Action::Bury { priority: None };
    story.put(1_000).taken(1_000, 1, 7).settled(7, bury, SettleHeard::Dead)
}

fn got(story: Story, dead: bool, found: FoundMessage) -> Story {
    story.said(StoreCall::Get(MESSAGE.group(), GroupTarget::Message(1), dead), StoreAnswer::Got(found))
}

/// Message 1, dead since `died`.
fn dead_sight(story: &Story, died: i64) -> FoundMessage {
    let StoreAnswer::Listed(sights) = story.sight(1_000, 1, ShownMessage::Dead(died)) else { unreachable!() };
    FoundMessage::Message(sights[0].1.clone())
}

#[test]
fn what_is_dead_stays_dead_where_no_retention_is_set() {
    buried(story()).at(9_000_000).nothing_listed().lie(ViolationKind::Lost);
    got(buried(story()).at(9_000_000), false, FoundMessage::Nothing).lie(ViolationKind::Lost);
    let story = buried(story()).at(9_000_000);
    let found = dead_sight(&story, 1_000);
    got(story, false, found).honest();
}

#[test]
fn a_dead_message_is_gone_when_its_time_is_over_and_not_before() {
    let kept = |now: i64| buried(set(story(), DEAD_TTL, "500")).at(now);
    let shown = |story: Story| {
        let found = dead_sight(&story, 1_000);
        got(story, false, found)
    };
    shown(kept(1_499)).honest();
    got(kept(1_499), false, FoundMessage::Nothing).lie(ViolationKind::Lost);
    got(kept(1_500), false, FoundMessage::Nothing).honest();
    shown(kept(1_500)).lie(ViolationKind::Contradiction);
    kept(1_500).nothing_listed().honest();
    let revive = |story: Story, heard| {
        story.said(StoreCall::Revive(MESSAGE, Due::At(1_000)), StoreAnswer::Raised(heard))
    };
    revive(kept(1_499), Raised::Done).honest();
    revive(kept(1_500), Raised::Done).lie(ViolationKind::Contradiction);
    revive(kept(1_500), Raised::NotFound).honest();
    // A discarded message does not come back, even if its queue now keeps the dead for longer.
    let later = |story: Story| set(story, DEAD_TTL, "5000");
    shown(later(kept(1_400)).at(1_600)).honest();
    got(later(kept(1_600)), false, FoundMessage::Nothing).honest();
    got(later(kept(1_400)).at(1_600), false, FoundMessage::Nothing).lie(ViolationKind::Lost);
}

#[test]
fn no_more_dead_go_than_others_have_died_since() {
    let second = Address { queue: 1, key: None, no: 2 };
    let of_two = |most: &str| {
        let story = buried(set(story(), DEAD_MAX, most)).at(1_010);
        let answer = StoreAnswer::Put(PutHeard::Created { id: 2, due: 1_010 });
        let mut story = story.said(StoreCall::Put(second.group(), spec(2, 1_010)), answer);
        let delivered = Delivered { no: 2, id: 2, token: 8, ..story.delivery(1_010, 1, 8) };
        story = story.said(take(), StoreAnswer::Took(vec![(second, delivered)]));
        let bury = StoreCall::Settle { message: second, token: 8, action: Action::Bury { priority: None } };
        story.said(bury, StoreAnswer::Settled(SettleHeard::Dead))
    };
    let lost = |story: Story, address: Address| {
        let ask = StoreCall::Get(address.group(), GroupTarget::Message(address.no), false);
        story.said(ask, StoreAnswer::Got(FoundMessage::Nothing))
    };
    lost(of_two("1"), MESSAGE).honest();
    lost(of_two("2"), MESSAGE).lie(ViolationKind::Lost);
    // The younger one must not be discarded first.
    lost(of_two("1"), second).lie(ViolationKind::Lost);
    lost(of_two("0"), second).honest();
    let counted = |most, dead, rests| {
        let story = of_two(most);
        let expected = story.oracle.tallies(1, story.reading(), rests).expect("all is known");
        let counted = Tallies { dead, ..Tallies::default() };
        expected.allows(counted).then_some(()).ok_or(expected.kind(counted))
    };
    assert_eq!(counted("1", 1, true), Ok(()));
    assert_eq!(counted("1", 2, false), Ok(()));
    assert_eq!(counted("1", 2, true), Err(ViolationKind::Retained));
    assert_eq!(counted("2", 1, true), Err(ViolationKind::Contradiction));
}

#[test]
fn a_bury_under_way_may_have_displaced_another() {
    let second = Address { queue: 1, key: None, no: 2 };
    // The older one is looked for before the bury of the younger one is answered.
    let lost = |most: &str, token: u128| {
        let story = buried(set(story(), DEAD_MAX, most)).at(1_010);
        let answer = StoreAnswer::Put(PutHeard::Created { id: 2, due: 1_010 });
        let mut story = story.said(StoreCall::Put(second.group(), spec(2, 1_010)), answer);
        let delivered = Delivered { no: 2, id: 2, token: 8, ..story.delivery(1_010, 1, 8) };
        story = story.said(take(), StoreAnswer::Took(vec![(second, delivered)]));
        let bury = StoreCall::Settle { message: second, token, action: Action::Bury { priority: None } };
        let under_way = story.begin(bury);
        let ask = StoreCall::Get(MESSAGE.group(), GroupTarget::Message(1), false);
        story = story.said(ask, StoreAnswer::Got(FoundMessage::Nothing));
        let heard = if token == 8 { SettleHeard::Dead } else { SettleHeard::LeaseLost };
        story.end(under_way, StoreAnswer::Settled(heard));
        story
    };
    lost("1", 8).honest();
    lost("2", 8).lie(ViolationKind::Lost);
    lost("1", 9).lie(ViolationKind::Lost);
}

#[test]
fn a_loss_of_power_may_bring_back_what_retention_took_away() {
    let gone = || {
        let story = buried(set(on_a_machine(), DEAD_TTL, "500")).at(1_500);
        got(story, false, FoundMessage::Nothing)
    };
    let mut back = gone().power_failed();
    // The clock was stepped back meanwhile.
    back.now = 1_400;
    let found = dead_sight(&back, 1_000);
    got(back, false, found).honest();
    gone().power_failed().nothing_listed().honest();
}

#[test]
fn the_receipt_of_an_ended_lease_proves_nothing() {
    let ended = |story: Story, takes, heard| {
        story.said(StoreCall::EndLease { message: MESSAGE, takes }, StoreAnswer::Ended(heard))
    };
    let held = || story().put(1_000).taken(1_000, 1, 7).at(1_010);
    let done = || ended(held(), 1, Ended::Done(SettleHeard::Ready));
    done().settled(7, Action::Ack, SettleHeard::LeaseLost).listed(1_000, 1, ShownMessage::Ready).honest();
    ack(done(), 7).lie(ViolationKind::Contradiction);
    done().taken(1_000, 2, 8).honest();
    done().killed().listed(1_000, 1, ShownMessage::Leased(1_100)).lie(ViolationKind::Contradiction);
    // No attempt was spent.
    done().taken(1_000, 1, 8).lie(ViolationKind::Contradiction);
    ended(held(), 2, Ended::Changed { takes: 1 }).honest();
    ended(held(), 2, Ended::Done(SettleHeard::Ready)).lie(ViolationKind::Contradiction);
    ended(held(), 1, Ended::Changed { takes: 1 }).lie(ViolationKind::Contradiction);
    ack(ended(held(), 2, Ended::Changed { takes: 1 }), 7).honest();
    ended(held().at(1_100), 1, Ended::NotLeased).honest();
    ended(held(), 1, Ended::NotLeased).lie(ViolationKind::Contradiction);
    ended(ack(held(), 7), 1, Ended::NotFound).honest();
    let last = || held().at(1_100).taken(1_000, 2, 8).at(1_200).taken(1_000, 3, 9).at(1_210);
    ended(last(), 3, Ended::Done(SettleHeard::Dead)).listed(1_000, 3, ShownMessage::Dead(1_210)).honest();
    ended(last(), 3, Ended::Done(SettleHeard::Ready)).lie(ViolationKind::Contradiction);
}

#[test]
fn a_message_waits_after_a_lapse_where_its_queue_says_so() {
    let policy = |from: &str| set(set(story(), "lapse_backoff", from), "backoff", "200 100 1000 0");
    let lapsed = |story: Story| story.put(1_000).taken(1_000, 1, 7).at(1_100);
    lapsed(policy("second")).taken(1_000, 2, 8).honest();
    lapsed(policy("first")).listed(1_300, 1, ShownMessage::Scheduled).honest();
    lapsed(policy("first")).listed(1_000, 1, ShownMessage::Ready).lie(ViolationKind::Contradiction);
    lapsed(policy("first")).taken(1_000, 2, 8).lie(ViolationKind::Early);
    // The delay counts from the deadline, whenever the lapse is noticed.
    lapsed(policy("first")).at(1_300).taken(1_300, 2, 8).honest();
    let twice = || lapsed(policy("second")).taken(1_000, 2, 8).at(1_250);
    twice().listed(1_400, 2, ShownMessage::Scheduled).honest();
    twice().listed(1_400, 2, ShownMessage::Ready).lie(ViolationKind::Contradiction);
}

#[test]
fn what_expires_is_gone_or_dead_as_its_queue_says() {
    let expired = |what: &str| {
        let spec = Spec { expires: Some(1_500), ..spec(1, 1_000) };
        let answer = StoreAnswer::Put(PutHeard::Created { id: ID, due: 1_000 });
        set(story(), ON_EXPIRY, what).said(StoreCall::Put(MESSAGE.group(), spec), answer).at(1_500)
    };
    got(expired("drop"), false, FoundMessage::Nothing).nothing_listed().honest();
    got(expired("dead"), false, FoundMessage::Nothing).lie(ViolationKind::Lost);
    expired("dead").listed(1_000, 0, ShownMessage::Dead(1_500)).honest();
    expired("drop").listed(1_000, 0, ShownMessage::Dead(1_500)).lie(ViolationKind::Contradiction);
    expired("drop").at(1_499).nothing_listed().lie(ViolationKind::Lost);
    // A message that cannot be read when it expires is dead.
    let unread_at = |wall: i64| {
        let mut story = expired("drop");
        story.oracle.could_not_read(wall);
        story
    };
    unread_at(1_500).listed(1_000, 0, ShownMessage::Dead(1_500)).honest();
    unread_at(1_500).nothing_listed().honest();
    unread_at(1_499).listed(1_000, 0, ShownMessage::Dead(1_500)).lie(ViolationKind::Contradiction);
    // A dead message stays dead; a message that expires while it is leased is dropped when it is given back.
    set(expired("dead").listed(1_000, 0, ShownMessage::Dead(1_500)), ON_EXPIRY, "drop")
        .listed(1_000, 0, ShownMessage::Dead(1_500))
        .honest();
    let release = Action::Release { due: None, priority: None };
    let held = || expired("drop").at(1_450).taken(1_000, 1, 7).at(1_510);
    held().settled(7, release, SettleHeard::Gone).honest();
    held().settled(7, release, SettleHeard::Dead).lie(ViolationKind::Contradiction);
}

#[test]
fn more_leased_than_a_queue_allows_are_reported() {
    let second = Address { queue: 1, key: None, no: 2 };
    let held = |most: &str| {
        let answer = StoreAnswer::Put(PutHeard::Created { id: 2, due: 1_000 });
        let story = set(story().put(1_000), policy::MAX_LEASED, most);
        let story = story.said(StoreCall::Put(second.group(), spec(2, 1_000)), answer);
        let mut ready = story.oracle.ready(&[1], story.reading()).expect("all is known");
        assert_eq!(ready.len(), most.parse::<usize>().unwrap().min(2));
        ready.truncate(1);
        story.taken(1_000, 1, 7).at(1_010)
    };
    let taken = |story: Story| {
        let delivered = Delivered { no: 2, id: 2, ..story.delivery(1_000, 1, 8) };
        story.said(take(), StoreAnswer::Took(vec![(second, delivered)]))
    };
    taken(held("1")).lie(ViolationKind::CapPassed);
    taken(held("2")).honest();
    taken(ack(held("1"), 7)).honest();
    taken(held("1").at(1_100)).honest();
    // Lowering the cap ends no lease.
    ack(set(taken(held("2")), policy::MAX_LEASED, "1"), 7).honest();
}

#[test]
fn a_put_of_something_else_under_an_idempotency_key_changes_nothing() {
    let idempotency_key = Spec { idempotency_key: true, ..spec(1, 2_000) };
    let mismatched = |heard| {
        let mut first = story();
        first.oracle.pin(MESSAGE.group());
        let answer = StoreAnswer::Put(PutHeard::Created { id: ID, due: 2_000 });
        let story = first
            .said(StoreCall::Put(MESSAGE.group(), idempotency_key), answer)
            .cancelled(Changed::Cancelled(ID));
        story
            .said(StoreCall::Mismatch { group: MESSAGE.group(), no: 1 }, StoreAnswer::Put(heard))
            .nothing_listed()
    };
    mismatched(PutHeard::Mismatch { id: ID }).honest();
    mismatched(PutHeard::Mismatch { id: ID + 1 }).lie(ViolationKind::Contradiction);
    mismatched(PutHeard::Created { id: ID, due: 2_000 }).lie(ViolationKind::Contradiction);
}

#[test]
fn the_youngest_of_the_dead_is_found_by_key_and_only_where_none_is_live() {
    let died = |no: u64, now: i64, story: Story| {
        let id = u128::from(no);
        let story = keyed_put(story.at(now), no, OnConflict::Reject, PutHeard::Created { id, due: 2_000 });
        let terms = TERMS;
        let delivered = Delivered { no, id, due: now, keyed: true, ..story.delivery(now, 1, id) };
        let story = story.said(
            StoreCall::TakeById { message: keyed(no), terms },
            StoreAnswer::TookById(TakenById::Delivered(delivered)),
        );
        let bury = Action::Bury { priority: None };
        let ask = StoreCall::Settle { message: keyed(no), token: id, action: bury };
        story.said(ask, StoreAnswer::Settled(SettleHeard::Dead))
    };
    let two = || died(2, 1_200, died(1, 1_100, story()));
    let by_key = |story: Story, dead, found| {
        story.said(StoreCall::Get(keyed(1).group(), GroupTarget::Key, dead), StoreAnswer::Got(found))
    };
    let sight = |no: u64, died: i64| {
        let (id, shown) = (u128::from(no), ShownMessage::Dead(died));
        let (attempt, takes) = (1, 1);
        FoundMessage::Message(Sight {
            no,
            id,
            due: died,
            priority: 1,
            attempt,
            takes,
            keyed: true,
            holder: None,
            shown,
        })
    };
    by_key(two(), true, sight(2, 1_200)).honest();
    by_key(two(), true, sight(1, 1_100)).lie(ViolationKind::Contradiction);
    by_key(two(), true, FoundMessage::Nothing).lie(ViolationKind::Contradiction);
    by_key(two(), false, FoundMessage::Nothing).honest();
    by_key(two(), false, sight(2, 1_200)).lie(ViolationKind::Contradiction);
    let live = || keyed_put(two().at(1_300), 3, OnConflict::Reject, PutHeard::Created { id: 3, due: 2_000 });
    by_key(live(), true, sight(2, 1_200)).lie(ViolationKind::Contradiction);
    by_key(live(), true, FoundMessage::Nothing).lie(ViolationKind::Lost);
}

#[test]
fn a_holder_is_shown_while_it_holds_and_no_longer() {
    let held = || {
        let terms = Terms { holder: Some(3), ..TERMS };
        let story = story().put(1_000);
        let delivered = Delivered { terms, ..story.delivery(1_000, 1, 7) };
        story.said(StoreCall::Take { queues: vec![1], terms }, StoreAnswer::Took(vec![(MESSAGE, delivered)]))
    };
    let listed = |story: Story, attempt, holder, shown| {
        let StoreAnswer::Listed(mut sights) = story.sight(1_000, attempt, shown) else { unreachable!() };
        sights[0].1.holder = holder;
        story.said(StoreCall::ListAll { queue: 1 }, StoreAnswer::Listed(sights))
    };
    listed(held(), 1, Some(3), ShownMessage::Leased(1_100)).honest();
    listed(held(), 1, None, ShownMessage::Leased(1_100)).lie(ViolationKind::Contradiction);
    listed(held().at(1_100), 1, None, ShownMessage::Ready).honest();
    listed(held().at(1_100), 1, Some(3), ShownMessage::Ready).lie(ViolationKind::Contradiction);
}
