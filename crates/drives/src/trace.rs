//! Requests as lines of JSON, for plots.

use std::io::{self, Write};

use crate::request::Completion;

/// Writes one line for each request, in the order in which they were done: times in nanoseconds
/// from the beginning, addresses and lengths in sectors of 512 bytes.
///
/// ```json
/// {"time":0,"kind":"read","block":8,"length":8,"queue":300000,"seek":0,"rotation":71,"transfer":310000}
/// ```
///
/// # Errors
/// Those of `out`.
pub fn write_json_lines(trace: &[Completion], out: &mut impl Write) -> io::Result<()> {
    for c in trace {
        writeln!(
            out,
            "{{\"time\":{},\"kind\":\"{}\",\"block\":{},\"length\":{},\"queue\":{},\"seek\":{},\
             \"rotation\":{},\"transfer\":{}}}",
            c.submitted_ns,
            c.kind.name(),
            c.sector,
            c.sectors,
            c.queue_ns(),
            c.service.seek_ns,
            c.service.rotation_ns,
            c.service.transfer_ns,
        )?;
    }
    Ok(())
}
