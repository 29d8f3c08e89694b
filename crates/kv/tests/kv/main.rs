//! The store's promises, by the kind of situation.

mod bad_input;
mod basic;
mod compact;
mod crash;
mod damage;
mod expiry;
mod figures;
mod full;
mod golden;
mod host_full;
mod image;
mod ingest;
mod iterators;
mod model;
mod operands;
mod ranges;
mod restored;
mod salvage;
mod size;
mod spaces;
mod support;
mod threads;
mod together;
