//! The label: what a drive says about itself.
