//! Rules whose absence is shown by tests and not by the workloads of an ablation. They are of the
//! journal alone or its recovery, or take images that an ablation does not visit: stacks of file
//! systems, images that other systems have mounted, images unmounted with leaks. Each of these
//! tests switches the rule off and sees what goes wrong.

use backstitch_formats::{ExtRule, Rule, UfsRule};
use backstitch_mechanisms::{JournalRule as Journal, LffsRule as Lffs, OrderingRule as Ordering};
use backstitch_rules::Id;

/// For each test file the rules of layouts that its tests switch off.
const OF_LAYOUTS: &[(&str, &[Id])] = &[
    (
        "crates/ext-tools/tests/trust.rs",
        &[
            ExtRule::RecordIsOfThisMount.id(),
            ExtRule::CleanOnlyWithoutLeaks.id(),
        ],
    ),
    (
        "crates/crash/tests/ufs.rs",
        &[
            UfsRule::RecordIsOfLastMount.id(),
            UfsRule::CleanOnlyAfterReclaim.id(),
            UfsRule::CleanTakenAfterRecord.id(),
            UfsRule::RecordKeptUntilClean.id(),
            UfsRule::InitialisedAfterZeros.id(),
            UfsRule::InodeBitAfterInitialised.id(),
        ],
    ),
    (
        "crates/crash/tests/canaries.rs",
        &[Rule::NameAfterIndexFlag.id()],
    ),
];

/// The same, of the journal.
const OF_JOURNAL: &[(&str, &[Journal])] = &[
    (
        "crates/journal/tests/module/main.rs",
        &[
            Journal::CommitAfterReusedContents,
            Journal::RunsBelongToOneTransaction,
            Journal::TailAfterFreeingCommit,
            Journal::CommitAfterEarlierCommit,
            Journal::LoggingTakesRevokeBack,
            Journal::SpaceIsFreeOnceTailMoved,
            Journal::OriginalsArePartedFromRuns,
            Journal::CommitAfterRevokeBlocks,
            Journal::FreedCountAsLogged,
            Journal::AnswersOnceCommitted,
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

/// The same, of the logs of operations.
const OF_LOGS_OF_OPERATIONS: &[(&str, &[Lffs])] = &[
    (
        "crates/lffs/tests/module.rs",
        &[
            Lffs::StartAfterLaterGroup,
            Lffs::RoomIsFreeOnceStartMoved,
            Lffs::RecordsAfterOtherVolumes,
            Lffs::MountsAreNumbered,
            Lffs::AnswersOnceLogged,
        ],
    ),
    ("crates/mechanisms/tests/lffs.rs", &[Lffs::LogIsOfThisMount]),
];

/// The same, of what all mechanisms share.
const OF_ORDERING: &[(&str, &[Ordering])] = &[
    (
        "crates/ordering/tests/volume/stacked.rs",
        &[Ordering::NewPlaceIsNotSuperseded],
    ),
    (
        "crates/ordering/tests/without_log.rs",
        &[
            Ordering::RequestsAreIssued,
            Ordering::CircleIsBroken,
            Ordering::WrittenWithoutRollback,
        ],
    ),
];

/// The file with the test that shows a rule's absence.
pub fn test_of(rule: Id) -> Option<&'static str> {
    find(OF_LAYOUTS, rule)
        .or_else(|| find(OF_JOURNAL, rule))
        .or_else(|| find(OF_LOGS_OF_OPERATIONS, rule))
        .or_else(|| find(OF_ORDERING, rule))
}

fn find<R: Copy + Into<Id>>(tests: &[(&'static str, &[R])], rule: Id) -> Option<&'static str> {
    let is_of = |rules: &&[R]| rules.iter().any(|known| (*known).into() == rule);
    let found = tests.iter().find(|(_, rules)| is_of(rules));
    found.map(|(test, _)| *test)
}
