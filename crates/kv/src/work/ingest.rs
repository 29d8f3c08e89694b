//! Ingesting: a piece of sorted pairs becomes tables of its own, past the write-ahead log. All its pairs have one number.
//!
//! The number is known only when the tables are durable, so that nobody who reads at an earlier one ever sees them. Inside the tables pairs have another one, and
//! the description of a table has the one that counts.

use super::Work;
use super::keep::{Keep, Kept};
use super::output::{TRIES, are_durable, died, give_up, write_tables};
use crate::apply::{append, insert};
use crate::batch::{Batch, Body};
use crate::core::Core;
use crate::core::file::TableFile;
use crate::cursor::Cursor;
use crate::manifest::Note;
use crate::piece::Piece;
use crate::policy::Group;
use crate::sync::lock;
use imbrex_device::{Cause, Result};
use std::sync::Arc;

/// Makes tables of the group, of so many bytes at most, of the pairs of a piece before `end`.
pub(super) fn ingest(
    core: &Arc<Core>,
    work: &mut Work,
    (piece, end): (&mut Piece, usize),
    into: (Group, u64),
) -> Result<()> {
    for _ in 0..TRIES {
        let mut cursor = piece.cursor(core.order(), end);
        cursor.seek(None)?;
        let tables = write_tables(core, into, &mut Kept::new(core, cursor, Keep::all()))?;
        if count(core, work, piece.space, &tables)? {
            core.counters.flushed(&tables);
            let (pairs, bytes) = piece.forget(end);
            core.counters.ingested(pairs, bytes);
            return Ok(());
        }
    }
    Err(died(core))
}

/// Makes these tables count, all at once and durably. False: a zone has died, and they are given up.
///
/// Nobody writes meanwhile: what is put behind them must not outlive them, nor be seen before.
fn count(core: &Core, work: &mut Work, space: u16, tables: &[Arc<TableFile>]) -> Result<bool> {
    let _nobody_writes = lock(&core.writing);
    let (wal, mut batch) = (core.wal()?, Batch::new());
    batch.ingest();
    let (at, seq) = append(core, (Body::Batch(&batch), space), false).inspect_err(|_| give_up(core, tables))?;
    // All that was put before is durable with them, where no table has it.
    let (position, next) = core.view().oldest_record().min((wal.end(), seq + 1));
    let written = if next <= seq { wal.write() } else { Ok(()) };
    let durable = written.inspect_err(|_| give_up(core, tables)).and_then(|()| are_durable(core, tables, Cause::Flush));
    let mut counted = Ok(());
    if matches!(durable, Ok(true)) {
        let number = |table: &Arc<TableFile>| table.changed(|info| (info.seqs, info.ingested) = ((seq, seq), true));
        let tables: Vec<_> = tables.iter().map(number).collect();
        let mut notes: Vec<_> = tables.iter().map(|table| Note::Table(table.info.clone())).collect();
        notes.push(core.front((position, next))?);
        counted = work.decide(core, &notes, Cause::Flush);
        core.ingest(&tables, seq);
    }
    // The number is used, whatever became of the tables.
    insert(core, Body::Batch(&batch).changes_in(space), (at, seq), |_, _| false);
    counted.and(durable)
}
