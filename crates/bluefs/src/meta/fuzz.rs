//! The body of the fuzz target for journals.

use super::{Meta, Record};

/// Takes arbitrary bytes for the contents of a damaged journal: decodes what it can, replays it, with repairs,, and demands
/// that the result is sound and that its snapshot gives it again. Panics when one of these fails.
pub fn fuzz_journal_bytes(mut bytes: &[u8]) {
    let mut meta = Meta::new();
    loop {
        let step = match Record::decode(bytes) {
            Ok((record, len)) => {
                let mut again = Vec::new();
                record.encode(&mut again);
                assert_eq!(bytes.get(..len), Some(&again[..]), "{record:?} is not encoded as it was");
                let _ = meta.apply_repairing(&record);
                Some(len)
            }
            Err(error) => error.skip(),
        };
        match step.and_then(|len| bytes.get(len..)) {
            Some(rest) => bytes = rest,
            None => break,
        }
    }
    let _ = meta.finish_replay();
    assert_eq!(meta.check(), Vec::<String>::new());
    let mut copy = Meta::new();
    let mut encoded = Vec::new();
    for record in meta.snapshot() {
        encoded.clear();
        record.encode(&mut encoded);
        assert_eq!(Record::decode(&encoded), Ok((record.clone(), encoded.len())));
        assert_eq!(copy.apply(&record).map(|effect| effect.freed.len()), Ok(0), "{record:?}");
    }
    assert!(copy == meta, "the snapshot gives another state");
}
