//! The store's promises, by the kind of situation.

mod basic;
mod crash;
mod model;
mod support;
mod threads;
