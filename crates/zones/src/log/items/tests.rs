use super::*;
use proptest::prelude::*;

fn batch(items: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::default();
    items.iter().for_each(|item| batch.push(|to| to.extend(item)));
    batch
}

/// Puts together what is in these frames; `None` stands for a frame that is missing.
fn assembled(batch: &Batch, cuts: &[Option<Cut>]) -> Vec<Vec<u8>> {
    let (mut assembler, mut found) = (Assembler::default(), Vec::new());
    for cut in cuts {
        match cut {
            Some(cut) => {
                let bytes = &batch.bytes()[cut.bytes.clone()];
                assert!(assembler.put(cut.first, bytes, &mut |item| found.push(item.to_vec())));
            }
            None => assembler.gap(),
        }
    }
    found
}

fn items() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let sizes = prop_oneof![4 => 0usize..40, 1 => 40usize..400];
    proptest::collection::vec((any::<u8>(), sizes).prop_map(|(byte, size)| vec![byte; size]), 0..12)
}

proptest! {
    #[test]
    fn what_is_cut_comes_together_again(items in items(), most in 1usize..150) {
        let batch = batch(&items);
        let cuts = batch.cut(most);
        let mut at = 0;
        for cut in &cuts {
            prop_assert!(cut.bytes.start == at && !cut.bytes.is_empty() && cut.bytes.len() <= most);
            prop_assert!(cut.first <= cut.bytes.len() && cut.item <= at);
            at = cut.bytes.end;
        }
        prop_assert_eq!(at, batch.len());
        // Nothing but an item that is longer than a frame stands in two.
        let mut start = 0;
        for item in &items {
            let place = start..start + item.len() + LENGTH;
            let frames = cuts.iter().filter(|cut| cut.bytes.start < place.end && place.start < cut.bytes.end).count();
            prop_assert!(frames == 1 || place.len() > most);
            start = place.end;
        }
        let all: Vec<Option<Cut>> = cuts.into_iter().map(Some).collect();
        prop_assert_eq!(assembled(&batch, &all), items);
    }

    /// A missing frame costs the items in it, and no others.
    #[test]
    fn a_missing_frame_costs_what_stands_in_it(items in items(), most in 1usize..150, which in any::<prop::sample::Index>()) {
        let batch = batch(&items);
        let mut cuts: Vec<Option<Cut>> = batch.cut(most).into_iter().map(Some).collect();
        prop_assume!(!cuts.is_empty());
        let lost = which.index(cuts.len());
        let gone = cuts[lost].take().unwrap().bytes;
        let mut start = 0;
        let mut left = items;
        left.retain(|item| {
            let place = start..start + item.len() + LENGTH;
            start = place.end;
            place.end <= gone.start || gone.end <= place.start
        });
        prop_assert_eq!(assembled(&batch, &cuts), left);
    }

    /// A writer that failed within an item writes all of the item anew.
    #[test]
    fn an_item_is_written_anew_from_its_beginning(items in items(), most in 1usize..150, which in any::<prop::sample::Index>()) {
        let mut rest = batch(&items);
        let cuts = rest.cut(most);
        prop_assume!(!cuts.is_empty());
        let failed = which.index(cuts.len());
        let (mut assembler, mut found) = (Assembler::default(), Vec::new());
        for cut in &cuts[..failed] {
            assembler.put(cut.first, &rest.bytes()[cut.bytes.clone()], &mut |item| found.push(item.to_vec()));
        }
        rest.drop_front(cuts[failed].item);
        for cut in rest.cut(most) {
            assembler.put(cut.first, &rest.bytes()[cut.bytes.clone()], &mut |item| found.push(item.to_vec()));
        }
        prop_assert_eq!(found, items);
    }

    #[test]
    fn arbitrary_frames_never_panic(frames in proptest::collection::vec((0usize..40, proptest::collection::vec(0u8..6, 0..40)), 0..8)) {
        let mut assembler = Assembler::default();
        for (first, bytes) in frames {
            let whole = assembler.put(first, &bytes, &mut |item| assert!(item.len() < 400));
            prop_assert!(whole || first > 0);
        }
    }
}
