//! No decoder panics, whatever it is given.

use imbrex_emulator::{Profile, decode_header, decode_record, decode_ring, decode_time_header, decode_trace_header};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn random_bytes_are_refused_without_a_panic() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for round in 0..3000 {
        let len = [0, 1, 15, 16, 31, 32, 63, 64, 4095, 4096, 5000][round % 11];
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        let magic: &[u8] = [b"IMBRXDRV", b"IMBRXTRC".as_slice(), b"IXPI", b"IMBRXTIM", b"IMBRXTST"][round % 5];
        if len >= 16 {
            bytes[..magic.len()].copy_from_slice(magic);
            bytes[8..12].copy_from_slice(&(1 + round as u32 % 3).to_le_bytes());
        }
        assert!(decode_header(&bytes).is_err());
        assert!(decode_trace_header(&bytes).is_err());
        assert!(decode_record(&bytes).is_none());
        assert!(decode_time_header(&bytes).is_err());
        assert!(imbrex_emulator::time::decode_kept(&bytes).is_none());
        let _ = decode_ring(&bytes, rng.random_range(0..200), rng.random_range(0..6000));
        let _ = Profile::parse(&String::from_utf8_lossy(&bytes));
    }
}
