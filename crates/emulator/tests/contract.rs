//! The emulated drive in every form, through the contract.

use imbrex_device::{Fault, ZoneId, ZonedDevice, contract};
use imbrex_emulator::{Config, Emulator, Overrides};

/// Drives that differ in everything that a rule may depend on.
fn configs() -> Vec<Config> {
    let tiny = Config::tiny();
    vec![
        tiny.clone(),
        Config { write_cache: false, name: "uncached".into(), ..tiny.clone() },
        Config { block: 512, max_io: 128 << 10, name: "512".into(), ..tiny.clone() },
        Config { conventional: 0, max_open: None, name: "all-sequential".into(), ..tiny.clone() },
        Config {
            zone_capacity: 768 << 10,
            max_open: Some(4),
            max_active: Some(6),
            reads_cross_zones: false,
            reads_above_wp: false,
            name: "zns".into(),
            ..tiny
        },
    ]
}

#[test]
fn in_copy_on_write_memory() {
    for config in configs() {
        contract::run(&|| Box::new(Emulator::memory(&config).unwrap()));
    }
}

#[test]
fn in_flat_memory() {
    for config in configs() {
        contract::run(&|| Box::new(Emulator::memory_flat(&config).unwrap()));
    }
    contract::run(&|| Box::new(Emulator::memory_prefaulted(&Config::tiny()).unwrap()));
}

#[test]
fn in_an_image() {
    let dir = tempfile::tempdir().unwrap();
    for config in configs() {
        let path = dir.path().join("drive.img");
        contract::run(&|| Box::new(Emulator::create(&path, &config, true).unwrap()));
    }
}

#[test]
fn on_a_fork_of_a_used_drive() {
    let used = Emulator::memory(&Config::tiny()).unwrap();
    for (_, check) in contract::CHECKS {
        check(&used);
        check(&used.fork().unwrap());
        check(&used.after_power_loss(1).unwrap());
    }
}

#[test]
fn large_profiles_are_cheap_in_memory() {
    for name in ["hgst-hsh721414al", "seagate-st13125nm007", "seagate-st20000nm001j"] {
        let config = Config::named(name, &Overrides::default()).unwrap();
        let drive = Emulator::memory(&config).unwrap();
        contract::CHECKS.iter().filter(|(name, _)| name.contains("write pointer")).for_each(|(_, check)| check(&drive));
        assert_eq!(drive.geometry().zone_of(drive.geometry().size() - 1), ZoneId(config.zones() - 1));
    }
}

#[test]
fn a_configuration_that_makes_no_drive_says_why() {
    let error = Emulator::memory(&Config { block: 100, ..Config::tiny() }).err().unwrap();
    assert!(matches!(error.fault, Fault::Misuse(_)) && error.to_string().contains("512 or 4096"));
}
