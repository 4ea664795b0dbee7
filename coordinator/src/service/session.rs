//! Members' sessions: register, report, poll for duties, leave. Heartbeats come on streams (`beats/`).

use super::{Context, budget, check_member, check_own, only, refuse, revocations, role_of};
use crate::clock::{boot_now, wall_now};
use crate::leader::confirm::Confirmations;
use crate::leader::load::SpaceWait;
use crate::leader::session::Session;
use archon_coordinator_core::term::{PollAnswer, ReportOutcomes};
use archon_coordinator_core::{
    Actor, ClusterState, Command, NodeRow, Register, Response as Answer, check_confirmed, to_confirm,
};
use archon_proto::convert::ids::{node_sender, storage_id};
use archon_proto::convert::members::duties::{Duties, DutiesQuery};
use archon_proto::convert::members::report::{Outcomes, Reports};
use archon_proto::convert::members::report_proofs::{NONCE_BYTES, outcomes_statement, reports_statement};
use archon_proto::convert::members::revocations::RevocationsQuery;
use archon_proto::convert::members::session::{Member, Registration, RegistrationResult};
use archon_proto::convert::required;
use archon_proto::v1;
use archon_proto::v1::session_server::Session as SessionService;
use archon_security::{BeatKey, Caller, Role};
use archon_types::{DiskFull, ErrorDetail, ErrorKind, Millis, Report, own_denial};
use std::time::{Duration, Instant};
use tonic::{Request, Response, Status};

/// Maximum wait of a poll for a leader: it should try another coordinator soon.
const POLL_LEADER_WAIT: Duration = Duration::from_millis(30);
/// Interval in which a participant's poll checks for the record of its incarnation as active.
const ACTIVATION_LOOK: Duration = Duration::from_millis(20);
/// Maximum number of times that a report is judged if changes of the same row are committed first each time.
const JUDGED_TIMES_MAX: u32 = 8;
/// Maximum number of commands of reports in one log entry.
const COMMANDS_MAX: usize = 512;

/// Name of reports in refusals.
const REPORT: &str = "/archon.v1.Session/Report";
/// Name of registrations in refusals.
const REGISTER: &str = "/archon.v1.Session/Register";

/// Name of reports of a wait for disk space in refusals.
const WAIT: &str = "/archon.v1.Session/WaitForSpace";

/// The service.
pub(crate) struct Sessions {
    context: Context,
    confirmations: Confirmations,
}

impl Sessions {
    /// A service over `context`.
    pub(crate) fn new(context: Context) -> Self {
        Self { context, confirmations: Confirmations::new() }
    }

    async fn register_node(
        &self,
        caller: &Caller,
        request: v1::RegisterRequest,
        within: Duration,
    ) -> Result<RegistrationResult, ErrorDetail> {
        let wire_cluster = request.cluster.clone();
        let Registration { register: node, .. } = Registration::try_from(request)?;
        caller.check_name(REGISTER, role_of(node.participant.is_some()), &node.name)?;
        let session = self.context.leader(within).await?;
        let state = session.quorum().replicated();
        let who = state.read(|state| {
            super::check_named(wire_cluster.as_ref(), state)?;
            let known = match node.participant {
                Some(_) => state.participants.named(&node.name).next(),
                None => state.node_by_storage(node.storage),
            };
            if let Some(row) = known {
                check_own(caller, REGISTER, state, row.node.id)?;
            }
            let wanted = node.participant.as_ref().filter(|_| caller.identity.is_some());
            if let Some(table) = wanted.and_then(|participant| state.not_granted(&node.name, participant)) {
                let subject = Some(format!("table {}", table.name));
                return Err(caller.refused(REGISTER, subject, own_denial(&node.name, &table.name)));
            }
            // A process that is registered keeps its registration when the limit is lowered: placement applies the limit.
            let restarts = known.is_none_or(|row| row.boot != node.boot);
            if let Some(why) = wanted
                .filter(|_| restarts)
                .and_then(|participant| state.weight_not_granted(&node.name, participant, node.weight))
            {
                return Err(caller.refused(REGISTER, None, why));
            }
            let who = known.map_or_else(|| Actor::Newcomer(node.name.clone()), |row| Actor::Node(row.node.id));
            Ok::<_, ErrorDetail>(who)
        })?;
        let certified = node.participant.is_some() && caller.identity.is_some();
        let register = Register { certified, ..node };
        let register = register.by_protocol(state.read(|state| state.protocol));
        let asked = Instant::now();
        self.ask_the_process(&session, &register).await?;
        let within = within.saturating_sub(asked.elapsed());
        let name = register.name.clone();
        let commands = vec![Command::Register(Box::new(register))];
        let answer = session.propose(None, who, commands, within).await?;
        if let [Answer::Refused(error)] = &answer[..]
            && error.kind == ErrorKind::OtherHistory
        {
            session.other_histories.note(&name, &error.message);
        }
        match only(answer)? {
            Answer::Registered { node, incarnation } => {
                let registered = |state: &ClusterState| {
                    let (cluster, protocol, settings) = (state.cluster, state.protocol, state.settings.clone());
                    let generation_key = state.generation_key(state.generation);
                    RegistrationResult { cluster, node, generation_key, incarnation, protocol, settings }
                };
                Ok(state.read(registered))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Asks the process at an alive node's address to confirm that it is the one that registers in the node's name.
    async fn ask_the_process(&self, session: &Session, register: &Register) -> Result<(), ErrorDetail> {
        let state = session.quorum().replicated();
        let Some(known) = state.read(|state| to_confirm(state, register).cloned()) else { return Ok(()) };
        let said = self.confirmations.ask(&self.context.transport, &known.node, register.boot).await;
        state.read(|state| match to_confirm(state, register) {
            Some(known) => check_confirmed(state, known, said),
            // Its incarnation was ended meanwhile.
            None => Ok(()),
        })
    }

    /// Commits reports of the caller, or of a node for which a relay calls, which proves that they are its own
    /// (PROTOCOL rule 82).
    async fn report_of(
        &self,
        caller: &Caller,
        request: v1::ReportRequest,
        within: Duration,
    ) -> Result<v1::ReportResponse, ErrorDetail> {
        let session = self.context.leader(within).await?;
        let (node, _) = node_sender(request.sender.as_ref())?;
        let key = session.quorum().replicated().read(|state| {
            check_member(request.cluster.as_ref(), state)?;
            if request.proof.is_empty() {
                return check_own(caller, REPORT, state, node).map(|()| None);
            }
            let key = state.node(node).map(|row| BeatKey::new(row.storage, row.boot));
            let proves = |key: &BeatKey| {
                request.nonce.len() == NONCE_BYTES && key.proves(&reports_statement(&request), &request.proof)
            };
            let why =
                "a relay brought these reports, and their node did not prove them with the ids that it registered with";
            key.filter(proves).map(Some).ok_or_else(|| ErrorDetail::new(ErrorKind::Refused, why))
        })?;
        let mut response = v1::ReportResponse::from(self.take_reports(&session, request.clone(), within).await?);
        if let Some(key) = key {
            response.proof = key.prove(&outcomes_statement(&request, &response));
        }
        Ok(response)
    }

    async fn take_reports(
        &self,
        session: &Session,
        request: v1::ReportRequest,
        within: Duration,
    ) -> Result<Outcomes, ErrorDetail> {
        let state = session.quorum().replicated();
        let cluster = request.cluster.clone();
        let Reports { member, reports } = Reports::try_from(request)?;
        let mut outcomes: Vec<Option<ErrorDetail>> = vec![None; reports.len()];
        // Judges all at first, and then those that lost against another change of the same row, for example from nodes
        // that reach the same stage of a split at the same time: otherwise they would only be sent again.
        let mut places: Vec<usize> = (0..reports.len()).collect();
        for _ in 0..JUDGED_TIMES_MAX {
            let judged: Vec<Report> = places.iter().filter_map(|place| reports.get(*place)).cloned().collect();
            let reported = {
                let mut term = session.term().lock();
                state.read(|state| {
                    check_member(cluster.as_ref(), state)?;
                    Ok::<_, ErrorDetail>(term.reports(state, boot_now(), member.node, member.incarnation, &judged))
                })?
            };
            if reported.needs_round() {
                session.confirm(within).await?;
            }
            let ReportOutcomes { refused, commands } = reported;
            for (place, refused) in places.iter().zip(refused) {
                if let Some(outcome) = outcomes.get_mut(*place) {
                    *outcome = refused;
                }
            }
            let commands = commands.into_iter().filter_map(|(place, command)| Some((*places.get(place)?, command)));
            places = self.commit_reports(session, member, commands.collect(), &mut outcomes, within).await?;
            if places.is_empty() {
                break;
            }
        }
        let table_version = state.read(archon_coordinator_core::ClusterState::table_version);
        Ok(Outcomes { outcomes, table_version })
    }

    /// Commits the effects of reports, and returns those for which the row had changed before.
    async fn commit_reports(
        &self,
        session: &Session,
        member: Member,
        mut commands: Vec<(usize, Command)>,
        outcomes: &mut [Option<ErrorDetail>],
        within: Duration,
    ) -> Result<Vec<usize>, ErrorDetail> {
        let mut overtaken = Vec::new();
        while !commands.is_empty() {
            let rest = commands.split_off(commands.len().min(COMMANDS_MAX));
            let (places, batch): (Vec<usize>, Vec<Command>) = commands.into_iter().unzip();
            let responses = session.propose(None, Actor::Node(member.node), batch, within).await?;
            for (place, response) in places.into_iter().zip(responses) {
                if let (Some(outcome @ None), Answer::Refused(error)) = (outcomes.get_mut(place), response) {
                    if error.kind == ErrorKind::StaleVersion {
                        overtaken.push(place);
                    }
                    *outcome = Some(error);
                }
            }
            commands = rest;
        }
        Ok(overtaken)
    }

    /// Waits until a participant has other duties than the ones it knows.
    async fn poll_duties(&self, caller: &Caller, request: v1::DutiesRequest) -> Result<Duties, ErrorDetail> {
        let cluster = request.cluster.clone();
        let asked = DutiesQuery::try_from(request)?;
        let Member { node, incarnation, .. } = asked.member;
        let session = self.context.leader(POLL_LEADER_WAIT).await?;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(asked.wait_ms.into());
        let state = session.quorum().replicated();
        state.read(|state| {
            check_member(cluster.as_ref(), state)?;
            check_own(caller, "/archon.v1.Session/Duties", state, node)?;
            participant_only(state.check_sender(node, incarnation)?)
        })?;
        let term = session.number();
        let coordinators = || session.quorum().coordinators();
        let not_leased = || state.read(|state| state.tables_not_leased(node).cloned().collect());
        let not_granted =
            || state.read(|state| state.tables_not_granted(node).map(|table| table.name.clone()).collect());
        let leased =
            || state.read(|state| state.tables_leased(node).map(|table| (table.id, table.name.clone())).collect());
        let answer = |term, version, duties| Duties {
            term,
            version,
            duties,
            coordinators: coordinators(),
            tables_not_leased: not_leased(),
            tables_not_granted: not_granted(),
            tables: leased(),
            relays: session.relays_of(node),
        };
        let unchanged = || answer(asked.term, asked.version, None);
        let (poll, wake) = session.polls().begin(node, incarnation, (asked.term, asked.version));
        loop {
            // Registered before the state is read: a later change wakes.
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let answered = state.read(|state| session.polls().answer(state, term, poll))?;
            // A poll is not woken when the participant's incarnation is recorded as active.
            let until = match answered {
                PollAnswer::News(version, duties) => return Ok(answer(term, version, Some(duties))),
                PollAnswer::Overtaken => return Ok(unchanged()),
                PollAnswer::Nothing => deadline,
                PollAnswer::NotActive => deadline.min(tokio::time::Instant::now() + ACTIVATION_LOOK),
            };
            tokio::select! {
                () = session.stop().cancelled() => return Err(session.quorum().not_leading()),
                () = self.context.stop.cancelled() => return Ok(unchanged()),
                () = woken => {}
                () = tokio::time::sleep_until(until) => {
                    if until == deadline {
                        return Ok(unchanged());
                    }
                }
            }
        }
    }

    async fn leave_node(
        &self,
        caller: &Caller,
        request: v1::LeaveRequest,
        within: Duration,
    ) -> Result<(), ErrorDetail> {
        let cluster = request.cluster.clone();
        let member = Member::try_from(request)?;
        let session = self.context.leader(within).await?;
        let commands = {
            let term = session.term().lock();
            session.quorum().replicated().read(|state| {
                check_member(cluster.as_ref(), state)?;
                check_own(caller, "/archon.v1.Session/Leave", state, member.node)?;
                term.farewell(state, member.node, member.incarnation)
            })?
        };
        for response in session.propose(None, Actor::Node(member.node), commands, within).await? {
            if let Answer::Refused(error) = response {
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Sessions {
    /// Notes for people that a node waits for disk space, in the memory of the leader alone.
    async fn note_wait(
        &self,
        caller: &Caller,
        request: v1::WaitForSpaceRequest,
        within: Duration,
    ) -> Result<(), ErrorDetail> {
        caller.check_name(WAIT, Role::Node, &request.name)?;
        let storage = storage_id(&request.storage_id, "WaitForSpaceRequest.storage_id")?;
        let lack: DiskFull = required(request.disk_full, "WaitForSpaceRequest.disk_full")?.into();
        let session = self.context.leader(within).await?;
        let waiting = session.quorum().replicated().read(|state| {
            check_member(request.cluster.as_ref(), state)?;
            let row = state.node_by_storage(storage).filter(|row| row.node.name == request.name);
            Ok::<_, ErrorDetail>(row.map(|row| row.node.id))
        })?;
        // Another directory of that name may be registered by now.
        if let Some(node) = waiting {
            let began = Millis::new(wall_now().get().saturating_sub(request.waited_ms));
            session.loads().lock().note_wait(node, SpaceWait { lack, began, reported: Instant::now() });
        }
        Ok(())
    }
}

/// Refuses nodes, because duties are pushed to them.
fn participant_only(row: &NodeRow) -> Result<(), ErrorDetail> {
    if row.participant.is_some() {
        return Ok(());
    }
    let message = format!("{} is a node of the key-value store: its duties are pushed to it", row.node.name);
    Err(ErrorDetail::new(ErrorKind::InvalidArgument, message))
}

fn unexpected(answer: &Answer) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Internal, format!("the log answered a registration with {answer:?}"))
}

#[tonic::async_trait]
impl SessionService for Sessions {
    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterResponse>, Status> {
        let (caller, within) = (Caller::of(&request), budget(request.metadata()));
        let registered = self.register_node(&caller, request.into_inner(), within).await.map_err(refuse)?;
        tracing::debug!(node = %registered.node, incarnation = %registered.incarnation, "registered a node");
        Ok(Response::new(registered.into()))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let (caller, within) = (Caller::of(&request), budget(request.metadata()));
        self.report_of(&caller, request.into_inner(), within).await.map(Response::new).map_err(refuse)
    }

    async fn duties(&self, request: Request<v1::DutiesRequest>) -> Result<Response<v1::DutiesResponse>, Status> {
        let caller = Caller::of(&request);
        self.poll_duties(&caller, request.into_inner()).await.map(|duties| Response::new(duties.into())).map_err(refuse)
    }

    async fn revocations(
        &self,
        request: Request<v1::RevocationsRequest>,
    ) -> Result<Response<v1::RevocationsResponse>, Status> {
        let query = RevocationsQuery::try_from(request.into_inner()).map_err(refuse)?;
        revocations::poll(&self.context, query).await.map(|found| Response::new(found.into())).map_err(refuse)
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
        let (caller, within) = (Caller::of(&request), budget(request.metadata()));
        self.leave_node(&caller, request.into_inner(), within).await.map_err(refuse)?;
        Ok(Response::new(v1::LeaveResponse {}))
    }

    async fn wait_for_space(
        &self,
        request: Request<v1::WaitForSpaceRequest>,
    ) -> Result<Response<v1::WaitForSpaceResponse>, Status> {
        let (caller, within) = (Caller::of(&request), budget(request.metadata()));
        self.note_wait(&caller, request.into_inner(), within).await.map_err(refuse)?;
        Ok(Response::new(v1::WaitForSpaceResponse {}))
    }
}
