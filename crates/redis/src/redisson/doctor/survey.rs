//! Reading a whole queue in pages, and looking a second time at what seems wrong.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use dwell_model::Timestamp;

use super::super::element::{self, Layout};
use super::super::error::Error;
use super::super::script;
use super::finding::{ELEMENTS_MAX, Finding, Kind};
use super::{Doctor, Report};

/// How many elements are read at a time.
const PAGE: usize = 500;
/// How many are looked at a second time in one script: each searches the list.
const LOOKS: usize = 5;

/// What one digest has been seen as.
#[derive(Clone, Copy, Default)]
struct Seen {
    listed: u32,
    scheduled: bool,
}

/// How many elements have each layout, and some of them.
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

/// Suspects by what they are suspected of.
type Suspects = BTreeMap<Kind, Vec<Vec<u8>>>;

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

    let mut findings: BTreeMap<Kind, Finding> = BTreeMap::new();
    let (suspects, layouts) = suspects(doctor).await?;
    report.layout = doctor.options.layout.unwrap_or(layouts.most());
    let others = match report.layout {
        Layout::New => layouts.old,
        Layout::Old => layouts.new,
    };
    for (kind, suspects) in suspects.into_iter().chain([(Kind::OtherLayout, others.elements)]) {
        confirm(doctor, kind, suspects, &mut findings).await?;
    }
    if let Some(finding) = findings.get_mut(&Kind::OtherLayout) {
        finding.layout = Some(report.layout);
    }
    overdue(doctor, now_ms, &mut report, &mut findings).await?;
    if report.listeners == 0 && report.scheduled > 0 {
        findings.insert(Kind::NobodyListens, Finding::new(Kind::NobodyListens, report.scheduled));
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
    ];
    let mut finding = Finding::new(Kind::WrongType, 0);
    for (key, expected) in expected {
        let is: String = doctor.ask(redis::cmd("TYPE").arg(&key)).await?;
        if is != expected && is != "none" {
            finding.count += 1;
            finding.samples.push(format!("{key} is a {is}, not a {expected}"));
        }
    }
    Ok(finding)
}

/// The whole list and the whole sorted set, by digest.
async fn suspects(doctor: &Doctor) -> Result<(Suspects, Layouts), Error> {
    let digest = RandomState::new();
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    let (mut suspects, mut layouts) = (Suspects::new(), Layouts::default());
    let mut suspect = |kind: Kind, element: Vec<u8>| {
        let of_kind = suspects.entry(kind).or_default();
        if of_kind.len() < ELEMENTS_MAX {
            of_kind.push(element);
        }
    };
    let mut start = 0;
    loop {
        let page = list_page(doctor, start).await?;
        for element in &page {
            let seen = seen.entry(digest.hash_one(element)).or_default();
            seen.listed += 1;
            if seen.listed == 2 {
                suspect(Kind::ListedTwice, element.clone());
            }
        }
        start += page.len();
        if page.len() < PAGE {
            break;
        }
    }
    let mut cursor = 0_u64;
    loop {
        let (next, page): (u64, Vec<(Vec<u8>, f64)>) = doctor
            .ask(redis::cmd("ZSCAN").arg(doctor.keys.timeouts()).arg(cursor).arg("COUNT").arg(PAGE))
            .await?;
        for (element, score) in page {
            let seen = seen.entry(digest.hash_one(&element)).or_default();
            // A scan may give an element twice.
            if std::mem::replace(&mut seen.scheduled, true) {
                continue;
            }
            if seen.listed == 0 {
                suspect(Kind::ScheduledOnly, element.clone());
            }
            match wrong_with(&element, score) {
                Ok(layout) => layouts.add(layout, element),
                Err(kind) => suspect(kind, element),
            }
        }
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    if seen.values().any(|seen| !seen.scheduled) {
        let mut start = 0;
        loop {
            let page = list_page(doctor, start).await?;
            start += page.len();
            let is_last = page.len() < PAGE;
            for element in page {
                if seen.get(&digest.hash_one(&element)).is_some_and(|seen| !seen.scheduled) {
                    suspect(Kind::ListedOnly, element);
                }
            }
            if is_last {
                break;
            }
        }
    }
    Ok((suspects, layouts))
}

async fn list_page(doctor: &Doctor, start: usize) -> Result<Vec<Vec<u8>>, Error> {
    doctor.ask(redis::cmd("LRANGE").arg(doctor.keys.pending()).arg(start).arg(start + PAGE - 1)).await
}

/// The layout of one element, or what is wrong with it by itself.
fn wrong_with(packed: &[u8], score: f64) -> Result<Layout, Kind> {
    match element::decode(packed) {
        Err(_) => Err(Kind::Undecodable),
        Ok(_) if score < 0.0 => Err(Kind::NegativeScore),
        Ok(_) if score >= 1e17 => Err(Kind::EndlessScore),
        Ok(_) if score.fract() != 0.0 => Err(Kind::FractionalScore),
        Ok(element) => Ok(element.layout),
    }
}

/// Looks at suspects again, where each stands in one step.
async fn confirm(
    doctor: &Doctor,
    kind: Kind,
    suspects: Vec<Vec<u8>>,
    findings: &mut BTreeMap<Kind, Finding>,
) -> Result<(), Error> {
    let keys = [doctor.keys.pending(), doctor.keys.timeouts()];
    for some in suspects.chunks(LOOKS) {
        let looks: Vec<redis::Value> =
            script::LOOK.call(&doctor.link, &keys, some).await.map_err(|error| doctor.error(&error))?;
        for (element, look) in some.iter().zip(looks.chunks_exact(2)) {
            let read = redis::from_redis_value::<(String, usize)>(redis::Value::Array(look.to_vec()));
            let (score, listed) = read.map_err(|error| Error::Refused {
                reason: format!("a look was answered otherwise: {error}"),
            })?;
            let holds = match kind {
                Kind::ListedTwice => listed > 1,
                Kind::ListedOnly => score.is_empty() && listed > 0,
                Kind::ScheduledOnly => !score.is_empty() && listed == 0,
                _ => !score.is_empty(),
            };
            if holds {
                findings.entry(kind).or_insert_with(|| Finding::new(kind, 0)).add(element);
            }
        }
    }
    Ok(())
}

async fn overdue(
    doctor: &Doctor,
    now_ms: i64,
    report: &mut Report,
    findings: &mut BTreeMap<Kind, Finding>,
) -> Result<(), Error> {
    let head: Vec<(Vec<u8>, f64)> =
        doctor.ask(redis::cmd("ZRANGE").arg(doctor.keys.timeouts()).arg(0).arg(0).arg("WITHSCORES")).await?;
    report.next_due = head.first().and_then(|(_, score)| Timestamp::from_ms(score.ceil() as i64).ok());
    let before = now_ms - doctor.options.overdue_ms as i64;
    let count: usize =
        doctor.ask(redis::cmd("ZCOUNT").arg(doctor.keys.timeouts()).arg(0).arg(before)).await?;
    if count > 0 {
        let mut finding = Finding::new(Kind::Overdue, count);
        if let Some(due) = report.next_due {
            finding.samples.push(format!("the first since {due}"));
        }
        findings.insert(Kind::Overdue, finding);
    }
    Ok(())
}

async fn note(doctor: &Doctor, now_ms: i64, findings: &mut BTreeMap<Kind, Finding>) -> Result<(), Error> {
    let keys = &doctor.keys;
    let aside: Vec<(Vec<u8>, String)> =
        doctor.ask::<(u64, _)>(redis::cmd("HSCAN").arg(keys.set_aside()).arg(0).arg("COUNT").arg(5)).await?.1;
    let mut finding =
        Finding::new(Kind::SetAside, doctor.ask(redis::cmd("HLEN").arg(keys.set_aside())).await?);
    finding.samples = aside.into_iter().take(5).map(|(_, why)| why).collect();
    findings.insert(Kind::SetAside, finding);
    let dead = doctor.ask(redis::cmd("LLEN").arg(keys.dead())).await?;
    findings.insert(Kind::DeadLetters, Finding::new(Kind::DeadLetters, dead));
    let lapsed = doctor.ask(redis::cmd("ZCOUNT").arg(keys.leases()).arg("-inf").arg(now_ms)).await?;
    findings.insert(Kind::LapsedLeases, Finding::new(Kind::LapsedLeases, lapsed));
    Ok(())
}
