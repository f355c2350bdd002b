//! Agents that call a hub on the network and do what the kit tells them to.

use std::{collections::HashMap, fmt, future::Future, io, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
    task::AbortHandle,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Streaming,
    transport::{Channel, Endpoint},
};

use uap_hub_proto::{
    capability::Skill,
    id::StreamId,
    role::{
        CLIENT_ID_KEY, Rpc, SESSION_ID_KEY,
        agent::{Inbound, Outbound},
    },
    status::{Code, Status},
    wire::{
        AgentRegistration, ListenRequest, TestResponse, TranslationResponse,
        agent_hub_client::AgentHubClient,
    },
};

use super::super::spawn;
use super::{HubAction, HubPeer};

/// Messages that wait on a call, either way.
const MAX_WAITING: usize = 64;

/// Bytes of a message, either way.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// How long connecting and registering may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Agents on one connection to a hub. It blocks: do not use it inside an async runtime.
pub struct TestFleet {
    runtime: Runtime,
    client: AgentHubClient<Channel>,
    skill: Skill,
    submit: Box<dyn FnMut(&Skill)>,
    calls: HashMap<StreamId, HubCall>,
    opened: u64,
}

struct HubCall {
    sender: Option<Sender>,
    actions: mpsc::Receiver<HubAction>,
    reader: AbortHandle,
}

enum Sender {
    Listen(mpsc::Sender<ListenRequest>),
    Test(mpsc::Sender<TestResponse>),
    Translation(mpsc::Sender<TranslationResponse>),
}

impl TestFleet {
    /// Connects. The hub's jobs are tests of `skill`; `submit` submits one more to it, if it can.
    ///
    /// # Errors
    ///
    /// The URL is not valid, nothing answers there, or no runtime can be started.
    pub fn connect(
        url: &str,
        skill: Skill,
        submit: impl FnMut(&Skill) + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(io::Error::other)?;
        let endpoint = endpoint.connect_timeout(CALL_TIMEOUT).tcp_nodelay(true);
        let channel = runtime
            .block_on(endpoint.connect())
            .map_err(io::Error::other)?;
        let client = AgentHubClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            runtime,
            client,
            skill,
            submit: Box::new(submit),
            calls: HashMap::new(),
            opened: 0,
        })
    }
}

impl HubPeer for TestFleet {
    fn register(&mut self, registration: AgentRegistration) -> Result<String, Status> {
        let call = self.client.register(registration);
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(CALL_TIMEOUT, call).await });
        match answer {
            Ok(answer) => Ok(answer?.into_inner().client_id),
            Err(_) => Err(Status::new(Code::Unknown, "no answer in a minute")),
        }
    }

    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId {
        self.opened += 1;
        let stream = StreamId(self.opened);
        let mut client = self.client.clone();
        let (report, actions) = mpsc::channel(MAX_WAITING);
        // A task needs the runtime's context to be started.
        let _context = self.runtime.enter();
        let (sender, reader) = match rpc {
            Rpc::Listen => {
                let (sender, request) = request(CLIENT_ID_KEY, key);
                let call = async move { client.listen(request).await };
                (Sender::Listen(sender), start(call, report, Inbound::Listen))
            }
            Rpc::Execute => {
                let (sender, request) = request(SESSION_ID_KEY, key);
                let call = async move { client.execute(request).await };
                (Sender::Test(sender), start(call, report, Inbound::Test))
            }
            Rpc::Translate => {
                let (sender, request) = request(SESSION_ID_KEY, key);
                let call = async move { client.translate(request).await };
                let reader = start(call, report, Inbound::Translation);
                (Sender::Translation(sender), reader)
            }
        };
        let call = HubCall {
            sender: Some(sender),
            actions,
            reader,
        };
        self.calls.insert(stream, call);
        stream
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        let sender = self
            .calls
            .get(&stream)
            .and_then(|call| call.sender.as_ref());
        // A call that has ended takes no more, which its end says already.
        self.runtime.block_on(async {
            match (sender, message) {
                (Some(Sender::Listen(to)), Outbound::Listen(message)) => {
                    to.send(message).await.is_ok()
                }
                (Some(Sender::Test(to)), Outbound::Test(message)) => to.send(message).await.is_ok(),
                (Some(Sender::Translation(to)), Outbound::Translation(message)) => {
                    to.send(message).await.is_ok()
                }
                _ => false,
            }
        });
    }

    fn half_close(&mut self, stream: StreamId) {
        if let Some(call) = self.calls.get_mut(&stream) {
            call.sender = None;
        }
    }

    fn reset(&mut self, stream: StreamId) {
        // Without a reader and a sender the library resets the call.
        if let Some(call) = self.calls.remove(&stream) {
            call.reader.abort();
        }
    }

    fn next(&mut self, stream: StreamId, timeout: Duration) -> Option<HubAction> {
        let call = self.calls.get_mut(&stream)?;
        self.runtime.block_on(async {
            let action = tokio::time::timeout(timeout, call.actions.recv()).await;
            action.ok().flatten()
        })
    }

    fn want_job(&mut self) {
        /// Within this time an opened call has reached the hub.
        const UNDER_WAY: Duration = Duration::from_millis(100);
        self.runtime
            .block_on(async { tokio::time::sleep(UNDER_WAY).await });
        (self.submit)(&self.skill);
    }

    fn skill(&self) -> Skill {
        self.skill.clone()
    }
}

impl fmt::Debug for TestFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestFleet")
            .field("skill", &self.skill)
            .finish_non_exhaustive()
    }
}

fn request<T>(
    name: &'static str,
    key: Option<&str>,
) -> (mpsc::Sender<T>, Request<ReceiverStream<T>>) {
    let (sender, body) = mpsc::channel(MAX_WAITING);
    let mut request = Request::new(ReceiverStream::new(body));
    // An id that is not a metadata value is a fault of the hub: the call goes without one.
    if let Some(value) = key.and_then(|key| key.parse().ok()) {
        request.metadata_mut().insert(name, value);
    }
    (sender, request)
}

fn start<T: Send + 'static>(
    call: impl Future<Output = Result<Response<Streaming<T>>, tonic::Status>> + Send + 'static,
    report: mpsc::Sender<HubAction>,
    inbound: fn(T) -> Inbound,
) -> AbortHandle {
    let reader = spawn(async move {
        let status = match call.await {
            Err(status) => status.into(),
            Ok(response) => {
                let mut messages = response.into_inner();
                loop {
                    match messages.message().await {
                        Ok(Some(message)) => {
                            let action = HubAction::Sent(inbound(message));
                            if report.send(action).await.is_err() {
                                return;
                            }
                        }
                        Ok(None) => break Status::ok(),
                        Err(status) => break status.into(),
                    }
                }
            }
        };
        // The case may be over.
        let _ = report.send(HubAction::Ended(status)).await;
    });
    reader.abort_handle()
}
