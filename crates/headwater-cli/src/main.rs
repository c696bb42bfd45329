//! The headwater command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    headwater_cli::main()
}
