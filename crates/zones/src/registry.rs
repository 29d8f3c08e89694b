//! Process-wide registry of open things.
