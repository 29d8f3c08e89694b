//! Zones of the label that die (read-only or offline): the other goes on alone, survives a power loss at every write, and
//! where neither can be written the drive says so and can still be looked at.

use imbrex_device::{Drive, Error, Fault, ZoneId, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Budget, Exec, FormatOptions, Tenant, TenantSpec, Volume, VolumeOptions};
use std::sync::Arc;

fn drive(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: None }
}

fn options() -> VolumeOptions {
    VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, ..Default::default() }
}

fn open(emulator: &Emulator) -> Result<Volume, Error> {
    Volume::open(drive(emulator), options())
}

/// A formatted drive of zones of 1 MiB. The root of the last tenant stands in the third block of a label, its generation in
/// the first: a label that is torn between them is no label.
fn formatted(conventional: u32) -> Emulator {
    let emulator = Emulator::memory(&Config { conventional, ..Config::tiny() }).unwrap();
    let others = (0..8).map(|i| format!("other-{i}"));
    let tenants = others.chain(["toy".into()]).map(|name| TenantSpec { name, budget: Budget::keeping(0, 1) }).collect();
    Volume::format(&drive(&emulator), &FormatOptions { uuid: None, tenants, force: false }).unwrap();
    emulator
}

fn kill(emulator: &Emulator, zone: u32, offline: bool) {
    match offline {
        true => emulator.faults().make_offline(ZoneId(zone)).unwrap(),
        false => emulator.faults().make_read_only(ZoneId(zone)).unwrap(),
    }
}

fn tenant(volume: &Volume) -> Tenant {
    volume.tenant("toy").unwrap()
}

fn set(volume: &Volume, root: u64) -> Result<(), Error> {
    tenant(volume).set_root(&root.to_le_bytes())
}

fn root(volume: &Volume) -> u64 {
    u64::from_le_bytes(tenant(volume).root().try_into().unwrap())
}

/// The label's zones by number of conventional zones.
const SHAPES: [(u32, [u32; 2]); 4] = [(0, [0, 1]), (1, [1, 2]), (2, [0, 1]), (4, [0, 1])];

#[test]
fn one_dead_zone_of_the_label_is_told_and_the_other_goes_on_alone() {
    for (conventional, zones) in SHAPES {
        for (dead, offline) in [(0, false), (0, true), (1, false), (1, true)] {
            let what = format!("{conventional} conventional, copy {dead}, offline {offline}");
            let emulator = formatted(conventional);
            let volume = open(&emulator).unwrap();
            set(&volume, 1).unwrap();
            assert_eq!(volume.dead_labels().unwrap(), Vec::<String>::new());
            kill(&emulator, zones[dead], offline);
            // It dies under a mount, and stays dead over the next ones.
            for n in 2..6 {
                set(&volume, n).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            drop(volume);
            for n in 6..9 {
                let volume = open(&emulator).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(root(&volume), n - 1, "{what}");
                let told = volume.dead_labels().unwrap();
                let state = if offline { "is offline" } else { "is read-only" };
                let named = format!("zone {} {state}", zones[dead]);
                assert!(told.len() == 1 && told[0].contains(&named) && told[0].contains("replace"), "{what}: {told:?}");
                assert_eq!(volume.check_labels().unwrap(), Vec::<String>::new(), "{what}");
                tenant(&volume).recovered().unwrap();
                set(&volume, n).unwrap();
            }
        }
    }
}

#[test]
fn every_write_of_a_label_that_is_alone_can_be_cut_by_a_power_loss() {
    for (conventional, zones) in SHAPES {
        for (dead, offline) in [(0, false), (1, true)] {
            let emulator = formatted(conventional);
            let volume = open(&emulator).unwrap();
            set(&volume, 1).unwrap();
            kill(&emulator, zones[dead], offline);
            let mut last = 1;
            for n in 2..10 {
                // One of the writes of this label is torn; of the attempts behind it, none may make it worse.
                emulator.faults().fail_write_in(ZoneId(zones[1 - dead]), 1 + n % 2);
                for root in [2 * n, 2 * n + 1] {
                    last = if set(&volume, root).is_ok() { root } else { last };
                    for seed in 0..8 {
                        let after = emulator.after_power_loss(seed).unwrap();
                        let seen = self::root(&open(&after).unwrap());
                        assert!(seen == last || seen == root, "{seen} instead of {last} or {root}");
                    }
                }
                assert_eq!(last, 2 * n + 1, "a failed write is not the end");
            }
        }
    }
}

#[test]
fn a_ring_that_is_alone_is_never_reset_and_says_when_it_is_full() {
    for (conventional, zones) in [SHAPES[0], SHAPES[1]] {
        for offline in [false, true] {
            let emulator = formatted(conventional);
            let volume = open(&emulator).unwrap();
            set(&volume, 1).unwrap();
            kill(&emulator, zones[0], offline);
            let (mut last, mut refused) = (1, None);
            for n in 2..100 {
                match set(&volume, n) {
                    Ok(()) => last = n,
                    Err(error) => refused = refused.or(Some(error.to_string())),
                }
                assert_eq!(refused.is_none(), last == n, "once full, always full");
                assert_eq!(root(&open(&emulator.after_power_loss(n).unwrap()).unwrap()), last);
            }
            // Each label stands there twice, in 16 KiB each, behind those that format and the first change left.
            assert!((25..35).contains(&last), "{last} labels had room");
            let why = refused.unwrap();
            assert!(why.contains("back up") && why.contains("read-only=on") && why.contains("replace"), "{why}");
            // A mount for writing would have to count itself, a look need not.
            drop(volume);
            let why = tenant(&open(&emulator).unwrap()).recovered().unwrap_err().to_string();
            assert!(why.contains("back up"), "{why}");
            let look = Volume::look(drive(&emulator), options()).unwrap();
            tenant(&look).recovered().unwrap();
            set(&look, 1000).unwrap();
            assert_eq!((root(&look), look.check_labels().unwrap().len()), (1000, 1));
        }
    }
}

#[test]
fn with_both_zones_dead_a_drive_can_be_looked_at_where_one_is_readable() {
    for (conventional, zones) in SHAPES {
        for dead in 0..2 {
            let emulator = formatted(conventional);
            let volume = open(&emulator).unwrap();
            kill(&emulator, zones[dead], true);
            set(&volume, 7).unwrap();
            kill(&emulator, zones[1 - dead], false);
            let why = set(&volume, 8).unwrap_err().to_string();
            assert!(why.contains("back up"), "{why}");
            drop(volume);
            let error = open(&emulator).err().unwrap();
            assert!(matches!(error.fault, Fault::Io(_)), "{error}");
            assert!(error.to_string().contains("read-only=on"), "{error}");
            let look = Volume::look(drive(&emulator), options()).unwrap();
            assert_eq!((root(&look), look.dead_labels().unwrap().len()), (7, 2));
            tenant(&look).recovered().unwrap();
            kill(&emulator, zones[1 - dead], true);
            let why = Volume::look(drive(&emulator), options()).err().unwrap().to_string();
            assert!(why.contains("damaged label") && why.contains("restore the drive from a copy"), "{why}");
        }
    }
}

#[test]
fn conventional_space_keeps_its_shape_when_zones_die() {
    for zone in 0..4 {
        for offline in [false, true] {
            let emulator = formatted(4);
            let ranges = open(&emulator).unwrap().tenant("other-0").unwrap().conventional_ranges();
            kill(&emulator, zone, offline);
            let volume = open(&emulator).unwrap();
            let tenant = volume.tenant("other-0").unwrap();
            assert_eq!(tenant.conventional_ranges(), ranges);
            let size = emulator.geometry().zone_size;
            assert_eq!(tenant.dead_conventional(), [(u64::from(zone) * size, size)]);
            // It is no zone that a tenant could have lost.
            assert!(!tenant.unadopted().contains(&ZoneId(zone)));
            tenant.adoption_done();
        }
    }
}

#[test]
fn a_dead_zone_where_the_label_would_stand_is_told_at_format() {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    kill(&emulator, 1, true);
    let format = FormatOptions {
        uuid: None,
        tenants: vec![TenantSpec { name: "toy".into(), budget: Budget::keeping(0, 1) }],
        force: true,
    };
    let why = Volume::format(&drive(&emulator), &format).unwrap_err().to_string();
    assert!(why.contains("zone 1") && why.contains("is offline") && why.contains("replace"), "{why}");
    // Any other does not matter.
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    kill(&emulator, 3, true);
    Volume::format(&drive(&emulator), &format).unwrap();
    assert_eq!(report_all(&emulator).unwrap()[3].state, ZoneState::Offline);
    open(&emulator).unwrap();
}

/// What only looks leaves the damage as it was, so it must tell it: its own label is whole.
#[test]
fn a_look_tells_of_a_damaged_label_unless_a_power_loss_may_have_torn_it() {
    for (conventional, zones) in SHAPES {
        for (copy, zone) in zones.into_iter().enumerate() {
            // In the magic, and behind it.
            for (lost_power, byte) in [(false, 3), (false, 100), (true, 3), (true, 100)] {
                let what = format!("{conventional} conventional, copy {copy}, byte {byte}, power lost: {lost_power}");
                let emulator = formatted(conventional);
                let volume = open(&emulator).unwrap();
                (1..4).for_each(|n| set(&volume, n).unwrap());
                drop(volume);
                let start = emulator.geometry().start(ZoneId(zone));
                // Of a ring the last label.
                let zone = report_all(&emulator).unwrap()[zone as usize];
                let last = zone.wp.map_or(0, |wp| wp - wp / 4);
                emulator.faults().flip_bits(start + last + byte, 4).unwrap();
                let emulator = if lost_power { emulator.after_power_loss(1).unwrap() } else { emulator };
                let told = if lost_power { vec![] } else { vec![format!("Copy {copy} of the label")] };
                // A look covers the drive, so it comes first.
                let covered = emulator.fork().unwrap();
                let volume = Volume::look(drive(&covered), options()).unwrap();
                assert_eq!(root(&volume), 3, "{what}");
                let found = volume.check_labels().unwrap();
                assert_eq!(found.len(), told.len(), "{what}: {found:?}");
                assert!(found.iter().zip(&told).all(|(found, told)| found.starts_with(told)), "{what}: {found:?}");
                // An opening repairs it, and then nothing is wrong.
                let volume = open(&emulator).unwrap();
                assert!(volume.label_repaired().unwrap().starts_with(&format!("Copy {copy}")), "{what}");
                assert_eq!((root(&volume), volume.check_labels().unwrap()), (3, vec![]), "{what}");
                drop(volume);
                let volume = Volume::look(drive(&emulator), options()).unwrap();
                assert_eq!((volume.label_repaired(), volume.check_labels().unwrap()), (None, vec![]), "{what}");
            }
        }
    }
}
