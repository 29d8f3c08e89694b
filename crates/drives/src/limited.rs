//! A drive to which no longer commands go than its opener wants (`max-io=`).

use imbrex_device::{Cause, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use std::sync::Arc;

/// See the module.
struct Limited {
    below: Arc<dyn ZonedDevice>,
    geometry: Geometry,
}

/// The drive with commands of `most` bytes at most, where that is said.
///
/// Errors: `Unusable` where that is no length of a command, or more than the drive takes.
pub(crate) fn limit(below: Arc<dyn ZonedDevice>, most: Option<u64>) -> Result<Arc<dyn ZonedDevice>> {
    Ok(match most {
        None => below,
        Some(most) => Arc::new(limited(below, most)?),
    })
}

fn limited(below: Arc<dyn ZonedDevice>, most: u64) -> Result<Limited> {
    let geometry = below.geometry().clone();
    let refuse = |sentence: String| Err(Error::unusable(&below.identity().name, format!("max-io={most}: {sentence}")));
    if most > u64::from(geometry.max_io) {
        return refuse(format!(
            "the drive takes {} bytes in one command, no more; leave max-io out, or make it take more: an emulated drive is made with \
             --max-io, and of a kernel's device `imbrex drive info` says what to set",
            geometry.max_io
        ));
    }
    match u32::try_from(most) {
        Ok(max_io) if max_io > 0 && max_io.is_multiple_of(geometry.block) => {
            Ok(Limited { geometry: Geometry { max_io, ..geometry }, below })
        }
        _ => refuse(format!("a command is whole blocks of {} bytes; write it as 1M or 4M", geometry.block)),
    }
}

impl Limited {
    fn check(&self, len: usize, at: u64) -> Result<()> {
        let most = self.geometry.max_io;
        if len as u64 <= u64::from(most) {
            return Ok(());
        }
        let fault = Fault::InvalidInput(format!("length {len} is more than the largest command {most}").into());
        Err(Error::new(&self.identity().name, fault).at(self.geometry.zone_of(at), at))
    }
}

impl ZonedDevice for Limited {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.below.power_epoch()
    }
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.below.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.check(buf.len(), at)?;
        self.below.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.check(buf.len(), at)?;
        self.below.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.below.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.zone_op(op, zone, tag)
    }
    fn overwrites(&self) -> bool {
        self.below.overwrites()
    }
    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.set_in_place(zone, tag)
    }
    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.check(buf.len(), at)?;
        self.below.write_in_place(buf, at, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
    fn busy_seconds(&self) -> Vec<(Cause, &'static str, f64)> {
        self.below.busy_seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::limited;
    use crate::{OpenOptions, open, parse_uri};
    use imbrex_device::{ZonedDevice, contract};
    use imbrex_emulator::{Config, Emulator};
    use std::sync::Arc;

    #[test]
    fn a_limited_drive_is_one_like_any_other() {
        let tiny = Config::tiny();
        for config in [tiny.clone(), Config { block: 512, write_cache: false, ..tiny }] {
            contract::run(&|| Box::new(limited(Arc::new(Emulator::memory(&config).unwrap()), 16 << 10).unwrap()));
        }
    }

    #[test]
    fn a_limited_drive_tells_that_its_power_went() {
        let emulator = Emulator::memory(&Config::tiny()).unwrap();
        let drive = limited(Arc::new(emulator.clone()), 16 << 10).unwrap();
        let before = drive.power_epoch();
        emulator.faults().lose_power(true, &mut |_| 0).unwrap();
        assert_ne!(drive.power_epoch(), before);
        assert_eq!(drive.power_epoch(), emulator.power_epoch());
    }

    #[test]
    fn commands_are_as_long_as_was_asked_for_and_the_drive_takes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive.img");
        drop(Emulator::create(&path, &Config::tiny(), false).unwrap());
        let with = |max_io: &str| {
            let uri = parse_uri(&format!("imbrex://{}?survivor=off&max-io={max_io}", path.display()), &[]).unwrap();
            let drive = open(&uri.locator, &uri.open_options().map_err(|error| error.to_string())?);
            drive.map(|drive| drive.device.geometry().max_io).map_err(|error| error.to_string())
        };
        assert_eq!((with("16K").unwrap(), with("256K").unwrap()), (16 << 10, Config::tiny().max_io));
        assert!(with("4M").unwrap_err().contains("--max-io"));
        assert!(with("5000").unwrap_err().contains("whole blocks") && with("0").unwrap_err().contains("whole blocks"));
        assert!(with("long").unwrap_err().contains("is not a size"));
        let memory = |text: &str| open(text, &OpenOptions::default()).unwrap().device.geometry().max_io;
        assert_eq!(memory("mem:?profile=seagate-st20000nm001j&size=1G&max-io=4M"), 4 << 20);
        assert_eq!(memory("mem:?profile=seagate-st20000nm001j&size=1G"), 1280 << 10);
    }
}
