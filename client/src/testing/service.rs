//! Network interface of a fake coordinator.

use super::FakeState;
use super::script::Behaviour;
use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, end_stream};
use archon_proto::convert::ConvertError;
use archon_proto::convert::error::status_of;
use archon_proto::convert::members::beats::{Beat, BeatAnswer, BeatAnswers, Beats, ClusterNow, HeartbeatAnswers};
use archon_proto::convert::members::duties::{Duties, DutiesQuery};
use archon_proto::convert::members::report::{Outcomes, Reports};
use archon_proto::convert::members::session::{Member, Registration};
use archon_proto::v1;
use archon_proto::v1::session_server::Session;
use archon_types::{ErrorDetail, ErrorKind, PROTOCOL_FIRST, Settings, Version};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Request, Response, Status};

/// Service of the coordinator.
#[derive(Clone)]
pub(super) struct Service {
    shared: Arc<FakeState>,
}

impl Service {
    pub(super) const fn new(shared: Arc<FakeState>) -> Self {
        Self { shared }
    }

    /// Returns the rules for the answers to this member, once it is to be answered.
    async fn behaviour(&self, member: &Member) -> Behaviour {
        let mut changed = self.shared.changed.subscribe();
        loop {
            let behaviour = self.shared.script.lock().behaviour_of(member);
            if !behaviour.silent {
                return behaviour;
            }
            // The sender is owned by `shared`.
            let _ = changed.changed().await;
        }
    }

    async fn answer_later(&self, member: &Member) {
        sleep(self.behaviour(member).await.delay).await;
    }

    /// Answers a member's heartbeats until their stream ends.
    pub(super) async fn stream(self, kind: StreamKind, mut reader: FrameReader, mut writer: FrameWriter) {
        let ended = match kind {
            StreamKind::Beats => self.beats(&mut reader, &mut writer).await,
            StreamKind::Exchange | StreamKind::Replicate => {
                let detail = ErrorDetail::new(ErrorKind::InvalidArgument, "a coordinator holds no partitions");
                Err(FrameError::Refused(detail))
            }
        };
        end_stream(ended, writer).await;
    }

    async fn beats(&self, reader: &mut FrameReader, writer: &mut FrameWriter) -> Result<(), FrameError> {
        loop {
            let beats = Beats::try_from(reader.next::<v1::Beats>().await?);
            let Beats { cluster, batch, beats, .. } = beats.map_err(|error| FrameError::Refused(error.into()))?;
            let mut answers = Vec::new();
            for beat in beats {
                let Beat { node, incarnation, number, .. } = beat;
                let member = Member { cluster, node, incarnation };
                self.answer_later(&member).await;
                let outcome = self.shared.change(|script| script.heartbeat(&member, &beat));
                answers.push(BeatAnswer::new(node, incarnation, number, outcome));
            }
            let replication_timeout_ms = Settings::default().replication_timeout_ms;
            let now =
                ClusterNow { replication_timeout_ms, protocol: PROTOCOL_FIRST, term: 1, relays: 0, door_every_ms: 0 };
            let outcome = Ok(HeartbeatAnswers::new(answers, now));
            writer.push(&v1::BeatAnswers::from(BeatAnswers::new(batch, outcome)));
            writer.flush().await?;
        }
    }

    /// Waits for new duties for the time that the member requested.
    async fn poll(&self, asked: &DutiesQuery) -> Result<Duties, ErrorDetail> {
        let mut changed = self.shared.changed.subscribe();
        let until = Instant::now() + Duration::from_millis(asked.wait_ms.into());
        loop {
            if let Some(duties) = self.shared.script.lock().poll(asked, &[])? {
                return Ok(duties);
            }
            if timeout_at(until, changed.changed()).await.is_err() {
                let DutiesQuery { term, version, .. } = *asked;
                return Ok(Duties {
                    term,
                    version,
                    duties: None,
                    coordinators: Vec::new(),
                    tables_not_leased: Vec::new(),
                    tables_not_granted: Vec::new(),
                    tables: Vec::new(),
                    relays: Vec::new(),
                });
            }
        }
    }
}

fn refuse(detail: ErrorDetail) -> Status {
    status_of(&detail)
}

fn malformed(error: ConvertError) -> Status {
    refuse(error.into())
}

#[tonic::async_trait]
impl Session for Service {
    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterResponse>, Status> {
        let registration = Registration::try_from(request.into_inner()).map_err(malformed)?;
        let mut changed = self.shared.changed.subscribe();
        while self.shared.script.lock().behaviour(&registration.register.name).silent {
            // The sender is owned by `shared`.
            let _ = changed.changed().await;
        }
        let registered = self.shared.change(|script| script.register(registration));
        Ok(Response::new(registered.map_err(refuse)?.into()))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let Reports { member, reports } = Reports::try_from(request.into_inner()).map_err(malformed)?;
        self.behaviour(&member).await;
        let (outcomes, lost) = self.shared.change(|script| {
            let outcomes = reports.iter().map(|report| script.report(&member, report).err()).collect();
            (outcomes, script.loses_answer(&member))
        });
        if lost {
            return Err(Status::unavailable("the answer is lost"));
        }
        Ok(Response::new(Outcomes { outcomes, table_version: Version::ZERO }.into()))
    }

    async fn duties(&self, request: Request<v1::DutiesRequest>) -> Result<Response<v1::DutiesResponse>, Status> {
        let asked = DutiesQuery::try_from(request.into_inner()).map_err(malformed)?;
        self.behaviour(&asked.member).await;
        let duties = self.poll(&asked).await.map_err(refuse)?;
        self.answer_later(&asked.member).await;
        Ok(Response::new(duties.into()))
    }

    async fn revocations(
        &self,
        _: Request<v1::RevocationsRequest>,
    ) -> Result<Response<v1::RevocationsResponse>, Status> {
        Err(Status::unimplemented("participants of this coordinator show no certificates"))
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
        let member = Member::try_from(request.into_inner()).map_err(malformed)?;
        self.behaviour(&member).await;
        self.shared.change(|script| script.leave(&member)).map_err(refuse)?;
        Ok(Response::new(v1::LeaveResponse {}))
    }

    async fn wait_for_space(
        &self,
        _: Request<v1::WaitForSpaceRequest>,
    ) -> Result<Response<v1::WaitForSpaceResponse>, Status> {
        Err(Status::unimplemented("participants have no disk"))
    }
}
