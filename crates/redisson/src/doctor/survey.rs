//! Reads a whole queue in pages, and checks suspected problems again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use dwell_model::Timestamp;

use super::super::element::{self, Layout};
use super::super::error::Error;
use super::super::script::{self, decimal};
use super::finding::{ELEMENTS_MAX, Finding, FindingKind};
use super::{Doctor, Report};

/// The number of elements that are read at a time.
const PAGE: usize = 250;
/// The number of times that a walk may start over.
const LOST_MAX: u32 = 100;

/// Where one digest has been seen.
#[derive(Clone, Copy, Default)]
struct SeenKeys {
    listed: u32,
    scheduled: bool,
}

/// The number of elements of each layout, and some of these elements.
#[derive(Default)]
struct Layouts {
    old: OfLayout,
    new: OfLayout,
}

#[derive(Default)]
struct OfLayout {
    count: usize,
    elements: Vec<Vec<u8>>,
}

impl Layouts {
    fn add(&mut self, layout: Layout, element: Vec<u8>) {
        let of_layout = match layout {
            Layout::Old => &mut self.old,
            Layout::New => &mut self.new,
        };
        of_layout.count += 1;
        if of_layout.elements.len() < ELEMENTS_MAX {
            of_layout.elements.push(element);
        }
    }

    fn most(&self) -> Layout {
        if self.old.count > self.new.count { Layout::Old } else { Layout::New }
    }
}

/// Suspected elements by kind of problem.
type Suspects = BTreeMap<FindingKind, Vec<Vec<u8>>>;

pub(super) async fn examine(doctor: &Doctor) -> Result<Report, Error> {
    let keys = &doctor.keys;
    let now_ms = now_ms(doctor).await?;
    let mut report = Report {
        queue: keys.name().to_owned(),
        at: Timestamp::from_ms(now_ms)?,
        listed: 0,
        scheduled: 0,
        ready: 0,
        leased: 0,
        listeners: listeners(doctor).await?,
        next_due: None,
        layout: doctor.options.layout.unwrap_or(Layout::New),
        findings: Vec::new(),
    };
    let wrong = wrong_types(doctor).await?;
    if wrong.count > 0 {
        report.findings.push(wrong);
        return Ok(report);
    }
    report.listed = doctor.ask(redis::cmd("LLEN").arg(keys.pending())).await?;
    report.scheduled = doctor.ask(redis::cmd("ZCARD").arg(keys.timeouts())).await?;
    report.ready = doctor.ask(redis::cmd("LLEN").arg(keys.ready())).await?;
    report.leased = doctor.ask(redis::cmd("ZCARD").arg(keys.leases())).await?;

    let mut findings: BTreeMap<FindingKind, Finding> = BTreeMap::new();
    let (mut suspects, layouts) = suspects(doctor).await?;
    report.layout = doctor.options.layout.unwrap_or(layouts.most());
    let others = match report.layout {
        Layout::New => layouts.old,
        Layout::Old => layouts.new,
    };
    suspects.insert(FindingKind::OtherLayout, others.elements);
    confirm(doctor, suspects, &mut findings).await?;
    if let Some(finding) = findings.get_mut(&FindingKind::OtherLayout) {
        finding.layout = Some(report.layout);
    }
    overdue(doctor, now_ms, &mut report, &mut findings).await?;
    if report.listeners == 0 && report.scheduled > 0 {
        findings
            .insert(FindingKind::NobodyListens, Finding::new(FindingKind::NobodyListens, report.scheduled));
    }
    note(doctor, now_ms, &mut findings).await?;
    report.findings = findings.into_values().filter(|finding| finding.count > 0).collect();
    Ok(report)
}

async fn now_ms(doctor: &Doctor) -> Result<i64, Error> {
    let (seconds, micros): (i64, i64) = doctor.ask(&redis::cmd("TIME")).await?;
    Ok(seconds * 1000 + micros / 1000)
}

async fn listeners(doctor: &Doctor) -> Result<usize, Error> {
    let (_, count): (String, usize) =
        doctor.ask(redis::cmd("PUBSUB").arg("NUMSUB").arg(doctor.keys.channel())).await?;
    Ok(count)
}

async fn wrong_types(doctor: &Doctor) -> Result<Finding, Error> {
    let keys = &doctor.keys;
    let expected = [
        (keys.ready().to_owned(), "list"),
        (keys.pending(), "list"),
        (keys.timeouts(), "zset"),
        (keys.set_aside(), "hash"),
        (keys.inbox(), "list"),
        (keys.leases(), "zset"),
        (keys.leased(), "hash"),
        (keys.dead(), "list"),
        (keys.inbox_since(), "string"),
    ];
    let mut finding = Finding::new(FindingKind::WrongType, 0);
    for (key, expected) in expected {
        let is: String = doctor.ask(redis::cmd("TYPE").arg(&key)).await?;
        if is != expected && is != "none" {
            finding.count += 1;
            finding.samples.push(format!("{key} is a {is}, not a {expected}"));
        }
    }
    Ok(finding)
}

/// Reads the whole list and the whole sorted set, by digest.
async fn suspects(doctor: &Doctor) -> Result<(Suspects, Layouts), Error> {
    let digest = RandomState::new();
    let mut seen: HashMap<u64, SeenKeys> = HashMap::new();
    let (mut suspects, mut layouts) = (Suspects::new(), Layouts::default());
    let mut walk = SurveyWalk::default();
    loop {
        match walk.next(doctor).await? {
            SurveyStep::Page(page) => {
                for element in page {
                    let seen = seen.entry(digest.hash_one(&element)).or_default();
                    seen.listed += 1;
                    if seen.listed == 2 {
                        suspect(&mut suspects, FindingKind::ListedTwice, element);
                    }
                }
            }
            SurveyStep::Again => {
                seen.clear();
                suspects.clear();
            }
            SurveyStep::End => break,
        }
    }
    let mut cursor = 0_u64;
    loop {
        let (next, page): (u64, Vec<(Vec<u8>, f64)>) = doctor
            .ask(redis::cmd("ZSCAN").arg(doctor.keys.timeouts()).arg(cursor).arg("COUNT").arg(PAGE))
            .await?;
        for (element, score) in page {
            let seen = seen.entry(digest.hash_one(&element)).or_default();
            // A scan may return an element twice.
            if std::mem::replace(&mut seen.scheduled, true) {
                continue;
            }
            if seen.listed == 0 {
                suspect(&mut suspects, FindingKind::ScheduledOnly, element.clone());
            }
            match wrong_with(&element, score) {
                Ok(layout) => layouts.add(layout, element),
                Err(kind) => suspect(&mut suspects, kind, element),
            }
        }
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    if seen.values().any(|seen| !seen.scheduled) {
        let mut walk = SurveyWalk::default();
        loop {
            match walk.next(doctor).await? {
                SurveyStep::Page(page) => {
                    for element in page {
                        if seen.get(&digest.hash_one(&element)).is_some_and(|seen| !seen.scheduled) {
                            suspect(&mut suspects, FindingKind::ListedOnly, element);
                        }
                    }
                }
                SurveyStep::Again => drop(suspects.remove(&FindingKind::ListedOnly)),
                SurveyStep::End => break,
            }
        }
    }
    Ok((suspects, layouts))
}

fn suspect(suspects: &mut Suspects, kind: FindingKind, element: Vec<u8>) {
    let of_kind = suspects.entry(kind).or_default();
    if of_kind.len() < ELEMENTS_MAX {
        of_kind.push(element);
    }
}

/// A walk along the list: an element that is there from its beginning to its end is seen once, whatever comes and goes
/// meanwhile.
#[derive(Default)]
struct SurveyWalk {
    index: i64,
    /// The element before the index.
    after: Vec<u8>,
    is_over: bool,
    lost: u32,
}

enum SurveyStep {
    Page(Vec<Vec<u8>>),
    /// The walk has lost its position and starts over: what it has seen is discarded.
    Again,
    End,
}

impl SurveyWalk {
    async fn next(&mut self, doctor: &Doctor) -> Result<SurveyStep, Error> {
        if self.is_over {
            return Ok(SurveyStep::End);
        }
        let after = std::mem::take(&mut self.after);
        let arguments = [decimal(self.index), after, decimal(PAGE), decimal(script::MOST_BYTES)];
        let (index, after, end, page): (i64, Vec<u8>, i64, Vec<Vec<u8>>) = script::FIND
            .call(&doctor.link, &doctor.keys, &[doctor.keys.pending()], &arguments)
            .await
            .map_err(|error| doctor.error(&error))?;
        if index < 0 {
            self.lost += 1;
            self.index = 0;
            if self.lost < LOST_MAX {
                return Ok(SurveyStep::Again);
            }
            let reason = format!("queue '{}' changes faster than it can be read", doctor.keys.name());
            return Err(Error::Unavailable { reason });
        }
        (self.index, self.after, self.is_over) = (index, after, end == 1);
        Ok(SurveyStep::Page(page))
    }
}

/// The layout of one element, or the problem that it has by itself.
fn wrong_with(packed: &[u8], score: f64) -> Result<Layout, FindingKind> {
    match element::decode(packed) {
        Err(_) => Err(FindingKind::Undecodable),
        Ok(_) if score < 0.0 => Err(FindingKind::NegativeScore),
        Ok(_) if score >= 1e17 => Err(FindingKind::EndlessScore),
        Ok(_) if score.fract() != 0.0 => Err(FindingKind::FractionalScore),
        Ok(element) => Ok(element.layout),
    }
}

/// Checks suspects again: their instants, then the whole list, then their instants once more.
///
/// Live clients add elements to both and remove them from both atomically, so an inconsistency that remains is a real
/// one.
async fn confirm(
    doctor: &Doctor,
    suspects: Suspects,
    findings: &mut BTreeMap<FindingKind, Finding>,
) -> Result<(), Error> {
    let is_of_the_list = |kind: &FindingKind| {
        matches!(kind, FindingKind::ListedTwice | FindingKind::ListedOnly | FindingKind::ScheduledOnly)
    };
    let unscheduled = match suspects.get(&FindingKind::ListedOnly) {
        Some(elements) => {
            let scores = scores(doctor, elements).await?;
            let both = elements.iter().zip(scores);
            both.filter(|(_, score)| score.is_none()).map(|(element, _)| element.clone()).collect()
        }
        None => HashSet::new(),
    };
    let of_the_list = suspects.iter().filter(|(kind, _)| is_of_the_list(kind));
    let mut listed: HashMap<Vec<u8>, u32> =
        of_the_list.flat_map(|(_, elements)| elements).map(|element| (element.clone(), 0)).collect();
    let mut walk = SurveyWalk { is_over: listed.is_empty(), ..SurveyWalk::default() };
    loop {
        match walk.next(doctor).await? {
            SurveyStep::Page(page) => {
                for element in page {
                    listed.entry(element).and_modify(|count| *count += 1);
                }
            }
            SurveyStep::Again => listed.values_mut().for_each(|count| *count = 0),
            SurveyStep::End => break,
        }
    }
    for (kind, elements) in suspects {
        let scores = scores(doctor, &elements).await?;
        for (element, score) in elements.iter().zip(scores) {
            let listed = listed.get(element).copied().unwrap_or(0);
            let holds = match kind {
                FindingKind::ListedTwice => listed > 1,
                FindingKind::ListedOnly => listed > 0 && unscheduled.contains(element),
                FindingKind::ScheduledOnly => listed == 0 && score.is_some(),
                _ => score.is_some(),
            };
            if holds {
                findings.entry(kind).or_insert_with(|| Finding::new(kind, 0)).add(element);
            }
        }
    }
    Ok(())
}

/// The instants of some elements; `None` for elements that are not scheduled.
async fn scores(doctor: &Doctor, elements: &[Vec<u8>]) -> Result<Vec<Option<f64>>, Error> {
    let mut all = Vec::with_capacity(elements.len());
    for some in elements.chunks(PAGE) {
        let mut command = redis::cmd("ZMSCORE");
        command.arg(doctor.keys.timeouts()).arg(some);
        all.extend(doctor.ask::<Vec<Option<f64>>>(&command).await?);
    }
    Ok(all)
}

async fn overdue(
    doctor: &Doctor,
    now_ms: i64,
    report: &mut Report,
    findings: &mut BTreeMap<FindingKind, Finding>,
) -> Result<(), Error> {
    let head: Vec<(Vec<u8>, f64)> =
        doctor.ask(redis::cmd("ZRANGE").arg(doctor.keys.timeouts()).arg(0).arg(0).arg("WITHSCORES")).await?;
    report.next_due = head.first().and_then(|(_, score)| Timestamp::from_ms(score.ceil() as i64).ok());
    let before = now_ms.saturating_sub(i64::try_from(doctor.options.overdue_ms).unwrap_or(i64::MAX));
    let count: usize =
        doctor.ask(redis::cmd("ZCOUNT").arg(doctor.keys.timeouts()).arg(0).arg(before)).await?;
    if count > 0 {
        let mut finding = Finding::new(FindingKind::Overdue, count);
        if let Some(due) = report.next_due {
            finding.samples.push(format!("the first since {due}"));
        }
        findings.insert(FindingKind::Overdue, finding);
    }
    Ok(())
}

async fn note(
    doctor: &Doctor,
    now_ms: i64,
    findings: &mut BTreeMap<FindingKind, Finding>,
) -> Result<(), Error> {
    let keys = &doctor.keys;
    let aside: Vec<(Vec<u8>, String)> =
        doctor.ask::<(u64, _)>(redis::cmd("HSCAN").arg(keys.set_aside()).arg(0).arg("COUNT").arg(5)).await?.1;
    let mut finding =
        Finding::new(FindingKind::SetAside, doctor.ask(redis::cmd("HLEN").arg(keys.set_aside())).await?);
    finding.samples = aside.into_iter().take(5).map(|(_, why)| why).collect();
    findings.insert(FindingKind::SetAside, finding);
    let dead = doctor.ask(redis::cmd("LLEN").arg(keys.dead())).await?;
    findings.insert(FindingKind::DeadLetters, Finding::new(FindingKind::DeadLetters, dead));
    let lapsed = doctor.ask(redis::cmd("ZCOUNT").arg(keys.leases()).arg("-inf").arg(now_ms)).await?;
    findings.insert(FindingKind::LapsedLeases, Finding::new(FindingKind::LapsedLeases, lapsed));
    let inbox = doctor.ask(redis::cmd("LLEN").arg(keys.inbox())).await?;
    findings.insert(FindingKind::InInbox, Finding::new(FindingKind::InInbox, inbox));
    Ok(())
}
