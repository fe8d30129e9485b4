//! Exit status of a purge. Pure.

use super::execute::DeleteReport;
use super::guard::VetoCounts;
use crate::error::ExitStatus;

/// Exit status of a run that deletes nothing: an empty plan, or a dry run. Partial where a part of the table was not read or not
/// judged (`scan_is_partial`), or where it is not known whether entries that were left are to be deleted.
pub fn without_deletes(scan_is_partial: bool, vetoes: VetoCounts) -> ExitStatus {
    match scan_is_partial || vetoes.undecided() > 0 {
        true => ExitStatus::Partial,
        false => ExitStatus::Done,
    }
}

/// Exit status of a run that deletes. `came_back`: entries that are no better than before; `None` where the last look failed.
pub fn after_deletes(
    report: &DeleteReport,
    came_back: Option<u64>,
    scan_is_partial: bool,
    vetoes: VetoCounts,
) -> ExitStatus {
    if report.is_refused() {
        ExitStatus::NotPermitted
    } else if report.failed > 0 || came_back != Some(0) || report.stopped {
        ExitStatus::Partial
    } else {
        without_deletes(scan_is_partial, vetoes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tried: u64, refused: u64, failed: u64) -> DeleteReport {
        DeleteReport {
            tried,
            refused,
            failed,
            ..DeleteReport::default()
        }
    }

    #[test]
    fn a_refusal_of_all_deletes_is_told_from_a_failure_of_some() {
        let stopped = DeleteReport {
            stopped: true,
            ..report(3, 0, 0)
        };
        let undecided = VetoCounts {
            not_judged: 1,
            ..VetoCounts::default()
        };
        let left = VetoCounts {
            rules_lead_there: 1,
            ..VetoCounts::default()
        };
        let none = VetoCounts::default();
        for (report, came_back, scan_is_partial, vetoes, expected) in [
            (report(3, 0, 0), Some(0), false, none, ExitStatus::Done),
            (report(0, 0, 0), Some(0), false, none, ExitStatus::Done),
            (
                report(3, 3, 3),
                Some(0),
                false,
                none,
                ExitStatus::NotPermitted,
            ),
            (report(3, 3, 3), None, false, none, ExitStatus::NotPermitted),
            (report(3, 1, 1), Some(0), false, none, ExitStatus::Partial),
            (report(3, 0, 1), Some(0), false, none, ExitStatus::Partial),
            (report(3, 0, 0), Some(1), false, none, ExitStatus::Partial),
            (report(3, 0, 0), None, false, none, ExitStatus::Partial),
            (stopped, Some(0), false, none, ExitStatus::Partial),
            (report(3, 0, 0), Some(0), true, none, ExitStatus::Partial),
            (
                report(3, 0, 0),
                Some(0),
                false,
                undecided,
                ExitStatus::Partial,
            ),
            (report(3, 0, 0), Some(0), false, left, ExitStatus::Done),
        ] {
            let status = after_deletes(&report, came_back, scan_is_partial, vetoes);
            assert_eq!(status, expected, "{report:?} {came_back:?} {vetoes:?}");
        }
        assert_eq!(without_deletes(false, left), ExitStatus::Done);
        assert_eq!(without_deletes(false, undecided), ExitStatus::Partial);
        assert_eq!(without_deletes(true, none), ExitStatus::Partial);
    }
}
