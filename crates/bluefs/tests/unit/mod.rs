//! Tests that look at what callers never see: accounts of zones, and the policy on a recorded trace.

mod accounts;
mod replay;
