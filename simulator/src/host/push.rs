//! Pushes: what the coordinator has a node do.

use super::process::Obeyed;
use crate::event::{Downward, Event, Push, Upward};
use crate::mutant::{ShellMutant, broken_host};
use crate::network::End;
use crate::world::World;
use archon_host::reconcile;

impl World {
    pub(crate) fn on_downward(&mut self, host: usize, message: Downward) {
        match message {
            Downward::Push(_) if self.hosts[host].deaf_until > self.truth => {}
            Downward::Push(push) => self.on_push(host, *push),
            other => self.on_session(host, other),
        }
        self.settle(host);
    }

    fn on_push(&mut self, host: usize, push: Push) {
        let untold = self.breaks(ShellMutant::DropUntold);
        let Some(process) = &mut self.hosts[host].process else { return };
        let shell = process.partitions.shell_mut();
        let Some(life) = shell.life.filter(|life| life.incarnation == push.incarnation) else { return };
        if process.obeyed.incarnation != push.incarnation {
            process.obeyed = Obeyed { incarnation: push.incarnation, ..Default::default() };
        }
        if push.term < process.obeyed.term {
            return;
        }
        let mut news = false;
        if push.version < process.obeyed.version {
            return;
        }
        for (node, incarnation, failed) in &push.nodes {
            let known = shell.peers.insert(*node, (*incarnation, *failed));
            news |= known != Some((*incarnation, *failed));
        }
        (process.obeyed.version, process.obeyed.term) = (push.version, push.term);
        let newer = (push.tables.version, push.tables.last) > (shell.tables.version, shell.tables.last);
        if newer && !untold {
            shell.tables = push.tables;
        }
        let answer = Upward::Pushed { node: life.node, incarnation: push.incarnation, version: push.version };
        let coordinator = push.coordinator;
        self.send(End::Host(host), End::Coordinator(coordinator), Event::Upward { coordinator, host, message: answer });
        let Some(process) = &self.hosts[host].process else { return };
        let actions = reconcile(life.node, &process.held(), &push.duties, broken_host(self.mutant)).actions;
        self.checks.leases_changed = true;
        self.drive(host, |partitions| {
            if news {
                partitions.peers_changed();
            }
            partitions.duties(push.incarnation, actions)
        });
    }
}
