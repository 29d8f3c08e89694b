use super::*;
use proptest::prelude::*;

fn member(n: u64) -> Member {
    Member { id: ChunkId::of_number(n), serial: n + 100 }
}

fn entry(name: &str, number: u64, chunks: &[u64]) -> NameEntry {
    NameEntry { name: name.into(), number, members: chunks.iter().map(|n| member(*n)).collect() }
}

fn all(names: &Names) -> Vec<(String, Vec<u64>)> {
    let number = |member: &Member| member.serial - 100;
    names.range(None).map(|(name, members)| (name.to_string(), members.iter().map(number).collect())).collect()
}

#[test]
fn a_naming_replaces_and_renames() {
    let mut names = Names::default();
    names.apply(entry("a", 1, &[1, 2]));
    names.apply(entry("b", 2, &[3]));
    assert_eq!(names.of(ChunkId::of_number(2)), Some((&"a".into(), 1, 2)));
    // Another chunk for the name; another name for a chunk, which costs the first all its chunks.
    names.apply(entry("b", 3, &[4]));
    assert_eq!((names.of(ChunkId::of_number(3)), names.len()), (None, 2));
    names.apply(entry("c", 4, &[2]));
    assert_eq!(all(&names), [("b".into(), vec![4]), ("c".into(), vec![2])]);
    // A later chunk of this id is another one.
    names.forget(ChunkId::of_number(2), 9);
    names.end("b", 2);
    assert_eq!(names.len(), 2);
    names.forget(ChunkId::of_number(2), 102);
    names.end("b", 3);
    assert!(names.is_empty() && names.bytes() == 0 && names.problems().is_empty());
}

#[test]
fn names_whose_chunks_are_gone_are_told() {
    let mut names = Names::default();
    names.apply(entry("a", 1, &[1, 2]));
    names.apply(entry("b", 2, &[3]));
    assert_eq!(names.retain(|one| *one != member(2)), [entry("a", 1, &[1, 2])]);
    assert_eq!(all(&names), [("b".into(), vec![3])]);
}

#[derive(Clone, Debug)]
enum Step {
    Name(u8, Vec<u64>),
    End(u8),
    Delete(u64),
}

fn a_step() -> impl Strategy<Value = Step> {
    let chunks = proptest::collection::hash_set(0u64..6, 1..4).prop_map(|set| set.into_iter().collect());
    prop_oneof![
        4 => (0u8..4, chunks).prop_map(|(name, chunks)| Step::Name(name, chunks)),
        1 => (0u8..4).prop_map(Step::End),
        2 => (0u64..6).prop_map(Step::Delete),
    ]
}

/// What the journal holds of the steps.
enum Logged {
    Named(NameEntry),
    Unnamed(Arc<str>, u64),
    Deleted(u64),
}

fn replay(names: &mut Names, logged: &Logged) {
    match logged {
        Logged::Named(entry) => names.apply(entry.clone()),
        Logged::Unnamed(name, number) => names.end(name, *number),
        Logged::Deleted(n) => names.forget(member(*n).id, member(*n).serial),
    }
}

proptest! {
    /// Whatever a checkpoint has seen, piece by piece while namings went on, replaying the journal from its start on gives what there is.
    #[test]
    fn a_journal_replayed_over_any_checkpoint_is_the_same(
        steps in proptest::collection::vec(a_step(), 1..24),
        begin in 0usize..24,
        pieces in proptest::collection::vec(0usize..24, 4),
    ) {
        let mut live = Names::default();
        let mut journal = Vec::new();
        let begin = begin.min(steps.len());
        let mut seen = Names::default();
        let (mut pieces, mut after): (Vec<usize>, Option<Arc<str>>) = (pieces, None);
        pieces.sort_unstable();
        for number in 0..=steps.len() {
            // A piece: the next name in order, as it is at this moment. The last ones come at the end.
            for _ in pieces.iter().filter(|at| number >= begin && (**at).clamp(begin, steps.len()) == number) {
                let next = live.range(after.as_deref()).next().map(|(name, _)| name.clone());
                let Some(name) = next else { break };
                seen.apply(live.entry(&name).unwrap());
                after = Some(name);
            }
            let Some(step) = steps.get(number) else { break };
            let logged = match step {
                Step::Name(name, chunks) => Logged::Named(entry(&name.to_string(), number as u64 + 1, chunks)),
                Step::End(name) => {
                    let name: Arc<str> = name.to_string().into();
                    let number = live.entry(&name).map_or(0, |entry| entry.number);
                    Logged::Unnamed(name, number)
                }
                Step::Delete(n) => Logged::Deleted(*n),
            };
            replay(&mut live, &logged);
            prop_assert_eq!(live.problems(), Vec::<String>::new());
            journal.push(logged);
        }
        while let Some(name) = live.range(after.as_deref()).next().map(|(name, _)| name.clone()) {
            seen.apply(live.entry(&name).unwrap());
            after = Some(name);
        }
        journal[begin..].iter().for_each(|logged| replay(&mut seen, logged));
        prop_assert_eq!(all(&seen), all(&live));
        prop_assert_eq!(seen.bytes(), live.bytes());
        prop_assert_eq!(seen.problems(), Vec::<String>::new());
    }
}
