//! Rules whose absence a test of their own shows: of the journal's module or its recovery alone, or in a world that an ablation does not
//! visit, as stacks of file systems. Each of these tests switches the rule off and sees what comes of it.

use backstitch_journal::rules::Rule as Journal;
use backstitch_rules::Id;

/// Where the tests are, and the rules that each of them switches off.
const TESTS: &[(&str, &[Journal])] = &[
    (
        "crates/journal/tests/module.rs",
        &[
            Journal::CommitAfterReusedContents,
            Journal::RunsBelongToOneTransaction,
            Journal::TailAfterFreeingCommit,
            Journal::CommitAfterEarlierCommit,
            Journal::LoggingTakesRevokeBack,
            Journal::SpaceIsFreeOnceTailMoved,
            Journal::OriginalsArePartedFromRuns,
            Journal::CommitAfterRevokeBlocks,
        ],
    ),
    (
        "crates/journal/tests/recovery.rs",
        &[
            Journal::LastRevocationCounts,
            Journal::CopiesAreUnescaped,
            Journal::CopiesAreEscaped,
            Journal::CopyChecksumIsChecked,
            Journal::LogEndsOnceAround,
        ],
    ),
    (
        "crates/crash/tests/nested.rs",
        &[
            Journal::CommitAfterOtherVolumes,
            Journal::PartsOfGroupsCount,
        ],
    ),
];

/// The file with the test that shows a rule's absence.
pub fn test_of(rule: Id) -> Option<&'static str> {
    let is_of = |rules: &&[Journal]| rules.iter().any(|known| Id::from(*known) == rule);
    TESTS
        .iter()
        .find(|(_, rules)| is_of(rules))
        .map(|(test, _)| *test)
}
