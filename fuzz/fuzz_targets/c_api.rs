//! The C API: any sequence of calls with any arguments that its contract allows, through the real functions, on a drive in
//! memory. No call ends in IMBREX_PANIC or takes more memory than the drive has; every error has a code and a sentence;
//! nothing behind `got` is touched; closed files refuse, and what was appended is read back.
//!
//! Input: calls, each a number and the bytes of its arguments. Handles are kept in slots, some of which are NULL. A URI is
//! the rest of the input behind call 255.

#![no_main]

use imbrex::*;
use libfuzzer_sys::fuzz_target;
use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

const URI: &CStr = c"imbrex://mem:?profile=tiny&size=24M&survivor-size=1M&cache=1M";
const SLOTS: usize = 4;
/// Calls of one input.
const MOST_CALLS: usize = 200;
/// Bytes of one append or read.
const MOST_BYTES: usize = 96 << 10;
const UNTOUCHED: u8 = 0xa5;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number: small, near a power of two, or anything.
    fn number(&mut self) -> u64 {
        match self.byte() {
            kind @ 0..100 => u64::from(kind),
            kind @ 100..200 => {
                let power = 1u64 << (kind % 64);
                power.wrapping_add(u64::from(self.byte())).wrapping_sub(128)
            }
            200..230 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            230 => u64::MAX,
            _ => (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte())),
        }
    }

    fn len(&mut self) -> usize {
        (self.number() % (MOST_BYTES as u64 + 1)) as usize
    }

    /// Paths that meet each other, that are no paths, that are no text; NULL is `None`.
    fn path(&mut self) -> Option<CString> {
        let kind = self.byte();
        let known: [&[u8]; 16] = [
            b"/a",
            b"/a.log",
            b"/000001.log",
            b"/000002.sst",
            b"/d",
            b"/d/CURRENT",
            b"/d/MANIFEST-000001",
            b"/d/000003.sst",
            b"/d/e",
            b"/d/e/000004.log",
            b"/",
            b"",
            b"//d/./e/",
            b"/d/../a",
            b"/caf\xe9",
            b"LOCK",
        ];
        let bytes = match kind {
            0..224 => known[usize::from(kind) % known.len()].to_vec(),
            224..232 => return None,
            232..240 => [b"/", vec![b'n'; self.number() as usize % 5000].as_slice()].concat(),
            240..248 => b"/d".repeat(self.number() as usize % 3000),
            _ => {
                let n = usize::from(self.byte()).min(self.0.len());
                let (bytes, rest) = self.0.split_at(n);
                self.0 = rest;
                bytes.iter().copied().filter(|byte| *byte != 0).collect()
            }
        };
        CString::new(bytes).ok()
    }
}

fn pointer(path: &Option<CString>) -> *const c_char {
    path.as_ref().map_or(null(), |path| path.as_ptr())
}

/// Looks at an error and gives it back; whether there was none.
fn fine(error: *mut imbrex_error) -> bool {
    // SAFETY: NULL or an error of the library, freed once.
    unsafe {
        let code = imbrex_error_code(error);
        let message = CStr::from_ptr(imbrex_error_message(error)).to_str().expect("UTF-8");
        assert_eq!(error.is_null(), code == imbrex_code::IMBREX_OK);
        assert_eq!(error.is_null(), message.is_empty());
        assert!(code != imbrex_code::IMBREX_PANIC && code != imbrex_code::IMBREX_FORKED_CHILD, "{message}");
        imbrex_error_free(error);
        code == imbrex_code::IMBREX_OK
    }
}

/// Reads by `read`, and sees that no byte behind what was read is touched.
fn read(len: usize, read: impl FnOnce(*mut std::ffi::c_void, *mut usize) -> *mut imbrex_error) {
    let mut buf = vec![UNTOUCHED; len + 16];
    let mut got = usize::MAX;
    if fine(read(buf.as_mut_ptr().cast(), &mut got)) {
        assert!(got <= len, "{got} of {len} bytes");
        assert!(buf[len..].iter().all(|byte| *byte == UNTOUCHED), "bytes behind the buffer");
    } else {
        assert_eq!(got, usize::MAX, "an output of a call that failed");
    }
}

#[derive(Default)]
struct Handles {
    fs: Vec<*mut imbrex_fs>,
    writers: [(*mut imbrex_writer, bool); SLOTS],
    readers: [*mut imbrex_reader; SLOTS],
    files: [(*mut imbrex_random, bool); SLOTS],
    locks: [*mut imbrex_lock; SLOTS],
    list: *mut imbrex_list,
}

// SAFETY: of all calls below: handles are NULL or live and in one slot, strings end with zero, buffers have their lengths.
impl Handles {
    fn names(&mut self, fs: *mut imbrex_fs, call: u8, input: &mut Input) {
        let (from, to) = (input.path(), input.path());
        let (from, to) = (pointer(&from), pointer(&to));
        // SAFETY: as above.
        unsafe {
            match call {
                0 => fine(imbrex_fs_mkdir(fs, from)),
                1 => fine(imbrex_fs_rmdir(fs, from)),
                2 => fine(imbrex_fs_unlink(fs, from)),
                3 => fine(imbrex_fs_rename(fs, from, to)),
                4 => fine(imbrex_fs_link(fs, from, to)),
                5 => fine(imbrex_fs_sync_directory(fs, from)),
                6 => fine(imbrex_fs_truncate(fs, from, input.number())),
                7 => {
                    let mut attributes = std::mem::MaybeUninit::uninit();
                    fine(imbrex_fs_stat(fs, from, attributes.as_mut_ptr()))
                }
                8 => {
                    imbrex_list_free(std::mem::replace(&mut self.list, null_mut()));
                    fine(imbrex_fs_list(fs, from, &mut self.list))
                }
                9 => {
                    let (index, mut out) = (input.number() as usize, std::mem::MaybeUninit::uninit());
                    imbrex_list_attributes(self.list, index, out.as_mut_ptr());
                    imbrex_list_name(self.list, index).is_null() == (index >= imbrex_list_len(self.list))
                }
                10 => {
                    let (mut space, mut advice) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::uninit());
                    fine(imbrex_fs_space(fs, space.as_mut_ptr())) && fine(imbrex_fs_advise(fs, advice.as_mut_ptr()))
                }
                11 => {
                    let clone = imbrex_fs_clone(fs);
                    if self.fs.len() < SLOTS {
                        self.fs.push(clone)
                    } else {
                        imbrex_fs_close(clone)
                    }
                    true
                }
                _ => {
                    let slot = &mut self.locks[usize::from(call) % SLOTS];
                    imbrex_lock_free(std::mem::replace(slot, null_mut()));
                    fine(imbrex_fs_lock(fs, from, slot))
                }
            };
        }
    }

    fn writer(&mut self, fs: *mut imbrex_fs, call: u8, input: &mut Input) {
        let (writer, closed) = &mut self.writers[usize::from(input.byte()) % SLOTS];
        // SAFETY: as above.
        unsafe {
            match call {
                0 | 1 => {
                    imbrex_writer_free(std::mem::replace(writer, null_mut()));
                    let path = input.path();
                    let open = if call == 0 { imbrex_writer_create } else { imbrex_writer_reopen };
                    fine(open(fs, pointer(&path), writer));
                    *closed = false;
                }
                2..6 => {
                    let data = vec![input.byte(); input.len()];
                    let before = imbrex_writer_size(*writer);
                    if fine(imbrex_writer_append(*writer, data.as_ptr().cast(), data.len())) {
                        assert!(!*closed || data.is_empty(), "an append to a closed file");
                        assert_eq!(imbrex_writer_size(*writer), before + data.len() as u64);
                    }
                }
                6 => assert!(!fine(imbrex_writer_append(*writer, null(), input.len().max(1)))),
                7 => drop(fine(imbrex_writer_sync(*writer))),
                8 => drop(fine(imbrex_writer_truncate(*writer, input.number()))),
                9 => drop(fine(imbrex_writer_preallocate(*writer, input.number()))),
                10 => drop(fine(imbrex_writer_set_hint(*writer, input.number() as u32))),
                11 => drop(fine(imbrex_writer_set_priority(*writer, input.number() as u32))),
                12 => *closed |= fine(imbrex_writer_close(*writer)),
                13 => imbrex_writer_free(std::mem::replace(writer, null_mut())),
                _ => drop((imbrex_writer_size(*writer), imbrex_writer_serial(*writer))),
            }
        }
    }

    fn reader(&mut self, fs: *mut imbrex_fs, call: u8, input: &mut Input) {
        let reader = &mut self.readers[usize::from(input.byte()) % SLOTS];
        // SAFETY: as above.
        unsafe {
            match call {
                0 | 1 => {
                    imbrex_reader_free(std::mem::replace(reader, null_mut()));
                    let path = input.path();
                    fine(imbrex_reader_open(fs, pointer(&path), reader));
                }
                2..5 => {
                    let (offset, len) = (input.number(), input.len());
                    read(len, |buf, got| imbrex_reader_read(*reader, offset, buf, len, got));
                }
                5 => assert!(!fine(imbrex_reader_read(*reader, 0, null_mut(), input.len().max(1), &mut 0))),
                6 => drop(fine(imbrex_reader_readahead(*reader, input.number(), input.number()))),
                7 => drop(fine(imbrex_reader_set_pattern(*reader, input.number() as u32))),
                8 => imbrex_reader_free(std::mem::replace(reader, null_mut())),
                _ => drop((imbrex_reader_size(*reader), imbrex_reader_serial(*reader))),
            }
        }
    }

    fn file(&mut self, fs: *mut imbrex_fs, call: u8, input: &mut Input) {
        let (file, closed) = &mut self.files[usize::from(input.byte()) % SLOTS];
        // SAFETY: as above.
        unsafe {
            match call {
                0 | 1 => {
                    imbrex_random_free(std::mem::replace(file, null_mut()));
                    let path = input.path();
                    fine(imbrex_random_open(fs, pointer(&path), input.byte() & 1 == 1, file));
                    *closed = false;
                }
                2..4 => {
                    let (offset, len) = (input.number(), input.len());
                    read(len, |buf, got| imbrex_random_read(*file, offset, buf, len, got));
                }
                4..7 => {
                    let (offset, data) = (input.number(), vec![input.byte(); input.len()]);
                    let written = fine(imbrex_random_write(*file, offset, data.as_ptr().cast(), data.len()));
                    assert!(!written || !*closed || data.is_empty(), "a write to a closed file");
                    if written && !data.is_empty() {
                        let (mut back, mut got) = (vec![0; data.len()], 0);
                        let read = imbrex_random_read(*file, offset, back.as_mut_ptr().cast(), back.len(), &mut got);
                        assert!(!fine(read) || back[..got] == data[..], "what was written");
                    }
                }
                7 => drop(fine(imbrex_random_sync(*file))),
                8 => *closed |= fine(imbrex_random_close(*file)),
                _ => imbrex_random_free(std::mem::replace(file, null_mut())),
            }
        }
    }

    fn free(self) {
        // SAFETY: as above.
        unsafe {
            // The file system goes first: what was opened on it keeps it.
            self.fs.into_iter().for_each(|fs| imbrex_fs_close(fs));
            self.writers.into_iter().for_each(|(writer, _)| imbrex_writer_free(writer));
            self.readers.into_iter().for_each(|reader| imbrex_reader_free(reader));
            self.files.into_iter().for_each(|(file, _)| imbrex_random_free(file));
            self.locks.into_iter().for_each(|lock| imbrex_lock_free(lock));
            imbrex_list_free(self.list);
        }
    }
}

/// A URI of the input's own; always a drive in memory, so that no file of the host is touched.
fn open(text: &[u8]) {
    let text = [b"imbrex://mem:?", text].concat();
    let Ok(uri) = CString::new(text) else { return };
    let mut fs = null_mut();
    // SAFETY: as above.
    unsafe {
        if fine(imbrex_fs_open(uri.as_ptr(), &mut fs)) {
            fine(imbrex_fs_mkdir(fs, c"/d".as_ptr()));
        }
        imbrex_fs_close(fs);
    }
}

fuzz_target!(init: quiet(), |data: &[u8]| {
    let mut handles = Handles::default();
    let mut fs = null_mut();
    // SAFETY: a string and an output parameter.
    assert!(fine(unsafe { imbrex_fs_open(URI.as_ptr(), &mut fs) }), "a drive");
    handles.fs.push(fs);
    let mut input = Input(data);
    for _ in 0..MOST_CALLS {
        if input.0.is_empty() {
            break;
        }
        let call = input.byte();
        let which = usize::from(call >> 4) % 4;
        // One slot more than there are: NULL.
        let fs = handles.fs.get(usize::from(input.byte() % 16) % (SLOTS + 1)).copied().unwrap_or(fs);
        let fs = if call == 254 { null_mut() } else { fs };
        match (call, which) {
            (255, _) => {
                open(input.0);
                break;
            }
            (_, 0) => handles.names(fs, call % 16, &mut input),
            (_, 1) => handles.writer(fs, call % 16, &mut input),
            (_, 2) => handles.reader(fs, call % 16, &mut input),
            _ => handles.file(fs, call % 16, &mut input),
        }
    }
    handles.free();
});

/// Warnings are many, and not what this is about.
fn quiet() {
    // SAFETY: nobody else is running yet.
    unsafe { std::env::set_var("IMBREX_LOG", "off") };
}
