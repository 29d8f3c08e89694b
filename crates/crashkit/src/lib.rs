//! Crash explorer: every state that a process crash or a power loss may leave.
