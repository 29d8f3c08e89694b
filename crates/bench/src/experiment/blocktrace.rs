//! What a kernel asked of a block device, as its trace has it, once more on a drive's [`Timeline`].
//!
//! The trace has the moment at which each request went to the device and the one at which it was answered, and no threads. So a command is
//! taken to follow the latest answer before it, as in `imbrex_emulator::time::Recording`; beyond that it waits for the write before
//! it in its sequential zone, as mq-deadline has it, and a flush for all writes that were answered before it. What the host did in between
//! took as long as the processor of a VM needs; here it takes [`TURNAROUND`] at most, as for all clients.

use super::chunk_write::TURNAROUND;
use super::kernel_chunks::Ran;
use super::virtual_clock::WRITES_SEEN;
use imbrex_emulator::time::{Mechanics, Ticket, Timeline};
use imbrex_emulator::{Config, Op, Profile, TraceEntry};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

/// A request; times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Command {
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) issued: f64,
    answered: f64,
    /// By itself, without a flush.
    durable: bool,
}

/// What the letters of the trace say that it is: `WS`, `FF`, `RA`; `None` for what takes no time of the drive. The error is a sentence.
fn op(letters: &str) -> Result<Option<Op>, String> {
    Ok(match letters {
        "F" | "FF" | "FFS" | "FS" => Some(Op::Flush),
        // Later kernels have letters for operations on zones.
        _ if letters.starts_with("ZA") => {
            return Err("an append to a zone does not say where it went; have the device refuse those".into());
        }
        // Of all zones: no drive takes longer for that than for one.
        _ if letters.starts_with("ZR") => Some(Op::Reset),
        _ if letters.starts_with("ZO") => Some(Op::Open),
        _ if letters.starts_with("ZC") => Some(Op::Close),
        _ if letters.starts_with("ZF") => Some(Op::Finish),
        _ if letters.contains('D') => None,
        _ if letters.contains('W') => Some(Op::Write),
        _ if letters.contains('R') => Some(Op::Read),
        // Linux 6.1 has none.
        _ if letters.starts_with('N') => Some(Op::Reset),
        _ => None,
    })
}

/// What decides when a command goes to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The answers that it followed, as the module says.
    AsAnswered,
    /// Room: so many are at the drive at once, in their order. For reads, which follow nothing but their client's last one.
    AtOnce(usize),
}

/// Understands lines of `block_rq_issue` and `block_rq_complete`. The error is a sentence.
pub(super) fn parse(text: &str) -> Result<Vec<Command>, String> {
    let mut commands: Vec<Command> = Vec::new();
    let mut waiting: HashMap<(Op, u64), VecDeque<usize>> = HashMap::new();
    let bad = |line: &str| format!("a line of the kernel's trace is not understood: {:?}", line.trim());
    for line in text.lines() {
        let (issue, head, rest) = match (line.split_once(" block_rq_issue: "), line.split_once(" block_rq_complete: "))
        {
            (Some((head, rest)), _) => (true, head, rest),
            (None, Some((head, rest))) => (false, head, rest),
            _ => continue,
        };
        let at = head.rsplit(' ').next().and_then(|word| word.trim_end_matches(':').parse::<f64>().ok());
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: Option<usize>| words.get(at?)?.parse::<u64>().ok();
        let plus = words.iter().position(|word| *word == "+");
        let sectors = (number(plus.and_then(|plus| plus.checked_sub(1))), number(plus.map(|plus| plus + 1)));
        let (Some(at), Some(letters), (Some(sector), Some(len))) = (at, words.get(1), sectors) else {
            return Err(bad(line));
        };
        let Some(op) = op(letters)? else { continue };
        // A flush has no place, whatever stands there.
        let sector = if op == Op::Flush { 0 } else { sector };
        if issue {
            waiting.entry((op, sector)).or_default().push_back(commands.len());
            let len = u32::try_from(len << 9).map_err(|_| bad(line))?;
            let durable = letters.split_once('W').is_some_and(|(_, behind)| behind.contains('F'));
            commands.push(Command { op, offset: sector << 9, len, issued: at, answered: f64::INFINITY, durable });
        } else if let Some(number) = waiting.get_mut(&(op, sector)).and_then(VecDeque::pop_front)
            && let Some(command) = commands.get_mut(number)
        {
            if words.last() != Some(&"[0]") {
                return Err(format!("a request of the kernel failed in the VM: {:?}", line.trim()));
            }
            command.answered = at;
        }
    }
    // What was not answered before the trace ended belongs to something else.
    commands.retain(|command| command.answered.is_finite());
    // Behind a write that is to be durable by itself (FUA) a disk gets a flush.
    let durable: Vec<Command> = commands.iter().filter(|one| one.durable).cloned().collect();
    let flush =
        |one: Command| Command { op: Op::Flush, offset: 0, len: 0, issued: one.answered, durable: false, ..one };
    commands.extend(durable.into_iter().map(flush));
    commands.sort_by(|a, b| a.issued.total_cmp(&b.issued));
    Ok(commands)
}

/// Who waits for whom: of each command how many it waits for, and those who wait for it, with the pause then.
fn followed(commands: &[Command], drive: &Drive) -> (Vec<usize>, Vec<Vec<(usize, f64)>>) {
    let mut waits = vec![0; commands.len()];
    let mut followers: Vec<Vec<(usize, f64)>> = vec![Vec::new(); commands.len()];
    let mut by_answer: Vec<usize> = (0..commands.len()).collect();
    by_answer.sort_by(|a, b| commands[*a].answered.total_cmp(&commands[*b].answered));
    let (mut answered, mut last, mut unflushed) = (0, BTreeMap::new(), Vec::new());
    let mut latest: Option<usize> = None;
    for (number, command) in commands.iter().enumerate() {
        while let Some(other) = by_answer.get(answered).filter(|other| commands[**other].answered <= command.issued) {
            if *other < number {
                latest = Some(*other);
            }
            answered += 1;
        }
        let mut before = Vec::new();
        if let Some(latest) = latest {
            before.push((latest, ((command.issued - commands[latest].answered) * 1e9).clamp(0.0, drive.turnaround)));
        }
        match command.op {
            Op::Write => {
                let zone = command.offset / drive.zone_size;
                if zone >= drive.conventional {
                    before.extend(last.insert(zone, number).map(|other| (other, 0.0)));
                }
                unflushed.push(number);
            }
            Op::Flush => unflushed.retain(|write: &usize| {
                let covered = commands[*write].answered <= command.issued;
                before.extend(covered.then_some((*write, 0.0)));
                !covered
            }),
            _ => {}
        }
        waits[number] = before.len();
        before.into_iter().for_each(|(other, pause)| followers[other].push((number, pause)));
    }
    (waits, followers)
}

/// The numbers of the commands that were issued so many seconds after everything before them was answered, ascending.
pub(super) fn behind_pauses(commands: &[Command], seconds: f64) -> Vec<usize> {
    let mut latest = f64::INFINITY;
    let mut behind = Vec::new();
    for (number, command) in commands.iter().enumerate() {
        if command.issued - latest >= seconds {
            behind.push(number);
        }
        latest = if number == 0 { command.answered } else { latest.max(command.answered) };
    }
    behind
}

/// What commands are played on.
pub(super) struct Drive {
    line: Timeline,
    /// Of the device that was traced.
    zone_size: u64,
    conventional: u64,
    /// Nanoseconds that the host takes between an answer and what follows it, at most.
    turnaround: f64,
}

impl Drive {
    /// A drive of `profile`, at rest at its outer edge; the device that was traced had zones of this size, so many of them conventional. The error is
    /// a sentence about the profile.
    pub(super) fn of(profile: &Profile, cache: bool, zone_size: u64, conventional: u64) -> Result<Drive, String> {
        Ok(Drive { line: Timeline::new(profile, cache)?, zone_size, conventional, turnaround: TURNAROUND })
    }

    /// A scaled drive; where its mechanics are scaled, too, its host is faster by as much. The device that was traced had its zones, so many of them conventional.
    /// The error is a sentence about the configuration.
    pub(super) fn scaled(config: &Config, conventional: u64) -> Result<Drive, String> {
        let faster = config.model.filter(|model| model.mechanics == Mechanics::Scaled);
        let turnaround = TURNAROUND / faster.map_or(1.0, |model| f64::from(model.scale));
        Ok(Drive { line: Timeline::of(config)?, zone_size: config.zone_size, conventional, turnaround })
    }
}

/// Plays the commands on a drive; `place` says where a zone of the traced device begins on it.
pub(super) fn play(drive: Drive, commands: &[Command], order: Order, place: impl Fn(u64) -> u64) -> Ran {
    play_over_time(drive, commands, order, place).0
}

/// The same, and for the moments of the trace at which something was answered, ascending, the second of the drive's clock up to which it had all
/// that was answered then.
pub(super) fn play_over_time(
    mut drive: Drive,
    commands: &[Command],
    order: Order,
    place: impl Fn(u64) -> u64,
) -> (Ran, Vec<(f64, f64)>) {
    let (mut waits, followers) = match order {
        Order::AsAnswered => followed(commands, &drive),
        Order::AtOnce(_) => (vec![1; commands.len()], vec![Vec::new(); commands.len()]),
    };
    let Drive { line, zone_size, turnaround, .. } = &mut drive;
    let (zone_size, turnaround) = (*zone_size, *turnaround);
    // Of those that only wait for room: the first ones do not, and each that ends lets the next one in.
    let mut room = if let Order::AtOnce(room) = order { room.clamp(1, commands.len().max(1)) } else { commands.len() };
    waits.iter_mut().take(if order == Order::AsAnswered { 0 } else { room }).for_each(|waits| *waits = 0);
    let mut ready = vec![0.0_f64; commands.len()];
    let roots = (0..commands.len()).filter(|number| waits[*number] == 0);
    // Times that are not negative are in the order of their bits.
    let mut due: BinaryHeap<Reverse<(u64, usize)>> =
        roots.enumerate().map(|(rank, number)| Reverse(((rank as f64 * turnaround).to_bits(), number))).collect();
    let mut flying: Vec<(Ticket, usize)> = Vec::new();
    let (mut end, mut ended) = (0.0_f64, Vec::new());
    let mut zones = Vec::new();
    let mut moments = Vec::with_capacity(commands.len());
    loop {
        flying.retain(|(ticket, number)| match line.completion(*ticket) {
            Some(at) => {
                ended.push((*number, at));
                false
            }
            None => true,
        });
        for (number, at) in ended.drain(..) {
            end = end.max(at);
            moments.push((commands[number].answered, at / 1e9));
            if room < commands.len() {
                due.push(Reverse(((at + turnaround).to_bits(), room)));
                room += 1;
            }
            for (follower, pause) in &followers[number] {
                ready[*follower] = ready[*follower].max(at + pause);
                waits[*follower] -= 1;
                if waits[*follower] == 0 {
                    due.push(Reverse((ready[*follower].to_bits(), *follower)));
                }
            }
        }
        // The drive may begin nothing behind the next arrival: that could be a better choice.
        let next = due.peek().map_or(f64::INFINITY, |Reverse((at, _))| f64::from_bits(*at));
        if !flying.is_empty() && line.step(next) {
            continue;
        }
        let Some(Reverse((at, number))) = due.pop() else { break };
        let (at, command) = (f64::from_bits(at), &commands[number]);
        while line.step(at) {}
        let zone = command.offset / zone_size;
        let offset = place(zone) + command.offset % zone_size;
        if command.op == Op::Write && zones.len() < WRITES_SEEN {
            zones.push((at, u32::try_from(zone).unwrap_or(u32::MAX)));
        }
        let entry = TraceEntry {
            sequence: number as u64,
            op: command.op,
            cause: if command.op == Op::Read { "user_read" } else { "user_write" },
            priority: "normal",
            zone: 0,
            offset: if command.op == Op::Flush { 0 } else { offset },
            len: command.len,
            result: "ok",
        };
        flying.push((line.submit(&entry, at), number));
    }
    let sum = |op: Op| commands.iter().filter(|one| one.op == op).map(|one| u64::from(one.len)).sum();
    let flushes = commands.iter().filter(|one| one.op == Op::Flush).count() as u64;
    moments.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut latest = 0.0_f64;
    for (_, at) in &mut moments {
        latest = latest.max(*at);
        *at = latest;
    }
    let (written, read) = (sum(Op::Write), sum(Op::Read));
    let ran = Ran { seconds: end / 1e9, written, read, flushes, zones, ..Ran::of(&line.stats()) };
    (ran, moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
        segments-101     [001] d..1.    10.000000: block_rq_issue: 252,0 WS 4096 () 524288 + 8 [segments]
        segments-102     [000] d..1.    10.000100: block_rq_issue: 252,0 WS 4096 () 1048576 + 2048 [segments]
          <idle>-0       [000] d.h1.    10.008000: block_rq_complete: 252,0 WS () 524288 + 8 [0]
        segments-101     [001] d..1.    10.012000: block_rq_issue: 252,0 WFSM 8192 () 524296 + 16 [segments]
          <idle>-0       [000] d.h1.    10.016000: block_rq_complete: 252,0 WS () 1048576 + 2048 [0]
          <idle>-0       [000] d.h1.    10.020000: block_rq_complete: 252,0 WFSM () 524296 + 16 [0]
        kworker-9        [001] d..1.    10.021000: block_rq_issue: 252,0 FF 0 () 18446744073709551615 + 0 [kworker]
        kworker-9        [001] d..1.    10.021100: block_rq_issue: 252,0 D 0 () 0 + 8 [kworker]
          <idle>-0       [000] d.h1.    10.029000: block_rq_complete: 252,0 FF () 0 + 0 [0]
        segments-101     [001] d..1.    10.030000: block_rq_issue: 252,0 RA 8192 () 99 + 16 [segments]
";

    fn drive(cache: bool) -> Drive {
        Drive::of(&Profile::named("seagate-st20000nm001j").unwrap(), cache, 256 << 20, 0).unwrap()
    }

    #[test]
    fn pauses_begin_when_everything_is_answered() {
        let command =
            |issued, answered| Command { op: Op::Read, offset: 0, len: 4096, issued, answered, durable: false };
        let commands =
            [command(1.0, 1.1), command(1.2, 6.0), command(4.0, 4.1), command(8.5, 8.6), command(11.0, 11.1)];
        assert_eq!(behind_pauses(&commands, 2.4), [3, 4]);
        assert_eq!(behind_pauses(&commands, 2.45), [3]);
        assert_eq!((behind_pauses(&commands, 9.0), behind_pauses(&[], 1.0)), (vec![], vec![]));
    }

    #[test]
    fn a_trace_is_understood_and_who_waits_for_whom() {
        let commands = parse(TRACE).unwrap();
        let seen: Vec<_> = commands.iter().map(|one| (one.op, one.offset, one.len)).collect();
        let writes =
            [(Op::Write, 256 << 20, 4096), (Op::Write, 512 << 20, 1 << 20), (Op::Write, (256 << 20) + 4096, 8192)];
        let flush = (Op::Flush, 0, 0);
        assert_eq!(seen, [writes[0], writes[1], writes[2], flush, flush], "what was not answered is left out");
        let (waits, followers) = followed(&commands, &drive(false));
        // The third follows the first as the latest answer and as the write before it; the flush behind it all writes and the latest
        // answer, which is one of them; the other flush that one.
        assert_eq!(waits, [0, 0, 2, 4, 1]);
        assert_eq!(followers[0].iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 2, 3]);
        assert_eq!(followers[0][0].1, TURNAROUND, "the VM's processor does not count");
        assert!(parse("x 1.0: block_rq_issue: 252,0 WS nonsense").unwrap_err().contains("nonsense"));
        assert!(parse(&TRACE.replace("+ 8 [0]", "+ 8 [-5]")).unwrap_err().contains("failed"));
    }

    #[test]
    fn later_kernels_have_letters_for_zones() {
        let of = |letters| op(letters).unwrap();
        assert_eq!(["ZR", "ZRA", "ZRS"].map(of), [Some(Op::Reset); 3]);
        assert_eq!(["ZF", "ZO", "ZC"].map(of), [Some(Op::Finish), Some(Op::Open), Some(Op::Close)]);
        assert_eq!(
            ["WFSM", "RA", "N", "D", "FF"].map(of),
            [Some(Op::Write), Some(Op::Read), Some(Op::Reset), None, Some(Op::Flush)]
        );
        assert!(op("ZAS").unwrap_err().contains("append"));
    }

    #[test]
    fn writes_wait_for_one_another_in_sequential_zones_only() {
        let conventional = Drive { conventional: 2, ..drive(false) };
        let (waits, _) = followed(&parse(TRACE).unwrap(), &conventional);
        assert_eq!(waits, [0, 0, 1, 4, 1], "the third follows the latest answer alone");
    }

    #[test]
    fn the_model_decides_how_long_it_takes() {
        let commands = parse(TRACE).unwrap();
        let played = |cache| play(drive(cache), &commands, Order::AsAnswered, |zone| (1000 + zone) << 28);
        let off = played(false);
        assert_eq!((off.written, off.flushes), (4096 + 8192 + (1 << 20), 2));
        assert_eq!(off.zones.iter().map(|(_, zone)| *zone).collect::<Vec<_>>(), [1, 2, 1]);
        // Two zones are opened, and the second write of the first waits for a turn.
        assert!((0.040..0.080).contains(&off.seconds), "{off:?}");
        let apart = play(drive(false), &commands, Order::AsAnswered, |zone| (1000 + zone * 30_000) << 28);
        let reads: Vec<Command> = (0..200)
            .map(|n| Command {
                op: Op::Read,
                offset: n * 7919 % 200 * (256 << 20),
                len: 4096,
                issued: n as f64,
                answered: n as f64 + 0.1,
                durable: false,
            })
            .collect();
        let at_once = |order| play(drive(true), &reads, order, |zone| (1000 + zone * 300) << 28);
        let (one, many) = (at_once(Order::AtOnce(1)), at_once(Order::AtOnce(16)));
        assert!(many.seconds < 0.7 * one.seconds && one.read == 200 * 4096, "{} {}", many.seconds, one.seconds);
        assert_eq!(at_once(Order::AsAnswered).seconds, one.seconds, "as the trace has it");
        assert!(apart.kinds[0] > off.kinds[0] + 0.005, "{} {}", apart.kinds[0], off.kinds[0]);
    }
}
