//! What a slow store holds up.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use tokio::sync::Notify;
use uap_hub_proto::role::hub::{Job, JobStage, Record};
use uap_hub_proto::transport::client::AgentBuilder;
use uap_hub_proto::transport::server::{ServerConfig, serve};
use uap_hub_proto::wire::TestResult;

use super::super::lines::Page;
use super::*;

/// A page that nobody reads until the gate is opened.
struct Unread(std_mpsc::Receiver<()>, Page);

impl Write for Unread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Closed is open.
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A store that looks for nothing before it is let.
#[derive(Debug)]
struct Slow {
    asked: Arc<Notify>,
    gate: Mutex<std_mpsc::Receiver<()>>,
}

impl JobStore for Slow {
    fn write(&self, _: &[(JobId, Record)]) -> Result<(), StoreError> {
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        Ok(Vec::new())
    }

    fn outcome(&self, _: JobId) -> Result<Option<Outcome>, StoreError> {
        Ok(None)
    }

    fn labelled(&self, _: &str) -> Result<Option<JobId>, StoreError> {
        self.asked.notify_one();
        let gate = self.gate.lock().unwrap();
        let opened = gate.recv_timeout(Duration::from_secs(60));
        opened.map_err(|err| StoreError::Failed(Box::new(err)))?;
        Ok(None)
    }
}

// spec: HUB-6-1
#[tokio::test]
async fn a_store_that_answers_late_holds_up_nothing_else() {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let (asked, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let ends = Arc::clone(&may_end);
    let _agent = AgentBuilder::new("one")
        .on_test("wait", move |_, _| {
            let ends = Arc::clone(&ends);
            async move {
                ends.notified().await;
                Ok(TestResult::completed("it ended"))
            }
        })
        .start(&hub.url())
        .unwrap();
    let (open, gate) = std_mpsc::channel();
    let (is_asked, gate) = (Arc::clone(&asked), Mutex::new(gate));
    let store = Arc::new(Slow { asked, gate });
    let (sender, inputs) = mpsc::channel(2);
    for (n, id) in ["", r#","id":"a""#].into_iter().enumerate() {
        let line = Ok(format!(r#"{{"kind":"test","type":"wait"{id}}}"#));
        let place = n.to_string();
        sender.send(Input { place, line }).await.unwrap();
    }
    drop(sender);
    let args = Args {
        exit_when_done: true,
        ..Args::default()
    };
    let page = Page::default();
    let lines = Lines::to(page.clone());
    let (_leave, leaving) = watch::channel(false);
    let script = async {
        // While the store looks for the second job, the first ends and is told of.
        is_asked.notified().await;
        may_end.notify_one();
        page.until("it ended").await;
        open.send(()).unwrap();
        may_end.notify_one();
    };
    let work = work(&args, &hub, Some(store), inputs, &lines, leaving);
    let (code, ()) = tokio::join!(work, script);
    assert_eq!(code, 0);
    lines.flushed().await;
    let page = page.text();
    assert_eq!(page.matches("it ended").count(), 2, "{page}");
}

// spec: HUB-6-1
#[tokio::test]
async fn a_job_that_the_store_cannot_look_for_does_not_run() {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let (open, gate) = std_mpsc::channel();
    drop(open);
    let (asked, gate) = (Arc::default(), Mutex::new(gate));
    let store = Arc::new(Slow { asked, gate });
    let (sender, inputs) = mpsc::channel(1);
    let line = Ok(r#"{"kind":"test","type":"t","id":"a"}"#.to_owned());
    let place = "stdin:1".to_owned();
    sender.send(Input { place, line }).await.unwrap();
    drop(sender);
    let args = Args {
        exit_when_done: true,
        ..Args::default()
    };
    let page = Page::default();
    let lines = Lines::to(page.clone());
    let (_leave, leaving) = watch::channel(false);
    let code = work(&args, &hub, Some(store), inputs, &lines, leaving).await;
    assert_eq!(code, UNUSABLE);
    page.until("the store failed").await;
    assert_eq!(hub.inspect(|view| view.counts().jobs), 0);
}

// spec: HUB-4-4
#[tokio::test]
async fn what_is_about_jobs_waits_for_who_reads_and_news_is_counted() {
    let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
    let hub = hub.await.unwrap();
    let may_end = Arc::new(Notify::new());
    let words = format!("{} and it ended", "w".repeat(2_000));
    let whole = words.clone();
    let ends = Arc::clone(&may_end);
    let _agent = AgentBuilder::new("one")
        .on_test("wait", move |_, _| {
            let (ends, words) = (Arc::clone(&ends), words.clone());
            async move {
                ends.notified().await;
                Ok(TestResult::completed(words))
            }
        })
        .start(&hub.url())
        .unwrap();
    let (sender, inputs) = mpsc::channel(1);
    let line = Ok(r#"{"kind":"test","type":"wait"}"#.to_owned());
    let place = "stdin:1".to_owned();
    sender.send(Input { place, line }).await.unwrap();
    let (open, gate) = std_mpsc::channel();
    let page = Page::default();
    let lines = Lines::to(Unread(gate, page.clone()));
    let (leave, leaving) = watch::channel(false);
    let script = async {
        while !hub.inspect(|view| view.jobs().any(|job| job.stage == JobStage::Running)) {
            tokio::task::yield_now().await;
        }
        while lines.has_room() {
            lines.registered(&ClientId::from("a"), &"n".repeat(20_000), None);
        }
        (0..7).for_each(|_| lines.missed(1));
        may_end.notify_one();
        while hub.inspect(|view| view.counts().jobs) > 0 {
            tokio::task::yield_now().await;
        }
        // It is heard although nobody reads, and the end of the job is told before it is followed.
        leave.send_replace(true);
        while !leave.is_closed() {
            let _ = open.send(());
            tokio::task::yield_now().await;
        }
    };
    let args = Args::default();
    let work = work(&args, &hub, None, inputs, &lines, leaving);
    let (code, ()) = tokio::join!(work, script);
    assert_eq!(code, 0);
    drop(open);
    lines.flushed().await;
    let text = page.text();
    assert!(text.contains(&whole), "all words of the result");
    let mut left_out = text.lines().filter(|line| line.contains("left-out"));
    let left_out = left_out.next().unwrap();
    assert!(left_out.contains(r#""lines":7"#), "{left_out}");
    let mut registered = text
        .lines()
        .filter(|line| line.contains("agent-registered"));
    let registered = registered.next().unwrap();
    assert!(registered.len() < 17_000, "{}", registered.len());
    assert!(registered.contains("left_out_bytes"));
}

// spec: HUB-6-1
#[tokio::test]
async fn a_hub_that_leaves_says_how_each_job_ends_that_it_did_not_take() {
    let config = ServerConfig::default()
        .with_hub(uap_hub_proto::role::hub::Config::default().with_max_jobs(1));
    let hub = serve(([127, 0, 0, 1], 0).into(), config).await.unwrap();
    let _agent = AgentBuilder::new("one")
        .on_test("t", |_, _| std::future::pending())
        .start(&hub.url())
        .unwrap();
    let (asked, (open, gate)) = (Arc::new(Notify::new()), std_mpsc::channel());
    let (is_asked, gate) = (Arc::clone(&asked), Mutex::new(gate));
    let slow: Arc<dyn JobStore> = Arc::new(Slow { asked, gate });
    let ended = |line: &str| (line.contains(r#""event":"failed""#)).then(|| line.to_owned());
    // One waits for an agent, and behind it the store looks for one, or the hub has no room for one.
    for (second, store) in [
        (r#","id":"looked for""#, Some(slow)),
        (r#","id":"no room""#, None),
    ] {
        let (sender, inputs) = mpsc::channel(3);
        for (n, rest) in [r#","agent":"nobody""#, "", second].into_iter().enumerate() {
            let line = Ok(format!(r#"{{"kind":"test","type":"t"{rest}}}"#));
            let place = n.to_string();
            sender.send(Input { place, line }).await.unwrap();
        }
        let page = Page::default();
        let lines = Lines::to(page.clone());
        let (leave, leaving) = watch::channel(false);
        let looks = store.is_some();
        let args = Args::default();
        let script = async {
            match looks {
                true => is_asked.notified().await,
                false => {
                    while sender.capacity() < sender.max_capacity() {
                        tokio::task::yield_now().await;
                    }
                }
            }
            leave.send_replace(true);
        };
        let work = work(&args, &hub, store, inputs, &lines, leaving);
        let cancel = async {
            page.until("the hub left").await;
            for job in hub.inspect(|view| view.jobs().map(|job| job.id).collect::<Vec<_>>()) {
                let _ = hub.cancel(job);
            }
        };
        let (code, (), ()) = tokio::join!(work, script, cancel);
        assert_eq!(code, 1);
        lines.flushed().await;
        let text = page.text();
        let ended: Vec<_> = text.lines().filter_map(ended).collect();
        assert_eq!(ended.len(), 3, "{text}");
        let label = second.trim_start_matches(r#","id":"#);
        let told = |line: &String| line.contains(LEFT) && line.contains(label);
        assert!(ended.iter().any(told), "{text}");
    }
    drop(open);
}
