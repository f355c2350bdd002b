//! A hub on the network, as the conformance kit wants it.

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

use crate::{
    capability::Skill,
    conformance::hub::{HubPeer, Said},
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

/// Messages that wait on a call, either way.
const MAX_WAITING: usize = 64;

/// Bytes of a message, either way.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// How long connecting and registering may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A hub behind a URL, on a connection of its own. Not for use within an async runtime: it blocks.
pub struct HubProbe {
    runtime: Runtime,
    client: AgentHubClient<Channel>,
    skill: Skill,
    feed: Box<dyn FnMut(&Skill)>,
    calls: HashMap<StreamId, Call>,
    opened: u64,
}

struct Call {
    sender: Option<Sender>,
    said: mpsc::Receiver<Said>,
    reader: AbortHandle,
}

enum Sender {
    Listen(mpsc::Sender<ListenRequest>),
    Test(mpsc::Sender<TestResponse>),
    Translation(mpsc::Sender<TranslationResponse>),
}

impl HubProbe {
    /// Connects. The hub's jobs are tests of `skill`; `feed` gives it one more, where that can be done.
    ///
    /// # Errors
    ///
    /// No runtime, no URL, or nobody there.
    pub fn connect(
        url: &str,
        skill: Skill,
        feed: impl FnMut(&Skill) + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(io::Error::other)?;
        let endpoint = endpoint.connect_timeout(PATIENCE).tcp_nodelay(true);
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
            feed: Box::new(feed),
            calls: HashMap::new(),
            opened: 0,
        })
    }
}

impl HubPeer for HubProbe {
    fn register(&mut self, registration: AgentRegistration) -> Result<String, Status> {
        let call = self.client.register(registration);
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, call).await });
        match answer {
            Ok(answer) => Ok(answer?.into_inner().client_id),
            Err(_) => Err(Status::new(Code::Unknown, "no answer in 10 s")),
        }
    }

    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId {
        self.opened += 1;
        let stream = StreamId(self.opened);
        let mut client = self.client.clone();
        let (tell, said) = mpsc::channel(MAX_WAITING);
        // A task needs the runtime's context to be started.
        let _context = self.runtime.enter();
        let (sender, reader) = match rpc {
            Rpc::Listen => {
                let (sender, request) = request(CLIENT_ID_KEY, key);
                let call = async move { client.listen(request).await };
                (Sender::Listen(sender), start(call, tell, Inbound::Listen))
            }
            Rpc::Execute => {
                let (sender, request) = request(SESSION_ID_KEY, key);
                let call = async move { client.execute(request).await };
                (Sender::Test(sender), start(call, tell, Inbound::Test))
            }
            Rpc::Translate => {
                let (sender, request) = request(SESSION_ID_KEY, key);
                let call = async move { client.translate(request).await };
                let reader = start(call, tell, Inbound::Translation);
                (Sender::Translation(sender), reader)
            }
        };
        let call = Call {
            sender: Some(sender),
            said,
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
        // Nobody reads and nobody sends: the library breaks it off.
        if let Some(call) = self.calls.remove(&stream) {
            call.reader.abort();
        }
    }

    fn next(&mut self, stream: StreamId, patience: Duration) -> Option<Said> {
        let call = self.calls.get_mut(&stream)?;
        self.runtime.block_on(async {
            let said = tokio::time::timeout(patience, call.said.recv()).await;
            said.ok().flatten()
        })
    }

    fn want_job(&mut self) {
        /// Within this, a call that was opened has reached its hub.
        const UNDER_WAY: Duration = Duration::from_millis(100);
        self.runtime
            .block_on(async { tokio::time::sleep(UNDER_WAY).await });
        (self.feed)(&self.skill);
    }

    fn skill(&self) -> Skill {
        self.skill.clone()
    }
}

impl fmt::Debug for HubProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubProbe")
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
    // An id that is no metadata value is the hub's fault, and leaves the call without one.
    if let Some(value) = key.and_then(|key| key.parse().ok()) {
        request.metadata_mut().insert(name, value);
    }
    (sender, request)
}

fn start<T: Send + 'static>(
    call: impl Future<Output = Result<Response<Streaming<T>>, tonic::Status>> + Send + 'static,
    tell: mpsc::Sender<Said>,
    inbound: fn(T) -> Inbound,
) -> AbortHandle {
    let reader = crate::transport::spawn(async move {
        let status = match call.await {
            Err(status) => status.into(),
            Ok(response) => {
                let mut messages = response.into_inner();
                loop {
                    match messages.message().await {
                        Ok(Some(message)) => {
                            let said = Said::Message(inbound(message));
                            if tell.send(said).await.is_err() {
                                return;
                            }
                        }
                        Ok(None) => break Status::ok(),
                        Err(status) => break status.into(),
                    }
                }
            }
        };
        // Nobody need wait for it.
        let _ = tell.send(Said::Ended(status)).await;
    });
    reader.abort_handle()
}
