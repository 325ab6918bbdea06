//! Configure: a queue's own settings.

use dwell_model::{
    AttemptLimit, Backoff, LapseBackoff, OnExpiry, Pause, Setting, SettingChange, SettingName, Settings,
};

use super::super::stage::*;
use crate::{Error, Put, When};

fn set(setting: Setting) -> SettingChange {
    SettingChange::Set(setting)
}

pub fn settings_change_at_run_time_and_survive_a_restart(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("there before"));
    let backoff = Backoff { base_ms: 5, factor_percent: 150, cap_ms: 500, jitter_percent: 7 };
    let settings = Settings {
        lease_ms: 1_234,
        max_attempts: AttemptLimit::At(4.try_into().unwrap()),
        backoff,
        max_pending: Some(9),
        pause: Pause::Until(stage.at(60_000)),
        levels: vec![1_000, 5_000],
        partitions: 1,
        idempotency_ms: 77_000,
        dead_ttl_ms: Some(88_000),
        dead_max: Some(99),
        on_expiry: OnExpiry::Drop,
        max_leased: Some(11),
        lapse_backoff: LapseBackoff::Second,
    };
    let changes = vec![
        set(Setting::LeaseMs(1)),
        set(Setting::LeaseMs(settings.lease_ms)),
        set(Setting::MaxAttempts(settings.max_attempts)),
        set(Setting::Backoff(backoff)),
        set(Setting::MaxPending(9)),
        set(Setting::Pause(settings.pause)),
        set(Setting::Levels(settings.levels.clone())),
        set(Setting::IdempotencyMs(settings.idempotency_ms)),
        set(Setting::DeadTtlMs(88_000)),
        set(Setting::DeadMax(99)),
        set(Setting::OnExpiry(settings.on_expiry)),
        set(Setting::MaxLeased(11)),
        set(Setting::LapseBackoff(settings.lapse_backoff)),
    ];
    let answer = stage.store().configure(q(), changes).unwrap();
    assert_eq!(answer.settings, settings);
    assert_eq!(answer.own.iter().count(), 12);
    assert_eq!(answer, stage.stats());
    let before = stage.stats();
    if !stage.is_durable() {
        not_applicable("its second half: this store does not survive a restart");
        return;
    }
    stage.restart();
    assert_eq!(stage.stats(), before);
}

pub fn a_setting_out_of_bounds_is_refused_and_none_of_its_batch_is_made(factory: &Factory) {
    let stage = Stage::open(factory);
    let backoff = Settings::default().backoff;
    for bad in [
        Setting::LeaseMs(0),
        Setting::LeaseMs(Setting::MAX_LEASE_MS + 1),
        Setting::Backoff(Backoff { factor_percent: 99, ..backoff }),
        Setting::Backoff(Backoff { jitter_percent: 101, ..backoff }),
        Setting::Levels(vec![1; Setting::MAX_LEVELS + 1]),
        Setting::Partitions(0),
        Setting::IdempotencyMs(u64::MAX),
    ] {
        let changes = vec![set(Setting::LeaseMs(5)), set(bad.clone()), set(Setting::MaxPending(1))];
        assert_eq!(code(stage.store().configure(q(), changes)), "invalid_setting", "{bad:?}");
        assert_eq!(code(stage.store().stats(q())), "unknown_queue", "none of {bad:?}'s batch is made");
    }
}

pub fn partitions_are_fixed_while_the_queue_has_messages(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(message("m").after_ms(50)).id;
    let changes = vec![set(Setting::LeaseMs(5)), set(Setting::Partitions(4))];
    let refused = Err(Error::SettingFixed { queue: q(), setting: SettingName::Partitions });
    assert_eq!(stage.store().configure(q(), changes.clone()), refused);
    assert_eq!(stage.stats().settings, Settings::default());
    stage.cancel(crate::Target::Id(id));
    let settings = stage.store().configure(q(), changes).unwrap().settings;
    assert_eq!((settings.lease_ms, settings.partitions), (5, 4));
    stage.put(message("m"));
    let reset = vec![SettingChange::Reset(SettingName::Partitions)];
    assert_eq!(stage.store().configure(q(), reset.clone()), refused);
    assert_eq!(stage.drain(), ["m"]);
    assert_eq!(stage.store().configure(q(), reset), refused, "the leased count");
}

pub fn a_queues_levels_change_for_later_puts_only(factory: &Factory) {
    let stage = Stage::open(factory);
    let put = || stage.put(Put { when: When::Level(1), ..message("m") });
    stage.set(Setting::Levels(vec![1_000]));
    let early = put();
    stage.set(Setting::Levels(vec![9_000, 1]));
    assert_eq!(stage.get(early.id).standing.due, stage.at(1_000));
    assert_eq!(put().due, stage.at(9_000));
    stage.set(Setting::Levels(vec![]));
    assert_eq!(code(stage.try_put(Put { when: When::Level(1), ..message("m") })), "unknown_level");
}

pub fn a_setting_taken_back_follows_the_default_again(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("m").after_ms(60_000));
    stage.set(Setting::LeaseMs(5));
    stage.set(Setting::MaxPending(1));
    assert_eq!(code(stage.try_put(message("n"))), "queue_full");
    let changes =
        vec![SettingChange::Reset(SettingName::MaxPending), SettingChange::Reset(SettingName::Levels)];
    let stats = stage.store().configure(q(), changes).unwrap();
    assert_eq!((stats.settings.max_pending, stats.settings.lease_ms), (None, 5));
    assert_eq!(stats.own.iter().collect::<Vec<_>>(), [&Setting::LeaseMs(5)]);
    stage.put(message("n"));
}

pub fn a_pause_that_has_ended_is_no_setting_any_more(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let listed = |stage: &Stage| stage.store().queues(None, 100).unwrap().len();
    let pause = |stage: &Stage, ms| set(Setting::Pause(Pause::Until(stage.at(ms))));
    let asked = vec![pause(&stage, 1_000), set(Setting::LeaseMs(5))];
    stage.store().configure(queue("kept"), asked).unwrap();
    let bare = vec![pause(&stage, 1_000)];
    assert_eq!(stage.store().configure(q(), bare).unwrap().own.iter().count(), 1);
    stage.advance(999);
    assert_eq!(listed(&stage), 2);
    stage.advance(1);
    assert_eq!(code(stage.store().stats(q())), "unknown_queue", "nothing keeps the queue");
    assert_eq!(listed(&stage), 1);
    let kept = stage.store().stats(queue("kept")).unwrap();
    assert_eq!(kept.own.iter().collect::<Vec<_>>(), [&Setting::LeaseMs(5)], "only the pause has gone");
    assert_eq!(kept.settings.pause, Pause::Running);
    let over = vec![pause(&stage, 0)];
    assert!(stage.store().configure(q(), over).unwrap().own.is_empty(), "it has ended as it is made");
    assert_eq!(listed(&stage), 1);
}
