//! The API as a C program meets it: wrong arguments are errors, results are what the engine says.

use imbrex::*;
use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

/// The code of an error, which is freed; every error has a sentence.
fn code(error: *mut imbrex_error) -> imbrex_code {
    // SAFETY: an error of the library, freed once.
    unsafe {
        let code = imbrex_error_code(error);
        let message = CStr::from_ptr(imbrex_error_message(error)).to_str().expect("UTF-8").to_owned();
        assert_eq!(error.is_null(), message.is_empty(), "{message}");
        imbrex_error_free(error);
        code
    }
}

fn text(text: &str) -> CString {
    CString::new(text).expect("no zero inside")
}

/// A drive of its own for each size: the same URI is the same drive.
fn open(size: &str) -> *mut imbrex_fs {
    let mut fs = null_mut();
    let uri = text(&format!("imbrex://mem:?profile=tiny&size={size}&survivor-size=4M"));
    // SAFETY: valid pointers.
    let error = unsafe { imbrex_fs_open(uri.as_ptr(), &mut fs) };
    assert_eq!(code(error), imbrex_code::IMBREX_OK);
    fs
}

#[test]
fn null_is_an_error_everywhere_and_frees_nothing() {
    let fs = open("64M");
    let path = c"/a".as_ptr();
    let none: *const c_char = null();
    // SAFETY: pointers are NULL or valid, which is all that the API asks for.
    unsafe {
        let errors = [
            imbrex_fs_open(null(), &mut null_mut()),
            imbrex_fs_open(c"imbrex://mem:?profile=tiny".as_ptr(), null_mut()),
            imbrex_fs_stat(fs, path, null_mut()),
            imbrex_fs_stat(null(), path, null_mut()),
            imbrex_fs_list(fs, path, null_mut()),
            imbrex_fs_mkdir(fs, none),
            imbrex_fs_rmdir(null(), path),
            imbrex_fs_unlink(fs, none),
            imbrex_fs_rename(fs, path, none),
            imbrex_fs_link(fs, none, path),
            imbrex_fs_truncate(null(), path, 0),
            imbrex_fs_sync_directory(fs, none),
            imbrex_fs_space(fs, null_mut()),
            imbrex_fs_advise(null(), null_mut()),
            imbrex_fs_lock(fs, path, null_mut()),
            imbrex_writer_create(fs, path, null_mut()),
            imbrex_writer_reopen(fs, none, &mut null_mut()),
            imbrex_writer_append(null(), null(), 0),
            imbrex_writer_sync(null()),
            imbrex_writer_truncate(null(), 0),
            imbrex_writer_preallocate(null(), 0),
            imbrex_writer_set_hint(null(), 0),
            imbrex_writer_set_priority(null(), 0),
            imbrex_writer_close(null()),
            imbrex_reader_open(fs, path, null_mut()),
            imbrex_reader_read(null(), 0, null_mut(), 0, &mut 0),
            imbrex_reader_view(null(), 0, null_mut(), 0, &mut null(), &mut 0),
            imbrex_reader_span(null(), 0, &mut null(), &mut 0),
            imbrex_reader_readahead(null(), 0, 0),
            imbrex_reader_set_pattern(null(), 0),
            imbrex_random_open(fs, path, true, null_mut()),
            imbrex_random_read(null(), 0, null_mut(), 0, &mut 0),
            imbrex_random_write(null(), 0, null(), 0),
            imbrex_random_sync(null()),
            imbrex_random_close(null()),
        ];
        for (i, error) in errors.into_iter().enumerate() {
            assert_eq!(code(error), imbrex_code::IMBREX_INVALID_ARGUMENT, "call {i}");
        }
        // None of them made the file.
        let mut attributes = std::mem::MaybeUninit::<imbrex_attributes>::uninit();
        assert_eq!(code(imbrex_fs_stat(fs, path, attributes.as_mut_ptr())), imbrex_code::IMBREX_NOT_FOUND);
        assert!(imbrex_fs_clone(null()).is_null());
        assert_eq!(imbrex_list_len(null()), 0);
        assert!(imbrex_list_name(null(), 0).is_null());
        imbrex_list_attributes(null(), 0, null_mut());
        assert_eq!((imbrex_writer_size(null()), imbrex_writer_serial(null())), (0, 0));
        assert_eq!((imbrex_reader_size(null()), imbrex_reader_serial(null())), (0, 0));
        imbrex_error_free(null_mut());
        imbrex_fs_close(null_mut());
        imbrex_list_free(null_mut());
        imbrex_lock_free(null_mut());
        imbrex_writer_free(null_mut());
        imbrex_reader_free(null_mut());
        imbrex_random_free(null_mut());
        imbrex_fs_close(fs);
    }
}

#[test]
fn values_that_are_in_no_list_and_text_that_is_none_are_errors() {
    let fs = open("65M");
    let mut writer = null_mut();
    let mut reader = null_mut();
    // SAFETY: valid pointers; handles are given back once.
    unsafe {
        assert_eq!(code(imbrex_writer_create(fs, c"/a".as_ptr(), &mut writer)), imbrex_code::IMBREX_OK);
        assert_eq!(code(imbrex_reader_open(fs, c"/a".as_ptr(), &mut reader)), imbrex_code::IMBREX_OK);
        for wrong in [6, u32::MAX] {
            assert_eq!(code(imbrex_writer_set_hint(writer, wrong)), imbrex_code::IMBREX_INVALID_ARGUMENT);
            assert_eq!(code(imbrex_writer_set_priority(writer, wrong)), imbrex_code::IMBREX_INVALID_ARGUMENT);
            assert_eq!(code(imbrex_reader_set_pattern(reader, wrong)), imbrex_code::IMBREX_INVALID_ARGUMENT);
        }
        for right in 0..=4 {
            assert_eq!(code(imbrex_writer_set_hint(writer, right)), imbrex_code::IMBREX_OK);
            assert_eq!(code(imbrex_writer_set_priority(writer, right)), imbrex_code::IMBREX_OK);
        }
        let latin = CString::new(b"/caf\xe9".to_vec()).expect("no zero inside");
        assert_eq!(code(imbrex_fs_mkdir(fs, latin.as_ptr())), imbrex_code::IMBREX_INVALID_ARGUMENT);
        // Data of no bytes needs no memory.
        assert_eq!(code(imbrex_writer_append(writer, null(), 0)), imbrex_code::IMBREX_OK);
        assert_eq!(code(imbrex_writer_append(writer, null(), 1)), imbrex_code::IMBREX_INVALID_ARGUMENT);
        let mut got = 7;
        assert_eq!(code(imbrex_reader_read(reader, 0, null_mut(), 0, &mut got)), imbrex_code::IMBREX_OK);
        assert_eq!(got, 0);
        let mut data = null();
        assert_eq!(code(imbrex_reader_view(reader, 0, null_mut(), 0, &mut data, &mut got)), imbrex_code::IMBREX_OK);
        let wrong = [
            imbrex_reader_view(reader, 0, null_mut(), 1, &mut data, &mut got),
            imbrex_reader_view(reader, 0, null_mut(), 0, null_mut(), &mut got),
            imbrex_reader_view(reader, 0, null_mut(), 0, &mut data, null_mut()),
            imbrex_reader_span(reader, 0, null_mut(), &mut got),
            imbrex_reader_span(reader, 0, &mut data, null_mut()),
        ];
        for error in wrong {
            assert_eq!(code(error), imbrex_code::IMBREX_INVALID_ARGUMENT);
        }
        assert!(data.is_null());
        imbrex_writer_free(writer);
        imbrex_reader_free(reader);
        imbrex_fs_close(fs);
    }
}

#[test]
fn a_view_needs_no_copy_and_stays_until_its_reader_goes() {
    let fs = open("68M");
    let path = c"/000001.ldb".as_ptr();
    let content: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
    let view = |reader, at: usize, len: usize| {
        let (mut buffer, mut data, mut got) = (vec![0u8; len], null(), 0);
        // SAFETY: valid pointers; `data` points to so many bytes, in `buffer` or as long as the reader.
        unsafe {
            let error = imbrex_reader_view(reader, at as u64, buffer.as_mut_ptr().cast(), len, &mut data, &mut got);
            assert_eq!(code(error), imbrex_code::IMBREX_OK);
            assert_eq!(std::slice::from_raw_parts(data.cast::<u8>(), got), &content[at..(at + len).min(content.len())]);
        }
        (data != buffer.as_ptr().cast()).then_some((data.cast::<u8>(), got))
    };
    // SAFETY: valid pointers; handles are given back once, and the view is used while its reader lives.
    unsafe {
        let (mut writer, mut reader) = (null_mut(), null_mut());
        assert_eq!(code(imbrex_writer_create(fs, path, &mut writer)), imbrex_code::IMBREX_OK);
        let error = imbrex_writer_append(writer, content.as_ptr().cast(), content.len());
        assert_eq!(code(error), imbrex_code::IMBREX_OK);
        assert_eq!(code(imbrex_writer_close(writer)), imbrex_code::IMBREX_OK);
        imbrex_writer_free(writer);
        assert_eq!(code(imbrex_reader_open(fs, path, &mut reader)), imbrex_code::IMBREX_OK);
        let (data, got) = view(reader, 20_000, 4140).expect("it was just written");
        assert_eq!(got, 4140);
        assert_eq!(view(reader, 20_010, 10), Some((data.wrapping_add(10), 10)));
        assert!(view(reader, 99_990, 100).is_none(), "beyond the end: a short copy");
        let (mut span, mut len) = (null(), 0);
        assert_eq!(code(imbrex_reader_span(reader, 0, &mut span, &mut len)), imbrex_code::IMBREX_OK);
        assert_eq!(std::slice::from_raw_parts(span.cast::<u8>(), len), &content[..]);
        let (mut nothing, mut none) = (span, len);
        assert_eq!(code(imbrex_reader_span(reader, 1, &mut nothing, &mut none)), imbrex_code::IMBREX_OK);
        assert!(nothing.is_null() && none == 0, "behind the end");
        assert_eq!(code(imbrex_fs_unlink(fs, path)), imbrex_code::IMBREX_OK);
        imbrex_fs_close(fs);
        assert_eq!(std::slice::from_raw_parts(data, got), &content[20_000..24_140]);
        assert_eq!(std::slice::from_raw_parts(span.cast::<u8>(), len), &content[..]);
        imbrex_reader_free(reader);
    }
}

#[test]
fn files_outlive_the_handle_of_their_file_system() {
    let fs = open("66M");
    let more = 300;
    // SAFETY: valid pointers; handles are given back once.
    unsafe {
        let second = imbrex_fs_clone(fs);
        let mut writer = null_mut();
        assert_eq!(code(imbrex_writer_create(fs, c"/000001.log".as_ptr(), &mut writer)), imbrex_code::IMBREX_OK);
        imbrex_fs_close(fs);
        for _ in 0..more {
            assert_eq!(code(imbrex_writer_append(writer, b"bytes".as_ptr().cast(), 5)), imbrex_code::IMBREX_OK);
        }
        assert_eq!(imbrex_writer_size(writer), 5 * more);
        assert_eq!(code(imbrex_writer_sync(writer)), imbrex_code::IMBREX_OK);
        assert_eq!(code(imbrex_writer_close(writer)), imbrex_code::IMBREX_OK);
        assert_eq!(code(imbrex_writer_close(writer)), imbrex_code::IMBREX_OK);
        let after = imbrex_writer_append(writer, b"bytes".as_ptr().cast(), 5);
        assert_eq!(code(after), imbrex_code::IMBREX_INVALID_ARGUMENT);

        let mut list = null_mut();
        assert_eq!(code(imbrex_fs_list(second, c"/".as_ptr(), &mut list)), imbrex_code::IMBREX_OK);
        assert_eq!(imbrex_list_len(list), 1);
        assert_eq!(CStr::from_ptr(imbrex_list_name(list, 0)), text("000001.log").as_c_str());
        assert!(imbrex_list_name(list, 1).is_null());
        imbrex_list_free(list);

        let mut reader = null_mut();
        assert_eq!(code(imbrex_reader_open(second, c"/000001.log".as_ptr(), &mut reader)), imbrex_code::IMBREX_OK);
        imbrex_fs_close(second);
        imbrex_writer_free(writer);
        let mut buffer = [0u8; 64];
        let mut got = 0;
        let error = imbrex_reader_read(reader, 5 * more - 10, buffer.as_mut_ptr().cast(), buffer.len(), &mut got);
        assert_eq!(code(error), imbrex_code::IMBREX_OK);
        assert_eq!(&buffer[..got], b"bytesbytes");
        imbrex_reader_free(reader);
    }
}
