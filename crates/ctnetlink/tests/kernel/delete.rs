//! Deletes.

use std::collections::HashMap;

use ctnetlink::DeleteTarget;
use ctnetlink::flow::{Flow, Zone};
use rustix::io::Errno;

use crate::flows::{REPLIED, every_kind, plain, ports, tuple};
use crate::{dump, fill, open};
use testkit::private_netns::private_netns;

#[test]
fn delete_removes_the_named_entry_and_no_other() {
    private_netns(|| {
        let mut table = open();
        let flows = every_kind();
        fill(&mut table, &flows);
        let mut left = dump(&mut table);
        while let Some(victim) = left.pop() {
            let target = DeleteTarget::of(&victim).unwrap();
            assert_eq!(
                table.delete(&[target, target]),
                [Ok(()), Err(Errno::NOENT)],
                "{victim:?}"
            );
            let mut now = dump(&mut table);
            let by_id = |f: &Flow| (f.id, f.zone, f.original.src, f.original.protocol);
            now.sort_by_key(|f| format!("{:?}", by_id(f)));
            left.sort_by_key(|f| format!("{:?}", by_id(f)));
            assert_eq!(
                now.iter().map(by_id).collect::<Vec<_>>(),
                left.iter().map(by_id).collect::<Vec<_>>(),
                "after {victim:?}"
            );
        }
        assert_eq!(table.count().unwrap(), 0);
    });
}

#[test]
fn equal_tuples_in_other_zones_survive() {
    private_netns(|| {
        let mut table = open();
        let original = tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53));
        let twins: Vec<_> = [0, 12, 13]
            .map(|id| {
                let mut flow = plain(original, REPLIED);
                flow.zone.id = id;
                ("twin", flow)
            })
            .into();
        fill(&mut table, &twins);
        let found: HashMap<u16, Flow> = dump(&mut table)
            .into_iter()
            .map(|f| (f.zone.id, f))
            .collect();
        let at = |id, zone| DeleteTarget::new(found[&id].reply, found[&id].id.unwrap(), zone);
        let zone = |id, direction| Zone { id, direction };
        // An id with the number of another zone matches no entry.
        let wrong = [
            at(0, zone(12, None)),
            at(12, zone(13, None)),
            at(13, zone(0, None)),
        ];
        assert_eq!(table.delete(&wrong), [Err(Errno::NOENT); 3]);
        assert_eq!(table.delete(&[at(12, found[&12].zone)]), [Ok(())]);
        let mut zones: Vec<_> = dump(&mut table).iter().map(|f| f.zone.id).collect();
        zones.sort();
        assert_eq!(zones, [0, 13]);
    });
}

#[test]
fn successor_with_another_translation_is_not_deleted() {
    private_netns(|| {
        let mut table = open();
        let (_, dead) = every_kind()
            .into_iter()
            .find(|(name, _)| *name == "dnat")
            .unwrap();
        table.insert(&dead).unwrap();
        let seen = dump(&mut table);
        let target = DeleteTarget::of(&seen[0]).unwrap();
        assert_eq!(table.delete(&[target]), [Ok(())]);
        let mut healthy = dead.clone();
        healthy.reply.src = "10.244.1.8".parse().unwrap();
        table.insert(&healthy).unwrap();
        assert_eq!(table.delete(&[target]), [Err(Errno::NOENT)]);
        assert_eq!(table.count().unwrap(), 1);
    });
}
