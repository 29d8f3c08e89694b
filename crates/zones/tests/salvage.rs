//! A label made anew of zone headers: what counts as one, whose zones are, and what nobody gets.

use imbrex_device::{AlignedBuf, Cause, Drive, Tag, ZoneId, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::label::KEPT;
use imbrex_zones::log::Root;
use imbrex_zones::log::format::LogHead;
use imbrex_zones::shell::salvage::{Front, Salvaged, Search, front};
use imbrex_zones::{Budget, Exec, Tenant, Volume, VolumeOptions, ZoneHeader};
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Other);
const NEW: [u8; 16] = [1; 16];
const OLD: [u8; 16] = [2; 16];
/// Zones before this one hold the label, or are conventional.
const FIRST: u32 = 8;
/// An engine whose headers have kinds 5 to 9.
const OURS: Salvaged<'_> = Salvaged {
    name: "ours",
    kind: |kind| (5..10).contains(&kind),
    claims: &|_| false,
    budget: Budget::keeping(1, 2).at_least(9),
    log: None,
    generation: 3,
};

fn drive() -> (Emulator, Drive) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    (emulator, drive)
}

fn header(volume: [u8; 16], zone: u32, owner: u8, kind: u8) -> ZoneHeader {
    let created = if volume == NEW { 100 } else { 50 } + u64::from(zone);
    let name = String::new();
    ZoneHeader { volume, owner, kind, file: 0, life: 1, logical: 0, created, zone, mount: 4, name }
}

fn log(zone: u32, owner: u8, tenant: &str, (copy, copies): (u8, u8)) -> LogHead {
    let (volume, life, order, created) = (NEW, 4 << 40, 1, 70);
    LogHead {
        volume,
        zone,
        tenant: tenant.into(),
        owner,
        copy,
        copies,
        zones: 2 * u32::from(copies),
        life,
        order,
        created,
    }
}

fn block(header: &ZoneHeader) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(4096);
    header.encode_into(&mut block);
    block
}

fn write(emulator: &Emulator, zone: u32, blocks: &[&[u8]]) {
    let start = emulator.geometry().start(ZoneId(zone));
    for (i, block) in blocks.iter().enumerate() {
        emulator.write_at(&AlignedBuf::padded(block, 4096), start + i as u64 * 4096, TAG).unwrap();
    }
}

fn search(drive: &Drive, every_block: bool) -> Search {
    Search::of(drive.device.as_ref(), every_block, &mut |_, _| {}).unwrap()
}

/// The volume under its new label, and how many zones are others'.
fn labelled(drive: &Drive, engine: &Salvaged<'_>) -> (Volume, u32) {
    let (label, others) = search(drive, false).label(drive.device.as_ref(), NEW, engine).unwrap();
    assert_eq!((label.uuid, label.mount), (NEW, 4));
    Volume::relabel(drive, label).unwrap();
    let options = VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, ..VolumeOptions::default() };
    (Volume::open(drive.clone(), options).unwrap(), others)
}

fn zones(tenant: &Tenant) -> Vec<u32> {
    tenant.unadopted().into_iter().map(|zone| zone.0).collect()
}

fn root(tenant: &Tenant) -> Root {
    Root::decode(&tenant.root()).unwrap()
}

#[test]
fn every_tenant_gets_its_number_its_zones_and_its_log() {
    for ours_first in [false, true] {
        let (emulator, drive) = drive();
        let heads =
            [log(FIRST, 2, "ours", (0, 1)), log(FIRST + 1, 4, "others", (0, 2)), log(FIRST + 4, 4, "others", (1, 2))];
        heads.iter().for_each(|head| write(&emulator, head.zone, &[&head.encode(), &head.encode()]));
        for (zone, owner, kind) in [(20, 2, 5), (21, 4, 5), (22, 4, 77)] {
            write(&emulator, zone, &[&block(&header(NEW, zone, owner, kind))]);
        }
        // Of an older volume; a copy of a header of another zone; one with a number that no tenant has.
        write(&emulator, 23, &[&block(&header(OLD, 23, 2, 5))]);
        write(&emulator, 24, &[&block(&header(NEW, 20, 2, 5))]);
        write(&emulator, 25, &[&block(&header(NEW, 25, 15, 5))]);
        let found = search(&drive, false).tenants(&OURS);
        let told: Vec<_> = found.iter().map(|t| (t.volume, t.owner, t.name.as_deref(), t.log.len(), t.zones)).collect();
        assert_eq!(told, [(NEW, 4, Some("others"), 2, 2), (NEW, 2, Some("ours"), 1, 1), (OLD, 2, Some("ours"), 0, 1)]);
        let (volume, others) = labelled(&drive, &OURS);
        assert_eq!(others, 7);
        let [ours, theirs] = ["ours", "others"].map(|name| volume.tenant(name).unwrap());
        assert_eq!((ours.owner(), theirs.owner()), (2, 4));
        assert_eq!(zones(&ours), [FIRST, FIRST + 2, 20]);
        assert_eq!(root(&ours).zones, [FIRST, FIRST + 2]);
        // Of two rings the zones take turns: there is one more of each.
        assert_eq!(root(&theirs).copies, 2);
        assert_eq!(root(&theirs).zones, [FIRST + 1, FIRST + 4, FIRST + 5, FIRST + 6]);
        assert_eq!(zones(&theirs), [FIRST + 1, FIRST + 4, FIRST + 5, FIRST + 6, 21, 22]);
        assert!(root(&ours).unfinished && root(&theirs).unfinished, "a zone of a log may be gone");
        assert_eq!(zones(&volume.tenant(KEPT).unwrap()), [23, 24, 25]);
        // Who knows of a kept zone gets it, and of another tenant's nobody does. Also where another engine has begun before, which wrote the label.
        if ours_first {
            ours.begin().unwrap();
            ours.adoption_done();
            ours.recovered().unwrap();
        }
        theirs.begin().unwrap();
        theirs.adopt(ZoneId(24)).unwrap();
        assert!(theirs.adopt(ZoneId(20)).is_err());
        theirs.adopt(ZoneId(24)).unwrap();
        theirs.adoption_done();
        theirs.recovered().unwrap();
        assert_eq!(zones(&volume.tenant(KEPT).unwrap()), [23, 25]);
        assert!(ours.adopt(ZoneId(24)).is_err(), "it is taken");
        drop((ours, theirs, volume));
        let volume = Volume::open(drive, VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() }).unwrap();
        assert!(zones(&volume.tenant("others").unwrap()).contains(&24), "the label says so");
    }
}

#[test]
fn the_first_header_says_whose_a_zone_is() {
    let (emulator, drive) = drive();
    let start = emulator.geometry().start(ZoneId(20));
    let [first, second] = [5, 6].map(|kind| block(&header(NEW, 20, 2, kind)));
    // Bytes of a user, who had read zones of others.
    let users = [header(NEW, 20, 3, 5), header(OLD, 20, 2, 5), header(NEW, 21, 2, 5)].map(|header| block(&header));
    let bytes = AlignedBuf::padded(&[7; 4096], 4096);
    write(&emulator, 20, &[&first, &bytes, &users[0], &users[1], &users[2], &second, &bytes]);
    write(&emulator, FIRST, &[&log(FIRST, 2, "ours", (0, 1)).encode(), &log(FIRST, 2, "ours", (0, 1)).encode()]);
    let places = |every_block| {
        let search = search(&drive, every_block);
        let all: Vec<_> = search.stretches().iter().map(|s| (s.header.zone, s.header.kind, s.from, s.to)).collect();
        all.into_iter().filter(|(zone, ..)| *zone == 20).collect::<Vec<_>>()
    };
    assert_eq!(places(true), [(20, 5, 4096, 5 * 4096), (20, 6, 6 * 4096, 7 * 4096)]);
    assert_eq!(places(false), [(20, 5, 4096, 7 * 4096)]);
    // Without it the next one is found where every block is read, and nobody can tell where only the beginnings are.
    emulator.faults().media_error(start, 4096);
    let zone = imbrex_device::report_all(&emulator).unwrap()[20];
    assert_eq!(front(&emulator, &zone), Front::Unknown);
    let (label, _) = search(&drive, false).label(drive.device.as_ref(), NEW, &OURS).unwrap();
    assert_eq!((label.owners[20], &*label.tenants[2].name), (3, KEPT));
    let claims = |zone: &imbrex_device::Zone| zone.id == ZoneId(20);
    let engine = Salvaged { claims: &claims, ..OURS };
    let (label, others) = search(&drive, false).label(drive.device.as_ref(), NEW, &engine).unwrap();
    assert_eq!((label.owners[20], label.tenants.len(), others), (2, 2, 0));
}

#[test]
fn a_log_that_is_lost_or_has_too_few_zones_costs_no_zone() {
    // All zones are taken: nothing is left for a second zone of the log of another tenant.
    let (emulator, drive) = drive();
    let sequential = |emulator: &Emulator| {
        let zones = imbrex_device::report_all(emulator).unwrap().into_iter();
        zones.filter(|zone| zone.state == imbrex_device::ZoneState::Empty).map(|zone| zone.id.0).collect::<Vec<_>>()
    };
    let all = sequential(&emulator);
    let (ours, theirs, lost) = (all[0], all[1], all[2]);
    for head in [log(ours, 1, "ours", (0, 1)), log(theirs, 2, "others", (0, 1))] {
        write(&emulator, head.zone, &[&head.encode(), &head.encode()]);
    }
    write(&emulator, lost, &[&block(&header(NEW, lost, 3, 77))]);
    for zone in &all[4..] {
        write(&emulator, *zone, &[&block(&header(NEW, *zone, 1, 5))]);
    }
    let (volume, others) = labelled(&drive, &OURS);
    assert_eq!(others, 2);
    assert_eq!(root(&volume.tenant("ours").unwrap()).zones, [ours, all[3]]);
    let other = volume.tenant("others").unwrap();
    assert_eq!(zones(&other), [theirs]);
    let why = Root::of(&other).unwrap_err().to_string();
    assert!(root(&other).unfinished && why.contains("names 0 zones of a log"), "{why}");
    assert_eq!(zones(&volume.tenant("unknown-3").unwrap()), [lost]);
    drop((other, volume));

    // An engine without its log: by the kinds of its headers; and with an empty log, where it can do with that.
    let (emulator, drive) = self::drive();
    write(&emulator, lost, &[&block(&header(NEW, lost, 3, 5))]);
    let error = search(&drive, false).label(drive.device.as_ref(), NEW, &OURS).unwrap_err().to_string();
    assert!(error.contains("no zone of the log of ours is left"), "{error}");
    let engine = Salvaged { log: Some((2, 6)), ..OURS };
    let (label, _) = search(&drive, false).label(drive.device.as_ref(), NEW, &engine).unwrap();
    assert_eq!(label.tenants.iter().map(|t| &*t.name).collect::<Vec<_>>(), ["unknown-1", "unknown-2", "ours"]);
    assert_eq!(Root::decode(&label.tenants[2].root).unwrap().zones.len(), 6);
    assert!(label.tenants[2].budget == OURS.budget && label.generation > 100 + u64::from(lost));
    let error = search(&drive, false).label(drive.device.as_ref(), OLD, &OURS).unwrap_err().to_string();
    assert!(error.contains("has no zone of ours"), "{error}");
}

#[test]
fn no_header_makes_numbers_that_the_next_label_cannot_count_on_from() {
    let (emulator, drive) = drive();
    let zone = log(FIRST, 14, "ours", (0, 1));
    write(&emulator, FIRST, &[&LogHead { created: u64::MAX, ..zone.clone() }.encode(), &zone.encode()]);
    let (volume, _) = labelled(&drive, &OURS);
    let tenant = volume.tenant("ours").unwrap();
    tenant.begin().unwrap();
    tenant.adoption_done();
    tenant.recovered().unwrap();
    drop((tenant, volume));
    // There is no number left for what is kept.
    let (emulator, drive) = self::drive();
    write(&emulator, FIRST, &[&zone.encode(), &zone.encode()]);
    write(&emulator, 20, &[&[7; 4096]]);
    let error = search(&drive, false).label(drive.device.as_ref(), NEW, &OURS).unwrap_err().to_string();
    assert!(error.contains("14 engines"), "{error}");
}
