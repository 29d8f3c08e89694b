//! The C API (libimbrex.so, imbrex.h).
