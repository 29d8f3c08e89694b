//! Where an address lies, and how long the head takes to get there and to pass over it. Pure arithmetic.
//!
//! Sources: the shared design's time model. Bandwidth is linear in the stroke: it falls from the outer edge (0) to the inner
//! one (1). As a track's length is what passes in one turn, the bytes between two strokes are the integral of the bandwidth,
//! and the time to stream from 0 to a place is *proportional to its stroke*: one pass over the drive takes capacity / average,
//! average = (outer + inner) / 2. The angle of a place is the fraction of a turn of that time, so that streaming never misses;
//! the skew of tracks is contained in it.
//!
//! All times are nanoseconds, in `f64`: a year is still exact to 4 ns.

use super::params::Params;

const MIB: f64 = 1_048_576.0;
const MS: f64 = 1e6;

/// Nanoseconds of the drive's own clock.
pub(crate) type Ns = f64;

/// A spinning drive without memory: places and times.
#[derive(Clone, Debug)]
pub(crate) struct Mechanics {
    capacity: f64,
    outer: f64,
    average: f64,
    /// Half of what the bandwidth falls from the outer edge to the inner one.
    half_fall: f64,
    /// Time of one pass over all of it.
    pass: Ns,
    pub(crate) turn: Ns,
    settle: Ns,
    root: Ns,
    linear: Ns,
    /// The first addresses lie elsewhere: how many bytes, and where.
    moved: Option<(u64, u64)>,
}

impl Mechanics {
    /// `capacity` in bytes, of which the first `conventional` lie where the profile's bandwidth says.
    pub(crate) fn new(params: &Params, capacity: u64, conventional: u64) -> Mechanics {
        let per_ns = |mib_s: f64| mib_s * MIB / 1e9;
        let (outer, average) = (per_ns(params.bandwidth_outer_mib_s), per_ns(params.bandwidth_average_mib_s));
        let mut mechanics = Mechanics {
            capacity: capacity.max(1) as f64,
            outer,
            average,
            half_fall: outer - average,
            pass: capacity as f64 / average,
            turn: 60e9 / params.rotation_rpm,
            settle: params.seek_settle_ms * MS,
            root: params.seek_root_ms * MS,
            linear: params.seek_linear_ms * MS,
            moved: None,
        };
        if params.conventional_bandwidth_mib_s > 0.0 && conventional > 0 {
            let fall = 2.0 * mechanics.half_fall;
            let stroke = if fall == 0.0 { 0.0 } else { (outer - per_ns(params.conventional_bandwidth_mib_s)) / fall };
            let centre = mechanics.bytes_before(stroke);
            let first = (centre as u64).saturating_sub(conventional / 2).min(capacity.saturating_sub(conventional));
            mechanics.moved = Some((conventional, first));
        }
        mechanics
    }

    fn bytes_before(&self, stroke: f64) -> f64 {
        self.capacity * stroke * (self.outer - self.half_fall * stroke) / self.average
    }

    /// Where the byte at `at` lies on the stroke: 0 is the outer edge, 1 the inner one.
    pub(crate) fn stroke(&self, at: u64) -> f64 {
        let place = match self.moved {
            Some((len, first)) if at < len => first + at,
            Some((len, first)) if at - len < first => at - len,
            _ => at,
        };
        let part = (place as f64 / self.capacity).min(1.0);
        // The smaller root of half_fall·p² − outer·p + average·part = 0, in the form that does not cancel.
        let root = (self.outer * self.outer - 4.0 * self.half_fall * self.average * part).max(0.0).sqrt();
        2.0 * self.average * part / (self.outer + root)
    }

    /// From one place to another; none within a few tracks.
    pub(crate) fn seek(&self, from: f64, to: f64) -> Ns {
        let distance = (from - to).abs();
        // What passes in less than a turn lies on the same track or the next one, where the skew pays for the way.
        if distance * self.pass <= self.turn {
            0.0
        } else {
            self.settle + self.root * distance.sqrt() + self.linear * distance
        }
    }

    /// Until the place comes round under a head that is there at `now`.
    pub(crate) fn rotation(&self, stroke: f64, now: Ns) -> Ns {
        let turns = (stroke * self.pass - now) / self.turn;
        let wait = turns - turns.floor();
        // What comes round in a millionth of a turn is there.
        if wait > 1.0 - 1e-6 { 0.0 } else { wait * self.turn }
    }

    /// To pass over the bytes from `at`. Both ends lie in one piece of the drive.
    pub(crate) fn transfer(&self, at: u64, len: u64) -> Ns {
        self.transfer_from(at, self.stroke(at), len)
    }

    /// The same, with the stroke of `at`.
    pub(crate) fn transfer_from(&self, at: u64, stroke: f64, len: u64) -> Ns {
        let last = at + len.saturating_sub(1);
        let per_byte = |p: f64| 1.0 / (self.outer - 2.0 * self.half_fall * p);
        // The bandwidth hardly changes within a command; its mean at both ends is exact to rounding.
        let (a, b) = (stroke, self.stroke(last));
        len as f64 * 0.5 * (per_byte(a) + per_byte(b))
    }

    /// How many bytes from `at` pass in `time`.
    pub(crate) fn bytes_in(&self, at: u64, time: Ns) -> u64 {
        (time.max(0.0) * (self.outer - 2.0 * self.half_fall * self.stroke(at))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    fn hgst() -> (Mechanics, u64, u64) {
        let profile = Profile::named("hgst-hsh721414al").unwrap();
        let conventional = u64::from(profile.conventional_zones) * profile.zone_size;
        let params = Params::parse(&profile.parameters).unwrap();
        (Mechanics::new(&params, profile.capacity, conventional), profile.capacity, conventional)
    }

    #[test]
    fn bandwidth_by_place_is_the_tables() {
        let (drive, capacity, conventional) = hgst();
        let mib_s = |at: u64| 1e9 * (1 << 20) as f64 / drive.transfer(at, 1 << 20) / MIB;
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(close(mib_s(conventional), 237.0), "outer: {}", mib_s(conventional));
        assert!(close(mib_s(capacity - (1 << 20)), 2.0 * 170.0 - 237.0), "inner: {}", mib_s(capacity - (1 << 20)));
        assert!(close(mib_s(conventional / 2), 150.0), "conventional: {}", mib_s(conventional / 2));
        // A pass over all of it, piece by piece.
        let piece = 256 << 20;
        let total: Ns = (0..capacity / piece).map(|i| drive.transfer(i * piece, piece)).sum();
        assert!(close(capacity as f64 / total * 1e9 / MIB, 170.0));
    }

    #[test]
    fn streaming_never_misses_and_a_missed_sector_costs_a_turn() {
        let (drive, capacity, _) = hgst();
        let mut at = capacity / 3 / 4096 * 4096;
        let mut now = drive.rotation(drive.stroke(at), 12345.0) + 12345.0;
        for len in [4096_u64, 1 << 20, 64 << 10, 4096, 1 << 20] {
            now += drive.transfer(at, len);
            at += len;
            let wait = drive.rotation(drive.stroke(at), now);
            assert!(wait < 1e3 || drive.turn - wait < 1e3, "in time at {at}: {wait} ns");
            let late = drive.rotation(drive.stroke(at), now + 5e3);
            assert!((drive.turn - late - 5e3).abs() < 1e3, "5 us late: {late} ns");
        }
    }

    #[test]
    fn seeks_grow_with_the_way() {
        let (drive, ..) = hgst();
        assert_eq!(drive.seek(0.5, 0.5), 0.0);
        let ms = |to: f64| drive.seek(0.0, to) / MS;
        assert!((ms(1.0) - 16.0).abs() < 0.01 && (ms(0.01) - (0.5 + 1.236 + 0.0314)).abs() < 0.01);
        assert!([0.01, 0.1, 0.3, 0.9].windows(2).all(|pair| ms(pair[0]) < ms(pair[1])));
    }
}
