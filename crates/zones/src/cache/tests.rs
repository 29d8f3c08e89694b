use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const PAGE: usize = 4096;

fn cache(pages: u64) -> BlockCache {
    BlockCache::new(pages * (PAGE as u64 + ENTRY_COST), PAGE as u32)
}

/// Large enough to pin, with so many whole pages of file 1.
fn filled(pages: u64) -> BlockCache {
    let cache = BlockCache::new(16 << 20, PAGE as u32);
    for page in 0..pages {
        cache.insert(1, page, &bytes(1, page, 0, PAGE));
    }
    cache
}

/// Pages that never leave.
#[derive(Default)]
struct All(std::sync::Mutex<HashMap<Key, Arc<Page>>>);

impl Pages for All {
    fn get(&self, file: u64, page: u64) -> Option<Arc<Page>> {
        self.0.lock().unwrap().get(&(file, page)).cloned()
    }
    fn insert(&self, file: u64, page: u64, data: Arc<Page>) {
        self.0.lock().unwrap().insert((file, page), data);
    }
    fn remove(&self, file: u64, page: u64) {
        self.0.lock().unwrap().remove(&(file, page));
    }
    fn forget(&self, file: u64, pages: u64) {
        self.0.lock().unwrap().retain(|key, _| key.0 != file || key.1 >= pages);
    }
    fn used_bytes(&self) -> u64 {
        self.0.lock().unwrap().len() as u64 * PAGE as u64
    }
    fn keep_reads(&self) -> bool {
        false
    }
}

fn all(capacity: u64) -> BlockCache {
    BlockCache::by(capacity, PAGE as u32, |weight| {
        assert_eq!(weight, PAGE as u64 + ENTRY_COST);
        Box::<All>::default()
    })
}

#[test]
fn pages_with_a_rule_of_their_own_are_asked_for_all() {
    let cache = all(1 << 20);
    assert!(!cache.keeps_reads() && filled(0).keeps_reads() && !BlockCache::new(0, PAGE as u32).keeps_reads());
    cache.insert(1, 0, &bytes(1, 0, 0, 500));
    cache.insert(1, 0, &bytes(1, 0, 1, 400));
    let mut out = [0; 500];
    assert!(cache.read(1, 0, 0, &mut out) && out[..] == bytes(1, 0, 0, 500), "the longer one stays");
    cache.insert(1, 1, &bytes(1, 1, 0, PAGE));
    cache.insert(1, 2, &bytes(1, 2, 0, PAGE));
    assert_eq!(cache.used_bytes(), 3 * PAGE as u64);
    cache.remove(1, 1);
    cache.forget_file(1, 1);
    assert_eq!([0, 1, 2].map(|page| cache.contains(1, page)), [false, false, true]);
}

/// Bytes that tell file, page, version and place apart.
fn bytes(file: u64, page: u64, version: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (mix(mix(file, page), mix(version, i / 8)) >> (i % 8 * 8)) as u8).collect()
}

#[test]
fn a_read_is_answered_only_by_a_page_that_holds_all_of_it() {
    let cache = cache(100);
    cache.insert(7, 3, &bytes(7, 3, 0, 1000));
    let mut out = [0; 100];
    assert!(cache.read(7, 3, 900, &mut out));
    assert_eq!(out[..], bytes(7, 3, 0, 1000)[900..]);
    out = [5; 100];
    for (file, page, offset) in [(7, 3, 901), (7, 3, usize::MAX), (7, 4, 0), (8, 3, 0)] {
        assert!(!cache.read(file, page, offset, &mut out));
    }
    assert_eq!(out, [5; 100], "a miss leaves the buffer alone");
    assert_eq!((cache.hits(), cache.misses()), (1, 4));
    assert!(cache.contains(7, 3) && !cache.contains(7, 4));
    assert_eq!((cache.hits(), cache.misses()), (1, 4));
}

#[test]
fn a_longer_version_replaces_and_a_shorter_one_does_not() {
    let cache = cache(100);
    let read = |len: usize| {
        let mut out = vec![0; len];
        cache.read(1, 0, 0, &mut out).then_some(out)
    };
    cache.insert(1, 0, &bytes(1, 0, 0, 500));
    let used = cache.used_bytes();
    cache.insert(1, 0, &bytes(1, 0, 1, 400));
    assert_eq!(read(500), Some(bytes(1, 0, 0, 500)));
    cache.insert(1, 0, &bytes(1, 0, 2, 500));
    assert_eq!(read(500), Some(bytes(1, 0, 2, 500)));
    assert_eq!(cache.used_bytes(), used);
    cache.insert(1, 0, &bytes(1, 0, 3, 600));
    assert_eq!(read(600), Some(bytes(1, 0, 3, 600)));
    assert_eq!(cache.used_bytes(), used, "a short page takes a whole buffer");
    cache.insert(1, 1, &[]);
    assert!(!cache.contains(1, 1));
}

#[test]
fn what_is_removed_or_forgotten_is_gone_and_costs_nothing() {
    let cache = cache(100);
    for file in 1..4 {
        for page in 0..10 {
            cache.insert(file, page, &bytes(file, page, 0, PAGE));
        }
    }
    cache.remove(1, 5);
    cache.remove(1, 5);
    cache.forget_file(2, 10);
    cache.forget_file(3, 4);
    cache.forget_file(99, 4);
    for page in 0..10 {
        assert_eq!(cache.contains(1, page), page != 5);
        assert!(!cache.contains(2, page));
        assert_eq!(cache.contains(3, page), page >= 4);
    }
    assert_eq!(cache.used_bytes(), 15 * (PAGE as u64 + ENTRY_COST));
    cache.forget_file(1, 10);
    cache.forget_file(3, 10);
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn capacity_0_is_off() {
    let cache = cache(0);
    cache.insert(1, 1, &bytes(1, 1, 0, PAGE));
    assert!(!cache.read(1, 1, 0, &mut [0]) && !cache.contains(1, 1));
    cache.remove(1, 1);
    cache.forget_file(1, 5);
    assert_eq!((cache.used_bytes(), cache.hits(), cache.misses(), cache.capacity()), (0, 0, 0, 0));
}

#[test]
#[should_panic(expected = "more than a page")]
fn more_than_a_page_is_a_bug_of_the_caller() {
    cache(10).insert(1, 1, &[0; PAGE + 1]);
}

#[test]
fn what_fits_stays_however_it_hashes() {
    // 95 % of a cache of 4,000 pages: no shard may overflow by bad luck.
    let cache = cache(4000);
    for page in 0..3800 {
        cache.insert(page / 100, page % 100, &bytes(0, page, 0, PAGE));
    }
    assert_eq!((0..3800).filter(|page| cache.contains(page / 100, page % 100)).count(), 3800);
}

#[test]
fn pages_that_are_read_again_outlive_a_long_scan() {
    let cache = cache(1000);
    let read = |file, page| cache.read(file, page, 0, &mut [0; 16]);
    for round in 0..3 {
        for page in 0..200 {
            if !read(1, page) {
                assert_eq!(round, 0);
                cache.insert(1, page, &bytes(1, page, 0, PAGE));
            }
        }
    }
    for page in 0..20_000 {
        assert!(!read(2, page));
        cache.insert(2, page, &bytes(2, page, 0, PAGE));
    }
    let kept = (0..200).filter(|page| cache.contains(1, *page)).count();
    assert!(kept >= 190, "only {kept} of 200");
}

#[test]
fn what_was_just_written_is_there_for_the_compaction_that_follows() {
    // A full cache of pages that nobody reads; then a new file of a third of the capacity.
    let cache = cache(1000);
    for page in 0..5000 {
        cache.insert(1, page, &bytes(1, page, 0, PAGE));
    }
    for page in 0..330 {
        cache.insert(2, page, &bytes(2, page, 0, PAGE));
    }
    let kept = (0..330).filter(|page| cache.contains(2, *page)).count();
    assert!(kept >= 325, "only {kept} of 330");
}

#[test]
fn the_same_calls_leave_the_same_pages() {
    let run = || {
        let cache = cache(300);
        for i in 0..5000u64 {
            let page = mix(i, 1) % 700;
            if !cache.read(page / 50, page % 50, 0, &mut [0; 8]) {
                cache.insert(page / 50, page % 50, &bytes(0, page, 0, PAGE));
            }
        }
        (0..700).map(|page| cache.contains(page / 50, page % 50)).collect::<Vec<_>>()
    };
    let first = run();
    assert!(first.contains(&true) && first.contains(&false));
    assert_eq!(first, run());
}

#[test]
fn threads_never_see_a_wrong_byte() {
    let cache = cache(200);
    let hits: u64 = std::thread::scope(|scope| {
        let work = |seed: u64| {
            let (cache, mut hits) = (&cache, 0);
            move || {
                let mut out = vec![0; PAGE];
                for i in 0..20_000u64 {
                    let random = mix(seed, i);
                    let (file, page) = (random % 7, random / 7 % 60);
                    let len = 1 + (random >> 20) as usize % PAGE;
                    match random >> 58 {
                        0 => cache.remove(file, page),
                        1 if random.is_multiple_of(50) => cache.forget_file(file, 60),
                        2..20 => cache.insert(file, page, &bytes(file, page, 0, len)),
                        _ => {
                            let offset = len / 2;
                            if cache.read(file, page, offset, &mut out[offset..len]) {
                                hits += 1;
                                assert_eq!(out[offset..len], bytes(file, page, 0, len)[offset..]);
                            }
                        }
                    }
                    if random.is_multiple_of(64) {
                        assert!(cache.used_bytes() <= cache.capacity() + 4096);
                    }
                }
                hits
            }
        };
        let threads: Vec<_> = (1..5).map(|seed| scope.spawn(work(seed))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(cache.hits(), hits);
    assert!(hits > 1000, "{hits} hits prove little");
}

#[derive(Clone, Debug)]
enum Op {
    Read(u64, u64, usize, usize),
    Insert(u64, u64, usize),
    Remove(u64, u64),
    Forget(u64, u64),
}

#[test]
fn a_view_is_the_cached_page_itself_and_outlives_it() {
    let cache = filled(10);
    let views = cache.views(10 * PAGE as u64 + 100);
    let view = cache.view(&views, 1, 3 * PAGE as u64 + 100, 1000).unwrap();
    assert_eq!(view, &bytes(1, 3, 0, PAGE)[100..1100]);
    let again = cache.view(&views, 1, 3 * PAGE as u64, PAGE).unwrap();
    assert_eq!(again.as_ptr(), view.as_ptr().wrapping_sub(100), "no copy");
    assert_eq!(cache.hits(), 2);
    let held = cache.pinned_bytes();
    assert!(held > PAGE as u64 && held < 3 * PAGE as u64, "{held}");

    cache.remove(1, 3);
    cache.insert(1, 3, &bytes(1, 3, 1, PAGE));
    assert_eq!(view, &bytes(1, 3, 0, PAGE)[100..1100], "as it was");
    let mut out = [0; 10];
    assert!(cache.read_pinned(&views, 1, 3, 100, &mut out) && out == view[..10]);
    assert!(!cache.read_pinned(&views, 1, 4, 100, &mut out), "it is cached, but not held");

    // Not in the cache, the last page that is not whole, and what makes no sense.
    cache.insert(1, 10, &[1; 100]);
    for at in [10 * PAGE as u64, 11 * PAGE as u64, u64::MAX, u64::MAX - 5] {
        assert!(cache.view(&views, 1, at, 10).is_none());
    }
    assert!(cache.view(&views, 1, 0, usize::MAX).is_none() && cache.view(&views, 1, 0, 3 * PAGE).is_none());
    assert!(cache.view(&views, 2, 20, 10).is_none(), "of another file nothing is there");
    drop(views);
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn a_range_across_two_pages_is_copied_once() {
    let cache = filled(10);
    cache.remove(1, 8);
    let views = cache.views(10 * PAGE as u64);
    let at = 5 * PAGE as u64 - 7;
    let view = cache.view(&views, 1, at, 50).unwrap();
    assert_eq!(view[..7], bytes(1, 4, 0, PAGE)[PAGE - 7..]);
    assert_eq!(view[7..], bytes(1, 5, 0, PAGE)[..43]);
    assert_eq!(cache.view(&views, 1, at, 50).unwrap().as_ptr(), view.as_ptr());
    assert!(cache.view(&views, 1, at, 51).is_none() && cache.view(&views, 1, at + 1, 49).is_none(), "another range");
    assert!(cache.view(&views, 1, 8 * PAGE as u64 - 1, 2).is_none(), "half of it is not there");
    drop(views);
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn what_is_appended_stands_together_and_a_nearly_full_cache_gives_no_spans() {
    let cache = BlockCache::new(32 << 20, PAGE as u32);
    let span = cache.span_size() as usize;
    let append = |file: u64, len: usize| {
        let all = bytes(file, 0, 0, len);
        let mut filling = Filling::default();
        for (i, piece) in all.chunks(PAGE * 5 / 3).enumerate() {
            cache.append(&mut filling, file, (i * (PAGE * 5 / 3)) as u64, piece);
        }
        cache.end(&mut filling, file);
        (all, cache.views(len as u64))
    };
    let (all, views) = append(1, 3 * span + PAGE + 10);
    for (i, expected) in all.chunks(span).enumerate() {
        assert!(cache.span(&views, 1, i as u64).unwrap() == expected, "span {i}");
    }
    assert!(cache.span(&views, 1, 4).is_none() && cache.pinned_bytes() > all.len() as u64);
    // Held when they are not cached any more.
    cache.forget_file(1, 100);
    let mut out = [0; 100];
    assert!(cache.read_pinned(&views, 1, 20, 7, &mut out) && out == all[20 * PAGE + 7..][..100]);
    assert!(cache.view(&views, 1, 2 * PAGE as u64 - 50, 100).unwrap() == &all[2 * PAGE - 50..][..100]);
    drop(views);
    assert_eq!(cache.pinned_bytes(), 0);

    // A gap costs its page, and with it the run.
    let mut filling = Filling::default();
    let all = bytes(2, 0, 0, 2 * span);
    cache.append(&mut filling, 2, 0, &all[..PAGE + 5]);
    cache.append(&mut filling, 2, PAGE as u64 + 6, &all[PAGE + 6..]);
    let views = cache.views(all.len() as u64);
    assert!(cache.contains(2, 0) && !cache.contains(2, 1) && cache.contains(2, 2));
    assert!(cache.span(&views, 2, 0).is_none() && cache.span(&views, 2, 1).unwrap() == &all[span..]);

    for page in 0..9000 {
        cache.insert(3, page, &[3; PAGE]);
    }
    let (_, full) = append(4, span);
    assert!(cache.contains(4, 0) && cache.span(&full, 4, 0).is_none());
    assert!(cache.held_bytes() <= (32 << 20) + (1 << 20), "{}", cache.held_bytes());
}

#[test]
fn a_stream_pins_nothing_behind_its_first_range() {
    let cache = filled(100);
    let views = cache.views(100 * PAGE as u64);
    let seen = (0..100).filter(|i| cache.view(&views, 1, i * 1000, 1000).is_some()).count();
    // The first, and those in the page that it pinned.
    assert_eq!(seen, 4);
}

#[test]
fn at_most_half_is_pinned_and_the_rest_makes_room() {
    let capacity = 16 << 20;
    let cache = filled(6000);
    let pages = capacity / (PAGE as u64 + ENTRY_COST);
    let views = cache.views(6000 * PAGE as u64);
    // Backwards, which is no stream.
    let viewed =
        (0..6000).rev().filter(|page| cache.view(&views, 1, page * PAGE as u64 + 9, 50).is_some()).count() as u64;
    assert!((pages * 2 / 5..=pages / 2).contains(&viewed), "{viewed} of {pages}");
    assert!(cache.pinned_bytes() <= capacity / 2);
    // What is pinned does not leave, and other pages have the other half.
    for page in 0..6000 {
        cache.insert(2, page, &bytes(2, page, 0, PAGE));
        assert!(cache.used_bytes() <= capacity + capacity / 100, "{}", cache.used_bytes());
    }
    let others = (0..6000).filter(|page| cache.contains(2, *page)).count() as u64;
    assert!((pages * 2 / 5..=pages * 11 / 20).contains(&others), "{others} of {pages}");
    let again =
        (0..6000).rev().filter(|page| cache.view(&views, 1, page * PAGE as u64 + 9, 50).is_some()).count() as u64;
    assert_eq!(again, viewed);

    // Copies have a quarter of that.
    let (cache, before) = (filled(3000), viewed);
    let views = cache.views(3000 * PAGE as u64);
    let half = PAGE as u64 / 2;
    let copies =
        (0..2999).rev().filter(|page| cache.view(&views, 1, page * PAGE as u64 + half, PAGE).is_some()).count() as u64;
    assert!((before / 5..=before / 3).contains(&copies), "{copies} copies, {before} pages");

    // Given back, all of it is there for others.
    drop(views);
    for page in 0..6000 {
        cache.insert(2, page, &bytes(2, page, 0, PAGE));
    }
    let there = [1, 2].map(|file| (0..6000).filter(|page| cache.contains(file, *page)).count() as u64);
    assert!(there[0] + there[1] > pages * 9 / 10, "{there:?} of {pages}");
}

/// A page is charged once, pinned or not: else a cache half of which is pinned would hold a half of the other half.
#[test]
fn what_is_pinned_and_what_is_cached_fill_the_cache_together() {
    let capacity = 16 << 20;
    let cache = filled(6000);
    let pages = capacity / (PAGE as u64 + ENTRY_COST);
    let views = cache.views(6000 * PAGE as u64);
    (0..6000).rev().for_each(|page| _ = cache.view(&views, 1, page * PAGE as u64 + 9, 50));
    // As readers do: what is pinned or cached is found, all else is read and inserted.
    let there = |page: u64| cache.is_pinned(&views, page) || cache.contains(1, page);
    for page in (0..6000).filter(|page| !there(*page)) {
        cache.insert(1, page, &bytes(1, page, 0, PAGE));
    }
    assert!(cache.pinned_bytes() >= capacity / 4, "{}", cache.pinned_bytes());
    assert!((0..6000).all(|page| !(cache.is_pinned(&views, page) && cache.contains(1, page))));
    let held = (0..6000).filter(|page| there(*page)).count() as u64;
    assert!(held >= pages * 9 / 10, "{held} of {pages}");
}

#[test]
fn threads_that_pin_the_same_pages_see_right_bytes_and_give_all_back() {
    let cache = filled(500);
    let views = cache.views(500 * PAGE as u64);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, views) = (&cache, &views);
            scope.spawn(move || {
                for i in 0..2000 {
                    let at = mix(i, thread / 2) % (498 * PAGE as u64);
                    if let Some(view) = cache.view(views, 1, at, 3000) {
                        let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
                        let expected = [bytes(1, page, 0, PAGE), bytes(1, page + 1, 0, PAGE)].concat();
                        assert_eq!(view, &expected[skip..skip + 3000]);
                    }
                }
            });
        }
    });
    assert!(cache.hits() > 2000);
    drop(views);
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn small_caches_and_those_with_a_rule_of_their_own_pin_nothing() {
    let caches = [BlockCache::new(0, PAGE as u32), BlockCache::new(8 << 20, PAGE as u32), all(16 << 20)];
    for cache in caches {
        cache.insert(1, 0, &[1; PAGE]);
        let views = cache.views(PAGE as u64);
        assert!(cache.view(&views, 1, 0, 10).is_none() && cache.pinned_bytes() == 0);
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    let (file, page, len) = (0..4u64, 0..20u64, 0..=PAGE);
    prop_oneof![
        4 => (file.clone(), page.clone(), len.clone(), len.clone()).prop_map(|(f, p, o, l)| Op::Read(f, p, o, l)),
        5 => (file.clone(), page.clone(), len).prop_map(|(f, p, l)| Op::Insert(f, p, l)),
        1 => (file.clone(), page.clone()).prop_map(|(f, p)| Op::Remove(f, p)),
        1 => (file, page).prop_map(|(f, p)| Op::Forget(f, p)),
    ]
}

proptest! {
    /// Every byte that is read is the last that was inserted there, and nothing that was removed comes back. With room for
    /// all (`pages` 100) every read that the model answers is answered.
    #[test]
    fn behaves_like_a_map(
        ops in prop::collection::vec(any_op(), 1..200),
        pages in prop_oneof![Just(6u64), Just(100)],
    ) {
        let cache = cache(pages);
        let mut model: HashMap<Key, Vec<u8>> = HashMap::new();
        for (version, op) in ops.into_iter().enumerate() {
            match op {
                Op::Read(file, page, offset, len) => {
                    let mut out = vec![0; len];
                    let expected = model.get(&(file, page)).and_then(|data| data.get(offset..offset + len));
                    if cache.read(file, page, offset, &mut out) {
                        prop_assert_eq!(Some(&out[..]), expected);
                    } else {
                        prop_assert!(pages < 100 || expected.is_none());
                    }
                }
                Op::Insert(file, page, len) => {
                    let data = bytes(file, page, version as u64, len);
                    // A small cache may have lost the longer version that would make it drop this one.
                    let dropped = model.get(&(file, page)).is_some_and(|held| held.len() > len);
                    if len > 0 && !(dropped && cache.contains(file, page)) {
                        model.insert((file, page), data.clone());
                    }
                    cache.insert(file, page, &data);
                }
                Op::Remove(file, page) => {
                    model.remove(&(file, page));
                    cache.remove(file, page);
                }
                Op::Forget(file, pages) => {
                    model.retain(|key, _| key.0 != file || key.1 >= pages);
                    cache.forget_file(file, pages);
                }
            }
            prop_assert!(cache.used_bytes() <= cache.capacity() + 64);
        }
        if pages == 100 {
            prop_assert_eq!(cache.used_bytes(), model.len() as u64 * (PAGE as u64 + ENTRY_COST));
        }
    }
}
